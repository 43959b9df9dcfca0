// SPDX-License-Identifier: Apache-2.0
// Answers to who inspects a NIC, as lines of text. Objects are looked at with the NIC at rest, as a
// copy of what matters, and written down when it runs again.
#include "host/host.h"
#include "host/inspect.h"
#include "nic/facts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOLD = 64, // queue pairs looked at in one go
};

void vb_inspect_put_word(FILE *out, const char *text)
{
    if (!*text)
        fputc('-', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || (c && strchr("_.:+/@-[]()", c)))
            fputc(c, out);
        else
            fprintf(out, "%%%02X", c);
    }
}

static void put_ip(FILE *out, const struct vb_ip *ip)
{
    char text[INET6_ADDRSTRLEN];
    bool v4 = vb_ip_is_v4(ip);

    fputs(inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip->b + 12 : ip->b, text, sizeof text), out);
}

// ---- each kind of answer: returns how many lines it wrote

static uint32_t put_counts(FILE *out, struct vb_nic *nic)
{
    struct vb_count_facts f;

    vb_host_lock(nic);
    vb_facts_count(nic->dev, &f);
    vb_host_unlock(nic);
    fprintf(out, "res pd %u cq %u qp %u mr %u mw %u srq %u\n", f.pds, f.cqs, f.qps, f.mrs, f.mws,
            f.srqs);
    return 1;
}

static uint32_t put_counters(FILE *out, struct vb_nic *nic)
{
    const char *name;
    uint64_t value;

    fputs("stat", out);
    for (unsigned i = 0; (name = vb_nic_counter_name(i)); i++)
        if (vb_nic_counter(nic, name, &value) == 0)
            fprintf(out, " %s %" PRIu64, name, value);
    fputc('\n', out);
    return 1;
}

static const char *type_name(enum vb_qp_type type)
{
    static const char *const names[VB_QPT_COUNT] = {"RC", "UC", "UD", "XRC_INI", "XRC_TGT"};
    return (unsigned)type < VB_QPT_COUNT ? names[type] : "-";
}

// Whose it is, in a hull.
static void put_owner(FILE *out, struct vb_nic *nic, bool cq, uint32_t number)
{
    if (nic->hull_owner)
        nic->hull_owner(nic->hull, cq, number, out);
}

static void put_qp(FILE *out, struct vb_nic *nic, const struct vb_qp_facts *f)
{
    fprintf(out, "qp lqpn %u", f->qpn);
    if (f->type != VB_QPT_UD && f->connected)
        fprintf(out, " rqpn %u", f->dest_qpn);
    fprintf(out, " type %s state %s", type_name(f->type), vb_qp_state_name(f->state));
    if (f->type != VB_QPT_UD)
        fprintf(out, " rq-psn %u", f->rq_psn);
    fprintf(out, " sq-psn %u path-mig-state MIGRATED pdn %u scqn %u rcqn %u", f->sq_psn, f->pd,
            f->send_cqn, f->recv_cqn);
    if (f->srqn)
        fprintf(out, " srqn %u", f->srqn);
    if (f->connected) {
        fprintf(out, " mtu %u raddr ", f->mtu_bytes);
        put_ip(out, &f->remote);
    }
    put_owner(out, nic, false, f->qpn);
    fputc('\n', out);
}

static void put_qp_counters(FILE *out, struct vb_nic *nic, const struct vb_qp_facts *f)
{
    fprintf(out, "qpstat lqpn %u type %s", f->qpn, type_name(f->type));
    put_owner(out, nic, false, f->qpn);
#define PUT(name) fprintf(out, " " #name " %" PRIu64, f->count.name);
    VB_QP_COUNTERS(PUT)
#undef PUT
    fputc('\n', out);
}

static uint32_t walk_qps(FILE *out, struct vb_nic *nic,
                         void (*put)(FILE *out, struct vb_nic *nic, const struct vb_qp_facts *f))
{
    struct vb_qp_facts facts[HOLD];
    uint32_t at = 0, found, told = 0;

    do {
        vb_host_lock(nic);
        found = vb_facts_qps(nic->dev, &at, facts, HOLD);
        vb_host_unlock(nic);
        for (uint32_t i = 0; i < found; i++)
            put(out, nic, &facts[i]);
        told += found;
    } while (found == HOLD);
    return told;
}

static uint32_t put_qps(FILE *out, struct vb_nic *nic)
{
    return walk_qps(out, nic, put_qp);
}

static uint32_t put_qp_stats(FILE *out, struct vb_nic *nic)
{
    return walk_qps(out, nic, put_qp_counters);
}

static uint32_t put_cqs(FILE *out, struct vb_nic *nic)
{
    struct vb_cq_facts facts[HOLD];
    uint32_t at = 0, found, told = 0;

    do {
        vb_host_lock(nic);
        found = vb_facts_cqs(nic->dev, &at, facts, HOLD);
        vb_host_unlock(nic);
        for (uint32_t i = 0; i < found; i++) {
            fprintf(out, "cq cqn %u cqe %u users %u produced %" PRIu64 " overrun %u", facts[i].cqn,
                    facts[i].entries, facts[i].users, facts[i].produced, facts[i].overrun);
            put_owner(out, nic, true, facts[i].cqn);
            fputc('\n', out);
        }
        told += found;
    } while (found == HOLD);
    return told;
}

static uint32_t put_pds(FILE *out, struct vb_nic *nic)
{
    struct vb_pd_facts facts[HOLD];
    uint32_t at = 0, found, told = 0;

    do {
        vb_host_lock(nic);
        found = vb_facts_pds(nic->dev, &at, facts, HOLD);
        vb_host_unlock(nic);
        for (uint32_t i = 0; i < found; i++)
            fprintf(out, "pd pdn %u users %u\n", facts[i].pd, facts[i].users);
        told += found;
    } while (found == HOLD);
    return told;
}

static uint32_t put_srqs(FILE *out, struct vb_nic *nic)
{
    struct vb_srq_facts facts[HOLD];
    uint32_t at = 0, found, told = 0;

    do {
        vb_host_lock(nic);
        found = vb_facts_srqs(nic->dev, &at, facts, HOLD);
        vb_host_unlock(nic);
        for (uint32_t i = 0; i < found; i++) {
            const struct vb_srq_facts *f = &facts[i];
            fprintf(out, "srq srqn %u type %s pdn %u", f->srqn, f->xrc ? "XRC" : "BASIC", f->pd);
            if (f->cqn)
                fprintf(out, " cqn %u", f->cqn);
            fprintf(out, " users %u wr %u limit %u\n", f->users, f->entries, f->limit);
        }
        told += found;
    } while (found == HOLD);
    return told;
}

// Keys move in their table when others come and go: all are taken at once.
static struct vb_mr_facts *take_mrs(struct vb_nic *nic, uint32_t *found)
{
    struct vb_count_facts count;
    uint32_t at = 0, room;

    vb_host_lock(nic);
    vb_facts_count(nic->dev, &count);
    vb_host_unlock(nic);
    room = count.mrs + count.mws + HOLD; // some more may come meanwhile
    room = room < VB_INSPECT_OBJECTS ? room : VB_INSPECT_OBJECTS;
    struct vb_mr_facts *facts = malloc(room * sizeof *facts);
    if (!facts)
        return NULL;
    vb_host_lock(nic);
    *found = vb_facts_mrs(nic->dev, &at, facts, room);
    vb_host_unlock(nic);
    return facts;
}

static uint32_t put_mrs(FILE *out, struct vb_nic *nic)
{
    uint32_t found = 0;
    struct vb_mr_facts *facts = take_mrs(nic, &found);

    for (uint32_t i = 0; facts && i < found; i++) {
        const struct vb_mr_facts *f = &facts[i];
        fprintf(out,
                "mr mrn %u rkey 0x%x lkey 0x%x iova 0x%" PRIx64 " mrlen %" PRIu64
                " pdn %u access 0x%x kind %s\n",
                f->key >> 8, f->key, f->key, f->start, f->len, f->pd, f->access,
                f->window ? "window" : "region");
    }
    free(facts);
    return found;
}

// ---- of hulls alone

static uint32_t put_tenants(FILE *out, struct vb_nic *nic)
{
    return nic->hull_tell ? nic->hull_tell(nic->hull, "tenant", out) : 0;
}

static uint32_t put_tenant_stats(FILE *out, struct vb_nic *nic)
{
    return nic->hull_tell ? nic->hull_tell(nic->hull, "tenantstat", out) : 0;
}

static uint32_t put_sessions(FILE *out, struct vb_nic *nic)
{
    return nic->hull_tell ? nic->hull_tell(nic->hull, "session", out) : 0;
}

static uint32_t put_memories(FILE *out, struct vb_nic *nic)
{
    return nic->hull_tell ? nic->hull_tell(nic->hull, "memory", out) : 0;
}

static uint32_t put_nothing(FILE *out, struct vb_nic *nic)
{
    (void)out;
    (void)nic;
    return 0;
}

// ---- questions

static const struct kind {
    const char *name;
    uint32_t (*put)(FILE *out, struct vb_nic *nic);
} kinds[] = {
    {"nic", put_nothing},      {"res", put_counts},
    {"stat", put_counters},    {"qp", put_qps},
    {"cq", put_cqs},           {"qpstat", put_qp_stats},
    {"mr", put_mrs},           {"pd", put_pds},
    {"srq", put_srqs},         {"cm_id", vb_inspect_put_cm_ids},
    {"tenant", put_tenants},   {"tenantstat", put_tenant_stats},
    {"session", put_sessions}, {"memory", put_memories},
};

static const struct kind *find(const char *question, size_t len)
{
    const size_t greeting = sizeof VB_INSPECT_GREETING - 1;

    if (len < greeting || memcmp(question, VB_INSPECT_GREETING, greeting) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == len - greeting &&
            memcmp(question + greeting, kinds[i].name, len - greeting) == 0)
            return &kinds[i];
    return NULL;
}

char *vb_inspect_answer(struct vb_nic *nic, const char *question, size_t len, size_t *answer_len)
{
    char *answer = NULL;
    const struct kind *kind = find(question, len);
    FILE *out = open_memstream(&answer, answer_len);

    if (!out)
        return NULL;
    if (kind) {
        fprintf(out, VB_INSPECT_GREETING "%s\n", kind->name);
        vb_inspect_put_nic(out, nic);
        fprintf(out, "end %u\n", kind->put(out, nic));
    } else {
        fputs(VB_INSPECT_GREETING "error question\n", out);
    }
    bool whole = !ferror(out);
    if (fclose(out) != 0 || !whole) {
        free(answer);
        return NULL;
    }
    return answer;
}
