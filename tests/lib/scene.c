#include "lib/scene.h"

#include "core/round/partition.h"

#include <math.h>
#include <string.h>

#define SECOND 1000000ull

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

static void round_done(void *arg, hv_allreduce *self, hv_status status) {
  scene_member *m = arg;
  m->status = status;
  m->done++;
  m->done_us = hv_sim_now(m->scene->sim);
  assert_ptr_equal(self, m->allreduce);
}

static void begin_round(hv_command *command, void *core) {
  scene_member *m = (scene_member *)((char *)command - offsetof(scene_member, begin));
  if (!core)
    return;
  m->begun = hv_allreduce_begin(hv_node_registry(core), &m->round, round_done, m, &m->allreduce, NULL) == HV_OK;
}

static void add_nodes(scene *s, const scene_setup *how) {
  hv_partition_member shares[SCENE_MEMBERS_MAX];
  for (size_t i = 0; i < how->n; i++) {
    hv_round_member *m = &s->plan[i];
    *m = (hv_round_member){.at = hv_sim_target(s->sim, i)};
    m->client = how->client && i == how->client;
    m->auxiliary = how->auxiliary && i == how->auxiliary;
    shares[i] = (hv_partition_member){.bandwidth = (double)how->told[i], .owns = !m->client, .contributes = !m->auxiliary};
    hv_sim_node_config seat = {.make = make_node, .free = free_node, .arg = &m->at.id, .client_mode = m->client};
    seat.up_rate = seat.down_rate = how->slow && i == how->n - 1 ? how->slow : how->line;
    size_t node;
    assert_int_equal(hv_sim_add(s->sim, &seat, &node), HV_OK);
  }
  uint32_t chunks = (uint32_t)((how->n_values + how->chunk_values - 1) / how->chunk_values);
  assert_int_equal(hv_partition(shares, how->n, chunks), HV_OK);
  for (size_t i = 0; i < how->n; i++)
    s->plan[i].first = shares[i].first, s->plan[i].count = shares[i].count;
}

static void fill(scene *s, scene_member *m, const scene_setup *how) {
  check_rng rng = {how->seed * 100 + m->index};
  m->in = hv_mem_aligned(&s->mem, how->n_values * sizeof(float));
  m->out = how->in_place ? m->in : hv_mem_aligned(&s->mem, how->n_values * sizeof(float));
  m->saved = hv_mem_aligned(&s->mem, how->n_values * sizeof(float));
  for (uint64_t i = 0; i < how->n_values; i++) {
    m->in[i] = m->saved[i] = (float)check_normal(&rng);
    if (!how->in_place)
      m->out[i] = -77;
  }
}

/* There, or back. */
static void turn(scene *s, scene_member *m) {
  if (!m->is_away)
    return;
  away_turn(m->in, s->n_values * sizeof(float));
  if (m->out != m->in)
    away_turn(m->out, s->n_values * sizeof(float));
}

void scene_bring(scene *s) {
  for (size_t i = 0; i < s->n; i++)
    turn(s, &s->members[i]);
}

static void add_member(scene *s, size_t i, const scene_setup *how) {
  scene_member *m = &s->members[i];
  m->scene = s, m->index = i;
  m->begin.run = begin_round;
  if (!s->plan[i].auxiliary)
    fill(s, m, how);
  m->weight = 1 + (float)(i % 3);
  m->is_away = !s->plan[i].auxiliary && (how->away >> i & 1);
  away_init(&m->device);
  hv_run_part part = {m->in, HV_DTYPE_FLOAT32, how->n_values, how->codec, m->is_away ? &m->device.table : NULL, how->row,
                      0,     how->narrow};
  if (m->is_away && how->device)
    part.device = how->device, m->is_away = 0;
  turn(s, m);
  assert_int_equal(hv_run_init(&m->in_run, &s->mem, &part, 1, how->chunk_values, NULL), HV_OK);
  part.data = m->out;
  assert_int_equal(hv_run_init(&m->out_run, &s->mem, &part, 1, how->chunk_values, NULL), HV_OK);
  m->round = (hv_round){.id = {(uint8_t)how->seed, 7},
                        .members = s->plan,
                        .n_members = how->n,
                        .me = i,
                        .leader = how->leader,
                        .keep = how->keep,
                        .narrow = how->sends_narrow >> i & 1,
                        .weight = m->weight,
                        .stall_ms = how->stall_ms ? how->stall_ms : 3000,
                        .kern = hv_cpu_best(),
                        .in = &m->in_run,
                        .out = s->plan[i].auxiliary ? NULL : &m->out_run};
}

void scene_open(scene *s, const scene_setup *how) {
  memset(s, 0, sizeof *s);
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(how->seed);
  if (how->link.delay_us)
    config.link = how->link;
  if (how->window)
    config.window = how->window;
  if (how->job_us)
    config.job_us = how->job_us;
  config.skip_payload_hash = how->quiet;
  s->sim = hv_sim_new(&s->mem, &config);
  s->n = how->n;
  s->n_values = how->n_values;
  add_nodes(s, how);
  for (size_t i = 0; i < how->n; i++)
    add_member(s, i, how);
}

void scene_begin(scene *s, size_t i) {
  assert_int_equal(hv_sim_command(s->sim, i, &s->members[i].begin), HV_OK);
}

void scene_run(scene *s, double seconds) {
  hv_sim_run_until(s->sim, hv_sim_now(s->sim) + (uint64_t)(seconds * SECOND));
}

void scene_cut(scene *s, size_t a, size_t b, int cut) {
  hv_sim_cut(s->sim, a, b, cut);
  hv_sim_cut(s->sim, b, a, cut);
}

void scene_begin_all(scene *s) {
  for (size_t i = 0; i < s->n; i++) {
    scene_begin(s, i);
    scene_run(s, 0.003);
  }
}

void scene_close(scene *s) {
  for (size_t i = 0; i < s->n; i++)
    if (s->members[i].begun && hv_sim_alive(s->sim, i))
      hv_allreduce_free(s->members[i].allreduce);
  scene_run(s, 60);
  for (size_t i = 0; i < s->n; i++) /* what lingered is gone */
    if (hv_sim_alive(s->sim, i))
      assert_null(hv_node_registry(hv_sim_core(s->sim, i))->rounds);
  assert_int_equal(hv_sim_free(s->sim), 0);
  for (size_t i = 0; i < s->n; i++) {
    scene_member *m = &s->members[i];
    away_fini(&m->device);
    hv_mem_free(m->out == m->in ? NULL : m->out);
    hv_mem_free(m->in);
    hv_mem_free(m->saved);
    hv_run_fini(&m->in_run);
    hv_run_fini(&m->out_run);
  }
  assert_int_equal(s->mem.blocks, 0);
}

double scene_mean(const scene *s, unsigned set, uint64_t at) {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < s->n; i++)
    if (set >> i & 1 && !s->plan[i].auxiliary) {
      sum += (double)s->members[i].weight * s->members[i].saved[at];
      weight += s->members[i].weight;
    }
  return sum / weight;
}

unsigned scene_set(const scene *s, size_t member, uint32_t chunk) {
  unsigned set = 0;
  for (size_t i = 0; i < s->n; i++)
    set |= (unsigned)hv_allreduce_counts(s->members[member].allreduce, chunk, i) << i;
  return set;
}

void scene_each_chunk_is_right(const scene *s, size_t member) {
  const scene_member *m = &s->members[member];
  for (uint32_t c = 0; c < m->in_run.n_chunks; c++) {
    hv_run_chunk chunk = hv_run_chunk_of(&m->in_run, c);
    unsigned set = scene_set(s, member, c);
    assert_int_equal(set != 0, hv_allreduce_averaged(m->allreduce, c));
    for (uint64_t at = chunk.at; at < chunk.at + chunk.size; at++)
      if (set)
        assert_true(fabs(m->out[at] - scene_mean(s, set, at)) < 1e-5);
      else
        assert_true(m->out[at] == (m->out == m->in ? m->saved[at] : -77));
  }
}

void scene_all_have_the_same(const scene *s, unsigned set) {
  const scene_member *first = NULL;
  for (size_t i = 0; i < s->n; i++) {
    const scene_member *m = &s->members[i];
    if (!(set >> i & 1))
      continue;
    assert_int_equal(m->done, 1);
    assert_int_equal(m->status, HV_OK);
    if (!m->out)
      continue;
    if (first) {
      assert_memory_equal(m->out, first->out, s->n_values * sizeof(float));
      if (hv_allreduce_view(m->allreduce) == hv_allreduce_view(first->allreduce))
        assert_true(hv_allreduce_stamp(m->allreduce) == hv_allreduce_stamp(first->allreduce));
    } else {
      first = m;
    }
  }
}
