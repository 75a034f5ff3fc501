#include "core/state/load_inner.h"

#include <string.h>

/* Something that came, on its way through the pool. */
typedef struct load_check {
  struct load_check *next, **link; /* in the loader's list */
  hv_loader *loader;
  load_donor *from;
  uint32_t chunk;
  hv_payload *payload;
  uint8_t *bytes; /* own, in one piece; NULL: the image holds them */
  size_t size;
  hv_hash hash;
  hv_status status;
  hv_job job;
} check;

static void check_whole(hv_loader *l);

static check *check_begin(hv_loader *l, load_donor *from, uint32_t chunk, hv_payload *payload, size_t own) {
  check *c = hv_mem_zalloc(l->env->mem, sizeof *c);
  uint8_t *bytes = own ? hv_mem_aligned(l->env->mem, own) : NULL;
  if (!c || (own && !bytes)) {
    hv_mem_free(c);
    hv_mem_free(bytes);
    l->on->end(l, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
    return NULL;
  }
  *c = (check){.loader = l, .from = from, .chunk = chunk, .bytes = bytes, .size = own, .next = l->checks, .link = &l->checks};
  c->payload = payload ? hv_payload_keep(payload) : NULL;
  if (c->next)
    c->next->link = &c->next;
  l->checks = c;
  return c;
}

static void check_start(check *c, void (*run)(hv_job *), void (*done)(hv_job *, const hv_event *)) {
  c->loader->n_jobs++;
  c->job = (hv_job){.run = run, .done = done, .owner = c};
  c->loader->env->work(c->loader->env, &c->job);
}

static void check_end(check *c) {
  c->loader->n_jobs--;
  *c->link = c->next;
  if (c->next)
    c->next->link = c->link;
  hv_payload_release(c->payload);
  hv_mem_free(c->bytes);
  hv_mem_free(c);
}

void check_forget(hv_loader *l) {
  while (l->checks)
    check_end(l->checks);
}

void check_give_back(hv_loader *l, uint32_t chunk) {
  if (!l->states || l->states[chunk] != CHUNK_ASKED)
    return;
  l->states[chunk] = CHUNK_TODO;
  l->n_todo++;
  if (chunk < l->low)
    l->low = chunk;
}

static void moved(load_donor *from) {
  from->busy = 0;
  from->loader->moved_us = from->loader->came_us = from->loader->env->now_us(from->loader->env);
  from->loader->n_busy_looks = 0;
}

/* ---- chunks ---- */

static void run_chunk(hv_job *job) {
  check *c = job->owner;
  hv_loader *l = c->loader;
  const hv_manifest_chunk *chunk = &l->manifest.chunks[c->chunk];
  uint8_t *at = l->image + chunk->place, *bytes = c->bytes ? c->bytes : at;
  hv_payload_read(c->payload, 0, bytes, chunk->travel);
  if (chunk->own)
    return; /* each donor has its own bytes here, and the digest of none */
  l->env->sha256(l->env, hv_span_of(bytes, chunk->travel), &c->hash);
  if (!c->bytes || memcmp(&c->hash, &chunk->digest, sizeof c->hash) != 0)
    return;
  hv_span part = hv_span_of(bytes, chunk->travel);
  c->status = hv_codec_decode(l->load->kern, &part, 1, (hv_dtype)chunk->dtype, at, chunk->size / hv_dtype_size(chunk->dtype));
}

static void chunk_is_right(check *c) {
  hv_loader *l = c->loader;
  l->states[c->chunk] = CHUNK_DONE;
  l->came += l->manifest.chunks[c->chunk].travel;
  l->found[c->chunk] = c->hash;
  l->looks_left = l->config.looks;
  l->n_pauses = 0;
  c->from->n_good++;
  c->from->failures = 0;
  moved(c->from);
  if (++l->n_done == l->manifest.n_chunks)
    check_whole(l);
}

static void chunk_done(hv_job *job, const hv_event *event) {
  check *c = job->owner;
  hv_loader *l = c->loader;
  if (l->phase == LOAD_FETCHING && event->status != HV_OK)
    l->on->end(l, event->status, "cannot load the state: this node is shutting down");
  else if (l->phase == LOAD_FETCHING && memcmp(&c->hash, &l->manifest.chunks[c->chunk].digest, sizeof c->hash) != 0) {
    check_give_back(l, c->chunk);
    l->on->wrong(c->from, "a chunk that is not what the manifest says");
  } else if (l->phase == LOAD_FETCHING && c->status != HV_OK)
    l->on->end(l, c->status, "cannot load the state: the swarm's state has a part that cannot be decoded: %s",
               hv_status_text(c->status));
  else if (l->phase == LOAD_FETCHING)
    chunk_is_right(c);
  check_end(c);
  l->on->changed(l);
  l->on->settle(l);
}

void check_chunk(load_donor *d, uint32_t index, hv_payload *payload) {
  hv_loader *l = d->loader;
  const hv_manifest_chunk *chunk = &l->manifest.chunks[index];
  check *c = check_begin(l, d, index, payload, chunk->codec == HV_CODEC_NONE ? 0 : chunk->travel);
  if (c)
    check_start(c, run_chunk, chunk_done);
}

/* ---- bytes that are hashed as they are: the manifest, and in the end all digests ---- */

static void run_bytes(hv_job *job) {
  check *c = job->owner;
  c->loader->env->sha256(c->loader->env, hv_span_of(c->bytes, c->size), &c->hash);
}

static void whole_done(hv_job *job, const hv_event *event) {
  check *c = job->owner;
  hv_loader *l = c->loader;
  if (event->status != HV_OK)
    l->on->end(l, event->status, "cannot load the state: this node is shutting down");
  else if (memcmp(&c->hash, &l->manifest.whole, sizeof c->hash) != 0)
    l->on->end(l, HV_CORRUPT, "cannot load the state: the swarm's state does not match its own manifest");
  else
    l->on->end(l, HV_OK, "%s", "");
  check_end(c);
  l->on->settle(l);
}

static void check_whole(hv_loader *l) {
  size_t size = l->manifest.n_chunks * sizeof *l->found;
  check *c = check_begin(l, NULL, 0, NULL, size + 1);
  if (!c)
    return;
  c->size = size;
  if (size)
    memcpy(c->bytes, l->found, size);
  check_start(c, run_bytes, whole_done);
}

/* ---- the manifest ---- */

/* It is the one that the swarm names: takes memory for what it describes. */
static void take_on(hv_loader *l, hv_span bytes) {
  hv_state_load *load = l->load;
  hv_manifest *m = &l->manifest;
  hv_status status = hv_manifest_read(l->env->mem, bytes, m);
  if (status == HV_OK && m->epoch != l->epoch) {
    hv_manifest_fini(m);
    status = HV_MALFORMED;
  }
  if (status == HV_NOMEM) {
    l->on->end(l, status, "cannot load the state: no memory for its manifest; raise the memory limit");
    return;
  }
  if (status != HV_OK) {
    l->on->refuse(l, status, "cannot load the state: its manifest cannot be read; install the same version on all peers");
    return;
  }
  l->has_manifest = 1; /* from here on it is the loader's to free */
  if (m->image > load->size_max) {
    l->on->refuse(l, HV_TOO_LARGE, "cannot load the state: it has %llu bytes, and the limit is %llu; raise the limit",
                  (unsigned long long)m->image, (unsigned long long)load->size_max);
    return;
  }
  l->states = hv_mem_zalloc(l->env->mem, m->n_chunks);
  l->found = hv_mem_array(l->env->mem, m->n_chunks, sizeof *l->found);
  l->image = l->states && l->found ? load->room(load, m) : NULL;
  if (!l->image) {
    l->on->end(l, HV_NOMEM, "cannot load the state: no memory for its %llu bytes; raise the memory limit",
               (unsigned long long)m->image);
    return;
  }
  l->low = l->n_done = 0;
  l->came = l->size = 0;
  for (size_t i = 0; i < m->n_chunks; i++)
    l->size += m->chunks[i].travel;
  l->n_todo = (uint32_t)m->n_chunks;
  if (m->n_chunks == 0)
    check_whole(l);
}

static void manifest_done(hv_job *job, const hv_event *event) {
  check *c = job->owner;
  hv_loader *l = c->loader;
  l->checking = 0;
  if (l->phase == LOAD_FETCHING && event->status != HV_OK)
    l->on->end(l, event->status, "cannot load the state: this node is shutting down");
  else if (l->phase == LOAD_FETCHING && memcmp(&c->hash, &l->digest, sizeof c->hash) != 0)
    l->on->wrong(c->from, "another manifest than it announced");
  else if (l->phase == LOAD_FETCHING) {
    moved(c->from);
    take_on(l, hv_span_of(c->bytes, c->size));
  }
  check_end(c);
  l->on->changed(l);
  l->on->settle(l);
}

void check_manifest(load_donor *d, hv_payload *payload) {
  hv_loader *l = d->loader;
  if (l->has_manifest || l->checking)
    return;
  check *c = check_begin(l, d, 0, NULL, payload->size);
  if (!c)
    return;
  hv_payload_read(payload, 0, c->bytes, payload->size);
  l->checking = 1;
  check_start(c, run_bytes, manifest_done);
}
