// SPDX-License-Identifier: Apache-2.0
// What the device and its port say of themselves.
#include "verbena_config.h"
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    VENDOR_ID = 0x56424e,   // "VBN": nobody's
    NOTHING_MORE = 1 << 20, // limits that only memory sets
    QPS = 16384,
    PKEY_DEFAULT = 0xffff,
    GROUPS = 1024,
    PHYSICALLY_DISABLED = 3, // as Linux says it of RoCE over a link that is down
    PHYSICALLY_UP = 5,
};

// Widths and speeds that verbs have codes for, by what they make together.
struct rate {
    uint32_t mbps;
    uint8_t width, speed;
};

static struct ibv_device_attr describe_device(void)
{
    struct ibv_device_attr a = {
        .node_guid = vb_verbs_guid(),
        .sys_image_guid = vb_verbs_guid(),
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 0xfffffffffffff000,
        .vendor_id = VENDOR_ID,
        .vendor_part_id = 1,
        .hw_ver = 1,
        .max_qp = QPS,
        .max_qp_wr = VB_VERBS_MAX_WR,
        .device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                            IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_N_NOTIFY_CQ |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_XRC | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                            IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        .max_sge = VB_VERBS_MAX_SGE,
        .max_sge_rd = VB_VERBS_MAX_SGE,
        .max_cq = 65536,
        .max_cqe = VB_VERBS_MAX_CQE - 1,
        .max_mr = NOTHING_MORE,
        .max_pd = 65536,
        .max_qp_rd_atom = VB_VERBS_MAX_RD_ATOMIC,
        .max_res_rd_atom = VB_VERBS_MAX_RD_ATOMIC * QPS,
        .max_qp_init_rd_atom = VB_VERBS_MAX_INIT_RD_ATOMIC,
        .atomic_cap = IBV_ATOMIC_GLOB,
        .max_mw = NOTHING_MORE,
        .max_mcast_grp = GROUPS,
        .max_mcast_qp_attach = GROUPS,
        .max_total_mcast_qp_attach = GROUPS * GROUPS,
        .max_ah = NOTHING_MORE,
        .max_srq = 65536,
        .max_srq_wr = VB_VERBS_MAX_SRQ_WR,
        .max_srq_sge = VB_VERBS_MAX_SGE,
        .max_pkeys = 1,
        .local_ca_ack_delay = 15,
        .phys_port_cnt = 1,
    };
    snprintf(a.fw_ver, sizeof a.fw_ver, "%s", VERBENA_VERSION);
    return a;
}

VB_VERBS_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = describe_device();
    return 0;
}

static struct ibv_odp_caps describe_paging(void)
{
    const uint32_t connected = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
    const uint32_t reliable =
        connected | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    return (struct ibv_odp_caps){
        .general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
        .per_transport_caps = {.rc_odp_caps = reliable,
                               .uc_odp_caps = connected,
                               .ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV}};
}

// A program that was built with an older header has room for fewer fields.
int vb_verbs_query_device_ex(struct ibv_context *context,
                             const struct ibv_query_device_ex_input *input,
                             struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr_ex all = {
        .orig_attr = describe_device(),
        .odp_caps = describe_paging(),
        .completion_timestamp_mask = UINT64_MAX,
        .hca_core_clock = 1000 * 1000, // kHz: timestamps are nanoseconds
        .device_cap_flags_ex = describe_device().device_cap_flags,
        .rss_caps = {.supported_qpts = 1u << IBV_QPT_UD,
                     .max_rwq_indirection_tables = QPS,
                     .max_rwq_indirection_table_size = 1u << VB_VERBS_TABLE_LOG,
                     .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
                                            IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6,
                     .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ},
        .max_wq_type_rq = QPS,
        .packet_pacing_caps = {.qp_rate_limit_min = 1,
                               .qp_rate_limit_max = VB_VERBS_MAX_KBPS,
                               .supported_qpts = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC |
                                                 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND},
        .cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX},
        .phys_port_cnt_ex = 1,
        .xrc_odp_caps = describe_paging().per_transport_caps.rc_odp_caps,
    };

    (void)context;
    if ((input && input->comp_mask) || size < sizeof all.orig_attr)
        return EINVAL;
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

int vb_verbs_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    uint32_t wanted = values->comp_mask;

    (void)context;
    values->comp_mask = wanted & IBV_VALUES_MASK_RAW_CLOCK;
    if (values->comp_mask)
        clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
    return wanted & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK ? EINVAL : 0;
}

// ---- the port

// The least that the link does not exceed. One that does not say its speed has the very least, as
// with Linux's soft-RoCE: the loopback is such.
static struct rate rate_of(uint32_t mbps)
{
    static const struct rate rates[] = {
        {2500, 1, 1},    {5000, 1, 2},    {10000, 1, 8},    {20000, 2, 2},
        {25000, 1, 32},  {40000, 2, 8},   {50000, 1, 64},   {56000, 2, 16},
        {100000, 2, 32}, {200000, 2, 64}, {400000, 2, 128},
    };
    size_t i = 0;

    while (i + 1 < sizeof rates / sizeof rates[0] && rates[i].mbps < mbps)
        i++;
    return rates[i];
}

int vb_verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                        size_t size)
{
    const struct vb_verbs_gids *gids = &vb_verbs_of(context)->gids;
    const struct vb_verbs_link link = vb_verbs_link(gids->gid[0].raw);
    const struct rate rate = rate_of(link.mbps);
    const struct ibv_port_attr all = {
        .state = link.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = vb_verbs_active_mtu(),
        .gid_tbl_len = (int)gids->count,
        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = 1u << 30,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .active_width = rate.width,
        .active_speed = rate.speed,
        .phys_state = link.up ? PHYSICALLY_UP : PHYSICALLY_DISABLED,
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    if (port != VB_VERBS_PORT)
        return vb_verbs_fail(EINVAL, "ibv_query_port", "there is only port 1");
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

// Programs of older headers: as much of the struct as there was then, up to link_layer and padding.
VB_VERBS_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                                   struct _compat_ibv_port_attr *attr)
{
    return vb_verbs_query_port(context, port, (struct ibv_port_attr *)(void *)attr,
                               offsetof(struct ibv_port_attr, port_cap_flags2));
}

VB_VERBS_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                                  union ibv_gid *gid)
{
    const struct vb_verbs_gids *gids = &vb_verbs_of(context)->gids;

    if (port != VB_VERBS_PORT || index < 0 || (uint32_t)index >= gids->count) {
        errno = EINVAL;
        return -1;
    }
    *gid = gids->gid[index];
    vb_verbs_gid_asked(context, (uint32_t)index);
    return 0;
}

static void describe_gid(struct ibv_context *context, uint32_t index, struct ibv_gid_entry *entry)
{
    *entry = (struct ibv_gid_entry){.gid = vb_verbs_of(context)->gids.gid[index],
                                    .gid_index = index,
                                    .port_num = VB_VERBS_PORT,
                                    .gid_type = IBV_GID_TYPE_ROCE_V2};
    struct vb_verbs_link link = vb_verbs_link(entry->gid.raw);
    entry->ndev_ifindex = link.index;
    vb_verbs_gid_asked(context, index);
}

VB_VERBS_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                      struct ibv_gid_entry *entry, uint32_t flags,
                                      size_t entry_size)
{
    struct ibv_gid_entry all;

    if (port != VB_VERBS_PORT || index >= vb_verbs_of(context)->gids.count || flags)
        return flags ? EOPNOTSUPP : EINVAL;
    describe_gid(context, index, &all);
    memcpy(entry, &all, entry_size < sizeof all ? entry_size : sizeof all);
    return 0;
}

VB_VERBS_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                             struct ibv_gid_entry *entries, size_t max_entries,
                                             uint32_t flags, size_t entry_size)
{
    struct ibv_gid_entry all;
    uint32_t count = vb_verbs_of(context)->gids.count;

    if (flags || max_entries < count)
        return flags ? -EOPNOTSUPP : -EINVAL;
    for (uint32_t i = 0; i < count; i++) {
        describe_gid(context, i, &all);
        memcpy((uint8_t *)entries + i * entry_size, &all,
               entry_size < sizeof all ? entry_size : sizeof all);
    }
    return (ssize_t)count;
}

// 1 is RoCE v2 here, as ibv_devinfo reads it.
VB_VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port,
                                       unsigned int index, int *type);
VB_VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port,
                                       unsigned int index, int *type)
{
    if (port != VB_VERBS_PORT || index >= vb_verbs_of(context)->gids.count) {
        errno = EINVAL;
        return -1;
    }
    *type = 1;
    return 0;
}

VB_VERBS_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                                   __be16 *pkey)
{
    (void)context;
    if (port != VB_VERBS_PORT || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htons(PKEY_DEFAULT);
    return 0;
}

VB_VERBS_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    if (port != VB_VERBS_PORT || pkey != htons(PKEY_DEFAULT)) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}
