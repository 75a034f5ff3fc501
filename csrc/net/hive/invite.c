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

hv_status hv_invite_new(const char *swarm_key, int64_t end_s, const char *name, char out[HV_INVITE_TEXT_MAX],
                        char id[HV_INVITATION_TEXT_MAX], hv_error *err) {
  hv_identity *key = NULL;
  hv_invitation invitation;
  uint8_t seed[32];
  hv_mem *mem = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  if (!mem)
    return hv_fail(err, HV_NOMEM, "cannot make the invitation: no memory");
  hv_random(seed, sizeof seed);
  hv_status status = hv_swarm_key_parse(mem, hv_span_of(swarm_key, strlen(swarm_key)), &key, err);
  if (status == HV_OK)
    status = hv_invite_make(mem, key, seed, end_s, name, out, &invitation, err);
  if (status == HV_OK)
    hv_invitation_print(&invitation, id);
  explicit_bzero(seed, sizeof seed);
  hv_identity_free(key);
  hv_mem_drop(mem);
  return status;
}

hv_status hv_denials_new(hv_mem *mem, const char *swarm_key, hv_span before, const char *id, hv_span *out, hv_error *err) {
  hv_identity *key = NULL;
  int64_t now_s = hv_clock_unix_s();
  hv_status status = hv_swarm_key_parse(mem, hv_span_of(swarm_key, strlen(swarm_key)), &key, err);
  if (status == HV_OK) /* by the clock, so that two holders with a list each have one order */
    status = hv_denials_add(mem, key, before, id, now_s > 0 ? (uint64_t)now_s : 0, out, err);
  hv_identity_free(key);
  return status;
}
