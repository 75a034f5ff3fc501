/* How fast does the simulated world turn? 1,000 nodes for 10 virtual minutes, each asking 16 neighbours every 5 s, over the wire's
 * own bytes, with a trace hash. Prints one JSON line. Arguments: nodes, virtual seconds. */
#include "net/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NEIGHBOURS = 16, EVERY_US = 5000000, TIMEOUT_MS = 3000 };

typedef struct caller {
  hv_env *env;
  hv_sim *sim;
  size_t me, n;
  hv_target to[NEIGHBOURS];
  hv_call calls[NEIGHBOURS];
  hv_timer timer;
  uint64_t answered;
} caller;

static void done(hv_call *call, const hv_event *event) {
  ((caller *)call->owner)->answered += event->status == HV_OK;
}

static void ask_all(hv_timer *timer, const hv_event *event) {
  caller *c = timer->owner;
  (void)event;
  hv_msg msg = {.kind = HV_MSG_ECHO,
                .u.echo = {hv_span_of("some sixty-four bytes, as a short question to a peer would have..", 64)}};
  for (int i = 0; i < NEIGHBOURS; i++) {
    if (c->calls[i].world)
      continue;
    c->calls[i] = (hv_call){.done = done, .owner = c, .to = c->to[i], .timeout_ms = TIMEOUT_MS};
    c->env->call(c->env, &c->calls[i], &msg);
  }
  c->env->timer_set(c->env, timer, EVERY_US);
}

static void step(void *self, const hv_event *event) {
  caller *c = self;
  if (hv_event_dispatch(event))
    return;
  if (event->kind == HV_EVENT_REQUEST)
    c->env->reply(c->env, event->request, event->msg);
  if (event->kind != HV_EVENT_START)
    return;
  for (int i = 0; i < NEIGHBOURS; i++)
    c->to[i] = hv_sim_target(c->sim, (c->me + ((size_t)1 << i)) % c->n); /* as far apart as a DHT's */
  uint32_t r;
  c->env->random(c->env, &r, sizeof r);
  c->timer = (hv_timer){.fire = ask_all, .owner = c};
  c->env->timer_set(c->env, &c->timer, r % EVERY_US);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  caller *c = arg;
  c->env = env;
  *out = (hv_core){c, step};
  return HV_OK;
}

static void let_go(void *self) {
  (void)self;
}

static double seconds_of(clockid_t which) {
  struct timespec t;
  clock_gettime(which, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
  uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 600;
  hv_sim_config config = hv_sim_defaults(1);
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  caller *callers = calloc(n ? n : 1, sizeof *callers);
  hv_sim *sim = hv_sim_new(&mem, &config);
  if (n == 0 || !callers || !sim)
    return 1;
  double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  for (size_t i = 0; i < n; i++) {
    callers[i] = (caller){.sim = sim, .me = i, .n = n};
    if (hv_sim_add(sim, &(hv_sim_node_config){.make = make, .free = let_go, .arg = &callers[i]}, NULL) != HV_OK)
      return 1;
  }
  hv_sim_run_until(sim, seconds * 1000000);
  wall = seconds_of(CLOCK_MONOTONIC) - wall;
  cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  hv_sim_counts counts = hv_sim_count(sim);
  uint64_t answered = 0, hash = hv_sim_hash(sim);
  for (size_t i = 0; i < n; i++)
    answered += callers[i].answered;
  size_t peak = atomic_load(&mem.peak);
  hv_sim_free(sim);
  free(callers);
  printf("{\"nodes\": %zu, \"virtual_s\": %llu, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"events\": %llu, \"events_per_s\": %.0f, "
         "\"calls\": %llu, \"answered\": %llu, "
         "\"peak_bytes\": %zu, \"hash\": \"%016llx\"}\n",
         n, (unsigned long long)seconds, wall, cpu, (unsigned long long)counts.events, (double)counts.events / cpu,
         (unsigned long long)counts.calls, (unsigned long long)answered, peak, (unsigned long long)hash);
  return 0;
}
