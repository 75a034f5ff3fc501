/* Compiled kernels in a folder of the user's, so that kernels are compiled once for each kind of GPU.
 *
 * Room: cuda (uses base). A file has a head (a word, the size, a checksum) and the code. It is written under another name and then
 * renamed, so that several processes may do so at once and a full disk leaves nothing behind. A file counts only if it is whole and
 * belongs to this user: it is code.
 * Threads: any.
 */
#ifndef HV_CUDA_KEEP_H
#define HV_CUDA_KEEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* A 64-bit hash of n bytes, which continues the hash `from` (0 at first). */
uint64_t hv_keep_hash(uint64_t from, const void *bytes, size_t n);

/* The content of the file; *out is the caller's, to be freed by hv_mem_free. HV_NOT_FOUND: there is none that counts. HV_NOMEM. */
hv_status hv_keep_read(const char *folder, const char *name, hv_mem *mem, char **out, size_t *size);

/* Makes the folder if need be (for this user alone), and the file in it. HV_IO, with the system's words and the remedy. */
hv_status hv_keep_write(const char *folder, const char *name, const char *code, size_t size, hv_error *err);

#endif
