/* A program's questions about its place in a closed swarm (contract in hivemind_c.h). */
#include "net/hive/hive_inner.h"

int hv_hive_refused(hv_hive *hive, hv_cause *cause, char out[HV_MSG_TEXT_MAX]) {
  return hv_hive_usable(hive) == HV_OK && hv_closed_refused(hv_hive_closed(hive), cause, out);
}

size_t hv_hive_denials(hv_hive *hive, uint8_t *out, size_t max, hv_hive_denials_told *told) {
  *told = (hv_hive_denials_told){0};
  return hv_hive_usable(hive) == HV_OK ? hv_closed_denials(hv_hive_closed(hive), out, max, told) : 0;
}

static void start_take(hv_hive_op *o, hv_node *node) {
  hv_status status = hv_spread_take(hv_node_spread(node), o->u.denials);
  hv_closed_keep(hv_hive_closed(o->hive), hv_hive_mem(o->hive), node);
  hv_hive_end_op(o, status, "this list of denials is none of this swarm, or the list is full");
}

hv_status hv_hive_deny(hv_hive *hive, hv_span list, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_hive_op *o = hv_hive_new_op(hive, start_take);
  if (o)
    o->u.denials = list;
  return hv_hive_ask(o, err);
}

static void start_renew(hv_hive_op *o, hv_node *node) {
  hv_closed *closed = hv_hive_closed(o->hive);
  hv_status status = hv_loop_renew(hv_hive_loop(o->hive), o->u.renewed);
  if (status == HV_OK) {
    hv_closed_take(closed, o->u.renewed);
    hv_closed_keep(closed, hv_hive_mem(o->hive), node);
  }
  hv_hive_end_op(o, status,
                 status == HV_UNSUPPORTED
                     ? "cannot renew the invitation: gRPC cannot replace this node's certificate without /proc; "
                       "start the program again"
                     : "cannot renew the invitation: no certificate could be made; raise the memory limit");
}

hv_status hv_hive_renew(hv_hive *hive, const char *invite, int64_t *end_s, hv_error *err) {
  hv_credentials renewed;
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_status status = hv_closed_read_renewed(hv_hive_closed(hive), hv_hive_mem(hive), invite, &renewed, err);
  if (status != HV_OK)
    return status;
  *end_s = renewed.admission.me.invitation.end_s;
  hv_hive_op *o = hv_hive_new_op(hive, start_renew);
  if (o)
    o->u.renewed = &renewed;
  status = hv_hive_ask(o, err);
  hv_credentials_fini(&renewed);
  return status;
}

void hv_hive_membership(hv_hive *hive, char out[HV_MEMBERSHIP_TEXT_MAX]) {
  hv_closed_membership(hv_hive_closed(hive), out);
}

size_t hv_hive_proof(hv_hive *hive, uint8_t out[HV_PROOF_MAX]) {
  return hv_closed_proof(hv_hive_closed(hive), hv_hive_peer(hive), out);
}

void hv_hive_proved(hv_hive *hive, hv_span proof, const hv_peer_id *peer, char out[HV_MEMBERSHIP_TEXT_MAX]) {
  hv_closed_proved(hv_hive_closed(hive), proof, peer, out);
}
