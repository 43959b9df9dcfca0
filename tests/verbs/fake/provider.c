// SPDX-License-Identifier: Apache-2.0
// Stands for the system's libibverbs on a machine with a card: one device, fake0, whose objects
// carry marks that only it makes, and which knows its own from others'.
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

enum {
    MARK = 0xfa4e,
    PORTS = 3,
};

struct context {
    struct verbs_context base;
    unsigned objects; // that are not destroyed yet
    uint64_t posted;  // wr_id of the last request
};

static struct ibv_device device = {
    .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "fake0"};

static struct context *of(struct ibv_context *context)
{
    if (context->device != &device)
        abort(); // an object of another library has come here
    return (struct context *)(void *)((uint8_t *)context - offsetof(struct context, base.context));
}

static void *make(struct ibv_context *context, size_t bytes)
{
    of(context)->objects++;
    return calloc(1, bytes);
}

static int destroy(struct ibv_context *context, void *object)
{
    of(context)->objects--;
    free(object);
    return 0;
}

static uint32_t fork_inits;

int ibv_fork_init(void)
{
    fork_inits++;
    return 0;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof *list);

    list[0] = &device;
    if (count)
        *count = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    if (list[0] != &device)
        abort();
    free(list);
}

__be64 ibv_get_device_guid(struct ibv_device *d)
{
    return d == &device ? htobe64(MARK) : 0;
}

int ibv_get_device_index(struct ibv_device *d)
{
    return d == &device ? MARK : -1;
}

// ---- what goes by the context's table

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)bad;
    of(qp->context)->posted = wr->wr_id;
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    struct context *c = of(cq->context);

    if (n < 1 || !c->posted)
        return 0;
    *wc = (struct ibv_wc){.wr_id = c->posted, .vendor_err = MARK};
    c->posted = 0;
    return 1;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
    struct context *c = d == &device ? calloc(1, sizeof *c) : NULL;

    if (!c)
        return NULL;
    c->base.sz = sizeof c->base;
    c->base.context.device = d;
    c->base.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    c->base.context.ops.post_send = post_send;
    c->base.context.ops.poll_cq = poll_cq;
    return &c->base.context;
}

int ibv_close_device(struct ibv_context *context)
{
    if (of(context)->objects)
        return EBUSY;
    free(of(context));
    return 0;
}

// ---- objects

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)of(context);
    *attr = (struct ibv_device_attr){
        .vendor_id = MARK, .vendor_part_id = fork_inits, .phys_port_cnt = PORTS};
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = make(context, sizeof *pd);
    *pd = (struct ibv_pd){.context = context, .handle = MARK};
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    return destroy(pd->context, pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    struct ibv_mr *mr = make(pd->context, sizeof *mr);
    *mr = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = (uint32_t)access};
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    return destroy(mr->context, mr);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *cq = make(context, sizeof *cq);
    *cq = (struct ibv_cq){.context = context,
                          .channel = channel,
                          .cq_context = cq_context,
                          .cqe = cqe,
                          .handle = MARK + (uint32_t)vector};
    return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    return destroy(cq->context, cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *qp = make(pd->context, sizeof *qp);
    *qp =
        (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = attr->send_cq, .qp_num = MARK};
    return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    qp->state = attr->qp_state;
    return mask == IBV_QP_STATE ? 0 : EDOM;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    return destroy(qp->context, qp);
}

// Fails in a way that nobody else does.
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    (void)of(pd->context), (void)attr;
    errno = EDOM;
    return NULL;
}
