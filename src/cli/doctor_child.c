// SPDX-License-Identifier: Apache-2.0
// Tries something in a process of its own, which may fail in any way.
#include "cli/doctor.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_child(int (*try)(void *arg), void *arg, unsigned seconds, const int out[2])
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(out[0]);
    dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    alarm(seconds); // its default ends the process
    int status = try(arg);
    fflush(stdout);
    return status;
}

// All of it is read, so that the child can end; the first room bytes are kept.
static void collect(int fd, char *text, size_t room)
{
    char rest[512];
    size_t len = 0;
    ssize_t n;

    while ((n = len + 1 < room ? read(fd, text + len, room - len - 1)
                               : read(fd, rest, sizeof rest)) > 0)
        len += len + 1 < room ? (size_t)n : 0;
    text[len] = '\0';
}

int vb_doctor_try(int (*try)(void *arg), void *arg, unsigned seconds, char *text, size_t room)
{
    int out[2], status = -1;

    text[0] = '\0';
    fflush(NULL); // what the child inherits is not to be printed twice
    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0)
        _exit(run_child(try, arg, seconds, out));
    close(out[1]);
    if (child > 0) {
        collect(out[0], text, room);
        waitpid(child, &status, 0);
    }
    close(out[0]);
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
