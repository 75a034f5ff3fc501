/* Lists of denials, as a holder of the swarm's key makes and checks them (contract in invitation.h). */
#include "net/invitation.h"

#include <string.h>

enum { OLD_SERIAL = 8, OLD_ENTRY = 32, OLD_SIGNATURE = 64, OLD_MAX = 1024 };

static const char old_domain[] = "hv:denials";

static int is_signed(void *arg, hv_span bytes, const uint8_t signature[64]) {
  return hv_identity_verify(arg, HV_DENIALS_DOMAIN, bytes, signature);
}

static hv_status no_memory(hv_error *err) {
  return hv_fail(err, HV_NOMEM, "cannot make the list of denials: no memory; raise the memory limit");
}

static hv_status is_full(hv_error *err) {
  return hv_fail(err, HV_TOO_LARGE, "cannot deny more: the list has %d entries; take denials back, or make a new swarm key",
                 HV_DENIALS_MAX);
}

hv_status hv_denials_join(hv_mem *mem, const hv_peer_id *swarm, hv_span one, hv_span other, int64_t now_s, hv_span *out,
                          hv_error *err) {
  hv_span parts[] = {one, other};
  hv_status status = hv_denials_check(one) == HV_OK && hv_denials_check(other) == HV_OK ? HV_OK : HV_MALFORMED;
  uint8_t *lists = hv_mem_alloc(mem, 2 * HV_DENIALS_BYTES_MAX);
  size_t size = 0, added;
  if (!lists)
    return no_memory(err);
  for (int i = 0; i < 2 && status == HV_OK; i++) {
    uint8_t *from = lists + (i ? HV_DENIALS_BYTES_MAX : 0), *to = lists + (i ? 0 : HV_DENIALS_BYTES_MAX);
    status = hv_denials_merge(hv_span_of(from, size), parts[i], now_s, is_signed, (void *)swarm, to, &size, &added);
  }
  *out = hv_span_of(lists, size);
  if (status == HV_OK)
    return HV_OK;
  hv_mem_free(lists);
  if (status == HV_TOO_LARGE)
    return is_full(err);
  return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION, "it is cut or damaged, or of another swarm");
}

static hv_status read_subject(const char *id, uint8_t subject[32], hv_error *err) {
  hv_peer_id peer;
  hv_span text = hv_span_of(id, strlen(id));
  if (hv_invitation_parse(text, subject))
    return HV_OK;
  if (hv_peer_parse(text, &peer, NULL) != HV_OK)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION,
                      "this is no ID of an invitation (inv-, 16 digits), no peer ID (12D3Koo...), and no name in the record of "
                      "invitations; give an ID that the monitor shows, or a name of hivemind-invite --list");
  memcpy(subject, peer.key, 32);
  return HV_OK;
}

static hv_status sign(const hv_identity *swarm_key, const hv_denial *denial, uint8_t out[HV_DENIAL_BYTES], hv_error *err) {
  hv_denials_print(denial, out);
  hv_status status = hv_identity_sign(swarm_key, HV_DENIALS_DOMAIN, hv_span_of(out, HV_DENIAL_SIGNED), out + HV_DENIAL_SIGNED);
  return status == HV_OK ? HV_OK : hv_fail(err, status, "cannot sign the list of denials: %s", hv_status_text(status));
}

/* The entries that change, in their order. */
static hv_status write_changes(const hv_identity *swarm_key, hv_span before, const hv_denials_order *order, uint8_t *out,
                               size_t *size, hv_error *err) {
  hv_denial denial = {.number = order->number, .end_s = order->end_s}, known;
  hv_status status = read_subject(order->id, denial.subject, err);
  *size = 0;
  if (status == HV_OK && !order->allow) {
    *size = HV_DENIAL_BYTES;
    return sign(swarm_key, &denial, out, err);
  }
  for (size_t i = 0; i < hv_denials_count(before) && status == HV_OK; i++) {
    hv_denials_at(before, i, &known);
    if (known.taken_back || memcmp(known.subject, denial.subject, sizeof known.subject) != 0)
      continue;
    known.taken_back = 1;
    status = sign(swarm_key, &known, out + *size, err);
    *size += HV_DENIAL_BYTES;
  }
  if (status == HV_OK && !*size)
    return hv_fail(err, HV_NOT_FOUND, "cannot take back a denial of %.64s: the list has none; see hivemind-invite --list",
                   order->id);
  return status;
}

hv_status hv_denials_change(hv_mem *mem, const hv_identity *swarm_key, hv_span before, const hv_denials_order *order, int64_t now_s,
                            hv_span *out, hv_error *err) {
  size_t size, added;
  uint8_t *changes = hv_mem_alloc(mem, HV_DENIALS_BYTES_MAX), *both = hv_mem_alloc(mem, HV_DENIALS_BYTES_MAX);
  hv_status status = changes && both ? write_changes(swarm_key, before, order, changes, &size, err) : no_memory(err);
  if (status == HV_OK)
    status = hv_denials_merge(before, hv_span_of(changes, size), now_s, is_signed, (void *)hv_identity_peer(swarm_key), both, &size,
                              &added);
  if (status == HV_TOO_LARGE)
    is_full(err);
  *out = hv_span_of(both, size);
  hv_mem_free(changes);
  if (status != HV_OK)
    hv_mem_free(both);
  return status;
}

hv_status hv_denials_upgrade(hv_mem *mem, const hv_identity *swarm_key, hv_span old, hv_span *out, hv_error *err) {
  size_t n = old.size < OLD_SERIAL + OLD_SIGNATURE ? 0 : (old.size - OLD_SERIAL - OLD_SIGNATURE) / OLD_ENTRY;
  size_t size = OLD_SERIAL + n * OLD_ENTRY;
  if (old.size != size + OLD_SIGNATURE || n > OLD_MAX ||
      !hv_identity_verify(hv_identity_peer(swarm_key), old_domain, hv_span_of(old.data, size), old.data + size))
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_INVITATION, "it is cut or damaged, or of another swarm");
  uint8_t *entries = hv_mem_alloc(mem, n ? n * HV_DENIAL_BYTES : 1);
  hv_status status = entries ? HV_OK : no_memory(err);
  for (size_t i = 0; i < n && status == HV_OK; i++) { /* number 0: two holders make the same entries of one list */
    hv_denial denial = {.end_s = HV_DENIALS_NO_END};
    memcpy(denial.subject, old.data + OLD_SERIAL + i * OLD_ENTRY, OLD_ENTRY);
    status = sign(swarm_key, &denial, entries + i * HV_DENIAL_BYTES, err);
  }
  *out = hv_span_of(entries, n * HV_DENIAL_BYTES);
  if (status != HV_OK)
    hv_mem_free(entries);
  return status;
}
