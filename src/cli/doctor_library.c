// SPDX-License-Identifier: Apache-2.0
// Which libibverbs programs get, with `verbena run` and without, and whether its device opens.
#include "cli/doctor.h"

#include "cli/commands.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRY_SECONDS = 10,
    TEXT_BYTES = 512,
};

// The first line is what matters.
static void cut(char *text)
{
    text[strcspn(text, "\n")] = '\0';
}

// ---- without us

static int find_plain(void *arg)
{
    struct link_map *map = NULL;
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

    (void)arg;
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return 1;
    puts(map->l_name);
    return 0;
}

static void check_plain(struct vb_doctor *d, const char *ours)
{
    const char *preload = getenv("LD_PRELOAD"), *path = getenv("LD_LIBRARY_PATH");
    char found[PATH_MAX] = "";

    if (preload && strstr(preload, "libibverbs"))
        vb_doctor_say(d, VB_NOTE, "preload", "unset LD_PRELOAD: it comes before `verbena run`",
                      "LD_PRELOAD=%s", preload);
    if (vb_doctor_try(find_plain, NULL, TRY_SECONDS, found, sizeof found) != 0) {
        vb_doctor_say(
            d, VB_FINE, "system", NULL,
            "no libibverbs but ours: programs linked to it start only under `verbena run`");
        return;
    }
    cut(found);
    bool same = ours && strncmp(found, ours, strlen(ours)) == 0;
    vb_doctor_say(d, VB_FINE, "system", NULL, "without `verbena run` programs load %s%s%s%s", found,
                  same ? ", which is ours" : "", path && *path ? "; LD_LIBRARY_PATH=" : "",
                  path ? path : "");
}

static void check_devices(struct vb_doctor *d)
{
    char names[TEXT_BYTES] = "";
    DIR *list = opendir("/sys/class/infiniband");
    struct dirent *entry;

    while (list && (entry = readdir(list))) {
        size_t len = strlen(names);
        if (entry->d_name[0] != '.')
            snprintf(names + len, sizeof names - len, " %.32s", entry->d_name);
    }
    if (list)
        closedir(list);
    if (names[0])
        vb_doctor_say(d, VB_NOTE, "devices", NULL,
                      "this machine has RDMA devices of its own:%s; without `verbena run` programs "
                      "use those",
                      names);
    else
        vb_doctor_say(d, VB_FINE, "devices", NULL, "this machine has no RDMA device of its own");
}

// ---- with us

// The verbs that tell; their types are opaque here.
static int open_device(void *arg)
{
    void *library = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    void **(*list_devices)(int *) = (void **(*)(int *))dlsym(library, "ibv_get_device_list");
    const char *(*name_of)(void *) = (const char *(*)(void *))dlsym(library, "ibv_get_device_name");
    void *(*open_it)(void *) = (void *(*)(void *))dlsym(library, "ibv_open_device");
    int (*close_it)(void *) = (int (*)(void *))dlsym(library, "ibv_close_device");
    int count = 0;
    void **list = list_devices && name_of && open_it && close_it ? list_devices(&count) : NULL;
    if (!list || count < 1) {
        puts("it lists no device");
        return 1;
    }
    void *context = open_it(list[0]); // it says by itself why not
    if (!context)
        return 1;
    puts(name_of(list[0]));
    return close_it(context);
}

static void check_ours(struct vb_doctor *d, const char *dir)
{
    char library[PATH_MAX + 32], text[TEXT_BYTES];
    const char *off = getenv("VERBENA");

    snprintf(library, sizeof library, "%s/libibverbs.so.1", dir);
    vb_doctor_say(d, VB_FINE, "library", NULL, "`verbena run` puts %s in front", dir);
    if (off && strcmp(off, "off") == 0)
        vb_doctor_say(d, VB_NOTE, "switch", "unset VERBENA",
                      "VERBENA=off: `verbena run` changes nothing");
    int status = vb_doctor_try(open_device, library, TRY_SECONDS, text, sizeof text);
    cut(text);
    if (status == 0)
        vb_doctor_say(d, VB_FINE, "device", NULL, "programs see %s, and it opens", text);
    else
        vb_doctor_say(d, VB_PROBLEM, "device",
                      "the lines on addresses may say why; VERBENA_LOG=info says more",
                      "the device does not open: %s",
                      status < 0 ? "it crashed, or took too long" : text);
}

void vb_doctor_library(struct vb_doctor *d)
{
    char dir[PATH_MAX];
    bool ours = vb_cli_find_library(dir);

    check_plain(d, ours ? dir : NULL);
    check_devices(d);
    if (ours)
        check_ours(d, dir);
    else
        vb_doctor_say(d, VB_PROBLEM, "library", "build it, or install it beside this command",
                      "our libibverbs.so.1 is missing");
}
