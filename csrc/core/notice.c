#include "core/notice.h"

enum { NOTICE_MS = 5000 };

typedef struct hv_notice {
  struct hv_notice *next, **link;
  hv_notices *notices;
  hv_call call;
} notice;

static void forget(notice *n) {
  *n->link = n->next;
  if (n->next)
    n->next->link = n->link;
  n->notices->n--;
  hv_mem_free(n);
}

static void notice_done(hv_call *call, const hv_event *event) {
  (void)event;
  forget(call->owner);
}

void hv_notices_init(hv_notices *notices, hv_env *env) {
  *notices = (hv_notices){.env = env};
}

void hv_notices_fini(hv_notices *notices) {
  while (notices->first)
    forget(notices->first);
}

void hv_notice_send(hv_notices *notices, const hv_target *to, const hv_msg *msg) {
  notice *n = notices->n < HV_NOTICES_MAX ? hv_mem_zalloc(notices->env->mem, sizeof *n) : NULL;
  if (!n)
    return;
  *n = (notice){.next = notices->first,
                .link = &notices->first,
                .notices = notices,
                .call = {.done = notice_done, .owner = n, .to = *to, .timeout_ms = NOTICE_MS}};
  if (n->next)
    n->next->link = &n->next;
  notices->first = n;
  notices->n++;
  if (notices->env->call(notices->env, &n->call, msg) != HV_OK)
    forget(n);
}
