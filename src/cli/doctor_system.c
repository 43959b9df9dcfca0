// SPDX-License-Identifier: Apache-2.0
// What the system gives a process: limits, cores, threads, memory to share, a place for sockets.
#include "cli/doctor.h"

#include "port/inspect_place.h"
#include "port/shm.h"
#include "port/shm_place.h"
#include "verbena/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    FILES_MIN = 48, // a NIC of 16 units and some channels
    FILES_GOOD = 256,
};

static void check_limits(struct vb_doctor *d)
{
    struct rlimit files = {0}, locked = {0};

    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    enum vb_verdict verdict = files.rlim_cur < FILES_MIN    ? VB_PROBLEM
                              : files.rlim_cur < FILES_GOOD ? VB_NOTE
                                                            : VB_FINE;
    vb_doctor_say(d, verdict, "files",
                  verdict == VB_FINE ? NULL : "raise the limit: ulimit -n 1024",
                  "%llu descriptors may be open; a NIC needs four, two for each unit, and one for "
                  "each channel and neighbour",
                  (unsigned long long)files.rlim_cur);
    if (locked.rlim_cur == RLIM_INFINITY)
        vb_doctor_say(d, VB_FINE, "memlock", NULL, "no limit; Verbena locks no memory");
    else
        vb_doctor_say(d, VB_FINE, "memlock", NULL,
                      "%llu KB may be locked; Verbena locks none, any memory can be registered",
                      (unsigned long long)locked.rlim_cur / 1024);
}

static void check_cores(struct vb_doctor *d)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;

    if (cores == 1)
        vb_doctor_say(d, VB_NOTE, "cores", "give it two or more cores (taskset, cpuset, --cpus)",
                      "one core: who polls keeps its peers from running");
    else
        vb_doctor_say(d, VB_FINE, "cores", NULL, "%d cores", cores);
}

static void *do_nothing(void *arg)
{
    return arg;
}

static void check_threads(struct vb_doctor *d)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, do_nothing, NULL);

    if (error) {
        vb_doctor_say(d, VB_PROBLEM, "threads", "raise the limit: ulimit -u, or the cgroup's pids",
                      "no thread can be started: %s", strerror(error));
        return;
    }
    pthread_join(thread, NULL);
    vb_doctor_say(d, VB_FINE, "threads", NULL, "a helper thread can be started");
}

// As the shm port makes its rings.
static void check_memfd(struct vb_doctor *d)
{
    int fd = memfd_create("verbena-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool sealed = fd >= 0 && ftruncate(fd, 4096) == 0 &&
                  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    int error = errno;

    if (fd >= 0)
        close(fd);
    if (sealed)
        vb_doctor_say(d, VB_FINE, "memfd", NULL, "memory can be shared and sealed");
    else
        vb_doctor_say(d, VB_NOTE, "memfd",
                      "use --port udp, or allow memfd_create in the container's filter",
                      "memfd_create or sealing is refused (%s): no shm port", strerror(error));
}

static void check_shm_size(struct vb_doctor *d)
{
    struct statvfs fs;

    if (statvfs("/dev/shm", &fs) != 0)
        vb_doctor_say(d, VB_FINE, "dev-shm", NULL, "there is no /dev/shm; Verbena does not use it");
    else
        vb_doctor_say(d, VB_FINE, "dev-shm", NULL,
                      "/dev/shm has %llu MB; Verbena does not use it, its size does not matter",
                      (unsigned long long)fs.f_blocks * fs.f_frsize >> 20);
}

// A socket that is made as NICs make theirs, and removed.
static void check_runtime_dir(struct vb_doctor *d)
{
    static const char advice[] =
        "set VERBENA_RUNTIME_DIR to a directory of your own, mode 700, with a short name";
    char dir[VB_INSPECT_PATH], why[VB_ERROR_TEXT] = "its name is too long";
    struct vb_inspect_place place;
    int error = vb_shm_runtime_dir(NULL, dir, sizeof dir);

    if (!error)
        error = vb_shm_check_dir(dir, why);
    if (error) {
        vb_doctor_say(d, VB_NOTE, "directory", advice,
                      "%s: no shm port, and NICs are not seen by link, stat and res", why);
        return;
    }
    error = vb_inspect_place_open(&place);
    if (error) {
        vb_doctor_say(d, VB_NOTE, "directory", advice,
                      "%s: a Unix socket there is refused: %s; no shm port, link, stat and res",
                      dir, strerror(-error));
        return;
    }
    vb_inspect_place_hide(&place);
    vb_inspect_place_close(&place);
    vb_doctor_say(d, VB_FINE, "directory", NULL, "%s is ours alone, Unix sockets work there", dir);
}

// A line of /proc/self/status as a number; -1: there is none.
static long status_of(const char *key)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long value = -1;

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtol(line + strlen(key), NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static const char *container(void)
{
    if (access("/.dockerenv", F_OK) == 0)
        return "Docker";
    if (access("/run/.containerenv", F_OK) == 0)
        return "Podman";
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return "Kubernetes";
    return getenv("container");
}

static void check_filters(struct vb_doctor *d)
{
    const char *inside = container();

    if (status_of("Seccomp:") > 0)
        vb_doctor_say(d, VB_NOTE, "seccomp",
                      "if another line here says that something is refused, the filter may be why: "
                      "it needs memfd_create, sendmmsg, recvmmsg, ppoll and Unix sockets",
                      "system calls are filtered%s%s", inside ? ", by " : "", inside ? inside : "");
    else
        vb_doctor_say(d, VB_FINE, "seccomp", NULL, "system calls are not filtered%s%s",
                      inside ? ", in a container of " : "", inside ? inside : "");
    if (inside)
        vb_doctor_say(d, VB_NOTE, "container",
                      "for peers outside: a network they can reach, UDP port 4791 open both ways; "
                      "for shm between containers: one VERBENA_RUNTIME_DIR and one user",
                      "this is a container of %s", inside);
}

void vb_doctor_system(struct vb_doctor *d)
{
    check_limits(d);
    check_cores(d);
    check_threads(d);
    check_memfd(d);
    check_shm_size(d);
    check_runtime_dir(d);
    check_filters(d);
}
