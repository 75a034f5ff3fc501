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
  p->insecure = insecure;
  p->identity = hv_identity_from_seed(&p->mem, (uint8_t[32]){99});
  assert_int_equal(hv_grpc_new(&p->mem, p->identity, NULL, insecure, &p->grpc, NULL), HV_OK);
  p->channel = NULL;
  p->door = NULL;
  if (to)
    assert_int_equal(hv_grpc_channel_new(p->grpc, to, &p->channel), HV_OK);
}

uint16_t raw_serve(raw_peer *p) {
  uint16_t port = 0;
  hv_addr addr = {.kind = HV_ADDR_IP4, .host.ip = {127, 0, 0, 1}};
  hv_door_config config = {.mem = &p->mem, .greeting_ms = 5000, .take = hv_grpc_take, .arg = p->grpc};
  config.insecure = p->insecure;
  assert_int_equal(hv_grpc_make_server(p->grpc, NULL), HV_OK);
  assert_int_equal(hv_door_new(&config, &p->door, NULL), HV_OK);
  assert_int_equal(hv_door_listen(p->door, &addr, &port, NULL), HV_OK);
  hv_grpc_serve(p->grpc);
  assert_int_equal(hv_door_open(p->door, NULL), HV_OK);
  return port;
}

void raw_answer(raw_peer *p, hv_span bytes) {
  raw_op came = raw_op_new(), read = raw_op_new(), gone = raw_op_new();
  hv_grpc_call *call = hv_grpc_accept(p->grpc, HV_GRPC_CALL, &came.op);
  assert_true(raw_wait(p, &came, 5000));
  assert_true(hv_grpc_call_recv(call, &read.op) && raw_wait(p, &read, 5000));
  assert_true(hv_grpc_call_finish(call, hv_grpc_message_new(p->grpc, bytes, NULL), HV_OK, "", 1, &gone.op));
  assert_true(raw_wait(p, &gone, 5000));
  hv_grpc_call_free(call);
}

void raw_stop(raw_peer *p) {
  hv_door_free(p->door);
  hv_grpc_stop_serving(p->grpc);
  hv_grpc_channel_free(p->channel);
  assert_int_equal(hv_grpc_free(p->grpc), 0);
  hv_identity_free(p->identity);
  assert_int_equal(atomic_load(&p->mem.blocks), 0);
}
