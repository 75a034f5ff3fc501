#include "net/events_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct events_file {
  hv_trace trace; /* first */
  int fd;
} events_file;

static int appends(void *arg, hv_span text) {
  const events_file *f = arg;
  while (text.size) {
    ssize_t n = write(f->fd, text.data, text.size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return 0;
    text = hv_span_of(text.data + n, text.size - (size_t)n);
  }
  return 1;
}

hv_status hv_events_file_open(hv_mem *mem, const char *path, hv_trace **out, hv_error *err) {
  events_file *f = hv_mem_zalloc(mem, sizeof *f);
  if (!f)
    return hv_fail(err, HV_NOMEM, "cannot record events: no memory; raise the memory limit");
  f->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (f->fd < 0) {
    int error = errno;
    hv_mem_free(f);
    return hv_fail(err, HV_IO, "cannot record events in %s: %s; set HIVEMIND_RECORD to a folder that can be written", path,
                   strerror(error));
  }
  f->trace.write = appends;
  f->trace.arg = f;
  *out = &f->trace;
  return HV_OK;
}

void hv_events_file_close(hv_trace *trace) {
  if (trace)
    close(((events_file *)trace)->fd);
  hv_mem_free(trace);
}
