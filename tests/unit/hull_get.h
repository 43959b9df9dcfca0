// SPDX-License-Identifier: Apache-2.0
// An application that lets a hull answer gets from a table in named memory, and a client of it in
// another process. Both say by a bool whether all went well, so that any program can use them.
#ifndef VB_TESTS_HULL_GET_H
#define VB_TESTS_HULL_GET_H

#include "verbena/nic.h"
#include "verbena/offload.h"

#include <stdbool.h>
#include <stdint.h>

// What the two tell each other.
struct get_card {
    uint8_t gid[16];
    uint32_t qpn;
    uint32_t key;  // of the client's memory for answers,
    uint64_t addr; // and where it is
};

struct get_server {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *index, *items;
    struct vb_program *program;
    struct vb_loaded *loaded;
    uint8_t *memory; // TABLE_BYTES
    uint8_t timeout; // of acknowledgements, as of struct vb_qp_peer; set between open and serve
    char why[200];   // it failed
};

struct get_client {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_mr *mr;
    struct vb_cq *cq;
    struct vb_qp *qp;
    uint8_t *memory;
    uint32_t asked;
    uint8_t timeout; // the same; set between open and join
    char why[200];
};

// Attaches to the hull and takes the memory of this name. `service`: what is made stays under it
// when this process ends; NULL: all goes with it.
bool get_server_open(struct get_server *s, const char *hull, const char *name, const char *service);
// Loads the program for a client. From here on it answers by itself.
bool get_server_serve(struct get_server *s, const struct get_card *client, struct get_card *own);

// A NIC in this process, on an address of its own.
bool get_client_open(struct get_client *c, const char *address, const char *port);
void get_client_card(const struct get_client *c, struct get_card *own);
bool get_client_join(struct get_client *c, const struct get_card *server);
void get_client_close(struct get_client *c);

enum get_answer {
    GET_RIGHT,  // *version says which
    GET_MISSED, // there is no such key
    GET_WRONG,  // something else came
    GET_FAILED, // nothing came, or an error
};

enum get_answer get_client_get(struct get_client *c, uint32_t key, uint64_t *version);

#endif
