// SPDX-License-Identifier: Apache-2.0
// Faults on purpose of attached applications. Each may have rules, and they are asked about its own
// queue pairs alone: frames by the queue pair of this side, which no application can choose. Each
// unit has rules of its own, of the same text, as in a process. Messages of connection managers,
// and what comes for a group, are nobody's.
#include "hull/command.h"

#include "host/open.h"
#include "port/faulty.h"

#include <errno.h>
#include <string.h>

// Of a queue pair's owner. NULL: he has no rules.
static struct vb_faults *rules_of(const struct vb_hull_unit *unit, uint32_t qpn)
{
    const struct vb_hull_object *qp = unit->hull->qp[qpn & (VB_DOORBELL_QPS - 1)];
    return qp && qp->number == qpn ? qp->client->at[unit->index].faults : NULL;
}

static void judge_frame(void *ctx, enum vb_fault_dir dir, uint32_t qpn, const uint8_t *head,
                        uint32_t len, struct vb_fault_fate *fate)
{
    struct vb_faults *rules = rules_of(ctx, qpn);

    if (rules)
        vb_faults_judge(rules, dir, head, len, fate);
}

// Those of the NIC itself, which the hull was started with, come first.
static uint8_t judge_completion(void *ctx, uint32_t qpn, uint8_t wqe_opcode, bool receive)
{
    const struct vb_hull_unit *unit = vb_hull_unit_of(ctx, qpn);
    enum vb_fault_wr kind = vb_host_fault_kind(wqe_opcode, receive);
    struct vb_faults *own = rules_of(unit, qpn);
    enum vb_cqe_syndrome forced =
        vb_faults_completion(vb_faulty_rules(unit->lane->port), qpn, kind);

    if (forced == VB_SYN_OK && own)
        forced = vb_faults_completion(own, qpn, kind);
    return (uint8_t)forced;
}

static bool judge_request(void *ctx, uint32_t qpn)
{
    const struct vb_hull_unit *unit = vb_hull_unit_of(ctx, qpn);
    struct vb_faults *own = rules_of(unit, qpn);

    return vb_faults_qp(vb_faulty_rules(unit->lane->port), qpn) || (own && vb_faults_qp(own, qpn));
}

bool vb_hull_faults_key(struct vb_hull_command *c)
{
    struct vb_faults *own = c->client->at[0].faults;
    int err = own ? vb_faults_register(own) : 0;

    if (err)
        vb_hull_refuse(c->reply, err, "a fault on purpose: %s", strerror(-err));
    return err;
}

// ---- who has rules

// Nobody is asked where nobody has any.
static void settle(struct vb_hull *hull)
{
    uint32_t dirs = 0, rules = 0;

    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next) {
        const struct vb_faults *own = VB_CONTAINER_OF(l, struct vb_hull_client, link)->at[0].faults;
        if (!own)
            continue;
        rules += vb_faults_rules(own);
        dirs |= (vb_faults_touch(own, VB_FAULT_TX) ? 1u << VB_FAULT_TX : 0) |
                (vb_faults_touch(own, VB_FAULT_RX) ? 1u << VB_FAULT_RX : 0);
    }
    for (uint32_t i = 0; i < hull->units; i++)
        vb_faulty_judge_by(hull->unit[i].lane->port, dirs, judge_frame, &hull->unit[i]);
    hull->hooks = (struct vb_dev_hooks){hull, judge_completion, judge_request};
    if (rules)
        vb_dev_hook(hull->nic->dev, &hull->hooks);
    else if (vb_faults_rules(vb_faulty_rules(hull->lane->port)))
        vb_host_hook_faults(hull->nic);
    else
        vb_dev_hook(hull->nic->dev, NULL);
}

static void exchange(struct vb_hull_client *client, struct vb_faults *rules[VB_PUS_MAX])
{
    for (uint32_t i = 0; i < client->hull->units; i++) {
        vb_faults_free(client->at[i].faults);
        client->at[i].faults = rules[i];
    }
    settle(client->hull);
}

void vb_hull_faults_end(struct vb_hull_client *client)
{
    if (client->at[0].faults)
        exchange(client, (struct vb_faults *[VB_PUS_MAX]){0});
}

// ---- the request

// The application may change it meanwhile: a copy is read.
static bool copy_text(struct vb_hull_command *c, char text[VB_HULL_FAULTS_TEXT])
{
    const struct vb_hull_text *t = &c->request->text;
    struct vb_hull_hold *hold;

    if (t->bytes == 0 || t->bytes > VB_HULL_FAULTS_TEXT) {
        vb_hull_refuse(c->reply, -E2BIG, "a hull takes faults of %d characters at most",
                       VB_HULL_FAULTS_TEXT - 1);
        return false;
    }
    const char *at = vb_hull_memory_find(c->client, &t->at, t->bytes, 1, &hold, c->reply);
    if (!at)
        return false;
    memcpy(text, at, t->bytes);
    text[t->bytes - 1] = '\0';
    return true;
}

static bool may_have(struct vb_hull_command *c, const struct vb_faults *rules)
{
    const struct vb_hull_tenant *t = c->client->tenant;

    if (t->quota.faults || vb_faults_rules(rules) == 0)
        return true;
    vb_hull_refuse(c->reply, -EPERM,
                   "user %u may make no faults on purpose: the hull's configuration would have to "
                   "say 'faults = yes'",
                   (unsigned)t->uid);
    return false;
}

void vb_hull_faults_set(struct vb_hull_command *c)
{
    char text[VB_HULL_FAULTS_TEXT], why[VB_ERROR_TEXT] = "out of memory";
    struct vb_faults *rules[VB_PUS_MAX] = {0};

    if (!copy_text(c, text))
        return;
    int err = vb_host_parse_faults(c->client->hull->units, text, rules, why);
    if (err) {
        vb_hull_refuse(c->reply, err, "%s", why);
        return;
    }
    bool some = vb_faults_rules(rules[0]) > 0;
    if (may_have(c, rules[0]) && some && vb_host_wrap_ports(c->client->hull->nic))
        vb_hull_refuse(c->reply, -ENOMEM, "the hull is out of memory");
    if (!c->reply->error && some) {
        exchange(c->client, rules);
        return;
    }
    for (uint32_t i = 0; i < c->client->hull->units; i++)
        vb_faults_free(rules[i]);
    if (!c->reply->error)
        vb_hull_faults_end(c->client);
}
