/* Messages as bytes: what goes in comes out, and what should not come in does not. */
#include "lib/check.h"

#include "net/wire.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 400, RECORDS = 40 };

/* ---- messages of random contents ---- */

typedef struct sample {
  hv_msg msg;
  hv_card cards[HV_CARDS_MAX];
  hv_record records[RECORDS], newer[RECORDS];
  hv_contact contacts[HV_CONTACTS_MAX];
  hv_status verdicts[RECORDS];
  uint8_t bytes[4096];
} sample;

static size_t below(check_rng *rng, size_t n) {
  return (size_t)(check_random(rng) % n);
}

static hv_span random_span(check_rng *rng, sample *s, size_t most) {
  for (size_t i = 0; i < most; i++)
    s->bytes[i] = (uint8_t)check_random(rng);
  return hv_span_of(s->bytes, below(rng, most + 1));
}

static hv_addr random_addr(check_rng *rng) {
  hv_addr addr = {.kind = (uint8_t)(HV_ADDR_IP4 + below(rng, 5)), .port = (uint16_t)check_random(rng)};
  size_t n = addr.kind == HV_ADDR_IP4 ? 4 : 16;
  if (addr.kind == HV_ADDR_IP4 || addr.kind == HV_ADDR_IP6)
    for (size_t i = 0; i < n; i++)
      addr.host.ip[i] = (uint8_t)check_random(rng);
  else
    snprintf(addr.host.name, sizeof addr.host.name, "peer-%zu.example.org", below(rng, 1000));
  return addr;
}

static hv_card random_card(check_rng *rng) {
  hv_card card = {.client_mode = (uint8_t)below(rng, 2), .n_addrs = (uint8_t)below(rng, HV_CARD_ADDRS_MAX + 1)};
  for (size_t i = 0; i < sizeof card.id.key; i++)
    card.id.key[i] = (uint8_t)check_random(rng);
  for (size_t i = 0; i < card.n_addrs; i++)
    card.addrs[i] = random_addr(rng);
  return card;
}

static void random_bytes(check_rng *rng, void *out, size_t size) {
  for (size_t i = 0; i < size; i++)
    ((uint8_t *)out)[i] = (uint8_t)check_random(rng);
}

static size_t random_records(check_rng *rng, sample *s, hv_record *out) {
  size_t n = below(rng, RECORDS + 1);
  for (size_t i = 0; i < n; i++) {
    out[i] = (hv_record){.key = random_span(rng, s, 60), .value = random_span(rng, s, 300), .has_subkey = (uint8_t)below(rng, 2)};
    if (out[i].has_subkey)
      out[i].subkey = random_span(rng, s, 60);
    out[i].ttl_ms = (uint32_t)check_random(rng);
    if (below(rng, 2)) {
      out[i].version = check_random(rng);
      out[i].lease_ms = (uint32_t)check_random(rng);
      random_bytes(rng, &out[i].signer, sizeof out[i].signer);
      random_bytes(rng, out[i].signature, sizeof out[i].signature);
    }
  }
  return n;
}

static void random_dht_msg(check_rng *rng, hv_msg_kind kind, sample *s) {
  if (kind == HV_MSG_FIND) {
    hv_msg_find *find = &s->msg.u.find;
    random_bytes(rng, &find->target, sizeof find->target);
    find->key = find->target;
    find->key.bytes[31] ^= (uint8_t)below(rng, 2);
    find->want_records = (uint8_t)below(rng, 2);
    find->n_contacts = (uint8_t)below(rng, HV_CONTACTS_MAX + 1);
    find->me = random_span(rng, s, HV_CONTACT_ADDRS_MAX);
  } else if (kind == HV_MSG_FOUND) {
    s->msg.u.found = (hv_msg_found){s->records, random_records(rng, s, s->records), s->contacts, below(rng, HV_CONTACTS_MAX + 1)};
    for (size_t i = 0; i < s->msg.u.found.n_contacts; i++) {
      random_bytes(rng, &s->contacts[i].id, sizeof s->contacts[i].id);
      s->contacts[i].addrs = random_span(rng, s, HV_CONTACT_ADDRS_MAX);
    }
  } else if (kind == HV_MSG_STORE) {
    s->msg.u.store = (hv_msg_store){s->records, random_records(rng, s, s->records), random_span(rng, s, HV_CONTACT_ADDRS_MAX)};
  } else {
    s->msg.u.stored = (hv_msg_stored){s->verdicts, below(rng, RECORDS + 1), s->newer, random_records(rng, s, s->newer)};
    for (size_t i = 0; i < s->msg.u.stored.n_verdicts; i++)
      s->verdicts[i] = (hv_status)below(rng, HV_STATUS_COUNT);
  }
}

static void random_msg(check_rng *rng, hv_msg_kind kind, sample *s) {
  memset(&s->msg, 0, sizeof s->msg);
  s->msg.kind = kind;
  switch (kind) {
  case HV_MSG_REFUSAL:
    s->msg.u.refusal = (hv_msg_refusal){(hv_status)(1 + below(rng, HV_STATUS_COUNT - 1)), random_span(rng, s, HV_MSG_TEXT_MAX)};
    break;
  case HV_MSG_HELLO:
    s->msg.u.hello = (hv_msg_hello){.me = random_card(rng), .agent = random_span(rng, s, HV_MSG_TEXT_MAX), .cards = s->cards};
    s->msg.u.hello.n_cards = below(rng, HV_CARDS_MAX + 1);
    if (below(rng, 2))
      s->msg.u.hello.you = random_addr(rng);
    for (size_t i = 0; i < s->msg.u.hello.n_cards; i++)
      s->cards[i] = random_card(rng);
    break;
  case HV_MSG_ECHO:
    s->msg.u.echo.bytes = random_span(rng, s, sizeof s->bytes);
    break;
  case HV_MSG_PARCEL:
    s->msg.u.parcel = (hv_msg_parcel){check_random(rng), check_random(rng) >> below(rng, 64), (uint8_t)below(rng, 2)};
    break;
  case HV_MSG_FIND:
  case HV_MSG_FOUND:
  case HV_MSG_STORE:
  case HV_MSG_STORED:
    random_dht_msg(rng, kind, s);
    break;
  default:
    break;
  }
}

static void assert_same_span(hv_span a, hv_span b) {
  assert_int_equal(a.size, b.size);
  assert_true(hv_span_equal(a, b));
}

static void assert_same_card(const hv_card *a, const hv_card *b) {
  assert_memory_equal(a->id.key, b->id.key, sizeof a->id.key);
  assert_int_equal(a->client_mode, b->client_mode);
  assert_int_equal(a->n_addrs, b->n_addrs);
  for (size_t i = 0; i < a->n_addrs; i++)
    assert_true(hv_addr_equal(&a->addrs[i], &b->addrs[i]));
}

static void assert_same_hello(const hv_msg_hello *a, const hv_msg_hello *b) {
  assert_same_card(&a->me, &b->me);
  assert_same_span(a->agent, b->agent);
  assert_int_equal(a->you.kind, b->you.kind);
  if (a->you.kind)
    assert_true(hv_addr_equal(&a->you, &b->you));
  assert_int_equal(a->n_cards, b->n_cards);
  for (size_t i = 0; i < a->n_cards; i++)
    assert_same_card(&a->cards[i], &b->cards[i]);
}

static void assert_same_records(const hv_record *a, size_t n_a, const hv_record *b, size_t n_b) {
  assert_int_equal(n_a, n_b);
  for (size_t i = 0; i < n_a; i++) {
    assert_same_span(a[i].key, b[i].key);
    assert_same_span(a[i].subkey, b[i].subkey);
    assert_same_span(a[i].value, b[i].value);
    assert_int_equal(a[i].has_subkey, b[i].has_subkey);
    assert_int_equal(a[i].ttl_ms, b[i].ttl_ms);
    assert_int_equal(a[i].lease_ms, b[i].lease_ms);
    assert_int_equal(a[i].version, b[i].version);
    assert_memory_equal(&a[i].signer, &b[i].signer, sizeof a[i].signer);
    assert_memory_equal(a[i].signature, b[i].signature, sizeof a[i].signature);
  }
}

static void assert_same_find(const hv_msg_find *a, const hv_msg_find *b) {
  assert_memory_equal(&a->target, &b->target, sizeof a->target);
  assert_memory_equal(&a->key, &b->key, sizeof a->key);
  assert_int_equal(a->want_records, b->want_records);
  assert_int_equal(a->n_contacts, b->n_contacts);
  assert_same_span(a->me, b->me);
}

static void assert_same_found(const hv_msg_found *a, const hv_msg_found *b) {
  assert_same_records(a->records, a->n_records, b->records, b->n_records);
  assert_int_equal(a->n_contacts, b->n_contacts);
  for (size_t i = 0; i < a->n_contacts; i++) {
    assert_true(hv_peer_equal(&a->contacts[i].id, &b->contacts[i].id));
    assert_same_span(a->contacts[i].addrs, b->contacts[i].addrs);
  }
}

static void assert_same_stored(const hv_msg_stored *a, const hv_msg_stored *b) {
  assert_int_equal(a->n_verdicts, b->n_verdicts);
  for (size_t i = 0; i < a->n_verdicts; i++)
    assert_int_equal(a->verdicts[i], b->verdicts[i]);
  assert_same_records(a->newer, a->n_newer, b->newer, b->n_newer);
}

static void assert_same_msg(const hv_msg *a, const hv_msg *b) {
  assert_int_equal(a->kind, b->kind);
  switch (a->kind) {
  case HV_MSG_REFUSAL:
    assert_int_equal(a->u.refusal.status, b->u.refusal.status);
    assert_same_span(a->u.refusal.text, b->u.refusal.text);
    break;
  case HV_MSG_HELLO:
    assert_same_hello(&a->u.hello, &b->u.hello);
    break;
  case HV_MSG_ECHO:
    assert_same_span(a->u.echo.bytes, b->u.echo.bytes);
    break;
  case HV_MSG_LEAVE:
    break;
  case HV_MSG_PARCEL:
    assert_int_equal(a->u.parcel.size, b->u.parcel.size);
    assert_int_equal(a->u.parcel.offset, b->u.parcel.offset);
    assert_int_equal(a->u.parcel.receipt, b->u.parcel.receipt);
    break;
  case HV_MSG_FIND:
    assert_same_find(&a->u.find, &b->u.find);
    break;
  case HV_MSG_FOUND:
    assert_same_found(&a->u.found, &b->u.found);
    break;
  case HV_MSG_STORE:
    assert_same_records(a->u.store.records, a->u.store.n_records, b->u.store.records, b->u.store.n_records);
    assert_same_span(a->u.store.me, b->u.store.me);
    break;
  case HV_MSG_STORED:
    assert_same_stored(&a->u.stored, &b->u.stored);
    break;
  default:
    fail_msg("kind %d has no comparison here: add it", (int)a->kind);
  }
}

/* ---- bytes by hand ---- */

typedef struct raw {
  uint8_t *data;
  size_t size, room;
} raw;

static void put(raw *r, const void *data, size_t size) {
  assert_true(r->size + size <= r->room);
  if (size)
    memcpy(r->data + r->size, data, size);
  r->size += size;
}

static void put_varint(raw *r, uint64_t value) {
  do {
    uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    put(r, &byte, 1);
  } while (value >>= 7);
}

static void put_field(raw *r, uint32_t number, hv_span bytes) {
  put_varint(r, (uint64_t)number << 3 | 2);
  put_varint(r, bytes.size);
  put(r, bytes.data, bytes.size);
}

static void put_number(raw *r, uint32_t number, uint64_t value) {
  put_varint(r, (uint64_t)number << 3);
  put_varint(r, value);
}

/* The numbers of the .proto, on purpose written down once more. */
enum { VERSION = 1, REFUSAL = 2, HELLO = 3, ECHO = 4, LEAVE = 5, PARCEL = 6 };

#define RAW(name, bytes)                                                                                                           \
  uint8_t name##_data[bytes];                                                                                                      \
  raw name = {name##_data, 0, sizeof name##_data}

static hv_span span(const raw *r) {
  return hv_span_of(r->data, r->size);
}

/* Reads bytes that stand in a block of exactly their size, so that a sanitizer sees a step beyond. */
static hv_status read_exact(hv_span bytes, size_t budget, hv_wire_msg *out, hv_mem *mem) {
  hv_mem outside;
  hv_mem_init(&outside, NULL, HV_MEM_UNLIMITED);
  uint8_t *copy = hv_mem_alloc(&outside, bytes.size);
  if (bytes.size)
    memcpy(copy, bytes.data, bytes.size);
  hv_status status = hv_wire_read(hv_span_of(copy, bytes.size), mem, budget, out);
  if (status == HV_OK)
    hv_wire_release(out);
  hv_mem_free(copy);
  assert_int_equal(mem->blocks, 0);
  return status;
}

static hv_status read_raw(hv_span bytes) {
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  return read_exact(bytes, HV_WIRE_BUDGET, &got, &mem);
}

/* A message of this kind with these fields inside. */
static hv_status read_kind(uint32_t kind, const raw *body) {
  static uint8_t data[HV_MSG_BYTES_MAX + 64];
  raw r = {data, 0, sizeof data};
  put_number(&r, VERSION, HV_PROTOCOL_VERSION);
  put_field(&r, kind, span(body));
  return read_raw(span(&r));
}

static hv_status write_one(const hv_msg *msg, hv_buf *out, hv_mem *mem) {
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(out, mem, SIZE_MAX);
  return hv_wire_write(msg, out);
}

static hv_status try_write(const hv_msg *msg) {
  hv_mem mem;
  hv_buf out;
  hv_status status = write_one(msg, &out, &mem);
  assert_true((status == HV_OK) == (out.size > 0));
  hv_buf_fini(&out);
  assert_int_equal(mem.blocks, 0);
  return status;
}

/* ---- tests ---- */

static void every_kind_comes_back_as_it_was(void **state) {
  (void)state;
  static sample s;
  check_rng rng = {1};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++)
    for (int round = 0; round < ROUNDS; round++) {
      hv_mem mem;
      hv_buf out;
      hv_wire_msg got;
      random_msg(&rng, kind, &s);
      assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
      assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &mem, HV_WIRE_BUDGET, &got), HV_OK);
      assert_int_equal(got.version, HV_PROTOCOL_VERSION);
      assert_same_msg(&s.msg, &got.msg);
      hv_wire_release(&got);
      hv_wire_release(&got); /* twice is fine */
      hv_buf_fini(&out);
      assert_int_equal(mem.blocks, 0);
    }
}

static void a_message_is_appended(void **state) {
  (void)state;
  hv_mem mem;
  hv_buf out;
  hv_msg leave = {.kind = HV_MSG_LEAVE};
  assert_int_equal(write_one(&leave, &out, &mem), HV_OK);
  assert_int_equal(hv_wire_write(&leave, &out), HV_OK);
  assert_memory_equal(out.data, "\x08\x01\x2a\x00\x08\x01\x2a\x00", 8);
  assert_int_equal(out.size, 8);
  hv_buf_fini(&out);
}

static void a_buf_that_is_full_stays_as_it_was(void **state) {
  (void)state;
  hv_mem mem;
  hv_buf out;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&out, &mem, 20);
  hv_msg echo = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of("0123456789", 10)};
  assert_int_equal(hv_wire_write(&echo, &out), HV_OK);
  size_t size = out.size;
  assert_int_equal(hv_wire_write(&echo, &out), HV_TOO_LARGE);
  assert_int_equal(out.size, size);
  hv_buf_fini(&out);
}

static void what_is_over_a_limit_is_not_written(void **state) {
  (void)state;
  static uint8_t blob[HV_MSG_BLOB_MAX + 1];
  static hv_card cards[HV_CARDS_MAX + 1];
  hv_msg echo = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(blob, HV_MSG_BLOB_MAX)};
  assert_int_equal(try_write(&echo), HV_OK);
  echo.u.echo.bytes.size++;
  assert_int_equal(try_write(&echo), HV_TOO_LARGE);

  hv_msg refusal = {.kind = HV_MSG_REFUSAL, .u.refusal = {HV_BUSY, hv_span_of(blob, HV_MSG_TEXT_MAX)}};
  assert_int_equal(try_write(&refusal), HV_OK);
  refusal.u.refusal.text.size++;
  assert_int_equal(try_write(&refusal), HV_TOO_LARGE);

  hv_msg hello = {.kind = HV_MSG_HELLO,
                  .u.hello = {.agent = hv_span_of(blob, HV_MSG_TEXT_MAX), .cards = cards, .n_cards = HV_CARDS_MAX}};
  assert_int_equal(try_write(&hello), HV_OK);
  hello.u.hello.n_cards++;
  assert_int_equal(try_write(&hello), HV_TOO_LARGE);
  hello.u.hello.n_cards = 0;
  hello.u.hello.agent.size++;
  assert_int_equal(try_write(&hello), HV_TOO_LARGE);
  hello.u.hello.agent.size = 0;
  hello.u.hello.me.n_addrs = HV_CARD_ADDRS_MAX + 1;
  assert_int_equal(try_write(&hello), HV_TOO_LARGE);
}

static void what_cannot_be_said_is_invalid(void **state) {
  (void)state;
  hv_msg msg = {.kind = HV_MSG_NONE};
  assert_int_equal(try_write(&msg), HV_INVALID);
  msg.kind = HV_MSG_KINDS;
  assert_int_equal(try_write(&msg), HV_INVALID);
  msg.kind = HV_MSG_REFUSAL; /* a refusal that says ok */
  assert_int_equal(try_write(&msg), HV_INVALID);
  msg.u.refusal.status = HV_STATUS_COUNT;
  assert_int_equal(try_write(&msg), HV_INVALID);
  hv_msg hello = {.kind = HV_MSG_HELLO, .u.hello.me.n_addrs = 1}; /* an address of no kind */
  assert_int_equal(try_write(&hello), HV_INVALID);
}

static void what_is_over_a_limit_is_not_read(void **state) {
  (void)state;
  static uint8_t blob[HV_MSG_BYTES_MAX];
  static uint8_t data[HV_MSG_BYTES_MAX];
  raw body = {data, 0, sizeof data};
  put_field(&body, 1, hv_span_of(blob, HV_MSG_BLOB_MAX));
  assert_int_equal(read_kind(ECHO, &body), HV_OK);
  body.size = 0;
  put_field(&body, 1, hv_span_of(blob, HV_MSG_BLOB_MAX + 1));
  assert_int_equal(read_kind(ECHO, &body), HV_MALFORMED);
  body.size = 0; /* the whole is over its limit, by a field nobody knows */
  put_field(&body, 100, hv_span_of(blob, HV_MSG_BYTES_MAX - 10));
  assert_int_equal(read_kind(ECHO, &body), HV_MALFORMED);
  body.size = 0;
  put_number(&body, 1, 1);
  put_field(&body, 2, hv_span_of(blob, HV_MSG_TEXT_MAX));
  assert_int_equal(read_kind(REFUSAL, &body), HV_OK);
  body.size = 0;
  put_number(&body, 1, 1);
  put_field(&body, 2, hv_span_of(blob, HV_MSG_TEXT_MAX + 1));
  assert_int_equal(read_kind(REFUSAL, &body), HV_MALFORMED);
}

static const uint8_t ADDR[] = {4, 10, 0, 0, 1, 6, 0x1f, 0x90}; /* /ip4/10.0.0.1/tcp/8080 */

static void put_card(raw *to, uint32_t number, size_t key_size, size_t n_addrs) {
  static const uint8_t key[64];
  RAW(card, 1024);
  put_field(&card, 1, hv_span_of(key, key_size));
  for (size_t i = 0; i < n_addrs; i++)
    put_field(&card, 3, hv_span_of(ADDR, sizeof ADDR));
  put_field(to, number, span(&card));
}

static hv_status read_hello(size_t key_size, size_t n_addrs, size_t n_cards) {
  RAW(body, 32768);
  put_card(&body, 1, key_size, n_addrs);
  for (size_t i = 0; i < n_cards; i++)
    put_card(&body, 4, 32, 1);
  return read_kind(HELLO, &body);
}

static void lists_and_keys_are_as_long_as_they_may_be(void **state) {
  (void)state;
  RAW(nobody, 4);
  assert_int_equal(read_hello(32, HV_CARD_ADDRS_MAX, HV_CARDS_MAX), HV_OK);
  assert_int_equal(read_hello(32, HV_CARD_ADDRS_MAX + 1, 0), HV_MALFORMED);
  assert_int_equal(read_hello(32, 0, HV_CARDS_MAX + 1), HV_MALFORMED);
  assert_int_equal(read_hello(31, 0, 0), HV_MALFORMED);
  assert_int_equal(read_hello(33, 0, 0), HV_MALFORMED);
  assert_int_equal(read_hello(0, 0, 0), HV_MALFORMED);
  assert_int_equal(read_kind(HELLO, &nobody), HV_MALFORMED); /* a hello from nobody */
}

static void an_address_of_an_unknown_kind_is_left_out(void **state) {
  (void)state;
  static const uint8_t quic[] = {4, 10, 0, 0, 1, 0x91, 2, 0x1f, 0x90, 0xcd, 3}, later[] = {0xff, 0x7f, 1, 2, 3};
  static const uint8_t key[32] = {1};
  RAW(card, 256);
  RAW(hello, 512);
  RAW(whole, 512);
  put_field(&card, 1, hv_span_of(key, 32));
  put_field(&card, 3, hv_span_of(quic, sizeof quic));
  put_field(&card, 3, hv_span_of(ADDR, sizeof ADDR));
  put_field(&card, 3, hv_span_of(later, sizeof later));
  put_field(&hello, 1, span(&card));
  put_field(&hello, 3, hv_span_of(later, sizeof later));
  put_number(&whole, VERSION, HV_PROTOCOL_VERSION);
  put_field(&whole, HELLO, span(&hello));
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(got.msg.u.hello.me.n_addrs, 1);
  assert_int_equal(got.msg.u.hello.me.addrs[0].port, 8080);
  assert_int_equal(got.msg.u.hello.you.kind, HV_ADDR_NONE);
  hv_wire_release(&got);
}

static void a_message_cut_short_is_never_taken_for_whole(void **state) {
  (void)state;
  static sample s;
  check_rng rng = {2};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    hv_mem mem;
    hv_buf out;
    do
      random_msg(&rng, kind, &s);
    while (kind == HV_MSG_HELLO && s.msg.u.hello.n_cards > 3);
    assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
    for (size_t n = 0; n < out.size; n++)
      assert_int_equal(read_raw(hv_span_of(out.data, n)), HV_MALFORMED);
    hv_buf_fini(&out);
  }
}

static void unknown_fields_are_dropped(void **state) {
  (void)state;
  RAW(body, 256);
  RAW(whole, 512);
  put_number(&body, 9, 300);
  put_field(&body, 1, hv_span_of("kept", 4));
  put_field(&body, 1000, hv_span_of("dropped", 7));
  put(&body,
      "\x55"
      "4444",
      5); /* 32 bits, field 10 */
  put(&body,
      "\x59"
      "88888888",
      9); /* 64 bits, field 11 */
  put_number(&whole, VERSION, HV_PROTOCOL_VERSION);
  put_field(&whole, 99, hv_span_of("later", 5));
  put_field(&whole, ECHO, span(&body));
  put_number(&whole, 98, 7);
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(got.msg.kind, HV_MSG_ECHO);
  assert_same_span(got.msg.u.echo.bytes, hv_span_of("kept", 4));
  hv_wire_release(&got);

  RAW(many, 256);
  for (int i = 0; i < 33; i++)
    put_number(&many, 50, 1);
  assert_int_equal(read_kind(ECHO, &many), HV_MALFORMED);
}

static void a_kind_yet_to_come_is_unsupported(void **state) {
  (void)state;
  RAW(body, 16);
  put_number(&body, 1, 1);
  assert_int_equal(read_kind(200, &body), HV_UNSUPPORTED);
  assert_int_equal(read_raw(hv_span_of("\x08\x01", 2)), HV_MALFORMED); /* of no kind at all */
}

static void another_version_is_told_apart(void **state) {
  (void)state;
  static const struct {
    uint64_t version;
    const char *rest;
    hv_status status;
  } cases[] = {
      {0, "", HV_VERSION},
      {2, "", HV_VERSION},
      {2, "anything at all \xff\xff\xff", HV_VERSION},
      {UINT32_MAX, "\x22\x00", HV_VERSION},
      {(uint64_t)UINT32_MAX + 1, "\x22", HV_MALFORMED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    RAW(whole, 64);
    put_number(&whole, VERSION, cases[i].version);
    put(&whole, cases[i].rest, strlen(cases[i].rest));
    hv_mem mem;
    hv_wire_msg got;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    assert_int_equal(hv_wire_read(span(&whole), &mem, HV_WIRE_BUDGET, &got), cases[i].status);
    if (cases[i].status == HV_VERSION)
      assert_int_equal(got.version, cases[i].version);
    assert_int_equal(mem.peak, 0); /* nothing was taken */
  }
}

static void the_version_comes_first_and_is_what_another_version_reads(void **state) {
  (void)state;
  static sample s;
  check_rng rng = {3};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    hv_mem mem;
    hv_buf out;
    hv_wire_msg got;
    random_msg(&rng, kind, &s);
    assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
    assert_memory_equal(out.data, "\x08\x01", 2); /* field 1, a number, is 1 */
    out.data[1] = 9;                              /* the same from a peer of version 9 */
    assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &mem, HV_WIRE_BUDGET, &got), HV_VERSION);
    assert_int_equal(got.version, 9);
    hv_buf_fini(&out);
  }
  RAW(late, 16);
  put_field(&late, LEAVE, hv_span_of("", 0));
  put_number(&late, VERSION, HV_PROTOCOL_VERSION);
  assert_int_equal(read_raw(span(&late)), HV_MALFORMED);
}

static void nothing_stands_twice(void **state) {
  (void)state;
  RAW(body, 64);
  put_field(&body, 1, hv_span_of("a", 1));
  put_field(&body, 1, hv_span_of("b", 1));
  assert_int_equal(read_kind(ECHO, &body), HV_MALFORMED);
  body.size = 0;
  put_number(&body, 3, 1);
  put_number(&body, 3, 1);
  assert_int_equal(read_kind(PARCEL, &body), HV_MALFORMED);
  body.size = 0;
  put_card(&body, 1, 1, 0);
  put_card(&body, 1, 1, 0);
  assert_int_equal(read_kind(HELLO, &body), HV_MALFORMED);
  RAW(whole, 64);
  put_number(&whole, VERSION, HV_PROTOCOL_VERSION);
  put_field(&whole, LEAVE, hv_span_of("", 0));
  put_field(&whole, ECHO, hv_span_of("", 0));
  assert_int_equal(read_raw(span(&whole)), HV_MALFORMED);
}

static void oddly_formed_bytes_are_malformed(void **state) {
  (void)state;
  static const struct {
    const char *what, *bytes;
    size_t size;
  } cases[] = {
      {"nothing", "", 0},
      {"a tag alone", "\x08", 1},
      {"a version that does not end", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13},
      {"a version in 32 bits", "\x0d\x01\x00\x00\x00", 5},
      {"a number 1 that is no version", "\x10\x01\x2a\x00", 4},
      {"the version twice", "\x08\x01\x2a\x00\x08\x01", 6},
      {"field number 0", "\x08\x01\x02\x00", 4},
      {"a group", "\x08\x01\x23\x24", 4},
      {"wire type 6", "\x08\x01\x26\x00", 4},
      {"wire type 7", "\x08\x01\x27\x00", 4},
      {"a number where the message should be", "\x08\x01\x20\x05", 4},
      {"a length beyond the end", "\x08\x01\x22\x7f\x0a\x00", 6},
      {"a length of 2^63", "\x08\x01\x22\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 13},
      {"a length of 2^32 + 2", "\x08\x01\x22\x04\x0a\x82\x80\x80\x80\x10", 10},
      {"a tag over 32 bits", "\x08\x01\xa2\x80\x80\x80\x80\x01\x00", 9},
      {"a tag over 5 bytes", "\x08\x01\x22\x07\x8a\x80\x80\x80\x80\x00\x00", 11},
      {"bytes where a number should be", "\x08\x01\x32\x03\x0a\x01\x05", 7},
      {"a number where bytes should be", "\x08\x01\x22\x02\x08\x05", 6},
      {"64 bits where a number should be",
       "\x08\x01\x32\x09\x09"
       "88888888",
       13},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hv_status status = read_raw(hv_span_of(cases[i].bytes, cases[i].size));
    if (status != HV_MALFORMED)
      fail_msg("%s: %s", cases[i].what, hv_status_name(status));
  }
}

static void an_unknown_refusal_is_still_a_refusal(void **state) {
  (void)state;
  for (int64_t code = -3; code < 300; code++) {
    RAW(body, 64);
    RAW(whole, 96);
    put_number(&body, 1, (uint64_t)code);
    put_number(&whole, VERSION, HV_PROTOCOL_VERSION);
    put_field(&whole, REFUSAL, span(&body));
    hv_mem mem;
    hv_wire_msg got;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_status status = hv_wire_read(span(&whole), &mem, HV_WIRE_BUDGET, &got);
    assert_int_equal(status, code == 0 ? HV_MALFORMED : HV_OK);
    if (status == HV_OK && (code < 0 || code >= HV_STATUS_COUNT))
      assert_int_equal(got.msg.u.refusal.status, HV_INTERNAL);
    hv_wire_release(&got);
  }
}

/* Two MiB of `piece` after `piece`, in a field of a message. */
static void fill(raw *r, const void *piece, size_t size) {
  while (r->size + size <= r->room)
    put(r, piece, size);
}

static void hostile_bytes_take_bounded_memory(void **state) {
  (void)state;
  static uint8_t inner[HV_MSG_BYTES_MAX - 64], middle[HV_MSG_BYTES_MAX - 32], whole[8 << 20];
  static const struct {
    const char *what, *piece;
    size_t size;
    uint32_t number; /* the field of Hello that the pieces stand in; 0: they stand in Hello itself */
  } cases[] = {
      {"empty cards", "\x22\x00", 2, 0},
      {"empty addresses", "\x1a\x00", 2, 1},
      {"empty addresses in a card of a list", "\x1a\x00", 2, 4},
      {"unknown empty fields", "\x7a\x00", 2, 0},
      {"unknown numbers", "\x78\x00", 2, 1},
      {"nesting", "\x22\x7f", 2, 4},
      {"packed numbers", "\x01", 1, 3},
      {"ff", "\xff", 1, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int huge = 0; huge < 2; huge++) {
      raw in = {inner, 0, sizeof inner}, mid = {middle, 0, sizeof middle}, r = {whole, 0, sizeof whole};
      fill(&in, cases[i].piece, cases[i].size);
      if (cases[i].number)
        put_field(&mid, cases[i].number, span(&in));
      put_number(&r, VERSION, HV_PROTOCOL_VERSION);
      put_field(&r, HELLO, span(cases[i].number ? &mid : &in));
      if (huge) /* 8 MiB: over the limit of a message */
        fill(&r, cases[i].piece, cases[i].size);
      hv_mem mem;
      hv_wire_msg got;
      hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
      assert_int_equal(read_exact(span(&r), HV_WIRE_BUDGET, &got, &mem), HV_MALFORMED);
      assert_int_equal(mem.peak, 0);
    }
}

static void the_budget_holds(void **state) {
  (void)state;
  static sample s;
  check_rng rng = {4};
  hv_mem mem;
  hv_buf out;
  hv_wire_msg got;
  do
    random_msg(&rng, HV_MSG_HELLO, &s);
  while (s.msg.u.hello.n_cards < HV_CARDS_MAX / 2);
  assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
  hv_mem account;
  hv_mem_init(&account, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(read_exact(hv_span_of(out.data, out.size), HV_WIRE_BUDGET, &got, &account), HV_OK);
  size_t needed = account.peak;
  assert_in_range(needed, s.msg.u.hello.n_cards * sizeof(hv_card), 512 << 10);
  for (size_t budget = 0; budget < needed; budget += needed / 7) {
    hv_mem_init(&account, NULL, HV_MEM_UNLIMITED);
    assert_int_equal(read_exact(hv_span_of(out.data, out.size), budget, &got, &account), HV_BUDGET);
    assert_int_equal(account.peak, 0);
  }
  assert_int_equal(read_exact(hv_span_of(out.data, out.size), needed, &got, &account), HV_OK);
  hv_buf_fini(&out);
}

static void the_largest_messages_fit_the_budget(void **state) {
  (void)state;
  static uint8_t blob[HV_MSG_BLOB_MAX];
  static hv_card cards[HV_CARDS_MAX];
  hv_card full = {.n_addrs = HV_CARD_ADDRS_MAX};
  for (size_t i = 0; i < full.n_addrs; i++) {
    full.addrs[i] = (hv_addr){.kind = HV_ADDR_DNS4, .port = 1};
    for (size_t c = 0; c < HV_ADDR_HOST_MAX - 1; c++)
      full.addrs[i].host.name[c] = c % 50 == 49 ? '.' : 'a';
  }
  for (size_t i = 0; i < HV_CARDS_MAX; i++)
    cards[i] = full;
  hv_msg msgs[] = {
      {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(blob, sizeof blob)},
      {.kind = HV_MSG_HELLO, .u.hello = {full, hv_span_of(blob, HV_MSG_TEXT_MAX), full.addrs[0], cards, HV_CARDS_MAX}},
  };
  for (size_t i = 0; i < 2; i++) {
    hv_mem mem;
    hv_buf out;
    hv_wire_msg got;
    assert_int_equal(write_one(&msgs[i], &out, &mem), HV_OK);
    assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &mem, HV_WIRE_BUDGET, &got), HV_OK);
    assert_same_msg(&msgs[i], &got.msg);
    hv_wire_release(&got);
    hv_buf_fini(&out);
  }
}

static hv_status there_and_back(hv_mem *mem, void *arg) {
  hv_buf out;
  hv_wire_msg got;
  hv_buf_init(&out, mem, SIZE_MAX);
  hv_status status = hv_wire_write(&((sample *)arg)->msg, &out);
  assert_true(status == HV_OK || out.size == 0);
  if (status == HV_OK)
    status = hv_wire_read(hv_span_of(out.data, out.size), mem, HV_WIRE_BUDGET, &got);
  if (status == HV_OK)
    hv_wire_release(&got);
  hv_buf_fini(&out);
  assert_true(status == HV_OK || status == HV_NOMEM);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  static sample s;
  check_rng rng = {5};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    do
      random_msg(&rng, kind, &s);
    while (kind == HV_MSG_HELLO && s.msg.u.hello.n_cards < HV_CARDS_MAX / 2);
    long failed = check_out_of_memory(there_and_back, &s);
    assert_in_range(failed, kind == HV_MSG_HELLO ? 4 : 2, 8); /* the buf and the block; a hello needs room to be made */
  }
}

static void a_small_message_is_one_allocation(void **state) {
  (void)state;
  RAW(body, 64);
  RAW(whole, 96);
  put_field(&body, 1, hv_span_of("0123456789", 10));
  put_number(&whole, VERSION, HV_PROTOCOL_VERSION);
  put_field(&whole, ECHO, span(&body));
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(mem.blocks, 1);
  assert_in_range(mem.used, 1, 256);
  hv_wire_release(&got);
}

static void a_bulk_header_tells_its_size(void **state) {
  (void)state;
  hv_mem mem;
  hv_buf out;
  hv_wire_msg got;
  size_t size;
  hv_msg parcel = {.kind = HV_MSG_PARCEL, .u.parcel = {1u << 20, 77, 0}};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&out, &mem, SIZE_MAX);
  assert_int_equal(hv_wire_write_bulk(&parcel, &out), HV_OK);
  assert_int_equal(hv_wire_bulk_header(out.data, &size), HV_OK);
  assert_int_equal(size, out.size - 4);
  assert_int_equal(hv_wire_read(hv_span_of(out.data + 4, size), &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_same_msg(&parcel, &got.msg);
  hv_wire_release(&got);
  hv_buf_fini(&out);
}

static void a_bulk_header_is_small(void **state) {
  (void)state;
  static uint8_t blob[HV_BULK_HEADER_MAX];
  static const struct {
    uint8_t bytes[4];
    hv_status status;
  } cases[] = {
      {{0, 0, 0, 0}, HV_MALFORMED}, {{1, 0, 0, 0}, HV_OK},        {{0, 0, 1, 0}, HV_OK}, /* 65,536: the limit */
      {{1, 0, 1, 0}, HV_MALFORMED}, {{0, 0, 0, 1}, HV_MALFORMED}, {{255, 255, 255, 255}, HV_MALFORMED},
  };
  size_t size;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(hv_wire_bulk_header(cases[i].bytes, &size), cases[i].status);
  hv_mem mem;
  hv_buf out;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&out, &mem, SIZE_MAX);
  hv_msg echo = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(blob, sizeof blob)};
  assert_int_equal(hv_wire_write_bulk(&echo, &out), HV_TOO_LARGE);
  assert_int_equal(out.size, 0);
  hv_buf_fini(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_comes_back_as_it_was),
      cmocka_unit_test(a_message_is_appended),
      cmocka_unit_test(a_buf_that_is_full_stays_as_it_was),
      cmocka_unit_test(what_is_over_a_limit_is_not_written),
      cmocka_unit_test(what_cannot_be_said_is_invalid),
      cmocka_unit_test(what_is_over_a_limit_is_not_read),
      cmocka_unit_test(lists_and_keys_are_as_long_as_they_may_be),
      cmocka_unit_test(an_address_of_an_unknown_kind_is_left_out),
      cmocka_unit_test(a_message_cut_short_is_never_taken_for_whole),
      cmocka_unit_test(unknown_fields_are_dropped),
      cmocka_unit_test(a_kind_yet_to_come_is_unsupported),
      cmocka_unit_test(another_version_is_told_apart),
      cmocka_unit_test(the_version_comes_first_and_is_what_another_version_reads),
      cmocka_unit_test(nothing_stands_twice),
      cmocka_unit_test(oddly_formed_bytes_are_malformed),
      cmocka_unit_test(an_unknown_refusal_is_still_a_refusal),
      cmocka_unit_test(hostile_bytes_take_bounded_memory),
      cmocka_unit_test(the_budget_holds),
      cmocka_unit_test(the_largest_messages_fit_the_budget),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(a_small_message_is_one_allocation),
      cmocka_unit_test(a_bulk_header_tells_its_size),
      cmocka_unit_test(a_bulk_header_is_small),
  };
  return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
