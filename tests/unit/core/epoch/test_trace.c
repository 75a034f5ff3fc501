/* Records of the machine, and their replay: all that it reads is written, and a decision that differs is seen. */
#include "core/epoch/replay.h"
#include "lib/epoch_scene.h"

#include <math.h>
#include <stdio.h>

#define MANY UINT64_C(0xfedcba9876543210)

/* ---- fields: each initialiser names every field, or the compiler complains ---- */

static const hv_epoch_config full_config = {{1, 2, 3, 4, 5, 255, 6, 7, MANY},
                                            MANY + 1,
                                            MANY + 2,
                                            MANY + 3,
                                            -6,
                                            HV_EPOCH_ALONE_STOPS,
                                            MANY + 4,
                                            -5,
                                            INT32_MAX,
                                            {{1, 2, 255}},
                                            MANY + 6,
                                            MANY + 7,
                                            INT32_MIN,
                                            0.3,
                                            NULL,
                                            MANY + 5,
                                            NULL,
                                            NULL};
static const hv_progress_figures full_figures = {MANY,     0.1,      INFINITY, MANY + 1,          MANY + 2, MANY + 3,
                                                 MANY + 4, MANY + 5, MANY + 6, HV_PROGRESS_AHEAD, -7,       8};
static const hv_epoch_event full_event = {HV_EPOCH_LEAVE,
                                          MANY,
                                          NULL,
                                          MANY + 1,
                                          MANY + 2,
                                          MANY + 3,
                                          MANY + 4,
                                          MANY + 5,
                                          MANY + 6,
                                          -1,
                                          HV_EPOCH_REPLICA_STATE,
                                          HV_EPOCH_FAILED,
                                          -0.0,
                                          NULL,
                                          0,
                                          -4,
                                          MANY + 7,
                                          {{9, 8, 7}},
                                          -3,
                                          {NULL, 0, NULL, 0, {NULL, 0}}};
static const hv_lineage_member full_member = {{{3, 4}}, 5, 6, 7, {{{8, 9}}, INT64_MIN}};
static const hv_lineage full_lineage = {{{1}}, MANY, 2, 3, 4, 5, 6, 7, 8, 9};
static const hv_epoch_ledger full_ledger = {MANY, 1, 2, 3, 4, 5, {6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const hv_epoch_order full_act = {
    HV_EPOCH_ACT, HV_EPOCH_REPLICA_STATE, HV_EPOCH_LATE, HV_EPOCH_MEET, MANY, MANY + 1, MANY + 2, MANY + 3, MANY + 4, -1};
static const hv_epoch_order full_tell = {
    HV_EPOCH_TELL, HV_EPOCH_REPLICA_STATE, HV_EPOCH_LATE, HV_EPOCH_SAYS_RESTS, MANY, MANY + 1, MANY + 2, MANY + 3, MANY + 4, -1};

_Static_assert(HV_EPOCH_LOSSES == 11, "full_ledger has all losses");

/* Reads what was printed into *out, which begins as zeros. */
static void reads_back(const hv_fields *fields, const void *value, void *out) {
  char text[HV_FIELDS_TEXT_MAX];
  size_t n = hv_fields_print(fields, value, NULL, text);
  assert_true(n < sizeof text);
  for (char *at = text, *end; at < text + n; at = end) {
    char *sign = memchr(at, '=', (size_t)(text + n - at));
    end = memchr(sign, ' ', (size_t)(text + n - sign));
    end = end ? end : text + n;
    assert_int_equal(
        hv_fields_set(fields, out, hv_span_of(at + 1, (size_t)(sign - at - 1)), hv_span_of(sign + 1, (size_t)(end - sign - 1))),
        HV_OK);
  }
}

#define PASSES(fields, type, full, kept)                                                                                           \
  do {                                                                                                                             \
    type read = {0};                                                                                                               \
    memset(&read, 0, sizeof read);                                                                                                 \
    reads_back(fields, &(full), &read);                                                                                            \
    kept;                                                                                                                          \
    assert_memory_equal(&read, &(full), sizeof read);                                                                              \
  } while (0)

static void every_field_passes_through_text(void **unused) {
  (void)unused;
  PASSES(&hv_fields_config, hv_epoch_config, full_config, (void)0);
  PASSES(&hv_fields_figures, hv_progress_figures, full_figures, (void)0);
  PASSES(&hv_fields_event, hv_epoch_event, full_event, read.kind = HV_EPOCH_LEAVE);
  PASSES(&hv_fields_member, hv_lineage_member, full_member, (void)0);
  PASSES(&hv_fields_lineage, hv_lineage, full_lineage, (void)0);
  PASSES(&hv_fields_ledger, hv_epoch_ledger, full_ledger, (void)0);
  PASSES(hv_fields_order(HV_EPOCH_ACT), hv_epoch_order, full_act, read.kind = HV_EPOCH_ACT);
  PASSES(hv_fields_order(HV_EPOCH_TELL), hv_epoch_order, full_tell, read.kind = HV_EPOCH_TELL);
}

static void values_out_of_range_are_refused(void **unused) {
  static const struct {
    const char *name, *text;
  } bad[] = {{"ok", "2147483648"},
             {"ok", "-2147483649"},
             {"ok", ""},
             {"ok", "1x"},
             {"samples", "-1"},
             {"samples", "18446744073709551616"},
             {"which", "BOTH"},
             {"outcome", "?"},
             {"share", "0x12"},
             {"share", "0xFFFFFFFFFFFFFFFF"},
             {"mark", "00"},
             {"samples", "1.5"},
             {"outcome", "CONFIRMED "}};
  hv_epoch_event event = {0};
  (void)unused;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_int_equal(hv_fields_set(&hv_fields_event, &event, hv_span_of(bad[i].name, strlen(bad[i].name)),
                                   hv_span_of(bad[i].text, strlen(bad[i].text))),
                     HV_MALFORMED);
  assert_int_equal(hv_fields_set(&hv_fields_event, &event, hv_span_of("colour", 6), hv_span_of("1", 1)), HV_NOT_FOUND);
}

/* ---- records ---- */

typedef struct paper {
  hv_trace trace;
  size_t n, room;
  char text[1 << 16];
} paper;

static int keeps(void *arg, hv_span text) {
  paper *p = arg;
  if (p->n + text.size > p->room)
    return 0;
  memcpy(p->text + p->n, text.data, text.size);
  p->n += text.size;
  return 1;
}

static paper *new_paper(void) {
  static paper p;
  p = (paper){.room = sizeof p.text};
  p.trace.write = keeps;
  p.trace.arg = &p;
  return &p;
}

/* Another peer's round with this one ends an epoch, and the step has facts of its own. */
static scene *two_epochs(paper *p) {
  scene *s = new_scene(&(hv_epoch_options){.average_state_every = 3}, HV_EPOCH_ALONE_TRAINS);
  static const uint64_t stamps[] = {7, 8}, frozen[] = {1, 5};
  s->trace = &p->trace;
  hv_trace_begin(s->trace, &s->e, s->now_us);
  gathers(s);
  s->now_us += SECOND;
  epoch_is_over(s);
  batch(s);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_PREPARE, 1);
  averages_gradients(s, HV_EPOCH_NOW);
  on(s, (hv_epoch_event){.kind = HV_EPOCH_DONE,
                         .number = s->e.end.acting[HV_EPOCH_NOW],
                         .ok = 1,
                         .step = {stamps, 2, frozen, 2, hv_span_of("setup", 5)}});
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SCHEDULE, 1);
  acted(s, HV_EPOCH_NOW, HV_EPOCH_SNAPSHOT, 1);
  hv_epoch_ledger_behind(&s->ledger, 3); /* by another hand than the machine's, as the next one */
  s->lineage.samples = 99;
  s->now_us += SECOND;
  epoch_begins(s);
  batch(s);
  return s;
}

static hv_status replays(const char *text, size_t n, size_t piece, hv_replay_found *out, hv_error *err) {
  fake_env env;
  fake_env_init(&env, 1);
  hv_replay *r = hv_replay_new(&env.mem, &env.env);
  hv_status status = HV_OK;
  for (size_t at = 0; at < n && status == HV_OK; at += piece)
    status = hv_replay_feed(r, hv_span_of(text + at, n - at < piece ? n - at : piece), err);
  *out = *hv_replay_look(r);
  hv_replay_free(r);
  assert_int_equal(env.mem.blocks, 0);
  return status;
}

static void replayed_record_has_no_difference(void **unused) {
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  const scene *s = two_epochs(p);
  assert_true(s->e.told == 1 && !p->trace.is_over);
  for (size_t piece = 1; piece < 100000; piece *= 7) {
    assert_int_equal(replays(p->text, p->n, piece, &found, &err), HV_OK);
    assert_true(found.events > 6 && !found.differing && !*found.first && !*found.end && !*found.unknown);
  }
}

/* The same record with another text in place of the first `from` behind `after`. */
static size_t changes(const paper *p, const char *after, const char *from, const char *to, char *out) {
  const char *place = strstr(p->text, after), *at = place ? strstr(place, from) : NULL;
  if (!at)
    fail_msg("there is no %s behind %s in\n%s", from, after, p->text);
  size_t before = (size_t)(at - p->text), rest = p->n - before - strlen(from);
  memcpy(out, p->text, before);
  memcpy(out + before, to, strlen(to));
  memcpy(out + before + strlen(to), at + strlen(from), rest);
  return before + strlen(to) + rest;
}

static char changed[1 << 16];

/* Each thing that the machine reads decides: with another one it decides otherwise than the record says. */
static void another_input_or_decision_is_a_difference(void **unused) {
  static const struct {
    const char *after, *from, *to, *says;
  } cases[] = {{"on BATCH", "samples=16", "samples=17", "BATCH at"},
               {"config", "target=64", "target=20", "ROUND at"},
               {"on ROUND", "share=1", "outcome=FAILED share=1", "ROUND at"},
               {"stamp ", "7", "6", "DONE at"},
               {"frozen ", "5", "4", "DONE at"},
               {"setup ", "73", "74", "DONE at"},
               {"figures", "ready=1", "ready=0", "BATCH at"},
               {"\nledger produced", "produced=", "produced=1", "\n  made now: ledger is produced=1"},
               {"on ROUND", "do ACT action=STEP", "do ACT action=SUM", "\n  recorded: do ACT action=SUM"},
               {"on ROUND", "do ACT action=STEP", "do ACT action=SUM", "\n  made now: do ACT action=STEP"},
               {"on DONE", "lineage is mark=", "lineage is samples=1 mark=", "lineage is"},
               {"on DONE", "is state=GATHERING", "is state=COMING", "\n  made now: is state=GATHERING"}};
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  two_epochs(p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t n = changes(p, cases[i].after, cases[i].from, cases[i].to, changed);
    assert_int_equal(replays(changed, n, 1000, &found, &err), HV_OK);
    if (!found.differing || !strstr(found.first, cases[i].says))
      fail_msg("%s %s: %s", cases[i].after, cases[i].to, found.first);
  }
}

/* As a program that was killed leaves it: at each of its bytes. */
static void cut_record_replays_up_to_the_cut(void **unused) {
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  two_epochs(p);
  for (size_t n = 0; n < p->n; n++) {
    assert_int_equal(replays(p->text, n, 1000, &found, &err), HV_OK);
    assert_int_equal(found.differing, 0);
  }
}

static void record_that_reaches_its_limit_says_so(void **unused) {
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  p->trace.left = HV_TRACE_EVENT_MOST + 1000;
  two_epochs(p);
  assert_true(p->trace.is_over && p->n < 1500);
  assert_int_equal(replays(p->text, p->n, 1000, &found, &err), HV_OK);
  assert_string_equal(found.end, "the file has reached its limit");
}

static void record_ends_where_the_disk_is_full(void **unused) {
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  p->room = 2000;
  const scene *s = two_epochs(p);
  assert_true(p->trace.is_over && s->e.told == 1);
  assert_int_equal(replays(p->text, p->n, 1000, &found, &err), HV_OK);
  assert_true(found.events && !found.differing);
}

static void lines_that_are_no_record_are_refused(void **unused) {
  static const struct {
    const char *after, *from, *to, *says;
  } cases[] = {{"hivemind_c", "1", "2", "its first line is not"},
               {"config", " target", " company=RUNS target", "this build knows no value"},
               {"begin ", "1", "x", "this is no time"},
               {"begin ", "begin", "figures", "there is no machine yet"},
               {"on BATCH", "on BATCH", "on PARTY", "this build knows no event"},
               {"on BATCH", "do ", "on ", "there is no result like"},
               {"stamp ", "7", "seven", "this is no number"},
               {"setup ", "73", "7", "this is no digest"},
               {"config", "average_state_every=3", "average_state_every=0", "its options contradict each other"},
               {"figures", "figures", "figurines", "this build knows no line"},
               {"figures", "n_peers=", "n_peers", "there is no name=value in"}};
  (void)unused;
  hv_replay_found found;
  paper *p = new_paper();
  two_epochs(p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hv_error err = {0};
    size_t n = changes(p, cases[i].after, cases[i].from, cases[i].to, changed);
    assert_int_equal(replays(changed, n, 1000, &found, &err), HV_MALFORMED);
    if (!strstr(err.text, cases[i].says))
      fail_msg("%s: %s", cases[i].to, err.text);
  }
  hv_error err = {0};
  memset(changed, 'x', sizeof changed);
  assert_int_equal(replays(changed, sizeof changed, 1000, &found, &err), HV_MALFORMED);
}

/* A figure that a later build added: the record is still of use here. */
static void field_that_is_not_known_is_passed_over(void **unused) {
  (void)unused;
  hv_replay_found found;
  hv_error err = {0};
  paper *p = new_paper();
  two_epochs(p);
  size_t n = changes(p, "figures", " n_peers=", " n_hubs=3 n_peers=", changed);
  assert_int_equal(replays(changed, n, 1000, &found, &err), HV_OK);
  assert_true(!found.differing);
  assert_string_equal(found.unknown, "n_hubs");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_passes_through_text),        cmocka_unit_test(values_out_of_range_are_refused),
      cmocka_unit_test(replayed_record_has_no_difference),      cmocka_unit_test(another_input_or_decision_is_a_difference),
      cmocka_unit_test(cut_record_replays_up_to_the_cut),       cmocka_unit_test(record_that_reaches_its_limit_says_so),
      cmocka_unit_test(record_ends_where_the_disk_is_full),     cmocka_unit_test(lines_that_are_no_record_are_refused),
      cmocka_unit_test(field_that_is_not_known_is_passed_over),
  };
  return cmocka_run_group_tests_name("epoch: records", tests, NULL, NULL);
}
