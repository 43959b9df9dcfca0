// SPDX-License-Identifier: Apache-2.0
// Calls of a NIC's communication manager that have to succeed, and events that are due.
#include "host_cm_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <poll.h>

#include <cmocka.h>

struct vb_cm_event host_cm_wait(struct vb_host_cm *h, enum vb_cm_event_kind kind, int ms)
{
    struct pollfd fd = {vb_host_cm_event_fd(h), POLLIN, 0};
    struct vb_cm_event e = {0};

    assert_int_equal(poll(&fd, 1, ms), 1);
    assert_true(vb_host_cm_take_event(h, &e));
    assert_string_equal(vb_cm_event_text(e.kind), vb_cm_event_text(kind));
    return e;
}

// The manager is left before anything can fail.
#define CALL(h, call)                                    \
    do {                                                 \
        uint64_t now_ns;                                 \
        struct vb_cm *cm = vb_host_cm_enter(h, &now_ns); \
        int err = (call);                                \
        vb_host_cm_leave(h);                             \
        assert_int_equal(err, 0);                        \
    } while (0)

void host_cm_listen(struct vb_host_cm *h, uint64_t service_id, void *listener)
{
    CALL(h, ((void)now_ns, vb_cm_listen(cm, service_id, 0, 0, listener)));
}

uint32_t host_cm_connect(struct vb_host_cm *h, const struct vb_cm_request *request)
{
    uint32_t id = 0;
    CALL(h, vb_cm_connect(cm, now_ns, request, &id));
    return id;
}

void host_cm_accept(struct vb_host_cm *h, uint32_t id, const struct vb_cm_answer *answer)
{
    CALL(h, vb_cm_accept(cm, now_ns, id, answer));
}

void host_cm_confirm(struct vb_host_cm *h, uint32_t id)
{
    CALL(h, vb_cm_confirm(cm, now_ns, id, NULL));
}

void host_cm_disconnect(struct vb_host_cm *h, uint32_t id)
{
    CALL(h, vb_cm_disconnect(cm, now_ns, id, NULL));
}
