// SPDX-License-Identifier: Apache-2.0
// libefa: our device is not one of Amazon's. Every call is there, says no and, if asked to, says so
// in words.
#include "verbs/raw.h"

#include <errno.h>

static const char why[] = "it is no EFA device";

#define REFUSED(name)                                       \
    VB_RAW_EXPORT int name(void);                           \
    VB_RAW_EXPORT int name(void)                            \
    {                                                       \
        return vb_verbs_raw_refuse(EOPNOTSUPP, #name, why); \
    }

#define EMPTY(name)                                  \
    VB_RAW_EXPORT void *name(void);                  \
    VB_RAW_EXPORT void *name(void)                   \
    {                                                \
        vb_verbs_raw_refuse(EOPNOTSUPP, #name, why); \
        return NULL;                                 \
    }

REFUSED(efadv_query_ah)
REFUSED(efadv_query_device)

EMPTY(efadv_cq_from_ibv_cq_ex)
EMPTY(efadv_create_cq)
EMPTY(efadv_create_driver_qp)
EMPTY(efadv_create_qp_ex)
