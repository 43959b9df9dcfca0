// SPDX-License-Identifier: Apache-2.0
// Programs of attached applications: what they may have, whose they are, and that they answer
// while their application does not run.
#include "duo.h"
#include "hull_get.h"
#include "hull_kit.h"
#include "hull_table.h"
#include "pair.h"

#include "host/attach.h"
#include "nic/facts.h"
#include "verbena/offload_service.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LINE = 3, // a child's descriptor to its parent
    GETS = 2000,
};

extern char **environ;

#define REFUSED(nic, call, error, words)                  \
    do {                                                  \
        char text[VB_ERROR_TEXT];                         \
        assert_int_equal(call, error);                    \
        vb_hull_why(nic, text);                           \
        if (!strstr(text, words))                         \
            fail_msg("'%s' is not in '%s'", words, text); \
    } while (0)

// ---- quotas

static void test_programs_are_charged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", "[tenant *]\nqueues = 3\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_program *program[3], *more;
    struct vb_pd *pd;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(vb_program_create(pd, &(struct vb_program_opts){0}, &program[i]), 0);
    REFUSED(nic, vb_program_create(pd, &(struct vb_program_opts){0}, &more), -EDQUOT,
            "may have 3 queues, channels and programs, has 3");
    assert_int_equal(vb_program_destroy(program[1]), 0);
    assert_int_equal(vb_program_create(pd, &(struct vb_program_opts){0}, &more), 0);
    assert_int_equal(vb_pd_free(pd), -EBUSY); // programs are in it
    vb_nic_close(nic);
    struct vb_hull_counts counts = hull_kit_wait(hull, 0);
    assert_int_equal(counts.objects, 0);
    vb_hull_close(hull);
}

static struct vb_image *make_image(uint64_t own_bytes)
{
    char error[200] = "";
    struct vb_chain *c = vb_chain_begin("own");
    struct vb_chain_queue q = vb_chain_queue(c, "Q", &(struct vb_chain_queue_opts){.open = 1});

    vb_chain_region(c, "room", VB_CHAIN_OWN, own_bytes, true);
    vb_chain_op(c, q, &(struct vb_chain_op){.opcode = VB_WQE_NOP});
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("%s", error);
    return image;
}

// A program's own memory is the hull's, and the tenant pays for it.
static void test_memory_of_programs_is_charged(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", "[tenant *]\nbytes = 8M\n");
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_image *small = make_image(4 << 20), *large = make_image(16 << 20);
    struct vb_loaded *loaded = NULL;
    char error[200] = "", why[VB_ERROR_TEXT];
    struct vb_pd *pd;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    const struct vb_load_opts opts = {.pd = pd};
    assert_int_equal(vb_chain_load(nic, large, &opts, &loaded, error), -ENOMEM);
    assert_non_null(strstr(error, "room"));
    vb_hull_why(nic, why);
    assert_non_null(strstr(why, "may have 8388608 bytes"));
    for (unsigned i = 0; i < 10; i++) { // what is unloaded is there again
        assert_int_equal(vb_chain_load(nic, small, &opts, &loaded, error), 0);
        uint8_t *room = vb_loaded_data(loaded, "room");
        assert_int_equal(room[0] | room[(4 << 20) - 1], 0);
        memset(room, 0xff, 4 << 20);
        vb_chain_unload(loaded);
    }
    vb_image_destroy(small);
    vb_image_destroy(large);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// ---- memory that is not the hull's

static void test_memory_of_the_process_is_refused(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    uint8_t *heap = malloc(4096);
    struct vb_offload_service *service = NULL;
    struct vb_pd *pd;
    struct vb_mr *mr;
    void *shared;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    REFUSED(nic, vb_mr_reg(pd, heap, 4096, VB_RIGHT_REMOTE_READ, &mr), -EFAULT, "vb_hull_alloc");
    assert_int_equal(vb_hull_alloc(nic, NULL, 4096, &shared), 0);
    assert_int_equal(vb_mr_reg(pd, shared, 4096, VB_RIGHT_REMOTE_READ, &mr), 0);
    assert_int_equal(vb_offload_open(nic, &(struct vb_offload_service_opts){0}, &service), 0);
    vb_offload_close(service);
    vb_nic_close(nic);
    free(heap);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// ---- whose they are

static int greeted(const struct vb_hull *hull)
{
    struct vb_hull_request hello = hull_kit_hello();
    struct vb_hull_reply reply;
    int fd = hull_kit_connect(hull);

    assert_int_equal(hull_kit_ask(fd, &hello, &reply), 0);
    return fd;
}

static int say(int socket, enum vb_hull_op op, uint32_t number, struct vb_hull_reply *reply)
{
    struct vb_hull_request request = {.op = op, .number = number};
    return hull_kit_ask(socket, &request, reply);
}

// Another application names a program, a domain and a completion queue that are not its own.
static void test_programs_of_others_do_not_exist(void **state)
{
    static const enum vb_hull_op ops[] = {VB_HULL_PROGRAM_STOP, VB_HULL_PROGRAM_QUERY,
                                          VB_HULL_PROGRAM_DESTROY};
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    int stranger = greeted(hull);
    struct vb_hull_reply reply, mine;
    struct vb_program *program;
    struct vb_pd *pd;
    struct vb_cq *cq;
    uint64_t executed;
    bool stopped = true;

    (void)state;
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 16}, &cq), 0);
    assert_int_equal(vb_program_create(pd, &(struct vb_program_opts){.limit = 5}, &program), 0);
    assert_int_equal(say(stranger, VB_HULL_PD_CREATE, 0, &mine), 0);
    for (uint32_t number = 0; number < 4; number++)
        for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
            assert_int_equal(say(stranger, ops[i], number, &reply), -ENOENT);
            assert_non_null(strstr(reply.text, "there is no program"));
        }
    struct vb_hull_request create = {.op = VB_HULL_PROGRAM_CREATE,
                                     .program = {.pd = mine.number, .audit_cqn = vb_cq_num(cq)}};
    assert_int_equal(hull_kit_ask(stranger, &create, &reply), -ENOENT);
    assert_non_null(strstr(reply.text, "there is no completion queue"));
    create.program = (struct vb_hull_program){.pd = mine.number + 100};
    assert_int_equal(hull_kit_ask(stranger, &create, &reply), -ENOENT);
    create.program = (struct vb_hull_program){.pd = mine.number};
    assert_int_equal(hull_kit_ask(stranger, &create, &reply), 0);
    uint32_t own = reply.number;
    assert_int_equal(say(stranger, VB_HULL_PROGRAM_STOP, own, &reply), 0);
    assert_int_equal(say(stranger, VB_HULL_PROGRAM_QUERY, own, &reply), 0);
    assert_int_equal(reply.executed.stopped, 1);
    assert_int_equal(vb_program_query(program, &executed, &stopped), 0);
    assert_false(stopped);
    assert_int_equal(say(stranger, VB_HULL_PROGRAM_DESTROY, own, &reply), 0);
    assert_int_equal(say(stranger, VB_HULL_PROGRAM_DESTROY, own, &reply), -ENOENT);
    close(stranger);
    vb_nic_close(nic);
    hull_kit_wait(hull, 0);
    vb_hull_close(hull);
}

// ---- queues by hand

static void test_queues_by_hand_are_few_and_ones_own(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    int stranger = greeted(hull);
    struct vb_hull_reply reply;
    struct vb_cq *cq[65];
    struct vb_raw_cq raw;

    (void)state;
    for (unsigned i = 0; i < 65; i++)
        assert_int_equal(vb_cq_create(nic, &(struct vb_cq_opts){.entries = 4}, &cq[i]), 0);
    assert_int_equal(say(stranger, VB_HULL_CQ_SHARE, vb_cq_num(cq[0]), &reply), -ENOENT);
    assert_int_equal(say(stranger, VB_HULL_QP_SHARE, 1, &reply), -ENOENT);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(vb_cq_share(cq[i], &raw), 0);
    REFUSED(nic, vb_cq_share(cq[64], &raw), -ENOSPC, "may have 64 queues by hand");
    assert_int_equal(vb_cq_share(cq[63], &raw), 0); // it is one already
    assert_int_equal(vb_cq_destroy(cq[5]), 0);
    assert_int_equal(vb_cq_share(cq[64], &raw), 0);
    struct vb_hull_request nowhere = {
        .op = VB_HULL_CQ_SHARE, .number = vb_cq_num(cq[0]), .share = {.bell = {.memory = 1000}}};
    assert_int_equal(hull_kit_ask(stranger, &nowhere, &reply), -ENOENT);
    close(stranger);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    assert_null(vb_fifo_first(&hull->unit[0].watches));
    vb_hull_close(hull);
}

// ---- while the application does not run

// What the parent tells the child to begin with.
struct order {
    char hull[108];
    char service[16]; // empty: all goes with the application
    struct get_card client;
};

// The application: lets the hull serve, tells how, and then updates the table for ever.
static int live(void)
{
    struct get_server s;
    struct get_card own;
    struct order order;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // with a test that fails
    if (read(LINE, &order, sizeof order) != sizeof order)
        return 2;
    if (!get_server_open(&s, order.hull, "table", order.service[0] ? order.service : NULL))
        return 3;
    for (uint32_t key = 0; key < TABLE_KEYS; key++)
        table_put(s.memory, key, 1);
    if (!get_server_serve(&s, &order.client, &own) || write(LINE, &own, sizeof own) != sizeof own)
        return 4;
    for (uint64_t version = 2;; version++) {
        for (uint32_t key = 0; key < TABLE_KEYS; key++)
            table_put(s.memory, key, version);
        usleep(100); // leaves the core to others: it does this for ever
    }
}

static pid_t start(int *line)
{
    char self[] = "/proc/self/exe", how[] = "serve";
    char *words[] = {self, how, NULL};
    posix_spawn_file_actions_t actions;
    int pair[2];
    pid_t pid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], LINE);
    assert_int_equal(posix_spawn(&pid, self, &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    *line = pair[0];
    return pid;
}

static uint64_t get(struct get_client *c, uint32_t key)
{
    uint64_t version = 0;
    enum get_answer answer = get_client_get(c, key, &version);

    if (answer != GET_RIGHT)
        fail_msg("key %u: answer %d", key, (int)answer);
    return version;
}

// Gets until a value is newer.
static uint64_t expect_newer(struct get_client *c, uint64_t than)
{
    uint64_t newest = 0;

    for (uint32_t i = 0; newest <= than; i++)
        newest = get(c, i % TABLE_KEYS);
    return newest;
}

static void await_stop(pid_t pid)
{
    int status;

    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

// A client of the application at the other end of the line, which does as it is ordered.
static void begin_gets(struct get_client *c, const struct vb_hull *hull, int line,
                       struct order *order)
{
    struct get_card server;
    char address[16];

    pair_address(1, address);
    if (!get_client_open(c, address, "auto"))
        fail_msg("%s", c->why);
    memcpy(order->hull, hull->path, sizeof order->hull);
    get_client_card(c, &order->client);
    assert_int_equal(write(line, order, sizeof *order), sizeof *order);
    assert_int_equal(read(line, &server, sizeof server), sizeof server);
    assert_true(get_client_join(c, &server));
}

static void test_gets_go_on_while_the_application_stands_still(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct get_client c;
    struct order order = {0};
    int line;
    pid_t pid = start(&line);

    (void)state;
    begin_gets(&c, hull, line, &order);
    uint64_t newest = expect_newer(&c, 1), version;
    for (unsigned round = 0; round < 3; round++) {
        await_stop(pid);
        uint64_t last[TABLE_KEYS];
        for (uint32_t key = 0; key < TABLE_KEYS; key++)
            last[key] = get(&c, key);
        for (uint32_t i = 0; i < GETS; i++)
            assert_int_equal(get(&c, i % TABLE_KEYS), last[i % TABLE_KEYS]);
        assert_int_equal(get_client_get(&c, TABLE_KEYS + 5, &version), GET_MISSED);
        kill(pid, SIGCONT);
        newest = expect_newer(&c, last[0]);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    assert_true(newest > 1);
    close(line);
    get_client_close(&c);
    vb_hull_close(hull);
}

// Takes the service over, as the application would that is started again.
static struct vb_nic *take_over(const struct vb_hull *hull, uint8_t **table)
{
    char why[VB_ERROR_TEXT];
    const struct vb_nic_opts opts = {.hull = hull->path, .service = "gets", .error_text = why};
    struct vb_nic *nic = NULL;
    void *memory;

    if (vb_nic_open(&opts, &nic) != 0)
        fail_msg("%s", why);
    assert_int_equal(vb_hull_alloc(nic, "table", TABLE_BYTES, &memory), 0);
    *table = memory;
    return nic;
}

// As a service the program outlives its application, and the next process has it in its hands.
static void test_gets_go_on_without_the_application(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct get_client c;
    struct order order = {.service = "gets"};
    struct vb_program *program;
    uint8_t *table;
    int line;
    pid_t pid = start(&line);

    (void)state;
    begin_gets(&c, hull, line, &order);
    uint64_t newest = expect_newer(&c, 1), executed[2], version;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hull_kit_wait(hull, 0);
    for (uint32_t i = 0; i < GETS; i++)
        get(&c, i % TABLE_KEYS);
    struct vb_nic *nic = take_over(hull, &table);
    for (uint32_t key = 0; key < TABLE_KEYS; key++)
        table_put(table, key, newest + 1000);
    for (uint32_t key = 0; key < TABLE_KEYS; key++)
        assert_int_equal(get(&c, key), newest + 1000);
    bool stopped = true;
    assert_int_equal(vb_service_program(nic, 0, 0, &program), 0);
    assert_int_equal(vb_program_query(program, &executed[0], &stopped), 0);
    get(&c, 0);
    assert_int_equal(vb_program_query(program, &executed[1], &stopped), 0);
    assert_true(executed[1] > executed[0] && !stopped);
    assert_int_equal(vb_program_stop(program), 0);
    assert_int_equal(get_client_get(&c, 0, &version), GET_FAILED);
    assert_int_equal(vb_service_release(nic), 0);
    vb_nic_close(nic);
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    close(line);
    get_client_close(&c);
    vb_hull_close(hull);
}

// A loop that never ends goes with its application, and the hull comes to rest.
static void test_an_endless_program_ends_with_its_application(void **state)
{
    struct vb_hull *hull = hull_kit_open(0, "auto", NULL);
    struct vb_nic *nic = hull_kit_attach(hull);
    struct vb_count_facts before, after;
    char error[200] = "";
    struct vb_loaded *loaded = NULL;
    struct vb_program *program;
    struct vb_pd *pd;
    uint64_t executed = 0;
    bool stopped;

    (void)state;
    vb_host_lock(hull->nic);
    vb_facts_count(hull->nic->dev, &before);
    vb_host_unlock(hull->nic);
    assert_int_equal(vb_pd_alloc(nic, &pd), 0);
    assert_int_equal(vb_program_create(pd, &(struct vb_program_opts){0}, &program), 0);
    struct vb_chain *c = vb_chain_begin("endless");
    struct vb_flow *f = vb_flow_begin(c, "F");
    struct vb_var n = vb_flow_var(f, 0);
    vb_flow_loop(f);
    vb_flow_calc_value(f, VB_WQE_CALC_ADD, n, n, 1);
    vb_flow_end(f);
    vb_flow_end_program(f);
    struct vb_image *image = vb_chain_finish(c, error);
    if (!image)
        fail_msg("%s", error);
    const struct vb_load_opts opts = {.pd = pd, .program = program};
    if (vb_chain_load(nic, image, &opts, &loaded, error) != 0)
        fail_msg("%s", error);
    vb_image_destroy(image);
    assert_int_equal(vb_chain_start(loaded), 0);
    while (executed < 10000)
        assert_int_equal(vb_program_query(program, &executed, &stopped), 0);
    assert_false(stopped);
    shutdown(nic->attach->socket, SHUT_RDWR); // as if it were killed
    assert_int_equal(hull_kit_wait(hull, 0).objects, 0);
    assert_int_equal(vb_program_query(program, &executed, &stopped), -ENOTCONN);
    vb_chain_unload(loaded);
    assert_int_equal(vb_program_destroy(program), 0);
    vb_nic_close(nic);
    vb_host_lock(hull->nic);
    vb_facts_count(hull->nic->dev, &after);
    vb_host_unlock(hull->nic);
    assert_memory_equal(&before, &after, sizeof before);
    vb_hull_close(hull);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_are_charged),
        cmocka_unit_test(test_memory_of_programs_is_charged),
        cmocka_unit_test(test_memory_of_the_process_is_refused),
        cmocka_unit_test(test_programs_of_others_do_not_exist),
        cmocka_unit_test(test_queues_by_hand_are_few_and_ones_own),
        cmocka_unit_test(test_gets_go_on_while_the_application_stands_still),
        cmocka_unit_test(test_gets_go_on_without_the_application),
        cmocka_unit_test(test_an_endless_program_ends_with_its_application),
    };
    (void)argv;
    if (argc > 1)
        return live();
    return cmocka_run_group_tests(tests, duo_set_up, duo_tear_down);
}
