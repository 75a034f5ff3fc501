/* Makes a chunk's checksum right again, as one would who lies with care: the checksum of docs/design/codecs.md, written once more.
 */
#ifndef HV_TESTS_SEAL_H
#define HV_TESTS_SEAL_H

#include <stddef.h>
#include <stdint.h>

/* Leaves bytes alone whose header gives no body within size. */
void seal_chunk(uint8_t *bytes, size_t size);

#endif
