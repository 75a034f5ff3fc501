/* Plans of views as a coordinator that is a stranger tells them: what is read agrees with the round and with what is here, and is
 * written to the same bytes again. The first three bytes say who reads, which members the plan is for, and what the reader holds.
 */
#include "core/agree/view.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 5, CLIENT = 1, AUXILIARY = 2, CHUNKS = 6, VALUES = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

static void check_plan(const hv_round *round, const hv_hold *hold, const hv_view *view) {
  uint32_t at = 0, item = 0;
  must(hv_members_has(&view->members, round->me) && view->n_work <= CHUNKS);
  for (size_t i = 0; i < MEMBERS; at += view->count[i++]) {
    must(view->count[i] <= CHUNKS && view->first[i] == at);
    must(!view->count[i] || (i != CLIENT && hv_members_has(&view->members, i)));
  }
  must(at == view->n_work);
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
    int is_work = item < view->n_work && view->chunks[item] == chunk, held = hv_hold_has(hold, chunk);
    uint16_t source = is_work ? view->sources[item] : 0;
    must(is_work || held || round->me == AUXILIARY);
    must(!is_work || source != HV_VIEW_REDUCE || !held);
    must(!is_work || source == HV_VIEW_REDUCE ||
         (source < MEMBERS && source != AUXILIARY && hv_members_has(&view->members, source)));
    item += (uint32_t)is_work;
  }
  must(item == view->n_work);
}

static void read_one(hv_mem *mem, const hv_round *round, const hv_hold *hold, const hv_members *members, hv_span plan) {
  hv_payload *bytes = hv_payload_copy(mem, plan.data, plan.size), *again = NULL;
  hv_view *view = NULL;
  must(bytes != NULL);
  if (hv_view_read(mem, round, hold, 7, members, bytes, &view) == HV_OK) {
    uint8_t back[MEMBERS * 4 + CHUNKS * 2];
    check_plan(round, hold, view);
    again = hv_view_write(mem, round, view);
    must(again && again->size == sizeof back && plan.size == sizeof back);
    hv_payload_read(again, 0, back, sizeof back);
    must(memcmp(back, plan.data, sizeof back) == 0);
    hv_payload_release(again);
    hv_view_free(view);
  }
  hv_payload_release(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static float values[CHUNKS * VALUES];
  hv_round_member all[MEMBERS] = {[CLIENT].client = 1, [AUXILIARY].auxiliary = 1};
  hv_run_part part = {values, HV_DTYPE_FLOAT32, CHUNKS * VALUES, HV_CODEC_NONE, NULL, 0, 0, 0};
  hv_mem mem;
  hv_run run;
  hv_hold hold;
  if (size < 3)
    return 0;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  must(hv_run_init(&run, &mem, &part, 1, VALUES, NULL) == HV_OK && run.n_chunks == CHUNKS);
  must(hv_hold_init(&hold, &mem, CHUNKS) == HV_OK);
  hv_round round = {
      .members = all, .n_members = MEMBERS, .me = data[0] % MEMBERS, .weight = 1, .stall_ms = 1000, .in = &run, .out = &run};
  hv_members members = {{data[1] & ((1 << MEMBERS) - 1)}};
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
    if (data[2] >> chunk & 1)
      hv_hold_put(&hold, chunk, &members, 1);
  read_one(&mem, &round, &hold, &members, hv_span_of(data + 3, size - 3));
  hv_hold_fini(&hold);
  hv_run_fini(&run);
  must(atomic_load(&mem.blocks) == 0);
  return 0;
}
