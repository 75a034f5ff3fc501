/* An hv_env with a clock that stands where the test puts it, true SHA-256, and signatures that only fake_sign makes. It sends
 * nothing, and no timer fires. */
#ifndef HV_TESTS_FAKE_ENV_H
#define HV_TESTS_FAKE_ENV_H

#include "lib/check.h"

#include "core/env.h"

typedef struct fake_env {
  hv_env env; /* first */
  hv_mem mem;
  hv_peer_id me;
  uint64_t now_us;
  check_rng rng;
  size_t verified; /* how many signatures were looked at */
} fake_env;

void fake_env_init(fake_env *fake, uint64_t seed);
/* On another's account, as out-of-memory runs want it. */
void fake_env_init_on(fake_env *fake, uint64_t seed, hv_mem *mem);
hv_peer_id fake_peer(uint64_t number);
/* The signature that `by` would make. */
void fake_sign(const hv_peer_id *by, const char *domain, hv_span bytes, uint8_t out[64]);

#endif
