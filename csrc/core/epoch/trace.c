#include "core/epoch/trace.h"

#include <string.h>

/* ---- lines ---- */

static void write_out(hv_trace *t) {
  if (!t->is_over && t->n && !t->write(t->arg, hv_span_of(t->text, t->n)))
    t->is_over = 1;
  t->left -= t->left < t->n ? t->left : t->n;
  t->n = 0;
}

/* Room for a whole line. */
static char *line(hv_trace *t, const char *word) {
  if (t->n + HV_TRACE_LINE_MOST > sizeof t->text)
    write_out(t);
  size_t size = strlen(word);
  memcpy(t->text + t->n, word, size);
  t->n += size;
  return t->text + t->n;
}

static void ends_line(hv_trace *t, size_t size) {
  t->n += size;
  t->text[t->n++] = '\n';
}

static void fields_line(hv_trace *t, const char *word, const hv_fields *fields, const void *value, const void *before) {
  char *at = line(t, word);
  ends_line(t, hv_fields_print(fields, value, before, at));
}

static void kind_line(hv_trace *t, const char *word, const char *kind, const hv_fields *fields, const void *value) {
  line(t, word);
  fields_line(t, kind, fields, value, NULL);
}

static void numbers(hv_trace *t, const char *word, const uint64_t *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    char *at = line(t, word);
    ends_line(t, hv_decimal_print(list[i], at));
  }
}

/* The same, where anything has changed. */
static void changed_line(hv_trace *t, const char *word, const hv_fields *fields, const void *value, const void *before) {
  char *at = line(t, word);
  size_t size = hv_fields_print(fields, value, before, at);
  if (size)
    ends_line(t, size);
  else
    t->n -= strlen(word);
}

static void changes(hv_trace *t, const hv_epoch *machine, const char *of_lineage, const char *of_ledger) {
  changed_line(t, of_lineage, &hv_fields_lineage, machine->lineage, &t->lineage);
  changed_line(t, of_ledger, &hv_fields_ledger, machine->ledger, &t->ledger);
  t->lineage = *machine->lineage;
  t->ledger = *machine->ledger;
}

static void ends(hv_trace *t, const char *why) {
  char *at = line(t, "end ");
  size_t size = strlen(why);
  memcpy(at, why, size);
  ends_line(t, size);
  write_out(t);
  t->is_over = 1;
}

/* ---- events ---- */

static int is_too_large(const hv_epoch_event *e) {
  return e->n_members > HV_EPOCH_MEMBERS || e->step.n_stamps + e->step.n_frozen > HV_TRACE_NUMBERS_MOST ||
         e->step.setup.size > HV_TRACE_SETUP_MOST;
}

static void step_lines(hv_trace *t, const hv_epoch_step_facts *step) {
  numbers(t, "stamp ", step->stamps, step->n_stamps);
  numbers(t, "frozen ", step->frozen, step->n_frozen);
  if (step->setup.size) {
    char *at = line(t, "setup ");
    ends_line(t, hv_hex_print(step->setup.data, step->setup.size, at));
  }
}

static void event_lines(hv_trace *t, const hv_epoch *machine, const hv_epoch_event *e) {
  changes(t, machine, "lineage", "ledger");
  changed_line(t, "figures", &hv_fields_figures, e->figures, &t->figures);
  t->figures = *e->figures;
  for (size_t i = 0; i < e->n_members; i++)
    fields_line(t, "member", &hv_fields_member, &e->members[i], NULL);
  step_lines(t, &e->step);
  kind_line(t, "on ", hv_epoch_event_name(e->kind), &hv_fields_event, e);
}

static void shown_line(hv_trace *t, const hv_epoch *machine) {
  hv_epoch_shown now = {.state = machine->state};
  hv_epoch_report(machine, 0, &now.own);
  fields_line(t, "is", &hv_fields_shown, &now, &t->shown); /* the last line of each event */
  t->shown = now;
}

void hv_trace_result(hv_trace *t, const hv_epoch *machine, size_t before) {
  for (size_t i = before; i < machine->n_orders; i++) {
    const hv_epoch_order *order = &machine->orders[(machine->first_order + i) % HV_EPOCH_ORDERS];
    kind_line(t, "do ", hv_epoch_order_name(order->kind), hv_fields_order(order->kind), order);
  }
  changes(t, machine, "lineage is", "ledger is");
  shown_line(t, machine);
  write_out(t);
}

void hv_trace_begin(hv_trace *t, const hv_epoch *machine, uint64_t now_us) {
  t->left = t->left ? t->left : HV_TRACE_MOST;
  line(t, HV_TRACE_HEAD);
  ends_line(t, 0);
  fields_line(t, "config", &hv_fields_config, &machine->config, NULL);
  changes(t, machine, "lineage", "ledger");
  numbers(t, "begin ", &now_us, 1);
  write_out(t);
}

void hv_trace_on(hv_trace *t, hv_epoch *machine, const hv_epoch_event *e) {
  if (t && !t->is_over && t->left < HV_TRACE_EVENT_MOST)
    ends(t, "the file has reached its limit");
  else if (t && !t->is_over && is_too_large(e))
    ends(t, "the next event is larger than a record holds");
  if (!t || t->is_over) {
    hv_epoch_on(machine, e);
    return;
  }
  size_t before = machine->n_orders;
  event_lines(t, machine, e);
  hv_epoch_on(machine, e);
  hv_trace_result(t, machine, before);
}
