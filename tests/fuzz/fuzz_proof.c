/* Any bytes in the extension of a certificate read as a proof that prints as the same bytes, or as none; none is believed that the
 * swarm's key or an invitation by it did not sign. The bytes are also taken as the text of a key and of an invitation. */
#include "net/invitation.h"

#include <stdlib.h>
#include <string.h>

static void must(int right) {
  if (!right)
    abort();
}

static void read_text(hv_span bytes) {
  char text[HV_INVITE_TEXT_MAX + 8] = {0};
  hv_mem mem;
  hv_credentials credentials;
  hv_error err = {0};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  memcpy(text, bytes.data, bytes.size < sizeof text ? bytes.size : sizeof text - 1);
  for (int as_key = 0; as_key < 2; as_key++) {
    hv_status status = hv_credentials_read(&mem, as_key ? text : NULL, as_key ? NULL : text, &credentials, &err);
    must(status == HV_OK || (status == HV_MALFORMED && err.cause == HV_CAUSE_BAD_INVITATION && err.text[0]));
    if (status == HV_OK)
      hv_credentials_fini(&credentials);
  }
  must(atomic_load(&mem.blocks) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_peer_id peer = {{9}};
  hv_proof proof;
  hv_membership shown;
  uint8_t again[HV_PROOF_MAX];
  hv_status status = hv_proof_parse(hv_span_of(data, size), &proof);
  must(status == HV_OK || status == HV_MALFORMED);
  if (status == HV_OK) {
    must(hv_proof_print(&proof, again) == size && memcmp(again, data, size) == 0);
    must(strlen(proof.shown.invitation.name) <= HV_INVITATION_NAME_MAX && proof.shown.invitation.end_s >= 0);
    hv_proof_check(hv_span_of(data, size), &peer, &proof.swarm, &shown); /* nobody can have signed for this peer */
    must(shown.kind == HV_MEMBERSHIP_NONE);
  }
  read_text(hv_span_of(data, size));
  return 0;
}
