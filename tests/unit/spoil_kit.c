// SPDX-License-Identifier: Apache-2.0
// Texts with one mistake.
#include "spoil_kit.h"

#include <string.h>

size_t spoil_text(char *text, size_t len, struct vb_prng *prng)
{
    size_t at = vb_prng_below(prng, len), end = at;

    switch (vb_prng_below(prng, 4)) {
    case 0: // a line
        while (at > 0 && text[at - 1] != '\n')
            at--;
        while (end < len && text[end] != '\n')
            end++;
        break;
    case 1: // a word
        while (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\n')
            at--;
        while (end < len && text[end] != ' ' && text[end] != '\n')
            end++;
        break;
    case 2: // a digit or a letter
        for (; at < len; at++)
            if (text[at] >= '0' && text[at] <= '9')
                break;
        if (at < len)
            text[at] = (char)('0' + vb_prng_below(prng, 10));
        return len;
    default: text[at] = "x9 -+[]:\"\n"[vb_prng_below(prng, 10)]; return len;
    }
    memmove(text + at, text + end, len - end);
    return len - (end - at);
}
