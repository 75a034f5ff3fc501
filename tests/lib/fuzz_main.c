/* Runs a fuzz target without libFuzzer: every corpus file, then seeded mutations of them, a few seconds' worth. For `make check`.
 */
#include "lib/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 20, MUTATIONS = 2000 };

static size_t mutate(uint8_t *bytes, size_t size, check_rng *rng) {
  for (unsigned n = 1 + check_random(rng) % 4; n--;) {
    uint64_t at = size ? check_random(rng) % size : 0, what = check_random(rng);
    switch (what % 5) {
    case 0:
      if (size)
        bytes[at] ^= (uint8_t)(1u << (what >> 8 & 7));
      break;
    case 1:
      if (size)
        bytes[at] = (uint8_t)(what >> 8);
      break;
    case 2:
      size = at;
      break;
    case 3:
      if (size && size < ROOM) {
        memmove(bytes + at + 1, bytes + at, size - at);
        size++;
      }
      break;
    default:
      if (size >= 4 && at + 4 <= size)
        memset(bytes + at, what & 256 ? 0xff : 0, 4);
    }
  }
  return size;
}

int main(int argc, char **argv) {
  static uint8_t bytes[ROOM], changed[ROOM];
  unsigned long files = 0, runs = 0;
  check_rng rng = {1};
  DIR *dir = argc > 1 ? opendir(argv[1]) : NULL;
  if (!dir) {
    fprintf(stderr, "usage: %s CORPUS (a folder that exists)\n", argv[0]);
    return 2;
  }
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
    if (!file)
      continue;
    size_t size = fread(bytes, 1, ROOM, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    files++;
    for (int i = 0; i < MUTATIONS; i++, runs++) {
      memcpy(changed, bytes, size);
      LLVMFuzzerTestOneInput(changed, mutate(changed, size, &rng));
    }
  }
  closedir(dir);
  printf("%lu corpus files, %lu mutations\n", files, runs);
  return files ? 0 : 1;
}
