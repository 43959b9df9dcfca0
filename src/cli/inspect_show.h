// SPDX-License-Identifier: Apache-2.0
// Asks the NICs and walks what they said: what link, stat and res share.
#ifndef VB_CLI_INSPECT_SHOW_H
#define VB_CLI_INSPECT_SHOW_H

#include "cli/inspect_line.h"
#include "cli/inspect_print.h"
#include "host/inspect_ask.h"

// Asks all NICs that the command line does not exclude, and says on stderr which did not answer,
// and why. 0, or an exit status.
int vb_inspect_survey(const struct vb_inspect_line *line, const char *kind,
                      struct vb_survey *survey);

// Prints ifname and port for JSON, and as text what stands before a record: "link verbena0/1" or
// "dev verbena0".
void vb_inspect_print_link(struct vb_printer *p, const struct vb_record *nic, uint32_t index);
void vb_inspect_print_dev(struct vb_printer *p, const struct vb_record *nic, uint32_t index);
// pid and comm, which end a record.
void vb_inspect_print_owner(struct vb_printer *p, const struct vb_record *nic);
// All other fields, those in `hidden` (ends with NULL) only with details.
void vb_inspect_print_fields(struct vb_printer *p, const struct vb_record *record,
                             const char *const *hidden, bool details);

// What is left to say when nothing matched the filters, and the exit status: 1 if there were
// filters, 0 if there just is no NIC.
int vb_inspect_verdict(const struct vb_inspect_line *line, const struct vb_printer *p,
                       const char *what);

#endif
