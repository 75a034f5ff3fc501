/* The bytes that a stream's window counts, and its notes. */
#include "lib/check.h"

#include "net/transport/window.h"

#include <string.h>

static void ignore(void *arg) {
  (void)arg;
}

static void never(hv_note *note) {
  (void)note;
}

/* A message of one byte takes some hundred bytes to hold: a stream of them must not fill the memory behind an open window. */
static void small_messages_close_a_window_at_their_real_cost(void **state) {
  (void)state;
  enum { LIMIT = 1 << 20, COST = 256 };
  hv_mem mem;
  hv_inbox inbox;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_inbox_init(&inbox, ignore, NULL);
  hv_window *window = hv_window_new(&mem, LIMIT, &inbox, NULL, never);
  size_t held = 0;
  while (hv_window_open(window) && held <= LIMIT) {
    hv_window_hold(window, 1);
    held++;
  }
  assert_in_range(held, 1, LIMIT / COST);
  hv_window_release(window, 1);
  assert_true(hv_window_open(window));
  for (size_t i = 1; i < held; i++)
    hv_window_release(window, 1);
  hv_window_leave(window);
  hv_inbox_load left;
  hv_inbox_take(&inbox, 1, &left);
  assert_non_null(left.notes); /* it told that there was room again, once */
  assert_null(left.notes->next);
  hv_window_note_done(window); /* the note's reference was the last */
  hv_inbox_fini(&inbox);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void fill(hv_window *window, size_t limit) {
  hv_window_hold(window, limit);
  assert_false(hv_window_open(window));
}

/* A lane fills the window that has just got room, while the stream's thread is busy and has not read the note of it. */
static void window_refilled_before_its_note_is_read_has_one_note(void **state) {
  (void)state;
  enum { LIMIT = 1 << 20 };
  hv_mem mem;
  hv_inbox inbox;
  hv_inbox_load load;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_inbox_init(&inbox, ignore, NULL);
  hv_window *window = hv_window_new(&mem, LIMIT, &inbox, NULL, never);
  for (int times = 0; times < 2; times++) {
    fill(window, LIMIT);
    hv_window_release(window, LIMIT);
  }
  assert_true(hv_inbox_take(&inbox, 0, &load));
  assert_ptr_equal(load.notes, &window->note);
  assert_null(load.notes->next);
  hv_window_note_done(window);
  assert_true(hv_inbox_take(&inbox, 0, &load)); /* who was told the second time that it is full hears of the room, too */
  assert_ptr_equal(load.notes, &window->note);
  hv_window_note_done(window);
  assert_false(hv_inbox_take(&inbox, 0, &load));
  hv_window_leave(window);
  hv_inbox_fini(&inbox);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_messages_close_a_window_at_their_real_cost),
      cmocka_unit_test(window_refilled_before_its_note_is_read_has_one_note),
  };
  return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
