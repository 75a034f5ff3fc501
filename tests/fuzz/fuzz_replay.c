/* Records of the machine as somebody may send them: a replay reads any bytes, and the machine takes any events. */
#include "core/epoch/replay.h"
#include "lib/fake_env.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fake_env env;
  hv_error err = {0};
  fake_env_init(&env, 1);
  uint8_t *copy = malloc(size ? size : 1); /* its end is the end of a block: a step beyond is seen */
  hv_replay *replay = hv_replay_new(&env.mem, &env.env);
  must(copy && replay);
  if (size)
    memcpy(copy, data, size);
  hv_status status = hv_replay_feed(replay, hv_span_of(copy, size), &err);
  const hv_replay_found *found = hv_replay_look(replay);
  must(status == HV_OK || (status == HV_MALFORMED && *err.text));
  must(!found->differing == !*found->first && found->differing <= found->events);
  hv_replay_free(replay);
  must(env.mem.blocks == 0);
  free(copy);
  return 0;
}
