# SPDX-License-Identifier: Apache-2.0
"""Which exported symbols the test programs call, and what these answer: a library of wrappers that is
loaded before the others counts, for each symbol, calls that succeed and calls that are refused with
EOPNOTSUPP. Calls that fail otherwise prove neither.
Host packages: gcc, libibverbs-dev, librdmacm-dev."""

import mmap
import os
import pathlib
import re
import struct
import subprocess

HEADERS = ("/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h",
           "/usr/include/rdma/rdma_verbs.h", "/usr/include/rdma/rsocket.h",
           "/usr/include/infiniband/sa-kern-abi.h")
# Functions whose answer is a number, not an errno.
NUMBERS = {"ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate", "mbps_to_ibv_rate",
           "ibv_get_device_index", "_ibv_query_gid_table", "ibv_get_pkey_index",
           "ibv_is_fork_initialized", "ibv_get_device_guid", "ibv_read_sysfs_file",
           "ibv_query_qp_data_in_order"}
# Exported, but declared nowhere that programs look.
UNDECLARED = {"ibv_query_gid_type": "ERROR", "ibv_get_sysfs_path": "POINTER",
              "ibv_read_sysfs_file": "NUMBER", "ibv_dofork_range": "ERROR",
              "ibv_dontfork_range": "ERROR", "rdma_write_cm_event": "ERROR"}
RECORD = struct.Struct("=II")  # succeeded, refused

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t verb(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
enum kind { POINTER, ERROR, NUMBER, VALUE, NOTHING };
struct record { uint32_t succeeded, refused; };
static struct record *records;

__attribute__((constructor)) static void open_records(void)
{
    const char *path = getenv("VERBENA_CALLS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(NULL, COUNT * sizeof *records, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    records = at == MAP_FAILED ? NULL : at;
    if (fd >= 0)
        close(fd);
}

static void judge(unsigned index, enum kind kind, uint64_t said, int error)
{
    int number = (int)said;
    int refused = kind == POINTER ? !said && error == EOPNOTSUPP
                  : kind == NOTHING ? error == EOPNOTSUPP
                  : kind == VALUE ? 0
                                    : number == EOPNOTSUPP || (number < 0 && error == EOPNOTSUPP);
    // A void function that succeeds may leave any errno.
    int succeeded = kind == POINTER ? said != 0
                    : kind == NOTHING || kind == VALUE ? 1
                    : kind == NUMBER ? number >= 0 : number == 0;
    if (kind == NUMBER && refused && number > 0)
        refused = 0;
    if (!records)
        return;
    if (refused)
        __atomic_fetch_add(&records[index].refused, 1, __ATOMIC_RELAXED);
    else if (succeeded)
        __atomic_fetch_add(&records[index].succeeded, 1, __ATOMIC_RELAXED);
}

#define WRAP(index, kind, name)                                                             \
    uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)   \
    {                                                                                       \
        static verb *next;                                                                  \
        int before = errno;                                                                 \
        if (!next)                                                                          \
            next = (verb *)dlsym(RTLD_NEXT, #name);                                         \
        errno = 0;                                                                          \
        uint64_t said = next(a, b, c, d, e, f);                                             \
        judge(index, kind, said, errno);                                                    \
        if (errno == 0)                                                                     \
            errno = before;                                                                 \
        return said;                                                                        \
    }
"""


def kind_of(name, kind, star):
    if star:
        return "POINTER"
    if kind == "void":
        return "NOTHING"
    if kind not in ("int", "ssize_t"):
        return "VALUE"
    return "ERROR" if name.startswith(("ibv_", "_ibv_", "rdma_")) and name not in NUMBERS \
        else "NUMBER"


def kinds():
    """How each declared function answers: POINTER, ERROR, NUMBER, VALUE (never an error)
    or NOTHING."""
    found = dict(UNDECLARED)
    for header in HEADERS:
        if not os.path.exists(header):
            continue
        text = pathlib.Path(header).read_text(encoding="utf-8")
        for kind, star, name in re.findall(
                r"^(?:extern )?((?:const )?(?:struct |enum |union )?\w+(?: int)?)(?:\s+__attribute_const)?\s+(\**)\s*"
                r"(_?(?:ibv_|rdma_|r[a-z]|mult_|mbps_)\w*)\s*\(", text, re.M):
            found[name] = kind_of(name, kind, star)
    return found


class Calls:
    """Wrappers for the symbols given, without their versions, compiled into a folder."""

    def __init__(self, symbols, folder):
        declared = kinds()
        self.symbols = sorted(symbols & declared.keys())
        self.records = pathlib.Path(folder) / "records"
        self.library = pathlib.Path(folder) / "calls.so"
        lines = [f"#define COUNT {len(self.symbols)}", SOURCE]
        lines += [f"WRAP({i}, {declared[name]}, {name})" for i, name in enumerate(self.symbols)]
        source = pathlib.Path(folder) / "calls.c"
        source.write_text("\n".join(lines), encoding="utf-8")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", "-o", self.library,
                        source, "-ldl"], check=True)

    def run(self, argv, limit_s):
        """Runs a program under the wrappers. Returns its result and what each symbol answered."""
        self.records.write_bytes(bytes(RECORD.size * len(self.symbols)))
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                              timeout=limit_s, check=False,
                              env={**os.environ, "LD_PRELOAD": str(self.library),
                                   "VERBENA_CALLS": str(self.records)})
        with open(self.records, "r+b") as file, mmap.mmap(file.fileno(), 0) as at:
            counts = list(RECORD.iter_unpack(at[:]))
        return done, {name: "works" if succeeded else "EOPNOTSUPP"
                      for name, (succeeded, refused) in zip(self.symbols, counts)
                      if succeeded or refused}
