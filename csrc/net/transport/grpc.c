#include "net/transport/grpc.h"

#include "net/clock.h"
#include "net/transport/acceptor.h"
#include "net/transport/grpc_tls.h"
#include "net/transport/handover.h"
#include "net/transport/loop.h"
#include "net/transport/outage.h"
#include "net/transport/trust.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Without TLS a caller's claim stands in "user-agent", which HPACK sends once for each connection; the answering side is asked for
 * its own (the header costs) when it is not known yet. */
#define CLAIM_KEY "user-agent"
#define CLAIM_PREFIX "hv-peer/"
#define WHO_KEY "hv-who"
#define PEER_KEY "hv-peer"
#define STATUS_KEY "hv-status"
#define CAUSE_KEY "hv-cause"
#define LANE_KEY "hv-lane-bin"

enum { LINGER_MS = 500, HELLO_META = 2 };

static const char *const method_names[HV_GRPC_METHODS] = {"/hivemind_c.Hive/Call", "/hivemind_c.Hive/Bulk"};

struct hv_grpc {
  hv_mem *mem;
  atomic_uint refs;   /* the owner and every received payload */
  hv_mem *trusts;     /* an account of their own: gRPC may hold a verifier until a reconnect would have been due */
  atomic_size_t lent; /* payloads that gRPC holds */
  int insecure;
  hv_trust_swarm *swarm; /* NULL: it is open */
  grpc_completion_queue *cq;
  hv_grpc_tls_shown shown;
  grpc_resource_quota *quota;
  grpc_server_credentials *server_credentials;
  grpc_server *server;
  void *methods[HV_GRPC_METHODS];
  hv_grpc_op served; /* the server has shut down */
  void *acceptor;    /* gRPC's, by which the server takes connections */
  int stopping, stopped;
  grpc_channel *nowhere; /* a call that never starts: an empty batch on it wakes the poll */
  grpc_call *bell;
  hv_grpc_op rung;
  atomic_int ringing;
  grpc_slice my_claim;
  char agent[sizeof CLAIM_PREFIX + HV_CLAIM_MAX];
  hv_trust_known known;
};

struct hv_grpc_channel {
  hv_grpc *grpc;
  grpc_channel *channel;
  hv_trust *trust; /* NULL without TLS */
};

struct hv_grpc_call {
  hv_grpc *grpc;
  grpc_call *call;
  int server, hello_sent, broken, claims; /* claims: says who it is, or asks for it */
  int has_lane;
  hv_cause cause; /* of a refusal */
  hv_grpc_lane lane;
  grpc_metadata_array in_meta, end_meta;
  grpc_call_details other; /* incoming, of another method: its name */
  grpc_byte_buffer *in;
  grpc_status_code code;
  grpc_slice details;
  gpr_timespec deadline;
};

/* The time that is left until then: a newer gRPC's clock is 5 s ahead of the system's. */
static gpr_timespec time_until(uint64_t us) {
  uint64_t now = hv_clock_us(), left = us > now ? us - now : 0;
  return left > INT64_MAX ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : gpr_time_from_micros((int64_t)left, GPR_TIMESPAN);
}

/* Text for people, cut to room, fit to be shown: it came from somewhere. */
static void copy_text(char *out, size_t room, const char *text, size_t size) {
  size_t n = size < room ? size : room - 1;
  for (size_t i = 0; i < n; i++)
    out[i] = text[i] ? text[i] : '?'; /* else it would end there */
  out[n] = 0;
  hv_text_clean(out);
}

/* ---- identity ---- */

static hv_span span_of(const grpc_slice *slice) {
  return hv_span_of(GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
}

static const grpc_slice *find_meta(const grpc_metadata_array *meta, const char *key) {
  for (size_t i = 0; i < meta->count; i++)
    if (grpc_slice_str_cmp(meta->metadata[i].key, key) == 0)
      return &meta->metadata[i].value;
  return NULL;
}

hv_status hv_grpc_call_peer(hv_grpc_call *call, hv_peer_id *out) {
  return hv_grpc_call_membership(call, out, NULL);
}

hv_status hv_grpc_call_membership(hv_grpc_call *call, hv_peer_id *out, hv_membership *shown) {
  hv_grpc *grpc = call->grpc;
  if (shown)
    *shown = (hv_membership){0};
  if (grpc->insecure) {
    const grpc_slice *claim = find_meta(&call->in_meta, call->server ? CLAIM_KEY : PEER_KEY);
    hv_span text = claim ? span_of(claim) : hv_span_of("", 0);
    size_t skip = call->server ? sizeof CLAIM_PREFIX - 1 : 0;
    if (text.size < skip || memcmp(text.data, CLAIM_PREFIX, skip) != 0)
      return HV_NOT_FOUND;
    size_t size = text.size - skip < HV_CLAIM_MAX ? text.size - skip : HV_CLAIM_MAX - 1; /* more may follow */
    return hv_trust_claimed(hv_span_of(text.data + skip, size), out);
  }
  grpc_auth_context *context = grpc_call_auth_context(call->call);
  if (!context)
    return HV_NOT_FOUND;
  grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property *pem = grpc_auth_property_iterator_next(&it);
  hv_status status = pem ? hv_trust_known_peer(&grpc->known, grpc->mem, hv_span_of(pem->value, pem->value_length),
                                               hv_trust_swarm_admission(grpc->swarm), out, shown)
                         : HV_NOT_FOUND;
  grpc_auth_context_release(context);
  return status;
}

/* ---- the queue ---- */

#define NUMBER(name, number)                                                                                                       \
  { .type = GRPC_ARG_INTEGER, .key = (char *)(name), .value.integer = (number) }
/* clang-format off */
#define COMMON_ARGS                                                                                                                \
  NUMBER(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, HV_GRPC_MESSAGE_MAX), NUMBER(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, HV_GRPC_MESSAGE_MAX), \
  NUMBER(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0), /* a few bytes must stay a few bytes */                                      \
  NUMBER(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),                                                                            \
  NUMBER(GRPC_ARG_KEEPALIVE_TIME_MS, 10000), NUMBER(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000),                                          \
  NUMBER(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1), NUMBER(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),                            \
  NUMBER(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000),                                                             \
  NUMBER(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 4 << 20), NUMBER(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, HV_GRPC_LOOKAHEAD),                          \
  NUMBER(GRPC_ARG_ENABLE_CHANNELZ, 0), NUMBER(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0)

static const grpc_arg client_args[] = {
    COMMON_ARGS,
    NUMBER(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
    NUMBER(GRPC_ARG_ENABLE_RETRIES, 0),
    NUMBER(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
    NUMBER(GRPC_ARG_ENABLE_HTTP_PROXY, 0), /* peers are no web servers */
    NUMBER(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200), /* a process that is being killed resets the first attempt, and refuses the next */
    NUMBER(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000), /* one attempt's time */
    NUMBER(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000),
    NUMBER(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT32_MAX), /* links knows when one is idle */
};
static const grpc_arg server_args[] = {
    COMMON_ARGS,
    NUMBER(GRPC_ARG_MAX_CONCURRENT_STREAMS, HV_GRPC_STREAMS_MAX),
    NUMBER(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000),
};
/* clang-format on */
enum { N_CLIENT_ARGS = sizeof client_args / sizeof *client_args, N_SERVER_ARGS = sizeof server_args / sizeof *server_args };

static void bell_rang(hv_grpc_op *op, int ok) {
  (void)ok;
  atomic_store(&HV_HOLDER(hv_grpc, rung, op)->ringing, 0);
}

static void server_stopped(hv_grpc_op *op, int ok) {
  (void)ok;
  HV_HOLDER(hv_grpc, served, op)->stopped = 1;
}

hv_status hv_grpc_new(hv_mem *mem, const hv_identity *identity, const hv_credentials *credentials, int insecure, hv_grpc **out,
                      hv_error *err) {
  hv_grpc *grpc = hv_mem_zalloc(mem, sizeof *grpc);
  hv_mem *trusts = hv_mem_new(NULL, HV_MEM_UNLIMITED);
  hv_trust_swarm *swarm = trusts && credentials ? hv_trust_swarm_new(trusts, &credentials->admission) : NULL;
  if (!grpc || !trusts || (credentials && !swarm)) {
    hv_trust_swarm_release(swarm);
    hv_mem_drop(trusts);
    hv_mem_free(grpc);
    return hv_fail(err, HV_NOMEM, "cannot open the network: no memory; raise the memory limit");
  }
  hv_grpc_tls_hush();
  hv_mem_keep_pages(); /* for the buffers that gRPC reads into */
  grpc_init();
  grpc->mem = mem;
  grpc->trusts = trusts;
  grpc->insecure = insecure;
  grpc->swarm = swarm;
  atomic_init(&grpc->refs, 1);
  atomic_init(&grpc->lent, 0);
  atomic_init(&grpc->ringing, 0);
  hv_status status = insecure ? HV_OK : hv_grpc_tls_show(mem, identity, credentials, &grpc->shown);
  if (status != HV_OK) {
    grpc_shutdown();
    hv_trust_swarm_release(swarm);
    hv_mem_drop(trusts);
    hv_mem_free(grpc);
    return hv_fail(err, status, "cannot create this node's certificate: %s", hv_status_text(status));
  }
  grpc->cq = grpc_completion_queue_create_for_next(NULL);
  grpc->nowhere = grpc_lame_client_channel_create("nowhere", GRPC_STATUS_UNAVAILABLE, "nowhere");
  grpc->bell = grpc_channel_create_call(grpc->nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, grpc->cq,
                                        grpc_slice_from_static_string("/bell"), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  grpc->rung.done = bell_rang;
  grpc->served.done = server_stopped;
  memcpy(grpc->agent, CLAIM_PREFIX, sizeof CLAIM_PREFIX);
  hv_trust_claim(hv_identity_peer(identity), grpc->agent + sizeof CLAIM_PREFIX - 1);
  grpc->my_claim = grpc_slice_from_copied_string(grpc->agent + sizeof CLAIM_PREFIX - 1);
  *out = grpc;
  return HV_OK;
}

hv_trust_swarm *hv_grpc_swarm(const hv_grpc *grpc) {
  return grpc->swarm;
}

hv_status hv_grpc_renew(hv_grpc *grpc, const hv_identity *identity, const hv_credentials *credentials) {
  return hv_grpc_tls_show(grpc->mem, identity, credentials, &grpc->shown);
}

/* The argument is a place that gRPC writes to: it is neither copied nor freed. */
static void *same_place(void *place) {
  return place;
}

static void leave_place(void *place) {
  (void)place;
}

static int compare_places(void *a, void *b) {
  return a < b ? -1 : a > b;
}

static const grpc_arg_pointer_vtable place_of_acceptor = {same_place, leave_place, compare_places};

static hv_status make_server(hv_grpc *grpc) {
  if (grpc->insecure) {
    grpc->server_credentials = grpc_insecure_server_credentials_create();
  } else {
    grpc->server_credentials = hv_grpc_tls_server(grpc->trusts, grpc->shown.serves, grpc->swarm);
    if (!grpc->server_credentials)
      return HV_NOMEM;
  }
  grpc->quota = grpc_resource_quota_create("incoming");
  grpc_resource_quota_resize(grpc->quota, HV_GRPC_QUOTA);
  grpc_arg args[N_SERVER_ARGS + 2];
  memcpy(args, server_args, sizeof server_args);
  args[N_SERVER_ARGS] = (grpc_arg){.type = GRPC_ARG_POINTER,
                                   .key = (char *)GRPC_ARG_RESOURCE_QUOTA,
                                   .value.pointer = {grpc->quota, grpc_resource_quota_arg_vtable()}};
  args[N_SERVER_ARGS + 1] =
      (grpc_arg){.type = GRPC_ARG_POINTER, .key = (char *)HV_ACCEPTOR_NAME, .value.pointer = {&grpc->acceptor, &place_of_acceptor}};
  grpc->server = grpc_server_create(&(grpc_channel_args){N_SERVER_ARGS + 2, args}, NULL);
  grpc_server_register_completion_queue(grpc->server, grpc->cq, NULL);
  for (int m = 0; m < HV_GRPC_METHODS; m++)
    grpc->methods[m] = grpc_server_register_method(grpc->server, method_names[m], NULL, GRPC_SRM_PAYLOAD_NONE, 0);
  return HV_OK;
}

hv_status hv_grpc_make_server(hv_grpc *grpc, hv_error *err) {
  if (make_server(grpc) != HV_OK)
    return hv_fail(err, HV_NOMEM, "cannot listen: no memory; raise the memory limit");
  grpc_server_add_http2_port(grpc->server, HV_ACCEPTOR_NAME, grpc->server_credentials);
  if (grpc->acceptor)
    return HV_OK;
  return hv_fail(
      err, HV_UNSUPPORTED,
      "cannot listen: gRPC %s takes no connections from this program (it has no external acceptor); install gRPC 1.51 or "
      "later, or start as a client (client_mode=True)",
      hv_grpc_loaded());
}

const char *hv_grpc_loaded(void) {
  return grpc_version_string();
}

void hv_grpc_serve(hv_grpc *grpc) {
  if (grpc->server)
    grpc_server_start(grpc->server);
}

void hv_grpc_take(void *grpc, int fd) {
  hv_acceptor_take(((hv_grpc *)grpc)->acceptor, fd);
}

int hv_grpc_poll(hv_grpc *grpc, uint64_t until_us) {
  grpc_event event = grpc_completion_queue_next(grpc->cq, time_until(until_us), NULL);
  if (event.type != GRPC_OP_COMPLETE)
    return 0;
  hv_grpc_op *op = event.tag;
  op->done(op, event.success);
  return 1;
}

void hv_grpc_wake(hv_grpc *grpc) {
  if (atomic_exchange(&grpc->ringing, 1) == 0)
    grpc_call_start_batch(grpc->bell, NULL, 0, &grpc->rung, NULL);
}

void hv_grpc_stop_serving(hv_grpc *grpc) {
  if (!grpc->server || grpc->stopping)
    return;
  grpc->stopping = 1;
  grpc_server_shutdown_and_notify(grpc->server, grpc->cq, &grpc->served);
  grpc_server_cancel_all_calls(grpc->server);
}

static void release(hv_grpc *grpc) {
  if (atomic_fetch_sub(&grpc->refs, 1) == 1) {
    hv_mem_free(grpc);
    grpc_shutdown();
  }
}

size_t hv_grpc_free(hv_grpc *grpc) {
  hv_grpc_stop_serving(grpc);
  while (grpc->server && !grpc->stopped)
    hv_grpc_poll(grpc, UINT64_MAX);
  grpc_call_unref(grpc->bell);
  grpc_channel_destroy(grpc->nowhere);
  grpc_completion_queue_shutdown(grpc->cq);
  for (grpc_event event;;) {
    event = grpc_completion_queue_next(grpc->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (event.type == GRPC_QUEUE_SHUTDOWN)
      break;
    hv_grpc_op *op = event.tag;
    op->done(op, event.success);
  }
  if (grpc->server) {
    grpc_server_destroy(grpc->server);
    grpc_server_credentials_release(grpc->server_credentials);
    grpc_resource_quota_unref(grpc->quota);
  }
  grpc_completion_queue_destroy(grpc->cq);
  hv_grpc_tls_hide(&grpc->shown);
  grpc_slice_unref(grpc->my_claim);
  hv_trust_known_fini(&grpc->known);
  for (int ms = 0; ms < LINGER_MS && atomic_load(&grpc->lent); ms++)
    usleep(1000);
  size_t left = atomic_load(&grpc->lent);
  hv_trust_swarm_release(grpc->swarm);
  hv_mem_drop(grpc->trusts);
  if (!left) /* else gRPC will still come for it */
    release(grpc);
  return left;
}

/* ---- channels ---- */

hv_status hv_grpc_channel_new(hv_grpc *grpc, const hv_target *to, hv_grpc_channel **out) {
  char where[HV_ADDR_TEXT_MAX], target[HV_ADDR_TEXT_MAX + 16];
  const char *scheme = to->addr.kind == HV_ADDR_IP4 ? "ipv4:" : to->addr.kind == HV_ADDR_IP6 ? "ipv6:" : "dns:///";
  if (to->addr.kind == HV_ADDR_NONE || to->addr.kind > HV_ADDR_DNS || to->addr.port == 0)
    return HV_INVALID;
  snprintf(target, sizeof target, "%s%s", scheme, hv_addr_print_short(&to->addr, where));
  hv_grpc_channel *channel = hv_mem_zalloc(grpc->mem, sizeof *channel);
  hv_trust *trust = channel && !grpc->insecure ? hv_trust_new(grpc->trusts, to, grpc->swarm) : NULL;
  grpc_tls_credentials_options *options = hv_grpc_tls_options(grpc->trusts, grpc->shown.dials, trust);
  if (!channel || (!options && !grpc->insecure)) {
    hv_trust_release(trust);
    hv_mem_free(channel);
    return HV_NOMEM;
  }
  grpc_channel_credentials *credentials = options ? hv_grpc_tls_channel(options) : grpc_insecure_credentials_create();
  grpc_arg args[N_CLIENT_ARGS + 1];
  memcpy(args, client_args, sizeof client_args);
  args[N_CLIENT_ARGS] =
      (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)GRPC_ARG_PRIMARY_USER_AGENT_STRING, .value.string = grpc->agent};
  channel->channel = grpc_channel_create(target, credentials, &(grpc_channel_args){N_CLIENT_ARGS + (size_t)grpc->insecure, args});
  grpc_channel_credentials_release(credentials);
  channel->grpc = grpc;
  channel->trust = trust;
  *out = channel;
  return HV_OK;
}

void hv_grpc_channel_free(hv_grpc_channel *channel) {
  if (!channel)
    return;
  grpc_channel_destroy(channel->channel);
  hv_trust_release(channel->trust);
  hv_mem_free(channel);
}

int hv_grpc_channel_watch(hv_grpc_channel *channel, hv_grpc_op *op) {
  grpc_connectivity_state now = grpc_channel_check_connectivity_state(channel->channel, 0);
  if (op)
    grpc_channel_watch_connectivity_state(channel->channel, now, gpr_inf_future(GPR_CLOCK_MONOTONIC), channel->grpc->cq, op);
  return now == GRPC_CHANNEL_READY;
}

hv_trust *hv_grpc_channel_trust(hv_grpc_channel *channel) {
  return channel->trust;
}

/* ---- messages ---- */

/* A payload that gRPC holds, as so many slices. */
typedef struct lease {
  hv_grpc *grpc;
  hv_payload *payload;
  atomic_size_t parts;
} lease;

static void lease_part_back(void *arg) {
  lease *l = arg;
  BACK_FROM_GRPC(l);
  if (atomic_fetch_sub(&l->parts, 1) == 1) {
    hv_grpc *grpc = l->grpc;
    hv_payload_release(l->payload);
    hv_mem_free(l);
    atomic_fetch_sub(&grpc->lent, 1); /* last: the owner may be waiting for it to free all */
  }
}

hv_grpc_message *hv_grpc_message_new(hv_grpc *grpc, hv_span head, hv_payload *payload) {
  enum { FEW = 16 };
  grpc_slice few[FEW], *slices = few;
  size_t n_parts = payload && payload->size ? payload->n_parts : 0;
  lease *l = NULL;
  if (n_parts >= FEW)
    slices = hv_mem_array(grpc->mem, n_parts + 1, sizeof *slices);
  if (!slices || (n_parts && !(l = hv_mem_alloc(grpc->mem, sizeof *l)))) {
    if (slices != few)
      hv_mem_free(slices);
    return NULL;
  }
  if (l) {
    *l = (lease){.grpc = grpc, .payload = hv_payload_keep(payload)};
    atomic_init(&l->parts, n_parts);
    atomic_fetch_add(&grpc->lent, 1);
    GIVEN_TO_GRPC(l);
  }
  slices[0] = grpc_slice_from_copied_buffer((const char *)head.data, head.size);
  for (size_t i = 0; i < n_parts; i++)
    slices[i + 1] = grpc_slice_new_with_user_data((void *)payload->parts[i].data, payload->parts[i].size, lease_part_back, l);
  grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(slices, n_parts + 1); /* with references of its own */
  for (size_t i = 0; i <= n_parts; i++)
    grpc_slice_unref(slices[i]);
  if (slices != few)
    hv_mem_free(slices);
  return (hv_grpc_message *)bytes;
}

void hv_grpc_message_free(hv_grpc_message *message) {
  if (message)
    grpc_byte_buffer_destroy((grpc_byte_buffer *)message);
}

/* ---- calls ---- */

static hv_grpc_call *call_alloc(hv_grpc *grpc, int server) {
  hv_grpc_call *call = hv_mem_zalloc(grpc->mem, sizeof *call);
  if (call) {
    call->grpc = grpc;
    call->server = server;
    call->details = grpc_empty_slice();
    grpc_metadata_array_init(&call->in_meta);
    grpc_metadata_array_init(&call->end_meta);
    grpc_call_details_init(&call->other);
  }
  return call;
}

hv_grpc_call *hv_grpc_call_new(hv_grpc_channel *channel, hv_grpc_method method, int who) {
  hv_grpc_call *call = call_alloc(channel->grpc, 0);
  if (call)
    call->claims = who;
  if (call)
    call->call = grpc_channel_create_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS, channel->grpc->cq,
                                          grpc_slice_from_static_string(method_names[method]), NULL,
                                          gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
  return call;
}

hv_grpc_call *hv_grpc_accept(hv_grpc *grpc, hv_grpc_method method, hv_grpc_op *op) {
  grpc_completion_queue *cq = grpc->cq;
  hv_grpc_call *call = call_alloc(grpc, 1);
  if (!call)
    return NULL;
  grpc_call_error error = method == HV_GRPC_OTHER
                              ? grpc_server_request_call(grpc->server, &call->call, &call->other, &call->in_meta, cq, cq, op)
                              : grpc_server_request_registered_call(grpc->server, grpc->methods[method], &call->call,
                                                                    &call->deadline, &call->in_meta, NULL, cq, cq, op);
  if (error == GRPC_CALL_OK)
    return call;
  hv_grpc_call_free(call);
  return NULL;
}

void hv_grpc_call_say_lane(hv_grpc_call *call, const hv_grpc_lane *lane) {
  call->has_lane = 1;
  call->lane = *lane;
}

hv_status hv_grpc_call_lane(const hv_grpc_call *call, hv_grpc_lane *out) {
  const grpc_slice *said = find_meta(&call->in_meta, LANE_KEY);
  if (!said)
    return HV_NOT_FOUND;
  if (GRPC_SLICE_LENGTH(*said) != sizeof *out)
    return HV_MALFORMED;
  memcpy(out, GRPC_SLICE_START_PTR(*said), sizeof *out);
  return out->joins <= 1 ? HV_OK : HV_MALFORMED;
}

void hv_grpc_call_free(hv_grpc_call *call) {
  if (!call)
    return;
  if (call->call)
    grpc_call_unref(call->call);
  hv_grpc_message_free((hv_grpc_message *)call->in);
  grpc_slice_unref(call->details);
  grpc_metadata_array_destroy(&call->in_meta);
  grpc_metadata_array_destroy(&call->end_meta);
  grpc_call_details_destroy(&call->other);
  hv_mem_free(call);
}

void hv_grpc_call_cancel(hv_grpc_call *call) {
  if (call->call)
    grpc_call_cancel(call->call, NULL);
}

/* The first batch that goes out carries the headers. */
static grpc_op *add_hello(hv_grpc_call *call, grpc_op *op, grpc_metadata meta[HELLO_META]) {
  size_t n = 0;
  if (call->hello_sent)
    return op;
  call->hello_sent = 1;
  op->op = GRPC_OP_SEND_INITIAL_METADATA;
  op->data.send_initial_metadata.metadata = meta;
  if (call->has_lane)
    meta[n++] = (grpc_metadata){
        .key = grpc_slice_from_static_string(LANE_KEY),
        .value = grpc_slice_from_copied_buffer((const char *)&call->lane, sizeof call->lane)}; /* small: no memory of its own */
  if (call->grpc->insecure && call->server)
    call->claims = find_meta(&call->in_meta, WHO_KEY) != NULL;
  if (call->grpc->insecure && call->claims)
    meta[n++] = (grpc_metadata){.key = grpc_slice_from_static_string(call->server ? PEER_KEY : WHO_KEY),
                                .value = call->server ? call->grpc->my_claim : grpc_slice_from_static_string("?")};
  op->data.send_initial_metadata.count = n;
  return op + 1;
}

static grpc_op *add_message(grpc_op *op, hv_grpc_message *message) {
  if (!message)
    return op;
  op->op = GRPC_OP_SEND_MESSAGE;
  op->data.send_message.send_message = (grpc_byte_buffer *)message;
  return op + 1;
}

static grpc_op *add_receive(hv_grpc_call *call, grpc_op *op) {
  hv_grpc_message_free((hv_grpc_message *)call->in);
  call->in = NULL;
  op->op = GRPC_OP_RECV_MESSAGE;
  op->data.recv_message.recv_message = &call->in;
  return op + 1;
}

static grpc_op *add_end(hv_grpc_call *call, grpc_op *op) {
  if (call->server) {
    op->op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op->data.recv_close_on_server.cancelled = &call->broken;
  } else {
    op->op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    op->data.recv_status_on_client.trailing_metadata = &call->end_meta;
    op->data.recv_status_on_client.status = &call->code;
    op->data.recv_status_on_client.status_details = &call->details;
  }
  return op + 1;
}

static int start(hv_grpc_call *call, const grpc_op *ops, const grpc_op *end, hv_grpc_op *op) {
  return grpc_call_start_batch(call->call, ops, (size_t)(end - ops), op, NULL) == GRPC_CALL_OK;
}

int hv_grpc_call_ask(hv_grpc_call *call, hv_grpc_message *request, hv_grpc_op *op) {
  grpc_op ops[6] = {0}, *at = ops;
  grpc_metadata meta[HELLO_META];
  at = add_hello(call, at, meta);
  at = add_message(at, request);
  at++->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
  at->op = GRPC_OP_RECV_INITIAL_METADATA;
  at++->data.recv_initial_metadata.recv_initial_metadata = &call->in_meta;
  at = add_receive(call, at);
  at = add_end(call, at);
  int started = start(call, ops, at, op);
  hv_grpc_message_free(request);
  return started;
}

int hv_grpc_call_finish(hv_grpc_call *call, hv_grpc_message *answer, hv_status status, const char *text, int with_close,
                        hv_grpc_op *op) {
  grpc_op ops[4] = {0}, *at = ops;
  grpc_metadata meta[HELLO_META],
      refusal[] = {
          {.key = grpc_slice_from_static_string(STATUS_KEY), .value = grpc_slice_from_static_string(hv_status_name(status))},
          {.key = grpc_slice_from_static_string(CAUSE_KEY), .value = grpc_slice_from_static_string(hv_cause_name(call->cause))}};
  char clean[HV_MSG_TEXT_MAX + 1];
  copy_text(clean, sizeof clean, text, strlen(text));
  grpc_slice details = grpc_slice_from_copied_string(clean);
  at = add_message(add_hello(call, at, meta), answer);
  at->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
  at->data.send_status_from_server.status = status == HV_OK            ? GRPC_STATUS_OK
                                            : status == HV_UNSUPPORTED ? GRPC_STATUS_UNIMPLEMENTED
                                                                       : GRPC_STATUS_FAILED_PRECONDITION;
  at->data.send_status_from_server.status_details = &details;
  at->data.send_status_from_server.trailing_metadata_count = status == HV_OK ? 0 : call->cause ? 2 : 1;
  at++->data.send_status_from_server.trailing_metadata = refusal;
  if (with_close)
    at = add_end(call, at);
  int started = start(call, ops, at, op);
  grpc_slice_unref(details);
  hv_grpc_message_free(answer);
  return started;
}

void hv_grpc_call_say_cause(hv_grpc_call *call, hv_cause cause) {
  call->cause = cause;
}

int hv_grpc_call_send(hv_grpc_call *call, hv_grpc_message *message, int last, hv_grpc_op *op) {
  grpc_op ops[3] = {0}, *at = ops;
  grpc_metadata meta[HELLO_META];
  at = add_hello(call, at, meta);
  at = add_message(at, message);
  if (last)
    at++->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
  int started = start(call, ops, at, op);
  hv_grpc_message_free(message);
  return started;
}

int hv_grpc_call_recv(hv_grpc_call *call, hv_grpc_op *op) {
  grpc_op ops[1] = {0};
  return start(call, ops, add_receive(call, ops), op);
}

int hv_grpc_call_hello(hv_grpc_call *call, hv_grpc_op *op) {
  grpc_op ops[1] = {{.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &call->in_meta}};
  return start(call, ops, ops + 1, op);
}

int hv_grpc_call_end(hv_grpc_call *call, hv_grpc_op *op) {
  grpc_op ops[1] = {0};
  return start(call, ops, add_end(call, ops), op);
}

/* ---- what was received ---- */

static const grpc_slice_buffer *slices_in(const hv_grpc_call *call) {
  return &call->in->data.raw.slice_buffer;
}

int64_t hv_grpc_call_size(const hv_grpc_call *call) {
  return call->in ? (int64_t)slices_in(call)->length : -1;
}

static size_t copy_front(const grpc_slice_buffer *slices, uint8_t *out, size_t size) {
  size_t got = 0;
  for (size_t i = 0; i < slices->count && got < size; i++) {
    size_t n = GRPC_SLICE_LENGTH(slices->slices[i]) < size - got ? GRPC_SLICE_LENGTH(slices->slices[i]) : size - got;
    memcpy(out + got, GRPC_SLICE_START_PTR(slices->slices[i]), n);
    got += n;
  }
  return got;
}

hv_status hv_grpc_call_bytes(hv_grpc_call *call, size_t size, hv_buf *scratch, hv_span *out) {
  *out = hv_span_of("", 0);
  if (!call->in || slices_in(call)->length < size || call->in->data.raw.compression != GRPC_COMPRESS_NONE)
    return HV_MALFORMED;
  if (size == 0)
    return HV_OK;
  const grpc_slice *first = &slices_in(call)->slices[0];
  if (GRPC_SLICE_LENGTH(*first) >= size) {
    *out = hv_span_of(GRPC_SLICE_START_PTR(*first), size);
    return HV_OK;
  }
  uint8_t *at;
  scratch->size = 0;
  hv_status status = hv_buf_reserve(scratch, size, &at);
  if (status == HV_OK)
    *out = hv_span_of(at, copy_front(slices_in(call), at, size));
  return status;
}

/* A received message as a payload: the parts point into gRPC's slices. */
typedef struct arrival {
  hv_payload payload;
  hv_grpc *grpc;
  grpc_byte_buffer *bytes;
  size_t size;
  void (*released)(void *arg, size_t size);
  void *arg;
  hv_span parts[];
} arrival;

static void arrival_free(hv_payload *payload) {
  arrival *a = (arrival *)payload;
  hv_grpc *grpc = a->grpc;
  void (*released)(void *, size_t) = a->released;
  void *arg = a->arg;
  size_t size = a->size;
  grpc_byte_buffer_destroy(a->bytes);
  hv_mem_free(a);
  if (released)
    released(arg, size);
  release(grpc);
}

hv_payload *hv_grpc_call_payload(hv_grpc_call *call, size_t skip, void (*released)(void *arg, size_t size), void *arg) {
  const grpc_slice_buffer *slices = slices_in(call);
  arrival *a = hv_mem_alloc(call->grpc->mem, sizeof *a + slices->count * sizeof(hv_span));
  if (!a)
    return NULL;
  size_t n = 0;
  for (size_t i = 0; i < slices->count; i++) {
    const grpc_slice *slice = &slices->slices[i];
    size_t size = GRPC_SLICE_LENGTH(*slice), past = skip < size ? skip : size;
    skip -= past;
    if (size > past)
      a->parts[n++] = hv_span_of(GRPC_SLICE_START_PTR(*slice) + past, size - past);
  }
  a->grpc = call->grpc;
  atomic_fetch_add(&call->grpc->refs, 1);
  a->bytes = call->in;
  a->size = slices->length;
  a->released = released;
  a->arg = arg;
  hv_payload_init(&a->payload, a->parts, n, arrival_free, NULL);
  call->in = NULL;
  return &a->payload;
}

/* ---- from where, and how it ended ---- */

void hv_grpc_call_from(hv_grpc_call *call, hv_addr *out) {
  char *uri = grpc_call_get_peer(call->call);
  hv_trust_known_addr(&call->grpc->known, uri ? uri : "", out);
  gpr_free(uri);
}

static hv_status refusal_of(const hv_grpc_call *call) {
  const grpc_slice *name = call->code == GRPC_STATUS_FAILED_PRECONDITION ? find_meta(&call->end_meta, STATUS_KEY) : NULL;
  for (hv_status status = HV_OK + 1; name && status < HV_STATUS_COUNT; status++)
    if (grpc_slice_str_cmp(*name, hv_status_name(status)) == 0)
      return status;
  return HV_OK;
}

/* The cause of a refusal, which older peers do not send. */
static hv_cause cause_of(const hv_grpc_call *call) {
  const grpc_slice *name = find_meta(&call->end_meta, CAUSE_KEY);
  for (hv_cause cause = HV_CAUSE_OTHER + 1; name && cause < HV_CAUSE_COUNT; cause++)
    if (grpc_slice_str_cmp(*name, hv_cause_name(cause)) == 0)
      return cause;
  return HV_CAUSE_OTHER;
}

hv_status hv_grpc_call_result(hv_grpc_call *call, hv_cause *cause, char text[HV_GRPC_TEXT_MAX]) {
  *cause = HV_CAUSE_OTHER;
  if (call->code == GRPC_STATUS_OK)
    return HV_OK;
  copy_text(text, HV_GRPC_TEXT_MAX, (const char *)GRPC_SLICE_START_PTR(call->details), GRPC_SLICE_LENGTH(call->details));
  hv_status refusal = refusal_of(call);
  if (refusal == HV_NOT_ADMITTED)
    *cause = cause_of(call);
  if (refusal != HV_OK)
    return refusal;
  switch (call->code) {
  case GRPC_STATUS_CANCELLED:
    return HV_CANCELLED;
  case GRPC_STATUS_DEADLINE_EXCEEDED:
    return HV_TIMEOUT;
  case GRPC_STATUS_UNAVAILABLE:
    return hv_outage_of(text, cause);
  case GRPC_STATUS_RESOURCE_EXHAUSTED:
    return HV_TOO_LARGE;
  case GRPC_STATUS_PERMISSION_DENIED:
  case GRPC_STATUS_UNAUTHENTICATED:
    return HV_DENIED;
  case GRPC_STATUS_UNIMPLEMENTED:
    return HV_UNSUPPORTED;
  case GRPC_STATUS_UNKNOWN: /* "Stream removed": the connection went away */
    *cause = HV_CAUSE_CONNECTION_LOST;
    return HV_CLOSED;
  default:
    return HV_MALFORMED;
  }
}
