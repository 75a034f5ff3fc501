#include "lib/state_scene.h"

#include "kern/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_US = 14900000 };

/* One scene at a time: env has no place for whose it is. */
static state_scene *current;

static void must(int held, const char *what) {
  if (held)
    return;
  fprintf(stderr, "the scenario itself failed: %s\n", what);
  abort();
}

/* ---- liars ---- */

static state_lie lie_of(const hv_env *env) {
  for (size_t i = 0; i < STATE_NODES_MAX; i++)
    if (current->envs[i] == env)
      return current->lies[i];
  return STATE_HONEST;
}

static hv_status send_changed(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  hv_payload *other;
  uint8_t *bytes = hv_mem_alloc(env->mem, payload->size);
  if (!bytes)
    return current->true_send(env, stream, header, payload);
  hv_payload_read(payload, 0, bytes, payload->size);
  bytes[payload->size / 2] ^= 1;
  other = hv_payload_copy(env->mem, bytes, payload->size);
  hv_mem_free(bytes);
  hv_status status = other ? current->true_send(env, stream, header, other) : HV_NOMEM;
  hv_payload_release(other);
  return status;
}

/* A chunk that is held back. */
typedef struct state_slow {
  struct state_slow *next;
  hv_env *env;
  hv_stream *stream;
  hv_msg header;
  hv_payload *payload;
  uint64_t due_us;
  hv_timer timer;
} state_slow;

static void drop_slow(state_slow *s) {
  state_slow **at = &current->slow;
  while (*at != s)
    at = &(*at)->next;
  *at = s->next;
  hv_payload_release(s->payload);
  hv_mem_free(s);
}

static void send_held(hv_timer *timer, const hv_event *event) {
  state_slow *s = timer->owner;
  (void)event;
  current->true_send(s->env, s->stream, &s->header, s->payload);
  drop_slow(s);
}

static hv_status send_later(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload, uint64_t later_us) {
  state_slow *s = hv_mem_zalloc(current->mem, sizeof *s);
  uint64_t now = env->now_us(env), after = now;
  must(s != NULL, "no memory for a chunk that is held back");
  for (const state_slow *other = current->slow; other; other = other->next)
    if (other->stream == stream && other->due_us > after)
      after = other->due_us;
  *s = (state_slow){current->slow,
                    env,
                    stream,
                    *header,
                    payload ? hv_payload_keep(payload) : NULL,
                    after + later_us,
                    {.fire = send_held, .owner = s}};
  current->slow = s;
  env->timer_set(env, &s->timer, s->due_us - now);
  return HV_OK;
}

static void forget_held(const hv_stream *closed) {
  for (state_slow *s = current->slow, *next; s; s = next) {
    next = s->next;
    if (s->stream != closed)
      continue;
    s->env->timer_clear(s->env, &s->timer);
    drop_slow(s);
  }
}

static hv_status refuse(hv_env *env, hv_stream *stream, int late) {
  hv_msg busy = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_BUSY, hv_span_of("later", 5)}};
  uint32_t r;
  if (!late)
    return current->true_send(env, stream, &busy, NULL);
  env->random(env, &r, sizeof r);
  return send_later(env, stream, &busy, NULL, r % SLOW_US);
}

static hv_status lying_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  int is_chunk = header->kind == HV_MSG_CHUNK && payload, is_manifest = is_chunk && header->u.chunk.index == HV_STATE_MANIFEST;
  switch (is_chunk ? lie_of(env) : STATE_HONEST) {
  case STATE_LIE_CHUNKS:
    return is_manifest ? current->true_send(env, stream, header, payload) : send_changed(env, stream, header, payload);
  case STATE_LIE_MANIFEST:
    return is_manifest ? send_changed(env, stream, header, payload) : current->true_send(env, stream, header, payload);
  case STATE_LIE_SLOW:
    return is_manifest ? current->true_send(env, stream, header, payload) : send_later(env, stream, header, payload, SLOW_US);
  case STATE_LIE_SILENT:
    return HV_OK;
  case STATE_LIE_BUSY:
  case STATE_LIE_BUSY_LATE:
    return refuse(env, stream, lie_of(env) == STATE_LIE_BUSY_LATE);
  case STATE_LIE_SHUT:
    current->true_send(env, stream, header, payload);
    env->stream_cancel(env, stream);
    return HV_OK;
  default:
    return current->true_send(env, stream, header, payload);
  }
}

static void meet(dht_seat *seat, hv_env *env) {
  if (env->stream_send != lying_send)
    current->true_send = env->stream_send;
  current->envs[seat->number] = env;
  if (current->lies[seat->number] != STATE_HONEST)
    env->stream_send = lying_send;
}

static void see(dht_seat *seat, const hv_event *event) {
  state_try *try = current->trying[seat->number];
  if (event->kind == HV_EVENT_STREAM_CLOSED)
    forget_held(event->stream);
  if (!try || event->kind != HV_EVENT_STREAM_DATA || event->msg->kind != HV_MSG_CHUNK || !event->payload)
    return;
  if (event->msg->u.chunk.index < STATE_CHUNKS_MAX && try->arrived[event->msg->u.chunk.index] < 255)
    try->arrived[event->msg->u.chunk.index]++;
}

/* ---- nodes ---- */

void state_scene_init(state_scene *scene, hv_sim *sim, hv_mem *mem) {
  memset(scene, 0, sizeof *scene);
  scene->mem = mem;
  dht_swarm_init(&scene->swarm, sim, mem, STATE_NODES_MAX);
  scene->swarm.meet = meet;
  scene->swarm.see = see;
  scene->swarm.state.chunk_bytes = 1024;
  current = scene;
}

size_t state_scene_add(state_scene *scene, state_lie lie, int client_mode) {
  static const size_t first[] = {0};
  current = scene;
  scene->lies[scene->swarm.n] = lie;
  return dht_swarm_add(&scene->swarm, first, scene->swarm.n ? 1 : 0, client_mode);
}

void state_scene_fini(state_scene *scene) {
  dht_swarm_fini(&scene->swarm);
  current = NULL;
}

/* ---- replicas ---- */

static void let_go(hv_payload *payload) {
  state_copy *copy = (state_copy *)payload;
  copy->freed = 1;
}

void state_copy_make(state_copy *copy, hv_mem *mem, uint64_t number, size_t values, hv_codec codec) {
  const size_t sizes[STATE_PARTS] = {values * sizeof(float), 13, 0, 700 * sizeof(float), 8, 3001};
  check_rng rng = {number};
  memset(copy, 0, sizeof *copy);
  for (size_t i = 0; i < STATE_PARTS; i++) {
    int floats = i == 0 || i == 3;
    copy->memory[i] = hv_mem_aligned(mem, sizes[i]);
    must(copy->memory[i] != NULL, "no memory for a replica");
    for (size_t at = 0; floats && at < sizes[i] / sizeof(float); at++)
      ((float *)copy->memory[i])[at] = (float)check_normal(&rng);
    for (size_t at = 0; !floats && at < sizes[i]; at++)
      ((uint8_t *)copy->memory[i])[at] = (uint8_t)check_random(&rng);
    copy->spans[i] = hv_span_of(copy->memory[i], sizes[i]);
    copy->parts[i] = (hv_manifest_part){.codec = floats ? (uint8_t)codec : HV_CODEC_NONE, .dtype = floats ? HV_DTYPE_FLOAT32 : 0};
  }
  hv_payload_init(&copy->payload, copy->spans, STATE_PARTS, let_go, NULL);
}

void state_copy_free(state_copy *copy) {
  if (!copy->freed)
    hv_payload_release(&copy->payload);
  must(copy->freed, "a replica is still held by somebody");
  for (size_t i = 0; i < STATE_PARTS; i++)
    hv_mem_free(copy->memory[i]);
}

/* ---- offers ---- */

static void offered(hv_state_offer *offer, hv_status status, const char *text) {
  state_offering *o = offer->owner;
  (void)text;
  must(!o->done, "an offer was done twice");
  o->done = 1;
  o->status = status;
}

static void run_offer(hv_command *command, void *core) {
  state_offering *o = (state_offering *)command;
  hv_status status = core ? hv_state_offer_start(hv_node_state(core), &o->offer, NULL) : HV_CLOSED;
  if (status != HV_OK)
    offered(&o->offer, status, "");
}

void state_offer(state_scene *scene, size_t node, state_offering *o, state_copy *copy, const char *prefix, uint64_t epoch) {
  memset(o, 0, sizeof *o);
  snprintf(o->prefix, sizeof o->prefix, "%s", prefix);
  snprintf(o->metadata, sizeof o->metadata, "metadata of epoch %llu", (unsigned long long)epoch);
  o->command.run = run_offer;
  o->offer = (hv_state_offer){.done = offered,
                              .owner = o,
                              .prefix = hv_span_of(o->prefix, strlen(o->prefix)),
                              .epoch = epoch,
                              .bytes = &copy->payload,
                              .parts = copy->parts,
                              .metadata = hv_span_of(o->metadata, strlen(o->metadata))};
  must(hv_sim_command(scene->swarm.sim, node, &o->command) == HV_OK, "no memory for a command");
}

typedef struct withdrawal {
  hv_command command;
  const char *prefix;
  int at_once;
} withdrawal;

static void run_withdraw(hv_command *command, void *core) {
  withdrawal *w = (withdrawal *)command;
  if (core)
    hv_state_withdraw(hv_node_state(core), hv_span_of(w->prefix, strlen(w->prefix)), w->at_once);
  hv_mem_free(w);
}

void state_withdraw(state_scene *scene, size_t node, const char *prefix, int at_once) {
  withdrawal *w = hv_mem_alloc(scene->mem, sizeof *w);
  must(w != NULL, "no memory for a command");
  *w = (withdrawal){.command = {.run = run_withdraw}, .prefix = prefix, .at_once = at_once};
  must(hv_sim_command(scene->swarm.sim, node, &w->command) == HV_OK, "no memory for a command");
}

/* ---- loads ---- */

static uint8_t *make_room(hv_state_load *load, const hv_manifest *manifest) {
  state_try *try = load->owner;
  hv_mem *mem = ((state_scene *)try->swarm->scenario)->mem;
  hv_mem_free(try->image);
  try->rooms++;
  memset(try->arrived, 0, sizeof try->arrived);
  return try->image = hv_mem_aligned(mem, (size_t)manifest->image + 1);
}

static void loaded(hv_state_load *load, hv_status status, const char *text) {
  state_try *try = load->owner;
  must(!try->done, "a load was done twice");
  try->done = 1;
  try->status = status;
  try->ended_us = hv_sim_now(try->swarm->sim);
  ((state_scene *)try->swarm->scenario)->trying[try->node] = NULL;
  snprintf(try->text, sizeof try->text, "%s", text);
  if (status != HV_OK)
    return;
  try->epoch = load->epoch;
  if (!load->manifest) /* it only looked */
    return;
  try->n_chunks = load->manifest->n_chunks;
  try->n_parts = load->manifest->n_parts;
  for (size_t i = 0; i < STATE_PARTS && i < try->n_parts; i++)
    try->parts[i] = load->manifest->parts[i];
  snprintf(try->metadata, sizeof try->metadata, "%.*s", (int)load->manifest->metadata.size,
           (const char *)load->manifest->metadata.data);
}

static void run_load(hv_command *command, void *core) {
  state_try *try = (state_try *)command;
  hv_error err = {0};
  hv_status status = core ? hv_state_load_start(hv_node_state(core), &try->load, &err) : HV_CLOSED;
  if (status != HV_OK)
    loaded(&try->load, status, err.text);
}

void state_load(state_scene *scene, size_t node, state_try *try, const char *prefix, uint32_t timeout_ms) {
  memset(try, 0, sizeof *try);
  scene->swarm.scenario = scene;
  try->swarm = &scene->swarm;
  try->node = node;
  try->started_us = hv_sim_now(scene->swarm.sim);
  snprintf(try->prefix, sizeof try->prefix, "%s", prefix);
  try->command.run = run_load;
  try->load = (hv_state_load){.done = loaded,
                              .room = make_room,
                              .owner = try,
                              .prefix = hv_span_of(try->prefix, strlen(try->prefix)),
                              .timeout_ms = timeout_ms};
  scene->trying[node] = try;
  must(hv_sim_command(scene->swarm.sim, node, &try->command) == HV_OK, "no memory for a command");
}

typedef struct waiting {
  state_try *tries;
  size_t n, at;
} waiting;

static int all_done(void *arg) {
  waiting *w = arg;
  while (w->at < w->n && w->tries[w->at].done)
    w->at++;
  return w->at == w->n;
}

int state_finish(state_scene *scene, state_try *tries, size_t n, double seconds) {
  waiting w = {tries, n, 0};
  return hv_sim_drive(scene->swarm.sim, all_done, &w, hv_sim_now(scene->swarm.sim) + (uint64_t)(seconds * (double)DHT_SECOND));
}

/* A float part as its codec leaves it, chunk by chunk of chunk_bytes: written once more, apart from the manifest's own cutting. */
static int same_coded(const uint8_t *got, hv_span source, hv_codec codec, size_t chunk_bytes) {
  enum { ROOM = 1 << 16 };
  static uint8_t codes[ROOM];
  static float values[ROOM / sizeof(float)];
  for (size_t at = 0; at < source.size; at += chunk_bytes) {
    size_t size = source.size - at < chunk_bytes ? source.size - at : chunk_bytes;
    uint64_t coded;
    must(hv_codec_encode(hv_cpu_best(), codec, HV_DTYPE_FLOAT32, source.data + at, size / sizeof(float), NULL, codes, sizeof codes,
                         &coded) == HV_OK,
         "a replica could not be encoded");
    hv_span part = hv_span_of(codes, (size_t)coded);
    must(hv_codec_decode(hv_cpu_best(), &part, 1, HV_DTYPE_FLOAT32, values, size / sizeof(float)) == HV_OK,
         "a replica could not be decoded");
    if (memcmp(values, got + at, size) != 0)
      return 0;
  }
  return 1;
}

int state_same(const state_try *try, const state_copy *copy) {
  if (!try->done || try->status != HV_OK || try->n_parts != STATE_PARTS)
    return 0;
  for (size_t i = 0; i < STATE_PARTS; i++) {
    const uint8_t *got = try->image + try->parts[i].place;
    hv_codec codec = (hv_codec)copy->parts[i].codec;
    if (try->parts[i].size != copy->spans[i].size || try->parts[i].place % 64)
      return 0;
    if (codec == HV_CODEC_NONE ? copy->spans[i].size && memcmp(got, copy->spans[i].data, copy->spans[i].size) != 0
                               : !same_coded(got, copy->spans[i], codec, try->swarm->state.chunk_bytes))
      return 0;
  }
  return 1;
}

size_t state_twice(const state_try *try) {
  size_t twice = 0;
  for (size_t i = 0; i < STATE_CHUNKS_MAX; i++)
    twice += try->arrived[i] > 1 ? try->arrived[i] - 1u : 0;
  return twice;
}

void state_try_free(state_try *try) {
  hv_mem_free(try->image);
  try->image = NULL;
}
