// SPDX-License-Identifier: Apache-2.0
// `verbena chain`: programs of work-queue entries, as text and as files.
#include "chain/file.h"
#include "chain/text.h"
#include "cli/chain_file.h"
#include "cli/chain_program.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chain_fields {
    const char *output;
};

static const struct vb_option options[] = {
    {"output", NULL, VB_OPTION_TEXT, NULL, "FILE", "write there instead of to standard output",
     offsetof(struct chain_fields, output), 0, 0},
};

static const struct vb_option_table table = {"verbena chain", options,
                                             sizeof options / sizeof *options};

// ---- files

static int write_file(const char *name, const void *bytes, size_t len)
{
    FILE *out = name && strcmp(name, "-") != 0 ? fopen(name, "wb") : stdout;
    bool ok = out && fwrite(bytes, 1, len, out) == len;

    if (out)
        ok = (out == stdout ? fflush(out) : fclose(out)) == 0 && ok;
    if (!ok)
        fprintf(stderr, "%s: %s: %s\n", table.command, name ? name : "standard output",
                strerror(errno));
    return ok ? 0 : 1;
}

// ---- commands

static int assemble(const struct vb_image *image, const struct chain_fields *f)
{
    size_t len;

    if (!f->output && isatty(STDOUT_FILENO))
        return vb_usage_error(table.command, "asm writes no text; give -o FILE");
    uint8_t *bytes = vb_image_encode(image, &len);

    if (!bytes) {
        fprintf(stderr, "%s: out of memory\n", table.command);
        return 1;
    }
    int status = write_file(f->output, bytes, len);
    free(bytes);
    return status;
}

static int disassemble(const struct vb_image *image, const struct chain_fields *f)
{
    char *text = vb_dis(image);

    if (!text) {
        fprintf(stderr, "%s: out of memory\n", table.command);
        return 1;
    }
    int status = write_file(f->output, text, strlen(text));
    free(text);
    return status;
}

// What is done with a program; more commands are more rows.
static const struct chain_command {
    const char *name;
    int (*run)(const struct vb_image *image, const struct chain_fields *fields);
} commands[] = {
    {"asm", assemble},
    {"dis", disassemble},
};

static const struct chain_command *find(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

static void print_help(void)
{
    fputs("Usage: verbena chain asm FILE [-o OUT]   text to a program file\n"
          "       verbena chain dis FILE [-o OUT]   a program file, or text, to canonical text\n"
          "       verbena chain check PROGRAM       looks for mistakes; --help says more\n"
          "       verbena chain run PROGRAM         runs it, and says what it left\n"
          "       verbena chain trace PROGRAM       runs it, entry by entry\n"
          "       verbena chain cost PROGRAM        says what it would cost on a card\n"
          "\n"
          "A chain is a program made of work-queue entries, which the NIC executes and which can\n"
          "change each other. As text it declares completion queues, queues and regions, and then\n"
          "lists the entries of each queue, one a line:\n"
          "\n"
          "  program hello\n"
          "  cq      done entries 16\n"
          "  queue   W loop blocks 4 send_cq done    # works on this server's memory\n"
          "  queue   K loop managed_send blocks 4 send_cq done\n"
          "  region  data own 64 writable\n"
          "      2: u8 5                             # bytes it begins with\n"
          "  code W\n"
          "      read    data -> then.qpn:3          # copies 3 bytes into the entry `then`\n"
          "      cas     then.ctrl compare 0x0305000000000000 swap 0x0300000008000000 "
          "-> data+32:8 signaled fence\n"
          "      wait    done 0                      # until completion 0 is there\n"
          "      send_en K 1                         # K may run what lies before block 1\n"
          "  code K\n"
          "  then:\n"
          "      nop as write data+8 <- data:8       # a NOP until the CAS makes it a WRITE\n"
          "\n"
          "Memory is named region+8, label.field, queue[block] or queue.recv[n], and :8 says how\n"
          "many bytes. docs/chain-text.md has the whole language, examples/chains/ has programs.\n"
          "'-' is standard input. asm and dis lose nothing: asm of what dis prints is the same\n"
          "program, byte for byte.\n"
          "\n",
          stdout);
    vb_options_help(&table, stdout);
    fputs("  -o FILE              the same\n"
          "\nExit status: 0 all went well, 1 the work failed, 2 the command line or the program\n"
          "was wrong.\n",
          stdout);
}

// The table of options knows long names only.
static void lengthen(int argc, char **argv)
{
    static char output[] = "--output";

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-o") == 0)
            argv[i] = output;
}

// Those that run programs have options of their own.
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} runners[] = {
    {"check", vb_cli_chain_check},
    {"cost", vb_cli_chain_cost},
    {"run", vb_cli_chain_run},
    {"trace", vb_cli_chain_trace},
};

int vb_cli_chain(int argc, char **argv)
{
    struct chain_fields fields = {0};
    struct vb_options parsed;

    for (size_t i = 0; argc > 1 && i < sizeof runners / sizeof *runners; i++)
        if (strcmp(argv[1], runners[i].name) == 0)
            return runners[i].run(argc - 1, argv + 1);

    lengthen(argc, argv);
    int error = vb_options_parse(&table, argc, argv, &fields, &parsed);
    if (error)
        return error;
    if (parsed.help) {
        print_help();
        return 0;
    }
    const struct chain_command *command = parsed.operands ? find(parsed.operand[0]) : NULL;
    if (!command)
        return vb_usage_error(
            table.command, "'%s' is nothing to do; there are asm, dis, check, run, trace and cost",
            parsed.operands ? parsed.operand[0] : "");
    if (parsed.operands != 2)
        return vb_usage_error(table.command, "%s takes one file: verbena chain %s FILE",
                              command->name, command->name);
    struct vb_image *image = vb_chain_file_load(table.command, parsed.operand[1]);
    if (!image)
        return VB_EXIT_USAGE;
    int status = command->run(image, &fields);
    vb_image_destroy(image);
    return status;
}
