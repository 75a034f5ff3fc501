#include "net/wire.h"

#include "hivemind.pb-c.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
enum { GAP = 16 }; /* a red zone behind every piece of a room */
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)0)
enum { GAP = 0 };
#endif

enum {
  ALIGN = 16,
  CHUNK = 8192,      /* a room that grows does so by this much */
  UNKNOWN_MAX = 32,  /* unknown fields in one message */
  FIELDS_MAX = 32,   /* known fields of one message: more in the .proto is our mistake */
  SCANNED_SIZE = 48, /* protobuf-c keeps a record of 32 bytes for each field beyond the 16th, in doubling slabs */
  SLABS_SIZE = 1024, /* what the alignment of those slabs may cost */
  ELEMENT_SIZE = 16, /* the largest element of a repeated field: a ProtobufCBinaryData */
  BULK_LEAD = 4
};

/* ---- a room: memory handed out piece by piece and given back at once ---- */

typedef struct room {
  uint8_t *at;
  size_t left;
  hv_mem *mem;   /* grows from here; NULL: it is as large as it is */
  void **chunks; /* the first word of each points to the next */
  int short_of;  /* 1: something did not fit */
} room;

static size_t footprint(size_t size) {
  return (size + GAP + ALIGN - 1) / ALIGN * ALIGN;
}

static int room_grow(room *r, size_t size) {
  size_t lead = ALIGN, body = size > CHUNK ? size : CHUNK;
  void **chunk = r->mem ? hv_mem_alloc(r->mem, lead + body) : NULL;
  if (!chunk)
    return 0;
  *chunk = r->chunks;
  r->chunks = chunk;
  r->at = (uint8_t *)chunk + lead;
  r->left = body;
  return 1;
}

static void *take(room *r, size_t size) {
  size_t n = footprint(size);
  if (size > HV_WIRE_BUDGET || (n > r->left && !room_grow(r, n))) {
    r->short_of = 1;
    return NULL;
  }
  void *piece = r->at;
  r->at += n;
  r->left -= n;
  ASAN_UNPOISON_MEMORY_REGION(piece, size);
  return piece;
}

static void room_fini(room *r) {
  for (void **chunk = r->chunks, **next; chunk; chunk = next) {
    next = *chunk;
    hv_mem_free(chunk);
  }
}

static void *unpacker_take(void *r, size_t size) {
  return take(r, size);
}

static void unpacker_free(void *r, void *piece) {
  (void)r;
  (void)piece;
}

/* ---- shapes: how a struct of msg.h and a message of the .proto correspond, field by field ---- */

typedef ProtobufCBinaryData blob;

typedef enum op {
  OP_BYTES,
  OP_EXACT,
  OP_MAYBE,
  OP_ADDR,
  OP_ADDRS,
  OP_FLAG,
  OP_U8,
  OP_U32,
  OP_U64,
  OP_F32,
  OP_STATUS,
  OP_STATUSES,
  OP_ONE,
  OP_LIST
} op;

/* A field: where it stands on both sides, and how much of it there may be. */
typedef struct row {
  op op;
  size_t ours, theirs;     /* offsets */
  size_t n_ours, n_theirs; /* of lists: offsets of the counts */
  size_t most;             /* bytes, elements, or the largest number */
  const struct shape *of;  /* of OP_ONE and OP_LIST */
} row;

/* A message: one row for each field of the .proto, in the order of their numbers (a field without one is refused when read).
 * `said` may take fields back before they are written; `heard` sees both sides when all rows have been read, and may say
 * HV_MALFORMED. */
typedef struct shape {
  const ProtobufCMessageDescriptor *type;
  const row *rows;
  size_t n_rows, size;
  void (*said)(void *theirs);
  hv_status (*heard)(const void *theirs, void *ours);
} shape;

/* The offset of a member, which must be of this type. */
#define AT(structure, member, type) (offsetof(structure, member) + 0 * sizeof(_Generic(((structure *)0)->member, type : 1)))
#define FIELD(op_, s, member, ours_, theirs_, most_)                                                                               \
  .op = op_, .ours = AT(s##_ours, member, ours_), .theirs = AT(s##_theirs, member, theirs_), .most = most_
#define COUNTED(s, member, count_) .n_ours = AT(s##_ours, member, count_), .n_theirs = AT(s##_theirs, member, size_t)

/* Rows, for a member of the same name on both sides. */
#define BYTES(s, member, most)                                                                                                     \
  { FIELD(OP_BYTES, s, member, hv_span, blob, most) }
#define EXACT(s, member, ours)                                                                                                     \
  { FIELD(OP_EXACT, s, member, ours, blob, sizeof(((s##_ours *)0)->member)) } /* of one size only: keys, hashes */
#define MAYBE(s, member, ours)                                                                                                     \
  { FIELD(OP_MAYBE, s, member, ours, blob, sizeof(((s##_ours *)0)->member)) } /* the same, or none: then zero */
#define ADDR(s, member)                                                                                                            \
  { FIELD(OP_ADDR, s, member, hv_addr, blob, HV_ADDR_PACKED_MAX) } /* may be none */
#define FLAG(s, member)                                                                                                            \
  { FIELD(OP_FLAG, s, member, uint8_t, protobuf_c_boolean, 1) }
#define U8(s, member, most)                                                                                                        \
  { FIELD(OP_U8, s, member, uint8_t, uint32_t, most) }
#define U32(s, member)                                                                                                             \
  { FIELD(OP_U32, s, member, uint32_t, uint32_t, UINT32_MAX) }
#define U64(s, member)                                                                                                             \
  { FIELD(OP_U64, s, member, uint64_t, uint64_t, UINT64_MAX) }
#define F32(s, member)                                                                                                             \
  { FIELD(OP_F32, s, member, float, float, 0) } /* any bits: whoever reads it checks what it means */
#define STATUS(s, member)                                                                                                          \
  { FIELD(OP_STATUS, s, member, hv_status, Hv__Status, 0) } /* never ok */
#define STATUSES(s, member, most)                                                                                                  \
  { FIELD(OP_STATUSES, s, member, const hv_status *, Hv__Status *, most), COUNTED(s, n_##member, size_t) }
#define ADDRS(s, member, most)                                                                                                     \
  { FIELD(OP_ADDRS, s, member, hv_addr *, blob *, most), COUNTED(s, n_##member, uint8_t) }
#define ONE(s, member, e)                                                                                                          \
  { FIELD(OP_ONE, s, member, e##_ours, e##_theirs *, 1), .of = &e##_shape }
#define LIST(s, member, e, most)                                                                                                   \
  { FIELD(OP_LIST, s, member, const e##_ours *, e##_theirs **, most), COUNTED(s, n_##member, size_t), .of = &e##_shape }

#define PAIR(name, ours, theirs)                                                                                                   \
  typedef ours name##_ours;                                                                                                        \
  typedef theirs name##_theirs;                                                                                                    \
  static const row name##_rows[]
#define SHAPE(name, ...)                                                                                                           \
  static const shape name##_shape = {.type = &hv__##name##__descriptor,                                                            \
                                     .rows = name##_rows,                                                                          \
                                     .n_rows = sizeof name##_rows / sizeof(row),                                                   \
                                     .size = sizeof(name##_ours),                                                                  \
                                     __VA_ARGS__}

#include "net/wire_shapes.h"

/* ---- the ops: what a row does in each direction; sizes of bytes and lists were bounded by the scan when a message is heard ----
 */

#define TRY(expression)                                                                                                            \
  do {                                                                                                                             \
    hv_status try_status = (expression);                                                                                           \
    if (try_status != HV_OK)                                                                                                       \
      return try_status;                                                                                                           \
  } while (0)

static hv_status say_shape(const shape *s, const uint8_t *ours, void *message, room *r);
static hv_status hear_shape(const shape *s, const void *message, uint8_t *ours, room *r);

static const int status_codes[HV_STATUS_COUNT] = {
#define STATUS_CODE(name, text) [HV_##name] = HV__STATUS__##name,
    HV_STATUS_MAP(STATUS_CODE)
#undef STATUS_CODE
};

static hv_status say_status(hv_status from, Hv__Status *to) {
  if ((unsigned)from >= HV_STATUS_COUNT)
    return HV_INVALID;
  *to = (Hv__Status)status_codes[from];
  return HV_OK;
}

/* A code that is not known here reads as HV_INTERNAL. */
static hv_status hear_status(Hv__Status from) {
  for (unsigned i = 0; i < HV_STATUS_COUNT; i++)
    if (status_codes[i] == (int)from)
      return (hv_status)i;
  return HV_INTERNAL;
}

static hv_status say_addr(const hv_addr *from, blob *to, room *r) {
  uint8_t packed[HV_ADDR_PACKED_MAX];
  size_t size = from->kind == HV_ADDR_NONE ? 0 : hv_addr_pack(from, packed);
  if (size == 0)
    return HV_INVALID;
  uint8_t *copy = take(r, size);
  if (!copy)
    return HV_NOMEM;
  memcpy(copy, packed, size);
  *to = (blob){size, copy};
  return HV_OK;
}

/* An address that cannot be read here (a kind yet to come) is none, not an error. */
static int hear_addr(blob from, hv_addr *to) {
  if (from.len <= HV_ADDR_PACKED_MAX && hv_addr_unpack(hv_span_of(from.data, from.len), to) == HV_OK)
    return 1;
  *to = (hv_addr){.kind = HV_ADDR_NONE};
  return 0;
}

static hv_status say_addrs(const row *w, const uint8_t *ours, uint8_t *theirs, room *r) {
  const hv_addr *from = (const hv_addr *)(ours + w->ours);
  size_t n = ours[w->n_ours];
  blob *to = n <= w->most ? take(r, n * sizeof *to) : NULL;
  if (!to)
    return n > w->most ? HV_TOO_LARGE : HV_NOMEM;
  for (size_t i = 0; i < n; i++)
    TRY(say_addr(&from[i], &to[i], r));
  *(blob **)(theirs + w->theirs) = to;
  *(size_t *)(theirs + w->n_theirs) = n;
  return HV_OK;
}

static void hear_addrs(const row *w, const uint8_t *theirs, uint8_t *ours) {
  const blob *from = *(blob *const *)(theirs + w->theirs);
  hv_addr *to = (hv_addr *)(ours + w->ours);
  uint8_t n = 0;
  for (size_t i = 0; i < *(const size_t *)(theirs + w->n_theirs); i++)
    n = (uint8_t)(n + hear_addr(from[i], &to[n]));
  ours[w->n_ours] = n;
}

static hv_status say_statuses(const row *w, const uint8_t *ours, uint8_t *theirs, room *r) {
  const hv_status *from = *(const hv_status *const *)(ours + w->ours);
  size_t n = *(const size_t *)(ours + w->n_ours);
  Hv__Status *to = n <= w->most ? take(r, n * sizeof *to) : NULL;
  if (!to)
    return n > w->most ? HV_TOO_LARGE : HV_NOMEM;
  for (size_t i = 0; i < n; i++)
    TRY(say_status(from[i], &to[i]));
  *(Hv__Status **)(theirs + w->theirs) = to;
  *(size_t *)(theirs + w->n_theirs) = n;
  return HV_OK;
}

static hv_status hear_statuses(const row *w, const uint8_t *theirs, uint8_t *ours, room *r) {
  const Hv__Status *from = *(Hv__Status *const *)(theirs + w->theirs);
  size_t n = *(const size_t *)(theirs + w->n_theirs);
  hv_status *to = n ? take(r, n * sizeof *to) : NULL;
  if (n && !to)
    return HV_INTERNAL;
  for (size_t i = 0; i < n; i++)
    to[i] = hear_status(from[i]);
  *(const hv_status **)(ours + w->ours) = to;
  *(size_t *)(ours + w->n_ours) = n;
  return HV_OK;
}

/* Pointers to structs of this shape are moved as bytes: they have many types. */
static hv_status say_one(const shape *s, const uint8_t *ours, uint8_t *pointer, room *r) {
  void *message = take(r, s->type->sizeof_message);
  if (!message)
    return HV_NOMEM;
  memcpy(pointer, &message, sizeof message);
  return say_shape(s, ours, message, r);
}

static hv_status say_list(const row *w, const uint8_t *ours, uint8_t *theirs, room *r) {
  size_t n = *(const size_t *)(ours + w->n_ours);
  const uint8_t *from;
  uint8_t *list = n <= w->most ? take(r, n * sizeof(void *)) : NULL;
  if (!list)
    return n > w->most ? HV_TOO_LARGE : HV_NOMEM;
  memcpy(&from, ours + w->ours, sizeof from);
  for (size_t i = 0; i < n; i++)
    TRY(say_one(w->of, from + i * w->of->size, list + i * sizeof(void *), r));
  memcpy(theirs + w->theirs, &list, sizeof list);
  *(size_t *)(theirs + w->n_theirs) = n;
  return HV_OK;
}

static hv_status hear_list(const row *w, const uint8_t *theirs, uint8_t *ours, room *r) {
  size_t n = *(const size_t *)(theirs + w->n_theirs);
  uint8_t *to = n ? take(r, n * w->of->size) : NULL, *const * list;
  if (n && !to)
    return HV_INTERNAL;
  memcpy(&list, theirs + w->theirs, sizeof list);
  for (size_t i = 0; i < n; i++)
    TRY(hear_shape(w->of, list[i], to + i * w->of->size, r));
  memcpy(ours + w->ours, &to, sizeof to);
  *(size_t *)(ours + w->n_ours) = n;
  return HV_OK;
}

static hv_status say_row(const row *w, const uint8_t *ours, uint8_t *theirs, room *r) {
  const uint8_t *from = ours + w->ours;
  uint8_t *to = theirs + w->theirs;
  const hv_span *bytes = (const hv_span *)from;
  switch (w->op) {
  case OP_BYTES:
    *(blob *)to = (blob){bytes->size, (uint8_t *)bytes->data};
    return bytes->size > w->most ? HV_TOO_LARGE : HV_OK;
  case OP_EXACT:
  case OP_MAYBE:
    *(blob *)to = (blob){w->most, (uint8_t *)from};
    return HV_OK;
  case OP_ADDR:
    return ((const hv_addr *)from)->kind == HV_ADDR_NONE ? HV_OK : say_addr((const hv_addr *)from, (blob *)to, r);
  case OP_ADDRS:
    return say_addrs(w, ours, theirs, r);
  case OP_FLAG:
    *(protobuf_c_boolean *)to = *from != 0;
    return HV_OK;
  case OP_U8:
    *(uint32_t *)to = *from;
    return *from > w->most ? HV_TOO_LARGE : HV_OK;
  case OP_U32:
    *(uint32_t *)to = *(const uint32_t *)from;
    return HV_OK;
  case OP_U64:
    *(uint64_t *)to = *(const uint64_t *)from;
    return HV_OK;
  case OP_F32:
    *(float *)to = *(const float *)from;
    return HV_OK;
  case OP_STATUS:
    return *(const hv_status *)from == HV_OK ? HV_INVALID : say_status(*(const hv_status *)from, (Hv__Status *)to);
  case OP_STATUSES:
    return say_statuses(w, ours, theirs, r);
  case OP_ONE:
    return say_one(w->of, from, to, r);
  case OP_LIST:
    return say_list(w, ours, theirs, r);
  }
  return HV_INTERNAL;
}

static hv_status hear_row(const row *w, const uint8_t *theirs, uint8_t *ours, room *r) {
  const uint8_t *from = theirs + w->theirs, *message;
  uint8_t *to = ours + w->ours;
  const blob *bytes = (const blob *)from;
  switch (w->op) {
  case OP_BYTES:
    *(hv_span *)to = hv_span_of(bytes->data, bytes->len);
    return HV_OK;
  case OP_EXACT:
  case OP_MAYBE:
    memset(to, 0, w->most);
    if (bytes->len == w->most)
      memcpy(to, bytes->data, w->most);
    return bytes->len == w->most || (bytes->len == 0 && w->op == OP_MAYBE) ? HV_OK : HV_MALFORMED;
  case OP_ADDR:
    hear_addr(*bytes, (hv_addr *)to);
    return HV_OK;
  case OP_ADDRS:
    hear_addrs(w, theirs, ours);
    return HV_OK;
  case OP_FLAG:
    *to = *(const protobuf_c_boolean *)from != 0;
    return HV_OK;
  case OP_U8:
    *to = (uint8_t) * (const uint32_t *)from;
    return *(const uint32_t *)from > w->most ? HV_MALFORMED : HV_OK;
  case OP_U32:
    *(uint32_t *)to = *(const uint32_t *)from;
    return HV_OK;
  case OP_U64:
    *(uint64_t *)to = *(const uint64_t *)from;
    return HV_OK;
  case OP_F32:
    *(float *)to = *(const float *)from;
    return HV_OK;
  case OP_STATUS:
    *(hv_status *)to = hear_status(*(const Hv__Status *)from);
    return *(hv_status *)to == HV_OK ? HV_MALFORMED : HV_OK;
  case OP_STATUSES:
    return hear_statuses(w, theirs, ours, r);
  case OP_ONE:
    memcpy(&message, from, sizeof message);
    return message ? hear_shape(w->of, message, to, r) : HV_MALFORMED;
  case OP_LIST:
    return hear_list(w, theirs, ours, r);
  }
  return HV_INTERNAL;
}

static hv_status say_shape(const shape *s, const uint8_t *ours, void *message, room *r) {
  s->type->message_init(message);
  for (size_t i = 0; i < s->n_rows; i++)
    TRY(say_row(&s->rows[i], ours, message, r));
  if (s->said)
    s->said(message);
  return HV_OK;
}

static hv_status hear_shape(const shape *s, const void *message, uint8_t *ours, room *r) {
  for (size_t i = 0; i < s->n_rows; i++)
    TRY(hear_row(&s->rows[i], message, ours, r));
  return s->heard ? s->heard(message, ours) : HV_OK;
}

/* ---- writing ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { VERSION_FIELD = 1, LOWEST_FIELD = 101, HIGHEST_FIELD = 102, FEATURES_FIELD = 103, TAIL_MAX = 32 };

/* The envelope around a message of its kind: before it the version, behind it the versions that the sender speaks. */
typedef struct frame {
  uint32_t number; /* of the kind */
  uint32_t version;
  const hv_versions *speaks; /* NULL: not told */
} frame;

static size_t put_varint(uint64_t value, uint8_t *to) {
  size_t n = 0;
  for (; value > 0x7f; value >>= 7)
    to[n++] = (uint8_t)(value | 0x80);
  to[n++] = (uint8_t)value;
  return n;
}

/* The envelope before a message of its kind: protocol version, number of the kind, size of the message. */
static size_t put_envelope(const frame *f, size_t size, uint8_t to[32]) {
  size_t n = put_varint(VERSION_FIELD << 3 | WIRE_VARINT, to);
  n += put_varint(f->version, to + n);
  n += put_varint(f->number << 3 | WIRE_BYTES, to + n);
  return n + put_varint(size, to + n);
}

static size_t put_number(uint32_t number, uint64_t value, uint64_t usual, uint8_t *to) {
  if (value == usual)
    return 0;
  size_t n = put_varint(number << 3 | WIRE_VARINT, to);
  return n + put_varint(value, to + n);
}

static size_t put_tail(const frame *f, uint8_t to[TAIL_MAX]) {
  if (!f->speaks)
    return 0;
  size_t n = put_number(LOWEST_FIELD, f->speaks->lowest, f->version, to);
  n += put_number(HIGHEST_FIELD, f->speaks->highest, f->version, to + n);
  return n + put_number(FEATURES_FIELD, f->speaks->features, 0, to + n);
}

/* Appends `lead` bytes (the size of what follows) and the message. */
static hv_status write_message(const frame *f, const ProtobufCMessage *message, size_t lead, size_t most, hv_buf *out) {
  uint8_t envelope[32], tail[TAIL_MAX], *to;
  size_t size = protobuf_c_message_get_packed_size(message), n = put_envelope(f, size, envelope), behind = put_tail(f, tail);
  size_t whole = n + size + behind;
  if (whole > most)
    return HV_TOO_LARGE;
  TRY(hv_buf_reserve(out, lead + whole, &to));
  for (size_t i = 0; i < lead; i++)
    *to++ = (uint8_t)(whole >> 8 * i);
  memcpy(to, envelope, n);
  protobuf_c_message_pack(message, to + n);
  memcpy(to + n + size, tail, behind);
  out->size += lead + whole;
  return HV_OK;
}

static hv_status say(const hv_msg *msg, frame f, size_t lead, size_t most, hv_buf *out) {
  _Alignas(ALIGN) uint8_t first[1024];
  room r = {.at = first, .left = sizeof first, .mem = out->mem};
  const struct kind *k = (unsigned)msg->kind < HV_MSG_KINDS ? &kinds[msg->kind] : &kinds[HV_MSG_NONE];
  if (!k->shape)
    return HV_INVALID;
  ProtobufCMessage *message;
  f.number = k->number;
  hv_status status = say_one(k->shape, (const uint8_t *)&msg->u, (uint8_t *)&message, &r);
  if (status == HV_OK)
    status = write_message(&f, message, lead, most, out);
  room_fini(&r);
  return status;
}

hv_status hv_wire_write(const hv_msg *msg, uint32_t version, const hv_versions *speaks, hv_buf *out) {
  return say(msg, (frame){.version = version, .speaks = speaks}, 0, HV_MSG_BYTES_MAX, out);
}

hv_status hv_wire_write_bulk(const hv_msg *header, uint32_t version, const hv_versions *speaks, hv_buf *out) {
  return say(header, (frame){.version = version, .speaks = speaks}, BULK_LEAD, HV_BULK_HEADER_MAX, out);
}

hv_status hv_wire_bulk_header(const uint8_t first[4], size_t *header_size) {
  size_t size = 0;
  for (size_t i = 0; i < BULK_LEAD; i++)
    size |= (size_t)first[i] << 8 * i;
  if (size == 0 || size > HV_BULK_HEADER_MAX)
    return HV_MALFORMED;
  *header_size = size;
  return HV_OK;
}

/* ---- the scan: every field is walked, counted and priced before any memory is taken ---- */

typedef struct field {
  uint32_t number;
  unsigned wire;
  uint64_t value; /* of a varint */
  hv_span bytes;  /* of the others */
} field;

static int read_varint(hv_span *in, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && in->size; shift += 7) {
    uint8_t byte = *in->data++;
    in->size--;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80)
      return 1;
  }
  return 0;
}

/* Takes the next field off; 0 when it is not whole or of no kind that proto3 has. */
static int read_field(hv_span *in, field *out) {
  uint64_t tag, size = 0;
  if (!read_varint(in, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
    return 0;
  *out = (field){.number = (uint32_t)(tag >> 3), .wire = tag & 7};
  switch (out->wire) {
  case WIRE_VARINT:
    return read_varint(in, &out->value);
  case WIRE_64:
    size = 8;
    break;
  case WIRE_32:
    size = 4;
    break;
  case WIRE_BYTES:
    if (!read_varint(in, &size))
      return 0;
    break;
  default:
    return 0;
  }
  if (size > in->size)
    return 0;
  out->bytes = hv_span_of(in->data, (size_t)size);
  in->data += size;
  in->size -= (size_t)size;
  return 1;
}

static unsigned wire_of(const ProtobufCFieldDescriptor *type) {
  switch (type->type) {
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_BYTES:
  case PROTOBUF_C_TYPE_MESSAGE:
    return WIRE_BYTES;
  case PROTOBUF_C_TYPE_SFIXED32:
  case PROTOBUF_C_TYPE_FIXED32:
  case PROTOBUF_C_TYPE_FLOAT:
    return WIRE_32;
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_FIXED64:
  case PROTOBUF_C_TYPE_DOUBLE:
    return WIRE_64;
  default:
    return WIRE_VARINT;
  }
}

/* How many numbers a packed field holds. */
static size_t count_packed(unsigned wire, hv_span bytes) {
  if (wire != WIRE_VARINT)
    return bytes.size / (wire == WIRE_32 ? 4 : 8);
  size_t n = 0;
  for (size_t i = 0; i < bytes.size; i++)
    n += bytes.data[i] < 0x80;
  return n;
}

static hv_status scan_message(const shape *s, hv_span in, size_t *need);

/* A known field: how many elements it adds, and what they cost beside their place in an array. */
static hv_status scan_known(const row *w, const ProtobufCFieldDescriptor *type, const field *f, size_t *count, size_t *need) {
  unsigned wire = wire_of(type);
  *count = 1;
  if (f->wire != wire) {
    if (type->label != PROTOBUF_C_LABEL_REPEATED || wire == WIRE_BYTES || f->wire != WIRE_BYTES)
      return HV_MALFORMED;
    *count = count_packed(wire, f->bytes);
  }
  if (type->type == PROTOBUF_C_TYPE_MESSAGE)
    return scan_message(w->of, f->bytes, need);
  if (f->bytes.size > (w->op == OP_BYTES ? w->most : HV_MSG_BLOB_MAX))
    return HV_MALFORMED;
  *need += wire == WIRE_BYTES ? footprint(f->bytes.size + 1) : 0;
  return HV_OK;
}

/* Checks how often a field stood and adds what all its elements together cost. */
static hv_status bound_field(const row *w, const ProtobufCFieldDescriptor *type, size_t count, size_t *need) {
  if (type->label != PROTOBUF_C_LABEL_REPEATED)
    return count > 1 ? HV_MALFORMED : HV_OK;
  size_t size = w->op == OP_LIST ? w->of->size : w->op == OP_STATUSES ? sizeof(hv_status) : 0;
  *need += footprint(count * ELEMENT_SIZE) + footprint(count * size);
  return count > w->most ? HV_MALFORMED : HV_OK;
}

/* Adds to *need what unpacking and hearing this message takes from a room, at most. Goes no deeper than the .proto does. */
static hv_status scan_message(const shape *s, hv_span in, size_t *need) {
  const ProtobufCMessageDescriptor *type = s->type;
  size_t counts[FIELDS_MAX] = {0}, fields = 0, unknown = 0;
  if (type->n_fields > FIELDS_MAX || type->n_fields != s->n_rows)
    return HV_INTERNAL;
  while (in.size) {
    field f;
    size_t count, before = in.size;
    if (!read_field(&in, &f))
      return HV_MALFORMED;
    fields++;
    const ProtobufCFieldDescriptor *known = protobuf_c_message_descriptor_get_field(type, f.number);
    if (known) {
      TRY(scan_known(&s->rows[known - type->fields], known, &f, &count, need));
      counts[known - type->fields] += count;
    } else {
      *need += footprint(before - in.size);
      if (++unknown > UNKNOWN_MAX)
        return HV_MALFORMED;
    }
  }
  for (unsigned i = 0; i < type->n_fields; i++)
    if (counts[i])
      TRY(bound_field(&s->rows[i], &type->fields[i], counts[i], need));
  *need += footprint(type->sizeof_message) + footprint(unknown * sizeof(ProtobufCMessageUnknownField));
  *need += fields > 16 ? 2 * fields * SCANNED_SIZE + SLABS_SIZE : 0;
  return HV_OK;
}

/* ---- reading ---- */

static const struct kind *find_kind(uint32_t number) {
  for (size_t i = 0; i < HV_MSG_KINDS; i++)
    if (kinds[i].shape && kinds[i].number == number)
      return &kinds[i];
  return NULL;
}

static hv_status read_version(hv_span *in, uint32_t *version) {
  field f;
  if (!read_field(in, &f) || f.number != VERSION_FIELD || f.wire != WIRE_VARINT || !f.value || f.value > HV_VERSIONS_MAX)
    return HV_MALFORMED;
  *version = (uint32_t)f.value;
  return HV_OK;
}

/* True if these are fields of protobuf. */
static int is_whole(hv_span in) {
  field f;
  while (in.size)
    if (!read_field(&in, &f))
      return 0;
  return 1;
}

/* Finds what the sender speaks: fields that stand anywhere behind the version, each once. */
static hv_status read_speaks(hv_span in, uint32_t version, hv_versions *out) {
  uint64_t said[FEATURES_FIELD - LOWEST_FIELD + 1] = {0};
  unsigned seen = 0;
  while (in.size) {
    field f;
    if (!read_field(&in, &f))
      return HV_MALFORMED;
    if (f.number < LOWEST_FIELD || f.number > FEATURES_FIELD)
      continue;
    unsigned i = f.number - LOWEST_FIELD, over = i < 2 && f.value > HV_VERSIONS_MAX;
    if (f.wire != WIRE_VARINT || (seen & 1u << i) || over)
      return HV_MALFORMED;
    seen |= 1u << i;
    said[i] = f.value;
  }
  *out = (hv_versions){(uint32_t)(said[0] ? said[0] : version), (uint32_t)(said[1] ? said[1] : version), said[2]};
  return hv_versions_valid(out) && hv_versions_has(out, version) ? HV_OK : HV_MALFORMED;
}

/* Finds the one kind that stands behind the version. */
static hv_status read_kind(hv_span in, const struct kind **out, hv_span *body) {
  unsigned unknown = 0;
  *out = NULL;
  while (in.size) {
    field f;
    if (!read_field(&in, &f))
      return HV_MALFORMED;
    const struct kind *k = find_kind(f.number);
    if (k && !*out && f.wire == WIRE_BYTES) {
      *out = k;
      *body = f.bytes;
    } else if (f.number >= LOWEST_FIELD && f.number <= FEATURES_FIELD) {
      continue; /* read_speaks has read it */
    } else if (k || f.number == VERSION_FIELD || ++unknown > UNKNOWN_MAX) {
      return HV_MALFORMED;
    }
  }
  return *out ? HV_OK : unknown ? HV_UNSUPPORTED : HV_MALFORMED;
}

static hv_status hear(const struct kind *k, hv_span body, size_t room_size, hv_wire_msg *out) {
  room r = {.at = out->block, .left = room_size};
  ProtobufCAllocator unpacker = {unpacker_take, unpacker_free, &r};
  ASAN_POISON_MEMORY_REGION(r.at, r.left);
  const ProtobufCMessage *message = protobuf_c_message_unpack(k->shape->type, &unpacker, body.size, body.data);
  if (!message)
    return r.short_of ? HV_INTERNAL : HV_MALFORMED; /* the scan promised that it fits */
  out->msg.kind = (hv_msg_kind)(k - kinds);
  memset(&out->msg.u, 0, k->shape->size); /* the longest kind is ten times as long as the usual ones */
  return hear_shape(k->shape, message, (uint8_t *)&out->msg.u, &r);
}

hv_status hv_wire_read(hv_span bytes, const hv_versions *reads, hv_mem *mem, size_t budget, hv_wire_msg *out) {
  const struct kind *k;
  hv_span in = bytes, body;
  size_t need = 0;
  out->version = 0;
  out->speaks = (hv_versions){0};
  out->block = NULL;
  out->msg.kind = HV_MSG_NONE;
  TRY(read_version(&in, &out->version));
  if (bytes.size > HV_MSG_BYTES_MAX)
    return HV_MALFORMED;
  out->speaks = hv_versions_plain(out->version);
  int reads_it = hv_versions_has(reads, out->version);
  if (reads_it || is_whole(in)) /* a version that is not read here may have given up protobuf: then it names no more */
    TRY(read_speaks(in, out->version, &out->speaks));
  if (!reads_it)
    return HV_VERSION;
  TRY(read_kind(in, &k, &body));
  TRY(scan_message(k->shape, body, &need));
  if (need > budget)
    return HV_BUDGET;
  out->block = hv_mem_alloc(mem, need);
  if (!out->block)
    return HV_NOMEM;
  hv_status status = hear(k, body, need, out);
  if (status != HV_OK)
    hv_wire_release(out);
  return status;
}

hv_status hv_wire_translate(hv_span bytes, uint32_t version, const hv_versions *speaks, hv_mem *mem, hv_buf *out) {
  hv_wire_msg got;
  TRY(hv_wire_read(bytes, speaks, mem, HV_WIRE_BUDGET, &got));
  hv_status status = hv_wire_write(&got.msg, version, speaks, out);
  hv_wire_release(&got);
  return status;
}

void hv_wire_release(hv_wire_msg *msg) {
  hv_mem_free(msg->block);
  msg->block = NULL;
  msg->msg.kind = HV_MSG_NONE;
}
