/* A node of the real code whose words are changed on their way out: what a peer that means harm may say in a round, and of where it
 * is in its run. */
#include "core/dht/record.h"
#include "core/progress/zone_msg.h"
#include "core/state/state.h"
#include "kern/codec.h"
#include "sim/swarm/swarm.h"

#include <math.h>
#include <string.h>

enum { SIZE_MAX_LIED = 1 << 16 };

static uint64_t pick(swarm_liar *liar, uint64_t n) {
  return check_random(&liar->rng) % n;
}

static swarm_liar *liar_of(const hv_env *env) {
  return env->world; /* the simulated world has no use for it */
}

/* A chunk of plain floats that is whole and well, but for its values; NULL: it is not of plain floats. */
static hv_payload *other_values(swarm_liar *liar, const hv_payload *payload, int average) {
  static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
  float values[1024];
  uint8_t bytes[sizeof values + 64];
  uint64_t size;
  hv_codec_info info;
  if (hv_codec_peek(payload->parts, payload->n_parts, &info) != HV_OK || info.codec != HV_CODEC_NONE ||
      info.dtype != HV_DTYPE_FLOAT32 || info.count > 1024)
    return NULL;
  for (size_t i = 0; i < info.count; i++)
    values[i] = bad[pick(liar, average || !(liar->tells & SWARM_LIES_HUGE) ? 3 : 4)]; /* an average that is finite may be one, for
                                                                                         all that anybody can know */
  if (hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, HV_DTYPE_FLOAT32, values, info.count, NULL, bytes, sizeof bytes, &size) !=
      HV_OK)
    return NULL;
  return hv_payload_copy(liar->mem, bytes, (size_t)size);
}

/* The same with a byte that is another, or without its end. */
static hv_payload *other_bytes(swarm_liar *liar, const hv_payload *payload) {
  uint8_t bytes[SIZE_MAX_LIED];
  size_t size = payload->size;
  if (size == 0 || size > sizeof bytes)
    return NULL;
  hv_payload_read(payload, 0, bytes, size);
  if (pick(liar, 2))
    bytes[pick(liar, size)] ^= (uint8_t)(1 + pick(liar, 255));
  else
    size = pick(liar, size);
  return hv_payload_copy(liar->mem, bytes, size);
}

static hv_payload *lie_of_chunk(swarm_liar *liar, hv_msg *msg, const hv_payload *payload) {
  hv_msg_chunk *chunk = &msg->u.chunk;
  int average = chunk->from.size > 0;
  switch (liar->tells & (1u << pick(liar, 5))) {
  case SWARM_LIES_ORDER:
    if (pick(liar, 2))
      chunk->index += 1 + (uint32_t)pick(liar, 5);
    else
      chunk->from.size = average ? pick(liar, chunk->from.size) : 0;
    return NULL;
  case SWARM_LIES_VALUES:
    return payload ? other_values(liar, payload, average) : NULL;
  case SWARM_LIES_BYTES:
    return payload ? other_bytes(liar, payload) : NULL;
  default:
    return NULL;
  }
}

static void lie_of_news(swarm_liar *liar, hv_msg *msg) {
  hv_msg_news *news = &msg->u.news;
  if (!(liar->tells & SWARM_LIES_NEWS) || pick(liar, 2))
    return;
  liar->told_us = hv_sim_now(liar->sim);
  switch (pick(liar, 4)) {
  case 0:
    news->what = (uint8_t)pick(liar, HV_NEWS_COUNT);
    return;
  case 1:
    news->view = (uint32_t)pick(liar, 50);
    return;
  case 2:
    news->installed = (uint32_t)pick(liar, 50);
    return;
  default:
    memset(liar->members, 0, sizeof liar->members);
    liar->members[0] = (uint8_t)pick(liar, 256);
    news->members = hv_span_of(liar->members, pick(liar, 4) ? sizeof liar->members : 7);
  }
}

/* In a round no chunk has this number. */
static int is_manifest(const hv_msg *msg) {
  return msg->kind == HV_MSG_CHUNK && msg->u.chunk.index == HV_STATE_MANIFEST;
}

static hv_status lying_send(hv_env *env, hv_stream *stream, const hv_msg *header, hv_payload *payload) {
  swarm_liar *liar = liar_of(env);
  hv_msg msg = *header;
  hv_payload *other = NULL;
  unsigned of_state = SWARM_LIES_KEEPS | SWARM_LIES_SPOILS;
  if (liar->tells & of_state && is_manifest(&msg)) {
    if (liar->tells & SWARM_LIES_KEEPS)
      return HV_OK;
    other = payload ? other_bytes(liar, payload) : NULL;
  } else if (msg.kind == HV_MSG_CHUNK) {
    const hv_msg_chunk *chunk = &header->u.chunk;
    other = lie_of_chunk(liar, &msg, payload);
    if (chunk->from.size && (other || msg.u.chunk.index != chunk->index || msg.u.chunk.from.size != chunk->from.size))
      liar->false_us = hv_sim_now(liar->sim);
  } else if (msg.kind == HV_MSG_NEWS) {
    lie_of_news(liar, &msg);
  } else if (msg.kind == HV_MSG_DISBAND && liar->tells & SWARM_LIES_PLACE) {
    msg.u.disband.at += liar->ahead;
  }
  hv_status status = liar->send(env, stream, &msg, other ? other : payload);
  hv_payload_release(other);
  return status;
}

static hv_status lying_open(hv_env *env, const hv_target *to, const hv_msg *first, const hv_stream_events *on, void *owner,
                            hv_stream **out) {
  static const float absurd[] = {NAN, INFINITY, -1, -0x1p-70f, 0x1p-70f, 3e38f, 0x1p65f};
  swarm_liar *liar = liar_of(env);
  hv_msg msg = *first;
  if (msg.kind == HV_MSG_SHARE && liar->tells & SWARM_LIES_WEIGHT)
    *(pick(liar, 4) ? &msg.u.share.weight : &msg.u.share.norm) = absurd[pick(liar, sizeof absurd / sizeof *absurd)];
  if (msg.kind == HV_MSG_SHARE && liar->tells & SWARM_LIES_ORDER && pick(liar, 4) == 0)
    msg.u.share.member = (uint32_t)pick(liar, 16);
  if ((msg.kind == HV_MSG_SHARE || msg.kind == HV_MSG_ATTEND) && liar->tells & SWARM_LIES_NEWS && pick(liar, 4) == 0) {
    uint32_t view = (uint32_t)pick(liar, 50);
    liar->told_us = hv_sim_now(liar->sim);
    if (msg.kind == HV_MSG_SHARE)
      msg.u.share.view = view;
    else
      msg.u.attend.view = view;
  }
  return liar->open(env, to, &msg, on, owner, out);
}

/* ---- where it is in its run ---- */

/* The words of a message about progress, of whose sums the first is of its own side. */
static void lie_of_progress(swarm_liar *liar, hv_span *words) {
  hv_zone_msg said;
  if (!(liar->tells & (SWARM_LIES_EPOCH | SWARM_LIES_SAMPLES | SWARM_LIES_SPEED)) || hv_zone_msg_unpack(*words, &said) != HV_OK)
    return;
  said.epoch += said.in_one && liar->tells & SWARM_LIES_EPOCH ? liar->ahead : 0;
  for (size_t i = 0; said.n && i < said.sums[0].sum.n_parts; i++) {
    hv_part *part = &said.sums[0].sum.parts[i];
    part->epoch += liar->tells & SWARM_LIES_EPOCH ? liar->ahead : 0;
    if (liar->tells & SWARM_LIES_SAMPLES)
      part->samples = part->before = HV_REPORT_SAMPLES_MAX;
    if (liar->tells & SWARM_LIES_SPEED)
      part->speed_milli = (uint64_t)HV_REPORT_SPEED_MAX;
  }
  *words = hv_span_of(liar->words, hv_zone_msg_pack(&said, liar->words));
}

static int is_of_progress(hv_span key) {
  static const char after[] = "_progress";
  size_t n = sizeof after - 1;
  return key.size > n && memcmp(key.data + key.size - n, after, n) == 0;
}

/* Its own record of progress, signed again. */
static void lie_of_record(swarm_liar *liar, hv_env *env, hv_record *record) {
  hv_report report;
  hv_hash place;
  if (!hv_peer_equal(&record->signer, &liar->me) || !is_of_progress(record->key) ||
      hv_report_unpack(record->value, &report) != HV_OK || report.gone)
    return;
  report.epoch += liar->tells & SWARM_LIES_EPOCH ? liar->ahead : 0;
  if (liar->tells & SWARM_LIES_SAMPLES)
    report.samples = report.before = HV_REPORT_SAMPLES_MAX;
  if (liar->tells & SWARM_LIES_SPEED)
    report.speed = HV_REPORT_SPEED_MAX;
  hv_report_pack(&report, liar->report);
  record->value = hv_span_of(liar->report, sizeof liar->report);
  env->sha256(env, record->key, &place);
  hv_record_sign(env, &liar->me, &place, record);
}

static void lie_of_records(swarm_liar *liar, hv_env *env, hv_msg_store *store) {
  if (!(liar->tells & (SWARM_LIES_EPOCH | SWARM_LIES_SAMPLES | SWARM_LIES_SPEED)) || store->n_records > SWARM_LIAR_RECORDS)
    return;
  for (size_t i = 0; i < store->n_records; i++) {
    liar->records[i] = store->records[i];
    lie_of_record(liar, env, &liar->records[i]);
  }
  store->records = liar->records;
}

static void lie_of_place(swarm_liar *liar, uint64_t *at, uint64_t *comes) {
  if (liar->tells & SWARM_LIES_PLACE)
    *(comes && pick(liar, 2) ? comes : at) += liar->ahead;
}

static hv_status lying_call(hv_env *env, hv_call *call, const hv_msg *request) {
  swarm_liar *liar = liar_of(env);
  hv_msg msg = *request;
  if (msg.kind == HV_MSG_PROGRESS)
    lie_of_progress(liar, &msg.u.progress.words);
  else if (msg.kind == HV_MSG_STORE)
    lie_of_records(liar, env, &msg.u.store);
  else if (msg.kind == HV_MSG_SUMMON)
    lie_of_place(liar, &msg.u.summon.at, &msg.u.summon.comes);
  return liar->call(env, call, &msg);
}

static void lying_reply(hv_env *env, hv_request *request, const hv_msg *answer) {
  swarm_liar *liar = liar_of(env);
  hv_msg msg = *answer;
  if (msg.kind == HV_MSG_PROGRESS_TOLD && !msg.u.progress_told.absent)
    lie_of_progress(liar, &msg.u.progress_told.words);
  else if (msg.kind == HV_MSG_SUMMONED)
    lie_of_place(liar, &msg.u.summoned.at, &msg.u.summoned.comes);
  liar->reply(env, request, &msg);
}

void swarm_liar_take(swarm_liar *liar, hv_env *env) {
  if (env->world == liar)
    return; /* the node was started anew */
  liar->mem = env->mem;
  liar->send = env->stream_send;
  liar->open = env->stream_open;
  liar->call = env->call;
  liar->reply = env->reply;
  env->world = liar;
  env->stream_send = lying_send;
  env->stream_open = lying_open;
  env->call = lying_call;
  env->reply = lying_reply;
}
