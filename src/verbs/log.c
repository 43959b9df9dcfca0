// SPDX-License-Identifier: Apache-2.0
// Words about what went wrong, on standard error: VERBENA_LOG is off, error, info or debug.
#include "verbs/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Asked each time: only failures and set-up come here.
bool vb_verbs_logs(enum vb_verbs_level level)
{
    static const char *const names[] = {"", "error", "info", "debug"};
    const char *wanted = getenv("VERBENA_LOG");

    if (!wanted)
        wanted = "";
    for (unsigned i = level; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(wanted, names[i]) == 0)
            return true;
    return false;
}

void vb_verbs_log(enum vb_verbs_level level, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!vb_verbs_logs(level))
        return;
    int saved = errno;
    int head = snprintf(line, sizeof line, "verbena[%d]: ", (int)getpid());
    va_start(args, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
    va_end(args);
    size_t len = strlen(line);
    if (body >= 0 && len < sizeof line - 1)
        line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len); // one call: lines of several processes stay whole
    errno = saved;
}

int vb_verbs_refuse_dead(struct ibv_context *context, const char *verb)
{
    if (!vb_verbs_is_dead(context))
        return 0;
    return vb_verbs_fail(EPERM, verb, "after fork() the device is the parent's: open it anew");
}

int vb_verbs_fail(int error, const char *verb, const char *why)
{
    vb_verbs_log(VB_VERBS_ERROR, "%s: %s (%s)", verb, why ? why : "refused", strerror(error));
    errno = error;
    return error;
}
