/* Swarm keys and invitations for a program, without a hive (contract in hivemind_c.h). */
#include "hivemind_c.h"

#include "net/clock.h"
#include "net/invitation.h"

#include <string.h>

void hv_swarm_key_new(char out[HV_SWARM_KEY_TEXT_MAX]) {
  uint8_t seed[32];
  hv_random(seed, sizeof seed);
  hv_swarm_key_print(seed, out);
  explicit_bzero(seed, sizeof seed);
}

hv_status hv_invite_new(const char *swarm_key, int64_t end_s, const char *name, const char *before, char out[HV_INVITE_TEXT_MAX],
                        char id[HV_INVITATION_TEXT_MAX], hv_error *err) {
  hv_identity *key = NULL;
  hv_invitation invitation;
  uint8_t seed[32];
  hv_mem *mem = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  if (!mem)
    return hv_fail(err, HV_NOMEM, "cannot make the invitation: no memory");
  hv_random(seed, sizeof seed);
  hv_status status = hv_swarm_key_parse(mem, hv_span_of(swarm_key, strlen(swarm_key)), &key, err);
  if (status == HV_OK && before)
    status = hv_invite_seed(hv_span_of(before, strlen(before)), key, seed, err);
  if (status == HV_OK)
    status = hv_invite_make(mem, key, seed, end_s, name, out, &invitation, err);
  if (status == HV_OK)
    hv_invitation_print(&invitation, id);
  explicit_bzero(seed, sizeof seed);
  hv_identity_free(key);
  hv_mem_drop(mem);
  return status;
}

static hv_status change(hv_mem *mem, const char *swarm_key, hv_span before, const hv_denials_order *order, hv_span *out,
                        hv_error *err) {
  hv_identity *key = NULL;
  hv_span checked;
  int64_t now_s = hv_clock_unix_s();
  hv_status status = hv_swarm_key_parse(mem, hv_span_of(swarm_key, strlen(swarm_key)), &key, err);
  if (status == HV_OK)
    status = hv_denials_join(mem, hv_identity_peer(key), before, hv_span_of(NULL, 0), now_s, &checked, err);
  if (status == HV_OK) {
    status = hv_denials_change(mem, key, checked, order, now_s, out, err);
    hv_mem_free((void *)checked.data);
  }
  hv_identity_free(key);
  return status;
}

hv_status hv_denials_new(hv_mem *mem, const char *swarm_key, hv_span before, const char *id, int64_t end_s, hv_span *out,
                         hv_error *err) {
  hv_denials_order order = {.id = id, .end_s = end_s};
  hv_random(&order.number, sizeof order.number);
  return change(mem, swarm_key, before, &order, out, err);
}

hv_status hv_denials_take_back(hv_mem *mem, const char *swarm_key, hv_span before, const char *id, hv_span *out, hv_error *err) {
  return change(mem, swarm_key, before, &(hv_denials_order){.id = id, .allow = 1}, out, err);
}

hv_status hv_denials_union(hv_mem *mem, const char *swarm_key, const char *invite, hv_span one, hv_span other, hv_span *out,
                           hv_error *err) {
  hv_credentials credentials;
  hv_status status = hv_credentials_read(mem, swarm_key, invite, &credentials, err);
  if (status != HV_OK)
    return status;
  status = hv_denials_join(mem, &credentials.admission.swarm, one, other, hv_clock_unix_s(), out, err);
  hv_credentials_fini(&credentials);
  return status;
}

hv_status hv_denials_convert(hv_mem *mem, const char *swarm_key, hv_span old, hv_span *out, hv_error *err) {
  hv_identity *key = NULL;
  hv_status status = hv_swarm_key_parse(mem, hv_span_of(swarm_key, strlen(swarm_key)), &key, err);
  if (status == HV_OK)
    status = hv_denials_upgrade(mem, key, old, out, err);
  hv_identity_free(key);
  return status;
}
