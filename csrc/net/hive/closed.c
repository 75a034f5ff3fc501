#include "net/hive/closed.h"

#include "net/clock.h"

#include <stdio.h>

void hv_closed_init(hv_closed *closed) {
  *closed = (hv_closed){0};
  pthread_mutex_init(&closed->lock, NULL);
}

void hv_closed_fini(hv_closed *closed) {
  hv_credentials_fini(&closed->credentials);
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
  return status == HV_OK && hv_admission_judge(admission, &admission->me, now_s) ? has_ended(&admission->me, now_s, err) : status;
}

void hv_closed_keep(hv_closed *closed, const hv_peers *peers) {
  const char *why;
  hv_cause cause = hv_standing_refused(peers, &why);
  if (!cause && !closed->refused.cause)
    return;
  pthread_mutex_lock(&closed->lock);
  closed->refused.cause = cause;
  snprintf(closed->refused.text, sizeof closed->refused.text, "%.*s", (int)sizeof closed->refused.text - 1, why);
  pthread_mutex_unlock(&closed->lock);
}

int hv_closed_refused(hv_closed *closed, hv_cause *cause, char out[HV_MSG_TEXT_MAX]) {
  const hv_admission *admission = closed->credentials.signer ? &closed->credentials.admission : NULL;
  int64_t now_s = hv_clock_unix_s();
  *cause = hv_admission_judge(admission, &closed->credentials.admission.me, now_s);
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
