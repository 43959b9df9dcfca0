// SPDX-License-Identifier: Apache-2.0
// What is not there says so: each verb that is refused, and attributes that nothing would honour,
// beside those that are fine. `refused probe SYMBOL@VERSION …` calls verbs of other versions and of
// drivers, which no header declares, and prints what they say.
#include "world.h"

#include <dlfcn.h>

#define REFUSED(call)              \
    do {                           \
        errno = 0;                 \
        NEED(!(call));             \
        NEED(errno == EOPNOTSUPP); \
    } while (0)

static void *own_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
                       uint64_t type)
{
    (void)pd, (void)context, (void)size, (void)alignment, (void)type;
    return NULL;
}

static void own_free(struct ibv_pd *pd, void *context, void *at, uint64_t type)
{
    (void)pd, (void)context, (void)at, (void)type;
}

static void check_domains(struct world *w)
{
    struct ibv_parent_domain_init_attr attr = {.pd = w->pd,
                                               .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
                                               .alloc = own_alloc,
                                               .free = own_free};

    REFUSED(ibv_alloc_parent_domain(w->context, &attr));
    attr.comp_mask = 1 << 7;
    NEED(!ibv_alloc_parent_domain(w->context, &attr) && errno == EINVAL);
    attr.comp_mask = 0; // the same without allocators
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &attr);
    NEED(parent && !ibv_dealloc_pd(parent));
    puts("parent domains: ok");
}

static void check_options(struct world *w, struct ibv_cq *cq)
{
    struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 1};
    struct ibv_qp *qp = make_qp(w, IBV_QPT_RC, cq, NULL);

    NEED(ibv_set_ece(qp, &ece) == EOPNOTSUPP);
    ece.vendor_id = 0;
    NEED(ibv_set_ece(qp, &ece) == EOPNOTSUPP);
    ece.options = 7;
    NEED(ibv_query_ece(qp, &ece) == EOPNOTSUPP && ece.vendor_id == 0 && ece.options == 0);
    NEED(!ibv_destroy_qp(qp));
    puts("vendors' options: ok");
}

static void check_others_objects(struct world *w)
{
    struct ibv_mr *mr = ibv_reg_mr(w->pd, w, sizeof *w, 0);

    NEED(mr);
    REFUSED(ibv_import_device(0));
    REFUSED(ibv_import_pd(w->context, w->pd->handle));
    REFUSED(ibv_import_mr(w->pd, mr->handle));
    REFUSED(ibv_import_dm(w->context, 0));
    errno = 0;
    ibv_unimport_mr(mr);
    NEED(errno == EOPNOTSUPP);
    errno = 0;
    ibv_unimport_pd(w->pd);
    NEED(errno == EOPNOTSUPP);
    errno = 0;
    ibv_unimport_dm(NULL);
    NEED(errno == EOPNOTSUPP);
    NEED(!ibv_dereg_mr(mr)); // both are as they were
    puts("objects of others: ok");
}

static void check_memory(struct world *w)
{
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.dgid = w->gid};
    uint8_t mac[6];
    uint16_t vlan;

    NEED(!ibv_alloc_dm(w->context, &attr));
    NEED(!ibv_reg_dm_mr(w->pd, NULL, 0, 64, IBV_ACCESS_ZERO_BASED));
    REFUSED(ibv_reg_dmabuf_mr(w->pd, 0, 64, 0, 0, 0));
    NEED(ibv_resolve_eth_l2_from_gid(w->context, &path, mac, &vlan) == EOPNOTSUPP);
    puts("memory of devices: ok");
}

static void check_flags(struct world *w, struct ibv_cq *cq)
{
    struct ibv_cq_init_attr_ex queue = {
        .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1u << 30};
    struct ibv_srq_init_attr_ex shared = {.attr = {.max_wr = 4, .max_sge = 1},
                                          .comp_mask = IBV_SRQ_INIT_ATTR_PD | 1u << 20,
                                          .pd = w->pd};

    NEED(!ibv_create_cq_ex(w->context, &queue) && errno == EINVAL);
    queue.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    struct ibv_cq_ex *ex = ibv_create_cq_ex(w->context, &queue);
    NEED(ex && !ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
    NEED(!ibv_create_srq_ex(w->context, &shared) && errno == EINVAL);
    shared.comp_mask = IBV_SRQ_INIT_ATTR_PD;
    struct ibv_srq *srq = ibv_create_srq_ex(w->context, &shared);
    NEED(srq && !ibv_destroy_srq(srq));

    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_UC,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
        .pd = w->pd};
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &init);
    NEED(qp);
    connect_qp(w, qp, 1);
    struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(qpx);
    qpx->wr_flags = IBV_SEND_IP_CSUM;
    ibv_wr_send(qpx);
    NEED(ibv_wr_complete(qpx) == EINVAL);
    NEED(!ibv_destroy_qp(qp));
    puts("flags: ok");
}

// A Q_Key that changes in RTS is the one that datagrams need from then on.
static void check_qkey(struct world *w, struct ibv_cq *cq)
{
    struct ibv_qp_attr a = {.qkey = QKEY + 1};
    struct ibv_qp *from = make_qp(w, IBV_QPT_UD, cq, NULL), *to = make_qp(w, IBV_QPT_UD, cq, NULL);
    struct ibv_qp *mark = make_qp(w, IBV_QPT_UD, cq, NULL);
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh.dgid = w->gid};
    struct ibv_ah *ah = ibv_create_ah(w->pd, &path);
    uint8_t *bytes = calloc(1, BYTES);
    NEED(ah && bytes);
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
    NEED(mr);
    struct ibv_sge sge = {(uintptr_t)bytes, BYTES, mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1}, wr_mark = wr;

    wr_mark.wr_id = 10;
    connect_qp(w, from, 0);
    connect_qp(w, to, 0);
    connect_qp(w, mark, 0);
    NEED(!ibv_post_recv(to, &wr, &bad) && !ibv_post_recv(mark, &wr_mark, &bad));
    NEED(!ibv_modify_qp(to, &a, IBV_QP_QKEY));
    send_one(from, mr, 1, ah, to->qp_num);   // with the key of before: dropped,
    send_one(from, mr, 1, ah, mark->qp_num); // and it has been when this one is there
    for (int i = 0; i < 3; i++)
        NEED(wait_one(cq).wr_id != 9);
    a.qkey = QKEY;
    NEED(!ibv_modify_qp(to, &a, IBV_QP_QKEY));
    send_one(from, mr, 2, ah, to->qp_num);
    uint64_t first = wait_one(cq).wr_id, second = wait_one(cq).wr_id;
    NEED((first == 2 && second == 9) || (first == 9 && second == 2));
    struct ibv_wc wc;
    NEED(ibv_poll_cq(cq, 1, &wc) == 0);
    NEED(!ibv_destroy_qp(from) && !ibv_destroy_qp(to) && !ibv_destroy_qp(mark));
    NEED(!ibv_destroy_ah(ah) && !ibv_dereg_mr(mr));
    free(bytes);
    puts("a Q_Key that changes: ok");
}

// ---- verbs that no header declares

// A program of libibverbs 1.0 gets a list, and no device in it.
static void probe_old_list(void *library)
{
    void *found[2] = {dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0"),
                      dlvsym(library, "ibv_free_device_list", "IBVERBS_1.0")};
    struct ibv_device **(*get)(int *count);
    void (*give_back)(struct ibv_device * *list);
    int count = 7;

    NEED(found[0] && found[1]);
    memcpy(&get, &found[0], sizeof get);
    memcpy(&give_back, &found[1], sizeof give_back);
    struct ibv_device **list = get(&count);
    NEED(list && !list[0] && count == 0);
    give_back(list);
}

static void probe(const char *word)
{
    char name[128];
    const char *version = strchr(word, '@');
    uint64_t (*verb)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) = NULL;
    void *library = dlopen(word[0] == 'r' ? "librdmacm.so.1" : "libibverbs.so.1", RTLD_NOW);

    NEED(library && version && version - word < (long)sizeof name);
    if (strstr(word, "_device_list@IBVERBS_1.0")) {
        probe_old_list(library);
        printf("%s works\n", word);
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(version - word), word);
    void *found = dlvsym(library, name, version + 1);
    NEED(found);
    memcpy(&verb, &found, sizeof verb);
    errno = 0;
    uint64_t said = verb(0, 0, 0, 0, 0, 0);
    bool refused = said == EOPNOTSUPP || ((said == 0 || (int)said == -1) && errno == EOPNOTSUPP);
    printf("%s %s\n", word, refused ? "EOPNOTSUPP" : "something else");
}

int main(int argc, char **argv)
{
    struct world w;

    if (argc > 1 && strcmp(argv[1], "probe") == 0) {
        for (int i = 2; i < argc; i++)
            probe(argv[i]);
        return 0;
    }
    open_world(&w);
    struct ibv_cq *cq = ibv_create_cq(w.context, 16, NULL, NULL, 0);
    NEED(cq);
    check_domains(&w);
    check_options(&w, cq);
    check_others_objects(&w);
    check_memory(&w);
    check_flags(&w, cq);
    check_qkey(&w, cq);
    NEED(!ibv_destroy_cq(cq));
    close_world(&w);
    puts("all ok");
    return 0;
}
