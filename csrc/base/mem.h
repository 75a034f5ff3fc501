/* Where does memory come from, and how much may it be? The allocator door.
 *
 * Room: base (knows nothing). The only file that calls malloc and free.
 * Every allocation is charged to an account (hv_mem) and to the accounts above it; an account has a
 * limit, and in tests it can be told to fail at the n-th allocation from now. No global state: whoever
 * makes an account owns it and frees everything charged to it before it goes away.
 * Threads: an account may be used from any thread (its figures are atomic).
 */
#ifndef HV_BASE_MEM_H
#define HV_BASE_MEM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HV_MEM_UNLIMITED SIZE_MAX

typedef struct hv_mem {
  struct hv_mem *parent; /* borrowed; charged too, may be NULL */
  size_t limit;          /* bytes at most, or HV_MEM_UNLIMITED */
  atomic_size_t used;    /* bytes held now */
  atomic_size_t peak;    /* the most that was ever held */
  atomic_size_t blocks;  /* allocations not yet freed */
  atomic_long fail_in;   /* < 0: never; n: the n-th allocation from now fails (0: the next), once */
  atomic_size_t refused; /* how many allocations were refused */
  int on_heap;           /* made by hv_mem_new: the owner counts as one more block */
} hv_mem;

/* Opens an account below parent (may be NULL). Nothing to close: when `blocks` is 0 it may be dropped. */
void hv_mem_init(hv_mem *mem, hv_mem *parent, size_t limit);

/* An account on the heap, for blocks that outlive whoever opened it: it goes away when hv_mem_drop has been called and its last
 * block is freed. NULL: no memory. */
hv_mem *hv_mem_new(hv_mem *parent, size_t limit);
void hv_mem_drop(hv_mem *mem); /* NULL is fine */

/* Test door: the n-th allocation from now fails once (0 is the next); a negative n disarms. */
void hv_mem_fail_in(hv_mem *mem, long n);

/* All of these return NULL when the account, one above it, or the system has no more; a size of 0 gives a block too.
 * The block is aligned to 16 bytes (hv_mem_aligned: to 64) and belongs to the caller until hv_mem_free. */
void *hv_mem_alloc(hv_mem *mem, size_t size);
void *hv_mem_zalloc(hv_mem *mem, size_t size);
void *hv_mem_aligned(hv_mem *mem, size_t size);

/* count * size, zeroed; NULL also when the product overflows. */
void *hv_mem_array(hv_mem *mem, size_t count, size_t size);

/* Like realloc, for blocks of hv_mem_alloc, _zalloc, _array; the account is the block's own. On failure the block stands. */
void *hv_mem_resize(hv_mem *mem, void *block, size_t size);

/* A terminated copy of n bytes of text. */
char *hv_mem_text(hv_mem *mem, const char *text, size_t n);

/* Lets the system's allocator keep what is freed (up to some 64 MB for each of its arenas) for those who allocate next, instead of
 * giving the pages back to a kernel that clears each before it gives it out again: what glibc does by itself in a process that has
 * ever freed a block of 32 MB. Whoever runs the process and has chosen otherwise (mallopt, GLIBC_TUNABLES) is obeyed. */
void hv_mem_keep_pages(void);

/* Gives a block back to the account it came from. NULL is fine. */
void hv_mem_free(void *block);

#endif
