#include "core/peers/admission.h"

#include "core/peers/denials.h"

#include <stdio.h>
#include <string.h>

enum { ID_BYTES = 8, ENTRY = 32 };

hv_cause hv_admission_judge(const hv_admission *admission, const hv_peer_id *peer, const hv_membership *shown, int64_t now_s) {
  uint8_t subject[ENTRY];
  if (!admission || shown->kind == HV_MEMBERSHIP_HOLDER)
    return HV_CAUSE_OTHER;
  if (shown->kind != HV_MEMBERSHIP_INVITED)
    return HV_CAUSE_NOT_INVITED;
  hv_invitation_subject(&shown->invitation, subject);
  if (hv_denials_has(admission->denials, subject) || (peer && hv_denials_has(admission->denials, peer->key)))
    return HV_CAUSE_DENIED;
  return shown->invitation.end_s + HV_ADMISSION_GRACE_S < now_s ? HV_CAUSE_INVITATION_ENDED : HV_CAUSE_OTHER;
}

uint64_t hv_admission_mark(const hv_admission *admission) {
  return admission ? hv_denials_mark(admission->denials) : 0;
}

void hv_admission_note(hv_admission_refusal *refusal, const hv_event *event) {
  if (event->status != HV_NOT_ADMITTED)
    return;
  refusal->cause = event->cause ? event->cause : hv_cause_of(event->status);
  snprintf(refusal->text, sizeof refusal->text, "%s", event->text);
}

void hv_admission_refuse(hv_cause cause, const hv_membership *shown, int64_t now_s, char text[HV_MSG_TEXT_MAX]) {
  char id[HV_INVITATION_TEXT_MAX], end[HV_ADMISSION_TIME_MAX], now[HV_ADMISSION_TIME_MAX];
  hv_invitation_print(&shown->invitation, id);
  if (cause == HV_CAUSE_INVITATION_ENDED)
    snprintf(text, HV_MSG_TEXT_MAX,
             "the invitation %s ended at %s, and the refusing peer's clock shows %s: ask for a new one, or set the wrong clock", id,
             hv_admission_time(shown->invitation.end_s, end), hv_admission_time(now_s, now));
  else if (cause == HV_CAUSE_DENIED)
    snprintf(text, HV_MSG_TEXT_MAX,
             "a holder of the swarm's key has denied this peer or its invitation %s: ask a holder for a new one", id);
  else
    snprintf(text, HV_MSG_TEXT_MAX,
             "this swarm is closed: ask a holder of its key for an invitation, and give it as invite= or in the variable INVITE");
}

void hv_admission_explain(hv_cause cause, const char *where, const hv_membership *shown, int64_t now_s,
                          char text[HV_MSG_TEXT_MAX]) {
  char id[HV_INVITATION_TEXT_MAX], end[HV_ADMISSION_TIME_MAX], now[HV_ADMISSION_TIME_MAX];
  hv_invitation_print(&shown->invitation, id);
  if (cause == HV_CAUSE_INVITATION_ENDED)
    snprintf(text, HV_MSG_TEXT_MAX,
             "the invitation %s of the peer at %.64s ended at %s, and this clock shows %s: invite it again, or set the wrong clock",
             id, where, hv_admission_time(shown->invitation.end_s, end), hv_admission_time(now_s, now));
  else if (cause == HV_CAUSE_DENIED)
    snprintf(text, HV_MSG_TEXT_MAX, "a holder of the swarm's key has denied the peer at %.64s or its invitation %s", where, id);
  else
    snprintf(text, HV_MSG_TEXT_MAX,
             "the peer at %.64s is not in this peer's closed swarm: check the address, and that both have the same swarm key or "
             "invitations by it",
             where);
}

int hv_invitation_name_is_right(hv_span name) {
  if (name.size > HV_INVITATION_NAME_MAX)
    return 0;
  for (size_t i = 0; i < name.size; i++) {
    uint8_t c = name.data[i];
    int right = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    if (!right)
      return 0;
  }
  return 1;
}

void hv_invitation_subject(const hv_invitation *invitation, uint8_t out[ENTRY]) {
  memset(out, 0, ENTRY);
  memcpy(out, invitation->key.key, ID_BYTES);
}

int hv_invitation_parse(hv_span text, uint8_t out[ENTRY]) {
  static const char digits[] = "0123456789abcdef";
  if (text.size != 4 + 2 * ID_BYTES || memcmp(text.data, "inv-", 4) != 0)
    return 0;
  memset(out, 0, ENTRY);
  for (size_t i = 0; i < 2 * ID_BYTES; i++) {
    const char *digit = text.data[4 + i] ? strchr(digits, text.data[4 + i]) : NULL;
    if (!digit)
      return 0;
    out[i / 2] = (uint8_t)(out[i / 2] << 4 | (digit - digits));
  }
  return 1;
}

const char *hv_invitation_print(const hv_invitation *invitation, char out[HV_INVITATION_TEXT_MAX]) {
  int used = snprintf(out, HV_INVITATION_TEXT_MAX, "inv-");
  for (int i = 0; i < ID_BYTES; i++)
    used += snprintf(out + used, HV_INVITATION_TEXT_MAX - (size_t)used, "%02x", invitation->key.key[i]);
  return out;
}

const char *hv_membership_print(const hv_membership *shown, char out[HV_MEMBERSHIP_TEXT_MAX]) {
  char id[HV_INVITATION_TEXT_MAX];
  const char *name = shown->invitation.name;
  out[0] = 0;
  if (shown->kind == HV_MEMBERSHIP_HOLDER)
    snprintf(out, HV_MEMBERSHIP_TEXT_MAX, "holder");
  else if (shown->kind == HV_MEMBERSHIP_INVITED)
    snprintf(out, HV_MEMBERSHIP_TEXT_MAX, "%s%s%s", hv_invitation_print(&shown->invitation, id), name[0] ? " " : "", name);
  return out;
}

/* Days since 1970 as a date of the Gregorian calendar; the algorithm counts years from March. */
static void date_of(int64_t days, int *year, int *month, int *day) {
  int64_t shifted = days + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  int64_t of_era = shifted - era * 146097, years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  int64_t of_year = of_era - (365 * years + years / 4 - years / 100), months = (5 * of_year + 2) / 153;
  *day = (int)(of_year - (153 * months + 2) / 5 + 1);
  *month = (int)(months < 10 ? months + 3 : months - 9);
  *year = (int)(years + era * 400 + (*month <= 2));
}

const char *hv_admission_time(int64_t at_s, char out[HV_ADMISSION_TIME_MAX]) {
  enum { DAY_S = 86400 };
  int year, month, day;
  int64_t within = at_s < 0 ? 0 : at_s > HV_INVITATION_LAST_S ? HV_INVITATION_LAST_S : at_s;
  date_of(within / DAY_S, &year, &month, &day);
  snprintf(out, HV_ADMISSION_TIME_MAX, "%04u-%02u-%02u %02u:%02u UTC", (unsigned)year % 10000, (unsigned)month % 100,
           (unsigned)day % 100, (unsigned)(within % DAY_S / 3600), (unsigned)(within % 3600 / 60));
  return out;
}
