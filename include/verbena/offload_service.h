// SPDX-License-Identifier: Apache-2.0
// The service of offloads: sets chain programs up for clients, and takes them down again.
//
// A client sends a message that names its queue pair, the offload that it wants, how many requests
// it will have under way, and where answers may be written. The service makes queues, code regions,
// keys and limits for this client alone, and answers with what the client must connect to. From
// then on the server's CPU is not needed, until the client goes: by a message, because its program
// or its connection failed, because it asked for nothing for too long, or because the owner says
// so. Then its keys end and all its memory comes back.
//
// The service turns messages into answers; the caller carries them, as it likes (a socket, a pipe,
// another queue pair). Any bytes may come: what is no right message gets one refusal, in words.
//
// One thread at a time uses a service.
#ifndef VERBENA_OFFLOAD_SERVICE_H
#define VERBENA_OFFLOAD_SERVICE_H

#include <verbena/chain.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vb_nic;
struct vb_nic_event;
struct vb_offload_service;

enum {
    VB_OFFLOAD_MESSAGE = 512, // bytes of a message, at most
    VB_OFFLOAD_NAME = 32,     // of a name, with the zero at its end
    VB_OFFLOAD_TEXT = 200,    // of an error
    VB_OFFLOAD_REGIONS = 4,   // of the server's memory that one offload works on
};

// ---- the server

struct vb_offload_service_opts {
    uint32_t clients_max; // 0: 1,024
    uint32_t units;       // clients take turns over so many units of the NIC; 0: one
    uint64_t idle_ns;     // without a request, after which a client is taken for gone; 0: never
    uint8_t timeout;      // of acknowledgements and retries, as of struct vb_qp_peer: how long a
    uint8_t retries;      // client that does not answer is waited for
    // Of a service of a hull (docs/hull.md): the first of clients_max + 1 tags that nothing else is
    // made under. The next process that opens it with the same tag and adds the same offers has its
    // clients, who notice nothing. 0: they are of this process
    uint32_t tag;
};

// -EINVAL: no such units; or there is a tag, and the NIC is no service, or it was for fewer
// clients.
int vb_offload_open(struct vb_nic *nic, const struct vb_offload_service_opts *opts,
                    struct vb_offload_service **service);
// Ends every client.
void vb_offload_close(struct vb_offload_service *service);
// With a tag: leaves them to the next process, as its end would.
void vb_offload_leave(struct vb_offload_service *service);

// The server's memory that programs work on. Every client's program gets a key of its own for it.
struct vb_offload_memory {
    const char *region; // as the program calls it
    void *addr;
    size_t len;
    bool writable; // by programs
};

// What clients can ask for by name.
struct vb_offload_offer {
    const char *name;
    // The program for `depth` requests under way, with one queue for the client. NULL: error (200
    // bytes) says why. Made once for each depth; vb_image_destroy() ends it.
    struct vb_image *(*make)(void *ctx, uint32_t depth, char *error);
    void *ctx;
    const struct vb_offload_memory *memory; // of every shared region
    uint32_t memories;
    uint32_t depth_max;     // a power of two; 0: 64
    uint32_t request_bytes; // told to clients: of a request,
    uint32_t answer_bytes;  // and of their memory for each answer
    // Of each client's program; 0: none, which also costs nothing.
    uint32_t limit;       // entries executed for one request; one more ends the program
    uint32_t rate, burst; // entries per second of each queue, and at once
};

// -EINVAL, -ENOMEM: error (VB_OFFLOAD_TEXT bytes) says why. Memory must stay until the service is
// closed.
int vb_offload_add(struct vb_offload_service *service, const struct vb_offload_offer *offer,
                   char *error);

// With a tag, when all offers are added: takes the clients of the last process over, and ends those
// whom it was just making or ending, and whose offload is not offered any more. Returns how many
// there are; their tickets are as before. The first message that is answered does it, too.
uint32_t vb_offload_recover(struct vb_offload_service *service);

// Answers a message; returns the answer's bytes, which are never none. *ticket is the client's that
// joined or left; 0: neither. It stays the same as long as the client is there.
uint32_t vb_offload_answer(struct vb_offload_service *service, const void *message, size_t len,
                           uint8_t answer[VB_OFFLOAD_MESSAGE], uint64_t *ticket);
// Ends a client. -ENOENT: there is none.
int vb_offload_end(struct vb_offload_service *service, uint64_t ticket);
// An event of the NIC, as vb_nic_take_event() says them. True: it was about a client, which is
// ended.
bool vb_offload_event(struct vb_offload_service *service, const struct vb_nic_event *event);
// Ends clients whose queues have failed, and those that asked for nothing for too long. Now and
// then, for example once a second; `now_ns` is any clock that does not go back. Returns how many.
uint32_t vb_offload_sweep(struct vb_offload_service *service, uint64_t now_ns);

struct vb_offload_stat {
    uint32_t clients;
    uint64_t bytes; // of rings, completion queues and memory of their programs
    // Ever:
    uint64_t joined, refused;
    uint64_t left, failed, idle, ended; // by a message, by an error, by time, by the owner
};

void vb_offload_query(const struct vb_offload_service *service, struct vb_offload_stat *stat);
// A client's program, to be looked at, and the image that it was loaded from. NULL: no such client.
struct vb_loaded *vb_offload_loaded(struct vb_offload_service *service, uint64_t ticket);
const struct vb_image *vb_offload_image(struct vb_offload_service *service, uint64_t ticket);

// ---- a carrier: stream sockets, such as TCP's
// A connection is one client's: when it ends, however it does, the client is ended. Connections
// that bring no client within ten seconds are closed, and so are those that bring no messages.

struct vb_offload_stream;

// Takes connections from a socket that listens, which stays the caller's.
int vb_offload_stream_open(struct vb_offload_service *service, int listener,
                           struct vb_offload_stream **stream);
// Waits for something to do, at most so long (-1: for ever), and does it; sweeps once a second.
// Returns 0, or a negative errno of poll().
int vb_offload_stream_turn(struct vb_offload_stream *stream, int timeout_ms);
// Ends all connections and their clients.
void vb_offload_stream_close(struct vb_offload_stream *stream);

// The client's side: sends a message and waits for the answer. Returns its bytes; -EPIPE: the other
// side is gone; -ETIMEDOUT; -EPROTO: that was no message.
int vb_offload_call(int fd, const void *message, uint32_t len, uint8_t answer[VB_OFFLOAD_MESSAGE],
                    int timeout_ms);

// ---- clients

struct vb_offload_join {
    char offload[VB_OFFLOAD_NAME];
    uint64_t nonce;  // a random number: the same message again is refused
    uint8_t gid[16]; // our address
    uint32_t qpn;    // our queue pair, and the first packet sequence number that it sends
    uint32_t psn;
    uint32_t mtu;   // 256 to 4096; 0: 4096
    uint32_t depth; // requests under way: a power of two
    uint64_t addr;  // where answers go: memory that the service may write (VB_RIGHT_REMOTE_WRITE)
    uint64_t bytes;
    uint32_t key;
};

// What to connect to, with VB_RIGHT_REMOTE_WRITE, and how to ask. There are no keys: a client has
// no rights but to send.
struct vb_offload_place {
    uint64_t ticket; // to leave by
    uint8_t gid[16];
    uint32_t qpn;
    uint32_t psn;
    uint32_t mtu;
    uint32_t depth;
    uint32_t request_bytes, answer_bytes;
    uint32_t regions;
    struct {
        char name[VB_OFFLOAD_NAME];
        uint64_t addr; // as requests name it
        uint64_t bytes;
    } region[VB_OFFLOAD_REGIONS];
};

enum vb_offload_refusal {
    VB_OFFLOAD_MALFORMED = 1, // no message, or not all of one
    VB_OFFLOAD_VERSION,
    VB_OFFLOAD_UNKNOWN, // no such offload, or no such ticket
    VB_OFFLOAD_DEPTH,
    VB_OFFLOAD_PEER,     // an address, a queue pair or a packet that cannot be
    VB_OFFLOAD_ROOM,     // too little memory for answers
    VB_OFFLOAD_REPLAYED, // the same message came before, or its queue pair is served
    VB_OFFLOAD_FULL,     // as many clients as there may be
    VB_OFFLOAD_FAILED,   // the server has no memory or no queues left
};

// Return a message's bytes.
uint32_t vb_offload_write_join(uint8_t message[VB_OFFLOAD_MESSAGE],
                               const struct vb_offload_join *join);
uint32_t vb_offload_write_leave(uint8_t message[VB_OFFLOAD_MESSAGE], uint64_t ticket);
// Read the answer to a join and to a leave. 0; an enum vb_offload_refusal, and error
// (VB_OFFLOAD_TEXT bytes) has the service's words; -EPROTO: it is no such answer.
int vb_offload_read_place(const void *answer, size_t len, struct vb_offload_place *place,
                          char *error);
int vb_offload_read_left(const void *answer, size_t len, char *error);

#ifdef __cplusplus
}
#endif

#endif
