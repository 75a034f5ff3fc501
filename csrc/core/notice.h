/* Notices: requests whose answers do not matter.
 *
 * Room: core (uses env). Owned by node; the hive thread.
 * Limits: HV_NOTICES_MAX under way; what is beyond that is not sent, and its receiver finds out as it would without it.
 */
#ifndef HV_CORE_NOTICE_H
#define HV_CORE_NOTICE_H

#include "core/env.h"

#define HV_NOTICES_MAX 1024

typedef struct hv_notices {
  hv_env *env;
  struct hv_notice *first;
  size_t n;
} hv_notices;

void hv_notices_init(hv_notices *notices, hv_env *env);
/* When the world has ended. */
void hv_notices_fini(hv_notices *notices);
/* Sends msg (borrowed during this call) to a peer. */
void hv_notice_send(hv_notices *notices, const hv_target *to, const hv_msg *msg);

#endif
