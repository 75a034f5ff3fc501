/* A program that attacks a node: many keys, each with an attack, an address of its own and a rate.
 *
 *   attacker --to /ip4/A.B.C.D/tcp/PORT [--from A.B.C.D,...] [--attacks NAME,...] [--keys N] [--seconds S] [--rate BYTES] [--seed
 * N]
 *            [--each S] [--cores N] [--insecure]
 *   attacker --sink /ip4/A.B.C.D/tcp/PORT
 *   attacker --list
 *
 * As a sink it takes what other attackers send. Key k connects from the address k of the list, in turns. It plays an attack for
 * `each` seconds, and then another one, chosen by the seed. At its end the program prints one JSON object: bytes that were sent,
 * connections, connections that it did not get.
 */
#include "lib/attacks.h"
#include "net/clock.h"
#include "siege/sink.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { KEYS_MAX = 1000, FROM_MAX = 64, NAMES_MAX = 64 };

typedef struct orders {
  hv_addr to;
  uint32_t from[FROM_MAX];
  size_t n_from;
  const attack *names[NAMES_MAX];
  size_t n_names;
  unsigned keys, seed;
  double seconds, each, rate, cores;
  int insecure;
} orders;

typedef struct soldier {
  pthread_t thread;
  const orders *orders;
  attacker a;
  uint64_t ends_us;
} soldier;

static void *fight(void *arg) {
  soldier *s = arg;
  const orders *o = s->orders;
  check_rng rng;
  memcpy(&rng.state, s->a.seed, sizeof rng.state);
  for (uint64_t now; (now = hv_clock_us()) < s->ends_us;) {
    uint64_t until = now + (uint64_t)(o->each * 1e6);
    s->a.until_us = until < s->ends_us ? until : s->ends_us;
    s->a.until_us = s->a.until_us > now ? s->a.until_us : now;
    attacks_play(o->names[check_random(&rng) % o->n_names], &s->a);
  }
  return NULL;
}

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "attacker: %s: %s\n", what, why);
  exit(2);
}

static void read_from(orders *o, char *list) {
  for (char *at = strtok(list, ","); at; at = strtok(NULL, ",")) {
    struct in_addr one;
    if (o->n_from == FROM_MAX || inet_pton(AF_INET, at, &one) != 1)
      give_up(at, "it is no address of IPv4, or there are too many");
    o->from[o->n_from++] = ntohl(one.s_addr);
  }
}

static void read_names(orders *o, char *list) {
  for (char *at = strtok(list, ","); at; at = strtok(NULL, ","), o->n_names++)
    if (o->n_names == NAMES_MAX || !(o->names[o->n_names] = attacks_named(at)))
      give_up(at, "no attack is called so: see --list");
}

static void list_names(void) {
  for (size_t i = 0; i < attacks_count(); i++)
    puts(attacks_at(i)->name);
  exit(0);
}

static hv_addr read_addr(const char *text) {
  hv_addr addr;
  hv_error err = {0};
  if (hv_addr_parse(hv_span_of(text, strlen(text)), &addr, NULL, &err) != HV_OK || addr.kind != HV_ADDR_IP4)
    give_up(text, "it is no address of IPv4");
  return addr;
}

static void sink(const hv_addr *at) {
  sink_run(at);
  exit(1);
}

static void read_orders(orders *o, int argc, char **argv) {
  static const struct option options[] = {{"to", 1, NULL, 't'},       {"from", 1, NULL, 'f'},    {"attacks", 1, NULL, 'a'},
                                          {"keys", 1, NULL, 'k'},     {"seconds", 1, NULL, 's'}, {"rate", 1, NULL, 'r'},
                                          {"seed", 1, NULL, 'n'},     {"each", 1, NULL, 'e'},    {"cores", 1, NULL, 'c'},
                                          {"insecure", 0, NULL, 'i'}, {"sink", 1, NULL, 'w'},    {"list", 0, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
  hv_addr to_sink;
  *o = (orders){.keys = 1, .seconds = 10, .each = 5};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
    switch (c) {
    case 't':
      o->to = read_addr(optarg);
      break;
    case 'f':
      read_from(o, optarg);
      break;
    case 'a':
      read_names(o, optarg);
      break;
    case 'k':
      o->keys = (unsigned)atoi(optarg);
      break;
    case 's':
      o->seconds = atof(optarg);
      break;
    case 'r':
      o->rate = atof(optarg);
      break;
    case 'n':
      o->seed = (unsigned)atoi(optarg);
      break;
    case 'e':
      o->each = atof(optarg);
      break;
    case 'c':
      o->cores = atof(optarg);
      break;
    case 'i':
      o->insecure = 1;
      break;
    case 'w':
      to_sink = read_addr(optarg);
      sink(&to_sink);
      break;
    case 'l':
      list_names();
      break;
    default:
      exit(2);
    }
  if (o->to.kind == HV_ADDR_NONE || o->keys < 1 || o->keys > KEYS_MAX)
    give_up("--to, --keys", "give an address, and 1 to 1000 keys");
  for (size_t i = 0; !o->n_names && i + 1 <= attacks_count() && i < NAMES_MAX; i++)
    o->names[i] = attacks_at(i);
  if (!o->n_names)
    o->n_names = attacks_count();
}

int main(int argc, char **argv) {
  static soldier soldiers[KEYS_MAX];
  orders o;
  struct rlimit files;
  uint64_t sent = 0, connected = 0, refused = 0;
  signal(SIGPIPE, SIG_IGN);
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  read_orders(&o, argc, argv);
  for (unsigned i = 0; i < o.keys; i++) {
    soldier *s = &soldiers[i];
    *s = (soldier){.orders = &o, .ends_us = hv_clock_us() + (uint64_t)(o.seconds * 1e6)};
    s->a = (attacker){.at = o.to,
                      .rate = (uint64_t)o.rate,
                      .cores = o.cores,
                      .insecure = o.insecure,
                      .from = o.n_from ? o.from[i % o.n_from] : 0};
    check_rng rng = {.state = (uint64_t)o.seed << 32 | (i + 1)};
    for (size_t j = 0; j < sizeof s->a.seed; j++)
      s->a.seed[j] = (uint8_t)check_random(&rng);
    if (pthread_create(&s->thread, NULL, fight, s) != 0)
      give_up("threads", "the system gives no more");
  }
  for (unsigned i = 0; i < o.keys; i++) {
    pthread_join(soldiers[i].thread, NULL);
    sent += soldiers[i].a.sent;
    connected += soldiers[i].a.connected;
    refused += soldiers[i].a.refused;
  }
  printf("{\"sent\": %llu, \"connected\": %llu, \"refused\": %llu}\n", (unsigned long long)sent, (unsigned long long)connected,
         (unsigned long long)refused);
  return 0;
}
