/* Messages as bytes: what goes in comes out, within its limits and its budget. (test_wire_hostile: what must not come in.) */
#include "lib/msgs.h"

#include "net/wire.h"

enum { ROUNDS = 400 };

static hv_status write_one(const hv_msg *msg, hv_buf *out, hv_mem *mem) {
  hv_mem_init(mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(out, mem, SIZE_MAX);
  return hv_wire_write(msg, HV_PROTOCOL_LOWEST, NULL, out);
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

static hv_status read_raw(hv_span bytes) {
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  return msgs_read(bytes, &mem, HV_WIRE_BUDGET);
}

static void every_kind_comes_back_as_it_was(void **state) {
  (void)state;
  static msgs_sample s;
  check_rng rng = {1};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++)
    for (int round = 0; round < ROUNDS; round++) {
      hv_mem mem;
      hv_buf out;
      hv_wire_msg got;
      msgs_random(&rng, kind, &s);
      assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
      assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
      assert_int_equal(got.version, HV_PROTOCOL_HIGHEST);
      msgs_assert_same(&s.msg, &got.msg);
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
  assert_int_equal(hv_wire_write(&leave, HV_PROTOCOL_LOWEST, NULL, &out), HV_OK);
  assert_memory_equal(out.data, "\x08\x01\x2a\x00\x08\x01\x2a\x00", 8);
  assert_int_equal(out.size, 8);
  hv_buf_fini(&out);
}

static void full_buffer_stays_unchanged(void **state) {
  (void)state;
  hv_mem mem;
  hv_buf out;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&out, &mem, 20);
  hv_msg echo = {.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of("0123456789", 10)};
  assert_int_equal(hv_wire_write(&echo, HV_PROTOCOL_LOWEST, NULL, &out), HV_OK);
  size_t size = out.size;
  assert_int_equal(hv_wire_write(&echo, HV_PROTOCOL_LOWEST, NULL, &out), HV_TOO_LARGE);
  assert_int_equal(out.size, size);
  hv_buf_fini(&out);
}

static void message_over_a_limit_is_not_written(void **state) {
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

static void dht_message_over_a_limit_is_not_written(void **state) {
  (void)state;
  static uint8_t blob[HV_RECORD_VALUE_MAX + 1];
  static hv_record records[HV_RECORDS_MAX + 1];
  static hv_contact contacts[HV_CONTACTS_MAX + 1];
  hv_msg find = {.kind = HV_MSG_FIND, .u.find = {.n_contacts = HV_CONTACTS_MAX, .me = hv_span_of(blob, HV_CONTACT_ADDRS_MAX)}};
  assert_int_equal(try_write(&find), HV_OK);
  find.u.find.n_contacts++;
  assert_int_equal(try_write(&find), HV_TOO_LARGE);
  hv_msg found = {.kind = HV_MSG_FOUND, .u.found = {records, HV_RECORDS_MAX, contacts, HV_CONTACTS_MAX}};
  assert_int_equal(try_write(&found), HV_OK);
  found.u.found.n_contacts++;
  assert_int_equal(try_write(&found), HV_TOO_LARGE);
  hv_msg store = {.kind = HV_MSG_STORE, .u.store = {.records = records, .n_records = HV_RECORDS_MAX + 1}};
  assert_int_equal(try_write(&store), HV_TOO_LARGE);
  store.u.store.n_records = 1;
  records[0] = (hv_record){.key = hv_span_of(blob, HV_RECORD_KEY_MAX), .value = hv_span_of(blob, HV_RECORD_VALUE_MAX)};
  assert_int_equal(try_write(&store), HV_OK);
  records[0].value.size++;
  assert_int_equal(try_write(&store), HV_TOO_LARGE);
  records[0] = (hv_record){.key = hv_span_of(blob, HV_RECORD_KEY_MAX + 1)};
  assert_int_equal(try_write(&store), HV_TOO_LARGE);
}

static void wanted_prefix_over_its_limit_is_not_written(void **state) {
  (void)state;
  static uint8_t blob[HV_STATE_PREFIX_MAX + 1];
  hv_msg wanted = {.kind = HV_MSG_STATE_WANTED, .u.state_wanted = {hv_span_of(blob, HV_STATE_PREFIX_MAX), UINT64_MAX}};
  assert_int_equal(try_write(&wanted), HV_OK);
  wanted.u.state_wanted.prefix.size++;
  assert_int_equal(try_write(&wanted), HV_TOO_LARGE);
}

static void invalid_message_is_not_written(void **state) {
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

static void a_message_cut_short_is_never_taken_for_whole(void **state) {
  (void)state;
  static msgs_sample s;
  check_rng rng = {2};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    hv_mem mem;
    hv_buf out;
    do
      msgs_random(&rng, kind, &s);
    while (kind == HV_MSG_HELLO && s.msg.u.hello.n_cards > 3);
    assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
    for (size_t n = 0; n < out.size; n++)
      assert_int_equal(read_raw(hv_span_of(out.data, n)), HV_MALFORMED);
    hv_buf_fini(&out);
  }
}

static void version_comes_first_and_is_read_by_other_versions(void **state) {
  (void)state;
  static msgs_sample s;
  check_rng rng = {3};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    hv_mem mem;
    hv_buf out;
    hv_wire_msg got;
    msgs_random(&rng, kind, &s);
    assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
    assert_memory_equal(out.data, "\x08\x01", 2); /* field 1, a number, is 1 */
    out.data[1] = 9;                              /* the same from a peer of version 9 */
    assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_VERSION);
    assert_int_equal(got.version, 9);
    hv_buf_fini(&out);
  }
}

static void the_budget_holds(void **state) {
  (void)state;
  static msgs_sample s;
  check_rng rng = {4};
  hv_mem mem;
  hv_buf out;
  do
    msgs_random(&rng, HV_MSG_HELLO, &s);
  while (s.msg.u.hello.n_cards < HV_CARDS_MAX / 2);
  assert_int_equal(write_one(&s.msg, &out, &mem), HV_OK);
  hv_mem account;
  hv_mem_init(&account, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(msgs_read(hv_span_of(out.data, out.size), &account, HV_WIRE_BUDGET), HV_OK);
  size_t needed = account.peak;
  assert_in_range(needed, s.msg.u.hello.n_cards * sizeof(hv_card), 512 << 10);
  for (size_t budget = 0; budget < needed; budget += needed / 7) {
    hv_mem_init(&account, NULL, HV_MEM_UNLIMITED);
    assert_int_equal(msgs_read(hv_span_of(out.data, out.size), &account, budget), HV_BUDGET);
    assert_int_equal(account.peak, 0);
  }
  assert_int_equal(msgs_read(hv_span_of(out.data, out.size), &account, needed), HV_OK);
  hv_buf_fini(&out);
}

static void the_largest_group_fits_a_bulk_header(void **state) {
  (void)state;
  static uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  static hv_match_member members[HV_MATCH_MEMBERS_MAX];
  hv_msg msg = {.kind = HV_MSG_BEGIN, .u.begin = {.leader = UINT32_MAX, .members = members, .n_members = HV_MATCH_MEMBERS_MAX}};
  for (size_t i = 0; i < HV_MATCH_MEMBERS_MAX; i++)
    members[i] = (hv_match_member){{{1}}, hv_span_of(addrs, sizeof addrs), 1, UINT32_MAX, UINT32_MAX, 1u << 16};
  hv_mem mem;
  hv_buf out;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&out, &mem, HV_MSG_BYTES_MAX);
  assert_int_equal(hv_wire_write_bulk(&msg, HV_PROTOCOL_LOWEST, NULL, &out), HV_OK);
  assert_true(out.size > 50000); /* it is near the limit, so this test says something */
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
    assert_int_equal(hv_wire_read(hv_span_of(out.data, out.size), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
    msgs_assert_same(&msgs[i], &got.msg);
    hv_wire_release(&got);
    hv_buf_fini(&out);
  }
}

static hv_status there_and_back(hv_mem *mem, void *arg) {
  hv_buf out;
  hv_wire_msg got;
  hv_buf_init(&out, mem, SIZE_MAX);
  hv_status status = hv_wire_write(&((msgs_sample *)arg)->msg, HV_PROTOCOL_LOWEST, NULL, &out);
  assert_true(status == HV_OK || out.size == 0);
  if (status == HV_OK)
    status = hv_wire_read(hv_span_of(out.data, out.size), &msgs_own, mem, HV_WIRE_BUDGET, &got);
  if (status == HV_OK)
    hv_wire_release(&got);
  hv_buf_fini(&out);
  assert_true(status == HV_OK || status == HV_NOMEM);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  static msgs_sample s;
  check_rng rng = {5};
  for (hv_msg_kind kind = HV_MSG_NONE + 1; kind < HV_MSG_KINDS; kind++) {
    do
      msgs_random(&rng, kind, &s);
    while (kind == HV_MSG_HELLO && s.msg.u.hello.n_cards < HV_CARDS_MAX / 2);
    long failed = check_out_of_memory(there_and_back, &s);
    assert_in_range(failed, kind == HV_MSG_HELLO ? 4 : 2, 8); /* the buf and the block; a hello needs room to be made */
  }
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
  assert_int_equal(hv_wire_write_bulk(&parcel, HV_PROTOCOL_LOWEST, NULL, &out), HV_OK);
  assert_int_equal(hv_wire_bulk_header(out.data, &size), HV_OK);
  assert_int_equal(size, out.size - 4);
  assert_int_equal(hv_wire_read(hv_span_of(out.data + 4, size), &msgs_own, &mem, HV_WIRE_BUDGET, &got), HV_OK);
  msgs_assert_same(&parcel, &got.msg);
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
  assert_int_equal(hv_wire_write_bulk(&echo, HV_PROTOCOL_LOWEST, NULL, &out), HV_TOO_LARGE);
  assert_int_equal(out.size, 0);
  hv_buf_fini(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_comes_back_as_it_was),
      cmocka_unit_test(a_message_is_appended),
      cmocka_unit_test(full_buffer_stays_unchanged),
      cmocka_unit_test(message_over_a_limit_is_not_written),
      cmocka_unit_test(dht_message_over_a_limit_is_not_written),
      cmocka_unit_test(wanted_prefix_over_its_limit_is_not_written),
      cmocka_unit_test(invalid_message_is_not_written),
      cmocka_unit_test(a_message_cut_short_is_never_taken_for_whole),
      cmocka_unit_test(version_comes_first_and_is_read_by_other_versions),
      cmocka_unit_test(the_budget_holds),
      cmocka_unit_test(the_largest_messages_fit_the_budget),
      cmocka_unit_test(the_largest_group_fits_a_bulk_header),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(a_bulk_header_tells_its_size),
      cmocka_unit_test(a_bulk_header_is_small),
  };
  return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
