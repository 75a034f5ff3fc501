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

/* Counts the initial peers that have returned the list of this node. */
static void keep_told(hv_closed *closed, const hv_peers *peers, const hv_spread *spread) {
  char where[HV_ADDR_TEXT_MAX];
  closed->told = (hv_hive_denials_told){0};
  for (size_t i = 0; i < peers->n_starts; i++) {
    const hv_peers_start *start = &peers->starts[i];
    if (hv_peer_equal(&start->target.id, &peers->config.me.id))
      continue;
    if (start->status == HV_OK && hv_spread_has(spread, &start->answered)) {
      closed->told.has++;
      continue;
    }
    const char *why = start->status == HV_OK     ? "it has not returned the list"
                      : start->status == HV_BUSY ? "it has not answered yet"
                                                 : start->text;
    if (!closed->told.lacks++)
      snprintf(closed->told.text, sizeof closed->told.text, "%.100s: %.200s", hv_addr_print_short(&start->target.addr, where), why);
  }
}

/* Without memory the older list stays, until the next change. */
static void keep_denials(hv_closed *closed, hv_mem *mem, hv_span list) {
  uint8_t *copy = hv_mem_alloc(mem, list.size ? list.size : 1);
  if (!copy)
    return;
  if (list.size)
    memcpy(copy, list.data, list.size);
  hv_mem_free(closed->denials);
  closed->denials = copy;
  closed->denials_size = list.size;
}

void hv_closed_keep(hv_closed *closed, hv_mem *mem, hv_node *node) {
  const hv_admission *admission = hv_node_env(node)->admission;
  pthread_mutex_lock(&closed->lock);
  keep_refusal(closed, admission, hv_node_peers(node));
  keep_told(closed, hv_node_peers(node), hv_node_spread(node));
  if (hv_admission_mark(admission) != hv_denials_mark(hv_span_of(closed->denials, closed->denials_size)))
    keep_denials(closed, mem, admission->denials);
  pthread_mutex_unlock(&closed->lock);
}

size_t hv_closed_denials(hv_closed *closed, uint8_t *out, size_t max, hv_hive_denials_told *told) {
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
