/* The fields of the machine's configuration, readings, events, orders and results, by name, as text: "name=value" for each.
 *
 * Room: core (uses epoch).
 * Thread: any; pure functions.
 * Limits: HV_FIELDS_TEXT_MAX.
 * Text: a whole number is decimal. A real number that is no small whole one is its bits, "0x" and 16 digits. Bytes are hexadecimal.
 * A value of an enum is its name. A field that is zero is not written.
 */
#ifndef HV_CORE_EPOCH_FIELDS_H
#define HV_CORE_EPOCH_FIELDS_H

#include "base/buf.h"
#include "core/epoch/epoch.h"

#define HV_FIELDS_TEXT_MAX 2048 /* bytes of all fields of a struct */

typedef enum hv_field_kind {
  HV_FIELD_WHOLE,  /* an unsigned number of `size` bytes */
  HV_FIELD_SIGNED, /* a signed one */
  HV_FIELD_REAL,   /* a double */
  HV_FIELD_BYTES,
  HV_FIELD_NAMED /* an unsigned number that is a name */
} hv_field_kind;

/* The names of an enum's values: n of them. */
typedef struct hv_field_names {
  const char *(*of)(unsigned value);
  unsigned n;
} hv_field_names;

typedef struct hv_field {
  const char *name;
  size_t at, size; /* in bytes */
  hv_field_kind kind;
  const hv_field_names *names; /* of HV_FIELD_NAMED */
} hv_field;

typedef struct hv_fields {
  const hv_field *list;
  size_t n;
} hv_fields;

/* The state of a machine and its report to others, after an event. */
typedef struct hv_epoch_shown {
  hv_epoch_state state;
  hv_progress_own own;
} hv_epoch_shown;

/* Every field of these structs, but for pointers and the lengths of what they point to. */
extern const hv_fields hv_fields_config;  /* hv_epoch_config */
extern const hv_fields hv_fields_figures; /* hv_progress_figures */
extern const hv_fields hv_fields_event;   /* hv_epoch_event; without its kind */
extern const hv_fields hv_fields_member;  /* hv_lineage_member */
extern const hv_fields hv_fields_lineage; /* hv_lineage */
extern const hv_fields hv_fields_ledger;  /* hv_epoch_ledger */
/* hv_epoch_order, without its kind, which says what its action is. */
const hv_fields *hv_fields_order(hv_epoch_order_kind kind);
extern const hv_fields hv_fields_shown; /* hv_epoch_shown: what a peer of the run hears; no times */

extern const hv_field_names hv_fields_events, hv_fields_orders; /* of the kinds */

/* Writes " name=value" for each field of *value that differs from that of *before (NULL: from zeros) to out, which has room for
 * HV_FIELDS_TEXT_MAX bytes, and returns the number of bytes. */
size_t hv_fields_print(const hv_fields *fields, const void *value, const void *before, char *out);
/* Sets the field of that name. HV_NOT_FOUND: there is none; HV_MALFORMED: this is no value of it. */
hv_status hv_fields_set(const hv_fields *fields, void *value, hv_span name, hv_span text);
/* The value with that name, or names->n: none. */
unsigned hv_fields_named(const hv_field_names *names, hv_span name);

/* "BATCH"; "SEEK". Never NULL. */
const char *hv_epoch_event_name(hv_epoch_event_kind kind);
const char *hv_epoch_order_name(hv_epoch_order_kind kind);

/* A number as decimal text. Returns the number of bytes, 20 at most. */
size_t hv_decimal_print(uint64_t number, char *out);
/* 0: this is no decimal number, or it does not fit. */
int hv_decimal_read(hv_span text, uint64_t *out);
/* Bytes as twice as many digits, and back; 0: this is something else. */
size_t hv_hex_print(const uint8_t *bytes, size_t size, char *out);
int hv_hex_read(hv_span text, uint8_t *out, size_t size);

#endif
