/* How many unary calls a second? Ours (hv_env over the real loop: messages, identities, steps of a core) against bare gRPC core,
 * each with client and server in a process of its own, on loopback. 64 bytes there and back, WINDOW calls under way. Arguments:
 * ours_tls | bare_tls | ours_plain | bare_plain, [calls under way], [seconds]. Prints one JSON line. */
#include "bare.h"

#include <signal.h>

enum { BYTES = 64, WINDOW_MAX = 1024 };

static int window = 32;
static uint64_t measured_us = 2000000, warm_us = 300000;
static const char question[BYTES] = "some sixty-four bytes, as a short question to a peer would have";

/* Counts what comes between the warming up and the end; 1: go on. */
typedef struct counter {
  uint64_t begin_us, end_us, calls, failed;
} counter;

static int count(counter *c, int ok) {
  uint64_t now = hv_clock_us();
  c->calls += now >= c->begin_us && now < c->end_us;
  c->failed += !ok;
  return now < c->end_us;
}

/* ---- ours ---- */

typedef struct our_core {
  hv_env *env;
  hv_target to;
  counter counter;
  hv_call calls[WINDOW_MAX];
  int under_way;
  atomic_int over;
} our_core;

static void ask(our_core *core, hv_call *call) {
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(question, BYTES)};
  if (core->env->call(core->env, call, &msg) != HV_OK)
    die("a call could not be started");
}

static void answered(hv_call *call, const hv_event *event) {
  our_core *core = call->owner;
  if (count(&core->counter, event->status == HV_OK && event->msg->u.echo.bytes.size == BYTES))
    ask(core, call);
  else if (--core->under_way == 0)
    atomic_store(&core->over, 1);
}

static void client_step(void *self, const hv_event *event) {
  our_core *core = self;
  if (hv_event_dispatch(event))
    return;
  if (event->kind == HV_EVENT_STOP)
    core->env->stopped(core->env);
  if (event->kind != HV_EVENT_START)
    return;
  uint64_t now = hv_clock_us();
  core->counter.begin_us = now + warm_us;
  core->counter.end_us = now + warm_us + measured_us;
  for (; core->under_way < window; core->under_way++) {
    core->calls[core->under_way] = (hv_call){.done = answered, .owner = core, .to = core->to, .timeout_ms = 10000};
    ask(core, &core->calls[core->under_way]);
  }
}

static void server_step(void *self, const hv_event *event) {
  our_core *core = self;
  if (event->kind == HV_EVENT_REQUEST)
    core->env->reply(core->env, event->request, event->msg);
}

static void serve_ours(int tls, int tell) {
  static hv_mem mem;
  static our_core core;
  hv_target me;
  hv_loop *loop = our_loop(&mem, 2, tls, 1, &me);
  core.env = hv_loop_env(loop);
  hv_loop_run(loop, &(hv_core){&core, server_step}, NULL);
  tell_port(tell, me.addr.port);
  pause();
}

static counter ask_ours(uint16_t port, int tls) {
  static hv_mem mem;
  static our_core core;
  hv_target me;
  hv_loop *loop = our_loop(&mem, 1, tls, 0, &me);
  core.env = hv_loop_env(loop);
  core.to = our_server(port);
  hv_loop_run(loop, &(hv_core){&core, client_step}, NULL);
  while (!atomic_load(&core.over))
    usleep(10000);
  hv_loop_stop(loop);
  return core.counter;
}

/* ---- bare ---- */

typedef struct bare_call {
  grpc_call *call;
  grpc_metadata_array in, end;
  grpc_byte_buffer *message;
  grpc_status_code code;
  grpc_slice details;
  gpr_timespec deadline;
  int cancelled, answering;
} bare_call;

static void start(bare_call *c, const grpc_op *ops, size_t n) {
  if (grpc_call_start_batch(c->call, ops, n, c, NULL) != GRPC_CALL_OK)
    die("a batch could not be started");
}

static void bare_ask(bare_call *c, grpc_channel *channel, grpc_completion_queue *cq) {
  grpc_op ops[6] = {0};
  c->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq, grpc_slice_from_static_string("/bare/Call"), NULL,
                                     gpr_time_from_micros((int64_t)hv_clock_us() + 10000000, GPR_CLOCK_MONOTONIC), NULL);
  grpc_slice bytes = grpc_slice_from_static_buffer(question, BYTES);
  grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&bytes, 1);
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  ops[1].op = GRPC_OP_SEND_MESSAGE;
  ops[1].data.send_message.send_message = request;
  ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
  ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
  ops[3].data.recv_initial_metadata.recv_initial_metadata = &c->in;
  ops[4].op = GRPC_OP_RECV_MESSAGE;
  ops[4].data.recv_message.recv_message = &c->message;
  ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
  ops[5].data.recv_status_on_client.trailing_metadata = &c->end;
  ops[5].data.recv_status_on_client.status = &c->code;
  ops[5].data.recv_status_on_client.status_details = &c->details;
  start(c, ops, 6);
  grpc_byte_buffer_destroy(request);
}

static void bare_clear(bare_call *c) {
  grpc_call_unref(c->call);
  grpc_byte_buffer_destroy(c->message);
  grpc_metadata_array_destroy(&c->in);
  grpc_metadata_array_destroy(&c->end);
  grpc_slice_unref(c->details);
  *c = (bare_call){.details = grpc_empty_slice()};
}

static counter ask_bare(uint16_t port, int tls) {
  static bare_call calls[WINDOW_MAX];
  grpc_init();
  grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
  grpc_channel *channel = bare_channel(port, tls);
  uint64_t now = hv_clock_us();
  counter counted = {.begin_us = now + warm_us, .end_us = now + warm_us + measured_us};
  for (int i = 0; i < window; i++)
    bare_ask(&calls[i], channel, cq);
  for (int under_way = window; under_way;) {
    grpc_event event = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    bare_call *c = event.tag;
    int go_on = count(&counted, c->code == GRPC_STATUS_OK && c->message && grpc_byte_buffer_length(c->message) == BYTES);
    bare_clear(c);
    if (go_on)
      bare_ask(c, channel, cq);
    else
      under_way--;
  }
  return counted;
}

static void bare_answer(bare_call *c) {
  grpc_op ops[4] = {0};
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  ops[1].op = GRPC_OP_SEND_MESSAGE;
  ops[1].data.send_message.send_message = c->message;
  ops[2].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
  ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
  ops[3].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
  ops[3].data.recv_close_on_server.cancelled = &c->cancelled;
  c->answering = 1;
  start(c, ops, 4);
}

static void serve_bare(int tls, int tell) {
  static bare_call calls[WINDOW_MAX];
  uint16_t port;
  grpc_init();
  grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
  grpc_server *server = bare_server(cq, tls, &port);
  void *method = grpc_server_register_method(server, "/bare/Call", NULL, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
  grpc_server_start(server);
  for (int i = 0; i < window; i++)
    grpc_server_request_registered_call(server, method, &calls[i].call, &calls[i].deadline, &calls[i].in, &calls[i].message, cq, cq,
                                        &calls[i]);
  tell_port(tell, port);
  for (;;) {
    grpc_event event = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    bare_call *c = event.tag;
    if (!c->answering) {
      bare_answer(c);
      continue;
    }
    bare_clear(c);
    grpc_server_request_registered_call(server, method, &c->call, &c->deadline, &c->in, &c->message, cq, cq, c);
  }
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  int ours = strncmp(mode, "ours_", 5) == 0, tls = strcmp(mode + (mode[0] ? 5 : 0), "tls") == 0;
  if (!ours && strncmp(mode, "bare_", 5) != 0)
    die("say which: ours_tls, bare_tls, ours_plain or bare_plain");
  window = argc > 2 ? atoi(argv[2]) : window;
  measured_us = argc > 3 ? (uint64_t)(atof(argv[3]) * 1e6) : measured_us;
  if (window < 1 || window > WINDOW_MAX)
    die("1 to 1024 calls under way");
  uint16_t port;
  int told;
  pid_t server = start_server(ours ? serve_ours : serve_bare, tls, &port, &told);
  counter counted = ours ? ask_ours(port, tls) : ask_bare(port, tls);
  kill(server, SIGTERM);
  waitpid(server, NULL, 0);
  double seconds = (double)measured_us / 1e6, cpu = cpu_s();
  printf("{\"calls_per_s\":%.0f,\"failed\":%llu,\"cpu_s\":%.3f}\n", (double)counted.calls / seconds,
         (unsigned long long)counted.failed, cpu);
  return 0;
}
