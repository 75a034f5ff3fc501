/* Elements are found under their hash, whatever is added, removed and grown. */
#include "core/util/table.h"

#include "lib/check.h"

#include <string.h>

enum { MANY = 1000 };

typedef struct thing {
  hv_table_node node;
  int in;
} thing;

static size_t count_under(const hv_table *table, uint64_t hash, const thing *one) {
  size_t n = 0, found = 0;
  for (const hv_table_node *at = hv_table_first(table, hash); at; at = hv_table_next(at)) {
    assert_int_equal(at->hash, hash);
    found += HV_HOLDER(const thing, node, at) == one;
    n++;
  }
  assert_int_equal(found, one->in);
  return n;
}

/* A few hashes for many things, so that each has several; high bits alone differ in half of them. */
static uint64_t hash_for(size_t i) {
  return i % 100 + (i % 2 ? (uint64_t)(i % 7) << 60 : 0);
}

static void play(hv_mem *mem, uint64_t seed) {
  static thing things[MANY];
  check_rng rng = {seed};
  hv_table table;
  size_t n = 0;
  memset(things, 0, sizeof things);
  assert_int_equal(hv_table_init(&table, mem), HV_OK);
  for (int turn = 0; turn < 20000; turn++) {
    size_t i = check_random(&rng) % MANY;
    thing *one = &things[i];
    if (one->in)
      hv_table_remove(&table, &one->node);
    else
      hv_table_add(&table, &one->node, hash_for(i));
    one->in = !one->in;
    n += one->in ? 1 : (size_t)-1;
    assert_int_equal(table.n, n);
    size_t expected = 0;
    for (size_t j = 0; j < MANY; j++)
      expected += things[j].in && hash_for(j) == hash_for(i);
    assert_int_equal(count_under(&table, hash_for(i), one), expected);
  }
  size_t walked = 0;
  for (size_t i = 0; i < table.room; i++)
    for (const hv_table_node *at = table.chains[i]; at; at = at->next)
      walked += (size_t)HV_HOLDER(const thing, node, at)->in;
  assert_int_equal(walked, n);
  hv_table_fini(&table);
  assert_int_equal(atomic_load(&mem->used), 0);
}

static void elements_are_found_under_their_hash(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  play(&mem, 5);
}

static void table_without_memory_to_grow_finds_all(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_mem_init(&mem, NULL, 1000); /* the first chains, and no more */
  play(&mem, 6);
}

static void table_without_memory_is_not_made(void **unused) {
  (void)unused;
  hv_mem mem;
  hv_table table;
  hv_mem_init(&mem, NULL, 10);
  assert_int_equal(hv_table_init(&table, &mem), HV_NOMEM);
  assert_int_equal(table.room, 0); /* there is nothing to walk */
  hv_table_fini(&table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_are_found_under_their_hash),
      cmocka_unit_test(table_without_memory_to_grow_finds_all),
      cmocka_unit_test(table_without_memory_is_not_made),
  };
  return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
