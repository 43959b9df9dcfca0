// SPDX-License-Identifier: Apache-2.0
// Options: rsetsockopt(), rgetsockopt(), rfcntl().
#include "rsocket/socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum {
    QUEUE_MAX = 0xfffe
};

static int get_int(const void *value, socklen_t len, int *out)
{
    if (!value || len < sizeof *out)
        return -EINVAL;
    memcpy(out, value, sizeof *out);
    return 0;
}

static int set_reuse(struct vb_rsocket *rs, int on)
{
    rs->flag.reuse_address = on;
    if (rs->type == SOCK_DGRAM)
        return 0;
    if (rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) &&
        errno != ENOSYS && rs->state == VB_RS_IDLE)
        return -errno;
    return 0;
}

static int set_linger(struct vb_rsocket *rs, const void *value, socklen_t len)
{
    struct linger l;

    if (!value || len < sizeof l)
        return -EINVAL;
    memcpy(&l, value, sizeof l);
    rs->flag.linger = l.l_onoff;
    rs->flag.linger_s = l.l_linger;
    return 0;
}

static int set_timeout(struct vb_rsocket *rs, enum vb_rs_way way, const void *value, socklen_t len)
{
    struct timeval t;

    if (!value || len < sizeof t)
        return -EINVAL;
    memcpy(&t, value, sizeof t);
    if (t.tv_usec < 0 || t.tv_usec >= 1000000)
        return -EDOM;
    if (t.tv_sec < 0 || t.tv_sec > INT32_MAX) // as good as none
        t = (struct timeval){0};
    rs->flag.timeout_ns[way] = t.tv_sec * INT64_C(1000000000) + t.tv_usec * INT64_C(1000);
    return 0;
}

// As the kernel does, twice of what was asked for is made.
static void set_size(uint32_t *size, int value, bool fixed)
{
    if (!fixed && value > 0 && value <= INT32_MAX / 2)
        *size = (uint32_t)value * 2;
}

static int set_socket(struct vb_rsocket *rs, int name, const void *value, socklen_t len)
{
    bool fixed = rs->end.memory != NULL;
    int number;

    if (name == SO_LINGER)
        return set_linger(rs, value, len);
    if (name == SO_RCVTIMEO || name == SO_SNDTIMEO)
        return set_timeout(rs, name == SO_RCVTIMEO ? VB_RS_IN : VB_RS_OUT, value, len);
    int err = get_int(value, len, &number);
    if (err)
        return err;
    switch (name) {
    case SO_REUSEADDR: return set_reuse(rs, number);
    case SO_RCVBUF: set_size(&rs->size.recv_bytes, number, fixed); return 0;
    case SO_SNDBUF: set_size(&rs->size.send_bytes, number, fixed); return 0;
    case SO_KEEPALIVE: rs->flag.keep_alive = number; return 0;
    case SO_OOBINLINE: rs->flag.oob_inline = number; return 0;
    default: return -ENOTSUP;
    }
}

static int set_tcp(struct vb_rsocket *rs, int name, const void *value, socklen_t len)
{
    int number, err = get_int(value, len, &number);

    if (err)
        return err;
    switch (name) {
    case TCP_NODELAY: rs->flag.no_delay = number; return 0;
    case TCP_KEEPIDLE:
        if (number <= 0)
            return -EINVAL;
        rs->flag.keep_idle_s = number;
        return 0;
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
    case TCP_MAXSEG: return 0; // the connection is reliable by itself, and its segments are set
    default: return -ENOTSUP;
    }
}

static int set_v6(struct vb_rsocket *rs, int name, const void *value, socklen_t len)
{
    int on, err = get_int(value, len, &on);

    if (err || name != IPV6_V6ONLY)
        return err ? err : -ENOTSUP;
    if (rs->type == SOCK_STREAM &&
        rdma_set_option(rs->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on))
        return -errno;
    rs->flag.v6_only = on;
    return 0;
}

static int set_route(struct vb_rsocket *rs, const void *value, socklen_t len)
{
    void *copy = value && len ? malloc(len) : NULL;

    if (!copy)
        return value && len ? -ENOMEM : -EINVAL;
    memcpy(copy, value, len);
    free(rs->route);
    rs->route = copy;
    rs->route_bytes = len;
    return 0;
}

static int set_rdma(struct vb_rsocket *rs, int name, const void *value, socklen_t len)
{
    int number, err;

    if (rs->state > VB_RS_LISTENING)
        return -EINVAL;
    if (name == RDMA_ROUTE)
        return set_route(rs, value, len);
    err = get_int(value, len, &number);
    if (err || number < 0)
        return -EINVAL;
    uint16_t most = (uint16_t)(number < QUEUE_MAX ? number : QUEUE_MAX);
    switch (name) {
    case RDMA_SQSIZE: rs->size.sq = most; return 0;
    case RDMA_RQSIZE: rs->size.rq = most; return 0;
    case RDMA_INLINE: rs->size.inline_bytes = most; return 0;
    case RDMA_IOMAPSIZE: rs->size.iomaps = vb_rs_unscale(vb_rs_scale((uint32_t)number)); return 0;
    default: return -ENOTSUP;
    }
}

static int set_option(struct vb_rsocket *rs, int level, int name, const void *value, socklen_t len)
{
    if (rs->type == SOCK_DGRAM && level != SOL_RDMA && setsockopt(rs->fd, level, name, value, len))
        return -errno;
    switch (level) {
    case SOL_SOCKET: return set_socket(rs, name, value, len);
    case IPPROTO_TCP: return set_tcp(rs, name, value, len);
    case IPPROTO_IPV6: return set_v6(rs, name, value, len);
    case SOL_RDMA: return set_rdma(rs, name, value, len);
    default: return -ENOTSUP;
    }
}

int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = set_option(rs, level, optname, optval, optlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

static int give(const void *from, size_t bytes, void *value, socklen_t *len)
{
    if (!value || !len)
        return -EFAULT;
    if (*len < bytes)
        return -EINVAL;
    memcpy(value, from, bytes);
    *len = (socklen_t)bytes;
    return 0;
}

static int give_int(int number, void *value, socklen_t *len)
{
    return give(&number, sizeof number, value, len);
}

static int give_timeout(int64_t ns, void *value, socklen_t *len)
{
    struct timeval t = {.tv_sec = ns / 1000000000, .tv_usec = ns % 1000000000 / 1000};
    return give(&t, sizeof t, value, len);
}

static int get_socket(struct vb_rsocket *rs, int name, void *value, socklen_t *len)
{
    struct linger l = {rs->flag.linger, rs->flag.linger_s};

    switch (name) {
    case SO_REUSEADDR: return give_int(rs->flag.reuse_address, value, len);
    case SO_KEEPALIVE: return give_int(rs->flag.keep_alive, value, len);
    case SO_OOBINLINE: return give_int(rs->flag.oob_inline, value, len);
    case SO_RCVBUF: return give_int((int)rs->size.recv_bytes, value, len);
    case SO_SNDBUF: return give_int((int)rs->size.send_bytes, value, len);
    case SO_TYPE: return give_int(rs->type, value, len);
    case SO_RCVTIMEO: return give_timeout(rs->flag.timeout_ns[VB_RS_IN], value, len);
    case SO_SNDTIMEO: return give_timeout(rs->flag.timeout_ns[VB_RS_OUT], value, len);
    case SO_LINGER: return give(&l, sizeof l, value, len);
    case SO_ERROR: vb_rs_advance(rs); return give_int(-vb_rs_take_error(rs), value, len);
    default: return -ENOTSUP;
    }
}

static int segment(const struct vb_rsocket *rs)
{
    const struct rdma_cm_id *id = rs->id;

    if (id && id->route.num_paths > 0 && id->route.path_rec)
        return 1 << (7 + (id->route.path_rec->mtu & 7));
    return 2048;
}

static int get_tcp(struct vb_rsocket *rs, int name, void *value, socklen_t *len)
{
    switch (name) {
    case TCP_NODELAY: return give_int(rs->flag.no_delay, value, len);
    case TCP_KEEPIDLE: return give_int(rs->flag.keep_idle_s, value, len);
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL: return give_int(1, value, len);
    case TCP_MAXSEG: return give_int(segment(rs), value, len);
    default: return -ENOTSUP;
    }
}

static void path_of(const struct ibv_sa_path_rec *from, struct ibv_path_data *to)
{
    const uint8_t exactly = 2 << 6; // the selector before mtu, rate and life time

    memset(to, 0, sizeof *to);
    to->path.dgid = from->dgid;
    to->path.sgid = from->sgid;
    to->path.dlid = from->dlid;
    to->path.slid = from->slid;
    to->path.flowlabel_hoplimit =
        htobe32(be32toh(from->flow_label) << 8 | (uint32_t)from->hop_limit);
    to->path.tclass = from->traffic_class;
    to->path.reversible_numpath = (uint8_t)(from->reversible ? 0x81 : 1);
    to->path.pkey = from->pkey;
    to->path.qosclass_sl = htobe16(from->sl);
    to->path.mtu = (uint8_t)(from->mtu | exactly);
    to->path.rate = (uint8_t)(from->rate | exactly);
    to->path.packetlifetime = (uint8_t)(from->packet_life_time | exactly);
    to->path.preference = from->preference;
    to->flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
}

static int get_route(struct vb_rsocket *rs, void *value, socklen_t *len)
{
    struct ibv_path_data path;
    const struct rdma_cm_id *id = rs->id;

    if (rs->route)
        return give(rs->route, rs->route_bytes, value, len);
    if (!id || id->route.num_paths < 1 || !id->route.path_rec)
        return -ENOTCONN;
    path_of(id->route.path_rec, &path);
    return give(&path, sizeof path, value, len);
}

static int get_rdma(struct vb_rsocket *rs, int name, void *value, socklen_t *len)
{
    switch (name) {
    case RDMA_SQSIZE: return give_int(rs->size.sq, value, len);
    case RDMA_RQSIZE: return give_int(rs->size.rq, value, len);
    case RDMA_INLINE: return give_int(rs->size.inline_bytes, value, len);
    case RDMA_IOMAPSIZE: return give_int(rs->size.iomaps, value, len);
    case RDMA_ROUTE: return get_route(rs, value, len);
    default: return -ENOTSUP;
    }
}

static int get_option(struct vb_rsocket *rs, int level, int name, void *value, socklen_t *len)
{
    switch (level) {
    case SOL_SOCKET: return get_socket(rs, name, value, len);
    case IPPROTO_TCP: return get_tcp(rs, name, value, len);
    case IPPROTO_IPV6:
        return name == IPV6_V6ONLY ? give_int(rs->flag.v6_only, value, len) : -ENOTSUP;
    case SOL_RDMA: return get_rdma(rs, name, value, len);
    default: return -ENOTSUP;
    }
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
    struct vb_rsocket *rs = vb_rs_get(socket);

    if (!rs)
        return vb_rs_fail(EBADF);
    pthread_mutex_lock(&rs->lock);
    int err = get_option(rs, level, optname, optval, optlen);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return vb_rs_answer(err);
}

static int control(struct vb_rsocket *rs, int cmd, int argument)
{
    switch (cmd) {
    case F_GETFL: return rs->status_flags;
    case F_SETFL:
        rs->status_flags = O_RDWR | (argument & ~O_ACCMODE);
        rs->nonblocking = argument & O_NONBLOCK;
        return 0;
    case F_GETFD: return fcntl(rs->fd, F_GETFD);
    case F_SETFD: return fcntl(rs->fd, F_SETFD, argument) ? -errno : 0;
    default: return -ENOTSUP;
    }
}

int rfcntl(int socket, int cmd, ... /* arg */)
{
    struct vb_rsocket *rs = vb_rs_get(socket);
    va_list args;

    if (!rs)
        return vb_rs_fail(EBADF);
    va_start(args, cmd);
    int argument = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, int) : 0;
    va_end(args);
    pthread_mutex_lock(&rs->lock);
    int result = control(rs, cmd, argument);
    pthread_mutex_unlock(&rs->lock);
    vb_rs_put(rs);
    return result < 0 ? vb_rs_fail(-result) : result;
}
