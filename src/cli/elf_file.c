// SPDX-License-Identifier: Apache-2.0
// Reads the few parts of an ELF file that tell how it is loaded.
#include "cli/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_NONE // any will do
#endif

// Copies `size` bytes at an offset. False: not all of them are in the file.
static bool copy(const struct vb_elf *elf, uint64_t offset, void *to, size_t size)
{
    if (offset > elf->len || size > elf->len - offset)
        return false;
    memcpy(to, elf->bytes + offset, size);
    return true;
}

static bool program_header(const struct vb_elf *elf, const Elf64_Ehdr *head, uint32_t i,
                           Elf64_Phdr *segment)
{
    return head->e_phentsize == sizeof *segment &&
           copy(elf, head->e_phoff + (uint64_t)i * sizeof *segment, segment, sizeof *segment);
}

// Where in the file an address of the loaded program is.
static bool offset_of(const struct vb_elf *elf, const Elf64_Ehdr *head, uint64_t address,
                      uint64_t *offset)
{
    Elf64_Phdr segment;

    for (uint32_t i = 0; i < head->e_phnum && program_header(elf, head, i, &segment); i++)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz) {
            *offset = segment.p_offset + (address - segment.p_vaddr);
            return true;
        }
    return false;
}

// A string in the file's table; NULL if it does not end in the file.
static const char *string_at(const struct vb_elf *elf, uint64_t table, uint64_t offset)
{
    uint64_t at = table + offset;

    if (at < table || at >= elf->len || !memchr(elf->bytes + at, '\0', elf->len - at))
        return NULL;
    return (const char *)elf->bytes + at;
}

static bool find_strings(const struct vb_elf *elf, const Elf64_Ehdr *head,
                         const Elf64_Phdr *dynamic, uint64_t *table)
{
    Elf64_Dyn entry;

    for (uint64_t at = 0; at + sizeof entry <= dynamic->p_filesz &&
                          copy(elf, dynamic->p_offset + at, &entry, sizeof entry);
         at += sizeof entry)
        if (entry.d_tag == DT_STRTAB)
            return offset_of(elf, head, entry.d_un.d_ptr, table);
    return false;
}

static void read_dynamic(struct vb_elf *elf, const Elf64_Ehdr *head, const Elf64_Phdr *dynamic)
{
    uint64_t table;
    Elf64_Dyn entry;

    if (!find_strings(elf, head, dynamic, &table))
        return;
    for (uint64_t at = 0; at + sizeof entry <= dynamic->p_filesz &&
                          copy(elf, dynamic->p_offset + at, &entry, sizeof entry);
         at += sizeof entry) {
        const char *text = string_at(elf, table, entry.d_un.d_val);
        if (entry.d_tag == DT_NULL)
            return;
        if (entry.d_tag == DT_NEEDED && text && elf->needs < VB_ELF_NEEDED)
            elf->needed[elf->needs++] = text;
        else if (entry.d_tag == DT_RPATH)
            elf->rpath = text;
        else if (entry.d_tag == DT_RUNPATH)
            elf->runpath = text;
    }
}

static void read_interpreter(struct vb_elf *elf, const Elf64_Phdr *segment)
{
    const char *text = string_at(elf, segment->p_offset, 0);

    if (text)
        snprintf(elf->interpreter, sizeof elf->interpreter, "%s", text);
}

static void read_program(struct vb_elf *elf)
{
    Elf64_Ehdr head;
    Elf64_Phdr segment;

    if (!copy(elf, 0, &head, sizeof head) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB ||
        (OWN_MACHINE != EM_NONE && head.e_machine != OWN_MACHINE)) {
        elf->kind = VB_ELF_FOREIGN;
        return;
    }
    elf->kind = VB_ELF_OK;
    for (uint32_t i = 0; i < head.e_phnum && program_header(elf, &head, i, &segment); i++) {
        if (segment.p_type == PT_INTERP)
            read_interpreter(elf, &segment);
        else if (segment.p_type == PT_DYNAMIC)
            read_dynamic(elf, &head, &segment);
    }
    elf->mentions_verbs = memmem(elf->bytes, elf->len, "libibverbs.so", 13) != NULL;
}

// The first word behind #!
static void read_script(struct vb_elf *elf)
{
    size_t at = 2, len = 0;

    elf->kind = VB_ELF_SCRIPT;
    while (at < elf->len && (elf->bytes[at] == ' ' || elf->bytes[at] == '\t'))
        at++;
    while (at + len < elf->len && len + 1 < sizeof elf->interpreter &&
           !strchr(" \t\n", elf->bytes[at + len])) // the NUL ends it, too
        len++;
    memcpy(elf->interpreter, elf->bytes + at, len);
    elf->interpreter[len] = '\0';
}

int vb_elf_open(const char *path, struct vb_elf *elf)
{
    struct stat st;

    *elf = (struct vb_elf){.kind = VB_ELF_NONE};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 4) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            elf->bytes = bytes;
            elf->len = (size_t)st.st_size;
        }
    }
    close(fd);
    if (elf->bytes && memcmp(elf->bytes, ELFMAG, SELFMAG) == 0)
        read_program(elf);
    else if (elf->bytes && memcmp(elf->bytes, "#!", 2) == 0)
        read_script(elf);
    return 0;
}

void vb_elf_close(struct vb_elf *elf)
{
    if (elf->bytes)
        munmap((void *)(uintptr_t)elf->bytes, elf->len);
    elf->bytes = NULL;
}

bool vb_elf_needs(const struct vb_elf *elf, const char *library)
{
    for (uint32_t i = 0; i < elf->needs; i++)
        if (strcmp(elf->needed[i], library) == 0)
            return true;
    return false;
}
