// SPDX-License-Identifier: Apache-2.0
// The application in the guest of os_failure.py: finds the memory that the virtual machine
// has as a PCI device (ivshmem), fills a table in it, and updates it until the guest is no more.
#include "../../unit/hull_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICES "/sys/bus/pci/devices"

enum {
    VENDOR = 0x1af4,
    DEVICE = 0x1110,
    PAUSE_US = 2000, // between two rounds
};

static unsigned long number_in(const char *device, const char *file)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof path, DEVICES "/%s/%s", device, file);
    FILE *in = fopen(path, "re");
    if (!in)
        return 0;
    char *line = fgets(text, sizeof text, in);
    fclose(in);
    return line ? strtoul(text, NULL, 0) : 0;
}

static bool find(char device[256])
{
    DIR *list = opendir(DEVICES);
    const struct dirent *entry;
    bool found = false;

    while (!found && list && (entry = readdir(list))) {
        found = number_in(entry->d_name, "vendor") == VENDOR &&
                number_in(entry->d_name, "device") == DEVICE;
        if (found)
            snprintf(device, 256, "%s", entry->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

// The second range of addresses is the memory.
static uint8_t *map(const char *device)
{
    char path[512];

    snprintf(path, sizeof path, DEVICES "/%s/enable", device);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1", 1) != 1)
        return NULL;
    close(fd);
    snprintf(path, sizeof path, DEVICES "/%s/resource2", device);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *memory = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(void)
{
    char device[256];
    uint8_t *memory = find(device) ? map(device) : NULL;

    if (!memory) {
        perror("guest_table: no shared memory");
        return 1;
    }
    for (uint64_t version = 1;; version++) {
        for (uint32_t key = 0; key < TABLE_KEYS; key++)
            table_put(memory, key, version);
        if (version == 1) {
            puts("filled");
            fflush(stdout);
        }
        usleep(PAUSE_US); // leaves the core to others: it does this for ever
    }
}
