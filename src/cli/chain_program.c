// SPDX-License-Identifier: Apache-2.0
// Programs by name, and their inputs from the command line.
#include "cli/chain_program.h"

#include "cli/chain_file.h"
#include "verbena/offload.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INPUT_BYTES = 256,
};

#define FIELD(name) offsetof(struct vb_chain_args, name)

static const struct vb_option options[] = {
    {"put", NULL, VB_OPTION_TEXT, NULL, "REGION+N=HEX,…", "bytes of memory before the first step",
     FIELD(put), 0, 0},
    {"send", NULL, VB_OPTION_TEXT, NULL, "QUEUE=HEX,…", "messages of the queue's client",
     FIELD(send), 0, 0},
    {"slots", NULL, VB_OPTION_NUMBER, "8", "N", "requests under way, of an offload", FIELD(slots),
     2, 1024},
    {"depth", NULL, VB_OPTION_NUMBER, "16", "N", "entries fetched ahead (run, trace)", FIELD(depth),
     1, 256},
    {"units", NULL, VB_OPTION_NUMBER, "1", "N", "processing units (run, trace)", FIELD(units), 1,
     16},
    {"seed", NULL, VB_OPTION_NUMBER, "1", "N", "who is faster, where several could be", FIELD(seed),
     0, UINT32_MAX},
    {"steps", NULL, VB_OPTION_NUMBER, "1000000", "N", "at most", FIELD(steps_max), 1, UINT32_MAX},
    {"shared", NULL, VB_OPTION_NUMBER, "4096", "BYTES", "of each shared region, at least",
     FIELD(shared_bytes), 0, 1u << 30},
    {"dump", NULL, VB_OPTION_TEXT, NULL, "FILE",
     "write the program as it is after the last step, as text (run, trace)", FIELD(dump), 0, 0},
    {"json", NULL, VB_OPTION_FLAG, NULL, NULL, "one JSON object per line", FIELD(json), 0, 0},
    {"preset", NULL, VB_OPTION_TEXT, "connectx5-b", "NAME|FILE", "the card (cost)", FIELD(preset),
     0, 0},
    {"svg", NULL, VB_OPTION_TEXT, NULL, "FILE", "draw a picture of the run (cost)", FIELD(svg), 0,
     0},
    {"operations", NULL, VB_OPTION_NUMBER, "0", "N",
     "that the run is, for the rate; 0: its messages, or one (cost)", FIELD(operations), 0,
     UINT32_MAX},
    {"connections", NULL, VB_OPTION_NUMBER, "0", "N", "of the card, all in use (cost)",
     FIELD(connections), 0, UINT32_MAX},
    {"registered", NULL, VB_OPTION_NUMBER, "0", "MB", "of memory, all in use (cost)",
     FIELD(registered_mb), 0, 1u << 30},
    {"managed-client", NULL, VB_OPTION_FLAG, NULL, NULL,
     "clients open their SENDs by a SEND_EN, as RedN's do (cost)", FIELD(managed_client), 0, 0},
};

static struct vb_image *make(const char *name, uint32_t slots, char *error)
{
    if (strcmp(name, "hash_get") == 0)
        return vb_offload_hash_get(&(struct vb_hash_opts){.slots = slots}, error);
    if (strcmp(name, "list_walk") == 0)
        return vb_offload_list_walk(&(struct vb_list_opts){.slots = slots, .stops = true}, error);
    return vb_offload_list_loop(&(struct vb_list_opts){0}, error);
}

// An offload by its name, or a file. NULL: it was said why.
static struct vb_image *find(const struct vb_chain_program *p, const char *command,
                             const char *name)
{
    static const char *const known[] = {"hash_get", "list_walk", "list_loop"};
    char error[VB_IMAGE_TEXT] = "";

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) {
            struct vb_image *image = make(name, p->args.slots, error);
            if (!image)
                vb_usage_error(command, "%s", error);
            return image;
        }
    return vb_chain_file_load(command, name);
}

int vb_chain_program_open(struct vb_chain_program *p, const char *command, int argc, char **argv)
{
    const struct vb_option_table table = {command, options, sizeof options / sizeof options[0]};
    struct vb_options parsed;

    memset(p, 0, sizeof *p);
    int status = vb_options_parse(&table, argc, argv, &p->args, &parsed);
    if (status)
        return status;
    if (parsed.help) {
        printf("Usage: %s PROGRAM [options]\n\n"
               "PROGRAM is a file, as text or as `verbena chain asm` writes it, or an offload:\n"
               "hash_get, list_walk, list_loop. '-' is standard input.\n\n",
               command);
        vb_options_help(&table, stdout);
        return -1;
    }
    if (parsed.operands != 1)
        return vb_usage_error(command,
                              "name one program: a file, hash_get, list_walk or list_loop");
    if (p->args.units & (p->args.units - 1))
        return vb_usage_error(command, "--units %u: take a power of two", p->args.units);
    p->image = find(p, command, parsed.operand[0]);
    return p->image ? 0 : VB_EXIT_USAGE;
}

void vb_chain_program_close(struct vb_chain_program *p)
{
    if (p->image)
        vb_image_destroy(p->image);
    p->image = NULL;
}

struct vb_machine_opts vb_chain_program_machine(const struct vb_chain_program *p)
{
    return (struct vb_machine_opts){.seed = p->args.seed,
                                    .units = p->args.units,
                                    .fetch_depth = p->args.depth,
                                    .shared_bytes = p->args.shared_bytes};
}

// ---- inputs

static int digit(char c)
{
    if (!isxdigit((unsigned char)c))
        return -1;
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

// Bytes in hexadecimal up to the end or a comma. Returns how many.
static uint32_t read_hex(const char *text, uint8_t out[INPUT_BYTES])
{
    uint32_t n = 0;

    while (n < INPUT_BYTES && digit(text[0]) >= 0 && digit(text[1]) >= 0) {
        out[n++] = (uint8_t)(digit(text[0]) << 4 | digit(text[1]));
        text += 2;
    }
    return n;
}

// "NAME+N=HEX" or "NAME=HEX". False: it is neither.
static bool read_input(const char *text, char name[VB_IMAGE_NAME], uint64_t *offset,
                       uint8_t bytes[INPUT_BYTES], uint32_t *len)
{
    size_t n = strcspn(text, "+=,");

    *offset = 0;
    if (n >= VB_IMAGE_NAME || text[n] == ',' || !text[n])
        return false;
    memcpy(name, text, n);
    name[n] = 0;
    if (text[n] == '+') {
        char *end;
        *offset = strtoull(text + n + 1, &end, 0);
        text = end;
    } else {
        text += n;
    }
    if (*text != '=')
        return false;
    *len = read_hex(text + 1, bytes);
    return true;
}

static void put(struct vb_chain_program *p, struct vb_machine *m, const char *text)
{
    char name[VB_IMAGE_NAME];
    uint8_t bytes[INPUT_BYTES];
    uint64_t offset;
    uint32_t len;

    if (!read_input(text, name, &offset, bytes, &len)) {
        p->error = "--put wants REGION+OFFSET=HEX";
        return;
    }
    int region = vb_image_find_region(p->image, name);
    uint64_t room = region < 0 ? 0 : vb_machine_bytes(m, (uint32_t)region);
    if (region < 0 || offset > room || len > room - offset)
        p->error = "--put names a region that the program does not have, or bytes behind its end";
    else
        memcpy(vb_machine_data(m, (uint32_t)region) + offset, bytes, len);
}

static void send(struct vb_chain_program *p, struct vb_machine *m, const char *text)
{
    char name[VB_IMAGE_NAME];
    uint8_t bytes[INPUT_BYTES];
    uint64_t offset;
    uint32_t len;

    if (!read_input(text, name, &offset, bytes, &len)) {
        p->error = "--send wants QUEUE=HEX";
        return;
    }
    int queue = vb_image_find_queue(p->image, name);
    if (queue < 0 || vb_machine_send(m, (uint32_t)queue, bytes, len) != 0)
        p->error = "--send names a queue that has no client";
}

static void each(struct vb_chain_program *p, struct vb_machine *m, const char *list,
                 void (*one)(struct vb_chain_program *, struct vb_machine *, const char *))
{
    for (uint32_t n = 0; list && *list && n < VB_CHAIN_INPUTS; n++) {
        one(p, m, list);
        list += strcspn(list, ",");
        list += *list == ',';
    }
}

void vb_chain_program_prepare(void *program, struct vb_machine *m)
{
    struct vb_chain_program *p = program;

    each(p, m, p->args.put, put);
    each(p, m, p->args.send, send);
}
