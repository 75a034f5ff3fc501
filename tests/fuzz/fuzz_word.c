/* Words of members as strangers send them: what is read is packed to bytes that are read as the same word. */
#include "core/epoch/word.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_word word, again;
  uint8_t bytes[HV_WORD_MAX];
  uint8_t *copy = malloc(size ? size : 1); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  if (hv_word_read(hv_span_of(copy, size), &word)) {
    size_t n = hv_word_write(&word, bytes);
    must(n <= size && hv_word_read(hv_span_of(bytes, n), &again));
    must(again.rank == word.rank && hv_mark_equal(&again.mark, &word.mark));
  }
  free(copy);
  return 0;
}
