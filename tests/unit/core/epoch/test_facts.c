/* The facts of a round: one row for each kind of end. */
#include "lib/check.h"
#include "lib/fake_env.h"

#include "core/epoch/facts.h"
#include "core/epoch/word.h"

typedef struct row {
  hv_status status;
  int has_group, is_given_up;
  size_t trainers, hubs;
  uint64_t stamps[2]; /* of a second averaging; 0: there is none */
  hv_epoch_outcome outcome;
} row;

static hv_average_member trainer(size_t index, double share) {
  return (hv_average_member){.id = fake_peer(index), .me = index == 0, .share = share};
}

static void each_end_of_a_round_has_its_outcome(void **unused) {
  (void)unused;
  const row rows[] = {
      {HV_OK, 1, 0, 2, 0, {7}, HV_EPOCH_CONFIRMED},
      {HV_OK, 1, 0, 2, 1, {7, 9}, HV_EPOCH_CONFIRMED},
      {HV_OK, 1, 0, 2, 0, {0}, HV_EPOCH_PARTED},
      {HV_OK, 1, 0, 2, 0, {0, 9}, HV_EPOCH_PARTED}, /* of two averages one is nobody else's */
      {HV_OK, 1, 0, 1, 0, {0}, HV_EPOCH_NOBODY},
      {HV_OK, 1, 0, 1, 1, {7}, HV_EPOCH_NOBODY}, /* a hub is no company */
      {HV_EXISTS, 0, 0, 0, 0, {0}, HV_EPOCH_LEFT_OUT},
      {HV_EXISTS, 1, 1, 2, 0, {0}, HV_EPOCH_LEFT_OUT},
      {HV_TIMEOUT, 0, 0, 0, 0, {0}, HV_EPOCH_NOBODY},
      {HV_TIMEOUT, 1, 0, 0, 0, {0}, HV_EPOCH_FAILED}, /* there was a group, and its round took too long */
      {HV_TIMEOUT, 1, 0, 2, 0, {0}, HV_EPOCH_FAILED},
      {HV_CANCELLED, 0, 0, 0, 0, {0}, HV_EPOCH_FAILED},
      {HV_CANCELLED, 0, 1, 0, 0, {0}, HV_EPOCH_NOBODY}, /* given up, as nobody was left */
      {HV_CANCELLED, 1, 1, 0, 0, {0}, HV_EPOCH_FAILED}, /* too late: it had a group */
      {HV_CLOSED, 1, 1, 2, 0, {0}, HV_EPOCH_FAILED},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const row *r = &rows[i];
    hv_average_member members[4] = {{.share = 0}};
    hv_lineage_member known[HV_EPOCH_MEMBERS];
    for (size_t k = 0; k < r->trainers + r->hubs; k++) {
      members[k] = trainer(k, 1);
      members[k].auxiliary = k >= r->trainers;
    }
    hv_average_outcome parts[] = {{.members = members, .n_members = r->trainers + r->hubs, .stamp = r->stamps[0]},
                                  {.members = members, .n_members = r->trainers + r->hubs, .stamp = r->stamps[1]}};
    hv_epoch_round round = {.status = r->status,
                            .parts = parts,
                            .n_parts = r->stamps[1] ? 2 : 1,
                            .has_group = r->has_group,
                            .is_given_up = r->is_given_up,
                            .has_replica = 1};
    hv_epoch_facts f = hv_epoch_facts_of(&round, known);
    if (f.outcome != r->outcome)
      fail_msg("row %zu is %s", i, hv_epoch_outcome_name(f.outcome));
    assert_int_equal(f.n_trainers, r->trainers);
    assert_int_equal(f.n_members, r->trainers + r->hubs);
    assert_int_equal(f.stamp, r->outcome == HV_EPOCH_PARTED ? 0 : r->stamps[0]);
  }
}

/* Rule 2 of docs/design/lone-peers.md. */
static void hub_is_company_to_one_that_nobody_can_dial(void **unused) {
  (void)unused;
  const struct {
    int64_t rank;
    int counts_others;
    size_t n_hubs;
    hv_epoch_outcome outcome;
  } rows[] = {
      {HV_RANK_TELLS + HV_RANK_MADE + HV_RANK_BY_ITSELF, 0, 1, HV_EPOCH_CONFIRMED},
      {HV_RANK_TELLS + HV_RANK_MADE + HV_RANK_BY_ITSELF, 0, 0, HV_EPOCH_NOBODY},
      {HV_RANK_TELLS + HV_RANK_MADE + HV_RANK_BY_ITSELF, 1, 1, HV_EPOCH_NOBODY}, /* the hub counts others in this epoch */
      {HV_RANK_TELLS + HV_RANK_BY_ITSELF, 0, 1, HV_EPOCH_NOBODY},                /* a newcomer */
      {HV_RANK_TELLS + HV_RANK_MADE, 0, 1, HV_EPOCH_NOBODY},
      {HV_RANK_WRONG, 0, 1, HV_EPOCH_NOBODY},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t bytes[HV_WORD_MAX];
    hv_average_member members[] = {trainer(0, 1), {.id = fake_peer(1), .auxiliary = 1}};
    members[0].gather = hv_span_of(bytes, hv_word_write(&(hv_word){.rank = rows[i].rank}, bytes));
    hv_average_outcome part = {.members = members, .n_members = 1 + rows[i].n_hubs, .stamp = 7};
    hv_lineage_member known[HV_EPOCH_MEMBERS];
    hv_epoch_round round = {
        .status = HV_OK, .parts = &part, .n_parts = 1, .has_group = 1, .has_replica = 1, .counts_others = rows[i].counts_others};
    assert_int_equal(hv_epoch_facts_of(&round, known).outcome, rows[i].outcome);
  }
}

/* Of two averagings the least share counts, and a hub, which has no averages, loses nothing and knows of no loss. */
static void peers_with_averages_count_lost_values(void **unused) {
  (void)unused;
  uint8_t bytes[HV_WORD_MAX];
  hv_average_member first[] = {trainer(0, 1), trainer(1, 0), {.id = fake_peer(2), .auxiliary = 1}};
  first[1].gather = hv_span_of(bytes, hv_word_write(&(hv_word){.rank = HV_RANK_REACHABLE}, bytes));
  hv_average_member second[] = {trainer(0, 0.75), trainer(1, 1)};
  hv_average_outcome parts[] = {{.members = first, .n_members = 3, .stamp = 5}, {.members = second, .n_members = 2, .stamp = 6}};
  hv_lineage_member known[HV_EPOCH_MEMBERS];
  for (int has_replica = 0; has_replica <= 1; has_replica++) {
    hv_epoch_round round = {.status = HV_OK, .parts = parts, .n_parts = 2, .has_group = 1, .has_replica = has_replica, .alike = 1};
    hv_epoch_facts f = hv_epoch_facts_of(&round, known);
    assert_int_equal(f.n_lost, has_replica ? 2 : 0);
    assert_true(f.share == 0.75);
    assert_false(f.is_whole);
    assert_int_equal(hv_epoch_round_event(&round, &f, known).ok, 0); /* the replica is another one now */
    round.n_parts = 1;
    f = hv_epoch_facts_of(&round, known);
    assert_true(f.is_whole);
    assert_int_equal(f.n_lost, has_replica); /* none of its values is as good as all: what is left is an average of the same */
    hv_epoch_event event = hv_epoch_round_event(&round, &f, known);
    assert_int_equal(event.ok, 1);
    assert_int_equal(event.n_members, 3);
    assert_true(known[2].is_auxiliary && !known[1].is_auxiliary && hv_peer_equal(&known[1].peer, &first[1].id));
  }
}

/* Rule 21 of docs/design/log.md. */
static void member_that_listens_loses_nothing(void **unused) {
  (void)unused;
  hv_average_member members[] = {trainer(0, 1), trainer(1, 0)};
  hv_average_outcome part = {.members = members, .n_members = 2, .stamp = 5};
  hv_lineage_member known[HV_EPOCH_MEMBERS];
  hv_epoch_round round = {.status = HV_OK, .parts = &part, .n_parts = 1, .has_group = 1, .has_replica = 1, .alike = 1};
  hv_epoch_facts f = hv_epoch_facts_of(&round, known);
  assert_int_equal(f.n_lost, 0);
  assert_int_equal(f.outcome, HV_EPOCH_CONFIRMED);
  members[1].share = 0.5; /* it has given some */
  assert_int_equal(hv_epoch_facts_of(&round, known).n_lost, 1);
}

/* Alone nothing changes; after a failure the program says what is in the replica. */
static void replica_changes_with_an_average_of_others(void **unused) {
  (void)unused;
  hv_average_member members[] = {trainer(0, 1), trainer(1, 1)};
  hv_average_outcome part = {.members = members, .n_members = 2};
  hv_lineage_member known[HV_EPOCH_MEMBERS];
  for (int alike = -1; alike <= 1; alike++)
    for (uint64_t stamp = 0; stamp <= 1; stamp++)
      for (int failed = 0; failed <= 1; failed++) {
        part.stamp = stamp;
        hv_epoch_round round = {.which = HV_EPOCH_REPLICA_STATE,
                                .status = failed ? HV_CLOSED : HV_OK,
                                .parts = &part,
                                .n_parts = 1,
                                .has_group = 1,
                                .has_replica = 1,
                                .alike = failed ? alike : alike > 0};
        hv_epoch_facts f = hv_epoch_facts_of(&round, known);
        assert_int_equal(hv_epoch_round_event(&round, &f, known).ok, failed ? alike : !stamp || alike > 0);
      }
}

/* A group may be larger than the machine's list, and their words are strangers' bytes. */
static void members_beyond_the_limit_are_passed_over(void **unused) {
  (void)unused;
  static hv_average_member many[HV_EPOCH_MEMBERS + 9];
  static hv_lineage_member known[HV_EPOCH_MEMBERS];
  for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
    many[i] = trainer(i, 1);
    many[i].gather = hv_span_of("\x92\xc4\x10 no word", i % 12);
  }
  hv_average_outcome part = {.members = many, .n_members = sizeof many / sizeof *many, .stamp = 3};
  hv_epoch_round round = {.status = HV_OK, .parts = &part, .n_parts = 1, .has_group = 1};
  hv_epoch_facts f = hv_epoch_facts_of(&round, known);
  assert_int_equal(f.n_members, HV_EPOCH_MEMBERS);
  assert_int_equal(f.outcome, HV_EPOCH_CONFIRMED);
  for (size_t i = 0; i < f.n_members; i++)
    assert_false(known[i].has_word);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_end_of_a_round_has_its_outcome),        cmocka_unit_test(peers_with_averages_count_lost_values),
      cmocka_unit_test(hub_is_company_to_one_that_nobody_can_dial), cmocka_unit_test(member_that_listens_loses_nothing),
      cmocka_unit_test(replica_changes_with_an_average_of_others),  cmocka_unit_test(members_beyond_the_limit_are_passed_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
