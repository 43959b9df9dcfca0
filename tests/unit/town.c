// SPDX-License-Identifier: Apache-2.0
// Servers and clients on one address.
#include "town.h"

#include "../wait.h"
#include "base/bytes.h"
#include "base/prng.h"
#include "town_party.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    FIRST_PORT = 7100,
};

__attribute__((format(printf, 2, 3))) static void complain(char *why, const char *format, ...)
{
    va_list args;

    if (why[0])
        return;
    va_start(args, format);
    vsnprintf(why, 200, format, args);
    va_end(args);
}

static uint16_t port_of(const struct town *t, unsigned server)
{
    return (uint16_t)(t->port + server);
}

// ---- a server

static void say_yes(struct party *p, const struct vb_cm_event *e)
{
    struct party_conn *c = party_conn_new(p);
    struct vb_qp_peer peer;
    uint64_t now_ns;
    struct vb_cm_answer yes = {.psn = 9, .responder_resources = 1, .rnr_retries = 7};

    if (!c) {
        complain(p->why, "there is no room for a connection");
        return;
    }
    c->id = e->id;
    for (int i = 0; i < 4; i++)
        c->words[i] = vb_get_be32(e->message.private_data + 4 * (size_t)i);
    yes.qpn = vb_qp_num(c->qp);
    vb_host_cm_passive_peer(&yes, &e->message, &peer);
    if (!party_join(p, c, &peer))
        complain(p->why, "cannot join");
    struct vb_cm *cm = vb_host_cm_enter(p->cm, &now_ns);
    (void)vb_cm_accept(cm, now_ns, e->id, &yes); // -EINVAL: the asker is gone, and GONE follows
    vb_host_cm_leave(p->cm);
}

// Answers with one word changed, so that the asker knows who it was.
static void answer(struct town *t, struct party *p, unsigned me)
{
    struct party_conn *c;

    while ((c = party_receive(p)) != NULL) {
        if (!party_has(p, c, c->words) || c->words[0] != me)
            complain(p->why, "what came for server %u is another's", me);
        const uint32_t words[4] = {c->words[0], c->words[1], c->words[2],
                                   ~atomic_load(&t->server[me].life)};
        if (!party_send(p, c, words))
            complain(p->why, "cannot answer");
        atomic_fetch_add(&t->server[me].served, 1);
    }
}

static void serve(struct town *t, unsigned me)
{
    static struct party party;
    struct party *p = &party;
    struct town_server *s = &t->server[me];
    struct vb_cm_event e;
    uint16_t port = port_of(t, me);
    uint64_t now_ns;

    if (!party_open(p, t->address, 1 + me % 2, s->why))
        return;
    if (vb_host_cm_bind(p->cm, VB_CMA_TCP, &port) != 0) {
        complain(s->why, "port %u is another's", port);
        return;
    }
    struct vb_cm *cm = vb_host_cm_enter(p->cm, &now_ns);
    (void)vb_cm_listen(cm, vb_cma_service_id(VB_CMA_TCP, port), 0, 0, p);
    vb_host_cm_leave(p->cm);
    atomic_store(&s->ready, 1);
    while (!s->why[0]) {
        answer(t, p, me);
        if (!party_wait(p, 2, &e))
            continue;
        struct party_conn *c = party_conn_find(p, e.id);
        if (e.kind == VB_CM_EVENT_REQUEST)
            say_yes(p, &e);
        else if (e.kind == VB_CM_EVENT_GONE && c)
            party_conn_free(c);
    }
}

// ---- a client

struct errand {
    struct town *t;
    struct town_client *me;
    struct party *p;
    unsigned server, state, epoch, life, number;
    struct party_conn *c;
    struct vb_cm_request request;
};

static bool is_void(const struct errand *a)
{
    return atomic_load(&a->t->server[a->server].epoch) != a->epoch;
}

// It owes nobody anything any more; its queue pair stays.
static void abandon(struct errand *a)
{
    uint64_t now_ns;
    struct vb_cm *cm = vb_host_cm_enter(a->p->cm, &now_ns);
    (void)vb_cm_abandon(cm, now_ns, a->c->id);
    vb_host_cm_leave(a->p->cm);
}

static bool begin(struct errand *a)
{
    uint8_t data[56] = {0};
    uint64_t now_ns;
    struct vb_ip here;

    a->c = party_conn_new(a->p);
    if (!a->c)
        return false;
    const uint32_t words[4] = {a->server, (uint32_t)(a->me - a->t->client), a->number, 77};
    memcpy(a->c->words, words, sizeof words);
    vb_nic_gid(a->p->nic, here.b);
    for (size_t i = 0; i < 4; i++)
        vb_put_be32(data + 4 * i, a->c->words[i]);
    a->request = (struct vb_cm_request){.peer = here,
                                        .service_id =
                                            vb_cma_service_id(VB_CMA_TCP, port_of(a->t, a->server)),
                                        .qpn = vb_qp_num(a->c->qp),
                                        .psn = 4,
                                        .mtu = 3,
                                        .initiator_depth = 1,
                                        .retries = 7,
                                        .rnr_retries = 7,
                                        .ack_timeout = 16,
                                        .private_data = {data, sizeof data}};
    struct vb_cm *cm = vb_host_cm_enter(a->p->cm, &now_ns);
    int err = vb_cm_connect(cm, now_ns, &a->request, &a->c->id);
    vb_host_cm_leave(a->p->cm);
    return err == 0;
}

static bool confirm(struct errand *a, const struct vb_cm_event *e)
{
    struct vb_qp_peer peer;
    uint64_t now_ns;

    vb_host_cm_active_peer(&a->request, &e->message, &peer);
    if (!party_join(a->p, a->c, &peer))
        return false;
    struct vb_cm *cm = vb_host_cm_enter(a->p->cm, &now_ns);
    int err = vb_cm_confirm(cm, now_ns, e->id, NULL);
    vb_host_cm_leave(a->p->cm);
    return err == 0;
}

// Events of earlier connections.
static void let_go(struct errand *a, const struct vb_cm_event *e)
{
    struct party_conn *c = party_conn_find(a->p, e->id);
    if (e->kind == VB_CM_EVENT_GONE && c)
        party_conn_free(c);
}

// True: connected.
static bool get_answer(struct errand *a)
{
    struct vb_cm_event e;

    while (!is_void(a)) {
        if (!party_wait(a->p, 5, &e)) {
            continue;
        } else if (e.id != a->c->id) {
            let_go(a, &e);
        } else if (e.kind == VB_CM_EVENT_REPLY) {
            if (a->state == TOWN_DEAD)
                complain(a->me->why, "server %u is dead and said yes", a->server);
            return confirm(a, &e);
        } else if (e.kind == VB_CM_EVENT_REJECTED) {
            if (a->state == TOWN_DEAD && e.reason == VB_CM_INVALID_SERVICE)
                atomic_fetch_add(&a->t->refused, 1);
            else if (!is_void(a))
                complain(a->me->why, "server %u refuses: %s", a->server,
                         vb_cm_reason_text(e.reason));
            return false; // GONE follows
        } else if (!is_void(a)) {
            complain(a->me->why, "server %u: %s", a->server, vb_cm_event_text(e.kind));
        }
        if (a->me->why[0])
            return false;
    }
    abandon(a);
    return false;
}

static void talk(struct errand *a)
{
    const uint32_t *said = a->c->words;
    const uint32_t wanted[4] = {said[0], said[1], said[2], ~a->life};
    bool came;

    if (!party_send(a->p, a->c, said))
        complain(a->me->why, "cannot send");
    WAIT_UNTIL((came = party_receive(a->p) == a->c) || is_void(a));
    if (!came)
        return;
    if (!party_has(a->p, a->c, wanted))
        complain(a->me->why, "another one than server %u has answered", a->server);
    atomic_fetch_add(&a->me->made, 1);
}

static void part(struct errand *a)
{
    uint64_t now_ns;

    struct vb_cm *cm = vb_host_cm_enter(a->p->cm, &now_ns);
    (void)vb_cm_disconnect(cm, now_ns, a->c->id, NULL); // or the server was first
    vb_host_cm_leave(a->p->cm);
}

static void ask_around(struct town *t, unsigned me)
{
    static struct party party;
    struct errand a = {.t = t, .me = &t->client[me], .p = &party};
    struct vb_prng prng = {.state = me};
    uint16_t port = 0;

    if (!party_open(a.p, t->address, 1, a.me->why))
        return;
    if (vb_host_cm_bind(a.p->cm, VB_CMA_TCP, &port) != 0 || port < 32768 || port > 60999)
        complain(a.me->why, "port %u", port);
    atomic_store(&a.me->ready, 1);
    for (; !a.me->why[0]; a.number++) {
        a.server = (unsigned)vb_prng_below(&prng, TOWN_SERVERS);
        const struct town_server *s = &t->server[a.server];
        a.epoch = atomic_load(&s->epoch);
        a.state = atomic_load(&s->state);
        a.life = atomic_load(&s->life);
        (void)poll(NULL, 0, (int)vb_prng_below(&prng, 30)); // sleeps: so that clients mix
        if (a.state == TOWN_AWAY || is_void(&a))
            continue;
        if (!begin(&a)) {
            complain(a.me->why, "cannot begin");
        } else if (get_answer(&a)) {
            talk(&a);
            part(&a);
        }
    }
}

// ---- the test's side

static void set_state(struct town_server *s, enum town_state state)
{
    atomic_store(&s->state, state);
    atomic_fetch_add(&s->epoch, 1);
}

static pid_t start(struct town *t, bool server, unsigned i)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (server)
        serve(t, i);
    else
        ask_around(t, i);
    for (;;) // it has failed; the test will tell
        pause();
}

static void wait_for(atomic_uint *ready, const char *why)
{
    WAIT_UNTIL(atomic_load(ready) || why[0]);
    if (!atomic_load(ready))
        fail_msg("a process did not start: %s", why);
}

void town_start_server(struct town *t, unsigned i)
{
    struct town_server *s = &t->server[i];

    set_state(s, TOWN_AWAY);
    atomic_store(&s->ready, 0);
    atomic_fetch_add(&s->life, 1);
    s->pid = start(t, true, i);
    wait_for(&s->ready, s->why);
    set_state(s, TOWN_UP);
}

struct town *town_start(const char *address)
{
    struct town *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(t != MAP_FAILED);
    snprintf(t->address, sizeof t->address, "%s", address);
    t->port = FIRST_PORT;
    for (unsigned i = 0; i < TOWN_SERVERS; i++)
        town_start_server(t, i);
    for (unsigned i = 0; i < TOWN_CLIENTS; i++) {
        t->client[i].pid = start(t, false, i);
        wait_for(&t->client[i].ready, t->client[i].why);
    }
    return t;
}

static void end(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

void town_kill_server(struct town *t, unsigned i)
{
    set_state(&t->server[i], TOWN_AWAY);
    end(t->server[i].pid);
    t->server[i].pid = 0;
    set_state(&t->server[i], TOWN_DEAD);
}

void town_stop_server(struct town *t, unsigned i)
{
    set_state(&t->server[i], TOWN_AWAY);
    assert_int_equal(kill(t->server[i].pid, SIGSTOP), 0);
}

void town_continue_server(struct town *t, unsigned i)
{
    assert_int_equal(kill(t->server[i].pid, SIGCONT), 0);
    set_state(&t->server[i], TOWN_UP);
}

void town_end(struct town *t)
{
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        end(t->client[i].pid);
    for (unsigned i = 0; i < TOWN_SERVERS; i++)
        if (t->server[i].pid > 0)
            end(t->server[i].pid);
    munmap(t, sizeof *t);
}

// It has failed, and so has the test.
static void look_for_failures(const struct town *t)
{
    for (unsigned i = 0; i < TOWN_SERVERS; i++)
        if (t->server[i].why[0])
            fail_msg("server %u: %s", i, t->server[i].why);
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        if (t->client[i].why[0])
            fail_msg("client %u: %s", i, t->client[i].why);
}

static bool has_come(const struct town *t, const atomic_uint *count, unsigned wanted)
{
    look_for_failures(t);
    return atomic_load(count) >= wanted;
}

void town_expect_more(struct town *t, const atomic_uint *count, unsigned more)
{
    unsigned before = atomic_load(count);

    WAIT_UNTIL(has_come(t, count, before + more));
}

void town_expect_well(struct town *t, unsigned connections, uint32_t except)
{
    unsigned before[TOWN_CLIENTS];

    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        before[i] = atomic_load(&t->client[i].made);
    for (unsigned i = 0; i < TOWN_CLIENTS; i++)
        if (!(except >> i & 1))
            WAIT_UNTIL(has_come(t, &t->client[i].made, before[i] + connections));
}
