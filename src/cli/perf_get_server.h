// SPDX-License-Identifier: Apache-2.0
// The server's side of `verbena perf get`: the hash table, the chain program that looks keys up for
// the client, and a program of the CPU's that does the same.
#ifndef VB_CLI_PERF_GET_SERVER_H
#define VB_CLI_PERF_GET_SERVER_H

#include "cli/perf_end.h"
#include "cli/perf_get_table.h"
#include "verbena/offload_service.h"

struct vb_get_server {
    struct vb_get_table table;
    enum vb_perf_collision collision;
    bool breaks;            // of a list walk
    struct vb_perf_end end; // its queue pair carries everything but the chain's requests
    struct vb_channel *channel;
    struct vb_offload_service *service; // of the chain
    uint64_t client;                    // its only client's ticket; 0: none
    enum vb_perf_via via;               // that is served
    uint64_t answered[VB_PERF_WAYS];    // by the CPU's program
    uint64_t wrong;                     // requests that it could not make sense of
};

// -1: see `why`, and nothing is left to close.
int vb_get_server_open(struct vb_get_server *s, struct vb_nic *nic, const struct vb_perf_plan *plan,
                       char *why);
void vb_get_server_close(struct vb_get_server *s);
// Takes the client's names of its queue pairs and its message to the service, which sets the chain
// up, and appends our names and the service's answer to a message that begins anew.
int vb_get_server_connect(struct vb_get_server *s, struct vb_control_msg *msg, char *why);
// Serves one way until a message waits on `control`. Of all but RPCs that is to run the NIC.
void vb_get_server_run(struct vb_get_server *s, enum vb_perf_via via, int control, bool yield);

#endif
