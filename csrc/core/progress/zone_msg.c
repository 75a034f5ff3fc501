#include "core/progress/zone_msg.h"

enum {
  SUM_BYTES_MAX = 16 + HV_PARTS_MAX * 32,
  AGE_UNIT_MS = 20,
  USUAL = 7,
  MANTISSA_BITS = 10,
  EXPONENT_BITS = 6,
  SHORT_BYTES = 2
};

_Static_assert(HV_PARTS_MAX < USUAL && MANTISSA_BITS + EXPONENT_BITS == 8 * SHORT_BYTES,
               "a sum's first byte; a short number's two");

/* ---- numbers ---- */

static uint8_t *put_whole(uint8_t *at, uint64_t value) {
  for (; value > 127; value >>= 7)
    *at++ = (uint8_t)(value | 128);
  *at++ = (uint8_t)value;
  return at;
}

static uint8_t *put_short(uint8_t *at, uint64_t value) {
  unsigned exponent = 0;
  while (value >> exponent >> MANTISSA_BITS)
    exponent++;
  value = (value + (exponent ? UINT64_C(1) << (exponent - 1) : 0)) >> exponent; /* the nearest */
  if (value >> MANTISSA_BITS) {
    value >>= 1;
    exponent++;
  }
  hv_le_put(at, value << EXPONENT_BITS | exponent, SHORT_BYTES);
  return at + SHORT_BYTES;
}

/* A reader of a message's bytes; `bad` once a byte was missing, or a number beyond its limit. */
typedef struct reader {
  hv_span left;
  int bad;
} reader;

static uint64_t take_byte(reader *in) {
  if (in->left.size == 0) {
    in->bad = 1;
    return 0;
  }
  uint64_t byte = in->left.data[0];
  in->left = hv_span_of(in->left.data + 1, in->left.size - 1);
  return byte;
}

static uint64_t take_whole(reader *in, uint64_t most) {
  uint64_t value = 0, byte;
  for (unsigned shift = 0; shift < 63; shift += 7) {
    byte = take_byte(in);
    value |= (byte & 127) << shift;
    if (byte < 128) {
      in->bad |= value > most;
      return in->bad ? 0 : value;
    }
  }
  in->bad = 1;
  return 0;
}

static uint64_t take_short(reader *in) {
  uint64_t raw = 0;
  for (unsigned i = 0; i < SHORT_BYTES; i++)
    raw |= take_byte(in) << 8 * i;
  unsigned exponent = (unsigned)(raw & ((1u << EXPONENT_BITS) - 1));
  uint64_t mantissa = raw >> EXPONENT_BITS;
  if (mantissa && (exponent > 48 || mantissa > HV_REPORT_SAMPLES_MAX >> exponent))
    in->bad = 1;
  return in->bad || !mantissa ? 0 : mantissa << exponent;
}

static uint64_t zigzag(uint64_t epoch, uint64_t base) {
  return epoch >= base ? (epoch - base) << 1 : ((base - epoch) << 1) - 1;
}

/* ---- one sum ---- */

static int is_usual(const hv_sum *sum, uint64_t base) {
  return sum->n_parts == 1 && sum->parts[0].epoch == base && sum->parts[0].owners == sum->owners &&
         sum->contributors == sum->owners && !sum->clients;
}

static uint8_t *put_head(uint8_t *at, const hv_sum *sum) {
  uint64_t rest = sum->owners, more = sum->contributors > sum->owners ? sum->contributors - sum->owners : 0;
  for (size_t i = 0; i < sum->n_parts; i++)
    rest -= sum->parts[i].owners < rest ? sum->parts[i].owners : rest;
  at = put_whole(at, rest << 1 | (more || sum->clients));
  if (more || sum->clients) {
    at = put_whole(at, more);
    at = put_whole(at, sum->clients);
  }
  return at;
}

static uint8_t *put_sum(uint8_t *at, const hv_zone_sum *from, uint64_t base) {
  const hv_sum *sum = &from->sum;
  int usual = is_usual(sum, base);
  *at++ = (uint8_t)(from->level << 3 | (usual ? USUAL : sum->n_parts));
  if (!usual)
    at = put_head(at, sum);
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    if (!usual)
      at = put_whole(at, zigzag(p->epoch, base));
    at = put_whole(at, p->owners);
    at = put_short(at, p->samples);
    at = put_short(at, p->before);
    at = put_short(at, p->speed_milli);
    at = put_whole(at, p->age_ms / AGE_UNIT_MS);
  }
  return at;
}

static void take_part(reader *in, uint64_t epoch, hv_sum *sum, uint64_t *owners) {
  hv_part part = {.epoch = epoch};
  part.owners = (uint32_t)take_whole(in, HV_SUM_OWNERS_MAX);
  part.samples = take_short(in);
  part.before = take_short(in);
  part.speed_milli = take_short(in);
  part.age_ms = (uint32_t)take_whole(in, UINT32_MAX / AGE_UNIT_MS) * AGE_UNIT_MS;
  *owners += part.owners;
  if (!in->bad)
    hv_sum_add_part(sum, &part);
}

static uint64_t take_epoch(reader *in, uint64_t base) {
  uint64_t code = take_whole(in, 2 * HV_REPORT_EPOCH_MAX + 1), apart = (code >> 1) + (code & 1);
  in->bad |= code & 1 ? apart > base : apart > HV_REPORT_EPOCH_MAX - base;
  return in->bad ? 0 : code & 1 ? base - apart : base + apart;
}

static void take_sum(reader *in, uint64_t base, hv_zone_sum *out) {
  uint64_t head = take_byte(in), n = head & 7, owners = 0, more = 0, clients = 0;
  *out = (hv_zone_sum){.level = (unsigned)(head >> 3)};
  if (n != USUAL) {
    uint64_t rest = take_whole(in, 2 * (uint64_t)HV_SUM_OWNERS_MAX + 1);
    owners = rest >> 1;
    more = rest & 1 ? take_whole(in, HV_SUM_OWNERS_MAX) : 0;
    clients = rest & 1 ? take_whole(in, HV_SUM_OWNERS_MAX) : 0;
    for (uint64_t i = 0; i < n && !in->bad; i++)
      take_part(in, take_epoch(in, base), &out->sum, &owners);
  } else {
    take_part(in, base, &out->sum, &owners);
  }
  in->bad |= owners > HV_SUM_OWNERS_MAX || owners + more > HV_SUM_OWNERS_MAX || clients > owners + more;
  out->sum.owners = (uint32_t)owners;
  out->sum.contributors = (uint32_t)(owners + more);
  out->sum.clients = (uint32_t)clients;
}

/* ---- all of them ---- */

size_t hv_zone_msg_pack(const hv_zone_msg *msg, uint8_t out[HV_ZONE_MSG_BYTES_MAX]) {
  uint64_t base = msg->in_one ? msg->epoch : 0;
  uint8_t *at = put_whole(out, msg->in_one ? base + 1 : 0);
  for (size_t i = 0; i < msg->n && (size_t)(at - out) + SUM_BYTES_MAX <= HV_ZONE_MSG_BYTES_MAX; i++)
    at = put_sum(at, &msg->sums[i], base);
  return (size_t)(at - out);
}

hv_status hv_zone_msg_unpack(hv_span bytes, hv_zone_msg *out) {
  reader in = {.left = bytes};
  *out = (hv_zone_msg){0};
  uint64_t own = take_whole(&in, HV_REPORT_EPOCH_MAX + 1);
  out->in_one = own > 0;
  out->epoch = own ? own - 1 : 0;
  while (!in.bad && in.left.size && out->n < HV_ZONE_SUMS_MAX)
    take_sum(&in, out->epoch, &out->sums[out->n++]);
  return in.bad || in.left.size ? HV_MALFORMED : HV_OK;
}
