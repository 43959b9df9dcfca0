// SPDX-License-Identifier: Apache-2.0
// RedN's programs as text.
#include "cli/figures_program.h"

#include "chain/text.h"
#include "cost/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vb_image *vb_figures_assemble(char *text, char *error)
{
    struct vb_image *image = NULL;

    if (text)
        image = vb_asm(text, strlen(text), error);
    else
        snprintf(error, VB_IMAGE_TEXT, "no memory");
    free(text);
    return image;
}

char *vb_figures_verb(const char *entry, bool loop)
{
    struct vb_page p = {0};

    vb_page_put(&p, "program verb\ncq c entries 16\nqueue Q %s blocks 4 send_cq c\n",
                loop ? "loop" : "peer");
    vb_page_put(&p, "region near own 64 writable\nregion far %s 64 writable\ncode Q\n    %s\n",
                loop ? "own" : "peer", entry);
    return vb_page_take(&p);
}

char *vb_figures_nops(uint32_t count, enum vb_figures_order order)
{
    struct vb_page p = {0};

    vb_page_put(&p,
                "program nops\ncq c entries 256\nqueue W loop %s blocks 256 send_cq c\ncode W\n",
                order == VB_ORDER_DOORBELL ? "managed_send open 3" : "");
    for (uint32_t i = 0; i < count; i++) {
        vb_page_put(&p, "    nop signaled\n");
        if (order != VB_ORDER_QUEUE && i + 1 < count)
            vb_page_put(&p, "    wait c %u\n", i);
        if (order == VB_ORDER_DOORBELL && i + 1 < count)
            vb_page_put(&p, "    send_en W %u\n", 3 * i + (i + 2 == count ? 4 : 6));
    }
    return vb_page_take(&p);
}

char *vb_figures_flood(const char *entry, uint32_t queues)
{
    struct vb_page p = {0};

    vb_page_put(&p, "program flood\ncq c entries 16\nregion near own 128 writable\n");
    for (uint32_t q = 0; q < queues; q++)
        vb_page_put(&p, "queue Q%u loop blocks %d send_cq c\n", q, VB_FLOOD_EACH);
    for (uint32_t q = 0; q < queues; q++) {
        vb_page_put(&p, "code Q%u\n", q);
        for (int i = 0; i < VB_FLOOD_EACH; i++)
            vb_page_put(&p, "    %s\n", entry);
    }
    return vb_page_take(&p);
}

// Table 2: 1C + 1A + 3E, of which the copy is the entry that stays a NOP; in a loop that goes round
// two READs, an ADD and an opening entry more. Here the loop is written out, and the counters are
// those of a loop nearby. The
// opening entry has to come after the READs, which bring what it opens up to date.
char *vb_figures_ifs(uint32_t count, bool recycled)
{
    struct vb_page p = {0};
    uint32_t part = recycled ? 10 : 4; // blocks: READs with four parts have two

    vb_page_put(&p, "program ifs\ncq w entries 1024\ncq k entries 16\n"
                    "queue W loop managed_send blocks 1024 send_cq w open 1\n"
                    "queue K loop managed_send blocks 128 send_cq k\n"
                    "region d own 64 writable\ncode W\n");
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        uint32_t open = part * (i + 1) + (!recycled && !last);
        vb_page_put(&p,
                    "    send_en W %u\n"
                    "    cas victim%u.ctrl compare 0x0305000000000000 swap 0x0300000008000000"
                    " -> d:8 signaled\n    wait w %u\n    send_en K %u\n",
                    open, i, i, i + 1);
        if (recycled)
            vb_page_put(&p,
                        "    fadd d+8 add 1 -> d+16:8\n"
                        "    read d+8 -> d+27:1, d+26:1, d+25:1, d+24:1\n"
                        "    read d+12 -> d+31:1, d+30:1, d+29:1, d+28:1\n"
                        "    send_en W %u fence\n",
                        open + !last);
    }
    vb_page_put(&p, "code K\n");
    for (uint32_t i = 0; i < count; i++)
        vb_page_put(&p, "victim%u:\n    nop as write d+32 <- d:8\n", i);
    return vb_page_take(&p);
}

// The next power of two.
static uint32_t ring(uint32_t at_least)
{
    uint32_t blocks = 4;

    while (blocks < at_least)
        blocks *= 2;
    return blocks;
}

// W, of request n:                          K
//      WAIT  the request                    reply  NOP, or WRITE of the value
//      OPEN  the rest, and the next two
//      READ  bucket -> key and address of the reply
//      CAS   reply
//      WAIT  for the CAS
//      OPEN  K
char *vb_figures_gets(uint32_t count, uint32_t value_bytes)
{
    struct vb_page p = {0};

    vb_page_put(&p, "program gets\ncq w entries %u\ncq k entries %u\n", ring(count), ring(count));
    vb_page_put(&p, "queue W loop managed_send blocks %u send_cq w open 2\n", ring(6 * count));
    vb_page_put(&p, "queue K peer managed_send blocks %u recvs %u send_cq k\n", ring(count),
                ring(count));
    vb_page_put(&p,
                "region index shared %u\nregion items shared %u\nregion client peer %u writable\n"
                "region old own 8 writable\ncode W\n",
                VB_FIGURES_BUCKET, value_bytes, value_bytes);
    for (uint32_t i = 0; i < count; i++) {
        vb_page_put(&p, "    wait k %u\n    send_en W %u\n", i,
                    6 * (i + 1) + (i + 1 < count ? 2 : 0));
        vb_page_put(&p, "read%u:\n    read index -> reply%u.qpn:3, reply%u.addr:8\n", i, i, i);
        vb_page_put(&p,
                    "cas%u:\n    cas reply%u.ctrl compare 0x0300000000000000 swap"
                    " 0x0300000008000000 -> old:8 signaled fence\n"
                    "    wait w %u\n    send_en K %u\n",
                    i, i, i, i + 1);
    }
    vb_page_put(&p, "code K\n");
    for (uint32_t i = 0; i < count; i++)
        vb_page_put(&p, "reply%u:\n    nop as write client <- items:%u idx 0\n", i, value_bytes);
    vb_page_put(&p, "receives K\n");
    for (uint32_t i = 0; i < count; i++)
        vb_page_put(&p, "    recv -> cas%u.compare+1:3, read%u.raddr:8\n", i, i);
    return vb_page_take(&p);
}
