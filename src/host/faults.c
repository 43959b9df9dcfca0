// SPDX-License-Identifier: Apache-2.0
// Faults on purpose at run time.
#include "host/host.h"
#include "host/open.h"
#include "port/faulty.h"

#include <errno.h>

// The port gets its wrapping when the first rules come.
static int wrap(struct vb_nic *nic, const char *rules, char *error_text)
{
    struct vb_faults *faults;
    int err = vb_faults_parse(rules, &faults, error_text);
    if (err)
        return err;
    struct vb_port *faulty = vb_host_wrap_port(nic->lane[0].port, faults);
    if (!faulty) {
        vb_faults_free(faults);
        return -ENOMEM;
    }
    nic->lane[0].port = nic->faulty = faulty;
    return 0;
}

int vb_nic_set_faults(struct vb_nic *nic, const char *rules, char *error_text)
{
    vb_host_lock(nic);
    int err =
        nic->faulty ? vb_faulty_set(nic->faulty, rules, error_text) : wrap(nic, rules, error_text);
    vb_host_unlock(nic);
    return err;
}
