/* The first of many, whatever is added, changes and goes. */
#include "core/util/heap.h"

#include "lib/check.h"

#include <stddef.h>
#include <string.h>

enum { MANY = 200 };

typedef struct thing {
  hv_heap_node node;
  uint64_t at;
  int in;
} thing;

static const thing *thing_of(const hv_heap_node *node) {
  return (const thing *)(const void *)((const char *)node - offsetof(thing, node));
}

static int is_before(const hv_heap_node *a, const hv_heap_node *b) {
  return thing_of(a)->at < thing_of(b)->at;
}

static const thing *least_of(const thing *things) {
  const thing *least = NULL;
  for (int i = 0; i < MANY; i++)
    if (things[i].in && (!least || things[i].at < least->at))
      least = &things[i];
  return least;
}

static void heap_top_is_the_least_after_any_change(void **unused) {
  (void)unused;
  check_rng rng = {3};
  static thing things[MANY];
  hv_heap_node *top = NULL;
  memset(things, 0, sizeof things);
  for (int turn = 0; turn < 100000; turn++) {
    thing *one = &things[check_random(&rng) % MANY];
    if (one->in)
      hv_heap_remove(&top, &one->node, is_before);
    one->in = check_random(&rng) % 100 < (turn / 1000 % 2 ? 80u : 20u);
    one->at = check_random(&rng) % 50; /* many alike */
    if (one->in)
      hv_heap_add(&top, &one->node, is_before);
    const thing *least = least_of(things);
    assert_int_equal(top != NULL, least != NULL);
    if (top)
      assert_int_equal(thing_of(top)->at, least->at);
  }
}

static void heap_elements_are_taken_in_order(void **unused) {
  (void)unused;
  check_rng rng = {4};
  thing things[MANY];
  hv_heap_node *top = NULL;
  uint64_t last = 0;
  for (int i = 0; i < MANY; i++) {
    things[i] = (thing){.at = check_random(&rng)};
    hv_heap_add(&top, &things[i].node, is_before);
  }
  for (int i = 0; i < MANY; i++) {
    assert_true(thing_of(top)->at >= last);
    last = thing_of(top)->at;
    hv_heap_remove(&top, top, is_before);
  }
  assert_null(top);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heap_top_is_the_least_after_any_change),
      cmocka_unit_test(heap_elements_are_taken_in_order),
  };
  return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
