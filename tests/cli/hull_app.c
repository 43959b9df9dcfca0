// SPDX-License-Identifier: Apache-2.0
// An application that is attached to the hull whose socket is given. Says "ready", and then does
// what its input says, line by line, each with an answer of one line:
//
//     put NAME BYTES TEXT     memory with a name, and this text in it
//     get NAME                the text
//     drop NAME               lets go of it
//     work N                  N writes from one queue pair to another
#include "verbena/nic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORD = 64,
    MEMORIES = 16,
    BYTES = 4096,
};

struct app {
    struct vb_nic *nic;
    struct vb_pd *pd;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct vb_qp *qp[2];
    void *memory;
    struct {
        char name[WORD];
        void *at;
    } named[MEMORIES];
    uint32_t names;
};

static void answer(const struct app *a, int err, const char *text)
{
    char why[VB_ERROR_TEXT];

    if (err)
        vb_hull_why(a->nic, why);
    printf("%s%s\n", err ? "error " : "", err ? why : text);
    fflush(stdout);
}

// ---- memory

static void *find(const struct app *a, const char *name)
{
    for (uint32_t i = 0; i < a->names; i++)
        if (strcmp(a->named[i].name, name) == 0)
            return a->named[i].at;
    return NULL;
}

static int open_named(struct app *a, const char *name, size_t bytes, char **at)
{
    *at = find(a, name);
    if (*at)
        return 0;
    int err = vb_hull_alloc(a->nic, name, bytes, (void **)at);
    if (!err && a->names < MEMORIES) {
        snprintf(a->named[a->names].name, WORD, "%s", name);
        a->named[a->names++].at = *at;
    }
    return err;
}

static void put(struct app *a, const char *name, size_t bytes, const char *text)
{
    char *at;
    int err = open_named(a, name, bytes, &at);

    if (!err)
        snprintf(at, bytes, "%s", text);
    answer(a, err, "ok");
}

static void get(struct app *a, const char *name)
{
    char *at;
    int err = open_named(a, name, 0, &at);

    answer(a, err, err ? "" : at);
}

static void drop(struct app *a, const char *name)
{
    for (uint32_t i = 0; i < a->names; i++)
        if (strcmp(a->named[i].name, name) == 0) {
            answer(a, vb_hull_free(a->nic, a->named[i].at), "ok");
            a->named[i] = a->named[--a->names];
            return;
        }
    answer(a, 0, "none");
}

// ---- work

static int join(struct app *a, int from, int to)
{
    struct vb_qp_peer peer = {.qpn = vb_qp_num(a->qp[to]), .rights = VB_RIGHT_REMOTE_WRITE};

    vb_nic_gid(a->nic, peer.gid);
    return vb_qp_connect(a->qp[from], &peer);
}

static int furnish(struct app *a)
{
    int err = a->pd ? 1 : vb_pd_alloc(a->nic, &a->pd);

    if (err)
        return err > 0 ? 0 : err;
    err = vb_cq_create(a->nic, &(struct vb_cq_opts){.entries = 16}, &a->cq);
    if (!err)
        err = vb_hull_alloc(a->nic, NULL, BYTES, &a->memory);
    if (!err)
        err = vb_mr_reg(a->pd, a->memory, BYTES, VB_RIGHT_ALL, &a->mr);
    for (int i = 0; i < 2 && !err; i++)
        err =
            vb_qp_create(a->pd,
                         &(struct vb_qp_opts){
                             .send_cq = a->cq, .recv_cq = a->cq, .send_depth = 8, .recv_depth = 8},
                         &a->qp[i]);
    if (!err)
        err = join(a, 0, 1);
    return err ? err : join(a, 1, 0);
}

static int write_once(struct app *a)
{
    const struct vb_sge sge = {(uintptr_t)a->memory, BYTES / 2, vb_mr_key(a->mr)};
    const struct vb_send_wr wr = {.opcode = VB_WR_WRITE,
                                  .sge = &sge,
                                  .num_sge = 1,
                                  .flags = VB_WR_SIGNALED,
                                  .raddr = (uintptr_t)a->memory + BYTES / 2,
                                  .rkey = vb_mr_key(a->mr)};
    struct vb_wc wc;
    int n;

    if (vb_post_send(a->qp[0], &wr, 1) != 1)
        return -1;
    while ((n = vb_poll_cq(a->cq, &wc, 1)) == 0)
        continue;
    return n == 1 && wc.status == VB_WC_OK ? 0 : -1;
}

static void work(struct app *a, unsigned long times)
{
    int err = furnish(a);

    for (unsigned long i = 0; i < times && !err; i++)
        err = write_once(a);
    answer(a, err, "ok");
}

int main(int argc, char **argv)
{
    struct app a = {0};
    char line[512], name[WORD], text[256], why[VB_ERROR_TEXT] = "give the hull's socket";
    unsigned long number;
    struct vb_nic_opts opts = {.hull = argc > 1 ? argv[1] : "", .error_text = why};

    if (vb_nic_open(&opts, &a.nic) != 0) {
        printf("error %s\n", why);
        return 1;
    }
    answer(&a, 0, "ready");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "put %63s %lu %255s", name, &number, text) == 3)
            put(&a, name, number, text);
        else if (sscanf(line, "get %63s", name) == 1)
            get(&a, name);
        else if (sscanf(line, "drop %63s", name) == 1)
            drop(&a, name);
        else if (sscanf(line, "work %lu", &number) == 1)
            work(&a, number);
        else
            answer(&a, 0, "what?");
    }
    vb_nic_close(a.nic);
    return 0;
}
