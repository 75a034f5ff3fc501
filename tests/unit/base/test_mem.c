/* The allocator door: what it charges, when it refuses, what it leaves behind. */
#include "lib/check.h"

#include "base/buf.h"

#include <string.h>

static void memory_account_charges_and_gives_back(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  void *a = hv_mem_alloc(&mem, 100), *b = hv_mem_aligned(&mem, 1000), *c = hv_mem_array(&mem, 10, 7), *d = hv_mem_alloc(&mem, 0);
  assert_int_equal((uintptr_t)a % 16, 0);
  assert_int_equal((uintptr_t)b % 64, 0);
  assert_non_null(d);
  for (int i = 0; i < 70; i++)
    assert_int_equal(((char *)c)[i], 0);
  assert_int_equal(mem.used, 1170);
  assert_int_equal(mem.blocks, 4);
  a = hv_mem_resize(&mem, a, 50);
  assert_int_equal(mem.used, 1120);
  hv_mem_free(a);
  hv_mem_free(b);
  hv_mem_free(c);
  hv_mem_free(d);
  hv_mem_free(NULL);
  assert_int_equal(mem.used, 0);
  assert_int_equal(mem.blocks, 0);
  assert_in_range(mem.peak, 1170, 1270);
}

static void a_child_is_bounded_by_its_own_limit_and_its_parents(void **state) {
  (void)state;
  hv_mem node, message;
  hv_mem_init(&node, NULL, 1000);
  hv_mem_init(&message, &node, 400);
  void *a = hv_mem_alloc(&message, 300);
  assert_non_null(a);
  assert_null(hv_mem_alloc(&message, 101));
  void *b = hv_mem_alloc(&node, 700);
  assert_non_null(b);
  assert_null(hv_mem_alloc(&message, 1)); /* the parent is full */
  assert_int_equal(message.used, 300);    /* and the refused byte is charged nowhere */
  assert_int_equal(node.used, 1000);
  assert_int_equal(message.blocks, 1);
  hv_mem_free(a);
  hv_mem_free(b);
  assert_int_equal(node.used, 0);
}

static void overflowing_sizes_are_refused(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_null(hv_mem_array(&mem, SIZE_MAX / 2, 3));
  assert_null(hv_mem_alloc(&mem, SIZE_MAX));
  assert_null(hv_mem_text(&mem, "", SIZE_MAX));
  assert_int_equal(mem.used, 0);
}

static void memory_account_fails_once_on_demand(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_mem_fail_in(&mem, 1);
  void *a = hv_mem_alloc(&mem, 1);
  assert_non_null(a);
  assert_null(hv_mem_alloc(&mem, 1));
  void *b = hv_mem_alloc(&mem, 1);
  assert_non_null(b);
  hv_mem_free(a);
  hv_mem_free(b);
}

static void a_heap_account_outlives_its_owner(void **state) {
  (void)state;
  hv_mem *mem = hv_mem_new(NULL, 1000);
  void *late = hv_mem_alloc(mem, 10);
  hv_mem_drop(mem);
  assert_int_equal(mem->used, 10);
  hv_mem_free(late); /* the account goes with its last block: the sanitizers would tell */
  hv_mem_drop(NULL);
}

static void a_buf_grows_to_its_limit(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf buf;
  hv_buf_init(&buf, &mem, 1000);
  char piece[300] = {1};
  for (int i = 0; i < 3; i++)
    assert_int_equal(hv_buf_append(&buf, piece, sizeof piece), HV_OK);
  assert_int_equal(hv_buf_append(&buf, piece, sizeof piece), HV_TOO_LARGE);
  assert_int_equal(buf.size, 900);
  assert_int_equal(hv_buf_append(&buf, piece, 100), HV_OK);
  assert_int_equal(buf.data[600], 1);
  hv_buf_fini(&buf);
  assert_int_equal(mem.blocks, 0);
}

static void count_up(void *arg) {
  ++*(int *)arg;
}

static hv_status share_a_payload(hv_mem *mem, void *arg) {
  (void)arg;
  int let_go = 0;
  hv_payload *borrowed = hv_payload_borrow(mem, "borrowed", 8, count_up, &let_go);
  if (!borrowed)
    return HV_NOMEM;
  hv_payload *copy = hv_payload_copy(mem, "copied", 6);
  hv_payload_keep(borrowed);
  hv_payload_release(borrowed);
  assert_int_equal(let_go, 0);
  hv_payload_release(borrowed);
  assert_int_equal(let_go, 1);
  if (!copy)
    return HV_NOMEM;
  char out[8] = {0};
  assert_int_equal(hv_payload_read(copy, 3, out, 8), 3);
  assert_string_equal(out, "ied");
  hv_payload_release(copy);
  return HV_OK;
}

static void a_payload_is_freed_by_its_last_holder(void **state) {
  (void)state;
  assert_int_equal(check_out_of_memory(share_a_payload, NULL), 3);
}

static hv_status cut_and_join(hv_mem *mem, void *arg) {
  (void)arg;
  int let_go = 0;
  char out[16] = {0};
  hv_payload *hello = hv_payload_borrow(mem, "hello", 5, count_up, &let_go), *pieces[3] = {hello};
  pieces[1] = hello ? hv_payload_borrow(mem, " world", 6, count_up, &let_go) : NULL;
  pieces[2] = pieces[1] ? hv_payload_cut(mem, hello, 4, 1) : NULL;
  hv_payload *all = pieces[2] ? hv_payload_join(mem, pieces, 3) : NULL;
  hv_payload *middle = all ? hv_payload_cut(mem, all, 3, 8) : NULL;
  hv_payload *none = middle ? hv_payload_cut(mem, all, 12, 0) : NULL;
  for (int i = 0; i < 3; i++)
    hv_payload_release(pieces[i]);
  hv_payload_release(all);
  if (middle) {
    assert_int_equal(let_go, 0); /* it holds on to all */
    assert_int_equal(middle->size, 8);
    assert_int_equal(middle->n_parts, 2);
    assert_int_equal(hv_payload_read(middle, 0, out, sizeof out), 8);
    assert_string_equal(out, "lo world");
  }
  if (none)
    assert_int_equal(none->size + none->n_parts, 0);
  hv_status status = none ? HV_OK : HV_NOMEM;
  hv_payload_release(middle);
  hv_payload_release(none);
  assert_int_equal(let_go, 2 * (pieces[1] != NULL) + (hello && !pieces[1]));
  return status;
}

static void payloads_are_cut_and_joined_without_a_copy(void **state) {
  (void)state;
  assert_int_equal(check_out_of_memory(cut_and_join, NULL), 6);
}

static void keep_static(hv_payload *payload) {
  (void)payload;
}

static void a_payload_reads_across_parts(void **state) {
  (void)state;
  hv_span parts[] = {hv_span_of("abc", 3), hv_span_of("", 0), hv_span_of("defgh", 5)};
  hv_payload payload;
  hv_payload_init(&payload, parts, 3, keep_static, NULL);
  char out[9] = {0};
  assert_int_equal(payload.size, 8);
  assert_int_equal(hv_payload_read(&payload, 1, out, 5), 5);
  assert_string_equal(out, "bcdef");
  assert_int_equal(hv_payload_read(&payload, 8, out, 5), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_account_charges_and_gives_back),
      cmocka_unit_test(a_child_is_bounded_by_its_own_limit_and_its_parents),
      cmocka_unit_test(overflowing_sizes_are_refused),
      cmocka_unit_test(memory_account_fails_once_on_demand),
      cmocka_unit_test(a_heap_account_outlives_its_owner),
      cmocka_unit_test(a_buf_grows_to_its_limit),
      cmocka_unit_test(a_payload_is_freed_by_its_last_holder),
      cmocka_unit_test(payloads_are_cut_and_joined_without_a_copy),
      cmocka_unit_test(a_payload_reads_across_parts),
  };
  return cmocka_run_group_tests_name("mem and buf", tests, NULL, NULL);
}
