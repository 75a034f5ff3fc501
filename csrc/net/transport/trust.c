#include "net/transport/trust.h"

#include "net/clock.h"
#include "net/identity.h"
#include "net/invitation.h"
#include "net/transport/listen.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct hv_trust_swarm {
  hv_mem *mem;
  pthread_mutex_t lock;
  atomic_uint refs;
  hv_admission admission;
  uint8_t *denials;        /* the bytes of its list; NULL: none */
  uint64_t tells_until_us; /* up to then denied peers are sent the list */
};

struct hv_trust {
  pthread_mutex_t lock;
  atomic_uint refs;
  hv_peer_id expected;
  hv_trust_swarm *swarm; /* NULL: any peer may be here */
  int of_callers;
  int saw_closed;  /* hv_trust_saw_closed */
  hv_cause denied; /* HV_CAUSE_OTHER: not */
  char where[HV_ADDR_TEXT_MAX];
  char why[HV_TRUST_TEXT_MAX];
};

/* ---- the swarm ---- */

hv_trust_swarm *hv_trust_swarm_new(hv_mem *mem, const hv_admission *admission) {
  hv_trust_swarm *swarm = hv_mem_zalloc(mem, sizeof *swarm);
  if (!swarm)
    return NULL;
  pthread_mutex_init(&swarm->lock, NULL);
  atomic_init(&swarm->refs, 1);
  swarm->mem = mem;
  swarm->admission = *admission;
  swarm->admission.denials = hv_span_of(NULL, 0);
  return swarm;
}

void hv_trust_swarm_release(hv_trust_swarm *swarm) {
  if (!swarm || atomic_fetch_sub(&swarm->refs, 1) != 1)
    return;
  pthread_mutex_destroy(&swarm->lock);
  hv_mem_free(swarm->denials);
  hv_mem_free(swarm);
}

hv_status hv_trust_swarm_deny(hv_trust_swarm *swarm, hv_span denials) {
  uint8_t *copy = hv_mem_alloc(swarm->mem, denials.size);
  if (!copy)
    return HV_NOMEM;
  memcpy(copy, denials.data, denials.size);
  pthread_mutex_lock(&swarm->lock);
  uint8_t *before = swarm->denials;
  swarm->denials = copy;
  swarm->admission.denials = hv_span_of(copy, denials.size);
  swarm->tells_until_us = hv_clock_us() + HV_TRUST_TELL_MS * UINT64_C(1000);
  pthread_mutex_unlock(&swarm->lock);
  hv_mem_free(before);
  return HV_OK;
}

void hv_trust_swarm_renew(hv_trust_swarm *swarm, const hv_membership *me) {
  pthread_mutex_lock(&swarm->lock);
  swarm->admission.me = *me;
  pthread_mutex_unlock(&swarm->lock);
}

const hv_admission *hv_trust_swarm_admission(const hv_trust_swarm *swarm) {
  return swarm ? &swarm->admission : NULL;
}

/* ---- the check ---- */

hv_trust *hv_trust_new(hv_mem *mem, const hv_target *to, hv_trust_swarm *swarm) {
  hv_trust *trust = hv_mem_zalloc(mem, sizeof *trust);
  if (!trust)
    return NULL;
  pthread_mutex_init(&trust->lock, NULL);
  atomic_init(&trust->refs, 1);
  trust->swarm = swarm;
  if (swarm)
    atomic_fetch_add(&swarm->refs, 1);
  trust->of_callers = to == NULL;
  snprintf(trust->where, sizeof trust->where, "the caller");
  if (to) {
    trust->expected = to->id;
    hv_addr_print_short(&to->addr, trust->where);
  }
  return trust;
}

hv_trust *hv_trust_keep(hv_trust *trust) {
  atomic_fetch_add(&trust->refs, 1);
  return trust;
}

void hv_trust_release(hv_trust *trust) {
  if (!trust || atomic_fetch_sub(&trust->refs, 1) != 1)
    return;
  pthread_mutex_destroy(&trust->lock);
  hv_trust_swarm_release(trust->swarm);
  hv_mem_free(trust);
}

void hv_trust_expect(hv_trust *trust, const hv_peer_id *peer) {
  pthread_mutex_lock(&trust->lock);
  trust->expected = *peer;
  pthread_mutex_unlock(&trust->lock);
}

void hv_trust_print_other(const char *where, const char *found, const char *wanted, char why[HV_TRUST_TEXT_MAX]) {
  snprintf(
      why, HV_TRUST_TEXT_MAX,
      "%s is %s, not %s: that peer has a new key, or the address belongs to another peer now; use the address that it prints now",
      where, found, wanted);
}

/* Checks a certificate. The membership that it proves in the swarm of `admission`; none if that is NULL. is_closed (may be NULL):
 * it has a proof, of whichever swarm. */
static hv_status read_certificate(hv_span pem, const hv_admission *admission, int64_t now_s, hv_peer_id *out, hv_membership *shown,
                                  int *is_closed, hv_error *err) {
  hv_extension extension = {0};
  hv_proof proof;
  hv_status status = hv_identity_read_certificate(pem, now_s, out, admission || is_closed ? &extension : NULL, err);
  if (status == HV_OK && admission)
    hv_proof_check(hv_span_of(extension.bytes, extension.size), out, &admission->swarm, shown);
  if (is_closed)
    *is_closed = status == HV_OK && hv_proof_parse(hv_span_of(extension.bytes, extension.size), &proof) == HV_OK;
  return status;
}

/* Why a peer with this membership may not be here; HV_CAUSE_OTHER: it may. */
static hv_cause judge(hv_trust *trust, const hv_peer_id *peer, const hv_membership *shown, int64_t now_s) {
  if (!trust->swarm)
    return HV_CAUSE_OTHER;
  pthread_mutex_lock(&trust->swarm->lock);
  hv_cause apart = hv_admission_judge(&trust->swarm->admission, peer, shown, now_s);
  int tells = hv_clock_us() < trust->swarm->tells_until_us;
  pthread_mutex_unlock(&trust->swarm->lock);
  int at_calls = trust->of_callers ? apart != HV_CAUSE_NOT_INVITED : tells && apart == HV_CAUSE_DENIED;
  return at_calls ? HV_CAUSE_OTHER : apart;
}

int hv_trust_check(hv_trust *trust, const char *pem, char why[HV_TRUST_TEXT_MAX]) {
  hv_error err = {0};
  hv_peer_id peer;
  hv_membership shown = {0};
  int64_t now_s = hv_clock_unix_s();
  int is_closed = 0;
  hv_status status = pem ? read_certificate(hv_span_of(pem, strlen(pem)), hv_trust_swarm_admission(trust->swarm), now_s, &peer,
                                            &shown, &is_closed, &err)
                         : hv_fail(&err, HV_DENIED, "it sent no certificate");
  hv_cause apart = status == HV_OK ? judge(trust, &peer, &shown, now_s) : HV_CAUSE_OTHER;
  char found[HV_PEER_TEXT_MAX], wanted[HV_PEER_TEXT_MAX];
  pthread_mutex_lock(&trust->lock);
  int wrong = status == HV_OK && hv_peer_is_known(&trust->expected) && !hv_peer_equal(&peer, &trust->expected);
  if (status != HV_OK)
    snprintf(trust->why, sizeof trust->why, "%s did not prove its identity: %.300s", trust->where, err.text);
  else if (wrong)
    hv_trust_print_other(trust->where, hv_peer_print(&peer, found), hv_peer_print(&trust->expected, wanted), trust->why);
  else if (apart)
    hv_admission_explain(apart, trust->where, &shown, now_s, trust->why);
  trust->denied = wrong                         ? HV_CAUSE_OTHER_PEER
                  : status == HV_OK             ? apart
                  : err.cause == HV_CAUSE_CLOCK ? HV_CAUSE_CLOCK
                                                : HV_CAUSE_BAD_CERTIFICATE;
  int right = !trust->denied;
  trust->saw_closed = right && is_closed && !trust->swarm;
  if (!right)
    memcpy(why, trust->why, sizeof trust->why);
  pthread_mutex_unlock(&trust->lock);
  return right;
}

int hv_trust_saw_closed(hv_trust *trust) {
  pthread_mutex_lock(&trust->lock);
  int saw = trust->saw_closed;
  pthread_mutex_unlock(&trust->lock);
  return saw;
}

hv_cause hv_trust_denied(hv_trust *trust, char why[HV_TRUST_TEXT_MAX]) {
  pthread_mutex_lock(&trust->lock);
  hv_cause denied = trust->denied;
  if (denied)
    memcpy(why, trust->why, sizeof trust->why);
  pthread_mutex_unlock(&trust->lock);
  return denied;
}

void hv_trust_forget(hv_trust *trust) {
  pthread_mutex_lock(&trust->lock);
  trust->denied = HV_CAUSE_OTHER;
  trust->saw_closed = 0;
  pthread_mutex_unlock(&trust->lock);
}

/* Keeps what a certificate says, if there is memory for it. */
static void remember(hv_trust_entry *entry, hv_mem *mem, hv_span pem, const hv_peer_id *peer, const hv_membership *shown) {
  char *copy = hv_mem_text(mem, (const char *)pem.data, pem.size);
  hv_membership *kept = copy && shown ? hv_mem_alloc(mem, sizeof *kept) : NULL;
  if (!copy || (shown && !kept)) {
    hv_mem_free(copy);
    return;
  }
  if (kept)
    *kept = *shown;
  hv_mem_free(entry->pem);
  hv_mem_free(entry->shown);
  *entry = (hv_trust_entry){copy, pem.size, *peer, kept};
}

hv_status hv_trust_known_peer(hv_trust_known *known, hv_mem *mem, hv_span pem, const hv_admission *admission, hv_peer_id *out,
                              hv_membership *shown) {
  hv_trust_entry *entry = &known->entries[XXH3_64bits(pem.data, pem.size) % HV_TRUST_KNOWN];
  hv_membership proved = {0};
  hv_status status = HV_OK;
  if (entry->pem && entry->size == pem.size && memcmp(entry->pem, pem.data, pem.size) == 0) {
    *out = entry->peer;
    if (shown && entry->shown)
      proved = *entry->shown;
  } else {
    status = read_certificate(pem, admission, hv_clock_unix_s(), out, &proved, NULL, NULL);
    if (status == HV_OK)
      remember(entry, mem, pem, out, admission ? &proved : NULL);
  }
  if (shown)
    *shown = proved;
  return status;
}

void hv_trust_known_addr(hv_trust_known *known, const char *uri, hv_addr *out) {
  size_t size = strlen(uri), i = XXH3_64bits(uri, size) % HV_TRUST_KNOWN;
  if (size && strcmp(known->addrs[i].uri, uri) == 0) {
    *out = known->addrs[i].addr;
    return;
  }
  hv_listen_read_uri(uri, out);
  if (size < HV_TRUST_URI_MAX) {
    memcpy(known->addrs[i].uri, uri, size + 1);
    known->addrs[i].addr = *out;
  }
}

void hv_trust_known_fini(hv_trust_known *known) {
  for (size_t i = 0; i < HV_TRUST_KNOWN; i++) {
    hv_mem_free(known->entries[i].pem);
    hv_mem_free(known->entries[i].shown);
  }
  memset(known, 0, sizeof *known);
}

void hv_trust_claim(const hv_peer_id *me, char out[HV_CLAIM_MAX]) {
  for (size_t i = 0; i < sizeof me->key; i++)
    snprintf(out + 2 * i, 3, "%02x", me->key[i]);
}

static int digit(uint8_t c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

hv_status hv_trust_claimed(hv_span text, hv_peer_id *out) {
  if (text.size != HV_CLAIM_MAX - 1)
    return HV_DENIED;
  for (size_t i = 0; i < sizeof out->key; i++) {
    int high = digit(text.data[2 * i]), low = digit(text.data[2 * i + 1]);
    if (high < 0 || low < 0)
      return HV_DENIED;
    out->key[i] = (uint8_t)(high << 4 | low);
  }
  return hv_peer_is_weak(out) ? HV_DENIED : HV_OK;
}
