/* How many bytes a second in bulk? One stream on loopback, sender and receiver in a process of its own each: ours (hv_env over the
 * real loop), bare gRPC core, and a raw TCP socket. The receiver counts. Nobody copies or looks at the bytes. Arguments: ours_tls |
 * bare_tls | ours_plain | bare_plain | tcp, [bytes of a message, 1 MiB], [seconds]. Prints one JSON line. */
#include "bare.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

enum { MESSAGE_MAX = 4 << 20 };

static size_t message_bytes = 1 << 20;
static uint64_t measured_us = 2000000, warm_us = 500000;
static uint8_t bytes[MESSAGE_MAX];

/* The receiver's: begins to count `warm_us` after the first bytes, and tells the outcome when it has counted for `measured_us`. */
typedef struct counter {
  uint64_t begin_us, first_us, last_us, bytes;
  int tell, told;
} counter;

static void count(counter *c, size_t size) {
  uint64_t now = hv_clock_us();
  if (!c->begin_us)
    c->begin_us = now + warm_us;
  if (now < c->begin_us || c->told)
    return;
  if (!c->first_us)
    c->first_us = now; /* the bytes that end here came before */
  else
    c->bytes += size;
  c->last_us = now;
  if (now < c->begin_us + measured_us)
    return;
  double gb_per_s = (double)c->bytes / 1e3 / (double)(c->last_us - c->first_us);
  if (write(c->tell, &gb_per_s, sizeof gb_per_s) != sizeof gb_per_s)
    exit(1);
  c->told = 1;
}

/* ---- ours ---- */

typedef struct our_core {
  hv_env *env;
  hv_target to;
  hv_payload *payload;
  hv_stream *stream;
  counter counter;
} our_core;

static void nothing(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void data(hv_stream *stream, const hv_event *event) {
  if (event->payload)
    count(&((our_core *)stream->owner)->counter, event->payload->size);
}

static void pour(our_core *core) {
  hv_msg header = {.kind = HV_MSG_PARCEL};
  while (core->env->stream_send(core->env, core->stream, &header, core->payload) == HV_OK)
    header.u.parcel.offset += message_bytes;
}

static void ready(hv_stream *stream, const hv_event *event) {
  (void)event;
  pour(stream->owner);
}

static const hv_stream_events sender = {nothing, ready, nothing, .heavy = 0}, receiver = {data, nothing, nothing, .heavy = 0};

static void step(void *self, const hv_event *event) {
  our_core *core = self;
  if (hv_event_dispatch(event))
    return;
  if (event->kind == HV_EVENT_STOP)
    core->env->stopped(core->env);
  if (event->kind == HV_EVENT_STREAM_OPENED) {
    event->stream->on = &receiver;
    event->stream->owner = core;
  }
  if (event->kind != HV_EVENT_START || !core->to.addr.port)
    return;
  hv_msg first = {.kind = HV_MSG_PARCEL};
  if (core->env->stream_open(core->env, &core->to, &first, &sender, core, &core->stream) != HV_OK)
    die("the stream could not be opened");
  pour(core);
}

static void receive_ours(int tls, int tell) {
  static hv_mem mem;
  static our_core core;
  hv_target me;
  hv_loop *loop = our_loop(&mem, 2, tls, 1, &me);
  core.env = hv_loop_env(loop);
  core.counter.tell = tell;
  hv_loop_run(loop, &(hv_core){&core, step}, NULL);
  tell_port(tell, me.addr.port);
  pause();
}

static void send_ours(uint16_t port, int tls) {
  static hv_mem mem;
  static our_core core;
  hv_target me;
  hv_loop *loop = our_loop(&mem, 1, tls, 0, &me);
  core.env = hv_loop_env(loop);
  core.to = our_server(port);
  core.payload = hv_payload_borrow(&mem, bytes, message_bytes, NULL, NULL);
  hv_loop_run(loop, &(hv_core){&core, step}, NULL);
}

/* ---- bare ---- */

static grpc_op ops[4];

static void batch(grpc_call *call, size_t n, intptr_t tag) {
  if (grpc_call_start_batch(call, ops, n, (void *)tag, NULL) != GRPC_CALL_OK)
    die("a batch could not be started");
  memset(ops, 0, sizeof ops);
}

static void send_bare(uint16_t port, int tls) {
  static grpc_metadata_array in, end;
  static grpc_status_code code;
  static grpc_slice details;
  grpc_init();
  grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
  grpc_call *call =
      grpc_channel_create_call(bare_channel(port, tls), NULL, GRPC_PROPAGATE_DEFAULTS, cq,
                               grpc_slice_from_static_string("/bare/Bulk"), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  ops[0].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
  ops[0].data.recv_status_on_client.trailing_metadata = &end;
  ops[0].data.recv_status_on_client.status = &code;
  ops[0].data.recv_status_on_client.status_details = &details;
  batch(call, 1, 1);
  ops[0].op = GRPC_OP_RECV_INITIAL_METADATA;
  ops[0].data.recv_initial_metadata.recv_initial_metadata = &in;
  batch(call, 1, 2);
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  batch(call, 1, 3);
  for (;;) {
    grpc_event event = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (event.tag == (void *)1)
      die("the bare stream broke");
    if (event.tag != (void *)3)
      continue;
    grpc_slice slice = grpc_slice_from_static_buffer(bytes, message_bytes);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    ops[0].op = GRPC_OP_SEND_MESSAGE;
    ops[0].data.send_message.send_message = message;
    batch(call, 1, 3);
    grpc_byte_buffer_destroy(message);
  }
}

static void receive_bare(int tls, int tell) {
  uint16_t port;
  grpc_call *call;
  grpc_metadata_array in;
  gpr_timespec deadline;
  grpc_byte_buffer *message = NULL;
  int cancelled;
  counter counted = {.tell = tell};
  grpc_init();
  grpc_metadata_array_init(&in);
  grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
  grpc_server *server = bare_server(cq, tls, &port);
  void *method = grpc_server_register_method(server, "/bare/Bulk", NULL, GRPC_SRM_PAYLOAD_NONE, 0);
  grpc_server_start(server);
  grpc_server_request_registered_call(server, method, &call, &deadline, &in, NULL, cq, cq, (void *)1);
  tell_port(tell, port);
  grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  batch(call, 1, 2);
  ops[0].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
  ops[0].data.recv_close_on_server.cancelled = &cancelled;
  batch(call, 1, 4);
  for (intptr_t tag = 3;;) {
    if (tag == 3) {
      ops[0].op = GRPC_OP_RECV_MESSAGE;
      ops[0].data.recv_message.recv_message = &message;
      batch(call, 1, 3);
    }
    tag = (intptr_t)grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).tag;
    if (tag == 4)
      return;
    if (tag == 3 && message) {
      count(&counted, grpc_byte_buffer_length(message));
      grpc_byte_buffer_destroy(message);
    }
  }
}

/* ---- a raw socket ---- */

static void receive_tcp(int tls, int tell) {
  (void)tls;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  counter counted = {.tell = tell};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)&at, &size))
    die("no port");
  tell_port(tell, ntohs(at.sin_port));
  int in = accept(fd, NULL, NULL);
  for (ssize_t n; (n = recv(in, bytes, message_bytes, 0)) > 0;)
    count(&counted, (size_t)n);
}

static void send_tcp(uint16_t port, int tls) {
  (void)tls;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (struct sockaddr *)&at, sizeof at))
    die("no connection");
  while (send(fd, bytes, message_bytes, MSG_NOSIGNAL) > 0) {
  }
}

/* ---- */

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  int ours = strncmp(mode, "ours_", 5) == 0, tcp = strcmp(mode, "tcp") == 0, tls = strstr(mode, "_tls") != NULL;
  if (!ours && !tcp && strncmp(mode, "bare_", 5) != 0)
    die("say which: ours_tls, bare_tls, ours_plain, bare_plain or tcp");
  message_bytes = argc > 2 ? (size_t)atol(argv[2]) : message_bytes;
  measured_us = argc > 3 ? (uint64_t)(atof(argv[3]) * 1e6) : measured_us;
  if (message_bytes < 1 || message_bytes > MESSAGE_MAX)
    die("1 byte to 4 MiB");
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)(i * 2654435761u >> 13);
  uint16_t port;
  int told;
  pid_t receiving = start_server(ours ? receive_ours : tcp ? receive_tcp : receive_bare, tls, &port, &told);
  pid_t sending = fork();
  if (sending == 0) {
    (ours ? send_ours : tcp ? send_tcp : send_bare)(port, tls);
    pause();
  }
  double gb_per_s;
  if (read(told, &gb_per_s, sizeof gb_per_s) != sizeof gb_per_s)
    die("the receiver told nothing");
  kill(sending, SIGTERM);
  kill(receiving, SIGTERM);
  waitpid(sending, NULL, 0);
  waitpid(receiving, NULL, 0);
  double cpu = cpu_s();
  printf("{\"gb_per_s\":%.3f,\"cpu_s\":%.3f,\"message_bytes\":%zu}\n", gb_per_s, cpu, message_bytes);
  return 0;
}
