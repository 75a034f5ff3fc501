/* A hub's request as a giver reads it, and a hub that takes gifts from streams of strangers: whatever they announce and send in
 * which order, its memory stays within its bound, a state that it takes is the one that was announced, and all is given back.
 * Input: a byte for each act, then what it needs. */
#include "lib/gift_desk.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_BYTES = 1 << 16, GIVERS = 3, MANIFEST_MAX = 4096 };

static void must(int held) {
  if (!held)
    abort();
}

typedef struct input {
  const uint8_t *at;
  size_t left;
} input;

static uint8_t byte(input *in) {
  return in->left ? (in->left--, *in->at++) : 0;
}

static uint64_t number(input *in, unsigned bytes) {
  uint64_t n = 0;
  while (bytes--)
    n = n << 8 | byte(in);
  return n;
}

static hv_span bytes(input *in, size_t most) {
  size_t n = (size_t)number(in, 2);
  n = n < in->left ? n : in->left;
  n = n < most ? n : most;
  hv_span span = hv_span_of(in->at, n);
  in->at += n;
  in->left -= n;
  return span;
}

static void request(hv_span text) {
  hv_gift_request request;
  uint8_t again[HV_GIFT_REQUEST_SIZE];
  if (hv_gift_request_read(text, &request) != HV_OK)
    return;
  hv_gift_request_write(&request, again);
  must(hv_span_equal(text, hv_span_of(again, sizeof again)));
}

/* Announces a manifest that follows, as it is or with a change. */
static gift_stream *announce(gift_desk *d, input *in, hv_span manifest) {
  hv_manifest m;
  hv_msg_gift gift = {.epoch = 5, .size = 1000, .manifest_size = (uint32_t)manifest.size};
  uint8_t peer = 1 + byte(in) % GIVERS, changes = byte(in);
  d->fake.env.sha256(&d->fake.env, manifest, &gift.digest);
  if (hv_manifest_read(&d->fake.mem, manifest, &m) == HV_OK) {
    gift.size = m.image;
    gift.epoch = m.epoch;
    hv_manifest_fini(&m);
  }
  const hv_gift_request *asked = hv_takers_request(&d->takers, hv_span_of("run", 3));
  if (asked)
    memcpy(gift.ticket, asked->ticket, sizeof gift.ticket);
  if (changes & 1)
    gift.size = number(in, 8);
  if (changes & 2)
    gift.epoch = number(in, 8);
  if (changes & 4)
    gift.manifest_size = (uint32_t)number(in, 4);
  if (changes & 8)
    gift.digest.bytes[0] ^= 1;
  if (changes & 16)
    gift.ticket[3] ^= 1;
  return gift_desk_open(d, peer, byte(in) % 4, &gift);
}

static void checker(gift_desk *d) {
  must(d->image_peak <= SIZE_MAX_BYTES);
  /* the image, what the desk copies of a message, and what a manifest of that size may need, for the one that arrives */
  must(d->fake.mem.peak <= SIZE_MAX_BYTES + 1024 + 16 * MANIFEST_MAX + (2u << 20) + HV_GIFT_REFUSALS * 1024);
  size_t under_way = 0;
  for (size_t i = 0; i < GIFT_STREAMS; i++)
    under_way += d->streams[i].open && d->streams[i].accepted && !d->streams[i].is_over;
  must(under_way <= 1);
}

/* A take that is over with HV_OK holds the bytes that the announced digests name. */
static void take_again(gift_desk *d) {
  if (!d->taken)
    return;
  if (d->status == HV_OK)
    must(d->image && d->image_size <= SIZE_MAX_BYTES);
  gift_desk_take(d);
}

static void act(gift_desk *d, input *in, hv_span manifest, gift_stream **last) {
  switch (byte(in) % 12) {
  case 0:
    *last = announce(d, in, manifest);
    break;
  case 1:
    if (*last)
      gift_desk_piece(d, *last, 1, number(in, 1), manifest);
    break;
  case 2: {
    int is_manifest = byte(in) & 1;
    uint64_t offset = number(in, 3);
    hv_span sent = bytes(in, SIZE_MAX_BYTES);
    if (*last)
      gift_desk_piece(d, *last, is_manifest, offset, sent);
    break;
  }
  case 3: { /* zeros, of a size that fits more often */
    static const uint8_t zeros[SIZE_MAX_BYTES];
    uint64_t offset = number(in, 3);
    size_t size = (size_t)number(in, 2);
    if (*last)
      gift_desk_piece(d, *last, 0, offset, hv_span_of(zeros, size));
    break;
  }
  case 4:
    if (*last)
      gift_desk_close(d, *last);
    break;
  case 5:
    gift_desk_work(d);
    break;
  case 6:
    gift_desk_pass(d, number(in, 4));
    break;
  case 7: {
    uint8_t peer = byte(in) % (GIVERS + 1);
    gift_desk_ask(d, peer, byte(in) % 8);
    break;
  }
  case 8: {
    hv_peer_id id = fake_peer(1 + byte(in) % GIVERS);
    hv_takers_gone(&d->takers, &id);
    break;
  }
  case 9:
    hv_takers_cancel(&d->takers, &d->take);
    break;
  case 10:
    hv_takers_refuse(&d->takers, hv_span_of("run", 3));
    break;
  default:
    take_again(d);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static gift_desk desk;
  gift_stream *last = NULL;
  input in = {data, size};
  uint8_t *copy = malloc(size + !size); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  request(hv_span_of(copy, size));
  free(copy);
  hv_span manifest = bytes(&in, MANIFEST_MAX);
  gift_desk_init(&desk, SIZE_MAX_BYTES);
  gift_desk_ask(&desk, 1, 5);
  gift_desk_take(&desk);
  while (in.left) {
    act(&desk, &in, manifest, &last);
    checker(&desk);
  }
  gift_desk_fini(&desk);
  return 0;
}
