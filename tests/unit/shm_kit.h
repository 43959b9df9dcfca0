// SPDX-License-Identifier: Apache-2.0
// What the tests of the shm and auto ports share: a directory, frames whose bytes follow from a
// tag, and waiting.
#ifndef VB_TESTS_SHM_KIT_H
#define VB_TESTS_SHM_KIT_H

#include "port/port.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

enum {
    KIT_FOREVER = -1, // as long as CTest lets the test run
};

// Makes and removes the runtime directory of a test. Cmocka's setup and teardown; *state is its
// name.
int kit_make_dir(void **state);
int kit_remove_dir(void **state);

struct vb_port *kit_open_shm(const char *dir, const char *address, uint32_t ring_bytes);
// The socket at which the port of an address listens.
void kit_socket_name(const char *dir, const char *address, struct sockaddr_un *at);

void kit_close(struct vb_port *port);

struct vb_ip kit_ip(uint8_t last); // 127.0.0.last
struct vb_path kit_path(const struct vb_port *from, const struct vb_ip *to);

struct vb_rx_frame *kit_make_frames(void); // VB_PORT_RX_BATCH of them, for free()
struct vb_txq *kit_make_queue(void);
void kit_free_queue(struct vb_txq *q);

// Appends a frame. With body_len, that many bytes of it are lent from `body`, after 28 bytes, and
// are not written. False: no room.
bool kit_append(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag);
bool kit_append_lent(struct vb_txq *q, struct vb_path *path, uint32_t len, uint32_t tag,
                     const uint8_t *body, uint32_t body_len);
void kit_reset(struct vb_txq *q);

// Sends everything; fails the test if that takes too long.
void kit_send_all(struct vb_port *port, struct vb_txq *q);

// Sends one frame.
void kit_send(struct vb_port *port, struct vb_txq *q, struct vb_path *path, uint32_t len,
              uint32_t tag);

// Whether the frame is the one that kit_append made, ICRC aside; whether it came through memory,
// without an ICRC; whether both.
bool kit_same_bytes(const struct vb_rx_frame *f, uint32_t len, uint32_t tag);
bool kit_came_by_shm(const struct vb_rx_frame *f);
bool kit_matches(const struct vb_rx_frame *f, uint32_t len, uint32_t tag);
void kit_assert_frame(const struct vb_rx_frame *f, const struct vb_ip *src, uint32_t len,
                      uint32_t tag);

bool kit_is_readable(int fd, int timeout_ms);

// Receives until something comes; 0 if nothing does.
uint32_t kit_await(struct vb_port *port, struct vb_rx_frame *frames);

// Receives often enough that the port has looked at its connections.
uint32_t kit_receive_idle(struct vb_port *port, struct vb_rx_frame *frames);

// Cmocka's entry of a test that gets a directory.
#define KIT_TEST(test) cmocka_unit_test_setup_teardown(test, kit_make_dir, kit_remove_dir)

#endif
