/* Bytes made by hand, as a stranger may send them: read to the letter, or refused with nothing taken. */
#include "lib/msgs.h"

#include "net/wire.h"

#include <string.h>

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
enum { VERSION = 1, REFUSAL = 2, HELLO = 3, ECHO = 4, LEAVE = 5, PARCEL = 6, FIND = 7, STORE = 9, STORED = 10 };

#define RAW(name, bytes)                                                                                                           \
  uint8_t name##_data[bytes];                                                                                                      \
  raw name = {name##_data, 0, sizeof name##_data}

static hv_span span(const raw *r) {
  return hv_span_of(r->data, r->size);
}

static hv_status read_raw(hv_span bytes) {
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  return msgs_read(bytes, &mem, HV_WIRE_BUDGET);
}

/* A message of this kind with these fields inside. */
static hv_status read_kind(uint32_t kind, const raw *body) {
  static uint8_t data[HV_MSG_BYTES_MAX + 64];
  raw r = {data, 0, sizeof data};
  put_number(&r, VERSION, HV_PROTOCOL_HIGHEST);
  put_field(&r, kind, span(body));
  return read_raw(span(&r));
}

static void message_over_a_limit_is_not_read(void **state) {
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

static hv_status read_find(uint64_t n_contacts) {
  static const uint8_t target[32] = {1};
  RAW(body, 64);
  put_field(&body, 1, hv_span_of(target, sizeof target));
  put_number(&body, 4, n_contacts);
  return read_kind(FIND, &body);
}

/* Messages of n empty records, and of n verdicts that are all a 1. */
static hv_status read_records(size_t n) {
  RAW(body, 8192);
  for (size_t i = 0; i < n; i++)
    put_field(&body, 1, hv_span_of("", 0));
  return read_kind(STORE, &body);
}

static hv_status read_verdicts(size_t n, int packed) {
  RAW(body, 8192);
  static uint8_t ones[4096];
  memset(ones, 1, sizeof ones);
  if (packed)
    put_field(&body, 1, hv_span_of(ones, n));
  for (size_t i = 0; !packed && i < n; i++)
    put_number(&body, 1, 1);
  return read_kind(STORED, &body);
}

static void dht_lists_over_a_limit_are_not_read(void **state) {
  (void)state;
  assert_int_equal(read_find(HV_CONTACTS_MAX), HV_OK);
  assert_int_equal(read_find(HV_CONTACTS_MAX + 1), HV_MALFORMED);
  assert_int_equal(read_find(256), HV_MALFORMED);
  assert_int_equal(read_records(HV_RECORDS_MAX), HV_OK);
  assert_int_equal(read_records(HV_RECORDS_MAX + 1), HV_MALFORMED);
  for (int packed = 0; packed < 2; packed++) {
    assert_int_equal(read_verdicts(HV_RECORDS_MAX, packed), HV_OK);
    assert_int_equal(read_verdicts(HV_RECORDS_MAX + 1, packed), HV_MALFORMED);
  }
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
  put_number(&whole, VERSION, HV_PROTOCOL_HIGHEST);
  put_field(&whole, HELLO, span(&hello));
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(got.msg.u.hello.me.n_addrs, 1);
  assert_int_equal(got.msg.u.hello.me.addrs[0].port, 8080);
  assert_int_equal(got.msg.u.hello.you.kind, HV_ADDR_NONE);
  hv_wire_release(&got);
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
  put_number(&whole, VERSION, HV_PROTOCOL_HIGHEST);
  put_field(&whole, 99, hv_span_of("later", 5));
  put_field(&whole, ECHO, span(&body));
  put_number(&whole, 98, 7);
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(got.msg.kind, HV_MSG_ECHO);
  assert_true(hv_span_equal(got.msg.u.echo.bytes, hv_span_of("kept", 4)));
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
      {0, "", HV_MALFORMED}, /* no version at all */
      {2, "", HV_VERSION},
      {2, "anything at all \xff\xff\xff", HV_VERSION},
      {HV_VERSIONS_MAX, "\x22", HV_VERSION},
      {HV_VERSIONS_MAX + 1, "\x22", HV_MALFORMED},
      {UINT32_MAX, "\x22", HV_MALFORMED},
      {(uint64_t)UINT32_MAX + 1, "\x22", HV_MALFORMED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    RAW(whole, 64);
    put_number(&whole, VERSION, cases[i].version);
    put(&whole, cases[i].rest, strlen(cases[i].rest));
    hv_mem mem;
    hv_wire_msg got;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    assert_int_equal(hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got), cases[i].status);
    if (cases[i].status == HV_VERSION) {
      assert_int_equal(got.version, cases[i].version);
      assert_int_equal(got.speaks.lowest, cases[i].version);
      assert_int_equal(got.speaks.highest, cases[i].version);
    }
    assert_int_equal(mem.peak, 0); /* nothing was taken */
  }
}

/* The fields of the envelope that say which versions its sender speaks, in messages of every version. */
static void ranges_of_versions_are_bounded(void **state) {
  (void)state;
  enum { LOWEST = 101, HIGHEST = 102, FEATURES = 103, NONE = 0 };
  static const struct {
    uint64_t version, lowest, highest, features; /* NONE: the field is absent */
    hv_versions speaks;
    hv_status status;
  } cases[] = {
      {1, NONE, NONE, NONE, {1, 1, 0}, HV_OK},
      {1, 1, 2, NONE, {1, 2, 0}, HV_OK},
      {1, NONE, 7, UINT64_MAX, {1, 7, UINT64_MAX}, HV_OK}, /* bits that nobody knows yet */
      {1, 1, HV_VERSIONS_MAX, NONE, {1, HV_VERSIONS_MAX, 0}, HV_OK},
      {2, 2, 3, 5, {2, 3, 5}, HV_VERSION},
      {2, 1, NONE, NONE, {1, 2, 0}, HV_VERSION},
      {9, NONE, NONE, NONE, {9, 9, 0}, HV_VERSION},
      {1, 2, 3, NONE, {0}, HV_MALFORMED}, /* its own version is not among them */
      {2, 1, 1, NONE, {0}, HV_MALFORMED},
      {3, 4, 2, NONE, {0}, HV_MALFORMED}, /* the lowest above the highest */
      {1, 1, HV_VERSIONS_MAX + 1, NONE, {0}, HV_MALFORMED},
      {1, 1, UINT64_MAX, NONE, {0}, HV_MALFORMED},
      {1, (uint64_t)UINT32_MAX + 2, 1, NONE, {0}, HV_MALFORMED}, /* 1, if its upper half were lost */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    RAW(whole, 96);
    hv_wire_msg got = {0};
    hv_mem mem;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    put_number(&whole, VERSION, cases[i].version);
    const uint64_t said[] = {cases[i].lowest, cases[i].highest, cases[i].features};
    for (uint32_t k = 0; k < 3; k++)
      if (said[k] != NONE)
        put_number(&whole, LOWEST + k, said[k]);
    put_field(&whole, LEAVE, hv_span_of("", 0)); /* before or behind the message: both are read */
    assert_int_equal(hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got), cases[i].status);
    if (cases[i].status != HV_MALFORMED)
      assert_true(hv_versions_equal(&got.speaks, &cases[i].speaks));
    hv_wire_release(&got);
  }
  RAW(twice, 32);
  put_number(&twice, VERSION, 1);
  put_field(&twice, LEAVE, hv_span_of("", 0));
  put_number(&twice, HIGHEST, 2);
  put_number(&twice, HIGHEST, 3);
  assert_int_equal(read_raw(span(&twice)), HV_MALFORMED);
  RAW(text, 32);
  put_number(&text, VERSION, 1);
  put_field(&text, LEAVE, hv_span_of("", 0));
  put_field(&text, LOWEST, hv_span_of("1", 1));
  assert_int_equal(read_raw(span(&text)), HV_MALFORMED);
}

static void a_version_that_comes_late_is_malformed(void **state) {
  (void)state;
  RAW(late, 16);
  put_field(&late, LEAVE, hv_span_of("", 0));
  put_number(&late, VERSION, HV_PROTOCOL_HIGHEST);
  assert_int_equal(read_raw(span(&late)), HV_MALFORMED);
}

static void repeated_field_is_malformed(void **state) {
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
  put_number(&whole, VERSION, HV_PROTOCOL_HIGHEST);
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
    put_number(&whole, VERSION, HV_PROTOCOL_HIGHEST);
    put_field(&whole, REFUSAL, span(&body));
    hv_mem mem;
    hv_wire_msg got;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_status status = hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got);
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
      put_number(&r, VERSION, HV_PROTOCOL_HIGHEST);
      put_field(&r, HELLO, span(cases[i].number ? &mid : &in));
      if (huge) /* 8 MiB: over the limit of a message */
        fill(&r, cases[i].piece, cases[i].size);
      hv_mem mem;
      hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
      assert_int_equal(msgs_read(span(&r), &mem, HV_WIRE_BUDGET), HV_MALFORMED);
      assert_int_equal(mem.peak, 0);
    }
}

static void a_small_message_is_one_allocation(void **state) {
  (void)state;
  RAW(body, 64);
  RAW(whole, 96);
  put_field(&body, 1, hv_span_of("0123456789", 10));
  put_number(&whole, VERSION, HV_PROTOCOL_HIGHEST);
  put_field(&whole, ECHO, span(&body));
  hv_mem mem;
  hv_wire_msg got;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_wire_read(span(&whole), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
  assert_int_equal(mem.blocks, 1);
  assert_in_range(mem.used, 1, 256);
  hv_wire_release(&got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(message_over_a_limit_is_not_read),
      cmocka_unit_test(lists_and_keys_are_as_long_as_they_may_be),
      cmocka_unit_test(dht_lists_over_a_limit_are_not_read),
      cmocka_unit_test(an_address_of_an_unknown_kind_is_left_out),
      cmocka_unit_test(unknown_fields_are_dropped),
      cmocka_unit_test(a_kind_yet_to_come_is_unsupported),
      cmocka_unit_test(another_version_is_told_apart),
      cmocka_unit_test(ranges_of_versions_are_bounded),
      cmocka_unit_test(a_version_that_comes_late_is_malformed),
      cmocka_unit_test(repeated_field_is_malformed),
      cmocka_unit_test(oddly_formed_bytes_are_malformed),
      cmocka_unit_test(an_unknown_refusal_is_still_a_refusal),
      cmocka_unit_test(hostile_bytes_take_bounded_memory),
      cmocka_unit_test(a_small_message_is_one_allocation),
  };
  return cmocka_run_group_tests_name("wire, hostile", tests, NULL, NULL);
}
