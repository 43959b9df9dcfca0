// SPDX-License-Identifier: Apache-2.0
// Small verbs: names, rates, keys, tables, sizes, files, and the way back of a datagram, each with
// an answer that is known.
#include "world.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Exported, and declared in no header that programs have.
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

enum {
    SHIFT = 1 << 20,
};

static void check_names(struct world *w)
{
    struct ibv_device_attr attr;

    NEED(strstr(ibv_node_type_str(IBV_NODE_CA), "channel adapter"));
    NEED(strstr(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
    NEED(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0);
    NEED(strcmp(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR),
                ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR)) != 0);
    NEED(strstr(ibv_event_type_str(IBV_EVENT_SQ_DRAINED), "drained"));
    NEED(strcmp(ibv_get_device_name(w->context->device), "verbena0") == 0);
    NEED(!ibv_query_device(w->context, &attr));
    NEED(ibv_get_device_guid(w->context->device) == attr.node_guid);
    NEED(ibv_get_device_index(w->context->device) >= 0);
    puts("names: ok");
}

static void check_rates(void)
{
    NEED(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
    NEED(ibv_rate_to_mbps(IBV_RATE_25_GBPS) == 25781);
    NEED(mbps_to_ibv_rate(25781) == IBV_RATE_25_GBPS);
    NEED(ibv_rate_to_mult(IBV_RATE_MAX) == -1 && mbps_to_ibv_rate(1) == IBV_RATE_MAX);
    puts("rates: ok");
}

static void check_tables(struct world *w)
{
    struct ibv_gid_entry entry, entries[16];
    __be16 pkey;

    NEED(!ibv_query_pkey(w->context, 1, 0, &pkey) && pkey == htons(0xffff));
    NEED(ibv_query_pkey(w->context, 1, 1, &pkey) == -1);
    NEED(ibv_get_pkey_index(w->context, 1, htons(0xffff)) == 0);
    NEED(ibv_get_pkey_index(w->context, 1, htons(0x7fff)) == -1);
    NEED(!ibv_query_gid_ex(w->context, 1, 0, &entry, 0));
    NEED(memcmp(&entry.gid, &w->gid, sizeof w->gid) == 0);
    NEED(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.ndev_ifindex > 0);
    NEED(ibv_query_gid_ex(w->context, 1, 99, &entry, 0) == EINVAL);
    ssize_t count = ibv_query_gid_table(w->context, entries, 16, 0);
    NEED(count > 0 && memcmp(&entries[0].gid, &w->gid, sizeof w->gid) == 0);
    NEED(ibv_query_gid_table(w->context, entries, 0, 0) < 0);
    puts("tables: ok");
}

static void check_sizes(struct world *w)
{
    struct ibv_cq *cq = ibv_create_cq(w->context, 16, NULL, NULL, 0);
    uint8_t bytes[64];

    NEED(cq && !ibv_resize_cq(cq, 1000) && cq->cqe >= 1000);
    NEED(ibv_resize_cq(cq, -1) == EINVAL);
    struct ibv_mr *mr = ibv_reg_mr_iova2(w->pd, bytes, sizeof bytes, SHIFT, IBV_ACCESS_LOCAL_WRITE);
    NEED(mr && mr->addr == bytes && mr->length == sizeof bytes);
    NEED(!ibv_reg_mr_iova2(w->pd, bytes, sizeof bytes, SHIFT, IBV_ACCESS_REMOTE_WRITE));
    struct ibv_qp *qp = make_qp(w, IBV_QPT_RC, cq, NULL);
    NEED(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0) == 0); // nothing is promised
    NEED(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    NEED(!ibv_fork_init());
    NEED(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    puts("sizes: ok");
}

// The symbol behind the header's inline function, for programs of before that.
static void check_port(struct world *w)
{
    struct ibv_port_attr now = {0}, before = {0};
    struct _compat_ibv_port_attr *old = (void *)&before;

    NEED(!ibv_query_port(w->context, 1, &now));
    NEED(!(ibv_query_port)(w->context, 1, old));
    NEED(before.state == now.state && before.max_mtu == now.max_mtu);
    NEED(before.gid_tbl_len == now.gid_tbl_len && before.active_speed == now.active_speed);
    NEED(before.link_layer == IBV_LINK_LAYER_ETHERNET);
    NEED((ibv_query_port)(w->context, 2, old) == EINVAL);
    puts("the port: ok");
}

// Fork needs no help here (IBV_FORK_UNNEEDED), and so a child has the memory either way.
static void check_fork_ranges(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status;

    NEED(page != MAP_FAILED);
    page[5] = 'x';
    for (int i = 0; i < 2; i++) {
        NEED(!(i ? ibv_dofork_range(page, 4096) : ibv_dontfork_range(page, 4096)));
        pid_t child = fork();
        NEED(child >= 0);
        if (child == 0)
            _exit(page[5] == 'x' ? 0 : 1);
        NEED(waitpid(child, &status, 0) == child && status == 0);
    }
    NEED(!munmap(page, 4096));
    puts("ranges and fork: ok");
}

static void check_files(void)
{
    char dir[] = "/tmp/verbena-small-XXXXXX", path[64], text[8];

    NEED(strcmp(ibv_get_sysfs_path(), "/sys") == 0);
    NEED(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/words", dir);
    FILE *file = fopen(path, "w");
    NEED(file && fputs("seven b\n", file) >= 0 && !fclose(file));
    NEED(ibv_read_sysfs_file(dir, "words", text, 8) == 7 && strcmp(text, "seven b") == 0);
    NEED(ibv_read_sysfs_file(dir, "words", text, 7) == -1); // its end does not fit
    NEED(ibv_read_sysfs_file(dir, "words", text, 0) == -1);
    NEED(ibv_read_sysfs_file(dir, "none", text, 8) == -1);
    NEED(!unlink(path) && !rmdir(dir));
    puts("files: ok");
}

// An answer to where a datagram came from, by nothing but its completion and its first bytes.
static void check_answer(struct world *w)
{
    struct ibv_cq *cq[2];
    struct ibv_qp *qp[2];
    uint8_t bytes[2][BYTES] = {{0}};
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.dgid = w->gid};
    struct ibv_ah *there = ibv_create_ah(w->pd, &path);

    NEED(mr && there);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge = {(uintptr_t)bytes[i], BYTES, mr->lkey};
        struct ibv_recv_wr *bad, wr = {.wr_id = 20, .sg_list = &sge, .num_sge = 1};
        NEED(cq[i] = ibv_create_cq(w->context, 16, NULL, NULL, 0));
        qp[i] = make_qp(w, IBV_QPT_UD, cq[i], NULL);
        connect_qp(w, qp[i], 0);
        NEED(!ibv_post_recv(qp[i], &wr, &bad));
    }
    send_one(qp[0], mr, 1, there, qp[1]->qp_num);
    struct ibv_wc wc = wait_one(cq[1]), bare;
    struct ibv_grh *head = (struct ibv_grh *)bytes[1];
    NEED(wc.status == IBV_WC_SUCCESS && wc.wr_id == 20 && wc.wc_flags & IBV_WC_GRH);
    struct ibv_ah *back = ibv_create_ah_from_wc(w->pd, &wc, head, 1);
    NEED(back && back->pd == w->pd);
    NEED(!ibv_create_ah_from_wc(w->pd, &wc, head, 2) && errno == EINVAL);
    bare = wc;
    bare.wc_flags = 0; // nothing says where it came from
    errno = 0;
    NEED(!ibv_create_ah_from_wc(w->pd, &bare, head, 1) && errno == EINVAL);
    send_one(qp[1], mr, 2, back, wc.src_qp);
    NEED(wait_one(cq[1]).wr_id == 2);
    NEED(wait_one(cq[0]).status == IBV_WC_SUCCESS && wait_one(cq[0]).status == IBV_WC_SUCCESS);
    NEED(!ibv_destroy_ah(back) && !ibv_destroy_ah(there));
    for (int i = 0; i < 2; i++)
        NEED(!ibv_destroy_qp(qp[i]) && !ibv_destroy_cq(cq[i]));
    NEED(!ibv_dereg_mr(mr));
    puts("an answer: ok");
}

int main(void)
{
    struct world w;

    open_world(&w);
    check_names(&w);
    check_rates();
    check_tables(&w);
    check_sizes(&w);
    check_port(&w);
    check_fork_ranges();
    check_files();
    check_answer(&w);
    close_world(&w);
    puts("all ok");
    return 0;
}
