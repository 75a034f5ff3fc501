#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Stands right before every block. 64 bytes ahead of an aligned block lies the start of what malloc gave. */
typedef struct header {
  hv_mem *mem;
  size_t size; /* the caller's size, shifted left by one; lowest bit: aligned */
} header;

_Static_assert(sizeof(header) == 16, "a block must stay aligned to 16 bytes");
enum { ALIGNED_LEAD = 64, KEPT_BLOCK = (32 << 20) - (64 << 10) /* the largest of which glibc learns */ };

void hv_mem_init(hv_mem *mem, hv_mem *parent, size_t limit) {
  mem->parent = parent;
  mem->limit = limit;
  atomic_init(&mem->used, 0);
  atomic_init(&mem->peak, 0);
  atomic_init(&mem->blocks, 0);
  atomic_init(&mem->fail_in, -1);
  atomic_init(&mem->refused, 0);
  mem->on_heap = 0;
}

hv_mem *hv_mem_new(hv_mem *parent, size_t limit) {
  hv_mem *mem = malloc(sizeof *mem);
  if (!mem)
    return NULL;
  hv_mem_init(mem, parent, limit);
  mem->on_heap = 1;
  atomic_init(&mem->blocks, 1);
  return mem;
}

static void one_block_less(hv_mem *mem) {
  if (atomic_fetch_sub_explicit(&mem->blocks, 1, memory_order_acq_rel) == 1 && mem->on_heap)
    free(mem);
}

void hv_mem_drop(hv_mem *mem) {
  if (mem)
    one_block_less(mem);
}

void hv_mem_fail_in(hv_mem *mem, long n) {
  atomic_store(&mem->fail_in, n < 0 ? -1 : n);
}

static int told_to_fail(hv_mem *mem) {
  long left = atomic_load_explicit(&mem->fail_in, memory_order_relaxed);
  while (left >= 0)
    if (atomic_compare_exchange_weak(&mem->fail_in, &left, left - 1))
      return left == 0;
  return 0;
}

static void uncharge(hv_mem *mem, hv_mem *until, size_t size) {
  while (mem != until) {
    hv_mem *parent = mem->parent;
    atomic_fetch_sub_explicit(&mem->used, size, memory_order_relaxed);
    one_block_less(mem);
    mem = parent;
  }
}

static int charge(hv_mem *mem, size_t size) {
  for (hv_mem *m = mem; m; m = m->parent) {
    size_t used = atomic_load_explicit(&m->used, memory_order_relaxed);
    int refuse = told_to_fail(m);
    do {
      if (refuse || used > m->limit || size > m->limit - used) {
        atomic_fetch_add_explicit(&m->refused, 1, memory_order_relaxed);
        uncharge(mem, m, size);
        return 0;
      }
    } while (!atomic_compare_exchange_weak_explicit(&m->used, &used, used + size, memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&m->blocks, 1, memory_order_relaxed);
    size_t peak = atomic_load_explicit(&m->peak, memory_order_relaxed);
    while (peak < used + size &&
           !atomic_compare_exchange_weak_explicit(&m->peak, &peak, used + size, memory_order_relaxed, memory_order_relaxed)) {
    }
  }
  return 1;
}

static void *allocate(hv_mem *mem, size_t size, int zero, int aligned) {
  if (size > SIZE_MAX / 4 || !charge(mem, size))
    return NULL;
  char *raw = NULL;
  if (!aligned)
    raw = zero ? calloc(1, size + sizeof(header)) : malloc(size + sizeof(header));
  else if (posix_memalign((void **)&raw, ALIGNED_LEAD, size + ALIGNED_LEAD) != 0)
    raw = NULL;
  if (!raw) {
    uncharge(mem, NULL, size);
    return NULL;
  }
  char *block = raw + (aligned ? ALIGNED_LEAD : sizeof(header));
  header *h = (header *)block - 1;
  h->mem = mem;
  h->size = size << 1 | (size_t)(aligned != 0);
  return block;
}

void *hv_mem_alloc(hv_mem *mem, size_t size) {
  return allocate(mem, size, 0, 0);
}

void *hv_mem_zalloc(hv_mem *mem, size_t size) {
  return allocate(mem, size, 1, 0);
}

void *hv_mem_aligned(hv_mem *mem, size_t size) {
  return allocate(mem, size, 0, 1);
}

void *hv_mem_array(hv_mem *mem, size_t count, size_t size) {
  if (size && count > SIZE_MAX / size)
    return NULL;
  return allocate(mem, count * size, 1, 0);
}

void *hv_mem_resize(hv_mem *mem, void *block, size_t size) {
  if (!block)
    return hv_mem_alloc(mem, size);
  header *h = (header *)block - 1;
  size_t before = h->size >> 1;
  void *bigger = hv_mem_alloc(h->mem, size);
  if (!bigger)
    return NULL;
  memcpy(bigger, block, before < size ? before : size);
  hv_mem_free(block);
  return bigger;
}

char *hv_mem_text(hv_mem *mem, const char *text, size_t n) {
  char *copy = n < SIZE_MAX ? hv_mem_alloc(mem, n + 1) : NULL;
  if (copy) {
    memcpy(copy, text, n);
    copy[n] = 0;
  }
  return copy;
}

void hv_mem_free(void *block) {
  if (!block)
    return;
  header *h = (header *)block - 1;
  size_t size = h->size >> 1;
  int aligned = (int)(h->size & 1);
  uncharge(h->mem, NULL, size);
  free((char *)block - (aligned ? ALIGNED_LEAD : sizeof(header)));
}

void hv_mem_keep_pages(void) {
  void *volatile block = malloc(KEPT_BLOCK); /* never touched */
  free(block);
}
