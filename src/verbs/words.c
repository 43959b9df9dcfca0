// SPDX-License-Identifier: Apache-2.0
// Why a request or a receive failed, in words, and on which side.
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char *reason(enum vb_wc_status status)
{
    static const char *const words[] = {
        [VB_WC_LOCAL_LENGTH] = "wrong length, on this side: ",
        [VB_WC_LOCAL_QP_OP] = "on this side: ",
        [VB_WC_LOCAL_PROTECTION] = "wrong key, on this side: ",
        [VB_WC_FLUSHED] = "",
        [VB_WC_BAD_RESPONSE] = "on the peer's side: ",
        [VB_WC_LOCAL_ACCESS] = "on this side: ",
        [VB_WC_REMOTE_INVALID] = "wrong length or form, on the peer's side: ",
        [VB_WC_REMOTE_ACCESS] = "wrong key, on the peer's side: ",
        [VB_WC_REMOTE_OPERATION] = "on the peer's side: ",
        [VB_WC_RETRY_EXCEEDED] = "timeout: ",
        [VB_WC_RNR_EXCEEDED] = "receiver not ready: ",
        [VB_WC_BIND_REFUSED] = "on this side: ",
    };
    bool known = (unsigned)status < sizeof words / sizeof words[0] && words[status];
    return known ? words[status] : "";
}

// Whom a queue pair speaks to, as " to ADDRESS, queue pair N"; nothing for datagrams.
static void name_peer(struct vb_verbs_context *c, uint32_t qpn, char *text, size_t room)
{
    char address[INET6_ADDRSTRLEN] = "?";

    text[0] = '\0';
    vb_verbs_process_lock();
    for (struct vb_link *l = c->qps.head.next; l != &c->qps.head; l = l->next) {
        const struct vb_verbs_qp *qp = VB_CONTAINER_OF(l, struct vb_verbs_qp, link);
        const union ibv_gid *gid = &qp->attr.ah_attr.grh.dgid;
        if (vb_qp_num(qp->nic) != qpn || qp->service == VB_SERVICE_UD)
            continue;
        if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid))
            inet_ntop(AF_INET, gid->raw + 12, address, sizeof address);
        else
            inet_ntop(AF_INET6, gid->raw, address, sizeof address);
        snprintf(text, room, " to %s, queue pair %u", address, qp->attr.dest_qp_num);
        break;
    }
    vb_verbs_process_unlock();
}

void vb_verbs_tell(struct ibv_context *context, const struct vb_wc *wc)
{
    bool receive = wc->opcode == VB_WC_RECV || wc->opcode == VB_WC_RECV_WRITE;
    char peer[INET6_ADDRSTRLEN + 40];

    if (!vb_verbs_logs(VB_VERBS_ERROR))
        return;
    name_peer(vb_verbs_of(context), wc->qpn, peer, sizeof peer);
    vb_verbs_log(VB_VERBS_ERROR, "queue pair %u%s, %s with wr_id %llu: %s%s", wc->qpn, peer,
                 receive ? "receive" : "request", (unsigned long long)wc->wr_id, reason(wc->status),
                 vb_wc_status_text(wc->status));
}
