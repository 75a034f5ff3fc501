#include "core/epoch/replay.h"

#include <stdio.h>
#include <string.h>

enum { RESULTS_MOST = HV_EPOCH_ORDERS * 256 + 2 * HV_TRACE_LINE_MOST }; /* bytes of what followed one event */

typedef enum stage { HEAD, SETUP, EVENT, RESULT, FAILED } stage;

/* The lines of what followed an event: as the record has them, or as this build makes them. */
typedef struct results {
  size_t n;
  int is_cut;
  char text[RESULTS_MOST];
} results;

struct hv_replay {
  hv_env *env;
  stage stage;
  uint64_t lines, begun_us, first_us; /* first_us: time of the first event */
  size_t n_line;
  char line[HV_TRACE_LINE_MOST];
  hv_epoch machine;
  hv_epoch_config config;
  hv_lineage lineage;
  hv_epoch_ledger ledger;
  hv_progress_figures figures;
  hv_epoch_event event;
  hv_lineage_member members[HV_EPOCH_MEMBERS];
  hv_buf stamps, frozen; /* numbers of 8 bytes */
  uint8_t setup[HV_TRACE_SETUP_MOST];
  hv_trace trace; /* writes what this build makes */
  results recorded, made;
  hv_replay_found found;
};

/* ---- what followed ---- */

static int adds(results *r, hv_span text) {
  if (r->n + text.size > sizeof r->text) {
    r->is_cut = 1;
    return 1;
  }
  memcpy(r->text + r->n, text.data, text.size);
  r->n += text.size;
  return 1;
}

static int makes(void *arg, hv_span text) {
  return adds(&((hv_replay *)arg)->made, text);
}

static hv_span next_line(const results *r, size_t *at) {
  const char *begin = r->text + *at, *end = memchr(begin, '\n', r->n - *at);
  size_t size = end ? (size_t)(end - begin) : r->n - *at;
  *at += size + (end != NULL);
  return hv_span_of(begin, size);
}

static int has_line(const results *r, hv_span line) {
  for (size_t at = 0; at < r->n;)
    if (hv_span_equal(next_line(r, &at), line))
      return 1;
  return 0;
}

static void says(hv_replay *r, size_t *at, const char *before, hv_span text) {
  int n = snprintf(r->found.first + *at, sizeof r->found.first - *at, "%s%.*s", before, (int)text.size, (const char *)text.data);
  *at += n > 0 ? (size_t)n : 0;
  *at = *at < sizeof r->found.first ? *at : sizeof r->found.first - 1;
}

/* The lines that only one side has; all: they differ in their order. Returns how many there were. */
static size_t says_lines(hv_replay *r, size_t *at, const results *of, const results *other, const char *before, int all) {
  size_t n = 0;
  for (size_t k = 0; k < of->n;) {
    hv_span line = next_line(of, &k);
    if (!all && has_line(other, line))
      continue;
    says(r, at, before, line);
    n++;
  }
  return n;
}

static void says_first(hv_replay *r, hv_epoch_state state) {
  const hv_epoch_event *e = &r->event;
  int n = snprintf(r->found.first, sizeof r->found.first, "event %llu (%s at %.3f s, in %s, epoch %llu)",
                   (unsigned long long)r->found.events, hv_epoch_event_name(e->kind), (double)(e->now_us - r->first_us) * 1e-6,
                   hv_epoch_state_name(state), (unsigned long long)r->trace.shown.own.epoch);
  size_t at = n > 0 ? (size_t)n : 0;
  size_t told = says_lines(r, &at, &r->recorded, &r->made, "\n  recorded: ", 0);
  told += says_lines(r, &at, &r->made, &r->recorded, "\n  made now: ", 0);
  if (!told) {
    says_lines(r, &at, &r->recorded, &r->made, "\n  recorded: ", 1);
    says_lines(r, &at, &r->made, &r->recorded, "\n  made now: ", 1);
  }
}

/* ---- an event ---- */

static void begins_event(hv_replay *r) {
  r->event = (hv_epoch_event){0};
  r->stamps.size = r->frozen.size = 0;
  r->recorded.n = r->made.n = 0;
  r->stage = EVENT;
}

static void runs_event(hv_replay *r) {
  hv_epoch_event *e = &r->event;
  hv_epoch_state state = r->machine.state;
  hv_epoch_order order;
  e->figures = &r->figures;
  e->members = r->members;
  e->step.stamps = (const uint64_t *)(const void *)r->stamps.data;
  e->step.n_stamps = r->stamps.size / sizeof(uint64_t);
  e->step.frozen = (const uint64_t *)(const void *)r->frozen.data;
  e->step.n_frozen = r->frozen.size / sizeof(uint64_t);
  e->step.setup.data = r->setup;
  r->first_us = r->found.events ? r->first_us : e->now_us;
  r->trace.lineage = r->lineage;
  r->trace.ledger = r->ledger;
  hv_epoch_on(&r->machine, e);
  hv_trace_result(&r->trace, &r->machine, 0);
  while (hv_epoch_next(&r->machine, &order)) {
  }
  r->found.events++;
  int differs = r->recorded.n != r->made.n || memcmp(r->recorded.text, r->made.text, r->made.n) != 0;
  if (differs && !r->found.differing++)
    says_first(r, state);
  begins_event(r);
}

/* ---- lines ---- */

static hv_status wrong(hv_replay *r, hv_error *err, const char *why, hv_span text) {
  char quote[HV_QUOTE_MAX];
  r->stage = FAILED;
  return hv_fail(err, HV_MALFORMED, "cannot read line %llu of the record: %s '%s'; give a file that HIVEMIND_RECORD made",
                 (unsigned long long)r->lines, why, hv_span_quote(text, quote));
}

/* The line's next word, up to a space. */
static hv_span word_of(hv_span *rest) {
  const uint8_t *end = rest->size ? memchr(rest->data, ' ', rest->size) : NULL;
  hv_span word = hv_span_of(rest->data, end ? (size_t)(end - rest->data) : rest->size);
  size_t used = word.size + (end != NULL);
  *rest = hv_span_of(rest->data + used, rest->size - used);
  return word;
}

static int is(hv_span word, const char *text) {
  return hv_span_equal(word, hv_span_of(text, strlen(text)));
}

static hv_status reads_fields(hv_replay *r, const hv_fields *fields, void *value, hv_span rest, hv_error *err) {
  while (rest.size) {
    hv_span word = word_of(&rest);
    const uint8_t *sign = word.size ? memchr(word.data, '=', word.size) : NULL;
    if (!sign)
      return wrong(r, err, "there is no name=value in", word);
    hv_span name = hv_span_of(word.data, (size_t)(sign - word.data)), text = hv_span_of(sign + 1, word.size - name.size - 1);
    hv_status status = hv_fields_set(fields, value, name, text);
    if (status == HV_MALFORMED)
      return wrong(r, err, "this build knows no value as in", word);
    if (status != HV_OK && !r->found.unknown[0])
      hv_span_quote(name, r->found.unknown);
  }
  return HV_OK;
}

static hv_status reads_number(hv_replay *r, hv_buf *list, hv_span text, hv_error *err) {
  uint64_t number;
  if (!hv_decimal_read(text, &number))
    return wrong(r, err, "this is no number:", text);
  if (hv_buf_append(list, &number, sizeof number) != HV_OK)
    return wrong(r, err, "there are too many numbers, or there is no memory, at", text);
  return HV_OK;
}

static hv_status reads_member(hv_replay *r, hv_span rest, hv_error *err) {
  if (r->event.n_members == HV_EPOCH_MEMBERS)
    return wrong(r, err, "there are too many members at", rest);
  hv_lineage_member *member = &r->members[r->event.n_members++];
  *member = (hv_lineage_member){0};
  return reads_fields(r, &hv_fields_member, member, rest, err);
}

static hv_status reads_setup(hv_replay *r, hv_span rest, hv_error *err) {
  size_t size = rest.size / 2;
  if (size > sizeof r->setup || !hv_hex_read(rest, r->setup, size))
    return wrong(r, err, "this is no digest:", rest);
  r->event.step.setup.size = size;
  return HV_OK;
}

static hv_status reads_event(hv_replay *r, hv_span rest, hv_error *err) {
  hv_span name = word_of(&rest);
  unsigned kind = hv_fields_named(&hv_fields_events, name);
  if (kind == hv_fields_events.n)
    return wrong(r, err, "this build knows no event", name);
  r->event.kind = (hv_epoch_event_kind)kind;
  r->stage = RESULT;
  return reads_fields(r, &hv_fields_event, &r->event, rest, err);
}

static hv_status begins(hv_replay *r, hv_span rest, hv_error *err) {
  hv_error why = {0};
  if (!hv_decimal_read(rest, &r->begun_us))
    return wrong(r, err, "this is no time:", rest);
  r->config.env = r->env;
  r->config.lineage = &r->lineage;
  r->config.ledger = &r->ledger;
  if (hv_epoch_init(&r->machine, &r->config, r->begun_us, &why) != HV_OK)
    return wrong(r, err, "its options contradict each other:", hv_span_of(why.text, strlen(why.text)));
  begins_event(r);
  return HV_OK;
}

/* A line before the event that it belongs to. */
static hv_status reads_input(hv_replay *r, hv_span all, hv_error *err) {
  hv_span rest = all, word = word_of(&rest);
  if (is(word, "lineage"))
    return reads_fields(r, &hv_fields_lineage, &r->lineage, rest, err);
  if (is(word, "ledger"))
    return reads_fields(r, &hv_fields_ledger, &r->ledger, rest, err);
  if (r->stage == SETUP && is(word, "config"))
    return reads_fields(r, &hv_fields_config, &r->config, rest, err);
  if (r->stage == SETUP && is(word, "begin"))
    return begins(r, rest, err);
  if (r->stage == SETUP)
    return wrong(r, err, "there is no machine yet for", all);
  if (is(word, "figures"))
    return reads_fields(r, &hv_fields_figures, &r->figures, rest, err);
  if (is(word, "member"))
    return reads_member(r, rest, err);
  if (is(word, "stamp") || is(word, "frozen"))
    return reads_number(r, is(word, "stamp") ? &r->stamps : &r->frozen, rest, err);
  if (is(word, "setup"))
    return reads_setup(r, rest, err);
  if (is(word, "on"))
    return reads_event(r, rest, err);
  if (!is(word, "end"))
    return wrong(r, err, "this build knows no line", all);
  hv_span_quote(rest, r->found.end);
  return HV_OK;
}

/* A line of what followed the event; the last one is that of what the machine is then. */
static hv_status reads_result(hv_replay *r, hv_span all, hv_error *err) {
  hv_span rest = all, word = word_of(&rest);
  if (!is(word, "do") && !is(word, "lineage") && !is(word, "ledger") && !is(word, "is"))
    return wrong(r, err, "there is no result like", all);
  adds(&r->recorded, all);
  adds(&r->recorded, hv_span_of("\n", 1));
  if (r->recorded.is_cut)
    return wrong(r, err, "an event has too many orders, at", all);
  if (is(word, "is"))
    runs_event(r);
  return HV_OK;
}

static hv_status reads_line(hv_replay *r, hv_span line, hv_error *err) {
  r->lines++;
  if (r->stage == RESULT)
    return reads_result(r, line, err);
  if (r->stage != HEAD)
    return reads_input(r, line, err);
  r->stage = SETUP;
  return is(line, HV_TRACE_HEAD) ? HV_OK : wrong(r, err, "its first line is not '" HV_TRACE_HEAD "' but", line);
}

hv_status hv_replay_feed(hv_replay *r, hv_span bytes, hv_error *err) {
  if (r->stage == FAILED)
    return hv_fail(err, HV_MALFORMED, "cannot read on: the record has a line that cannot be read");
  for (size_t i = 0; i < bytes.size; i++) {
    if (bytes.data[i] != '\n' && r->n_line == sizeof r->line)
      return wrong(r, err, "a line is too long:", hv_span_of(r->line, r->n_line));
    if (bytes.data[i] != '\n') {
      r->line[r->n_line++] = (char)bytes.data[i];
      continue;
    }
    hv_span line = hv_span_of(r->line, r->n_line);
    r->n_line = 0;
    hv_status status = reads_line(r, line, err);
    if (status != HV_OK)
      return status;
  }
  return HV_OK;
}

hv_replay *hv_replay_new(hv_mem *mem, hv_env *env) {
  hv_replay *r = hv_mem_zalloc(mem, sizeof *r);
  if (!r)
    return NULL;
  r->env = env;
  r->trace.write = makes;
  r->trace.arg = r;
  r->trace.left = UINT64_MAX;
  hv_buf_init(&r->stamps, mem, HV_TRACE_NUMBERS_MOST * sizeof(uint64_t));
  hv_buf_init(&r->frozen, mem, HV_TRACE_NUMBERS_MOST * sizeof(uint64_t));
  return r;
}

const hv_replay_found *hv_replay_look(const hv_replay *r) {
  return &r->found;
}

void hv_replay_free(hv_replay *r) {
  if (!r)
    return;
  hv_buf_fini(&r->stamps);
  hv_buf_fini(&r->frozen);
  hv_mem_free(r);
}
