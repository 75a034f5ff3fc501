#include "lib/msgs.h"

#include "net/wire.h"

#include <stdio.h>
#include <string.h>

const hv_versions msgs_own = {HV_PROTOCOL_LOWEST, HV_PROTOCOL_HIGHEST, HV_PROTOCOL_FEATURES};

static size_t below(check_rng *rng, size_t n) {
  return (size_t)(check_random(rng) % n);
}

static hv_span random_span(check_rng *rng, msgs_sample *s, size_t most) {
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

static size_t random_records(check_rng *rng, msgs_sample *s, hv_record *out) {
  size_t n = below(rng, MSGS_RECORDS + 1);
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

static hv_msg_find random_find(check_rng *rng) {
  hv_msg_find find = {.want_records = (uint8_t)below(rng, 2), .n_contacts = (uint8_t)below(rng, HV_CONTACTS_MAX + 1)};
  random_bytes(rng, &find.target, sizeof find.target);
  find.key = find.target;
  find.key.bytes[31] ^= (uint8_t)below(rng, 2);
  return find;
}

static hv_msg_found random_found(check_rng *rng, msgs_sample *s) {
  return (hv_msg_found){s->records, random_records(rng, s, s->records), s->contacts, below(rng, HV_CONTACTS_MAX + 1)};
}

static void random_dht_msg(check_rng *rng, hv_msg_kind kind, msgs_sample *s) {
  if (kind == HV_MSG_FIND) {
    s->msg.u.find = random_find(rng);
    s->msg.u.find.me = random_span(rng, s, HV_CONTACT_ADDRS_MAX);
  } else if (kind == HV_MSG_FINDS) {
    s->msg.u.finds = (hv_msg_finds){s->finds, below(rng, MSGS_FINDS + 1), random_span(rng, s, HV_CONTACT_ADDRS_MAX)};
    for (size_t i = 0; i < s->msg.u.finds.n_finds; i++)
      s->finds[i] = random_find(rng);
  } else if (kind == HV_MSG_FOUNDS) { /* all of the same records and contacts */
    random_dht_msg(rng, HV_MSG_FOUND, s);
    hv_msg_found one = s->msg.u.found;
    s->msg.u.founds = (hv_msg_founds){s->founds, below(rng, MSGS_FINDS + 1)};
    for (size_t i = 0; i < s->msg.u.founds.n_founds; i++)
      s->founds[i] = one;
  } else if (kind == HV_MSG_FOUND) {
    s->msg.u.found = random_found(rng, s);
    for (size_t i = 0; i < s->msg.u.found.n_contacts; i++) {
      random_bytes(rng, &s->contacts[i].id, sizeof s->contacts[i].id);
      s->contacts[i].addrs = random_span(rng, s, HV_CONTACT_ADDRS_MAX);
    }
  } else if (kind == HV_MSG_STORE) {
    s->msg.u.store = (hv_msg_store){s->records, random_records(rng, s, s->records), random_span(rng, s, HV_CONTACT_ADDRS_MAX)};
  } else {
    s->msg.u.stored = (hv_msg_stored){s->verdicts, below(rng, MSGS_RECORDS + 1), s->newer, random_records(rng, s, s->newer)};
    for (size_t i = 0; i < s->msg.u.stored.n_verdicts; i++)
      s->verdicts[i] = (hv_status)below(rng, HV_STATUS_COUNT);
  }
}

static void random_match_msg(check_rng *rng, hv_msg_kind kind, msgs_sample *s) {
  if (kind == HV_MSG_JOIN) {
    hv_msg_join *join = &s->msg.u.join;
    *join = (hv_msg_join){.key = random_span(rng, s, HV_MATCH_KEY_MAX),
                          .epoch = random_span(rng, s, HV_MATCH_EPOCH_MAX),
                          .n_chunks = (uint32_t)check_random(rng),
                          .addrs = random_span(rng, s, HV_CONTACT_ADDRS_MAX),
                          .auxiliary = (uint8_t)below(rng, 2),
                          .bandwidth = check_random(rng) >> below(rng, 64),
                          .expected = (uint32_t)check_random(rng) >> below(rng, 32),
                          .wait_ms = (uint32_t)check_random(rng),
                          .gather_size = (uint32_t)check_random(rng) >> below(rng, 32),
                          .avoid = random_span(rng, s, HV_MATCH_AVOID_MAX * sizeof(hv_peer_id)),
                          .stay = (uint8_t)below(rng, 2),
                          .known = (uint32_t)check_random(rng) >> below(rng, 32)};
    random_bytes(rng, &join->schema, sizeof join->schema);
  } else if (kind == HV_MSG_ACCEPTED) {
    s->msg.u.accepted = (hv_msg_accepted){(uint32_t)check_random(rng), (uint32_t)check_random(rng)};
  } else if (kind == HV_MSG_REDIRECT) {
    random_bytes(rng, &s->msg.u.redirect.to.id, sizeof(hv_peer_id));
    s->msg.u.redirect.to.addrs = random_span(rng, s, HV_CONTACT_ADDRS_MAX);
  } else if (kind == HV_MSG_DISBAND) {
    s->msg.u.disband = (hv_msg_disband){(hv_status)(1 + below(rng, HV_STATUS_COUNT - 1)), random_span(rng, s, HV_MSG_TEXT_MAX),
                                        random_span(rng, s, sizeof s->bytes), check_random(rng)};
  } else if (kind == HV_MSG_BEGIN) {
    hv_msg_begin *begin = &s->msg.u.begin;
    *begin = (hv_msg_begin){
        .leader = (uint32_t)check_random(rng), .members = s->members, .n_members = below(rng, HV_MATCH_MEMBERS_MAX + 1)};
    random_bytes(rng, begin->nonce, sizeof begin->nonce);
    for (size_t i = 0; i < begin->n_members; i++) {
      s->members[i] = (hv_match_member){.addrs = random_span(rng, s, HV_CONTACT_ADDRS_MAX), .auxiliary = (uint8_t)below(rng, 2)};
      random_bytes(rng, &s->members[i].id, sizeof s->members[i].id);
      s->members[i].first = (uint32_t)check_random(rng);
      s->members[i].count = (uint32_t)check_random(rng);
      s->members[i].gather_size = (uint32_t)check_random(rng);
    }
  } else if (kind == HV_MSG_SUMMON) {
    s->msg.u.summon = (hv_msg_summon){random_span(rng, s, HV_MATCH_KEY_MAX),
                                      random_span(rng, s, HV_MATCH_EPOCH_MAX),
                                      random_span(rng, s, HV_CONTACT_ADDRS_MAX),
                                      check_random(rng),
                                      (uint8_t)below(rng, 2),
                                      check_random(rng)};
  } else if (kind == HV_MSG_SUMMONED) {
    s->msg.u.summoned = (hv_msg_summoned){(uint8_t)below(rng, HV_SUMMONED_KINDS), check_random(rng), check_random(rng)};
  }
}

void msgs_random(check_rng *rng, hv_msg_kind kind, msgs_sample *s) {
  memset(&s->msg, 0, sizeof s->msg);
  s->msg.kind = kind;
  switch (kind) {
  case HV_MSG_REFUSAL:
    s->msg.u.refusal = (hv_msg_refusal){(hv_status)(1 + below(rng, HV_STATUS_COUNT - 1)), random_span(rng, s, HV_MSG_TEXT_MAX)};
    break;
  case HV_MSG_HELLO:
    s->msg.u.hello = (hv_msg_hello){.me = random_card(rng), .agent = random_span(rng, s, HV_MSG_TEXT_MAX), .cards = s->cards};
    s->msg.u.hello.n_cards = below(rng, HV_CARDS_MAX + 1);
    s->msg.u.hello.life = check_random(rng);
    s->msg.u.hello.age_ms = check_random(rng);
    s->msg.u.hello.denials = check_random(rng);
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
  case HV_MSG_SHARE:
    for (int i = 0; i < HV_ROUND_ID_SIZE; i++)
      s->msg.u.share.round[i] = (uint8_t)check_random(rng);
    s->msg.u.share.member = (uint32_t)check_random(rng);
    random_bytes(rng, &s->msg.u.share.weight, sizeof s->msg.u.share.weight);
    random_bytes(rng, &s->msg.u.share.norm, sizeof s->msg.u.share.norm);
    s->msg.u.share.view = (uint32_t)check_random(rng);
    s->msg.u.share.lacks = random_span(rng, s, 300);
    break;
  case HV_MSG_CHUNK:
    s->msg.u.chunk =
        (hv_msg_chunk){(uint32_t)check_random(rng), random_span(rng, s, HV_CHUNK_FROM_MAX), (uint32_t)check_random(rng)};
    break;
  case HV_MSG_ATTEND:
    random_bytes(rng, s->msg.u.attend.round, HV_ROUND_ID_SIZE);
    s->msg.u.attend.member = (uint32_t)check_random(rng);
    s->msg.u.attend.view = (uint32_t)check_random(rng);
    break;
  case HV_MSG_DEPART:
    s->msg.u.depart = (hv_msg_depart){.key = random_span(rng, s, HV_MATCH_KEY_MAX), .run = (uint32_t)check_random(rng)};
    if (below(rng, 2))
      random_bytes(rng, s->msg.u.depart.round, HV_ROUND_ID_SIZE);
    break;
  case HV_MSG_DENIALS:
    s->msg.u.denials = (hv_msg_denials){random_span(rng, s, sizeof s->bytes)};
    break;
  case HV_MSG_DIAL:
    s->msg.u.dial = (hv_msg_dial){random_addr(rng), below(rng, 2), random_span(rng, s, HV_MSG_TEXT_MAX)};
    break;
  case HV_MSG_PRESENT:
    s->msg.u.present.life = check_random(rng);
    break;
  case HV_MSG_ENDED:
    s->msg.u.ended = (hv_msg_ended){s->ended, below(rng, HV_ENDED_MAX + 1)};
    for (size_t i = 0; i < s->msg.u.ended.n_peers; i++) {
      random_bytes(rng, &s->ended[i].id, sizeof s->ended[i].id);
      s->ended[i].life = check_random(rng);
      s->ended[i].ago_ms = check_random(rng) >> below(rng, 64);
    }
    break;
  case HV_MSG_STATE_WANTED:
    s->msg.u.state_wanted = (hv_msg_state_wanted){random_span(rng, s, HV_STATE_PREFIX_MAX), check_random(rng) >> below(rng, 64)};
    break;
  case HV_MSG_GIFT:
    s->msg.u.gift = (hv_msg_gift){.prefix = random_span(rng, s, HV_STATE_PREFIX_MAX),
                                  .epoch = check_random(rng) >> below(rng, 64),
                                  .size = check_random(rng) >> below(rng, 64),
                                  .manifest_size = (uint32_t)check_random(rng) >> below(rng, 32)};
    random_bytes(rng, s->msg.u.gift.ticket, sizeof s->msg.u.gift.ticket);
    random_bytes(rng, &s->msg.u.gift.digest, sizeof s->msg.u.gift.digest);
    if (below(rng, 2))
      random_bytes(rng, s->msg.u.gift.lineage, sizeof s->msg.u.gift.lineage);
    break;
  case HV_MSG_GIFT_PIECE:
    s->msg.u.gift_piece = (hv_msg_gift_piece){(uint8_t)below(rng, 2), check_random(rng) >> below(rng, 64)};
    break;
  case HV_MSG_GIFT_TAKEN:
    s->msg.u.gift_taken = (hv_msg_gift_taken){(uint8_t)below(rng, 2), check_random(rng) >> below(rng, 64)};
    break;
  case HV_MSG_NEWS:
    s->msg.u.news = (hv_msg_news){(uint8_t)below(rng, HV_NEWS_COUNT), (uint32_t)check_random(rng), (uint32_t)check_random(rng),
                                  random_span(rng, s, HV_CHUNK_FROM_MAX), check_random(rng)};
    break;
  case HV_MSG_STATE:
    random_bytes(rng, &s->msg.u.state.digest, sizeof s->msg.u.state.digest);
    break;
  case HV_MSG_PROGRESS:
    s->msg.u.progress =
        (hv_msg_progress){(uint32_t)check_random(rng), (uint32_t)check_random(rng), random_span(rng, s, HV_ZONE_MSG_BYTES_MAX)};
    break;
  case HV_MSG_PROGRESS_TOLD:
    s->msg.u.progress_told = (hv_msg_progress_told){(uint8_t)below(rng, 2), random_span(rng, s, HV_ZONE_MSG_BYTES_MAX)};
    break;
  case HV_MSG_FIND:
  case HV_MSG_FOUND:
  case HV_MSG_FINDS:
  case HV_MSG_FOUNDS:
  case HV_MSG_STORE:
  case HV_MSG_STORED:
    random_dht_msg(rng, kind, s);
    break;
  case HV_MSG_JOIN:
  case HV_MSG_GATHER:
  case HV_MSG_ACCEPTED:
  case HV_MSG_REDIRECT:
  case HV_MSG_DISBAND:
  case HV_MSG_BEGIN:
  case HV_MSG_SUMMON:
  case HV_MSG_SUMMONED:
    random_match_msg(rng, kind, s);
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
  assert_int_equal(a->life, b->life);
  assert_int_equal(a->age_ms, b->age_ms);
  assert_int_equal(a->denials, b->denials);
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

static void assert_same_join(const hv_msg_join *a, const hv_msg_join *b) {
  assert_same_span(a->key, b->key);
  assert_same_span(a->epoch, b->epoch);
  assert_memory_equal(&a->schema, &b->schema, sizeof a->schema);
  assert_int_equal(a->n_chunks, b->n_chunks);
  assert_same_span(a->addrs, b->addrs);
  assert_int_equal(a->auxiliary, b->auxiliary);
  assert_int_equal(a->bandwidth, b->bandwidth);
  assert_int_equal(a->expected, b->expected);
  assert_int_equal(a->wait_ms, b->wait_ms);
  assert_int_equal(a->gather_size, b->gather_size);
  assert_same_span(a->avoid, b->avoid);
  assert_int_equal(a->stay, b->stay);
  assert_int_equal(a->known, b->known);
}

static void assert_same_begin(const hv_msg_begin *a, const hv_msg_begin *b) {
  assert_memory_equal(a->nonce, b->nonce, sizeof a->nonce);
  assert_int_equal(a->leader, b->leader);
  assert_int_equal(a->n_members, b->n_members);
  for (size_t i = 0; i < a->n_members; i++) {
    assert_true(hv_peer_equal(&a->members[i].id, &b->members[i].id));
    assert_same_span(a->members[i].addrs, b->members[i].addrs);
    assert_int_equal(a->members[i].auxiliary, b->members[i].auxiliary);
    assert_int_equal(a->members[i].first, b->members[i].first);
    assert_int_equal(a->members[i].count, b->members[i].count);
    assert_int_equal(a->members[i].gather_size, b->members[i].gather_size);
  }
}

static void assert_same_match_msg(const hv_msg *a, const hv_msg *b) {
  if (a->kind == HV_MSG_ACCEPTED) {
    assert_int_equal(a->u.accepted.present, b->u.accepted.present);
    assert_int_equal(a->u.accepted.expected, b->u.accepted.expected);
  } else if (a->kind == HV_MSG_REDIRECT) {
    assert_true(hv_peer_equal(&a->u.redirect.to.id, &b->u.redirect.to.id));
    assert_same_span(a->u.redirect.to.addrs, b->u.redirect.to.addrs);
  } else if (a->kind == HV_MSG_DISBAND) {
    assert_int_equal(a->u.disband.status, b->u.disband.status);
    assert_same_span(a->u.disband.text, b->u.disband.text);
    assert_same_span(a->u.disband.schema_text, b->u.disband.schema_text);
    assert_int_equal(a->u.disband.at, b->u.disband.at);
  } else if (a->kind == HV_MSG_SUMMON) {
    assert_same_span(a->u.summon.key, b->u.summon.key);
    assert_same_span(a->u.summon.epoch, b->u.summon.epoch);
    assert_same_span(a->u.summon.addrs, b->u.summon.addrs);
    assert_int_equal(a->u.summon.at, b->u.summon.at);
    assert_int_equal(a->u.summon.seeks, b->u.summon.seeks);
    assert_int_equal(a->u.summon.comes, b->u.summon.comes);
  } else if (a->kind == HV_MSG_SUMMONED) {
    assert_int_equal(a->u.summoned.state, b->u.summoned.state);
    assert_int_equal(a->u.summoned.at, b->u.summoned.at);
    assert_int_equal(a->u.summoned.comes, b->u.summoned.comes);
  }
}

void msgs_assert_same(const hv_msg *a, const hv_msg *b) {
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
  case HV_MSG_DEPART:
    assert_same_span(a->u.depart.key, b->u.depart.key);
    assert_memory_equal(a->u.depart.round, b->u.depart.round, HV_ROUND_ID_SIZE);
    assert_int_equal(a->u.depart.run, b->u.depart.run);
    break;
  case HV_MSG_DENIALS:
    assert_same_span(a->u.denials.list, b->u.denials.list);
    break;
  case HV_MSG_DIAL:
    assert_true(hv_addr_equal(&a->u.dial.addr, &b->u.dial.addr));
    assert_int_equal(a->u.dial.reached, b->u.dial.reached);
    assert_same_span(a->u.dial.text, b->u.dial.text);
    break;
  case HV_MSG_PRESENT:
    assert_int_equal(a->u.present.life, b->u.present.life);
    break;
  case HV_MSG_ENDED:
    assert_int_equal(a->u.ended.n_peers, b->u.ended.n_peers);
    for (size_t i = 0; i < a->u.ended.n_peers; i++) {
      assert_true(hv_peer_equal(&a->u.ended.peers[i].id, &b->u.ended.peers[i].id));
      assert_int_equal(a->u.ended.peers[i].life, b->u.ended.peers[i].life);
      assert_int_equal(a->u.ended.peers[i].ago_ms, b->u.ended.peers[i].ago_ms);
    }
    break;
  case HV_MSG_GIFT:
    assert_same_span(a->u.gift.prefix, b->u.gift.prefix);
    assert_memory_equal(a->u.gift.ticket, b->u.gift.ticket, HV_GIFT_TICKET);
    assert_int_equal(a->u.gift.epoch, b->u.gift.epoch);
    assert_memory_equal(a->u.gift.lineage, b->u.gift.lineage, HV_GIFT_LINEAGE);
    assert_int_equal(a->u.gift.size, b->u.gift.size);
    assert_int_equal(a->u.gift.manifest_size, b->u.gift.manifest_size);
    assert_memory_equal(&a->u.gift.digest, &b->u.gift.digest, sizeof a->u.gift.digest);
    break;
  case HV_MSG_GIFT_PIECE:
    assert_int_equal(a->u.gift_piece.manifest, b->u.gift_piece.manifest);
    assert_int_equal(a->u.gift_piece.offset, b->u.gift_piece.offset);
    break;
  case HV_MSG_GIFT_TAKEN:
    assert_int_equal(a->u.gift_taken.whole, b->u.gift_taken.whole);
    assert_int_equal(a->u.gift_taken.bytes, b->u.gift_taken.bytes);
    break;
  case HV_MSG_STATE_WANTED:
    assert_same_span(a->u.state_wanted.prefix, b->u.state_wanted.prefix);
    assert_int_equal(a->u.state_wanted.number, b->u.state_wanted.number);
    break;
  case HV_MSG_PARCEL:
    assert_int_equal(a->u.parcel.size, b->u.parcel.size);
    assert_int_equal(a->u.parcel.offset, b->u.parcel.offset);
    assert_int_equal(a->u.parcel.receipt, b->u.parcel.receipt);
    break;
  case HV_MSG_SHARE:
    assert_memory_equal(a->u.share.round, b->u.share.round, HV_ROUND_ID_SIZE);
    assert_int_equal(a->u.share.member, b->u.share.member);
    assert_memory_equal(&a->u.share.weight, &b->u.share.weight, sizeof a->u.share.weight);
    assert_memory_equal(&a->u.share.norm, &b->u.share.norm, sizeof a->u.share.norm);
    assert_int_equal(a->u.share.view, b->u.share.view);
    assert_same_span(a->u.share.lacks, b->u.share.lacks);
    break;
  case HV_MSG_CHUNK:
    assert_int_equal(a->u.chunk.index, b->u.chunk.index);
    assert_same_span(a->u.chunk.from, b->u.chunk.from);
    assert_int_equal(a->u.chunk.view, b->u.chunk.view);
    break;
  case HV_MSG_ATTEND:
    assert_memory_equal(a->u.attend.round, b->u.attend.round, HV_ROUND_ID_SIZE);
    assert_int_equal(a->u.attend.member, b->u.attend.member);
    assert_int_equal(a->u.attend.view, b->u.attend.view);
    break;
  case HV_MSG_NEWS:
    assert_int_equal(a->u.news.what, b->u.news.what);
    assert_int_equal(a->u.news.view, b->u.news.view);
    assert_int_equal(a->u.news.installed, b->u.news.installed);
    assert_same_span(a->u.news.members, b->u.news.members);
    assert_int_equal(a->u.news.rate, b->u.news.rate);
    break;
  case HV_MSG_STATE:
    assert_memory_equal(&a->u.state.digest, &b->u.state.digest, sizeof a->u.state.digest);
    break;
  case HV_MSG_JOIN:
    assert_same_join(&a->u.join, &b->u.join);
    break;
  case HV_MSG_BEGIN:
    assert_same_begin(&a->u.begin, &b->u.begin);
    break;
  case HV_MSG_GATHER:
    break;
  case HV_MSG_ACCEPTED:
  case HV_MSG_REDIRECT:
  case HV_MSG_DISBAND:
  case HV_MSG_SUMMON:
  case HV_MSG_SUMMONED:
    assert_same_match_msg(a, b);
    break;
  case HV_MSG_PROGRESS:
    assert_true(a->u.progress.run == b->u.progress.run && a->u.progress.depth == b->u.progress.depth);
    assert_same_span(a->u.progress.words, b->u.progress.words);
    break;
  case HV_MSG_PROGRESS_TOLD:
    assert_int_equal(a->u.progress_told.absent, b->u.progress_told.absent);
    assert_same_span(a->u.progress_told.words, b->u.progress_told.words);
    break;
  case HV_MSG_FIND:
    assert_same_find(&a->u.find, &b->u.find);
    break;
  case HV_MSG_FOUND:
    assert_same_found(&a->u.found, &b->u.found);
    break;
  case HV_MSG_FINDS:
    assert_int_equal(a->u.finds.n_finds, b->u.finds.n_finds);
    for (size_t i = 0; i < a->u.finds.n_finds; i++)
      assert_same_find(&a->u.finds.finds[i], &b->u.finds.finds[i]);
    assert_same_span(a->u.finds.me, b->u.finds.me);
    break;
  case HV_MSG_FOUNDS:
    assert_int_equal(a->u.founds.n_founds, b->u.founds.n_founds);
    for (size_t i = 0; i < a->u.founds.n_founds; i++)
      assert_same_found(&a->u.founds.founds[i], &b->u.founds.founds[i]);
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

hv_status msgs_read(hv_span bytes, hv_mem *mem, size_t budget) {
  hv_mem outside;
  hv_wire_msg got;
  hv_mem_init(&outside, NULL, HV_MEM_UNLIMITED);
  uint8_t *copy = hv_mem_alloc(&outside, bytes.size);
  if (bytes.size)
    memcpy(copy, bytes.data, bytes.size);
  hv_status status = hv_wire_read(hv_span_of(copy, bytes.size), &msgs_own, mem, budget, &got);
  if (status == HV_OK)
    hv_wire_release(&got);
  hv_mem_free(copy);
  assert_int_equal(mem->blocks, 0);
  return status;
}
