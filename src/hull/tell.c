// SPDX-License-Identifier: Apache-2.0
// What a hull says to who inspects its NIC (host/inspect.h): its tenants, its sessions, memory with
// a name, and whose a queue is.
#include "hull/hull.h"

#include "host/inspect.h"

#include <inttypes.h>
#include <string.h>

// ---- tenants

static uint32_t count_links(const struct vb_fifo *list)
{
    uint32_t count = 0;

    for (const struct vb_link *l = list->head.next; l != &list->head; l = l->next)
        count++;
    return count;
}

static void put_quota(FILE *out, const char *prefix, const struct vb_hull_quota *q)
{
    const struct {
        const char *key;
        uint64_t value;
    } values[] = {
        {"applications", q->applications}, {"queue_pairs", q->queue_pairs}, {"queues", q->queues},
        {"regions", q->regions},           {"entries", q->entries},         {"bytes", q->bytes},
        {"memories", q->memories}};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        fprintf(out, " %s%s %" PRIu64, prefix, values[i].key, values[i].value);
}

static void put_tenant(FILE *out, const struct vb_hull_tenant *t)
{
    fprintf(out, "tenant uid %u", (unsigned)t->uid);
    put_quota(out, "", &t->used);
    fprintf(out, " named %u refused %" PRIu64, count_links(&t->named), t->refused);
    put_quota(out, "max_", &t->quota);
    fprintf(out, " rate_kbps %" PRIu64 "\n", t->quota.rate_kbps);
}

static void put_traffic(FILE *out, const struct vb_hull_tenant *t)
{
    fprintf(out,
            "tenantstat uid %u sent_pkts %" PRIu64 " rcvd_pkts %" PRIu64 " sent_bytes %" PRIu64
            " rcvd_bytes %" PRIu64 " refused %" PRIu64 "\n",
            (unsigned)t->uid, t->traffic.sent_pkts, t->traffic.rcvd_pkts, t->traffic.sent_bytes,
            t->traffic.rcvd_bytes, t->refused);
}

static void put_named(FILE *out, const struct vb_hull_mapping *m)
{
    fprintf(out, "memory uid %u name ", (unsigned)m->tenant->uid);
    vb_inspect_put_word(out, m->name);
    fprintf(out, " bytes %" PRIu64 " users %u\n", m->bytes, m->holds);
}

static uint32_t put_memories(FILE *out, const struct vb_hull_tenant *t)
{
    uint32_t told = 0;

    for (struct vb_link *l = t->named.head.next; l != &t->named.head; l = l->next, told++)
        put_named(out, VB_CONTAINER_OF(l, struct vb_hull_mapping, link));
    return told;
}

// ---- sessions

static uint64_t bytes_of(const struct vb_hull_client *client)
{
    uint64_t bytes = 0;

    for (struct vb_link *l = client->holds.head.next; l != &client->holds.head; l = l->next)
        bytes += VB_CONTAINER_OF(l, struct vb_hull_hold, link)->mapping->bytes;
    return bytes;
}

static const char *state_of(const struct vb_hull_client *c)
{
    const uint32_t all = (1u << c->hull->units) - 1;

    if (!c->greeted)
        return "GREETING";
    if (c->socket < 0)
        return "DETACHED";
    vb_host_lock(c->hull->nic);
    bool idle = vb_hull_asleep(c) == all;
    vb_host_unlock(c->hull->nic);
    return idle ? "IDLE" : "ACTIVE";
}

// Of a service that nobody is attached to, the process is the last one that was.
static void put_session(FILE *out, const struct vb_hull_client *c)
{
    const struct {
        const char *key;
        enum vb_hull_kind kind;
    } kinds[] = {{"qp", VB_HULL_QP},     {"cq", VB_HULL_CQ}, {"srq", VB_HULL_SRQ},
                 {"mr", VB_HULL_REGION}, {"pd", VB_HULL_PD}, {"channel", VB_HULL_CHANNEL}};

    fprintf(out, "session sid %u uid %u app %ld name ", c->number, (unsigned)c->tenant->uid,
            (long)c->pid);
    vb_inspect_put_word(out, c->name);
    if (c->service[0]) {
        fputs(" service ", out);
        vb_inspect_put_word(out, c->service);
        fprintf(out, " lives %u", c->lives);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        fprintf(out, " %s %u", kinds[i].key, c->objects_made[kinds[i].kind]);
    if (c->hull->units > 1 && c->objects_made[VB_HULL_CQ])
        fprintf(out, " unit %u", c->home + 1);
    fprintf(out, " memories %u bytes %" PRIu64 " state %s\n", count_links(&c->holds), bytes_of(c),
            state_of(c));
}

static uint32_t put_sessions(FILE *out, const struct vb_hull *hull)
{
    uint32_t told = 0;

    for (struct vb_link *l = hull->clients.head.next; l != &hull->clients.head; l = l->next, told++)
        put_session(out, VB_CONTAINER_OF(l, struct vb_hull_client, link));
    return told;
}

// ---- questions

static void charge_all(struct vb_hull *hull)
{
    vb_host_lock(hull->nic);
    for (uint32_t i = 0; i < VB_DOORBELL_QPS; i++)
        if (hull->qp[i])
            vb_metrics_charge(hull->qp[i]);
    vb_host_unlock(hull->nic);
}

static uint32_t put_tenants(FILE *out, const struct vb_hull *hull,
                            void (*put)(FILE *out, const struct vb_hull_tenant *t))
{
    uint32_t told = 0;

    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next, told++)
        put(out, VB_CONTAINER_OF(l, struct vb_hull_tenant, link));
    return told;
}

uint32_t vb_hull_tell(struct vb_hull *hull, const char *kind, FILE *out)
{
    uint32_t told = 0;

    if (strcmp(kind, "session") == 0)
        return put_sessions(out, hull);
    if (strcmp(kind, "tenant") == 0)
        return put_tenants(out, hull, put_tenant);
    if (strcmp(kind, "tenantstat") == 0) {
        charge_all(hull);
        return put_tenants(out, hull, put_traffic);
    }
    for (struct vb_link *l = hull->tenants.head.next; l != &hull->tenants.head; l = l->next)
        told += put_memories(out, VB_CONTAINER_OF(l, struct vb_hull_tenant, link));
    return told;
}

void vb_hull_tell_owner(struct vb_hull *hull, bool cq, uint32_t number, FILE *out)
{
    const struct vb_hull_object *o =
        cq ? hull->cq[number & (VB_HULL_CQS - 1)] : hull->qp[number & (VB_DOORBELL_QPS - 1)];

    if (o && o->number == number)
        fprintf(out, " uid %u app %ld", (unsigned)o->client->tenant->uid, (long)o->client->pid);
}

// ---- to a user, of himself

static struct vb_hull_resources resources_of(const struct vb_hull_quota *q)
{
    return (struct vb_hull_resources){.applications = q->applications,
                                      .queue_pairs = q->queue_pairs,
                                      .queues = q->queues,
                                      .regions = q->regions,
                                      .entries = q->entries,
                                      .bytes = q->bytes,
                                      .memories = q->memories};
}

void vb_hull_tell_account(const struct vb_hull_client *client, struct vb_hull_account *account)
{
    const struct vb_hull_tenant *t = client->tenant;

    *account = (struct vb_hull_account){.uid = t->uid,
                                        .named = count_links(&t->named),
                                        .has = resources_of(&t->used),
                                        .may = resources_of(&t->quota),
                                        .rate_kbps = t->quota.rate_kbps,
                                        .refused = t->refused};
    account->has.applications--; // who asks
}

// ---- who it is

// As the system calls the program; "" if it does not say.
void vb_hull_name_client(struct vb_hull_client *client)
{
    char path[32];

    client->name[0] = '\0';
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)client->pid);
    FILE *file = client->pid > 0 ? fopen(path, "re") : NULL;
    if (!file)
        return;
    if (fgets(client->name, sizeof client->name, file))
        client->name[strcspn(client->name, "\n")] = '\0';
    fclose(file);
}
