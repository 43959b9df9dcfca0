// SPDX-License-Identifier: Apache-2.0
// One end of a measurement's connections.
#include "cli/perf_end.h"

#include "base/prng.h"
#include "base/serial.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int vb_perf_fail(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, VB_PERF_WHY, format, args);
    va_end(args);
    return -1;
}

static const uint32_t remote_rights =
    VB_RIGHT_REMOTE_WRITE | VB_RIGHT_REMOTE_READ | VB_RIGHT_REMOTE_ATOMIC;

static int open_memory(struct vb_perf_end *end, char *why)
{
    // Populated, so that no page fault falls into a measurement.
    void *mem = mmap(NULL, end->opts.mem_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (mem == MAP_FAILED)
        return vb_perf_fail(why,
                            "no memory for %zu bytes; a smaller size or fewer queue pairs help",
                            end->opts.mem_bytes);
    end->mem = mem;
    int error = vb_pd_alloc(end->nic, &end->pd);
    if (error == 0)
        error = vb_mr_reg(end->pd, mem, end->opts.mem_bytes, VB_RIGHT_LOCAL_WRITE | remote_rights,
                          &end->mr);
    if (error)
        return vb_perf_fail(why, "cannot register memory: %s", strerror(-error));
    return 0;
}

static int open_queues(struct vb_perf_end *end, char *why)
{
    const struct vb_perf_end_opts *o = &end->opts;
    struct vb_prng prng = {.state = o->seed};
    uint32_t active = o->active ? o->active : o->qps;
    struct vb_cq_opts cq = {.entries = o->cq_entries ? o->cq_entries : active * o->send_depth,
                            .channel = o->channel};
    int error = vb_cq_create(end->nic, &cq, &end->send_cq);
    if (error == 0 && o->cq_entries)
        end->recv_cq = end->send_cq;
    else if (error == 0)
        error = vb_cq_create(end->nic, &(struct vb_cq_opts){.entries = active * o->recv_depth},
                             &end->recv_cq);
    struct vb_qp_opts qp = {
        .service = o->service,
        .send_cq = end->send_cq,
        .recv_cq = end->recv_cq,
        .send_depth = o->send_depth,
        .recv_depth = o->recv_depth,
        .send_sge = o->sges,
        .recv_sge = o->sges,
        .inline_bytes = o->inline_bytes,
    };
    for (uint32_t i = 0; i < o->qps && error == 0; i++) {
        error = vb_qp_create(end->pd, &qp, &end->qp[i]);
        end->psn[i] = (uint32_t)vb_prng_next(&prng) & VB_PSN_MASK;
    }
    if (error)
        return vb_perf_fail(why, "cannot create %u queue pairs of depth %u: %s", o->qps,
                            o->send_depth, strerror(-error));
    return 0;
}

int vb_perf_end_open(struct vb_perf_end *end, struct vb_nic *nic,
                     const struct vb_perf_end_opts *opts, char *why)
{
    *end = (struct vb_perf_end){.nic = nic, .opts = *opts};
    end->qp = calloc(opts->qps, sizeof *end->qp);
    end->psn = calloc(opts->qps, sizeof *end->psn);
    end->peer_qpn = calloc(opts->qps, sizeof *end->peer_qpn);
    if (end->qp == NULL || end->psn == NULL || end->peer_qpn == NULL) {
        vb_perf_end_close(end);
        return vb_perf_fail(why, "no memory for %u queue pairs", opts->qps);
    }
    if (open_memory(end, why) < 0 || open_queues(end, why) < 0) {
        vb_perf_end_close(end);
        return -1;
    }
    return 0;
}

void vb_perf_end_close(struct vb_perf_end *end)
{
    for (uint32_t i = 0; i < end->opts.qps && end->qp != NULL; i++) {
        if (end->qp[i] != NULL)
            vb_qp_destroy(end->qp[i]);
    }
    if (end->send_cq != NULL)
        vb_cq_destroy(end->send_cq);
    if (end->recv_cq != NULL && end->recv_cq != end->send_cq)
        vb_cq_destroy(end->recv_cq);
    if (end->mr != NULL)
        vb_mr_dereg(end->mr);
    if (end->pd != NULL)
        vb_pd_free(end->pd);
    if (end->mem != NULL)
        munmap(end->mem, end->opts.mem_bytes);
    free(end->qp);
    free(end->psn);
    free(end->peer_qpn);
    *end = (struct vb_perf_end){0};
}

void vb_perf_end_describe(const struct vb_perf_end *end, struct vb_control_msg *msg)
{
    uint8_t gid[16];
    vb_nic_gid(end->nic, gid);
    vb_control_put_bytes(msg, gid, sizeof gid);
    vb_control_put(msg, (uint64_t)(uintptr_t)end->mem);
    vb_control_put(msg, vb_mr_key(end->mr));
}

int vb_perf_end_meet(struct vb_perf_end *end, struct vb_control_msg *msg, char *why)
{
    vb_control_get_bytes(msg, end->peer_gid, sizeof end->peer_gid);
    end->peer_addr = vb_control_get(msg);
    end->peer_key = (uint32_t)vb_control_get(msg);
    return msg->bad ? vb_perf_fail(why, "the other side's description is too short") : 0;
}

static uint32_t last_name(const struct vb_perf_end *end, uint32_t first)
{
    return end->opts.qps - first < VB_PERF_NAMES ? end->opts.qps : first + VB_PERF_NAMES;
}

void vb_perf_end_name(const struct vb_perf_end *end, uint32_t first, struct vb_control_msg *msg)
{
    for (uint32_t i = first; i < last_name(end, first); i++) {
        vb_control_put(msg, vb_qp_num(end->qp[i]));
        vb_control_put(msg, end->psn[i]);
    }
}

// To the one that the peer's message names next.
static int join(struct vb_perf_end *end, uint32_t i, struct vb_control_msg *msg, char *why)
{
    struct vb_qp_peer peer = {
        .our_psn = end->psn[i],
        .mtu = end->opts.mtu,
        .rights = remote_rights,
        .reads = (uint8_t)end->opts.reads,
        .timeout = end->opts.timeout,
        .qkey = VB_PERF_QKEY,
    };
    memcpy(peer.gid, end->peer_gid, sizeof peer.gid);
    peer.qpn = end->peer_qpn[i] = (uint32_t)vb_control_get(msg) & VB_PSN_MASK;
    peer.psn = (uint32_t)vb_control_get(msg) & VB_PSN_MASK;
    if (msg->bad)
        return vb_perf_fail(why, "the other side names too few queue pairs");
    int error = vb_qp_connect(end->qp[i], &peer);
    if (error)
        return vb_perf_fail(why, "cannot connect a queue pair: %s", strerror(-error));
    return 0;
}

int vb_perf_end_connect(struct vb_perf_end *end, uint32_t first, struct vb_control_msg *msg,
                        char *why)
{
    for (uint32_t i = first; i < last_name(end, first); i++) {
        if (join(end, i, msg, why) < 0)
            return -1;
    }
    return 0;
}
