// SPDX-License-Identifier: Apache-2.0
// Answers GET /metrics in a thread of its own. However often it is asked, hulls are asked ten times
// a second at most; a hull that is busy with something else is waited for, but not for long.
#include "cli/metrics.h"

#include "port/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECTIONS = 16,
    PATIENCE_S = 5,               // with a client that says nothing
    MEMORY_BYTES = 8192,          // for what one says
    FRESH_NS = 100 * 1000 * 1000, // as old as an answer may be
    HULL_NS = 500 * 1000 * 1000,  // in which a hull answers
};

struct vb_metrics_server {
    struct MHD_Daemon *daemon;
    struct vb_hull *const *hulls;
    uint32_t count;
    struct vb_metrics *metrics[VB_HULL_NICS];
    char *text; // the last answer
    size_t bytes;
    uint64_t made_ns;
    char where[VB_METRICS_WHERE];
};

// ---- the text

static bool print(struct vb_metrics_server *s)
{
    FILE *out = open_memstream(&s->text, &s->bytes);

    if (!out)
        return false;
    vb_metrics_print(out, (const struct vb_metrics *const *)s->metrics, s->count);
    bool whole = !ferror(out);
    return fclose(out) == 0 && whole;
}

static bool refresh(struct vb_metrics_server *s)
{
    if (s->text && vb_clock_ns() - s->made_ns < FRESH_NS)
        return true;
    free(s->text);
    s->text = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        vb_metrics_take(s->hulls[i], HULL_NS, s->metrics[i]);
    if (!print(s)) {
        free(s->text);
        s->text = NULL;
        return false;
    }
    s->made_ns = vb_clock_ns();
    return true;
}

// ---- answers

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             const char *text, size_t bytes)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result queued = MHD_queue_response(connection, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return reply(connection, status, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    struct vb_metrics_server *s = arg;

    (void)version;
    (void)upload;
    if (!*state) { // the head alone; the answer waits for the rest
        *state = s;
        return MHD_YES;
    }
    if (*upload_bytes) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET is all there is\n");
    if (strcmp(url, "/") == 0)
        return say(connection, MHD_HTTP_OK, "Verbena: see /metrics\n");
    if (strcmp(url, "/metrics") != 0)
        return say(connection, MHD_HTTP_NOT_FOUND, "there is /metrics\n");
    if (!refresh(s))
        return say(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    return reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", s->text,
                 s->bytes);
}

// ---- life

static struct vb_metrics_server *alloc_server(struct vb_hull *const *hulls, uint32_t count)
{
    struct vb_metrics_server *s = calloc(1, sizeof *s);
    bool whole = s;

    for (uint32_t i = 0; s && i < count; i++) {
        s->metrics[i] = calloc(1, sizeof *s->metrics[i]);
        whole = whole && s->metrics[i];
    }
    if (s) {
        s->hulls = hulls;
        s->count = count;
    }
    if (!whole)
        vb_metrics_stop(s);
    return whole ? s : NULL;
}

int vb_metrics_start(const char *at, bool anywhere, struct vb_hull *const *hulls, uint32_t count,
                     struct vb_metrics_server **server, char error[VB_ERROR_TEXT])
{
    struct vb_metrics_server *s = alloc_server(hulls, count);

    snprintf(error, VB_ERROR_TEXT, "metrics: out of memory");
    if (!s)
        return -ENOMEM;
    int fd = vb_metrics_listen(at, anywhere, s->where, error);
    if (fd >= 0) {
        s->daemon = MHD_start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL, answer, s,
            MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PATIENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)MEMORY_BYTES, MHD_OPTION_END);
        if (!s->daemon) {
            close(fd);
            snprintf(error, VB_ERROR_TEXT, "metrics at '%.80s': no server could be started", at);
        }
    }
    if (s->daemon) {
        *server = s;
        return 0;
    }
    vb_metrics_stop(s);
    return fd < 0 ? fd : -EIO;
}

void vb_metrics_stop(struct vb_metrics_server *s)
{
    if (!s)
        return;
    if (s->where[0] == '/')
        unlink(s->where);
    if (s->daemon)
        MHD_stop_daemon(s->daemon); // and closes the socket
    for (uint32_t i = 0; i < s->count; i++)
        free(s->metrics[i]);
    free(s->text);
    free(s);
}

const char *vb_metrics_where(const struct vb_metrics_server *s)
{
    return s->where;
}
