/* The limit on what a hive sends in bulk (contract in hivemind_c.h). */
#include "net/hive/hive_inner.h"

static void start_limit_upload(hv_hive_op *o, hv_node *node) {
  (void)node;
  hv_loop_limit_upload(hv_hive_loop(o->hive), o->u.upload_rate);
  hv_hive_end_op(o, HV_OK, "");
}

hv_status hv_hive_limit_upload(hv_hive *hive, uint64_t rate, hv_error *err) {
  if (hv_hive_usable(hive) != HV_OK)
    return hv_fail(err, HV_FORKED, "cannot use this node: it was started before fork(); use it in the parent process");
  hv_hive_op *o = hv_hive_new_op(hive, start_limit_upload);
  if (o)
    o->u.upload_rate = rate;
  return hv_hive_ask(o, err);
}
