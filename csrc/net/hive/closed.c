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
static hv_status has_ended(const char *start, const hv_membership *me, int64_t now_s, hv_error *err) {
  char id[HV_INVITATION_TEXT_MAX], end[HV_ADMISSION_TIME_MAX], now[HV_ADMISSION_TIME_MAX];
  return hv_fail_by(err, HV_NOT_ADMITTED, HV_CAUSE_INVITATION_ENDED,
                    "%s: its invitation %s ended at %s, and this machine's clock shows %s; ask for a new one, or set the clock",
                    start, hv_invitation_print(&me->invitation, id), hv_admission_time(me->invitation.end_s, end),
                    hv_admission_time(now_s, now));
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
  if (status == HV_OK && hv_admission_judge(admission, NULL, &admission->me, now_s))
    status = has_ended("cannot start a node", &admission->me, now_s, err);
  return status;
}

/* Whether this is the invitation of `before` with another end. */
static hv_status check_renewed(const hv_membership *before, int same_swarm, const hv_membership *me, hv_error *err) {
  char id[HV_INVITATION_TEXT_MAX], other[HV_INVITATION_TEXT_MAX];
  int64_t now_s = hv_clock_unix_s();
  if (before->kind != HV_MEMBERSHIP_INVITED)
    return hv_fail(err, HV_STATE, "cannot renew an invitation: this node has none");
  if (!same_swarm)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                      "cannot renew the invitation: this one is to another swarm; ask for the renewed one");
  if (!hv_peer_equal(&before->invitation.key, &me->invitation.key))
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                      "cannot renew the invitation: this is %s, not %s; ask for the renewed one, or start again with this one",
                      hv_invitation_print(&me->invitation, other), hv_invitation_print(&before->invitation, id));
  return hv_admission_judge(&(hv_admission){0}, NULL, me, now_s) ? has_ended("cannot renew the invitation", me, now_s, err) : HV_OK;
}

hv_status hv_closed_read_renewed(hv_closed *closed, hv_mem *mem, const char *invite, hv_credentials *out, hv_error *err) {
  pthread_mutex_lock(&closed->lock);
  hv_admission before = closed->credentials.admission;
  pthread_mutex_unlock(&closed->lock);
  hv_status status = hv_credentials_read(mem, NULL, invite, out, err);
  if (status != HV_OK)
    return status;
  status = check_renewed(&before.me, hv_peer_equal(&before.swarm, &out->admission.swarm), &out->admission.me, err);
  if (status != HV_OK)
    hv_credentials_fini(out);
  return status;
}

void hv_closed_take(hv_closed *closed, hv_credentials *credentials) {
  pthread_mutex_lock(&closed->lock);
  hv_credentials before = closed->credentials;
  closed->credentials = *credentials;
  pthread_mutex_unlock(&closed->lock);
  hv_credentials_fini(&before);
  *credentials = (hv_credentials){0};
}

void hv_closed_membership(hv_closed *closed, char out[HV_MEMBERSHIP_TEXT_MAX]) {
  pthread_mutex_lock(&closed->lock);
  hv_membership_print(&closed->credentials.admission.me, out);
  pthread_mutex_unlock(&closed->lock);
}

size_t hv_closed_proof(hv_closed *closed, const hv_peer_id *me, uint8_t out[HV_PROOF_MAX]) {
  size_t size = 0;
  pthread_mutex_lock(&closed->lock);
  int made = closed->credentials.signer && hv_proof_make(&closed->credentials, me, out, &size) == HV_OK;
  pthread_mutex_unlock(&closed->lock);
  return made ? size : 0;
}

void hv_closed_proved(hv_closed *closed, hv_span proof, const hv_peer_id *peer, char out[HV_MEMBERSHIP_TEXT_MAX]) {
  hv_membership shown = {0};
  pthread_mutex_lock(&closed->lock);
  int is_closed = closed->credentials.signer != NULL;
  hv_peer_id swarm = closed->credentials.admission.swarm;
  pthread_mutex_unlock(&closed->lock);
  if (is_closed)
    hv_proof_check(proof, peer, &swarm, &shown);
  hv_membership_print(&shown, out);
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
  pthread_mutex_lock(&closed->lock);
  const hv_admission *admission = closed->credentials.signer ? &closed->credentials.admission : NULL;
  int64_t now_s = hv_clock_unix_s();
  *cause = hv_admission_judge(admission, NULL, &closed->credentials.admission.me, now_s);
  if (*cause) {
    hv_admission_refuse(*cause, &admission->me, now_s, out);
  } else {
    *cause = closed->refused.cause;
    snprintf(out, HV_MSG_TEXT_MAX, "%s", closed->refused.text);
  }
  pthread_mutex_unlock(&closed->lock);
  return *cause != HV_CAUSE_OTHER;
}
