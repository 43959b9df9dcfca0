// SPDX-License-Identifier: Apache-2.0
// What rdma_cm programs of these tests begin with: ids on channels, and events that are due.
#ifndef VERBS_CM_H
#define VERBS_CM_H

#include "need.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENT_MS = 30000,
    RESOLVE_MS = 2000,
    DEPTH = 4,
    MESSAGE = 64,
};

static inline struct sockaddr_storage name_of(const char *text, uint16_t port)
{
    struct sockaddr_storage s = {0};
    struct sockaddr_in *v4 = (void *)&s;
    struct sockaddr_in6 *v6 = (void *)&s;

    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
    } else {
        NEED(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
    }
    return s;
}

// The next event of the channel, to be acknowledged; `wanted` is printed if there is none.
static inline struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                               const char *wanted)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;

    if (poll(&fd, 1, EVENT_MS) != 1) {
        fprintf(stderr, "no event, but %s should come\n", wanted);
        exit(1);
    }
    NEED(!rdma_get_cm_event(channel, &event));
    return event;
}

// The next event of the channel, which has to be this one; to be acknowledged.
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel,
                                           enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = next_event(channel, rdma_event_str(type));

    if (event->event != type) {
        fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event),
                event->status, rdma_event_str(type));
        exit(1);
    }
    return event;
}

// The same, acknowledged. Returns its status.
static inline int take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = expect(channel, type);
    int status = event->status;

    NEED(!rdma_ack_cm_event(event));
    return status;
}

static inline bool is_quiet(const struct rdma_event_channel *channel)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 0;
}

static inline void make_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {
        .qp_type = id->qp_type,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
    NEED(!rdma_create_qp(id, NULL, &attr));
}

static inline struct rdma_cm_id *make_listener(struct rdma_event_channel *channel,
                                               const char *address, uint16_t port,
                                               enum rdma_port_space space)
{
    struct sockaddr_storage name = name_of(address, port);
    struct rdma_cm_id *id;

    NEED(!rdma_create_id(channel, &id, NULL, space));
    NEED(!rdma_bind_addr(id, (struct sockaddr *)&name));
    NEED(!rdma_listen(id, 8));
    return id;
}

// An id that has its route.
static inline struct rdma_cm_id *make_client(struct rdma_event_channel *channel,
                                             const char *address, uint16_t port,
                                             enum rdma_port_space space)
{
    struct sockaddr_storage name = name_of(address, port);
    struct rdma_cm_id *id;

    NEED(!rdma_create_id(channel, &id, NULL, space));
    NEED(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&name, RESOLVE_MS));
    if (channel)
        NEED(take(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == 0);
    NEED(!rdma_resolve_route(id, RESOLVE_MS));
    if (channel)
        NEED(take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == 0);
    return id;
}

static inline uint16_t port_of(struct rdma_cm_id *id)
{
    return ntohs(rdma_get_src_port(id));
}

// The id of the request that comes next.
static inline struct rdma_cm_id *take_request(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;

    NEED(!rdma_ack_cm_event(event));
    return id;
}

struct cm_case {
    const char *name;
    void (*run)(void);
};

// All of them, or the one of that name.
static inline void run_cases(const struct cm_case *cases, size_t count, const char *only)
{
    for (size_t i = 0; i < count; i++) {
        if (only && strcmp(only, cases[i].name) != 0)
            continue;
        cases[i].run();
        printf("%s: ok\n", cases[i].name);
        fflush(stdout);
    }
}

static inline void end(struct rdma_cm_id *id)
{
    if (id->qp)
        rdma_destroy_qp(id);
    NEED(!rdma_destroy_id(id));
}

#endif
