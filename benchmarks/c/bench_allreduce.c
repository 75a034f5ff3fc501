/* One group in processes of its own averages the same run again and again: how long does a round take?
 *
 *   bench_allreduce [--peers N] [--mb M] [--rounds R] [--codec NAME] [--chunk VALUES] [--insecure]
 *                   [--wan MBIT [--rtt MS] [--loss PERCENT] [--queue KB] [--congestion NAME] [--raw] [--unpaced] [--lanes N]]
 *                   [--lose K [--stop] [--stall MS]] [--hub] [--keep] [--log]
 *
 * On loopback, or over lines of so many Mbit/s each way (wan.h; as root). --raw: no averaging; the same bytes between the same
 * peers over plain TCP connections, one where ours has one. --unpaced: connections send as fast as they
 * can, whatever earlier rounds have shown. --lanes: each stream goes over N connections, whatever the line is like. --lose: one
 * more round, in which K of the peers are killed (or stopped) when half of the median is over; it lasts until the others are done.
 * --hub: the first peer has no values and averages those of all others, which only dial out.
 * --keep: each peer keeps the encoded averages of the latest round, as for a log.
 * --log: what the peers have to say goes to stderr, with the seconds of the host's clock.
 *
 * Each peer has M MB of float32. A round lasts from the moment when all are told to begin to the last one's done (the next one
 * begins when all have heard that all are); one before them all warms up. One line for each round, JSON last: seconds of the
 * median, GB/s (M over that), processor seconds of all peers for each GB of M. */
#include "core/node.h"
#include "core/round/partition.h"
#include "core/util/flow.h"
#include "net/clock.h"
#include "net/identity.h"
#include "net/transport/loop.h"
#include "wan.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEERS_MAX = 16, ROUNDS_MAX = 200, LANES_MAX = 16, PIPES_MAX = 2 * PEERS_MAX * LANES_MAX };

typedef struct options {
  size_t peers, mb, rounds, lose, lanes;
  uint32_t chunk, stall_ms;
  int codec, insecure, raw, stop, unpaced, hub, keeps, logs;
  wan_link wan; /* rate 0: loopback */
} options;

typedef struct peer {
  const options *how;
  size_t index;
  int from, to; /* pipes to the parent */
  hv_mem mem;
  hv_log *log;
  hv_identity *identity;
  hv_loop *loop;
  hv_node *node;
  hv_run run;
  float *values;
  hv_round_member plan[PEERS_MAX];
  hv_round round;
  hv_allreduce *under_way;
  hv_timer settle; /* looks whether all are finished */
  hv_command begin;
  hv_flow_past past;
  hv_payload *kept; /* of the latest round */
} peer;

static void die(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void put(int fd, const void *bytes, size_t size) {
  if (write(fd, bytes, size) != (ssize_t)size)
    die("a pipe broke");
}

static void get(int fd, void *bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    ssize_t n = read(fd, (char *)bytes + at, size - at);
    if (n <= 0)
      die("a pipe broke");
    at += (size_t)n;
  }
}

static hv_identity *identity_of(hv_mem *mem, size_t index) {
  uint8_t seed[32] = {(uint8_t)(index + 1), 77};
  hv_identity *identity = hv_identity_from_seed(mem, seed);
  if (!identity)
    die("no identity");
  return identity;
}

/* ---- a peer ---- */

/* A member that lost an owner may need these values: it stays until all are finished, as in core/average. */
static void see_if_finished(hv_timer *timer, const hv_event *event) {
  peer *p = timer->owner;
  const int32_t over = HV_OK;
  (void)event;
  if (!hv_allreduce_finished(p->under_way)) {
    hv_env *env = hv_loop_env(p->loop);
    env->timer_set(env, timer, 1000);
    return;
  }
  hv_allreduce_free(p->under_way);
  put(p->to, &over, sizeof over);
}

static void round_done(void *arg, hv_allreduce *self, hv_status status) {
  peer *p = arg;
  const int32_t told = status;
  hv_flow_learn(&p->past, hv_allreduce_speed(self));
  if (p->how->keeps && !(p->kept = hv_allreduce_kept(self)))
    die("a round kept nothing");
  put(p->to, &told, sizeof told);
  p->settle = (hv_timer){.fire = see_if_finished, .owner = p};
  see_if_finished(&p->settle, NULL);
}

static void begin_round(hv_command *command, void *core) {
  peer *p = (peer *)((char *)command - offsetof(peer, begin));
  hv_error err = {0};
  hv_payload_release(p->kept);
  p->kept = NULL;
  if (!core || hv_allreduce_begin(hv_node_registry(core), &p->round, round_done, p, &p->under_way, &err) != HV_OK)
    die(err.text);
}

static void *tell_log(void *arg) {
  const peer *p = arg;
  hv_log_record r;
  for (;; usleep(5000)) /* until the process ends */
    while (hv_log_take(p->log, &r))
      fprintf(stderr, "%.3f peer %zu %s %s: %s\n", (double)r.time_us / 1e6, p->index, r.room, r.event, r.text);
  return NULL;
}

static void start_log(peer *p) {
  pthread_t teller;
  p->log = hv_log_new(&p->mem, 1024, HV_LOG_INFO);
  if (!p->log || pthread_create(&teller, NULL, tell_log, p) != 0)
    die("no log");
}

static void open_node(peer *p) {
  hv_addr any;
  hv_error err = {0};
  char text[64], host[32] = "127.0.0.1";
  if (p->how->wan.rate > 0)
    wan_address(p->index, host);
  int size = snprintf(text, sizeof text, "/ip4/%s/tcp/0", host);
  hv_addr_parse(hv_span_of(text, (size_t)size), &any, NULL, NULL);
  hv_mem_init(&p->mem, NULL, HV_MEM_UNLIMITED);
  p->identity = identity_of(&p->mem, p->index);
  if (p->how->logs)
    start_log(p);
  hv_loop_config config = {.mem = &p->mem,
                           .log = p->log,
                           .identity = p->identity,
                           .insecure = p->how->insecure,
                           .listen = &any,
                           .n_listen = 1,
                           .lanes = (unsigned)p->how->lanes};
  hv_node_config node = {.me = *hv_identity_peer(p->identity)};
  if (hv_loop_new(&config, &p->loop, &err) != HV_OK || hv_node_new(hv_loop_env(p->loop), &node, &p->node) != HV_OK)
    die(err.text);
  if (hv_loop_run(p->loop, &(hv_core){p->node, hv_node_step}, &err) != HV_OK)
    die(err.text);
}

static void make_plan(peer *p) {
  hv_partition_member shares[PEERS_MAX];
  size_t n = p->how->peers, n_addrs;
  const hv_addr *addrs = hv_loop_addrs(p->loop, &n_addrs);
  put(p->to, addrs, sizeof *addrs);
  for (size_t i = 0; i < n; i++) {
    hv_identity *identity = identity_of(&p->mem, i);
    p->plan[i] = (hv_round_member){.at = {.id = *hv_identity_peer(identity)}};
    hv_identity_free(identity);
    get(p->from, &p->plan[i].at.addr, sizeof(hv_addr));
    int is_hub = p->how->hub && i == 0;
    p->plan[i].auxiliary = (uint8_t)is_hub, p->plan[i].client = (uint8_t)(p->how->hub && i);
    shares[i] = (hv_partition_member){.bandwidth = 1, .owns = !p->plan[i].client, .contributes = !is_hub};
  }
  hv_partition(shares, n, p->run.n_chunks);
  for (size_t i = 0; i < n; i++)
    p->plan[i].first = shares[i].first, p->plan[i].count = shares[i].count;
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void live(peer *p) {
  const options *how = p->how;
  uint64_t n = (uint64_t)how->mb * 250000;
  open_node(p);
  p->values = hv_mem_aligned(&p->mem, n * sizeof(float));
  for (uint64_t i = 0; i < n; i++)
    p->values[i] = (float)((i * 2654435761u + p->index) % 1000) / 500 - 1;
  hv_run_part part = {.data = p->values, .dtype = HV_DTYPE_FLOAT32, .n_values = n, .codec = (hv_codec)how->codec};
  hv_error err = {0};
  if (hv_run_init(&p->run, &p->mem, &part, 1, how->chunk ? how->chunk : hv_run_fit(n, 1 << 17), &err) != HV_OK)
    die(err.text);
  make_plan(p);
  p->begin.run = begin_round;
  double before = 0;
  for (uint32_t r = 0; r <= how->rounds + (how->lose > 0); r++) {
    char go;
    get(p->from, &go, 1);
    if (r == 1) /* the first one does not count */
      before = cpu_seconds();
    p->round = (hv_round){.id = {(uint8_t)r, 1},
                          .members = p->plan,
                          .n_members = how->peers,
                          .me = p->index,
                          .in = &p->run,
                          .out = how->hub && p->index == 0 ? NULL : &p->run,
                          .weight = 1,
                          .stall_ms = how->stall_ms,
                          .keep = how->keeps,
                          .speed = how->unpaced ? 0 : p->past.speed,
                          .kern = hv_cpu_best()};
    if (hv_loop_post(p->loop, &p->begin) != HV_OK)
      die("the node has ended");
  }
  char go;
  get(p->from, &go, 1);
  double cpu = cpu_seconds() - before;
  hv_loop_stop(p->loop);
  hv_payload_release(p->kept);
  hv_node_free(p->node);
  hv_loop_free(p->loop);
  hv_run_fini(&p->run);
  hv_mem_free(p->values);
  hv_identity_free(p->identity);
  put(p->to, &cpu, sizeof cpu);
}

/* ---- the same bytes over plain TCP ---- */

enum { RAW_PORT = 5000 };

typedef struct pipeline {
  int fd;
  size_t sent, got;
} pipeline;

static void open_pipelines(peer *p, pipeline *pipes) {
  size_t n = p->how->peers, n_pipes = 0, lanes = p->how->lanes ? p->how->lanes : 1;
  char host[32];
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(RAW_PORT)};
  int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  hv_addr nothing = {0};
  if (setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(door, (struct sockaddr *)&at, sizeof at) ||
      listen(door, PEERS_MAX * LANES_MAX))
    die("cannot listen");
  put(p->to, &nothing, sizeof nothing);
  for (size_t i = 0; i < n; i++)
    get(p->from, &nothing, sizeof nothing); /* all listen now */
  for (size_t i = 0; i < n * lanes; i++) {
    if (i / lanes == p->index)
      continue;
    wan_address(i / lanes, host);
    at.sin_addr.s_addr = inet_addr(host);
    pipes[n_pipes].fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pipes[n_pipes++].fd, (struct sockaddr *)&at, sizeof at) != 0)
      die("cannot connect");
  }
  for (size_t i = lanes; i < n * lanes; i++)
    pipes[n_pipes++].fd = accept(door, NULL, NULL);
  for (size_t i = 0; i < n_pipes; i++)
    fcntl(pipes[i].fd, F_SETFL, O_NONBLOCK);
  close(door);
}

/* Moves `bytes` each way through each. */
static void fill_pipelines(pipeline *pipes, size_t n, size_t bytes) {
  static uint8_t buffer[1 << 18];
  static struct pollfd polls[PIPES_MAX];
  for (size_t left = n; left > 0;) {
    for (size_t i = 0; i < n; i++) {
      int wants = (pipes[i].sent < bytes ? POLLOUT : 0) | (pipes[i].got < bytes ? POLLIN : 0);
      polls[i] = (struct pollfd){.fd = wants ? pipes[i].fd : -1, .events = (short)wants};
    }
    poll(polls, n, -1);
    left = 0;
    for (size_t i = 0; i < n; i++) {
      size_t more = bytes - pipes[i].sent < sizeof buffer ? bytes - pipes[i].sent : sizeof buffer;
      ssize_t out = more ? write(pipes[i].fd, buffer, more) : 0;
      ssize_t in = pipes[i].got < bytes ? read(pipes[i].fd, buffer, sizeof buffer) : 0;
      pipes[i].sent += out > 0 ? (size_t)out : 0;
      pipes[i].got += in > 0 ? (size_t)in : 0;
      left += pipes[i].sent < bytes || pipes[i].got < bytes;
    }
  }
  for (size_t i = 0; i < n; i++)
    pipes[i].sent = pipes[i].got = 0;
}

static void live_raw(peer *p) {
  const options *how = p->how;
  static pipeline pipes[PIPES_MAX];
  size_t lanes = how->lanes ? how->lanes : 1;
  int32_t status = HV_OK;
  double before = 0;
  char go;
  open_pipelines(p, pipes);
  for (size_t r = 0; r <= how->rounds; r++) {
    get(p->from, &go, 1);
    before = r == 1 ? cpu_seconds() : before;
    fill_pipelines(pipes, 2 * (how->peers - 1) * lanes, how->mb * 1000000 / how->peers / lanes);
    put(p->to, &status, sizeof status);
    put(p->to, &status, sizeof status);
  }
  get(p->from, &go, 1);
  double cpu = cpu_seconds() - before;
  put(p->to, &cpu, sizeof cpu);
}

/* ---- all of them ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void read_options(int argc, char **argv, options *o) {
  *o = (options){.peers = 4, .mb = 64, .rounds = 5, .codec = HV_CODEC_NONE, .stall_ms = 10000};
  o->wan = (wan_link){.rtt_s = 0.05, .queue = 1 << 20};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int *flag = strcmp(argv[i], "--insecure") == 0  ? &o->insecure
                : strcmp(argv[i], "--raw") == 0     ? &o->raw
                : strcmp(argv[i], "--stop") == 0    ? &o->stop
                : strcmp(argv[i], "--unpaced") == 0 ? &o->unpaced
                : strcmp(argv[i], "--hub") == 0     ? &o->hub
                : strcmp(argv[i], "--keep") == 0    ? &o->keeps
                : strcmp(argv[i], "--log") == 0     ? &o->logs
                                                    : NULL;
    if (flag) {
      *flag = 1;
      continue;
    }
    if (strcmp(argv[i], "--peers") == 0)
      o->peers = strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--mb") == 0)
      o->mb = strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--rounds") == 0)
      o->rounds = strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--chunk") == 0)
      o->chunk = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--codec") == 0)
      o->codec = hv_codec_find(value);
    else if (strcmp(argv[i], "--wan") == 0)
      o->wan.rate = strtod(value, NULL) * 125000;
    else if (strcmp(argv[i], "--rtt") == 0)
      o->wan.rtt_s = strtod(value, NULL) / 1000;
    else if (strcmp(argv[i], "--loss") == 0)
      o->wan.loss = strtod(value, NULL) / 100;
    else if (strcmp(argv[i], "--queue") == 0)
      o->wan.queue = strtoul(value, NULL, 10) * 1000;
    else if (strcmp(argv[i], "--congestion") == 0)
      o->wan.congestion = value;
    else if (strcmp(argv[i], "--lanes") == 0)
      o->lanes = strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--lose") == 0)
      o->lose = strtoul(value, NULL, 10);
    else if (strcmp(argv[i], "--stall") == 0)
      o->stall_ms = (uint32_t)strtoul(value, NULL, 10);
    else
      die("what? The options stand at the top of benchmarks/c/bench_allreduce.c");
    i++;
  }
  if (o->peers < 1 || o->peers > PEERS_MAX || o->rounds < 1 || o->rounds > ROUNDS_MAX || o->mb < 1 || o->codec < 0)
    die("1 to 16 peers, 1 to 200 rounds, 1 MB or more, and a codec that there is");
  if (o->lanes > LANES_MAX)
    die("at most 16 lanes");
  if ((o->raw && !(o->wan.rate > 0)) || o->lose + 1 >= o->peers)
    die("--raw needs --wan, and two peers must be left");
}

static void await(int from) {
  int32_t status;
  get(from, &status, sizeof status);
  if (status != HV_OK)
    die(hv_status_text((hv_status)status));
}

static int is_lost(const options *how, size_t i) {
  for (size_t k = 0; k < how->lose; k++)
    if (i == (2 * k + 1 < how->peers ? 2 * k + 1 : k))
      return 1;
  return 0;
}

/* Half of the median into a round some are lost; how long it takes for the others. */
static double round_with_losses(const options *how, const int *to, const int *from, const pid_t *children, double median) {
  uint64_t began = hv_clock_us();
  for (size_t i = 0; i < how->peers; i++)
    put(to[i], "g", 1);
  usleep((useconds_t)(median * 500000));
  for (size_t i = 0; i < how->peers; i++)
    if (is_lost(how, i))
      kill(children[i], how->stop ? SIGSTOP : SIGKILL);
  for (size_t i = 0; i < how->peers; i++)
    if (!is_lost(how, i))
      await(from[i]);
  double seconds = (double)(hv_clock_us() - began) / 1e6;
  for (size_t i = 0; i < how->peers; i++)
    kill(children[i], SIGKILL);
  return seconds;
}

static int start_relay(const options *how) {
  int ends[2];
  if (!(how->wan.rate > 0))
    return -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
    die("no socket");
  if (fork() == 0) {
    close(ends[1]);
    wan_relay(how->peers, &how->wan, ends[0], (uint64_t)time(NULL));
    _exit(0);
  }
  close(ends[0]);
  return ends[1];
}

int main(int argc, char **argv) {
  options how;
  read_options(argc, argv, &how);
  int to[PEERS_MAX], from[PEERS_MAX], relay = start_relay(&how);
  pid_t children[PEERS_MAX];
  for (size_t i = 0; i < how.peers; i++) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0)
      die("no pipe");
    pid_t child = fork();
    if (child == 0) {
      static peer p;
      p = (peer){.how = &how, .index = i, .from = down[0], .to = up[1]};
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (relay >= 0)
        wan_enter(i, &how.wan, relay);
      if (how.raw)
        live_raw(&p);
      else
        live(&p);
      _exit(0);
    }
    children[i] = child;
    close(down[0]), close(up[1]);
    to[i] = down[1], from[i] = up[0];
  }
  hv_addr addrs[PEERS_MAX];
  for (size_t i = 0; i < how.peers; i++)
    get(from[i], &addrs[i], sizeof *addrs);
  for (size_t i = 0; i < how.peers; i++)
    for (size_t j = 0; j < how.peers; j++)
      put(to[i], &addrs[j], sizeof *addrs);
  double seconds[ROUNDS_MAX];
  for (size_t r = 0; r <= how.rounds; r++) {
    uint64_t began = hv_clock_us();
    for (size_t i = 0; i < how.peers; i++)
      put(to[i], "g", 1);
    for (size_t i = 0; i < how.peers; i++)
      await(from[i]);
    double took = (double)(hv_clock_us() - began) / 1e6;
    for (size_t i = 0; i < how.peers; i++)
      await(from[i]); /* its buffers are free again */
    if (r == 0)
      continue;
    seconds[r - 1] = took;
    printf("round %zu: %.3f s\n", r, seconds[r - 1]);
  }
  qsort(seconds, how.rounds, sizeof *seconds, by_value);
  double median = seconds[how.rounds / 2], gb = (double)how.mb / 1000;
  if (how.lose) {
    double lost = round_with_losses(&how, to, from, children, median);
    printf("{\"peers\": %zu, \"mb\": %zu, \"lost\": %zu, \"clean_s\": %.4f, \"s\": %.4f}\n", how.peers, how.mb, how.lose, median,
           lost);
    return 0;
  }
  double cpu = 0, one;
  for (size_t i = 0; i < how.peers; i++)
    put(to[i], "e", 1);
  for (size_t i = 0; i < how.peers; i++) {
    get(from[i], &one, sizeof one);
    cpu += one;
  }
  for (size_t i = 0; i < how.peers; i++)
    waitpid(children[i], NULL, 0);
  printf("{\"peers\": %zu, \"mb\": %zu, \"codec\": \"%s\", \"tls\": %d, \"median_s\": %.4f, \"best_s\": %.4f, \"gb_per_s\": %.4f, "
         "\"cpu_s_per_gb\": %.3f}\n",
         how.peers, how.mb, hv_codec_name(how.codec), !how.insecure, median, seconds[0], gb / median,
         cpu / gb / (double)how.rounds);
  return 0;
}
