// SPDX-License-Identifier: Apache-2.0
// Who has the port: the system's table of sockets names the user, and the descriptors of processes
// that we may look into name the process.
#include "port/udp_holder.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct socket_line {
    char address[33]; // in hexadecimal
    unsigned port, user;
    unsigned long inode;
};

static bool read_line(FILE *table, struct socket_line *line)
{
    char text[512];
    while (fgets(text, sizeof text, table) != NULL)
        if (sscanf(text,
                   " %*u: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %*x %*x:%*x %*x:%*x %*x %u %*u %lu",
                   line->address, &line->port, &line->user, &line->inode) == 4)
            return true;
    return false;
}

// As the table writes addresses: words of the machine's own order.
static void address_text(const union udp_address *at, char text[33])
{
    uint32_t word[4] = {0};
    bool v6 = at->any.sa_family == AF_INET6;
    if (v6)
        memcpy(word, &at->v6.sin6_addr, sizeof word);
    else
        memcpy(word, &at->v4.sin_addr, sizeof word[0]);
    for (unsigned i = 0; i < (v6 ? 4 : 1); i++)
        snprintf(text + 8 * i, 9, "%08X", word[i]);
}

static bool is_any(const char *address)
{
    return strspn(address, "0") == strlen(address);
}

// At the address, in the table's words, or at all of them.
static bool find_in(const char *path, const char *address, unsigned port, struct socket_line *line)
{
    FILE *table = fopen(path, "re");
    bool found = false;
    while (table != NULL && !found && read_line(table, line))
        found =
            line->port == port && (strcmp(line->address, address) == 0 || is_any(line->address));
    if (table != NULL)
        fclose(table);
    return found;
}

// A socket of IPv6 at all addresses has those of IPv4, too.
static bool find_socket(const union udp_address *at, struct socket_line *line)
{
    char address[33];
    unsigned port = ntohs(at->v4.sin_port);
    address_text(at, address);
    if (at->any.sa_family == AF_INET && find_in("/proc/net/udp", address, port, line))
        return true;
    return find_in("/proc/net/udp6", address, port, line);
}

static bool has_socket(const char *pid, unsigned long inode)
{
    char dir[64], path[128], name[64], wanted[64];
    bool found = false;
    snprintf(dir, sizeof dir, "/proc/%.16s/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *fds = opendir(dir);
    for (struct dirent *e; fds != NULL && !found && (e = readdir(fds)) != NULL;) {
        snprintf(path, sizeof path, "%s/%.16s", dir, e->d_name);
        ssize_t len = readlink(path, name, sizeof name - 1);
        name[len > 0 ? len : 0] = '\0';
        found = strcmp(name, wanted) == 0;
    }
    if (fds != NULL)
        closedir(fds);
    return found;
}

static bool name_process(unsigned long inode, char text[UDP_HOLDER_TEXT])
{
    char path[64], name[32] = "";
    bool found = false;
    DIR *all = opendir("/proc");
    for (struct dirent *e; all != NULL && !found && (e = readdir(all)) != NULL;) {
        if (!isdigit((unsigned char)e->d_name[0]) || !has_socket(e->d_name, inode))
            continue;
        found = true;
        snprintf(path, sizeof path, "/proc/%.16s/comm", e->d_name);
        FILE *comm = fopen(path, "re");
        if (comm != NULL && fgets(name, sizeof name, comm) != NULL)
            name[strcspn(name, "\n")] = '\0';
        if (comm != NULL)
            fclose(comm);
        snprintf(text, UDP_HOLDER_TEXT, "process %.16s (%.20s)", e->d_name, name);
    }
    if (all != NULL)
        closedir(all);
    return found;
}

enum udp_holder vb_udp_holder(const union udp_address *at, char text[UDP_HOLDER_TEXT])
{
    struct socket_line line;
    if (!find_socket(at, &line)) {
        snprintf(text, UDP_HOLDER_TEXT, "another NIC or the kernel's rdma_rxe");
        return UDP_HOLDER_UNSEEN;
    }
    if (line.inode == 0) { // not a process's
        snprintf(text, UDP_HOLDER_TEXT, "the kernel, for its soft-RoCE (rdma_rxe)");
        return UDP_HOLDER_KERNEL;
    }
    if (!name_process(line.inode, text))
        snprintf(text, UDP_HOLDER_TEXT, "a process of user %u", line.user);
    return UDP_HOLDER_PROCESS;
}
