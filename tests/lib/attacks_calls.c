#include "lib/attacks.h"

#include "core/dht/record.h"
#include "lib/check.h"
#include "net/wire.h"

#include <stdio.h>
#include <string.h>

/* Attacks with calls and streams of hivemind_c's protocol. */

/* Writes one message, which it sends again and again. */
static hv_span write_message(attacker *a, const hv_msg *msg) {
  hv_versions mine = {.lowest = HV_PROTOCOL_LOWEST, .highest = HV_PROTOCOL_HIGHEST};
  a->message.size = 0;
  assert_int_equal(hv_wire_write(msg, HV_PROTOCOL_LOWEST, &mine, &a->message), HV_OK);
  return hv_span_of(a->message.data, a->message.size);
}

/* Asks the same on one connection, as often as its rate allows; takes no answer. */
static void ask_again_and_again(attacker *a, const hv_msg *msg) {
  hv_span message = write_message(a, msg);
  h2_client client;
  int goes_on = attacks_open(a, &client);
  while (goes_on) {
    size_t before = client.sent;
    goes_on = h2_ask(&client, message);
    goes_on = attacks_spend(a, client.sent - before) && goes_on;
  }
  h2_close(&client);
}

static hv_hash place_of(const char *key) {
  hv_hash place;
  hv_identity_sha256(hv_span_of(key, strlen(key)), &place);
  return place;
}

/* ---- places, and requests that do not end ---- */

static void hold_calls(attacker *a, const char *method, int each, hv_span begun) {
  h2_client client;
  int goes_on = attacks_open(a, &client);
  for (int i = 0; goes_on && i < each; i++) {
    size_t before = client.sent;
    goes_on = h2_begin(&client, method) && (!begun.size || h2_say(&client, begun, 1 << 20, 0));
    goes_on = attacks_spend(a, client.sent - before) && goes_on;
  }
  attacks_pause(a, 3000);
  h2_close(&client);
}

static void silent_streams(attacker *a) {
  hold_calls(a, "Bulk", 100, hv_span_of(NULL, 0));
}

static void silent_calls(attacker *a) {
  hold_calls(a, "Call", 600, hv_span_of(NULL, 0));
}

static void begun_calls(attacker *a) {
  hold_calls(a, "Call", 100, hv_span_of("begun", 5));
}

/* A request of 1 MiB, of which one byte comes at a time. */
static void slow_requests(attacker *a) {
  h2_client client;
  int goes_on = attacks_open(a, &client) && h2_begin(&client, "Call") && h2_say(&client, hv_span_of("\10", 1), 1 << 20, 0);
  while (goes_on)
    goes_on = attacks_spend(a, 10) && attacks_pause(a, 20) && h2_say(&client, hv_span_of("\1", 1), 0, 0);
  h2_close(&client);
}

/* More than a request may have, on one call after another. */
static void large_requests(attacker *a) {
  uint8_t bytes[H2_FRAME_MAX - 5];
  h2_client client;
  int goes_on = attacks_open(a, &client);
  memset(bytes, 0x42, sizeof bytes);
  while (goes_on) {
    goes_on = h2_begin(&client, "Call") && h2_say(&client, hv_span_of(bytes, sizeof bytes), 16 << 20, 0);
    for (int i = 0; goes_on && i < 200; i++)
      goes_on = attacks_spend(a, sizeof bytes) && h2_say(&client, hv_span_of(bytes, sizeof bytes), 0, 0);
  }
  h2_close(&client);
}

/* Bytes that are nearly a message. */
static void false_messages(attacker *a) {
  hv_span good = write_message(a, &(hv_msg){.kind = HV_MSG_FIND, .u.find = {.want_records = 1, .n_contacts = 20}});
  uint8_t bytes[512];
  h2_client client;
  int goes_on = attacks_open(a, &client) && good.size <= sizeof bytes;
  while (goes_on) {
    memcpy(bytes, good.data, good.size);
    for (int i = 0; i < 3; i++)
      bytes[attacks_random(a, good.size)] = (uint8_t)attacks_random(a, 256);
    size_t before = client.sent;
    goes_on = h2_ask(&client, hv_span_of(bytes, 1 + attacks_random(a, good.size)));
    goes_on = attacks_spend(a, client.sent - before) && goes_on;
  }
  h2_close(&client);
}

/* ---- the DHT ---- */

/* Stores 1 MiB under one key, and asks for it with a window of 0. */
static void untaken_answers(attacker *a) {
  enum { RECORDS = 16, SIZE = 60000 };
  static uint8_t value[SIZE];
  char subkeys[RECORDS][16];
  hv_record records[RECORDS] = {0};
  hv_msg store = {.kind = HV_MSG_STORE, .u.store = {records, RECORDS, {NULL, 0}}};
  hv_hash place = place_of("siege");
  hv_msg find = {.kind = HV_MSG_FIND, .u.find = {.target = place, .key = place, .want_records = 1, .n_contacts = 1}};
  h2_client client;
  for (int i = 0; i < RECORDS; i++) {
    snprintf(subkeys[i], sizeof subkeys[i], "%d", i);
    records[i] = (hv_record){.key = hv_span_of("siege", 5),
                             .subkey = hv_span_of(subkeys[i], strlen(subkeys[i])),
                             .has_subkey = 1,
                             .value = hv_span_of(value, SIZE),
                             .ttl_ms = 600000};
  }
  if (attacks_open(a, &client) && h2_ask(&client, write_message(a, &store)))
    attacks_spend(a, client.sent);
  h2_close(&client);
  ask_again_and_again(a, &find);
}

static void untaken_echoes(attacker *a) {
  static uint8_t bytes[1 << 16];
  ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of(bytes, sizeof bytes)});
}

static void many_finds(attacker *a) {
  hv_msg_find finds[HV_FINDS_MAX];
  for (size_t i = 0; i < HV_FINDS_MAX; i++) {
    finds[i] =
        (hv_msg_find){.target = place_of("siege"), .key = place_of("siege"), .want_records = 1, .n_contacts = HV_CONTACTS_MAX};
    finds[i].target.bytes[0] = (uint8_t)i;
  }
  ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_FINDS, .u.finds = {finds, HV_FINDS_MAX, {NULL, 0}}});
}

typedef struct signer {
  hv_env env; /* first; of this only two functions are called */
  const hv_identity *identity;
} signer;

static void sign_sha256(hv_env *env, hv_span bytes, hv_hash *out) {
  (void)env;
  hv_identity_sha256(bytes, out);
}

static hv_status sign_bytes(hv_env *env, const char *domain, hv_span bytes, uint8_t out[64]) {
  return hv_identity_sign(((signer *)env)->identity, domain, bytes, out);
}

/* As many signatures as one message holds, each to be checked. */
static void signed_records(attacker *a) {
  enum { SUBKEY_MAX = 96, VERSIONS = 1 << 20 };
  signer me = {.env = {.sha256 = sign_sha256, .sign = sign_bytes}, .identity = a->key.identity};
  hv_record *records = hv_mem_array(&a->key.mem, HV_RECORDS_MAX, sizeof *records);
  char(*subkeys)[SUBKEY_MAX] = hv_mem_array(&a->key.mem, HV_RECORDS_MAX, sizeof *subkeys);
  char owner[HV_PEER_TEXT_MAX];
  hv_hash place = place_of("signed");
  hv_peer_print(hv_identity_peer(a->key.identity), owner);
  uint64_t version = 1 + attacks_random(a, VERSIONS);
  for (size_t i = 0; i < HV_RECORDS_MAX; i++) {
    snprintf(subkeys[i], SUBKEY_MAX, "[owner:%s]%zu", owner, i);
    records[i] = (hv_record){.key = hv_span_of("signed", 6),
                             .subkey = hv_span_of(subkeys[i], strlen(subkeys[i])),
                             .has_subkey = 1,
                             .value = hv_span_of("x", 1),
                             .ttl_ms = 60000,
                             .lease_ms = 60000,
                             .version = version};
    hv_record_sign(&me.env, hv_identity_peer(a->key.identity), &place, &records[i]);
  }
  ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_STORE, .u.store = {records, HV_RECORDS_MAX, {NULL, 0}}});
  hv_mem_free(subkeys);
  hv_mem_free(records);
}

/* Tiny records under a key of others, and anywhere. */
static void tiny_records(attacker *a) {
  enum { EACH = 200 };
  static const char *const keys[] = {"friend", "siege_state", "tiny"};
  char subkeys[EACH][24];
  hv_record records[EACH];
  const char *key = keys[attacks_random(a, 3)];
  for (int i = 0; i < EACH; i++) {
    snprintf(subkeys[i], sizeof subkeys[i], "%llx", (unsigned long long)check_random(&a->rng));
    records[i] = (hv_record){.key = hv_span_of(key, strlen(key)),
                             .subkey = hv_span_of(subkeys[i], strlen(subkeys[i])),
                             .has_subkey = 1,
                             .value = hv_span_of("x", 1),
                             .ttl_ms = 3600000};
  }
  h2_client client;
  hv_msg store = {.kind = HV_MSG_STORE, .u.store = {records, EACH, {NULL, 0}}};
  if (attacks_open(a, &client) && h2_ask(&client, write_message(a, &store)))
    attacks_spend(a, client.sent);
  h2_close(&client);
}

/* ---- what a peer says of itself and of others ---- */

/* Control characters in a name, and cards of peers that nobody is. */
static void false_hellos(attacker *a) {
  static const char agent[] = "\33]0;owned\7\33[2J\r\nWARNING hivemind_c: send your key\302\233";
  hv_card cards[HV_CARDS_MAX];
  for (size_t i = 0; i < HV_CARDS_MAX; i++) {
    cards[i] = (hv_card){.n_addrs = 1};
    for (size_t j = 0; j < sizeof cards[i].id.key; j++)
      cards[i].id.key[j] = (uint8_t)attacks_random(a, 256);
    cards[i].addrs[0] = (hv_addr){.kind = HV_ADDR_IP4, .host.ip = {198, 19, (uint8_t)i, 7}, .port = (uint16_t)(1 + i)};
  }
  hv_msg hello = {.kind = HV_MSG_HELLO,
                  .u.hello = {.me = {.id = *hv_identity_peer(a->key.identity), .client_mode = 1},
                              .agent = hv_span_of(agent, sizeof agent - 1),
                              .cards = cards,
                              .n_cards = HV_CARDS_MAX,
                              .life = check_random(&a->rng) | 1}};
  ask_again_and_again(a, &hello);
}

static void false_calls(attacker *a) {
  switch (attacks_random(a, 5)) {
  case 0:
    ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_LEAVE});
    break;
  case 1:
    ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_DEPART, .u.depart = {.key = hv_span_of("siege", 5), .run = 1}});
    break;
  case 2:
    ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_PROGRESS, .u.progress = {.run = 1, .depth = 3}});
    break;
  case 3:
    ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_STATE_WANTED, .u.state_wanted = {hv_span_of("siege", 5), 1}});
    break;
  default:
    ask_again_and_again(
        a, &(hv_msg){.kind = HV_MSG_SUMMON, .u.summon = {.key = hv_span_of("siege", 5), .epoch = hv_span_of("1", 1), .seeks = 1}});
  }
}

/* Becomes a peer that the node has met, by a hello, and then calls as often as it can. A listening socket would give no more: a
 * client is alive without one. */
static void met_calls(attacker *a) {
  hv_msg hello = {.kind = HV_MSG_HELLO, .u.hello = {.me = {.id = *hv_identity_peer(a->key.identity), .client_mode = 1}, .life = 1}};
  h2_client client;
  if (attacks_open(a, &client) && h2_ask(&client, write_message(a, &hello)))
    attacks_spend(a, client.sent);
  attacks_pause(a, 100);
  h2_close(&client);
  ask_again_and_again(a, &(hv_msg){.kind = HV_MSG_ECHO, .u.echo.bytes = hv_span_of("?", 1)});
}

/* ---- streams ---- */

/* Opens a stream with this message on it, behind the size that stands before each on a stream. */
static int open_stream(attacker *a, h2_client *client, const hv_msg *first) {
  uint8_t bulk[4096];
  hv_span message = write_message(a, first);
  hv_le_put(bulk, message.size, 4);
  memcpy(bulk + 4, message.data, message.size);
  size_t before = client->sent;
  int sent = h2_begin(client, "Bulk") && h2_say(client, hv_span_of(bulk, 4 + message.size), 4 + message.size, 0);
  return attacks_spend(a, client->sent - before) && sent;
}

static void hold_streams(attacker *a, const hv_msg *first) {
  h2_client client;
  int goes_on = attacks_open(a, &client);
  for (int i = 0; goes_on && i < 60; i++)
    goes_on = open_stream(a, &client, first);
  attacks_pause(a, 2000);
  h2_close(&client);
}

static void false_streams(attacker *a) {
  hv_msg join = {.kind = HV_MSG_JOIN,
                 .u.join = {.key = hv_span_of("siege", 5), .epoch = hv_span_of("1", 1), .n_chunks = 1, .stay = 1}};
  join.u.join.wait_ms = 600000;
  switch (attacks_random(a, 4)) {
  case 0:
    hold_streams(a, &join);
    break;
  case 1:
    hold_streams(a, &(hv_msg){.kind = HV_MSG_SHARE, .u.share = {.member = 1, .weight = 1e30f}});
    break;
  case 2:
    hold_streams(a, &(hv_msg){.kind = HV_MSG_ATTEND, .u.attend = {.member = 1}});
    break;
  default:
    hold_streams(a, &(hv_msg){.kind = HV_MSG_STATE});
  }
}

/* Parcels that the program never receives: 4 MiB each, and one that never ends. */
static void untaken_parcels(attacker *a) {
  enum { SIZE = 4 << 20 };
  uint8_t bytes[H2_FRAME_MAX - 5];
  h2_client client;
  int goes_on = attacks_open(a, &client);
  memset(bytes, 0, sizeof bytes);
  while (goes_on) {
    hv_span head = write_message(a, &(hv_msg){.kind = HV_MSG_PARCEL, .u.parcel = {.size = SIZE}});
    uint8_t piece[64];
    goes_on = open_stream(a, &client, &(hv_msg){.kind = HV_MSG_PARCEL, .u.parcel = {.size = SIZE}});
    hv_le_put(piece, head.size, 4);
    memcpy(piece + 4, head.data, head.size);
    goes_on = goes_on && h2_say(&client, hv_span_of(piece, 4 + head.size), 4 + head.size + SIZE, 0);
    for (size_t left = SIZE; goes_on && left;) {
      size_t size = left < sizeof bytes ? left : sizeof bytes;
      goes_on = attacks_spend(a, size) && h2_say(&client, hv_span_of(bytes, size), 0, 0);
      left -= size;
    }
  }
  h2_close(&client);
}

const attack attacks_of_calls[] = {
    {"silent-streams", silent_streams},
    {"silent-calls", silent_calls},
    {"begun-calls", begun_calls},
    {"slow-requests", slow_requests},
    {"large-requests", large_requests},
    {"false-messages", false_messages},
    {"untaken-answers", untaken_answers},
    {"untaken-echoes", untaken_echoes},
    {"many-finds", many_finds},
    {"signed-records", signed_records},
    {"tiny-records", tiny_records},
    {"false-hellos", false_hellos},
    {"false-calls", false_calls},
    {"met-calls", met_calls},
    {"false-streams", false_streams},
    {"untaken-parcels", untaken_parcels},
    {NULL, NULL},
};
