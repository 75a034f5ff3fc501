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

/* ---- both directions: the simple things ---- */

typedef ProtobufCBinaryData blob;

static hv_status say_bytes(hv_span from, size_t most, blob *to) {
  if (from.size > most)
    return HV_TOO_LARGE;
  *to = (blob){.len = from.size, .data = (uint8_t *)from.data};
  return HV_OK;
}

static hv_status hear_bytes(blob from, size_t most, hv_span *to) {
  *to = hv_span_of(from.data, from.len);
  return from.len > most ? HV_MALFORMED : HV_OK;
}

/* Bytes that have one size only: keys, hashes, signatures. */
static hv_status say_exact(const void *from, size_t size, blob *to) {
  *to = (blob){.len = size, .data = (uint8_t *)from};
  return HV_OK;
}

static hv_status hear_exact(blob from, void *to, size_t size) {
  if (from.len != size)
    return HV_MALFORMED;
  memcpy(to, from.data, size);
  return HV_OK;
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
  return say_exact(copy, size, to);
}

/* An address that cannot be read here (a kind yet to come) is none, not an error. */
static void hear_addr(blob from, hv_addr *to) {
  if (from.len > HV_ADDR_PACKED_MAX || hv_addr_unpack(hv_span_of(from.data, from.len), to) != HV_OK)
    *to = (hv_addr){.kind = HV_ADDR_NONE};
}

static const int status_codes[HV_STATUS_COUNT] = {
#define STATUS_CODE(name, text) [HV_##name] = HV__STATUS__##name,
    HV_STATUS_MAP(STATUS_CODE)
#undef STATUS_CODE
};

static hv_status say_status(hv_status from, Hv__Status *to) {
  if ((unsigned)from >= HV_STATUS_COUNT || from == HV_OK)
    return HV_INVALID;
  *to = (Hv__Status)status_codes[from];
  return HV_OK;
}

/* A code that is not known here reads as HV_INTERNAL. */
static hv_status hear_status(Hv__Status from, hv_status *to) {
  *to = HV_INTERNAL;
  for (unsigned i = 0; i < HV_STATUS_COUNT; i++)
    if (status_codes[i] == (int)from)
      *to = (hv_status)i;
  return *to == HV_OK ? HV_MALFORMED : HV_OK;
}

static hv_status say_card(const hv_card *from, Hv__Card *to, room *r) {
  hv__card__init(to);
  if (from->n_addrs > HV_CARD_ADDRS_MAX)
    return HV_TOO_LARGE;
  hv_status status = say_exact(from->id.key, sizeof from->id.key, &to->id);
  to->client_mode = from->client_mode != 0;
  to->addrs = take(r, from->n_addrs * sizeof *to->addrs);
  if (!to->addrs)
    return HV_NOMEM;
  for (; status == HV_OK && to->n_addrs < from->n_addrs; to->n_addrs++)
    status = say_addr(&from->addrs[to->n_addrs], &to->addrs[to->n_addrs], r);
  return status;
}

static hv_status hear_card(const Hv__Card *from, hv_card *to) {
  if (!from)
    return HV_MALFORMED;
  to->client_mode = from->client_mode != 0;
  to->n_addrs = 0;
  for (size_t i = 0; i < from->n_addrs; i++) {
    hv_addr *addr = &to->addrs[to->n_addrs];
    hear_addr(from->addrs[i], addr);
    to->n_addrs += addr->kind != HV_ADDR_NONE;
  }
  return hear_exact(from->id, to->id.key, sizeof to->id.key);
}

static hv_status say_cards(const hv_card *from, size_t n, Hv__Card ***to, size_t *n_to, room *r) {
  if (n > HV_CARDS_MAX)
    return HV_TOO_LARGE;
  Hv__Card *each = take(r, n * sizeof *each), **list = take(r, n * sizeof *list);
  if (!each || !list)
    return HV_NOMEM;
  hv_status status = HV_OK;
  for (size_t i = 0; status == HV_OK && i < n; i++) {
    list[i] = &each[i];
    status = say_card(&from[i], &each[i], r);
  }
  *to = list;
  *n_to = n;
  return status;
}

static hv_status hear_cards(Hv__Card *const *from, size_t n, const hv_card **to, size_t *n_to, room *r) {
  hv_card *cards = n ? take(r, n * sizeof *cards) : NULL;
  if (n && !cards)
    return HV_INTERNAL;
  hv_status status = HV_OK;
  for (size_t i = 0; status == HV_OK && i < n; i++)
    status = hear_card(from[i], &cards[i]);
  *to = cards;
  *n_to = n;
  return status;
}

/* ---- the kinds: one pair of functions each ---- */

#define TRY(expression)                                                                                                            \
  do {                                                                                                                             \
    hv_status try_status = (expression);                                                                                           \
    if (try_status != HV_OK)                                                                                                       \
      return try_status;                                                                                                           \
  } while (0)

static hv_status say_refusal(const hv_msg *msg, void *message, room *r) {
  const hv_msg_refusal *from = &msg->u.refusal;
  Hv__Refusal *to = message;
  (void)r;
  TRY(say_status(from->status, &to->status));
  return say_bytes(from->text, HV_MSG_TEXT_MAX, &to->text);
}

static hv_status hear_refusal(const void *message, hv_msg *msg, room *r) {
  const Hv__Refusal *from = message;
  hv_msg_refusal *to = &msg->u.refusal;
  (void)r;
  TRY(hear_status(from->status, &to->status));
  return hear_bytes(from->text, HV_MSG_TEXT_MAX, &to->text);
}

static hv_status say_hello(const hv_msg *msg, void *message, room *r) {
  const hv_msg_hello *from = &msg->u.hello;
  Hv__Hello *to = message;
  to->me = take(r, sizeof *to->me);
  if (!to->me)
    return HV_NOMEM;
  TRY(say_card(&from->me, to->me, r));
  TRY(say_bytes(from->agent, HV_MSG_TEXT_MAX, &to->agent));
  if (from->you.kind != HV_ADDR_NONE)
    TRY(say_addr(&from->you, &to->you, r));
  return say_cards(from->cards, from->n_cards, &to->cards, &to->n_cards, r);
}

static hv_status hear_hello(const void *message, hv_msg *msg, room *r) {
  const Hv__Hello *from = message;
  hv_msg_hello *to = &msg->u.hello;
  TRY(hear_card(from->me, &to->me));
  TRY(hear_bytes(from->agent, HV_MSG_TEXT_MAX, &to->agent));
  hear_addr(from->you, &to->you);
  return hear_cards(from->cards, from->n_cards, &to->cards, &to->n_cards, r);
}

static hv_status say_echo(const hv_msg *msg, void *message, room *r) {
  (void)r;
  return say_bytes(msg->u.echo.bytes, HV_MSG_BLOB_MAX, &((Hv__Echo *)message)->data);
}

static hv_status hear_echo(const void *message, hv_msg *msg, room *r) {
  (void)r;
  return hear_bytes(((const Hv__Echo *)message)->data, HV_MSG_BLOB_MAX, &msg->u.echo.bytes);
}

static hv_status say_parcel(const hv_msg *msg, void *message, room *r) {
  const hv_msg_parcel *from = &msg->u.parcel;
  Hv__Parcel *to = message;
  (void)r;
  to->size = from->size;
  to->offset = from->offset;
  to->receipt = from->receipt != 0;
  return HV_OK;
}

static hv_status hear_parcel(const void *message, hv_msg *msg, room *r) {
  const Hv__Parcel *from = message;
  (void)r;
  msg->u.parcel = (hv_msg_parcel){.size = from->size, .offset = from->offset, .receipt = from->receipt != 0};
  return HV_OK;
}

static hv_status say_record(const hv_record *from, Hv__Record *to) {
  hv__record__init(to);
  TRY(say_bytes(from->key, HV_RECORD_KEY_MAX, &to->key));
  TRY(say_bytes(from->subkey, HV_RECORD_KEY_MAX, &to->subkey));
  TRY(say_bytes(from->value, HV_RECORD_VALUE_MAX, &to->value));
  to->has_subkey = from->has_subkey != 0;
  to->ttl_ms = from->ttl_ms;
  if (!hv_peer_is_known(&from->signer))
    return HV_OK;
  to->lease_ms = from->lease_ms;
  to->version = from->version;
  TRY(say_exact(from->signer.key, sizeof from->signer.key, &to->signer));
  return say_exact(from->signature, sizeof from->signature, &to->signature);
}

static hv_status hear_record(const Hv__Record *from, hv_record *to) {
  *to = (hv_record){.has_subkey = from->has_subkey != 0, .ttl_ms = from->ttl_ms};
  TRY(hear_bytes(from->key, HV_RECORD_KEY_MAX, &to->key));
  TRY(hear_bytes(from->subkey, HV_RECORD_KEY_MAX, &to->subkey));
  TRY(hear_bytes(from->value, HV_RECORD_VALUE_MAX, &to->value));
  if (!to->has_subkey && to->subkey.size)
    return HV_MALFORMED;
  if (from->signer.len == 0)
    return from->signature.len || from->version || from->lease_ms ? HV_MALFORMED : HV_OK;
  to->lease_ms = from->lease_ms;
  to->version = from->version;
  TRY(hear_exact(from->signer, to->signer.key, sizeof to->signer.key));
  TRY(hear_exact(from->signature, to->signature, sizeof to->signature));
  return hv_peer_is_known(&to->signer) ? HV_OK : HV_MALFORMED;
}

static hv_status say_records(const hv_record *from, size_t n, Hv__Record ***to, size_t *n_to, room *r) {
  if (n > HV_RECORDS_MAX)
    return HV_TOO_LARGE;
  Hv__Record *each = take(r, n * sizeof *each), **list = take(r, n * sizeof *list);
  if (!each || !list)
    return HV_NOMEM;
  hv_status status = HV_OK;
  for (size_t i = 0; status == HV_OK && i < n; i++) {
    list[i] = &each[i];
    status = say_record(&from[i], &each[i]);
  }
  *to = list;
  *n_to = n;
  return status;
}

static hv_status hear_records(Hv__Record *const *from, size_t n, const hv_record **to, size_t *n_to, room *r) {
  hv_record *records = n ? take(r, n * sizeof *records) : NULL;
  if (n && !records)
    return HV_INTERNAL;
  hv_status status = HV_OK;
  for (size_t i = 0; status == HV_OK && i < n; i++)
    status = hear_record(from[i], &records[i]);
  *to = records;
  *n_to = n;
  return status;
}

static hv_status say_find(const hv_msg *msg, void *message, room *r) {
  const hv_msg_find *from = &msg->u.find;
  Hv__Find *to = message;
  (void)r;
  TRY(say_exact(from->target.bytes, sizeof from->target.bytes, &to->target));
  if (memcmp(&from->key, &from->target, sizeof from->key) != 0)
    TRY(say_exact(from->key.bytes, sizeof from->key.bytes, &to->key));
  to->want_records = from->want_records != 0;
  to->n_contacts = from->n_contacts;
  return from->n_contacts > HV_CONTACTS_MAX ? HV_TOO_LARGE : say_bytes(from->me, HV_CONTACT_ADDRS_MAX, &to->me);
}

static hv_status hear_find(const void *message, hv_msg *msg, room *r) {
  const Hv__Find *from = message;
  hv_msg_find *to = &msg->u.find;
  (void)r;
  TRY(hear_exact(from->target, to->target.bytes, sizeof to->target.bytes));
  to->key = to->target;
  if (from->key.len)
    TRY(hear_exact(from->key, to->key.bytes, sizeof to->key.bytes));
  to->want_records = from->want_records != 0;
  to->n_contacts = (uint8_t)from->n_contacts;
  return from->n_contacts > HV_CONTACTS_MAX ? HV_MALFORMED : hear_bytes(from->me, HV_CONTACT_ADDRS_MAX, &to->me);
}

static hv_status say_contacts(const hv_contact *from, size_t n, Hv__Contact ***to, size_t *n_to, room *r) {
  if (n > HV_CONTACTS_MAX)
    return HV_TOO_LARGE;
  Hv__Contact *each = take(r, n * sizeof *each), **list = take(r, n * sizeof *list);
  if (!each || !list)
    return HV_NOMEM;
  hv_status status = HV_OK;
  for (size_t i = 0; status == HV_OK && i < n; i++) {
    list[i] = &each[i];
    hv__contact__init(&each[i]);
    TRY(say_exact(from[i].id.key, sizeof from[i].id.key, &each[i].id));
    status = say_bytes(from[i].addrs, HV_CONTACT_ADDRS_MAX, &each[i].addrs);
  }
  *to = list;
  *n_to = n;
  return status;
}

static hv_status say_found(const hv_msg *msg, void *message, room *r) {
  const hv_msg_found *from = &msg->u.found;
  Hv__Found *to = message;
  TRY(say_records(from->records, from->n_records, &to->records, &to->n_records, r));
  return say_contacts(from->contacts, from->n_contacts, &to->contacts, &to->n_contacts, r);
}

static hv_status hear_found(const void *message, hv_msg *msg, room *r) {
  const Hv__Found *from = message;
  hv_msg_found *to = &msg->u.found;
  hv_contact *contacts = from->n_contacts ? take(r, from->n_contacts * sizeof *contacts) : NULL;
  if (from->n_contacts && !contacts)
    return HV_INTERNAL;
  for (size_t i = 0; i < from->n_contacts; i++) {
    TRY(hear_exact(from->contacts[i]->id, contacts[i].id.key, sizeof contacts[i].id.key));
    TRY(hear_bytes(from->contacts[i]->addrs, HV_CONTACT_ADDRS_MAX, &contacts[i].addrs));
  }
  to->contacts = contacts;
  to->n_contacts = from->n_contacts;
  return hear_records(from->records, from->n_records, &to->records, &to->n_records, r);
}

static hv_status say_store(const hv_msg *msg, void *message, room *r) {
  const hv_msg_store *from = &msg->u.store;
  Hv__Store *to = message;
  TRY(say_records(from->records, from->n_records, &to->records, &to->n_records, r));
  return say_bytes(from->me, HV_CONTACT_ADDRS_MAX, &to->me);
}

static hv_status hear_store(const void *message, hv_msg *msg, room *r) {
  const Hv__Store *from = message;
  hv_msg_store *to = &msg->u.store;
  TRY(hear_bytes(from->me, HV_CONTACT_ADDRS_MAX, &to->me));
  return hear_records(from->records, from->n_records, &to->records, &to->n_records, r);
}

static hv_status say_stored(const hv_msg *msg, void *message, room *r) {
  const hv_msg_stored *from = &msg->u.stored;
  Hv__Stored *to = message;
  if (from->n_verdicts > HV_RECORDS_MAX)
    return HV_TOO_LARGE;
  to->verdicts = take(r, from->n_verdicts * sizeof *to->verdicts);
  if (!to->verdicts)
    return HV_NOMEM;
  for (; to->n_verdicts < from->n_verdicts; to->n_verdicts++) {
    to->verdicts[to->n_verdicts] = HV__STATUS__OK;
    if (from->verdicts[to->n_verdicts] != HV_OK)
      TRY(say_status(from->verdicts[to->n_verdicts], &to->verdicts[to->n_verdicts]));
  }
  return say_records(from->newer, from->n_newer, &to->newer, &to->n_newer, r);
}

static hv_status hear_stored(const void *message, hv_msg *msg, room *r) {
  const Hv__Stored *from = message;
  hv_msg_stored *to = &msg->u.stored;
  hv_status *verdicts = from->n_verdicts ? take(r, from->n_verdicts * sizeof *verdicts) : NULL;
  if (from->n_verdicts && !verdicts)
    return HV_INTERNAL;
  for (size_t i = 0; i < from->n_verdicts; i++) {
    verdicts[i] = HV_OK;
    if (from->verdicts[i] != HV__STATUS__OK)
      TRY(hear_status(from->verdicts[i], &verdicts[i]));
  }
  to->verdicts = verdicts;
  to->n_verdicts = from->n_verdicts;
  return hear_records(from->newer, from->n_newer, &to->newer, &to->n_newer, r);
}

/* A kind of message: its type, its number in Envelope, and its two functions (NULL where there is nothing in it). A new kind is a
 * row here, its message in the .proto, its pair above, and a row in `bounds` for each repeated field. */
typedef struct kind {
  const ProtobufCMessageDescriptor *type;
  uint32_t number;
  hv_status (*say)(const hv_msg *msg, void *message, room *r);
  hv_status (*hear)(const void *message, hv_msg *msg, room *r);
} kind;

static const kind kinds[HV_MSG_KINDS] = {
    [HV_MSG_REFUSAL] = {&hv__refusal__descriptor, HV__ENVELOPE__KIND_REFUSAL, say_refusal, hear_refusal},
    [HV_MSG_HELLO] = {&hv__hello__descriptor, HV__ENVELOPE__KIND_HELLO, say_hello, hear_hello},
    [HV_MSG_ECHO] = {&hv__echo__descriptor, HV__ENVELOPE__KIND_ECHO, say_echo, hear_echo},
    [HV_MSG_LEAVE] = {&hv__leave__descriptor, HV__ENVELOPE__KIND_LEAVE, NULL, NULL},
    [HV_MSG_PARCEL] = {&hv__parcel__descriptor, HV__ENVELOPE__KIND_PARCEL, say_parcel, hear_parcel},
    [HV_MSG_FIND] = {&hv__find__descriptor, HV__ENVELOPE__KIND_FIND, say_find, hear_find},
    [HV_MSG_FOUND] = {&hv__found__descriptor, HV__ENVELOPE__KIND_FOUND, say_found, hear_found},
    [HV_MSG_STORE] = {&hv__store__descriptor, HV__ENVELOPE__KIND_STORE, say_store, hear_store},
    [HV_MSG_STORED] = {&hv__stored__descriptor, HV__ENVELOPE__KIND_STORED, say_stored, hear_stored},
};

/* How often a repeated field may stand (one that is not here: never), and what each of its elements becomes in memory. */
static const struct bound {
  const ProtobufCMessageDescriptor *type;
  uint32_t number;
  uint32_t most;
  size_t size; /* taken from the room by its hear function, for each; 0: none */
} bounds[] = {
    {&hv__card__descriptor, 3 /* addrs */, HV_CARD_ADDRS_MAX, 0},
    {&hv__hello__descriptor, 4 /* cards */, HV_CARDS_MAX, sizeof(hv_card)},
    {&hv__found__descriptor, 1 /* records */, HV_RECORDS_MAX, sizeof(hv_record)},
    {&hv__found__descriptor, 2 /* contacts */, HV_CONTACTS_MAX, sizeof(hv_contact)},
    {&hv__store__descriptor, 1 /* records */, HV_RECORDS_MAX, sizeof(hv_record)},
    {&hv__stored__descriptor, 1 /* verdicts */, HV_RECORDS_MAX, sizeof(hv_status)},
    {&hv__stored__descriptor, 2 /* newer */, HV_RECORDS_MAX, sizeof(hv_record)},
};

/* ---- writing ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5, VERSION_FIELD = 1 };

static size_t put_varint(uint64_t value, uint8_t *to) {
  size_t n = 0;
  for (; value > 0x7f; value >>= 7)
    to[n++] = (uint8_t)(value | 0x80);
  to[n++] = (uint8_t)value;
  return n;
}

/* What stands before the kind's own message: the version, the kind's number, the message's size. */
static size_t put_envelope(const kind *k, size_t size, uint8_t to[32]) {
  size_t n = put_varint(VERSION_FIELD << 3 | WIRE_VARINT, to);
  n += put_varint(HV_PROTOCOL_VERSION, to + n);
  n += put_varint(k->number << 3 | WIRE_BYTES, to + n);
  return n + put_varint(size, to + n);
}

/* Appends `lead` bytes (the size of what follows) and the message. */
static hv_status write_message(const kind *k, const ProtobufCMessage *message, size_t lead, size_t most, hv_buf *out) {
  uint8_t envelope[32], *to;
  size_t size = protobuf_c_message_get_packed_size(message), n = put_envelope(k, size, envelope), whole = n + size;
  if (whole > most)
    return HV_TOO_LARGE;
  TRY(hv_buf_reserve(out, lead + whole, &to));
  for (size_t i = 0; i < lead; i++)
    *to++ = (uint8_t)(whole >> 8 * i);
  memcpy(to, envelope, n);
  protobuf_c_message_pack(message, to + n);
  out->size += lead + whole;
  return HV_OK;
}

static hv_status say(const hv_msg *msg, size_t lead, size_t most, hv_buf *out) {
  _Alignas(ALIGN) uint8_t first[1024];
  room r = {.at = first, .left = sizeof first, .mem = out->mem};
  if ((unsigned)msg->kind >= HV_MSG_KINDS || !kinds[msg->kind].type)
    return HV_INVALID;
  const kind *k = &kinds[msg->kind];
  ProtobufCMessage *message = take(&r, k->type->sizeof_message);
  if (!message)
    return HV_NOMEM;
  k->type->message_init(message);
  hv_status status = k->say ? k->say(msg, message, &r) : HV_OK;
  if (status == HV_OK)
    status = write_message(k, message, lead, most, out);
  room_fini(&r);
  return status;
}

hv_status hv_wire_write(const hv_msg *msg, hv_buf *out) {
  return say(msg, 0, HV_MSG_BYTES_MAX, out);
}

hv_status hv_wire_write_bulk(const hv_msg *header, hv_buf *out) {
  return say(header, BULK_LEAD, HV_BULK_HEADER_MAX, out);
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

static hv_status scan_message(const ProtobufCMessageDescriptor *type, hv_span in, size_t *need);

/* A known field: how many elements it adds, and what they cost beside their place in an array. */
static hv_status scan_known(const ProtobufCFieldDescriptor *type, const field *f, size_t *count, size_t *need) {
  unsigned wire = wire_of(type);
  *count = 1;
  if (f->wire != wire) {
    if (type->label != PROTOBUF_C_LABEL_REPEATED || wire == WIRE_BYTES || f->wire != WIRE_BYTES)
      return HV_MALFORMED;
    *count = count_packed(wire, f->bytes);
  }
  if (type->type == PROTOBUF_C_TYPE_MESSAGE)
    return scan_message(type->descriptor, f->bytes, need);
  if (f->bytes.size > HV_MSG_BLOB_MAX)
    return HV_MALFORMED;
  *need += wire == WIRE_BYTES ? footprint(f->bytes.size + 1) : 0;
  return HV_OK;
}

/* Checks how often a field stood and adds what all its elements together cost. */
static hv_status bound_field(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f, size_t count,
                             size_t *need) {
  if (f->label != PROTOBUF_C_LABEL_REPEATED)
    return count > 1 ? HV_MALFORMED : HV_OK;
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
    if (bounds[i].type == type && bounds[i].number == f->id && count <= bounds[i].most) {
      *need += footprint(count * ELEMENT_SIZE) + footprint(count * bounds[i].size);
      return HV_OK;
    }
  return HV_MALFORMED;
}

/* Adds to *need what unpacking this message takes from a room, at most. Goes no deeper than the .proto does. */
static hv_status scan_message(const ProtobufCMessageDescriptor *type, hv_span in, size_t *need) {
  size_t counts[FIELDS_MAX] = {0}, fields = 0, unknown = 0;
  if (type->n_fields > FIELDS_MAX)
    return HV_INTERNAL;
  while (in.size) {
    field f;
    size_t count, before = in.size;
    if (!read_field(&in, &f))
      return HV_MALFORMED;
    fields++;
    const ProtobufCFieldDescriptor *known = protobuf_c_message_descriptor_get_field(type, f.number);
    if (known) {
      TRY(scan_known(known, &f, &count, need));
      counts[known - type->fields] += count;
    } else {
      *need += footprint(before - in.size);
      if (++unknown > UNKNOWN_MAX)
        return HV_MALFORMED;
    }
  }
  for (unsigned i = 0; i < type->n_fields; i++)
    if (counts[i])
      TRY(bound_field(type, &type->fields[i], counts[i], need));
  *need += footprint(type->sizeof_message) + footprint(unknown * sizeof(ProtobufCMessageUnknownField));
  *need += fields > 16 ? 2 * fields * SCANNED_SIZE + SLABS_SIZE : 0;
  return HV_OK;
}

/* ---- reading ---- */

static const kind *find_kind(uint32_t number) {
  for (size_t i = 0; i < HV_MSG_KINDS; i++)
    if (kinds[i].type && kinds[i].number == number)
      return &kinds[i];
  return NULL;
}

static hv_status read_version(hv_span *in, uint32_t *version) {
  field f;
  if (!read_field(in, &f) || f.number != VERSION_FIELD || f.wire != WIRE_VARINT || f.value > UINT32_MAX)
    return HV_MALFORMED;
  *version = (uint32_t)f.value;
  return *version == HV_PROTOCOL_VERSION ? HV_OK : HV_VERSION;
}

/* Finds the one kind that stands behind the version. */
static hv_status read_kind(hv_span in, const kind **out, hv_span *body) {
  unsigned unknown = 0;
  *out = NULL;
  while (in.size) {
    field f;
    if (!read_field(&in, &f))
      return HV_MALFORMED;
    const kind *k = find_kind(f.number);
    if (k && !*out && f.wire == WIRE_BYTES) {
      *out = k;
      *body = f.bytes;
    } else if (k || f.number == VERSION_FIELD || ++unknown > UNKNOWN_MAX) {
      return HV_MALFORMED;
    }
  }
  return *out ? HV_OK : unknown ? HV_UNSUPPORTED : HV_MALFORMED;
}

static hv_status hear(const kind *k, hv_span body, size_t room_size, hv_wire_msg *out) {
  room r = {.at = out->block, .left = room_size};
  ProtobufCAllocator unpacker = {unpacker_take, unpacker_free, &r};
  ASAN_POISON_MEMORY_REGION(r.at, r.left);
  const ProtobufCMessage *message = protobuf_c_message_unpack(k->type, &unpacker, body.size, body.data);
  if (!message)
    return r.short_of ? HV_INTERNAL : HV_MALFORMED; /* the scan promised that it fits */
  out->msg.kind = (hv_msg_kind)(k - kinds);
  return k->hear ? k->hear(message, &out->msg, &r) : HV_OK;
}

hv_status hv_wire_read(hv_span bytes, hv_mem *mem, size_t budget, hv_wire_msg *out) {
  const kind *k;
  hv_span in = bytes, body;
  size_t need = 0;
  *out = (hv_wire_msg){0};
  TRY(read_version(&in, &out->version));
  if (bytes.size > HV_MSG_BYTES_MAX)
    return HV_MALFORMED;
  TRY(read_kind(in, &k, &body));
  TRY(scan_message(k->type, body, &need));
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

void hv_wire_release(hv_wire_msg *msg) {
  hv_mem_free(msg->block);
  msg->block = NULL;
  msg->msg = (hv_msg){0};
}
