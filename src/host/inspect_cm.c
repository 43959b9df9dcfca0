// SPDX-License-Identifier: Apache-2.0
// What a NIC's communication manager is at, as lines of text.
#include "host/cm.h"
#include "host/host.h"
#include "host/inspect.h"

#include <arpa/inet.h>

enum {
    HOLD = 64, // looked at in one go
};

// As rdma_cm's states are called.
static const char *state_name(const struct vb_cm_facts *f)
{
    if (f->listens)
        return "LISTEN";
    switch (f->state) {
    case VB_CM_DREQ_SENT:
    case VB_CM_TIMEWAIT: return "DISCONNECT";
    case VB_CM_REFUSED:
    case VB_CM_SIDR_REPLIED:
    case VB_CM_OVER: return "DESTROYING";
    default: return "CONNECT";
    }
}

static const char *space_name(uint64_t service_id)
{
    enum vb_cma_space space;

    if (!vb_cma_space_of(service_id, &space))
        return "-";
    switch (space) {
    case VB_CMA_TCP: return "TCP";
    case VB_CMA_UDP: return "UDP";
    case VB_CMA_IPOIB: return "IPoIB";
    case VB_CMA_IB: return "IB";
    }
    return "-";
}

static void put_end(FILE *out, const char *key, const struct vb_ip *ip, uint16_t port)
{
    char text[INET6_ADDRSTRLEN];
    bool v4 = vb_ip_is_v4(ip);

    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip->b + 12 : ip->b, text, sizeof text);
    fprintf(out, v4 ? " %s %s:%u" : " %s [%s]:%u", key, text, port);
}

static void put_cm_id(FILE *out, const struct vb_cm_facts *f)
{
    static const char *const transports[] = {"RC", "UC", "RD", "XRC"};

    fprintf(out, "cm_id cm-idn %u", f->number);
    if (f->qpn)
        fprintf(out, " lqpn %u", f->qpn);
    if (!f->listens)
        fprintf(out, " qp-type %s", f->sidr ? "UD" : transports[f->transport & 3]);
    fprintf(out, " state %s ps %s", state_name(f), space_name(f->service_id));
    put_end(out, "src-addr", &f->local, f->port);
    if (f->listens) {
        fprintf(out, " service 0x%llx\n", (unsigned long long)f->service_id);
        return;
    }
    put_end(out, "dst-addr", &f->peer, f->peer_port);
    fprintf(out, " role %s service 0x%llx id 0x%x", f->active ? "active" : "passive",
            (unsigned long long)f->service_id, f->id);
    if (f->peer_id)
        fprintf(out, " peer-id 0x%x", f->peer_id);
    if (f->peer_qpn)
        fprintf(out, " rqpn %u", f->peer_qpn);
    fputs(" cm-state ", out);
    vb_inspect_put_word(out, vb_cm_state_text(f->state));
    fputc('\n', out);
}

uint32_t vb_inspect_put_cm_ids(FILE *out, struct vb_nic *nic)
{
    struct vb_cm_facts facts[HOLD];
    uint32_t at = 0, found, told = 0;

    if (!nic->cm)
        return 0;
    do {
        found = vb_host_cm_facts(nic->cm, &at, facts, HOLD);
        for (uint32_t i = 0; i < found; i++)
            put_cm_id(out, &facts[i]);
        told += found;
    } while (found == HOLD);
    return told;
}
