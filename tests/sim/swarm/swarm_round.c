/* Rounds of averaging while everything goes wrong. The right values are computed here, in float64, from the values that each member
 * brought, and from what a survivor says of each chunk: whose values are in it. Nothing of the code under test is used for that. */
#include "sim/swarm/swarm.h"

#include "core/node.h"
#include "core/round/partition.h"
#include "kern/reduce.h"
#include "lib/away.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 64, PARTS_MAX = 6, STALL_MS = 1000, TIMEOUT_MS = 30000, FAULTS_MAX = 6, WEIGHT_MAX = 1000 };
#define SECOND 1000000ull

typedef enum honesty { HONEST, NOT_A_NUMBER, TOO_HEAVY, GARBAGE } honesty;

typedef struct play play;

typedef struct member {
  play *p;
  size_t index;
  honesty kind;
  hv_round round;
  hv_run in_run, out_run;
  hv_run_part in_parts[PARTS_MAX], out_parts[PARTS_MAX];
  uint8_t *in, *out, *in_before, *out_before; /* bytes of all parts, one after another */
  float *values;                              /* what `in` is in float32 */
  away_device device;                         /* a device for the values of some members */
  int away;                                   /* 1: their values are there, in place of `in` and `out` */
  int is_there;                               /* 1: they are there now */
  uint8_t *there_in, *there_out;              /* the same in the place of the options; else NULL */
  void *way;                                  /* of that place */
  hv_allreduce *allreduce;
  hv_status status;
  int begun, done, dead, lying;                    /* lying: its command is under way */
  uint64_t begun_us, done_us, paused_us, stood_us; /* stood: how long it stood still */
  hv_command begin, lie;
} member;

typedef struct fault {
  play *p;
  size_t member;
} fault;

struct play {
  swarm_run *run;
  const hv_kern *kern; /* asked for once: it may cost more than all the rest */
  size_t n, n_parts;
  hv_run_part layout[PARTS_MAX];
  size_t bytes;
  uint64_t n_values;
  uint32_t chunk_values;
  int in_place, mildly; /* mildly: nobody was ever cut off or held up, only killed */
  hv_round_member plan[MEMBERS_MAX];
  member members[MEMBERS_MAX];
  fault faults[4 * FAULTS_MAX];
  size_t n_faults;
};

static uint64_t below(swarm_run *run, uint64_t n) {
  return check_random(&run->rng) % n;
}

static hv_status make_node(hv_env *env, void *arg, hv_core *out) {
  hv_node *node;
  hv_node_config config = {.me = *(hv_peer_id *)arg};
  hv_status status = hv_node_new(env, &config, &node);
  if (status == HV_OK)
    *out = (hv_core){node, hv_node_step};
  return status;
}

static void free_node(void *self) {
  hv_node_free(self);
}

/* ---- the group and its values ---- */

static void choose_layout(play *p) {
  swarm_run *run = p->run;
  int one = below(run, 2) ? (int)below(run, HV_CODEC_COUNT) : -1, plain = below(run, 3) == 0;
  p->n_parts = 1 + below(run, PARTS_MAX);
  for (size_t i = 0; i < p->n_parts; i++) {
    hv_codec codec = one >= 0 ? (hv_codec)one : (hv_codec)below(run, HV_CODEC_COUNT);
    hv_dtype dtype = plain ? HV_DTYPE_FLOAT32 : (hv_dtype)(1 + below(run, 4));
    p->layout[i] = (hv_run_part){NULL, dtype, 1 + below(run, 1500), codec, NULL, 0, 0, 0};
    if (hv_codec_bound((int)codec, HV_DTYPE_FLOAT32, 1) > hv_codec_bound(HV_CODEC_LINEAR4, HV_DTYPE_FLOAT32, 1) &&
        codec != HV_CODEC_SCALED_ROWS && (run->seed + i) % 3 == 0)
      p->layout[i].narrow = HV_CODEC_LINEAR4;
    if (codec == HV_CODEC_SCALED_ROWS) {
      p->layout[i].row = 16 + below(run, 100);
      p->layout[i].n_values = p->layout[i].row * (1 + below(run, 12));
    }
    p->bytes += p->layout[i].n_values * 8;
    p->n_values += p->layout[i].n_values;
  }
  p->chunk_values = 16 + (uint32_t)below(run, 400);
}

static void choose_members(play *p) {
  swarm_run *run = p->run;
  p->n = 2 + below(run, run->options->nodes - 1);
  int clients = below(run, 3) == 0, helpers = below(run, 3) == 0, liars = below(run, 4) == 0;
  for (size_t i = 0; i < p->n; i++) {
    p->plan[i].at = hv_sim_target(run->sim, i);
    p->plan[i].client = i > 0 && clients && below(run, 3) == 0;
    p->plan[i].auxiliary = i > 1 && helpers && !p->plan[i].client && below(run, 4) == 0;
    if (i > 1 && liars && !p->plan[i].auxiliary && below(run, 5) == 0)
      p->members[i].kind = (honesty)(1 + below(run, 3));
    if (p->members[i].kind == GARBAGE)
      p->mildly = 0;
  }
}

static void choose_spans(play *p, uint32_t n_chunks) {
  hv_partition_member shares[MEMBERS_MAX];
  for (size_t i = 0; i < p->n; i++)
    shares[i] = (hv_partition_member){
        .bandwidth = 1 + (double)below(p->run, 3), .owns = !p->plan[i].client, .contributes = !p->plan[i].auxiliary};
  hv_partition(shares, p->n, n_chunks);
  for (size_t i = 0; i < p->n; i++)
    p->plan[i].first = shares[i].first, p->plan[i].count = shares[i].count;
}

static void place_parts(play *p, hv_run_part *parts, uint8_t *bytes) {
  memcpy(parts, p->layout, sizeof p->layout);
  for (size_t i = 0; i < p->n_parts; i++) {
    parts[i].data = bytes;
    if (bytes)
      bytes += parts[i].n_values * 8;
  }
}

/* Where part i begins in the bytes of all parts. */
static uint8_t *here_of(const play *p, uint8_t *bytes, size_t i) {
  for (size_t k = 0; k < i; k++)
    bytes += p->layout[k].n_values * 8;
  return bytes;
}

static const swarm_place *place_of(const member *m) {
  return m->p->run->options->place;
}

/* Moves a member's values between its device and `in` and `out`: there, or back. The kernels of a place have no float64. */
static void turn(member *m) {
  const swarm_place *place = place_of(m);
  if (m->away && !place) {
    away_turn(m->in, m->p->bytes);
    if (m->out != m->in)
      away_turn(m->out, m->p->bytes);
  }
  for (size_t i = 0; m->away && place && i < m->p->n_parts; i++) {
    size_t size = m->in_parts[i].n_values * hv_dtype_size((int)m->in_parts[i].dtype);
    if (!m->in_parts[i].device)
      continue;
    if (m->is_there) {
      place->get(place->self, here_of(m->p, m->in, i), m->in_parts[i].data, size);
      place->get(place->self, here_of(m->p, m->out, i), m->out_parts[i].data, size);
    } else {
      place->put(place->self, m->in_parts[i].data, here_of(m->p, m->in, i), size);
      place->put(place->self, m->out_parts[i].data, here_of(m->p, m->out, i), size);
    }
  }
  m->is_there = !m->is_there;
}

/* Gives a member memory in the place of the options, and says which parts lie there. */
static void move_in(member *m, const swarm_place *place) {
  play *p = m->p;
  const hv_device *table = place->open(place->self, p->chunk_values, &m->way);
  m->there_in = place->take(place->self, p->bytes);
  m->there_out = p->in_place ? m->there_in : place->take(place->self, p->bytes);
  for (size_t i = 0; i < p->n_parts; i++) {
    if (p->layout[i].dtype == HV_DTYPE_FLOAT64)
      continue;
    m->in_parts[i].device = m->out_parts[i].device = table;
    m->in_parts[i].data = here_of(p, m->there_in, i);
    m->out_parts[i].data = here_of(p, m->there_out, i);
  }
  swarm_figure(p->run, "on a device", 1);
}

static void move_out(member *m) {
  const swarm_place *place = place_of(m);
  away_fini(&m->device);
  if (!place)
    return;
  place->close(place->self, m->way);
  place->give(place->self, m->there_out == m->there_in ? NULL : m->there_out);
  place->give(place->self, m->there_in);
}

/* The choice follows from the seed, without a throw of its dice. */
static void go_away(member *m) {
  const swarm_place *place = place_of(m);
  uint64_t seed = m->p->run->seed + m->index;
  m->away = m->in && seed % (place ? 2 : 3) == 0;
  away_init(&m->device);
  m->device.plain = seed % 5 == 0;
  m->device.n_sums = (int)(seed % 7) + 2;
  if (m->away && place)
    move_in(m, place);
  for (size_t i = 0; m->away && !place && i < m->p->n_parts; i++)
    m->in_parts[i].device = m->out_parts[i].device = &m->device.table;
  turn(m);
}

static void fill(member *m) {
  check_rng rng = {m->p->run->seed * 1000 + m->index};
  uint64_t at = 0;
  for (size_t i = 0; i < m->p->n_parts; i++) {
    hv_run_part *part = &m->in_parts[i];
    for (uint64_t v = 0; v < part->n_values; v++)
      m->values[at + v] = (float)check_normal(&rng);
    if (m->kind == NOT_A_NUMBER && i == 0)
      m->values[0] = NAN;
    hv_reduce_convert(m->p->kern, HV_DTYPE_FLOAT32, m->values + at, part->dtype, part->data, part->n_values);
    hv_reduce_convert(m->p->kern, part->dtype, part->data, HV_DTYPE_FLOAT32, m->values + at, part->n_values);
    at += part->n_values;
  }
}

static void make_member(play *p, size_t i) {
  swarm_run *run = p->run;
  member *m = &p->members[i];
  if (!p->plan[i].auxiliary) {
    m->in = hv_mem_aligned(&run->mem, p->bytes);
    m->out = p->in_place ? m->in : hv_mem_aligned(&run->mem, p->bytes);
    m->in_before = hv_mem_alloc(&run->mem, p->bytes);
    m->out_before = hv_mem_alloc(&run->mem, p->bytes);
    m->values = hv_mem_array(&run->mem, p->n_values, sizeof(float));
    memset(m->in, 0, p->bytes);
    memset(m->out, p->in_place ? 0 : 0xab, p->bytes);
  }
  place_parts(p, m->in_parts, m->in);
  place_parts(p, m->out_parts, m->out);
  if (m->in) {
    fill(m);
    memcpy(m->in_before, m->in, p->bytes);
    memcpy(m->out_before, m->out, p->bytes);
  }
  go_away(m);
  if (hv_run_init(&m->in_run, &run->mem, m->in_parts, p->n_parts, p->chunk_values, NULL) != HV_OK ||
      hv_run_init(&m->out_run, &run->mem, m->out_parts, p->n_parts, p->chunk_values, NULL) != HV_OK)
    abort();
  float weight = 0.5f + (float)below(run, 100) / 8;
  m->round = (hv_round){.id = {(uint8_t)run->seed, (uint8_t)(run->seed >> 8), 3},
                        .members = p->plan,
                        .n_members = p->n,
                        .me = i,
                        .weight = m->kind == TOO_HEAVY ? 1e6f : weight,
                        .weight_max = WEIGHT_MAX,
                        .stall_ms = STALL_MS,
                        .timeout_ms = TIMEOUT_MS,
                        .narrow = (run->seed / 3 + i) % 4 == 0,
                        .kern = p->kern,
                        .in = &m->in_run,
                        .out = m->out ? &m->out_run : NULL};
}

static void round_done(void *arg, hv_allreduce *self, hv_status status) {
  member *m = arg;
  (void)self;
  m->status = status;
  m->done++;
  m->done_us = hv_sim_now(m->p->run->sim);
}

static void begin_round(hv_command *command, void *core) {
  member *m = (member *)((char *)command - offsetof(member, begin));
  if (!core)
    return;
  m->begun = hv_allreduce_begin(hv_node_registry(core), &m->round, round_done, m, &m->allreduce, NULL) == HV_OK;
  m->begun_us = hv_sim_now(m->p->run->sim);
  if (!m->begun)
    swarm_fail(m->p->run, "member %zu could not begin", m->index);
}

/* ---- a member that sends garbage ---- */

static void ignore(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void send_garbage(member *m, hv_env *env, hv_stream *stream, hv_msg_kind kind) {
  play *p = m->p;
  uint8_t bytes[4096], set[32] = {0};
  for (size_t k = 0; k < 8; k++) {
    for (size_t i = 0; i < sizeof bytes; i++)
      bytes[i] = (uint8_t)check_random(&p->run->rng);
    set[0] = bytes[1], set[1] = bytes[2];
    hv_msg msg = {.kind = kind};
    if (kind == HV_MSG_CHUNK)
      msg.u.chunk =
          (hv_msg_chunk){(uint32_t)below(p->run, m->in_run.n_chunks), hv_span_of(set, below(p->run, 2) * 32), bytes[3] % 40};
    else
      msg.u.news = (hv_msg_news){bytes[0] % HV_NEWS_COUNT, bytes[3] % 40, bytes[4] % 40, hv_span_of(set, below(p->run, 4) ? 32 : 5),
                                 UINT64_MAX};
    hv_run_chunk chunk = hv_run_chunk_of(&m->in_run, (uint32_t)below(p->run, m->in_run.n_chunks));
    size_t size = below(p->run, 2) && chunk.bytes < sizeof bytes ? chunk.bytes : below(p->run, sizeof bytes);
    hv_payload *payload = below(p->run, 4) ? hv_payload_copy(env->mem, bytes, size) : NULL;
    env->stream_send(env, stream, &msg, payload);
    hv_payload_release(payload);
  }
}

static void tell_lies(hv_command *command, void *core) {
  static const hv_stream_events on = {ignore, ignore, ignore, .heavy = 0};
  member *m = (member *)((char *)command - offsetof(member, lie));
  play *p = m->p;
  m->lying = 0;
  for (size_t i = 0; core && i < p->n; i++) {
    if (i == m->index || p->plan[i].client)
      continue;
    hv_env *env = hv_node_env(core);
    uint8_t lacks[8] = {1, 2, 3};
    hv_stream *stream;
    hv_msg share = {.kind = HV_MSG_SHARE,
                    .u.share = {.member = (uint32_t)m->index, .weight = 1, .view = (uint32_t)below(p->run, 3)}};
    share.u.share.lacks = hv_span_of(lacks, below(p->run, 8));
    memcpy(share.u.share.round, m->round.id, HV_ROUND_ID_SIZE);
    if (below(p->run, 2) && env->stream_open(env, &p->plan[i].at, &share, &on, NULL, &stream) == HV_OK)
      send_garbage(m, env, stream, HV_MSG_CHUNK);
    hv_msg attend = {.kind = HV_MSG_ATTEND, .u.attend = {.member = (uint32_t)m->index}};
    memcpy(attend.u.attend.round, m->round.id, HV_ROUND_ID_SIZE);
    if (below(p->run, 2) && env->stream_open(env, &p->plan[i].at, &attend, &on, NULL, &stream) == HV_OK)
      send_garbage(m, env, stream, HV_MSG_NEWS);
  }
}

/* ---- faults, at random moments of the round ---- */

static void dies(hv_sim *sim, void *arg) {
  fault *f = arg;
  if (below(f->p->run, 3))
    hv_sim_kill(sim, f->member);
  else
    hv_sim_unplug(sim, f->member);
}

static void only_killed(hv_sim *sim, void *arg) {
  hv_sim_kill(sim, ((fault *)arg)->member);
}

static void comes_back(hv_sim *sim, void *arg) {
  hv_sim_restart(sim, ((fault *)arg)->member); /* without a round */
}

static void stands_still(hv_sim *sim, void *arg) {
  fault *f = arg;
  hv_sim_pause(sim, f->member);
  f->p->members[f->member].paused_us = hv_sim_now(sim);
}

static void goes_on(hv_sim *sim, void *arg) {
  fault *f = arg;
  member *m = &f->p->members[f->member];
  hv_sim_continue(sim, f->member);
  if (m->paused_us)
    m->stood_us += hv_sim_now(sim) - m->paused_us;
  m->paused_us = 0;
}

static void is_cut_off(hv_sim *sim, void *arg) {
  hv_sim_group(sim, ((fault *)arg)->member, 1);
}

static void heals(hv_sim *sim, void *arg) {
  (void)arg;
  hv_sim_heal(sim);
}

static void at(play *p, uint64_t us, void (*fn)(hv_sim *, void *), size_t member_) {
  fault *f = &p->faults[p->n_faults++];
  *f = (fault){p, member_};
  if (hv_sim_at(p->run->sim, hv_sim_now(p->run->sim) + us, fn, f) != HV_OK)
    abort();
}

/* Most faults come while the round is under way, some into the recovery from others. */
static uint64_t moment(swarm_run *run) {
  switch (below(run, 4)) {
  case 0:
    return below(run, 50000);
  case 1:
    return below(run, 300000);
  case 2:
    return below(run, 1500000);
  default:
    return below(run, 6000000);
  }
}

static void one_fault(play *p, unsigned faults, int only_kills) {
  swarm_run *run = p->run;
  size_t who = below(run, p->n);
  uint64_t us = moment(run);
  unsigned kind = only_kills ? SWARM_KILL : 1u << (3 + below(run, 4));
  if (!(faults & kind))
    return;
  if (kind == SWARM_KILL) {
    at(p, us, only_kills ? only_killed : dies, who);
    if (below(run, 4) == 0)
      at(p, us + below(run, 3000000), comes_back, who);
    if (!only_kills)
      p->mildly = 0;
  } else if (kind == SWARM_UNPLUG) {
    at(p, us, dies, who);
    p->mildly = 0;
  } else if (kind == SWARM_PAUSE) {
    at(p, us, stands_still, who);
    at(p, us + below(run, 5000000), goes_on, who);
    p->mildly = 0;
  } else {
    for (size_t i = 0; i <= below(run, 3) && p->n_faults + 2 < sizeof p->faults / sizeof *p->faults; i++)
      at(p, us, is_cut_off, below(run, p->n));
    at(p, us + below(run, 8000000), heals, 0);
    p->mildly = 0;
  }
}

static void choose_faults(play *p) {
  swarm_run *run = p->run;
  unsigned faults = run->options->faults;
  int only_kills = below(run, 2) == 0;
  for (size_t i = below(run, FAULTS_MAX); i > 0; i--)
    one_fault(p, faults, only_kills);
  if (faults & SWARM_KILL && below(run, 3) == 0)
    hv_sim_kill_at_event(run->sim, HV_SIM_ANY, 1 + below(run, 200 * p->n), (int)below(run, 2));
}

/* ---- what must hold ---- */

static double tolerance(hv_codec codec, hv_dtype dtype) {
  static const double of_codec[HV_CODEC_COUNT] = {1e-5, 0.01, 0.01, 0.06, 0.3, 0.5, 0.3, 0.15, 2.5, 0.01};
  return of_codec[codec] + (dtype == HV_DTYPE_BFLOAT16 ? 0.03 : dtype == HV_DTYPE_FLOAT16 ? 0.004 : 0);
}

static size_t part_at(const play *p, uint64_t at_, uint64_t *within) {
  size_t i = 0;
  for (; at_ >= p->layout[i].n_values; i++)
    at_ -= p->layout[i].n_values;
  *within = at_;
  return i;
}

static float out_value(const member *m, uint64_t at_) {
  uint64_t within;
  size_t i = part_at(m->p, at_, &within);
  hv_dtype dtype = m->p->layout[i].dtype;
  float value;
  hv_reduce_convert(m->p->kern, dtype, here_of(m->p, m->out, i) + within * hv_dtype_size((int)dtype), HV_DTYPE_FLOAT32, &value, 1);
  return value;
}

static int same_bits(const member *a, uint8_t *bytes, uint64_t at_) {
  uint64_t within;
  size_t i = part_at(a->p, at_, &within), size = hv_dtype_size((int)a->p->layout[i].dtype);
  return memcmp(here_of(a->p, a->out, i) + within * size, here_of(a->p, bytes, i) + within * size, size) == 0;
}

/* However much it states. */
static double counted_weight(const member *m) {
  return m->round.weight < WEIGHT_MAX ? m->round.weight : WEIGHT_MAX;
}

/* A chunk that a member holds is the mean of those who are said to be in it, each of whom brought something that may count. */
static void holds_its_mean(const member *m, uint32_t index) {
  play *p = m->p;
  hv_run_chunk chunk = hv_run_chunk_of(&m->in_run, index);
  double weight = 0;
  for (size_t i = 0; i < p->n; i++) {
    if (!hv_allreduce_counts(m->allreduce, index, i))
      continue;
    if (!p->members[i].begun || p->plan[i].auxiliary || p->members[i].kind == GARBAGE ||
        (p->members[i].kind == NOT_A_NUMBER && index == 0))
      swarm_fail(p->run, "chunk %u at member %zu counts member %zu", index, m->index, i);
    weight += counted_weight(&p->members[i]);
  }
  if (!(weight > 0))
    swarm_fail(p->run, "chunk %u at member %zu counts nobody", index, m->index);
  for (uint64_t v = chunk.at; v < chunk.at + chunk.size && !p->run->failure[0]; v++) {
    double sum = 0;
    uint64_t within;
    for (size_t i = 0; i < p->n; i++)
      if (hv_allreduce_counts(m->allreduce, index, i))
        sum += counted_weight(&p->members[i]) * p->members[i].values[v];
    double off = fabs(out_value(m, v) - sum / weight);
    if (!(off <= tolerance(chunk.narrow ? chunk.narrow : chunk.codec, p->layout[part_at(p, v, &within)].dtype)))
      swarm_fail(p->run, "value %llu at member %zu is off by %g", (unsigned long long)v, m->index, off);
  }
}

static void is_as_it_was(const member *m, uint32_t index) {
  hv_run_chunk chunk = hv_run_chunk_of(&m->in_run, index);
  for (uint64_t v = chunk.at; v < chunk.at + chunk.size; v++)
    if (!same_bits(m, m->out_before, v))
      swarm_fail(m->p->run, "value %llu at member %zu is neither averaged nor as it was", (unsigned long long)v, m->index);
}

static void agree(const member *a, const member *b) {
  for (uint32_t c = 0; c < a->in_run.n_chunks; c++) {
    hv_run_chunk chunk = hv_run_chunk_of(&a->in_run, c);
    if (!hv_allreduce_averaged(a->allreduce, c) || !hv_allreduce_averaged(b->allreduce, c))
      continue;
    for (uint64_t v = chunk.at; v < chunk.at + chunk.size; v++)
      if (!same_bits(a, b->out, v)) {
        swarm_fail(a->p->run, "members %zu and %zu of view %u differ in chunk %u", a->index, b->index,
                   hv_allreduce_view(a->allreduce), c);
        swarm_figure(a->p->run, "unequal", 1);
        return;
      }
  }
}

static int is_judged(const member *m) {
  return m->begun && m->kind != GARBAGE && hv_sim_alive(m->p->run->sim, m->index) &&
         hv_node_registry(hv_sim_core(m->p->run->sim, m->index))->rounds;
}

static void check_member(play *p, member *m) {
  swarm_run *run = p->run;
  uint64_t bound = m->begun_us + TIMEOUT_MS * 1000ull + m->stood_us + SECOND;
  swarm_figure(run, "members", 1);
  if (m->done != 1) {
    swarm_fail(run, "member %zu was told %d times", m->index, m->done);
    swarm_figure(run, "hangs", 1);
    return;
  }
  if (m->done_us > bound)
    swarm_fail(run, "member %zu was done %g s too late", m->index, (double)(m->done_us - bound) / 1e6);
  swarm_figure(run, m->status == HV_OK ? "ok" : "not_ok", 1);
  swarm_figure(run, "views", hv_allreduce_view(m->allreduce) > 0);
  for (uint32_t c = 0; m->out && c < m->in_run.n_chunks; c++) {
    if (hv_allreduce_averaged(m->allreduce, c))
      holds_its_mean(m, c);
    else
      is_as_it_was(m, c);
    if (m->status == HV_OK && !hv_allreduce_averaged(m->allreduce, c))
      swarm_fail(run, "member %zu says ok and lacks chunk %u", m->index, c);
  }
  if (!p->in_place && m->in && memcmp(m->in, m->in_before, p->bytes) != 0)
    swarm_fail(run, "the values of member %zu were changed", m->index);
}

/* If people only died, everybody who is left has everything: two of them, one whom the others can dial, one with values that count.
 */
static void check_survivors(play *p) {
  size_t left = 0, dialled = 0, values = 0;
  for (size_t i = 0; i < p->n; i++) {
    const member *m = &p->members[i];
    if (!is_judged(m))
      continue;
    left++;
    dialled += !p->plan[i].client;
    values += !p->plan[i].auxiliary && m->kind == HONEST;
  }
  if (!p->mildly || left < 2 || !dialled || !values)
    return;
  swarm_figure(p->run, "held_to_ok", 1);
  for (size_t i = 0; i < p->n; i++)
    if (is_judged(&p->members[i]) && p->members[i].status != HV_OK)
      swarm_fail(p->run, "member %zu of %zu survivors says: %s", i, left, hv_status_text(p->members[i].status));
}

/* produced = averaged + lost, as each member that holds everything says. */
static void add_samples(play *p, const member *m) {
  for (size_t i = 0; i < p->n; i++) {
    if (!p->members[i].begun || p->plan[i].auxiliary || p->members[i].kind != HONEST)
      continue;
    double part = (double)hv_allreduce_counted(m->allreduce, i) / (double)p->n_values, weight = p->members[i].round.weight;
    if (part > 1)
      swarm_fail(p->run, "member %zu is counted more than once at member %zu", i, m->index);
    swarm_figure(p->run, "produced", weight);
    swarm_figure(p->run, "averaged", weight * part);
    swarm_figure(p->run, "lost", weight * (1 - part));
  }
}

static void check_all(play *p) {
  for (size_t i = 0; i < p->n; i++)
    turn(&p->members[i]);
  for (size_t i = 0; i < p->n; i++) {
    member *m = &p->members[i];
    if (!is_judged(m))
      continue;
    check_member(p, m);
    for (size_t j = 0; j < i && !p->run->failure[0]; j++) {
      member *other = &p->members[j];
      if (is_judged(other) && m->out && other->out && hv_allreduce_view(m->allreduce) == hv_allreduce_view(other->allreduce))
        agree(m, other);
    }
  }
  check_survivors(p);
  for (size_t i = 0; i < p->n; i++)
    if (is_judged(&p->members[i]) && p->members[i].status == HV_OK && p->members[i].out) {
      add_samples(p, &p->members[i]);
      break;
    }
  for (size_t i = 0; i < p->n; i++)
    turn(&p->members[i]); /* the rounds are still served from there */
}

/* ---- the play ---- */

static int all_are_told(void *arg) {
  play *p = arg;
  for (size_t i = 0; i < p->n; i++) {
    member *m = &p->members[i];
    if (m->kind != GARBAGE && hv_sim_alive(p->run->sim, i) && !m->dead && !m->done &&
        (m->begun || hv_sim_now(p->run->sim) < 8 * SECOND))
      return 0;
  }
  return hv_sim_now(p->run->sim) > 8 * SECOND; /* all faults have had their time */
}

static void post(play *p, size_t i) {
  member *m = &p->members[i];
  if (!hv_sim_alive(p->run->sim, i) || m->lying)
    return;
  m->lying = m->kind == GARBAGE;
  if (hv_sim_command(p->run->sim, i, m->lying ? &m->lie : &m->begin) != HV_OK)
    abort();
}

static void begin_all(play *p) {
  swarm_run *run = p->run;
  int late = below(run, 4) == 0;
  for (size_t i = 0; i < p->n; i++) {
    member *m = &p->members[i];
    m->begin.run = begin_round;
    m->lie.run = tell_lies;
    post(p, i);
    hv_sim_run_until(run->sim, hv_sim_now(run->sim) + below(run, late ? 300000 / p->n + 1 : 3000));
  }
}

static void go(play *p) {
  swarm_run *run = p->run;
  choose_faults(p);
  begin_all(p);
  for (int k = 0; k < 4; k++) { /* those who lie do so again and again */
    hv_sim_run_until(run->sim, hv_sim_now(run->sim) + 100000);
    for (size_t i = 0; i < p->n; i++)
      if (p->members[i].kind == GARBAGE)
        post(p, i);
  }
  hv_sim_drive(run->sim, all_are_told, p, run->end_us);
  check_all(p);
  for (size_t i = 0; i < p->n; i++)
    if (is_judged(&p->members[i]) && p->members[i].done)
      hv_allreduce_free(p->members[i].allreduce);
  hv_sim_heal(run->sim);
  for (size_t i = 0; i < p->n; i++)
    hv_sim_continue(run->sim, i);
  hv_sim_run_until(run->sim, hv_sim_now(run->sim) + 60 * SECOND);
  for (size_t i = 0; i < p->n; i++)
    if (hv_sim_alive(run->sim, i) && p->members[i].done && hv_node_registry(hv_sim_core(run->sim, i))->rounds)
      swarm_fail(run, "the round of member %zu does not go away", i);
}

void swarm_round_play(swarm_run *run) {
  play *p = hv_mem_zalloc(&run->mem, sizeof *p);
  if (!p)
    abort();
  p->run = run;
  p->kern = hv_cpu_best();
  p->mildly = 1;
  p->in_place = (int)below(run, 2);
  hv_sim_link link = {.delay_us = 1000 + below(run, 30000),
                      .jitter_us = below(run, 20000),
                      .rate = below(run, 2) ? 150000 + below(run, 400000) : 0};
  link.loss = run->options->faults & SWARM_LOSS && below(run, 3) == 0 ? 0.03 : 0;
  hv_sim_set_link(run->sim, HV_SIM_ANY, HV_SIM_ANY, &link);
  choose_layout(p);
  choose_members(p);
  for (size_t i = 0; i < p->n; i++) {
    p->members[i].p = p, p->members[i].index = i;
    make_member(p, i);
  }
  choose_spans(p, p->members[0].in_run.n_chunks);
  size_t leader = below(run, p->n);
  for (size_t i = 0; i < p->n; i++) {
    p->members[i].round.leader = leader;
    hv_sim_node_config seat = {.make = make_node, .free = free_node, .arg = &p->plan[i].at.id, .client_mode = p->plan[i].client};
    size_t node;
    if (hv_sim_add(run->sim, &seat, &node) != HV_OK)
      abort();
  }
  go(p);
  swarm_over(run);
  for (size_t i = 0; i < p->n; i++) {
    member *m = &p->members[i];
    move_out(m);
    hv_run_fini(&m->in_run), hv_run_fini(&m->out_run);
    hv_mem_free(m->out == m->in ? NULL : m->out);
    hv_mem_free(m->in);
    hv_mem_free(m->in_before), hv_mem_free(m->out_before), hv_mem_free(m->values);
  }
  hv_mem_free(p);
}
