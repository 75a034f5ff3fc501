#include "cuda/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "hvkern1\n"
#define PATH_MOST 4096
#define SIZE_MOST ((uint64_t)1 << 28)

typedef struct head {
  char magic[8];
  uint64_t size, sum;
} head;

uint64_t hv_keep_hash(uint64_t from, const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint64_t h = from ^ 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++)
    h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}

static int whole(int file, void *to, size_t n) {
  for (size_t got = 0; got < n;) {
    ssize_t one = read(file, (char *)to + got, n - got);
    if (one == 0 || (one < 0 && errno != EINTR))
      return 0;
    got += one > 0 ? (size_t)one : 0;
  }
  return 1;
}

static hv_status read_file(int file, hv_mem *mem, char **out, size_t *size) {
  struct stat about;
  head h;
  if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022) ||
      !whole(file, &h, sizeof h) || memcmp(h.magic, MAGIC, sizeof h.magic) || h.size > SIZE_MOST ||
      (uint64_t)about.st_size != sizeof h + h.size)
    return HV_NOT_FOUND;
  *out = hv_mem_alloc(mem, (size_t)h.size);
  if (!*out)
    return HV_NOMEM;
  *size = (size_t)h.size;
  if (whole(file, *out, *size) && hv_keep_hash(0, *out, *size) == h.sum)
    return HV_OK;
  hv_mem_free(*out);
  return HV_NOT_FOUND;
}

hv_status hv_keep_read(const char *folder, const char *name, hv_mem *mem, char **out, size_t *size) {
  char path[PATH_MOST];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
    return HV_NOT_FOUND;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0)
    return HV_NOT_FOUND;
  hv_status status = read_file(file, mem, out, size);
  close(file);
  return status;
}

/* 0, or -1 with errno. */
static int make_folder(char *path) {
  for (char *at = path + 1;; at++) {
    if (*at && *at != '/')
      continue;
    char was = *at;
    *at = 0;
    int made = mkdir(path, 0700);
    *at = was;
    if (made && errno != EEXIST)
      return -1;
    if (!was)
      return 0;
  }
}

static int write_all(int file, const void *from, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t one = write(file, (const char *)from + done, n - done);
    if (one < 0 && errno != EINTR)
      return -1;
    done += one > 0 ? (size_t)one : 0;
  }
  return 0;
}

static int write_file(const char *path, const char *name, const char *code, size_t size) {
  char last[PATH_MOST];
  head h = {MAGIC, size, hv_keep_hash(0, code, size)};
  if (snprintf(last, sizeof last, "%.*s/%s", (int)(strrchr(path, '/') - path), path, name) >= (int)sizeof last)
    return errno = ENAMETOOLONG, -1;
  unlink(path); /* of a process with this number that ended in the middle */
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return -1;
  int failed = write_all(file, &h, sizeof h) || write_all(file, code, size) || fsync(file);
  int why = errno;
  failed = close(file) || failed;
  if (failed || rename(path, last)) {
    why = failed ? why : errno;
    unlink(path);
    return errno = why, -1;
  }
  return 0;
}

hv_status hv_keep_write(const char *folder, const char *name, const char *code, size_t size, hv_error *err) {
  char path[PATH_MOST], here[PATH_MOST];
  int n = snprintf(here, sizeof here, "%s", folder),
      m = snprintf(path, sizeof path, "%s/.%s.%ld.%zx", folder, name, (long)getpid(), (size_t)&n);
  int failed = n >= (int)sizeof here || m >= (int)sizeof path;
  errno = failed ? ENAMETOOLONG : 0;
  if (failed || make_folder(here) || write_file(path, name, code, size))
    return hv_fail(
        err, HV_IO,
        "the compiled kernels could not be kept in '%.600s': %s; set HIVEMIND_CACHE to a folder that can be written, or each "
        "process compiles them again",
        folder, strerror(errno));
  return HV_OK;
}
