/* core/state/taker: which gifts a hub takes, and what it holds for them. Whole ways are in tests/sim. */
#include "lib/check.h"
#include "lib/gift_desk.h"

#include <stdlib.h>
#include <string.h>

enum { GIVER = 1, OTHER = 2, SIZE = 700000, ROOM = 1 << 20 };

/* A state of three parts, as its giver announces it. */
typedef struct parcel {
  hv_manifest manifest;
  hv_buf bytes; /* of the manifest */
  uint8_t *image;
  hv_msg_gift gift;
} parcel;

static void make(gift_desk *d, parcel *p, uint64_t epoch) {
  hv_manifest_part parts[3] = {{.size = SIZE}, {.size = 0}, {.size = 5, .own = 1}};
  assert_int_equal(hv_manifest_make(&d->fake.mem, parts, 3, 0, hv_span_of("metadata", 8), &p->manifest, NULL), HV_OK);
  p->image = calloc(1, (size_t)p->manifest.image);
  for (size_t i = 0; i < SIZE; i++)
    p->image[i] = (uint8_t)(i * 7 + epoch);
  p->manifest.epoch = epoch;
  hv_buf text;
  hv_buf_init(&text, &d->fake.mem, HV_MANIFEST_BYTES_MAX);
  for (size_t i = 0; i < p->manifest.n_chunks; i++) {
    hv_manifest_chunk *chunk = &p->manifest.chunks[i];
    if (!chunk->own)
      d->fake.env.sha256(&d->fake.env, hv_span_of(p->image + chunk->place, chunk->size), &chunk->digest);
  }
  assert_int_equal(hv_manifest_digests(&p->manifest, &text), HV_OK);
  d->fake.env.sha256(&d->fake.env, hv_span_of(text.data, text.size), &p->manifest.whole);
  hv_buf_fini(&text);
  hv_buf_init(&p->bytes, &d->fake.mem, HV_MANIFEST_BYTES_MAX);
  assert_int_equal(hv_manifest_write(&p->manifest, &p->bytes), HV_OK);
  p->gift = (hv_msg_gift){.epoch = epoch, .size = p->manifest.image, .manifest_size = (uint32_t)p->bytes.size};
  d->fake.env.sha256(&d->fake.env, hv_span_of(p->bytes.data, p->bytes.size), &p->gift.digest);
}

static void drop(parcel *p) {
  hv_buf_fini(&p->bytes);
  hv_manifest_fini(&p->manifest);
  free(p->image);
}

static void open_desk(gift_desk *d, parcel *p) {
  gift_desk_init(d, ROOM);
  gift_desk_ask(d, GIVER, 5);
  gift_desk_take(d);
  make(d, p, 5);
  memcpy(p->gift.ticket, gift_desk_ticket(d), HV_GIFT_TICKET);
}

static void close_desk(gift_desk *d, parcel *p) {
  drop(p);
  gift_desk_fini(d);
  free(d);
}

static void send_manifest(gift_desk *d, gift_stream *s, const parcel *p) {
  gift_desk_piece(d, s, 1, 0, hv_span_of(p->bytes.data, p->bytes.size));
}

static void send_chunk(gift_desk *d, gift_stream *s, const parcel *p, size_t i) {
  const hv_manifest_chunk *chunk = &p->manifest.chunks[i];
  gift_desk_piece(d, s, 0, chunk->place, hv_span_of(p->image + chunk->place, chunk->size));
}

static void send_all(gift_desk *d, gift_stream *s, const parcel *p) {
  send_manifest(d, s, p);
  for (size_t i = 0; i < p->manifest.n_chunks; i++)
    send_chunk(d, s, p, i);
  gift_desk_work(d);
}

static void gift_is_taken_whole(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift);
  assert_true(s->open && s->accepted && !d->image);
  send_all(d, s, &p);
  assert_true(s->whole && d->taken && d->status == HV_OK && d->epoch == 5);
  assert_memory_equal(d->image, p.image, p.manifest.image);
  gift_desk_close(d, s);
  s = gift_desk_open(d, GIVER, 7, &p.gift); /* until the program waits again, and says that it has room */
  assert_int_equal(s->refused, HV_BUSY);
  gift_desk_close(d, s);
  gift_desk_take(d);
  s = gift_desk_open(d, GIVER, 7, &p.gift);
  assert_int_equal(s->refused, HV_BUSY);
  gift_desk_close(d, s);
  gift_desk_ask(d, GIVER, 5);
  s = gift_desk_open(d, GIVER, 7, &p.gift); /* the same ticket */
  send_all(d, s, &p);
  assert_true(d->taken && d->status == HV_OK);
  close_desk(d, &p);
}

static void gift_that_is_not_expected_is_refused_before_its_bytes(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  struct {
    uint64_t peer, epoch, size;
    uint32_t manifest;
    uint8_t ticket;
    hv_status status;
  } cases[] = {
      {OTHER, 5, SIZE, 100, 0, HV_NOT_FOUND},
      {GIVER, 5, SIZE, 100, 1, HV_NOT_FOUND},
      {GIVER, 4, SIZE, 100, 0, HV_INVALID},
      {GIVER, HV_GIFT_EPOCH_MAX + 1, SIZE, 100, 0, HV_INVALID},
  };
  size_t blocks = d->fake.mem.blocks;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hv_msg_gift gift = p.gift;
    gift.epoch = cases[i].epoch;
    gift.size = cases[i].size;
    gift.manifest_size = cases[i].manifest;
    gift.ticket[0] ^= cases[i].ticket;
    gift_stream *s = gift_desk_open(d, cases[i].peer, 7, &gift);
    assert_int_equal(s->refused, cases[i].status);
    gift_desk_piece(d, s, 1, 0, hv_span_of(p.bytes.data, p.bytes.size)); /* it says more, to nobody */
    gift_desk_close(d, s);
    assert_int_equal(d->fake.mem.blocks, blocks);
  }
  close_desk(d, &p);
}

static void giver_of_a_state_too_large_is_not_asked_again(void **unused) {
  (void)unused;
  struct {
    uint64_t size;
    uint32_t manifest;
  } cases[] = {{ROOM + 1, 100}, {UINT64_MAX, 100}, {SIZE, HV_MANIFEST_BYTES_MAX + 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gift_desk *d = malloc(sizeof *d);
    parcel p;
    open_desk(d, &p);
    size_t blocks = d->fake.mem.blocks;
    hv_msg_gift gift = p.gift;
    gift.size = cases[i].size;
    gift.manifest_size = cases[i].manifest;
    gift_stream *s = gift_desk_open(d, GIVER, 7, &gift);
    assert_int_equal(s->refused, HV_TOO_LARGE);
    gift_desk_close(d, s);
    assert_int_equal(d->fake.mem.blocks, blocks);
    gift_desk_ask(d, GIVER, 5);
    assert_null(hv_takers_request(&d->takers, hv_span_of("run", 3)));
    gift_desk_ask(d, OTHER, 5);
    assert_non_null(hv_takers_request(&d->takers, hv_span_of("run", 3)));
    close_desk(d, &p);
  }
}

static void one_gift_at_a_time_comes_in(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  gift_stream *first = gift_desk_open(d, GIVER, 7, &p.gift);
  send_manifest(d, first, &p);
  gift_stream *second = gift_desk_open(d, GIVER, 7, &p.gift);
  assert_int_equal(second->refused, HV_BUSY);
  gift_desk_close(d, second);
  gift_desk_close(d, first); /* it breaks off */
  assert_true(!d->image && !d->taken);
  second = gift_desk_open(d, GIVER, 7, &p.gift);
  send_all(d, second, &p);
  assert_true(d->taken && d->status == HV_OK);
  assert_memory_equal(d->image, p.image, p.manifest.image);
  close_desk(d, &p);
}

typedef void breach(gift_desk *d, gift_stream *s, parcel *p);

static void chunk_first(gift_desk *d, gift_stream *s, parcel *p) {
  send_chunk(d, s, p, 0);
}

static void other_manifest(gift_desk *d, gift_stream *s, parcel *p) {
  p->bytes.data[20] ^= 1;
  send_manifest(d, s, p);
  p->bytes.data[20] ^= 1;
}

static void short_manifest(gift_desk *d, gift_stream *s, parcel *p) {
  gift_desk_piece(d, s, 1, 0, hv_span_of(p->bytes.data, p->bytes.size - 1));
}

static void manifest_twice(gift_desk *d, gift_stream *s, parcel *p) {
  send_manifest(d, s, p);
  send_manifest(d, s, p);
}

static void chunk_out_of_order(gift_desk *d, gift_stream *s, parcel *p) {
  send_manifest(d, s, p);
  send_chunk(d, s, p, 1);
}

static void chunk_too_short(gift_desk *d, gift_stream *s, parcel *p) {
  send_manifest(d, s, p);
  gift_desk_piece(d, s, 0, 0, hv_span_of(p->image, p->manifest.chunks[0].size - 1));
}

static void chunk_too_long(gift_desk *d, gift_stream *s, parcel *p) {
  send_manifest(d, s, p);
  gift_desk_piece(d, s, 0, 0, hv_span_of(p->image, p->manifest.chunks[0].size + 1));
}

static void piece_without_bytes(gift_desk *d, gift_stream *s, parcel *p) {
  (void)p;
  gift_desk_piece(d, s, 1, 0, hv_span_of(NULL, 0));
}

static void changed_bytes(gift_desk *d, gift_stream *s, parcel *p) {
  p->image[SIZE / 2] ^= 1;
  send_all(d, s, p);
  p->image[SIZE / 2] ^= 1;
}

static void silence(gift_desk *d, gift_stream *s, parcel *p) {
  send_manifest(d, s, p);
  gift_desk_pass(d, HV_GIFT_SILENCE_MS * UINT64_C(1000));
}

static void giver_that_ends(gift_desk *d, gift_stream *s, parcel *p) {
  hv_peer_id id = fake_peer(GIVER);
  send_manifest(d, s, p);
  hv_takers_gone(&d->takers, &id);
}

static void breach_ends_a_gift_and_gives_its_memory_back(void **unused) {
  (void)unused;
  breach *breaches[] = {chunk_first,    other_manifest,      short_manifest, manifest_twice, chunk_out_of_order, chunk_too_short,
                        chunk_too_long, piece_without_bytes, changed_bytes,  silence,        giver_that_ends};
  for (size_t i = 0; i < sizeof breaches / sizeof *breaches; i++) {
    gift_desk *d = malloc(sizeof *d);
    parcel p;
    open_desk(d, &p);
    gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift);
    breaches[i](d, s, &p);
    assert_true(s->refused != HV_OK && s->is_over && !d->image && !d->taken);
    send_chunk(d, s, &p, 0); /* what is under way is not looked at */
    gift_desk_close(d, s);
    gift_desk_ask(d, GIVER, 5);
    memcpy(p.gift.ticket, gift_desk_ticket(d), HV_GIFT_TICKET);
    s = gift_desk_open(d, GIVER, 7, &p.gift);
    send_all(d, s, &p);
    assert_true(d->taken && d->status == HV_OK);
    close_desk(d, &p);
  }
}

static void take_that_is_cancelled_ends_when_the_pool_has_let_go(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift);
  send_manifest(d, s, &p);
  for (size_t i = 0; i < p.manifest.n_chunks; i++)
    send_chunk(d, s, &p, i);
  hv_takers_cancel(&d->takers, &d->take);
  assert_true(!d->taken && d->image);
  gift_desk_work(d);
  assert_true(d->taken && d->status == HV_CANCELLED);
  gift_desk_take(d);
  hv_takers_cancel(&d->takers, &d->take);
  assert_true(d->taken && d->status == HV_CANCELLED);
  close_desk(d, &p);
}

static void hub_that_ends_during_the_check_leaks_nothing(void **unused) {
  (void)unused;
  for (int stops = 0; stops < 2; stops++) {
    gift_desk *d = malloc(sizeof *d);
    parcel p;
    open_desk(d, &p);
    gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift);
    send_manifest(d, s, &p);
    for (size_t i = 0; i < p.manifest.n_chunks; i++)
      send_chunk(d, s, &p, i);
    if (stops)
      hv_takers_stop(&d->takers);
    d->jobs = NULL; /* the world has ended */
    hv_takers_fini(&d->takers);
    assert_true(d->taken && d->status == (stops ? HV_CANCELLED : HV_CLOSED));
    d->streams[s - d->streams].open = 0;
    hv_takers_init(&d->takers, &d->fake.env, NULL, &d->fake.me);
    close_desk(d, &p);
  }
}

static void refusals_are_limited_by_peer_network_and_number(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  size_t n = 0;
  for (uint64_t i = 0; i < 5; i++)
    n += gift_desk_open(d, OTHER, 7, &p.gift)->open;
  assert_int_equal(n, 2);
  for (uint64_t i = 0; i < 40; i++)
    n += gift_desk_open(d, 100 + i, 7, &p.gift)->open;
  assert_int_equal(n, HV_GIFT_REFUSALS / 4);
  for (uint64_t i = 0; i < 100; i++)
    n += gift_desk_open(d, 200 + i, 100 + i, &p.gift)->open;
  assert_int_equal(n, HV_GIFT_REFUSALS);
  gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift); /* and the one that is asked is taken all the same */
  assert_true(s->open && s->accepted);
  gift_desk_pass(d, HV_GIFT_ANSWER_MS * UINT64_C(1000));
  for (size_t i = 0; i < GIFT_STREAMS; i++)
    if (d->streams[i].open && &d->streams[i] != s) {
      assert_true(d->streams[i].is_over);
      gift_desk_close(d, &d->streams[i]);
    }
  send_all(d, s, &p);
  assert_true(d->taken && d->status == HV_OK);
  close_desk(d, &p);
}

static void words_of_a_round_make_another_giver_expected(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  uint8_t ticket[HV_GIFT_TICKET] = {9};
  hv_peer_id other = fake_peer(OTHER);
  open_desk(d, &p);
  gift_stream *s = gift_desk_open(d, GIVER, 7, &p.gift);
  send_manifest(d, s, &p);
  assert_int_equal(hv_takers_met(&d->takers, hv_span_of("run", 3), 4, &other, 1, &other, ticket, NULL), HV_OK);
  assert_true(s->refused == HV_CANCELLED && !d->image);
  gift_desk_close(d, s);
  assert_int_equal(gift_desk_open(d, GIVER, 7, &p.gift)->refused, HV_NOT_FOUND);
  memcpy(p.gift.ticket, ticket, sizeof ticket);
  s = gift_desk_open(d, OTHER, 7, &p.gift);
  send_all(d, s, &p);
  assert_true(d->taken && d->status == HV_OK && hv_peer_equal(&d->take.load.donor, &other));
  assert_int_equal(hv_takers_met(&d->takers, hv_span_of("", 0), 4, &other, 1, &other, ticket, NULL), HV_INVALID);
  close_desk(d, &p);
}

static void giver_of_a_useless_state_is_left(void **unused) {
  (void)unused;
  gift_desk *d = malloc(sizeof *d);
  parcel p;
  open_desk(d, &p);
  send_all(d, gift_desk_open(d, GIVER, 7, &p.gift), &p);
  hv_takers_refuse(&d->takers, hv_span_of("run", 3));
  assert_null(hv_takers_request(&d->takers, hv_span_of("run", 3)));
  hv_gift_trainer trainers[] = {{fake_peer(GIVER), 1, 9}, {fake_peer(OTHER), 1, 9}};
  hv_gift_figures figures = {.trainers = trainers, .n_trainers = 2, .has_room = 1};
  assert_int_equal(hv_takers_follow(&d->takers, hv_span_of("run", 3), &figures, 1, ROOM, NULL), HV_OK);
  assert_true(hv_peer_equal(&hv_takers_request(&d->takers, hv_span_of("run", 3))->giver, &trainers[1].id));
  close_desk(d, &p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gift_is_taken_whole),
      cmocka_unit_test(gift_that_is_not_expected_is_refused_before_its_bytes),
      cmocka_unit_test(giver_of_a_state_too_large_is_not_asked_again),
      cmocka_unit_test(one_gift_at_a_time_comes_in),
      cmocka_unit_test(breach_ends_a_gift_and_gives_its_memory_back),
      cmocka_unit_test(take_that_is_cancelled_ends_when_the_pool_has_let_go),
      cmocka_unit_test(hub_that_ends_during_the_check_leaks_nothing),
      cmocka_unit_test(refusals_are_limited_by_peer_network_and_number),
      cmocka_unit_test(words_of_a_round_make_another_giver_expected),
      cmocka_unit_test(giver_of_a_useless_state_is_left),
  };
  return cmocka_run_group_tests_name("taker", tests, NULL, NULL);
}
