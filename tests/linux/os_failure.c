// SPDX-License-Identifier: Apache-2.0
// The host's side of os_failure.py: an agent lets a hull answer gets from memory that a guest
// fills, as a service, and dies then; a client asks without a pause, and says what came.
//
//   os_failure HULL ADDRESS
//
// Prints "table PID FD", its own, by which the memory is found in /proc; waits for a line, and asks
// from then on, until its input ends. Ten times a second it prints how many answers were right,
// missed, wrong and failed, the newest version seen, and the longest get in microseconds.
#include "../unit/hull_get.h"
#include "../unit/hull_table.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PAUSE_US = 100,
    REPORT_NS = 100 * 1000 * 1000,
    ACK_TIMEOUT = 18, // 1 s, eight times: beside an emulated guest a side may be late
};

// What the agent says.
struct place {
    struct get_card card;
    int fd; // of the memory, in the agent
};

struct tally {
    uint64_t answers[GET_FAILED + 1];
    uint64_t newest, longest_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *why)
{
    fprintf(stderr, "os_failure: %s\n", why);
    exit(1);
}

// ---- the agent

static void serve(const char *hull, int line)
{
    struct get_server s;
    struct get_card client;
    struct place place = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!get_server_open(&s, hull, "table", "gets"))
        die(s.why);
    s.timeout = ACK_TIMEOUT;
    if (read(line, &client, sizeof client) != sizeof client)
        die("no client");
    if (!get_server_serve(&s, &client, &place.card))
        die(s.why);
    place.fd = vb_hull_descriptor(s.nic, s.memory);
    if (place.fd < 0 || write(line, &place, sizeof place) != sizeof place)
        die("no descriptor");
    (void)!read(line, &client, 1); // until the memory was taken
    raise(SIGKILL);                // nothing of the service needs it any more
}

static pid_t start_agent(const char *hull, int *line)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("no sockets");
    pid_t pid = fork();
    if (pid < 0)
        die("no process");
    if (pid == 0) {
        close(pair[0]);
        serve(hull, pair[1]);
    }
    close(pair[1]);
    *line = pair[0];
    return pid;
}

// The memory is this process's, too, from now on.
static int take_memory(pid_t agent, int fd)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)agent, fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        die("the memory cannot be opened");
    return own;
}

// ---- the client

static void report(const struct tally *t)
{
    for (int i = 0; i <= GET_FAILED; i++)
        printf("%llu ", (unsigned long long)t->answers[i]);
    printf("%llu %llu\n", (unsigned long long)t->newest, (unsigned long long)t->longest_ns / 1000);
    fflush(stdout);
}

static bool is_over(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) != 0;
}

static void ask_all(struct get_client *c, struct tally *t)
{
    uint64_t reported_ns = now_ns();

    for (uint32_t key = 0; !is_over(); key = (key + 1) % TABLE_KEYS) {
        uint64_t version = 0, began_ns = now_ns();
        enum get_answer answer = get_client_get(c, key, &version);
        uint64_t ended_ns = now_ns();
        t->answers[answer]++;
        if (answer == GET_RIGHT && version > t->newest)
            t->newest = version;
        if (ended_ns - began_ns > t->longest_ns)
            t->longest_ns = ended_ns - began_ns;
        if (ended_ns - reported_ns >= REPORT_NS) {
            report(t);
            reported_ns = ended_ns;
        }
        if (answer == GET_FAILED)
            break;        // its queue pair is over
        usleep(PAUSE_US); // leaves the core to others: it asks until it is told to stop
    }
    report(t);
}

int main(int argc, char **argv)
{
    struct get_client c;
    struct get_card own;
    struct place place;
    struct tally tally = {0};
    char word[16];
    int line;

    if (argc != 3)
        die("usage: os_failure HULL ADDRESS");
    pid_t agent = start_agent(argv[1], &line);
    if (!get_client_open(&c, argv[2], "udp"))
        die(c.why);
    c.timeout = ACK_TIMEOUT;
    get_client_card(&c, &own);
    if (write(line, &own, sizeof own) != sizeof own ||
        read(line, &place, sizeof place) != sizeof place)
        die("the agent has failed");
    if (!get_client_join(&c, &place.card))
        die(c.why);
    int table = take_memory(agent, place.fd);
    close(line);
    waitpid(agent, NULL, 0);
    printf("table %d %d\n", (int)getpid(), table);
    fflush(stdout);
    if (!fgets(word, sizeof word, stdin))
        die("nobody wants to begin");
    ask_all(&c, &tally);
    get_client_close(&c);
    return 0;
}
