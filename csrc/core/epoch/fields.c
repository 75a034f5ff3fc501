#include "core/epoch/fields.h"

#include <stddef.h>
#include <string.h>

/* ---- names ---- */

const char *hv_epoch_event_name(hv_epoch_event_kind kind) {
  static const char *const names[] = {"TIME",    "BATCH",  "OVERFLOW", "DONE",  "BROKE", "PAUSE",  "RESTORED", "ASKED",  "ROUND",
                                      "OFFERED", "LOOKED", "LOADED",   "LOADS", "ENTRY", "WANTED", "LEAVE",    "BEHIND", "SUMMED"};
  _Static_assert(sizeof names / sizeof *names == HV_EPOCH_EVENTS, "each event has its name");
  return (unsigned)kind < HV_EPOCH_EVENTS ? names[kind] : "?";
}

const char *hv_epoch_order_name(hv_epoch_order_kind kind) {
  static const char *const names[] = {"WAKE",  "REACHED", "SEEK",       "TRIGGER", "CANCEL",   "GIVE_UP", "ASIDE",
                                      "COMES", "OFFER",   "EXPECT",     "GIVE",    "WITHDRAW", "LOOK",    "LOAD",
                                      "WANT",  "REFUSE",  "DISBELIEVE", "ACT",     "TELL",     "GOODBYE"};
  _Static_assert(sizeof names / sizeof *names == HV_EPOCH_ORDER_KINDS, "each order has its name");
  return (unsigned)kind < HV_EPOCH_ORDER_KINDS ? names[kind] : "?";
}

static const char *event_name(unsigned n) {
  return hv_epoch_event_name((hv_epoch_event_kind)n);
}

static const char *order_name(unsigned n) {
  return hv_epoch_order_name((hv_epoch_order_kind)n);
}

static const char *state_name(unsigned n) {
  return hv_epoch_state_name((hv_epoch_state)n);
}

static const char *outcome_name(unsigned n) {
  return hv_epoch_outcome_name((hv_epoch_outcome)n);
}

static const char *notice_name(unsigned n) {
  return hv_epoch_notice_name((hv_epoch_notice)n);
}

static const char *which_name(unsigned n) {
  return n ? "STATE" : "GRADIENTS";
}

static const char *lane_name(unsigned n) {
  return n ? "LATE" : "NOW";
}

static const char *company_name(unsigned n) {
  static const char *const names[] = {"TRAINS", "WAITS", "STOPS"};
  return names[n];
}

static const char *standing_name(unsigned n) {
  static const char *const names[] = {"IN_STEP", "LATE", "BEHIND", "AHEAD"};
  _Static_assert(sizeof names / sizeof *names == HV_PROGRESS_STANDINGS, "each standing has its name");
  return names[n];
}

const hv_field_names hv_fields_events = {event_name, HV_EPOCH_EVENTS}, hv_fields_orders = {order_name, HV_EPOCH_ORDER_KINDS};
static const hv_field_names states = {state_name, HV_EPOCH_STATES}, outcomes = {outcome_name, HV_EPOCH_OUTCOMES},
                            notices = {notice_name, HV_EPOCH_NOTICES}, works = {hv_epoch_work_name, HV_EPOCH_WORKS},
                            whiches = {which_name, HV_EPOCH_ROUNDS}, lanes = {lane_name, HV_EPOCH_LANES},
                            companies = {company_name, HV_EPOCH_ALONE_STOPS + 1},
                            standings = {standing_name, HV_PROGRESS_STANDINGS};

/* ---- fields ---- */

#define SIZED(type, field) offsetof(type, field), sizeof(((type *)0)->field)
#define WHOLE(type, field)                                                                                                         \
  { #field, SIZED(type, field), HV_FIELD_WHOLE, NULL }
#define SIGNED(type, field)                                                                                                        \
  { #field, SIZED(type, field), HV_FIELD_SIGNED, NULL }
#define REAL(type, field)                                                                                                          \
  { #field, SIZED(type, field), HV_FIELD_REAL, NULL }
#define BYTES(type, field)                                                                                                         \
  { #field, SIZED(type, field), HV_FIELD_BYTES, NULL }
#define NAMED(type, field, names)                                                                                                  \
  { #field, SIZED(type, field), HV_FIELD_NAMED, &(names) }
#define ALL(list)                                                                                                                  \
  { list, sizeof(list) / sizeof *(list) }

static const hv_field of_config[] = {WHOLE(hv_epoch_config, options.use_local_updates),
                                     WHOLE(hv_epoch_config, options.delay_grad_averaging),
                                     WHOLE(hv_epoch_config, options.delay_optimizer_step),
                                     WHOLE(hv_epoch_config, options.delay_state_averaging),
                                     WHOLE(hv_epoch_config, options.offload),
                                     WHOLE(hv_epoch_config, options.auxiliary),
                                     WHOLE(hv_epoch_config, options.average_state_every),
                                     WHOLE(hv_epoch_config, options.outer),
                                     WHOLE(hv_epoch_config, options.overlap),
                                     WHOLE(hv_epoch_config, target),
                                     WHOLE(hv_epoch_config, matchmaking_us),
                                     WHOLE(hv_epoch_config, averaging_us),
                                     SIGNED(hv_epoch_config, averaging_given),
                                     NAMED(hv_epoch_config, company, companies),
                                     WHOLE(hv_epoch_config, alone_us),
                                     SIGNED(hv_epoch_config, begins_run),
                                     SIGNED(hv_epoch_config, reachable),
                                     BYTES(hv_epoch_config, me),
                                     WHOLE(hv_epoch_config, entry_bytes),
                                     WHOLE(hv_epoch_config, state_bytes),
                                     SIGNED(hv_epoch_config, differs),
                                     REAL(hv_epoch_config, alpha),
                                     WHOLE(hv_epoch_config, epoch)};
static const hv_field of_figures[] = {WHOLE(hv_progress_figures, epoch),     REAL(hv_progress_figures, samples),
                                      REAL(hv_progress_figures, speed),      WHOLE(hv_progress_figures, n_peers),
                                      WHOLE(hv_progress_figures, n_clients), WHOLE(hv_progress_figures, n_behind),
                                      WHOLE(hv_progress_figures, n_coming),  WHOLE(hv_progress_figures, eta_us),
                                      WHOLE(hv_progress_figures, next_us),   NAMED(hv_progress_figures, standing, standings),
                                      SIGNED(hv_progress_figures, ready),    SIGNED(hv_progress_figures, match)};
static const hv_field of_event[] = {WHOLE(hv_epoch_event, now_us),         WHOLE(hv_epoch_event, fetched),
                                    WHOLE(hv_epoch_event, samples),        WHOLE(hv_epoch_event, epoch),
                                    WHOLE(hv_epoch_event, number),         WHOLE(hv_epoch_event, stamp),
                                    WHOLE(hv_epoch_event, took_us),        SIGNED(hv_epoch_event, ok),
                                    NAMED(hv_epoch_event, which, whiches), NAMED(hv_epoch_event, outcome, outcomes),
                                    REAL(hv_epoch_event, share),           WHOLE(hv_epoch_event, n_lost),
                                    BYTES(hv_epoch_event, mark),           SIGNED(hv_epoch_event, has_mark),
                                    SIGNED(hv_epoch_event, ran_out)};
static const hv_field of_member[] = {BYTES(hv_lineage_member, peer),         WHOLE(hv_lineage_member, is_client),
                                     WHOLE(hv_lineage_member, is_auxiliary), WHOLE(hv_lineage_member, has_word),
                                     BYTES(hv_lineage_member, word.mark),    SIGNED(hv_lineage_member, word.rank)};
static const hv_field of_lineage[] = {BYTES(hv_lineage, mark),       WHOLE(hv_lineage, samples),  WHOLE(hv_lineage, is_known),
                                      WHOLE(hv_lineage, is_kept),    WHOLE(hv_lineage, is_wrong), WHOLE(hv_lineage, is_reachable),
                                      WHOLE(hv_lineage, was_loaded), WHOLE(hv_lineage, is_made),  WHOLE(hv_lineage, is_by_itself),
                                      WHOLE(hv_lineage, steps)};
#define OF_LOSS(name, text) {"lost." #name, SIZED(hv_epoch_ledger, lost_by[HV_EPOCH_LOSS_##name]), HV_FIELD_WHOLE, NULL},
static const hv_field of_ledger[] = {
    WHOLE(hv_epoch_ledger, produced),  WHOLE(hv_epoch_ledger, averaged), WHOLE(hv_epoch_ledger, kept), WHOLE(hv_epoch_ledger, sums),
    WHOLE(hv_epoch_ledger, in_flight), WHOLE(hv_epoch_ledger, lost),     HV_EPOCH_LOSS_MAP(OF_LOSS)};
#define OF_ORDER(names)                                                                                                            \
  {                                                                                                                                \
    NAMED(hv_epoch_order, which, whiches), NAMED(hv_epoch_order, lane, lanes), NAMED(hv_epoch_order, action, names),               \
        WHOLE(hv_epoch_order, number), WHOLE(hv_epoch_order, epoch), WHOLE(hv_epoch_order, samples),                               \
        WHOLE(hv_epoch_order, wait_us), WHOLE(hv_epoch_order, timeout_us), SIGNED(hv_epoch_order, ask)                             \
  }
static const hv_field of_act[] = OF_ORDER(works), of_tell[] = OF_ORDER(notices);
static const hv_field of_shown[] = {NAMED(hv_epoch_shown, state, states), SIGNED(hv_epoch_shown, own.any),
                                    WHOLE(hv_epoch_shown, own.epoch),     WHOLE(hv_epoch_shown, own.samples),
                                    WHOLE(hv_epoch_shown, own.before),    WHOLE(hv_epoch_shown, own.step),
                                    SIGNED(hv_epoch_shown, own.paused),   WHOLE(hv_epoch_shown, own.comes)};

const hv_fields hv_fields_config = ALL(of_config), hv_fields_figures = ALL(of_figures), hv_fields_event = ALL(of_event),
                hv_fields_member = ALL(of_member), hv_fields_lineage = ALL(of_lineage), hv_fields_ledger = ALL(of_ledger),
                hv_fields_shown = ALL(of_shown);

const hv_fields *hv_fields_order(hv_epoch_order_kind kind) {
  static const hv_fields acts = ALL(of_act), tells = ALL(of_tell);
  return kind == HV_EPOCH_TELL ? &tells : &acts;
}

/* ---- values as text ---- */

static const char digits[] = "0123456789abcdef";

size_t hv_decimal_print(uint64_t number, char *out) {
  char text[20];
  size_t n = 0;
  do
    text[n++] = (char)('0' + number % 10);
  while (number /= 10);
  for (size_t i = 0; i < n; i++)
    out[i] = text[n - 1 - i];
  return n;
}

int hv_decimal_read(hv_span text, uint64_t *out) {
  uint64_t number = 0;
  if (!text.size || text.size > 20)
    return 0;
  for (size_t i = 0; i < text.size; i++) {
    unsigned digit = (unsigned)text.data[i] - '0';
    if (digit > 9 || number > (UINT64_MAX - digit) / 10)
      return 0;
    number = 10 * number + digit;
  }
  *out = number;
  return 1;
}

size_t hv_hex_print(const uint8_t *bytes, size_t size, char *out) {
  for (size_t i = 0; i < size; i++) {
    out[2 * i] = digits[bytes[i] >> 4];
    out[2 * i + 1] = digits[bytes[i] & 15];
  }
  return 2 * size;
}

static unsigned digit_of(uint8_t letter) {
  return letter >= '0' && letter <= '9'   ? (unsigned)letter - '0'
         : letter >= 'a' && letter <= 'f' ? (unsigned)letter - 'a' + 10
                                          : 16;
}

int hv_hex_read(hv_span text, uint8_t *out, size_t size) {
  if (text.size != 2 * size)
    return 0;
  for (size_t i = 0; i < size; i++) {
    unsigned high = digit_of(text.data[2 * i]), low = digit_of(text.data[2 * i + 1]);
    if (high > 15 || low > 15)
      return 0;
    out[i] = (uint8_t)(high << 4 | low);
  }
  return 1;
}

static uint64_t whole_of(const void *at, size_t size) {
  uint32_t four;
  uint64_t eight;
  if (size == 1)
    return *(const uint8_t *)at;
  if (size == 4)
    return memcpy(&four, at, sizeof four), four;
  return memcpy(&eight, at, sizeof eight), eight;
}

static void put_whole(uint64_t number, void *at, size_t size) {
  uint32_t four = (uint32_t)number;
  if (size == 1)
    *(uint8_t *)at = (uint8_t)number;
  else
    memcpy(at, size == 4 ? (const void *)&four : (const void *)&number, size);
}

static int64_t signed_of(const void *at, size_t size) {
  uint64_t number = whole_of(at, size);
  return size == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
}

static size_t print_signed(int64_t number, char *out) {
  if (number >= 0)
    return hv_decimal_print((uint64_t)number, out);
  *out = '-';
  return 1 + hv_decimal_print(-(uint64_t)number, out + 1);
}

static int read_signed(hv_span text, int64_t *out) {
  int is_negative = text.size && text.data[0] == '-';
  uint64_t number;
  if (!hv_decimal_read(hv_span_of(text.data + is_negative, text.size - (size_t)is_negative), &number) ||
      number > (uint64_t)INT64_MAX + (uint64_t)is_negative)
    return 0;
  *out = is_negative ? (int64_t)-number : (int64_t)number;
  return 1;
}

#define WHOLE_MOST 9007199254740992.0 /* 2^53: whole numbers below it are exact */

static size_t print_real(const void *at, char *out) {
  double real;
  uint64_t bits;
  uint8_t bytes[8];
  memcpy(&real, at, sizeof real);
  memcpy(&bits, at, sizeof bits);
  if (real >= 0 && real < WHOLE_MOST && real == (double)(uint64_t)real && bits != UINT64_C(1) << 63)
    return hv_decimal_print((uint64_t)real, out);
  for (size_t i = 0; i < 8; i++)
    bytes[i] = (uint8_t)(bits >> 8 * (7 - i));
  memcpy(out, "0x", 2);
  return 2 + hv_hex_print(bytes, 8, out + 2);
}

static int read_real(hv_span text, void *at) {
  uint64_t number = 0;
  uint8_t bytes[8];
  double real;
  if (text.size == 18 && memcmp(text.data, "0x", 2) == 0 && hv_hex_read(hv_span_of(text.data + 2, 16), bytes, 8)) {
    for (size_t i = 0; i < 8; i++)
      number = number << 8 | bytes[i];
    memcpy(at, &number, sizeof number);
    return 1;
  }
  if (!hv_decimal_read(text, &number))
    return 0;
  real = (double)number;
  memcpy(at, &real, sizeof real);
  return 1;
}

static size_t print_text(const char *text, char *out) {
  size_t size = strlen(text);
  memcpy(out, text, size);
  return size;
}

static size_t print_value(const hv_field *f, const uint8_t *at, char *out) {
  uint64_t number;
  switch (f->kind) {
  case HV_FIELD_SIGNED:
    return print_signed(signed_of(at, f->size), out);
  case HV_FIELD_REAL:
    return print_real(at, out);
  case HV_FIELD_BYTES:
    return hv_hex_print(at, f->size, out);
  case HV_FIELD_NAMED:
    number = whole_of(at, f->size);
    return number < f->names->n ? print_text(f->names->of((unsigned)number), out) : hv_decimal_print(number, out);
  default:
    return hv_decimal_print(whole_of(at, f->size), out);
  }
}

size_t hv_fields_print(const hv_fields *fields, const void *value, const void *before, char *out) {
  static const uint8_t zeros[32];
  size_t n = 0;
  for (const hv_field *f = fields->list; f < fields->list + fields->n; f++) {
    const uint8_t *at = (const uint8_t *)value + f->at;
    if (memcmp(at, before ? (const uint8_t *)before + f->at : zeros, f->size) == 0)
      continue;
    out[n++] = ' ';
    n += print_text(f->name, out + n);
    out[n++] = '=';
    n += print_value(f, at, out + n);
  }
  return n;
}

unsigned hv_fields_named(const hv_field_names *names, hv_span name) {
  unsigned value = 0;
  while (value < names->n && !hv_span_equal(name, hv_span_of(names->of(value), strlen(names->of(value)))))
    value++;
  return value;
}

static int set_value(const hv_field *f, uint8_t *at, hv_span text) {
  uint64_t number;
  int64_t with_sign;
  switch (f->kind) {
  case HV_FIELD_SIGNED:
    if (!read_signed(text, &with_sign) || (f->size == 4 && (with_sign > INT32_MAX || with_sign < INT32_MIN)))
      return 0;
    put_whole((uint64_t)with_sign, at, f->size);
    return 1;
  case HV_FIELD_REAL:
    return read_real(text, at);
  case HV_FIELD_BYTES:
    return hv_hex_read(text, at, f->size);
  case HV_FIELD_NAMED:
    number = hv_fields_named(f->names, text);
    if (number >= f->names->n)
      return 0;
    put_whole(number, at, f->size);
    return 1;
  default:
    if (!hv_decimal_read(text, &number) || (f->size < 8 && number >> 8 * f->size))
      return 0;
    put_whole(number, at, f->size);
    return 1;
  }
}

hv_status hv_fields_set(const hv_fields *fields, void *value, hv_span name, hv_span text) {
  for (const hv_field *f = fields->list; f < fields->list + fields->n; f++)
    if (hv_span_equal(name, hv_span_of(f->name, strlen(f->name))))
      return set_value(f, (uint8_t *)value + f->at, text) ? HV_OK : HV_MALFORMED;
  return HV_NOT_FOUND;
}
