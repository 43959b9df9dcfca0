// SPDX-License-Identifier: Apache-2.0
// Whether `verbena run` can serve a program: how it is linked, and which libibverbs the loader
// would give it. The program itself is not run.
#include "cli/doctor.h"

#include "cli/commands.h"
#include "cli/elf_file.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    LIST_BYTES = 64 << 10,
    LIST_SECONDS = 10,
    SCRIPTS_MAX = 4, // scripts that are run by scripts
};

static const char topic[] = "program";

// As execvp() would find it.
static bool find_program(const char *name, char path[PATH_MAX])
{
    const char *list = getenv("PATH");

    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(path, F_OK) == 0;
    }
    for (list = list ? list : "/usr/bin:/bin"; *list; list += *list == ':') {
        size_t len = strcspn(list, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", len ? (int)len : 1, len ? list : ".", name);
        if (access(path, X_OK) == 0)
            return true;
        list += len;
    }
    return false;
}

// ---- what keeps the loader from our library

// True: its process runs with rights that its user has not; the loader then ignores the
// environment.
static bool gains_rights(const char *path, const char **how)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    if (st.st_mode & S_ISUID && st.st_uid != geteuid())
        *how = "set-uid";
    else if (st.st_mode & S_ISGID && st.st_gid != getegid())
        *how = "set-gid";
    else if (getxattr(path, "security.capability", NULL, 0) > 0 && geteuid() != 0)
        *how = "given capabilities (setcap)";
    else
        return false;
    return true;
}

struct listing {
    const char *loader, *program, *dir;
};

// What the loader would load, as it prints itself.
static int list_libraries(void *arg)
{
    const struct listing *l = arg;
    const char *before = getenv("LD_LIBRARY_PATH");
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s%s%s", l->dir, before && *before ? ":" : "",
             before ? before : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    execl(l->loader, l->loader, "--list", l->program, (char *)NULL);
    return 127;
}

// The file that a library's name leads to: "\tlibx.so.1 => /path (0x…)". NULL: it is not there.
static char *loaded_from(char *list, const char *library)
{
    char wanted[128];

    snprintf(wanted, sizeof wanted, "%s => ", library);
    char *at = strstr(list, wanted);
    if (!at)
        return NULL;
    at += strlen(wanted);
    at[strcspn(at, "\n")] = '\0';
    char *end = strstr(at, " (0x");
    if (end)
        *end = '\0';
    return at;
}

// Programs may use more of the family than verbs.
static void check_family(struct vb_doctor *d, const char *list, const char *dir)
{
    static const char *const family[] = {"librdmacm.so.1", "libmlx5.so.1", "libefa.so.1"};
    char file[PATH_MAX + 32];

    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, family[i]);
        if (strstr(list, family[i]) && access(file, R_OK) != 0)
            vb_doctor_say(d, VB_NOTE, topic, NULL,
                          "it uses %s, too, of which we have none: the system's is loaded beside "
                          "our libibverbs",
                          family[i]);
    }
}

// `list` is the loader's own answer.
static void judge_list(struct vb_doctor *d, const struct vb_elf *elf, char *list, const char *dir)
{
    if (strstr(list, "not found"))
        vb_doctor_say(d, VB_PROBLEM, topic, "install it; ldd PROGRAM says which",
                      "a library that it needs is missing");
    check_family(d, list, dir);
    const char *from = loaded_from(list, "libibverbs.so.1");
    if (from && strncmp(from, dir, strlen(dir)) == 0)
        vb_doctor_say(d, VB_FINE, topic, NULL, "under `verbena run` it loads our libibverbs%s",
                      vb_elf_needs(elf, "libibverbs.so.1") ? "" : ", through another library");
    else if (from && elf->rpath)
        vb_doctor_say(d, VB_PROBLEM, topic,
                      "patchelf --remove-rpath, or link it with --enable-new-dtags",
                      "its RPATH (%s) comes before us: it loads %s", elf->rpath, from);
    else if (from)
        vb_doctor_say(d, VB_PROBLEM, topic, "LD_PRELOAD, or the RPATH of one of its libraries?",
                      "it loads %s instead of ours", from);
    else if (elf->mentions_verbs)
        vb_doctor_say(d, VB_FINE, topic, NULL,
                      "it is not linked to libibverbs, but names it: it opens it at run time, and "
                      "gets ours");
    else
        vb_doctor_say(d, VB_NOTE, topic, NULL,
                      "it is not linked to libibverbs; if it opens it at run time, it gets ours");
}

static void check_loading(struct vb_doctor *d, const struct vb_elf *elf, const char *path)
{
    char dir[PATH_MAX];
    char *list = malloc(LIST_BYTES);

    if (!list || !vb_cli_find_library(dir)) { // which was said already
        free(list);
        return;
    }
    struct listing l = {elf->interpreter, path, dir};
    if (vb_doctor_try(list_libraries, &l, LIST_SECONDS, list, LIST_BYTES) == 0) {
        judge_list(d, elf, list, dir);
    } else {
        list[strcspn(list, "\n")] = '\0';
        vb_doctor_say(d, VB_PROBLEM, topic, "does it run without `verbena run`? ldd says more",
                      "the loader cannot load it: %.200s", list);
    }
    free(list);
}

static void check_elf(struct vb_doctor *d, const struct vb_elf *elf, const char *path)
{
    const char *how = "";

    if (!elf->interpreter[0]) {
        vb_doctor_say(d, VB_PROBLEM, topic, "link it dynamically",
                      "it is statically linked: no library can be put in front");
        return;
    }
    if (gains_rights(path, &how)) {
        vb_doctor_say(d, VB_PROBLEM, topic,
                      "run a copy without these rights: cp PROGRAM somewhere, and run that",
                      "it is %s: the loader ignores where `verbena run` leads it", how);
        return;
    }
    check_loading(d, elf, path);
}

static void check_file(struct vb_doctor *d, const char *path, unsigned depth)
{
    struct vb_elf elf;
    char next[PATH_MAX];
    int error = vb_elf_open(path, &elf);

    if (error)
        vb_doctor_say(d, VB_NOTE, topic, "say who may read it: chmod +r",
                      "%s cannot be looked into: %s", path, strerror(-error));
    else if (elf.kind == VB_ELF_NONE)
        vb_doctor_say(d, VB_PROBLEM, topic, NULL, "%s is no program", path);
    else if (elf.kind == VB_ELF_FOREIGN)
        vb_doctor_say(d, VB_PROBLEM, topic, "use a build for this machine, 64 bits",
                      "%s is for another kind of machine", path);
    else if (elf.kind == VB_ELF_OK)
        check_elf(d, &elf, path);
    if (elf.kind == VB_ELF_SCRIPT) {
        snprintf(next, sizeof next, "%s", elf.interpreter);
        vb_doctor_say(d, VB_FINE, topic, NULL,
                      "%s is a script, run by %s; what it starts is served", path, next);
        if (depth < SCRIPTS_MAX)
            check_file(d, next, depth + 1);
    }
    vb_elf_close(&elf);
}

void vb_doctor_program(struct vb_doctor *d, const char *program)
{
    char path[PATH_MAX], resolved[PATH_MAX];

    if (!find_program(program, path) || !realpath(path, resolved)) {
        vb_doctor_say(d, VB_PROBLEM, topic, "give its path, or install it",
                      "there is no program '%s'", program);
        return;
    }
    if (access(resolved, X_OK) != 0)
        vb_doctor_say(d, VB_PROBLEM, topic, "chmod +x", "%s may not be run", resolved);
    else
        check_file(d, resolved, 0);
}
