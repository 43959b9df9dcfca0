// SPDX-License-Identifier: Apache-2.0
// Memory that two processes share: anonymous files whose size is sealed, so that no access to a
// mapping can fail, and messages that carry their descriptors.
#ifndef VB_PORT_SHM_MEMORY_H
#define VB_PORT_SHM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

// Makes sealed memory of `bytes`, mapped for writing here and for reading alone by others. Returns
// its descriptor or a negative errno.
int vb_shm_memory_create(const char *name, size_t bytes, void **map);

// Maps a stranger's memory for reading, if it is sealed and of exactly that size. 0 or a negative
// errno. The descriptor stays the caller's.
int vb_shm_memory_adopt(int fd, size_t bytes, const void **map);

void vb_shm_memory_unmap(const void *map, size_t bytes); // NULL is fine

// Sends one message with a descriptor. 0 or a negative errno.
int vb_shm_say(int socket, const void *message, size_t bytes, int passed);

// Receives one: 0 and the descriptor; -EAGAIN: none yet; -EPIPE: the other end is closed; -EPROTO:
// something that is not a message of this length with one descriptor.
int vb_shm_hear(int socket, void *message, size_t bytes, int *passed);

// Whether the other end of a connection belongs to our user.
bool vb_shm_same_user(int socket);

#endif
