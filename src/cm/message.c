// SPDX-License-Identifier: Apache-2.0
// Where each field of each message lies, and one encoder and one decoder for all of them.
#include "cm/message.h"

#include "base/bytes.h"

#include <assert.h>

#define AT(member) \
    offsetof(struct vb_cm_message, member), sizeof(((struct vb_cm_message *)0)->member)
// A number of `width` bits, and bytes as they are.
#define BITS(byte, bit, width, member)  \
    {                                   \
        byte, bit, width, 0, AT(member) \
    }
#define BYTES(byte, member)                                                 \
    {                                                                       \
        byte, 0, 0, sizeof(((struct vb_cm_message *)0)->member), AT(member) \
    }
#define IDS BITS(0, 0, 32, local_id), BITS(4, 0, 32, remote_id)

// The two paths of a REQ have the same form, 44 bytes apart.
#define PATH(at, path)                                                                \
    BITS(at, 0, 16, path.local_lid), BITS(at + 2, 0, 16, path.remote_lid),            \
        BYTES(at + 4, path.local_gid), BYTES(at + 20, path.remote_gid),               \
        BITS(at + 36, 0, 20, path.flow_label), BITS(at + 39, 2, 6, path.rate),        \
        BITS(at + 40, 0, 8, path.traffic_class), BITS(at + 41, 0, 8, path.hop_limit), \
        BITS(at + 42, 0, 4, path.sl), BITS(at + 42, 4, 1, path.subnet_local),         \
        BITS(at + 43, 0, 5, path.ack_timeout)

static const struct vb_cm_field req_fields[] = {
    BITS(0, 0, 32, local_id),
    BITS(5, 0, 24, req.vendor_id),
    BITS(8, 0, 64, req.service_id),
    BITS(16, 0, 64, req.ca_guid),
    BITS(28, 0, 32, req.qkey),
    BITS(32, 0, 24, req.qpn),
    BITS(35, 0, 8, req.responder_resources),
    BITS(36, 0, 24, req.local_eec),
    BITS(39, 0, 8, req.initiator_depth),
    BITS(40, 0, 24, req.remote_eec),
    BITS(43, 0, 5, req.remote_timeout),
    BITS(43, 5, 2, req.transport),
    BITS(43, 7, 1, req.flow_control),
    BITS(44, 0, 24, req.psn),
    BITS(47, 0, 5, req.local_timeout),
    BITS(47, 5, 3, req.retries),
    BITS(48, 0, 16, req.pkey),
    BITS(50, 0, 4, req.mtu),
    BITS(50, 4, 1, req.rdc_exists),
    BITS(50, 5, 3, req.rnr_retries),
    BITS(51, 0, 4, req.max_cm_retries),
    BITS(51, 4, 1, req.srq),
    BITS(51, 5, 3, req.extended_transport),
    PATH(52, req.primary),
    PATH(96, req.alternate),
    BITS(139, 5, 1, req.sap_supported),
};

static const struct vb_cm_field mra_fields[] = {
    IDS,
    BITS(8, 0, 2, mra.about),
    BITS(9, 0, 5, mra.service_timeout),
};

static const struct vb_cm_field rej_fields[] = {
    IDS,
    BITS(8, 0, 2, rej.about),
    BITS(9, 0, 7, rej.info_len),
    BITS(10, 0, 16, rej.reason),
    BYTES(12, rej.info),
};

// The vendor's number lies in bytes that were reserved: see vendor_of_rep().
static const struct vb_cm_field rep_fields[] = {
    IDS,
    BITS(8, 0, 32, rep.qkey),
    BITS(12, 0, 24, rep.qpn),
    BITS(16, 0, 24, rep.local_eec),
    BITS(20, 0, 24, rep.psn),
    BITS(24, 0, 8, rep.responder_resources),
    BITS(25, 0, 8, rep.initiator_depth),
    BITS(26, 0, 5, rep.target_ack_delay),
    BITS(26, 5, 2, rep.failover),
    BITS(26, 7, 1, rep.flow_control),
    BITS(27, 0, 3, rep.rnr_retries),
    BITS(27, 3, 1, rep.srq),
    BITS(28, 0, 64, rep.ca_guid),
};

static const struct vb_cm_field ids_fields[] = {IDS};

static const struct vb_cm_field dreq_fields[] = {
    IDS,
    BITS(8, 0, 24, dreq.remote_qpn),
};

static const struct vb_cm_field lap_fields[] = {
    IDS,
    BITS(12, 0, 24, lap.remote_qpn),
    BITS(15, 0, 5, lap.remote_timeout),
};

static const struct vb_cm_field apr_fields[] = {
    IDS,
    BITS(8, 0, 8, apr.info_len),
    BITS(9, 0, 8, apr.status),
    BYTES(12, apr.info),
};

static const struct vb_cm_field sidr_req_fields[] = {
    BITS(0, 0, 32, local_id),
    BITS(4, 0, 16, sidr_req.pkey),
    BITS(8, 0, 64, sidr_req.service_id),
};

static const struct vb_cm_field sidr_rep_fields[] = {
    BITS(0, 0, 32, local_id),
    BITS(4, 0, 8, sidr_rep.status),
    BITS(5, 0, 8, sidr_rep.info_len),
    BITS(8, 0, 24, sidr_rep.qpn),
    BITS(12, 0, 64, sidr_rep.service_id),
    BITS(20, 0, 32, sidr_rep.qkey),
    BYTES(24, sidr_rep.info),
};

#define LAYOUT(name, table, at, len)                       \
    {                                                      \
        name, table, sizeof table / sizeof *table, at, len \
    }

static const struct vb_cm_layout layouts[VB_CM_KINDS] = {
    [VB_CM_REQ - VB_CM_KIND_FIRST] = LAYOUT("REQ", req_fields, 140, 92),
    [VB_CM_MRA - VB_CM_KIND_FIRST] = LAYOUT("MRA", mra_fields, 10, 222),
    [VB_CM_REJ - VB_CM_KIND_FIRST] = LAYOUT("REJ", rej_fields, 84, 148),
    [VB_CM_REP - VB_CM_KIND_FIRST] = LAYOUT("REP", rep_fields, 36, 196),
    [VB_CM_RTU - VB_CM_KIND_FIRST] = LAYOUT("RTU", ids_fields, 8, 224),
    [VB_CM_DREQ - VB_CM_KIND_FIRST] = LAYOUT("DREQ", dreq_fields, 12, 220),
    [VB_CM_DREP - VB_CM_KIND_FIRST] = LAYOUT("DREP", ids_fields, 8, 224),
    [VB_CM_SIDR_REQ - VB_CM_KIND_FIRST] = LAYOUT("SIDR_REQ", sidr_req_fields, 16, 216),
    [VB_CM_SIDR_REP - VB_CM_KIND_FIRST] = LAYOUT("SIDR_REP", sidr_rep_fields, 96, 136),
    [VB_CM_LAP - VB_CM_KIND_FIRST] = LAYOUT("LAP", lap_fields, 64, 168),
    [VB_CM_APR - VB_CM_KIND_FIRST] = LAYOUT("APR", apr_fields, 84, 148),
};

static_assert(VB_MAD_DATA_BYTES == 232, "every layout ends there");

const struct vb_cm_layout *vb_cm_layout(enum vb_cm_kind kind)
{
    return kind >= VB_CM_KIND_FIRST && kind <= VB_CM_KIND_LAST ? &layouts[kind - VB_CM_KIND_FIRST]
                                                               : NULL;
}

// ---- numbers of the message as structs hold them

static uint64_t load(const uint8_t *from, uint16_t size)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (size) {
    case 1: return *from;
    case 2: memcpy(&v16, from, 2); return v16;
    case 4: memcpy(&v32, from, 4); return v32;
    default: memcpy(&v64, from, 8); return v64;
    }
}

static void store(uint8_t *to, uint16_t size, uint64_t value)
{
    const uint16_t v16 = (uint16_t)value;
    const uint32_t v32 = (uint32_t)value;

    switch (size) {
    case 1: *to = (uint8_t)value; break;
    case 2: memcpy(to, &v16, 2); break;
    case 4: memcpy(to, &v32, 4); break;
    default: memcpy(to, &value, 8); break;
    }
}

// ---- bits as the wire has them: no field but whole bytes crosses more than one byte's edge unless
// it begins at one

static uint64_t get_bits(const uint8_t *data, const struct vb_cm_field *f)
{
    uint32_t bits = f->bit + f->width;
    uint64_t value = 0;

    for (uint32_t i = 0; i < (bits + 7) / 8; i++)
        value = value << 8 | data[f->byte + i];
    value >>= (8 - bits % 8) % 8;
    return f->width == 64 ? value : value & ((1ull << f->width) - 1);
}

static void put_bits(uint8_t *data, const struct vb_cm_field *f, uint64_t value)
{
    uint32_t bits = f->bit + f->width, bytes = (bits + 7) / 8;

    if (f->width < 64)
        value &= (1ull << f->width) - 1;
    value <<= (8 - bits % 8) % 8;
    for (uint32_t i = bytes; i-- > 0; value >>= 8)
        data[f->byte + i] |= (uint8_t)value;
}

// ---- the vendor of ECE, whose three bytes lie apart

struct apart {
    uint8_t high, middle, low;
};

static const struct apart rep_vendor = {15, 19, 23}, sidr_vendor = {6, 7, 11};

static void put_apart(uint8_t *data, const struct apart *at, uint32_t value)
{
    data[at->high] = (uint8_t)(value >> 16);
    data[at->middle] = (uint8_t)(value >> 8);
    data[at->low] = (uint8_t)value;
}

static uint32_t get_apart(const uint8_t *data, const struct apart *at)
{
    return (uint32_t)data[at->high] << 16 | (uint32_t)data[at->middle] << 8 | data[at->low];
}

// ---- messages

void vb_cm_encode(const struct vb_cm_message *m, uint8_t mad[VB_MAD_BYTES])
{
    const struct vb_cm_layout *layout = vb_cm_layout(m->kind);
    uint8_t *data = mad + VB_MAD_HEADER_BYTES;

    assert(layout);
    memset(mad, 0, VB_MAD_BYTES);
    mad[0] = VB_MAD_BASE_VERSION;
    mad[1] = VB_MAD_CLASS_CM;
    mad[2] = VB_MAD_CLASS_VERSION_CM;
    mad[3] = VB_MAD_METHOD_SEND;
    vb_put_be64(mad + 8, m->tid);
    vb_put_be16(mad + 16, (uint16_t)m->kind);
    vb_put_be32(mad + 20, m->attr_mod);
    for (uint32_t i = 0; i < layout->fields; i++) {
        const struct vb_cm_field *f = &layout->field[i];
        const uint8_t *from = (const uint8_t *)m + f->offset;
        if (f->width)
            put_bits(data, f, load(from, f->size));
        else
            memcpy(data + f->byte, from, f->whole);
    }
    if (m->kind == VB_CM_REP)
        put_apart(data, &rep_vendor, m->rep.vendor_id);
    else if (m->kind == VB_CM_SIDR_REP)
        put_apart(data, &sidr_vendor, m->sidr_rep.vendor_id);
    memcpy(data + layout->private_at, m->private_data, layout->private_len);
}

static enum vb_cm_verdict judge_header(const uint8_t *mad, size_t len)
{
    if (len != VB_MAD_BYTES)
        return VB_CM_DECODE_LENGTH;
    if (mad[0] != VB_MAD_BASE_VERSION || mad[1] != VB_MAD_CLASS_CM ||
        mad[2] != VB_MAD_CLASS_VERSION_CM)
        return VB_CM_DECODE_CLASS;
    if (mad[3] != VB_MAD_METHOD_SEND)
        return VB_CM_DECODE_METHOD;
    return vb_cm_layout((enum vb_cm_kind)vb_get_be16(mad + 16)) ? VB_CM_DECODE_OK
                                                                : VB_CM_DECODE_ATTRIBUTE;
}

static bool lengths_fit(const struct vb_cm_message *m)
{
    switch (m->kind) {
    case VB_CM_REJ: return m->rej.info_len <= VB_CM_INFO_MAX;
    case VB_CM_APR: return m->apr.info_len <= VB_CM_INFO_MAX;
    case VB_CM_SIDR_REP: return m->sidr_rep.info_len <= VB_CM_INFO_MAX;
    default: return true;
    }
}

enum vb_cm_verdict vb_cm_decode(const uint8_t *mad, size_t len, struct vb_cm_message *m)
{
    enum vb_cm_verdict verdict = judge_header(mad, len);

    if (verdict != VB_CM_DECODE_OK)
        return verdict;
    memset(m, 0, sizeof *m);
    m->kind = (enum vb_cm_kind)vb_get_be16(mad + 16);
    m->tid = vb_get_be64(mad + 8);
    m->attr_mod = vb_get_be32(mad + 20);
    const struct vb_cm_layout *layout = vb_cm_layout(m->kind);
    const uint8_t *data = mad + VB_MAD_HEADER_BYTES;
    for (uint32_t i = 0; i < layout->fields; i++) {
        const struct vb_cm_field *f = &layout->field[i];
        uint8_t *to = (uint8_t *)m + f->offset;
        if (f->width)
            store(to, f->size, get_bits(data, f));
        else
            memcpy(to, data + f->byte, f->whole);
    }
    if (m->kind == VB_CM_REP)
        m->rep.vendor_id = get_apart(data, &rep_vendor);
    else if (m->kind == VB_CM_SIDR_REP)
        m->sidr_rep.vendor_id = get_apart(data, &sidr_vendor);
    memcpy(m->private_data, data + layout->private_at, layout->private_len);
    return lengths_fit(m) ? VB_CM_DECODE_OK : VB_CM_DECODE_FIELD;
}

uint32_t vb_cm_private_len(enum vb_cm_kind kind)
{
    const struct vb_cm_layout *layout = vb_cm_layout(kind);
    return layout ? layout->private_len : 0;
}

const char *vb_cm_kind_text(enum vb_cm_kind kind)
{
    const struct vb_cm_layout *layout = vb_cm_layout(kind);
    return layout ? layout->name : "?";
}

const char *vb_cm_reason_text(uint16_t reason)
{
    static const char *const text[] = {
        [VB_CM_NO_QP] = "no queue pair available",
        [VB_CM_NO_EEC] = "no end-to-end context available",
        [VB_CM_NO_RESOURCES] = "no resources available",
        [VB_CM_TIMEOUT] = "the peer waited too long for an answer",
        [VB_CM_UNSUPPORTED] = "unsupported request",
        [VB_CM_INVALID_ID] = "no such communication id",
        [VB_CM_INVALID_INSTANCE] = "no such communication instance",
        [VB_CM_INVALID_SERVICE] = "nobody listens for this service id",
        [VB_CM_INVALID_TRANSPORT] = "transport service type refused",
        [VB_CM_STALE] = "stale connection: the queue pair belongs to an earlier one",
        [VB_CM_INVALID_GID] = "the address is not the receiver's",
        [VB_CM_INVALID_MTU] = "path MTU refused",
        [VB_CM_CONSUMER] = "refused by the program",
        [VB_CM_DUPLICATE_ID] = "communication id in use",
    };
    return reason < sizeof text / sizeof *text && text[reason] ? text[reason] : "unknown reason";
}
