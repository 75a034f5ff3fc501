/* How errors read, and the ring that the log is: what is kept, what is cut, what is dropped and counted. */
#include "lib/check.h"

#include "base/log.h"
#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- status ---- */

static void every_status_has_a_name_and_words(void **state) {
  (void)state;
  for (int a = 0; a < HV_STATUS_COUNT; a++) {
    assert_true(hv_status_name((hv_status)a)[0] && hv_status_text((hv_status)a)[0]);
    for (int b = 0; b < a; b++) {
      assert_string_not_equal(hv_status_name((hv_status)a), hv_status_name((hv_status)b));
      assert_string_not_equal(hv_status_text((hv_status)a), hv_status_text((hv_status)b));
    }
  }
  assert_int_equal(HV_OK, 0);
  assert_string_equal(hv_status_name(HV_TIMEOUT), "TIMEOUT");
  assert_string_equal(hv_status_text(HV_TIMEOUT), "timed out");
}

static void unknown_status_number_has_a_name_too(void **state) {
  (void)state;
  static const int numbers[] = {-1, HV_STATUS_COUNT, HV_STATUS_COUNT + 1, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    assert_string_equal(hv_status_text((hv_status)numbers[i]), "unknown status");
    assert_string_equal(hv_status_name((hv_status)numbers[i]), "UNKNOWN");
  }
}

/* Names are public: a program compares them. */
static void every_cause_has_a_name_of_its_own(void **state) {
  (void)state;
  for (int a = 0; a < HV_CAUSE_COUNT; a++) {
    const char *name = hv_cause_name((hv_cause)a);
    assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789"), strlen(name));
    for (int b = 0; b < a; b++)
      assert_string_not_equal(name, hv_cause_name((hv_cause)b));
  }
  assert_int_equal(HV_CAUSE_OTHER, 0);
  assert_string_equal(hv_cause_name(HV_CAUSE_TIMED_OUT), "timed_out");
  static const int numbers[] = {-1, HV_CAUSE_COUNT, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    assert_string_equal(hv_cause_name((hv_cause)numbers[i]), "other");
}

static void an_error_has_its_cause_or_that_of_its_status(void **state) {
  (void)state;
  hv_error err = {0};
  assert_int_equal(hv_fail_by(&err, HV_UNREACHABLE, HV_CAUSE_NO_ROUTE, "no route to %s", "x"), HV_UNREACHABLE);
  assert_int_equal(err.cause, HV_CAUSE_NO_ROUTE);
  assert_string_equal(err.text, "no route to x");
  hv_fail_by(&err, HV_TIMEOUT, HV_CAUSE_OTHER, "late");
  assert_int_equal(err.cause, HV_CAUSE_TIMED_OUT);
  hv_fail(&err, HV_VERSION, "old");
  assert_int_equal(err.cause, HV_CAUSE_PROTOCOL_VERSION);
  hv_fail(&err, HV_BUDGET, "full");
  assert_int_equal(err.cause, HV_CAUSE_MEMORY);
  hv_fail(&err, HV_INVALID, "wrong");
  assert_int_equal(err.cause, HV_CAUSE_OTHER);
  assert_int_equal(hv_fail_by(NULL, HV_IO, HV_CAUSE_OTHER, "x"), HV_IO);
}

static void long_error_text_is_cut_at_the_buffers_end(void **state) {
  (void)state;
  static char large[8192];
  hv_error err = {0};
  assert_int_equal(hv_fail(&err, HV_TIMEOUT, "%s after %d ms", "no answer", 30), HV_TIMEOUT);
  assert_int_equal(err.status, HV_TIMEOUT);
  assert_string_equal(err.text, "no answer after 30 ms");
  assert_int_equal(hv_fail(NULL, HV_IO, "nobody %s", "listens"), HV_IO);
  memset(large, 'x', sizeof large - 1);
  assert_int_equal(hv_fail(&err, HV_INVALID, "%s", large), HV_INVALID);
  assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

/* ---- log ---- */

static void a_record_comes_out_as_it_went_in(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 4, HV_LOG_DEBUG);
  hv_log_record record;
  assert_int_equal(hv_log_take(log, &record), 0);
  hv_log_write(log, 12345, HV_LOG_WARN, "peers", "peer_lost", "lost %s after %d s", "abc", 3);
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(record.time_us, 12345);
  assert_int_equal(record.level, HV_LOG_WARN);
  assert_string_equal(record.room, "peers");
  assert_string_equal(record.event, "peer_lost");
  assert_string_equal(record.text, "lost abc after 3 s");
  assert_int_equal(hv_log_take(log, &record), 0);
  hv_log_free(log);
  hv_log_free(NULL);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void a_full_ring_drops_the_oldest_and_counts_them(void **state) {
  (void)state;
  hv_mem mem;
  hv_log_record record;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (size_t room = 0; room < 9; room++) {
    size_t kept = room ? room : 1; /* at least one */
    hv_log *log = hv_log_new(&mem, room, HV_LOG_DEBUG);
    for (unsigned i = 0; i < 20; i++)
      hv_log_write(log, i, HV_LOG_INFO, "test", "count", "%u", i);
    assert_int_equal(hv_log_dropped(log), 20 - kept);
    assert_int_equal(hv_log_dropped(log), 0); /* since the last call */
    for (size_t i = 20 - kept; i < 20; i++) {
      assert_int_equal(hv_log_take(log, &record), 1);
      assert_int_equal(record.time_us, i);
    }
    assert_int_equal(hv_log_take(log, &record), 0);
    for (unsigned i = 0; i < 50; i++) { /* a ring that is drained as it fills drops nothing */
      hv_log_write(log, i, HV_LOG_INFO, "test", "count", "%u", i);
      assert_int_equal(hv_log_take(log, &record), 1);
      assert_int_equal(record.time_us, i);
    }
    assert_int_equal(hv_log_dropped(log), 0);
    hv_log_free(log);
  }
}

static void record_below_the_least_level_is_not_kept(void **state) {
  (void)state;
  hv_mem mem;
  hv_log_record record;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 16, HV_LOG_WARN);
  static const hv_log_level levels[] = {HV_LOG_DEBUG, HV_LOG_INFO, HV_LOG_WARN, HV_LOG_ERROR};
  for (int i = 0; i < 4; i++)
    hv_log_write(log, 0, levels[i], "test", "level", "x");
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(record.level, HV_LOG_WARN);
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(record.level, HV_LOG_ERROR);
  assert_int_equal(hv_log_take(log, &record), 0);
  hv_log_set_least(log, HV_LOG_DEBUG);
  hv_log_write(log, 0, HV_LOG_DEBUG, "test", "level", "x");
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(hv_log_dropped(log), 0);
  hv_log_free(log);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++)
      assert_string_not_equal(hv_log_level_name(levels[i]), hv_log_level_name(levels[j]));
  assert_string_equal(hv_log_level_name((hv_log_level)99), "unknown");
  assert_string_equal(hv_log_level_name((hv_log_level)-1), "unknown");
}

static void no_control_character_gets_through(void **state) {
  (void)state;
  hv_mem mem;
  hv_log_record record;
  char all[256];
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 4, HV_LOG_DEBUG);
  for (int i = 0; i < 255; i++)
    all[i] = (char)(i + 1);
  all[255] = 0;
  hv_log_write(log, 0, HV_LOG_INFO, "test", "hostile", "%s", all);
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(strlen(record.text), 255);
  for (int i = 0; i < 255; i++) {
    unsigned char before = (unsigned char)all[i];
    assert_int_equal((unsigned char)record.text[i], before < 0x20 || before >= 0x7f ? '?' : before);
  }
  hv_log_write(log, 0, HV_LOG_INFO, "test", "hostile", "a\nfake line\x1b[31m %s", "b\r");
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_string_equal(record.text, "a?fake line?[31m b?");
  hv_log_free(log);
}

/* Python's text is decoded strictly: a peer's refusal with one wrong byte in it must not become another error there. */
static void log_text_is_utf8_for_any_bytes_of_a_peer(void **state) {
  (void)state;
  static const struct {
    const char *said, *read;
  } texts[] = {
      {"", ""},
      {"gr\xc3\xb6\xc3\x9f"
       "er \xe2\x82\xac \xf0\x9f\x90\x9d",
       "gr\xc3\xb6\xc3\x9f"
       "er \xe2\x82\xac \xf0\x9f\x90\x9d"},
      {"\xef\xbf\xbd \xf4\x8f\xbf\xbf \xed\x9f\xbf", "\xef\xbf\xbd \xf4\x8f\xbf\xbf \xed\x9f\xbf"},
      {"a\xff"
       "b\x80",
       "a?b?"},
      {"\xc0\xaf \xe0\x9f\xbf \xf0\x8f\xbf\xbf", "?? ??? ????"}, /* longer than need be */
      {"\xed\xa0\x80 \xf4\x90\x80\x80 \xf8", "??? ???? ?"},      /* a surrogate; beyond Unicode */
      {"cut \xe2\x82", "cut ??"},
      {"cut \xe2\x82z", "cut ??z"},
      {"\x1b]0;owned\x07 a\nb\tc\x7f", "?]0;owned? a?b?c?"}, /* C0 and DEL, then C1 */
      {"\xc2\x9b"
       "31m \xc2\x80\xc2\x9f\xc2\xa0",
       "??31m ????\xc2\xa0"},
  };
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 4, HV_LOG_DEBUG);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hv_log_record record;
    hv_error err;
    hv_log_write(log, 0, HV_LOG_INFO, "test", "hostile", "%s", texts[i].said);
    assert_int_equal(hv_log_take(log, &record), 1);
    assert_string_equal(record.text, texts[i].read);
    hv_fail(&err, HV_DENIED, "%s", texts[i].said);
    assert_string_equal(err.text, texts[i].read);
  }
  hv_error cut;
  char large[sizeof cut.text + 8];
  memset(large, 'x', sizeof large);
  memcpy(large + sizeof cut.text - 2, "\xc3\xb6", 3); /* its second half has no room */
  hv_fail(&cut, HV_DENIED, "%s", large);
  assert_int_equal(strlen(cut.text), sizeof cut.text - 1);
  assert_int_equal(cut.text[sizeof cut.text - 2], '?');
  hv_log_free(log);
}

static void long_texts_are_cut_and_terminated(void **state) {
  (void)state;
  static char large[4096];
  hv_mem mem;
  hv_log_record record;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 4, HV_LOG_DEBUG);
  memset(large, 'x', sizeof large - 1);
  hv_log_write(log, 0, HV_LOG_INFO, large, large, "%s", large);
  assert_int_equal(hv_log_take(log, &record), 1);
  assert_int_equal(strlen(record.room), sizeof record.room - 1);
  assert_int_equal(strlen(record.event), sizeof record.event - 1);
  assert_int_equal(strlen(record.text), sizeof record.text - 1);
  hv_log_free(log);
}

static void missing_log_drops_all_records(void **state) {
  (void)state;
  hv_log_record record;
  hv_log_write(NULL, 0, HV_LOG_ERROR, "test", "nobody", "%s", "listens");
  assert_int_equal(hv_log_take(NULL, &record), 0);
  assert_int_equal(hv_log_dropped(NULL), 0);
}

/* ---- threads ---- */

enum { WRITERS = 4, RECORDS = 5000 };

typedef struct writer {
  hv_log *log;
  unsigned id;
  atomic_uint *running;
} writer;

static void *write_many(void *arg) {
  writer *w = arg;
  for (unsigned i = 0; i < RECORDS; i++)
    hv_log_write(w->log, i, HV_LOG_INFO, "test", "thread", "%u %u", w->id, i);
  atomic_fetch_sub(w->running, 1);
  return NULL;
}

/* Each record is taken or counted as dropped. */
static void threads_write_whole_records_in_order_and_none_is_lost(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_log *log = hv_log_new(&mem, 64, HV_LOG_DEBUG);
  atomic_uint running = WRITERS;
  pthread_t threads[WRITERS];
  writer writers[WRITERS];
  for (unsigned i = 0; i < WRITERS; i++) {
    writers[i] = (writer){log, i, &running};
    assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
  }
  size_t taken = 0, dropped = 0;
  long last[WRITERS] = {-1, -1, -1, -1};
  for (int over = 0; !over;) {
    hv_log_record record;
    over = atomic_load(&running) == 0; /* seen before the last look */
    dropped += hv_log_dropped(log);
    while (hv_log_take(log, &record)) {
      unsigned id, i;
      assert_int_equal(sscanf(record.text, "%u %u", &id, &i), 2);
      assert_in_range(id, 0, WRITERS - 1);
      assert_int_equal(record.time_us, i);
      assert_true((long)i > last[id]);
      last[id] = (long)i;
      taken++;
    }
  }
  for (int i = 0; i < WRITERS; i++)
    pthread_join(threads[i], NULL);
  dropped += hv_log_dropped(log);
  assert_int_equal(taken + dropped, WRITERS * RECORDS);
  hv_log_free(log);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static hv_status write_and_take(hv_mem *mem, void *arg) {
  (void)arg;
  hv_log_record record;
  hv_log *log = hv_log_new(mem, 8, HV_LOG_DEBUG);
  if (!log)
    return HV_NOMEM;
  hv_log_write(log, 1, HV_LOG_INFO, "test", "memory", "x");
  assert_int_equal(hv_log_take(log, &record), 1);
  hv_log_free(log);
  return HV_OK;
}

static void log_without_memory_is_not_created(void **state) {
  (void)state;
  hv_mem mem;
  assert_int_equal(check_out_of_memory(write_and_take, NULL), 2); /* and writing takes none */
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_null(hv_log_new(&mem, SIZE_MAX, HV_LOG_DEBUG));
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_status_has_a_name_and_words),
      cmocka_unit_test(unknown_status_number_has_a_name_too),
      cmocka_unit_test(every_cause_has_a_name_of_its_own),
      cmocka_unit_test(an_error_has_its_cause_or_that_of_its_status),
      cmocka_unit_test(long_error_text_is_cut_at_the_buffers_end),
      cmocka_unit_test(a_record_comes_out_as_it_went_in),
      cmocka_unit_test(a_full_ring_drops_the_oldest_and_counts_them),
      cmocka_unit_test(record_below_the_least_level_is_not_kept),
      cmocka_unit_test(no_control_character_gets_through),
      cmocka_unit_test(log_text_is_utf8_for_any_bytes_of_a_peer),
      cmocka_unit_test(long_texts_are_cut_and_terminated),
      cmocka_unit_test(missing_log_drops_all_records),
      cmocka_unit_test(threads_write_whole_records_in_order_and_none_is_lost),
      cmocka_unit_test(log_without_memory_is_not_created),
  };
  return cmocka_run_group_tests_name("status and log", tests, NULL, NULL);
}
