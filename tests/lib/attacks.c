#include "lib/attacks.h"

#include "lib/check.h"
#include "net/clock.h"

#include <string.h>
#include <time.h>

enum { PATIENCE_MS = 1000, TCP_BYTES = 200, TLS_BYTES = 3000, REST_MS = 20 };

static const attack *const books[] = {attacks_of_sockets, attacks_of_frames, attacks_of_calls};

const attack *attacks_at(size_t i) {
  for (size_t b = 0; b < sizeof books / sizeof *books; b++)
    for (const attack *at = books[b]; at->name; at++, i--)
      if (i == 0)
        return at;
  return NULL;
}

size_t attacks_count(void) {
  size_t n = 0;
  while (attacks_at(n))
    n++;
  return n;
}

const attack *attacks_named(const char *name) {
  for (size_t i = 0; i < attacks_count(); i++)
    if (strcmp(attacks_at(i)->name, name) == 0)
      return attacks_at(i);
  return NULL;
}

uint64_t attacks_random(attacker *a, uint64_t below) {
  return check_random(&a->rng) % below;
}

/* Sleeps until then, or until its time is over. */
static int sleep_until(const attacker *a, uint64_t when) {
  uint64_t now = hv_clock_us(), until = when < a->until_us ? when : a->until_us;
  if (now < until)
    nanosleep(&(struct timespec){.tv_sec = (time_t)((until - now) / 1000000), .tv_nsec = (long)((until - now) % 1000000 * 1000)},
              NULL);
  return hv_clock_us() < a->until_us;
}

int attacks_pause(attacker *a, unsigned ms) {
  return sleep_until(a, hv_clock_us() + ms * UINT64_C(1000));
}

static uint64_t processor_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int attacks_spend(attacker *a, size_t bytes) {
  enum { SHORT_MS = 20 };
  a->sent += bytes;
  while (a->cores > 0 && (double)processor_us() > a->cores * (double)(hv_clock_us() - a->first_us))
    if (!attacks_pause(a, SHORT_MS))
      return 0;
  return sleep_until(a, a->rate ? a->begun_us + a->sent * 1000000 / a->rate : 0);
}

int attacks_dial(attacker *a) {
  if (!attacks_spend(a, TCP_BYTES))
    return -1;
  int fd = h2_dial(a->from, &a->at, PATIENCE_MS);
  a->connected += fd >= 0;
  a->refused += fd < 0;
  return fd;
}

int attacks_open(attacker *a, h2_client *client) {
  *client = (h2_client){.fd = -1};
  if (!a->insecure && !attacks_spend(a, TLS_BYTES))
    return 0;
  int is_open = h2_greet(client, attacks_dial(a), a->insecure ? NULL : &a->key) && h2_preface(client, 0);
  client->me = *hv_identity_peer(a->key.identity);
  return is_open;
}

void attacks_play(const attack *which, attacker *a) {
  enum { MESSAGE_MAX = 4 << 20 };
  h2_key_init(&a->key, a->seed);
  hv_buf_init(&a->message, &a->key.mem, MESSAGE_MAX);
  memcpy(&a->rng.state, a->seed, sizeof a->rng.state);
  if (!a->first_us)
    a->first_us = hv_clock_us();
  a->begun_us = hv_clock_us() - (a->rate ? a->sent * 1000000 / a->rate : 0);
  do
    which->play(a);
  while (attacks_pause(a, REST_MS));
  hv_buf_fini(&a->message);
  h2_key_fini(&a->key);
}
