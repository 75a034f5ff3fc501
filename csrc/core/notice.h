/* Notices: requests whose answers do not matter.
 *
 * Room: core (uses env).
 * Owner: node.
 * Thread: the hive thread.
 * Limits: at most HV_NOTICES_MAX are under way. Further ones are not sent; their receivers learn the same later from silence.
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

/* env is borrowed until fini. */
void hv_notices_init(hv_notices *notices, hv_env *env);
/* Frees everything; only when the world has ended. */
void hv_notices_fini(hv_notices *notices);
/* Sends msg (borrowed during this call) to a peer. Failures are not reported. */
void hv_notice_send(hv_notices *notices, const hv_target *to, const hv_msg *msg);

#endif
