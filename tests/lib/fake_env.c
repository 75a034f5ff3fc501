#include "lib/fake_env.h"

#include "net/identity.h"

#include <string.h>

static uint64_t now(hv_env *env) {
  return ((fake_env *)env)->now_us;
}

static void fill(hv_env *env, void *out, size_t size) {
  for (size_t i = 0; i < size; i++)
    ((uint8_t *)out)[i] = (uint8_t)check_random(&((fake_env *)env)->rng);
}

static void hash(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  hv_identity_sha256(bytes, out);
}

void fake_sign(const hv_peer_id *by, const char *domain, hv_span bytes, uint8_t out[64]) {
  uint8_t all[4096];
  hv_hash half;
  size_t n = strlen(domain) + 1;
  assert_true(32 + n + bytes.size <= sizeof all);
  memcpy(all, by->key, 32);
  memcpy(all + 32, domain, n);
  memcpy(all + 32 + n, bytes.data, bytes.size);
  hv_identity_sha256(hv_span_of(all, 32 + n + bytes.size), &half);
  memcpy(out, half.bytes, 32);
  memcpy(out + 32, half.bytes, 32);
}

static hv_status sign(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]) {
  fake_sign(&((fake_env *)env)->me, domain, bytes, out);
  return HV_OK;
}

static int verify(hv_env *env, const hv_peer_id *peer, const char *domain, hv_span bytes, const uint8_t signature[64]) {
  uint8_t right[64];
  ((fake_env *)env)->verified++;
  fake_sign(peer, domain, bytes, right);
  return memcmp(right, signature, sizeof right) == 0;
}

hv_peer_id fake_peer(uint64_t number) {
  check_rng rng = {number * 77 + 5};
  hv_peer_id id;
  for (size_t i = 0; i < sizeof id.key; i++)
    id.key[i] = (uint8_t)check_random(&rng);
  return id;
}

static void stream_wait(hv_env *env, hv_stream *stream, int waits) {
  (void)env, (void)stream, (void)waits;
}

static void timer_set(hv_env *env, hv_timer *timer, uint64_t delay_us) {
  (void)env, (void)timer, (void)delay_us;
}

static void timer_clear(hv_env *env, hv_timer *timer) {
  (void)env, (void)timer;
}

void fake_env_init_on(fake_env *fake, uint64_t seed, hv_mem *mem) {
  *fake = (fake_env){.me = fake_peer(0), .now_us = 1000000, .rng = {seed}};
  fake->env = (hv_env){.mem = mem,
                       .now_us = now,
                       .random = fill,
                       .sha256 = hash,
                       .sign = sign,
                       .verify = verify,
                       .stream_wait = stream_wait,
                       .timer_set = timer_set,
                       .timer_clear = timer_clear};
}

void fake_env_init(fake_env *fake, uint64_t seed) {
  fake_env_init_on(fake, seed, &fake->mem);
  hv_mem_init(&fake->mem, NULL, HV_MEM_UNLIMITED);
}
