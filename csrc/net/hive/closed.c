#include "net/hive/closed.h"

#include "net/clock.h"

#include <stdio.h>
#include <string.h>

void hv_closed_init(hv_closed *closed) {
  *closed = (hv_closed){0};
  pthread_mutex_init(&closed->lock, NULL);
}

void hv_closed_fini(hv_closed *closed) {
  hv_credentials_fini(&closed->credentials);
  hv_mem_free(closed->denials);
  pthread_mutex_destroy(&closed->lock);
}

/* The sentence for an invitation that has ended. */
static hv_status has_ended(const hv_membership *me, int64_t now_s, hv_error *err) {
  char id[HV_INVITATION_TEXT_MAX], end[HV_ADMISSION_TIME_MAX], now[HV_ADMISSION_TIME_MAX];
  return hv_fail_by(
      err, HV_NOT_ADMITTED, HV_CAUSE_INVITATION_ENDED,
      "cannot start a node: its invitation %s ended at %s, and this machine's clock shows %s; ask for a new one, or set "
      "the clock",
      hv_invitation_print(&me->invitation, id), hv_admission_time(me->invitation.end_s, end), hv_admission_time(now_s, now));
}

hv_status hv_closed_read(hv_closed *closed, hv_mem *mem, const hv_hive_config *config, hv_error *err) {
  const hv_admission *admission = &closed->credentials.admission;
  int64_t now_s = hv_clock_unix_s();
  if (!config->swarm_key && !config->invite)
    return HV_OK;
  if (config->insecure)
    return hv_fail(
        err, HV_INVALID,
        "cannot start a node: without TLS (insecure=True) no peer can prove that it was invited; remove insecure, or the "
        "swarm key and the invitation");
  hv_status status = hv_credentials_read(mem, config->swarm_key, config->invite, &closed->credentials, err);
  return status == HV_OK && hv_admission_judge(admission, NULL, &admission->me, now_s) ? has_ended(&admission->me, now_s, err)
                                                                                       : status;
}

/* The list of denials names this node, or its peers refuse it. */
static void keep_refusal(hv_closed *closed, const hv_admission *admission, const hv_peers *peers) {
  const char *why;
  char denied[HV_MSG_TEXT_MAX];
  int64_t now_s = hv_clock_unix_s();
  hv_cause cause = admission ? hv_admission_judge(admission, &peers->config.me.id, &admission->me, now_s) : HV_CAUSE_OTHER;
  if (cause) {
    hv_admission_refuse(cause, &admission->me, now_s, denied);
    why = denied;
  } else
    cause = hv_standing_refused(peers, &why);
  if (cause)
    snprintf(closed->refused.text, sizeof closed->refused.text, "%.*s", (int)sizeof closed->refused.text - 1, why);
  closed->refused.cause = cause;
}

/* Without memory the older list stays, until the next change. */
static void keep_denials(hv_closed *closed, hv_mem *mem, hv_span list) {
  uint8_t *copy = hv_mem_alloc(mem, list.size);
  if (!copy)
    return;
  memcpy(copy, list.data, list.size);
  hv_mem_free(closed->denials);
  closed->denials = copy;
  closed->denials_size = list.size;
}

void hv_closed_keep(hv_closed *closed, hv_mem *mem, hv_node *node) {
  const hv_admission *admission = hv_node_env(node)->admission;
  pthread_mutex_lock(&closed->lock);
  keep_refusal(closed, admission, hv_node_peers(node));
  closed->told = hv_node_denials(node)->told;
  if (hv_admission_serial(admission) != hv_denials_serial(hv_span_of(closed->denials, closed->denials_size)))
    keep_denials(closed, mem, admission->denials);
  pthread_mutex_unlock(&closed->lock);
}

size_t hv_closed_denials(hv_closed *closed, uint8_t *out, size_t max, size_t *told) {
  pthread_mutex_lock(&closed->lock);
  size_t size = closed->denials_size;
  if (size)
    memcpy(out, closed->denials, size < max ? size : max);
  *told = closed->told;
  pthread_mutex_unlock(&closed->lock);
  return size;
}

int hv_closed_refused(hv_closed *closed, hv_cause *cause, char out[HV_MSG_TEXT_MAX]) {
  const hv_admission *admission = closed->credentials.signer ? &closed->credentials.admission : NULL;
  int64_t now_s = hv_clock_unix_s();
  *cause = hv_admission_judge(admission, NULL, &closed->credentials.admission.me, now_s);
  if (*cause) {
    hv_admission_refuse(*cause, &admission->me, now_s, out);
    return 1;
  }
  pthread_mutex_lock(&closed->lock);
  *cause = closed->refused.cause;
  snprintf(out, HV_MSG_TEXT_MAX, "%s", closed->refused.text);
  pthread_mutex_unlock(&closed->lock);
  return *cause != HV_CAUSE_OTHER;
}
