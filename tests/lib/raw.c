#include "lib/raw.h"

#include "lib/check.h"
#include "net/clock.h"
#include "net/transport/loop.h"

static void raw_done(hv_grpc_op *op, int ok) {
  raw_op *r = (raw_op *)op;
  r->done = 1;
  r->ok = ok;
}

raw_op raw_op_new(void) {
  return (raw_op){.op.done = raw_done};
}

int raw_wait(raw_peer *p, raw_op *op, unsigned ms) {
  for (uint64_t until = hv_clock_us() + ms * (uint64_t)1000; !op->done && hv_clock_us() < until;)
    hv_grpc_poll(p->grpc, until);
  return op->done;
}

void raw_start(raw_peer *p, int insecure, const hv_target *to) {
  hv_mem_init(&p->mem, NULL, HV_MEM_UNLIMITED);
  p->identity = hv_identity_from_seed(&p->mem, (uint8_t[32]){99});
  assert_int_equal(hv_grpc_new(&p->mem, p->identity, insecure, &p->grpc, NULL), HV_OK);
  p->channel = NULL;
  if (to)
    assert_int_equal(hv_grpc_channel_new(p->grpc, to, &p->channel), HV_OK);
}

void raw_stop(raw_peer *p) {
  hv_grpc_channel_free(p->channel);
  assert_int_equal(hv_grpc_free(p->grpc), 0);
  hv_identity_free(p->identity);
  assert_int_equal(atomic_load(&p->mem.blocks), 0);
}
