/* The bucket of bulk: the rate that it holds, turns, and small messages. */
#include "lib/check.h"

#include "net/transport/bulk.h"

enum { RATE = 1000000, SIZE = 100000, PLACES = 4 };

typedef struct sender {
  hv_bulk_place place;
  hv_bulk *bulk;
  uint64_t *now_us;
  size_t has, sent; /* messages */
} sender;

static void sends(hv_bulk_place *place) {
  sender *s = (sender *)place;
  while (s->sent < s->has && hv_bulk_may_send(s->bulk, place, SIZE, *s->now_us))
    s->sent++;
}

typedef struct desk {
  hv_timers timers;
  hv_bulk bulk;
  uint64_t now_us;
  sender senders[PLACES];
} desk;

static void sits(desk *d) {
  *d = (desk){.now_us = 1000000};
  hv_bulk_init(&d->bulk, &d->timers);
  for (size_t i = 0; i < PLACES; i++) {
    d->senders[i] = (sender){.bulk = &d->bulk, .now_us = &d->now_us, .has = 1000};
    hv_bulk_place_init(&d->senders[i].place, sends);
  }
  hv_bulk_set_rate(&d->bulk, RATE, d->now_us);
}

/* As the timer does it, whose clock is the machine's. */
static void runs(desk *d, uint64_t us) {
  uint64_t until_us = d->now_us + us;
  for (uint64_t due_us; (due_us = hv_timers_next(&d->timers)) <= until_us;) {
    d->now_us = due_us > d->now_us ? due_us : d->now_us;
    hv_timers_clear(&d->timers, &d->bulk.again);
    hv_bulk_take_turns(&d->bulk, d->now_us);
  }
  d->now_us = until_us;
}

static void senders_share_the_rate_in_turns(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  for (size_t i = 0; i < PLACES; i++)
    sends(&d.senders[i].place);
  runs(&d, 20000000);
  size_t all = 0;
  for (size_t i = 0; i < PLACES; i++) {
    assert_in_range(d.senders[i].sent, 45, 50);
    all += d.senders[i].sent;
  }
  uint64_t bytes = all * (SIZE + SIZE / HV_BULK_OVERHEAD);
  assert_in_range(bytes, (uint64_t)RATE * 20 - SIZE, (uint64_t)RATE * 20 + 2 * SIZE);
}

static void small_message_never_waits(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  sends(&d.senders[0].place);
  runs(&d, 1000000);
  for (size_t i = 0; i < 100; i++)
    assert_true(hv_bulk_may_send(&d.bulk, &d.senders[1].place, HV_BULK_SMALL, d.now_us));
}

static void sender_that_leaves_keeps_no_turn(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  sends(&d.senders[0].place);
  sends(&d.senders[1].place);
  hv_bulk_leave(&d.senders[0].place);
  runs(&d, 5000000);
  assert_in_range(d.senders[0].sent, 0, 1);
  assert_in_range(d.senders[1].sent, 45, 50);
}

/* Bytes that were not sent for an hour are not sent at once. */
static void rest_saves_little(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  runs(&d, UINT64_C(3600000000));
  sends(&d.senders[0].place);
  assert_int_equal(d.senders[0].sent, 1);
}

static void limit_that_ends_lets_all_send(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  for (size_t i = 0; i < PLACES; i++)
    sends(&d.senders[i].place);
  hv_bulk_set_rate(&d.bulk, 0, d.now_us);
  for (size_t i = 0; i < PLACES; i++)
    assert_int_equal(d.senders[i].sent, d.senders[i].has);
}

static void load_has_a_quarter_while_a_round_waits(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  hv_bulk_set_rate(&d.bulk, 0, d.now_us);
  sender *load = &d.senders[0];
  hv_bulk_place *round = &d.senders[1].place;
  load->has = 10;
  load->place.of = HV_TURN_LOAD;
  round->of = HV_TURN_ROUND;
  hv_bulk_waits(&d.bulk, round, 13 * SIZE, d.now_us);
  sends(&load->place);
  assert_int_equal(load->sent, 0);
  for (size_t i = 1; i <= 12; i++) {
    runs(&d, 1000);
    hv_bulk_left(&d.bulk, round, SIZE + 3, d.now_us);
    runs(&d, 1000);
    assert_int_equal(load->sent, i / 3);
  }
  runs(&d, 3 * HV_TURNS_STUCK_US); /* nothing of the round leaves: its receivers are waited for */
  assert_in_range(load->sent, 6, 7);
  hv_bulk_left(&d.bulk, round, SIZE, d.now_us);
  runs(&d, 1000);
  assert_int_equal(load->sent, load->has);
}

/* A round's message does not wait behind that of a load, which has no turn yet. */
static void round_goes_before_a_load_under_a_limit(void **unused) {
  (void)unused;
  desk d;
  sits(&d);
  sender *load = &d.senders[0], *round = &d.senders[1];
  load->place.of = HV_TURN_LOAD;
  round->place.of = HV_TURN_ROUND;
  hv_bulk_waits(&d.bulk, &round->place, 10 * SIZE, d.now_us);
  round->has = 5;
  sends(&load->place);
  sends(&round->place);
  runs(&d, 200000);
  assert_int_equal(load->sent, 0);
  assert_in_range(round->sent, 2, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(senders_share_the_rate_in_turns),        cmocka_unit_test(small_message_never_waits),
      cmocka_unit_test(sender_that_leaves_keeps_no_turn),       cmocka_unit_test(rest_saves_little),
      cmocka_unit_test(limit_that_ends_lets_all_send),          cmocka_unit_test(load_has_a_quarter_while_a_round_waits),
      cmocka_unit_test(round_goes_before_a_load_under_a_limit),
  };
  return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
