/* How long does a small call take while bulk fills the line? Two peers of bench_wan, each with our loop: peer 1 opens a heavy
 * stream to peer 0, over which megabytes come (down), go (up) or do both, and asks peer 0 for an echo every 50 ms meanwhile.
 * Arguments: down | up | both | idle, [seconds]. Peer 1 prints one JSON line: the calls' median and 95th percentile, and the share
 * of MBIT (environment: WAN_MBIT) that the bulk reached. */
#include "bare.h"

#include <arpa/inet.h>

enum { PORT = 7700, PIECE = 1 << 20, CALLS_MAX = 4096, ASK_US = 50000, WARM_US = 3000000 };

static const char end_word[] = "end";

typedef struct our_core {
  hv_env *env;
  hv_target to;
  hv_payload *payload;
  hv_stream *stream;
  hv_timer ask_again;
  hv_call call;
  int pours, asks, bytes_from_us, ends;
  uint64_t begin_us, end_us, asked_us, bytes, took_us[CALLS_MAX];
  size_t n;
  atomic_int over;
} our_core;

static void pour(our_core *core) {
  hv_msg header = {.kind = HV_MSG_PARCEL};
  while (core->pours && core->env->stream_send(core->env, core->stream, &header, core->payload) == HV_OK)
    header.u.parcel.offset += PIECE;
}

static void data(hv_stream *stream, const hv_event *event) {
  our_core *core = stream->owner;
  uint64_t now = hv_clock_us();
  if (event->payload && now >= core->begin_us && now < core->end_us)
    core->bytes += event->payload->size;
}

static void ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  pour(stream->owner);
}

static void closed(hv_stream *stream, const hv_event *event) {
  our_core *core = stream->owner;
  (void)event;
  core->pours = 0;
  core->stream = NULL;
}

static const hv_stream_events bulk = {data, ready, closed, .heavy = 1};

static void ask(our_core *core, const char *word) {
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(word, strlen(word))};
  core->asked_us = hv_clock_us();
  if (core->env->call(core->env, &core->call, &msg) != HV_OK)
    die("a call could not be started");
}

static void answered(hv_call *call, const hv_event *event) {
  our_core *core = call->owner;
  uint64_t now = hv_clock_us();
  if (core->ends) {
    atomic_store(&core->over, 1);
    return;
  }
  if (event->status != HV_OK)
    die("a call failed");
  if (core->asked_us >= core->begin_us && core->n < CALLS_MAX)
    core->took_us[core->n++] = now - core->asked_us;
  core->ends = now >= core->end_us;
  core->env->timer_set(core->env, &core->ask_again, core->ends ? 0 : ASK_US);
}

static void asks_again(hv_timer *timer, const hv_event *event) {
  our_core *core = timer->owner;
  (void)event;
  ask(core, core->ends ? end_word : "?");
}

static void client_step(void *self, const hv_event *event) {
  our_core *core = self;
  if (hv_event_dispatch(event))
    return;
  if (event->kind == HV_EVENT_STOP)
    core->env->stopped(core->env);
  if (event->kind != HV_EVENT_START)
    return;
  hv_msg first = {.kind = HV_MSG_PARCEL, .u.parcel.offset = (uint64_t)core->bytes_from_us};
  if (core->asks && core->env->stream_open(core->env, &core->to, &first, &bulk, core, &core->stream) != HV_OK)
    die("the stream could not be opened");
  if (core->asks)
    pour(core);
  ask(core, "?");
}

static void server_step(void *self, const hv_event *event) {
  our_core *core = self;
  if (hv_event_dispatch(event))
    return;
  if (event->kind == HV_EVENT_STREAM_OPENED) {
    event->stream->on = &bulk;
    event->stream->owner = core;
    core->stream = event->stream;
    core->pours = event->msg->u.parcel.offset != 0;
    pour(core);
  }
  if (event->kind != HV_EVENT_REQUEST)
    return;
  core->env->reply(core->env, event->request, event->msg);
  if (event->msg->u.echo.bytes.size == sizeof end_word - 1)
    atomic_store(&core->over, 1);
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static hv_loop *loop_at(hv_mem *mem, uint8_t number, const char *address, our_core *core) {
  hv_error err = {0};
  hv_loop *loop;
  hv_addr at = {.kind = HV_ADDR_IP4, .port = PORT};
  inet_pton(AF_INET, address, at.host.ip);
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(mem, (uint8_t[32]){number});
  hv_loop_config config = {.mem = mem, .identity = identity, .listen = &at, .n_listen = 1, .pool_threads = 1};
  if (hv_loop_new(&config, &loop, &err) != HV_OK)
    die(err.text);
  core->env = hv_loop_env(loop);
  return loop;
}

int main(int argc, char **argv) {
  static hv_mem mem;
  static our_core core;
  static uint8_t bytes[PIECE];
  const char *mode = argc > 1 ? argv[1] : "", *peer = getenv("WAN_PEER"), *address = getenv("WAN_ADDRESS"),
             *mbit = getenv("WAN_MBIT");
  double seconds = argc > 2 ? atof(argv[2]) : 10;
  if (!peer || !address || !strstr("down up both idle", mode) || !*mode)
    die("bench_wan 2 ... bench_control down | up | both | idle [seconds]");
  int client = strcmp(peer, "0") != 0;
  core.call = (hv_call){.done = answered, .owner = &core, .timeout_ms = 60000};
  core.ask_again = (hv_timer){.fire = asks_again, .owner = &core};
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)(i * 2654435761u >> 13);
  hv_loop *loop = loop_at(&mem, client ? 1 : 2, address, &core);
  core.payload = hv_payload_borrow(&mem, bytes, PIECE, NULL, NULL);
  if (client) {
    usleep(500000);
    hv_identity *other = hv_identity_from_seed(&mem, (uint8_t[32]){2});
    core.to = (hv_target){.id = *hv_identity_peer(other), .addr = {.kind = HV_ADDR_IP4, .port = PORT, .host.ip = {10, 77, 0, 1}}};
    core.call.to = core.to;
    core.asks = strcmp(mode, "idle") != 0;
    core.pours = strcmp(mode, "up") == 0 || strcmp(mode, "both") == 0;
    core.bytes_from_us = strcmp(mode, "down") == 0 || strcmp(mode, "both") == 0;
  }
  core.begin_us = hv_clock_us() + WARM_US;
  core.end_us = core.begin_us + (uint64_t)(seconds * 1e6);
  hv_loop_run(loop, &(hv_core){&core, client ? client_step : server_step}, NULL);
  while (!atomic_load(&core.over))
    usleep(10000);
  if (!client) {
    usleep(300000);
    return 0;
  }
  if (!core.n)
    die("no call was answered");
  qsort(core.took_us, core.n, sizeof *core.took_us, compare);
  printf("{\"calls\":%zu,\"median_ms\":%.1f,\"p95_ms\":%.1f,\"most_ms\":%.1f,\"line\":%.3f}\n", core.n,
         (double)core.took_us[core.n / 2] / 1e3, (double)core.took_us[core.n * 95 / 100] / 1e3,
         (double)core.took_us[core.n - 1] / 1e3, mbit ? (double)core.bytes * 8 / seconds / 1e6 / atof(mbit) : 0);
  return 0;
}
