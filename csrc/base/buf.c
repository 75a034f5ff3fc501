#include "base/buf.h"

#include <string.h>

int hv_span_equal(hv_span a, hv_span b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

const char *hv_span_quote(hv_span text, char out[HV_QUOTE_MAX]) {
  size_t n = text.size < HV_QUOTE_MAX ? text.size : HV_QUOTE_MAX - 1;
  for (size_t i = 0; i < n; i++)
    out[i] = text.data[i] >= 0x20 && text.data[i] < 0x7f ? (char)text.data[i] : '?';
  if (n < text.size)
    memcpy(out + n - 3, "...", 3);
  out[n] = 0;
  return out;
}

void hv_buf_init(hv_buf *buf, hv_mem *mem, size_t limit) {
  *buf = (hv_buf){.mem = mem, .limit = limit};
}

void hv_buf_fini(hv_buf *buf) {
  hv_mem_free(buf->data);
  *buf = (hv_buf){.mem = buf->mem, .limit = buf->limit};
}

hv_status hv_buf_reserve(hv_buf *buf, size_t size, uint8_t **at) {
  if (size > buf->limit || buf->size > buf->limit - size)
    return HV_TOO_LARGE;
  size_t need = buf->size + size;
  if (need > buf->room || !buf->data) {
    size_t room = buf->room ? buf->room : 64;
    if (need > SIZE_MAX / 4)
      return HV_NOMEM;
    while (room < need)
      room *= 2;
    if (room > buf->limit)
      room = buf->limit;
    uint8_t *data = hv_mem_resize(buf->mem, buf->data, room);
    if (!data)
      return HV_NOMEM;
    buf->data = data;
    buf->room = room;
  }
  *at = buf->data + buf->size;
  return HV_OK;
}

hv_status hv_buf_append(hv_buf *buf, const void *data, size_t size) {
  uint8_t *at;
  hv_status status = hv_buf_reserve(buf, size, &at);
  if (status == HV_OK && size) {
    memcpy(at, data, size);
    buf->size += size;
  }
  return status;
}

void hv_payload_init(hv_payload *payload, const hv_span *parts, size_t n_parts, void (*free)(hv_payload *), void *owner) {
  atomic_init(&payload->refs, 1);
  payload->size = 0;
  for (size_t i = 0; i < n_parts; i++)
    payload->size += parts[i].size;
  payload->n_parts = n_parts;
  payload->parts = parts;
  payload->free = free;
  payload->owner = owner;
}

/* A payload with its one part beside it, over own or borrowed bytes. */
typedef struct single {
  hv_payload payload;
  hv_span part;
  void *own;
  void (*done)(void *arg);
  void *arg;
} single;

static void free_single(hv_payload *payload) {
  single *s = (single *)payload;
  if (s->done)
    s->done(s->arg);
  hv_mem_free(s->own);
  hv_mem_free(s);
}

hv_payload *hv_payload_borrow(hv_mem *mem, const void *data, size_t size, void (*done)(void *arg), void *arg) {
  single *s = hv_mem_zalloc(mem, sizeof *s);
  if (!s)
    return NULL;
  s->part = hv_span_of(data, size);
  s->done = done;
  s->arg = arg;
  hv_payload_init(&s->payload, &s->part, 1, free_single, NULL);
  return &s->payload;
}

hv_payload *hv_payload_copy(hv_mem *mem, const void *data, size_t size) {
  void *own = hv_mem_aligned(mem, size);
  if (!own)
    return NULL;
  if (size)
    memcpy(own, data, size);
  hv_payload *payload = hv_payload_borrow(mem, own, size, NULL, NULL);
  if (!payload) {
    hv_mem_free(own);
    return NULL;
  }
  ((single *)payload)->own = own;
  return payload;
}

/* A payload whose parts are ranges of other payloads, which it keeps. */
typedef struct made_of {
  hv_payload payload;
  size_t n;
  hv_payload **pieces;
  hv_span parts[];
} made_of;

static void free_made_of(hv_payload *payload) {
  made_of *m = (made_of *)payload;
  for (size_t i = 0; i < m->n; i++)
    hv_payload_release(m->pieces[i]);
  hv_mem_free(m);
}

static made_of *made_of_new(hv_mem *mem, hv_payload *const *pieces, size_t n) {
  size_t n_parts = 0;
  for (size_t i = 0; i < n; i++)
    n_parts += pieces[i]->n_parts;
  made_of *m = hv_mem_alloc(mem, sizeof *m + n_parts * sizeof *m->parts + n * sizeof *m->pieces);
  if (!m)
    return NULL;
  m->n = n;
  m->pieces = (hv_payload **)(m->parts + n_parts);
  for (size_t i = 0; i < n; i++)
    m->pieces[i] = hv_payload_keep(pieces[i]);
  return m;
}

hv_payload *hv_payload_cut(hv_mem *mem, hv_payload *whole, size_t offset, size_t size) {
  made_of *m = made_of_new(mem, &whole, 1);
  size_t n = 0;
  for (size_t i = 0; m && i < whole->n_parts && size; i++) {
    hv_span part = whole->parts[i];
    size_t past = offset < part.size ? offset : part.size, got = part.size - past < size ? part.size - past : size;
    offset -= past;
    size -= got;
    if (got)
      m->parts[n++] = hv_span_of(part.data + past, got);
  }
  if (m)
    hv_payload_init(&m->payload, m->parts, n, free_made_of, NULL);
  return m ? &m->payload : NULL;
}

hv_payload *hv_payload_join(hv_mem *mem, hv_payload *const *pieces, size_t n) {
  made_of *m = made_of_new(mem, pieces, n);
  size_t n_parts = 0;
  for (size_t i = 0; m && i < n; i++)
    for (size_t k = 0; k < pieces[i]->n_parts; k++)
      m->parts[n_parts++] = pieces[i]->parts[k];
  if (m)
    hv_payload_init(&m->payload, m->parts, n_parts, free_made_of, NULL);
  return m ? &m->payload : NULL;
}

hv_payload *hv_payload_keep(hv_payload *payload) {
  atomic_fetch_add_explicit(&payload->refs, 1, memory_order_relaxed);
  return payload;
}

void hv_payload_release(hv_payload *payload) {
  if (payload && atomic_fetch_sub_explicit(&payload->refs, 1, memory_order_acq_rel) == 1)
    payload->free(payload);
}

size_t hv_payload_read(const hv_payload *payload, size_t offset, void *out, size_t size) {
  size_t done = 0;
  for (size_t i = 0; i < payload->n_parts && done < size; i++) {
    hv_span part = payload->parts[i];
    if (offset >= part.size) {
      offset -= part.size;
      continue;
    }
    size_t n = part.size - offset < size - done ? part.size - offset : size - done;
    memcpy((uint8_t *)out + done, part.data + offset, n);
    done += n;
    offset = 0;
  }
  return done;
}
