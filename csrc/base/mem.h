/* The memory allocator: every block is charged to an account with a limit.
 *
 * Room: base; depends on no other module. The only file that calls malloc and free.
 * Owner: the code that makes an account (hv_mem) frees everything charged to it before it drops the account. No global state.
 * Limits: each account has one, in bytes; a block is also charged to all accounts above its own.
 * Thread: an account may be used from any thread; its figures are atomic.
 * Errors: NULL. In tests an account can make its n-th allocation fail.
 */
#ifndef HV_BASE_MEM_H
#define HV_BASE_MEM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HV_MEM_UNLIMITED SIZE_MAX

/* The struct of this type that contains a member. */
#define HV_HOLDER(type, member, pointer) ((type *)((char *)(pointer)-offsetof(type, member)))

typedef struct hv_mem {
  struct hv_mem *parent; /* borrowed; charged, too; may be NULL */
  size_t limit;          /* bytes at most, or HV_MEM_UNLIMITED */
  atomic_size_t used;    /* bytes held now */
  atomic_size_t peak;    /* highest value of `used` so far */
  atomic_size_t blocks;  /* allocations not yet freed */
  atomic_long fail_in;   /* < 0: never; n: the n-th allocation from now fails (0: the next), once */
  atomic_size_t refused; /* number of allocations that failed */
  int on_heap;           /* 1: created by hv_mem_new; then `blocks` counts the owner, too */
} hv_mem;

/* Initialises an account below parent (borrowed, may be NULL). Once `blocks` is 0, its memory may be reused; there is no fini. */
void hv_mem_init(hv_mem *mem, hv_mem *parent, size_t limit);

/* An account on the heap, for blocks that outlive the code that opened it. It is freed when hv_mem_drop has been called and its
 * last block is freed. NULL: no memory. */
hv_mem *hv_mem_new(hv_mem *parent, size_t limit);
void hv_mem_drop(hv_mem *mem); /* NULL is fine */

/* For tests: the n-th allocation from now fails once (0: the next one). A negative n: none fails. */
void hv_mem_fail_in(hv_mem *mem, long n);

/* All of these return NULL if the account, one above it, or the system has no memory left. A size of 0 gives a block, too.
 * The block is aligned to 16 bytes (hv_mem_aligned: to 64) and belongs to the caller until hv_mem_free. */
void *hv_mem_alloc(hv_mem *mem, size_t size);
void *hv_mem_zalloc(hv_mem *mem, size_t size);
void *hv_mem_aligned(hv_mem *mem, size_t size);

/* count * size, zeroed; NULL also when the product overflows. */
void *hv_mem_array(hv_mem *mem, size_t count, size_t size);

/* Like realloc, for blocks of hv_mem_alloc, _zalloc and _array. The block stays in its account. NULL: the block is unchanged. */
void *hv_mem_resize(hv_mem *mem, void *block, size_t size);

/* A terminated copy of n bytes of text. */
char *hv_mem_text(hv_mem *mem, const char *text, size_t n);

/* Makes the system's allocator keep freed pages (about 64 MB per arena) for the next allocation, because the kernel must clear
 * every page that it hands out again. glibc does the same by itself after a process has freed a block of 32 MB. If the user has
 * set mallopt or GLIBC_TUNABLES, nothing changes. */
void hv_mem_keep_pages(void);

/* Gives a block back to the account it came from. NULL is fine. */
void hv_mem_free(void *block);

#endif
