// SPDX-License-Identifier: Apache-2.0
// A request that is being executed.
#ifndef VB_HULL_COMMAND_H
#define VB_HULL_COMMAND_H

#include "hull/hull.h"

struct vb_hull_command {
    struct vb_hull_client *client;
    struct vb_dev *dev;
    const struct vb_hull_request *request;
    struct vb_hull_reply *reply;
    int *give; // the descriptor that goes with the reply,
    bool *close_it;
    const char *wants_counter;
};

// An object of the application's own. NULL, with words.
struct vb_hull_object *vb_hull_find(struct vb_hull_command *c, enum vb_hull_kind kind,
                                    uint32_t number);
// What the device has said. True: all is well.
bool vb_hull_judge(struct vb_hull_command *c, int error, const char *what);
// An errno: somebody uses it.
int vb_hull_destroy(struct vb_hull_object *object);
// Of what stays with its application. True, with words: this one is a service.
bool vb_hull_is_service(struct vb_hull_command *c, const char *what);

// ---- service.c
void vb_hull_service_command(struct vb_hull_command *c);

// ---- queue_command.c
void vb_hull_queue_command(struct vb_hull_command *c);

// ---- watch.c
void vb_hull_share_command(struct vb_hull_command *c);

// ---- program.c
void vb_hull_program_command(struct vb_hull_command *c);

// ---- queue_change.c
void vb_hull_change_queue(struct vb_hull_command *c);

// ---- copy.c
void vb_hull_copy_begin(struct vb_hull_command *c);

// ---- faults.c
void vb_hull_faults_set(struct vb_hull_command *c);
// Whether a registration must fail, with words.
bool vb_hull_faults_key(struct vb_hull_command *c);

// ---- trace.c
void vb_hull_trace_command(struct vb_hull_command *c);

// ---- manager.c
void vb_hull_manager_command(struct vb_hull_command *c);
// The application's seat, for a management queue pair. NULL, with words: there is none to be had,
// or it has its queue pair.
struct vb_hull_object *vb_hull_seat_for_qp(struct vb_hull_command *c);

#endif
