// SPDX-License-Identifier: Apache-2.0
// Finds the process that has a UDP port: the kernel's tables name the socket, and a process's
// descriptors name the sockets that it has open.
#include "cli/doctor.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// As the tables write addresses: words of 32 bits as this machine has them.
static bool hex_of(const char *address, char hex[33], bool *v6)
{
    uint32_t words[4];

    *v6 = strchr(address, ':') != NULL;
    if (inet_pton(*v6 ? AF_INET6 : AF_INET, address, words) != 1)
        return false;
    for (unsigned i = 0; i < (*v6 ? 4u : 1u); i++)
        snprintf(hex + i * 8, 9, "%08" PRIX32, words[i]);
    return true;
}

// The inode of the socket at the address, or at all of them. False: none.
static bool find_socket(const char *table, const char *hex, uint16_t port, unsigned long *inode)
{
    FILE *file = fopen(table, "re");
    char line[512], at[64];
    unsigned bound;
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        if (sscanf(line, " %*u: %32[0-9A-F]:%x %*s %*s %*s %*s %*s %*s %*s %lu", at, &bound,
                   inode) != 3 ||
            bound != port)
            continue;
        found = strcmp(at, hex) == 0 || strspn(at, "0") == strlen(at);
    }
    if (file)
        fclose(file);
    return found;
}

static bool has_socket(const char *pid, const char *wanted)
{
    char path[64 + NAME_MAX], link[64];
    struct dirent *entry;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *list = opendir(path);
    while (list && !found && (entry = readdir(list))) {
        ssize_t len = readlinkat(dirfd(list), entry->d_name, link, sizeof link - 1);
        link[len > 0 ? len : 0] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (list)
        closedir(list);
    return found;
}

static void read_comm(const char *pid, char *comm, size_t room)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%.16s/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(comm, (int)room, file))
        snprintf(comm, room, "?");
    comm[strcspn(comm, "\n")] = '\0';
    if (file)
        fclose(file);
}

static bool find_process(unsigned long inode, char *text, size_t room)
{
    char wanted[64], comm[64];
    struct dirent *entry;
    bool found = false;
    DIR *list = opendir("/proc");

    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    while (list && !found && (entry = readdir(list))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !has_socket(entry->d_name, wanted))
            continue;
        read_comm(entry->d_name, comm, sizeof comm);
        snprintf(text, room, "process %s (%s)", entry->d_name, comm);
        found = true;
    }
    if (list)
        closedir(list);
    return found;
}

bool vb_doctor_holder(const char *address, uint16_t port, char *text, size_t room)
{
    char hex[33] = "";
    unsigned long inode;
    bool v6;

    if (!hex_of(address, hex, &v6))
        return false;
    if (!find_socket(v6 ? "/proc/net/udp6" : "/proc/net/udp", hex, port, &inode) &&
        (v6 || !find_socket("/proc/net/udp6", "", port, &inode)))
        return false;
    if (inode == 0) // not a process's
        snprintf(text, room, "the kernel, for its soft-RoCE (rdma_rxe)");
    else if (!find_process(inode, text, room))
        snprintf(text, room, "a process of another user");
    return true;
}
