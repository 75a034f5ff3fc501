#include "net/hive/opening.h"

#include "core/node.h"
#include "net/clock.h"

#include <string.h>

static void run_opened(hv_command *command, void *core) {
  hv_opening *opening = HV_HOLDER(hv_opening, command, command);
  pthread_mutex_lock(&opening->lock);
  hv_ports_news news = opening->news;
  opening->posted = 0;
  pthread_mutex_unlock(&opening->lock);
  if (core)
    hv_node_opened(core, news.open ? &news.addr : NULL);
}

static void told(void *arg, const hv_ports_news *news) {
  hv_opening *opening = arg;
  hv_log_write(opening->log, hv_clock_us(), HV_LOG_INFO, "net", news->open ? "port_opened" : "port_not_opened", "%s", news->text);
  pthread_mutex_lock(&opening->lock);
  opening->news = *news;
  opening->command.run = run_opened;
  if (!opening->posted)
    opening->posted = hv_loop_post(opening->loop, &opening->command) == HV_OK;
  pthread_mutex_unlock(&opening->lock);
}

void hv_opening_init(hv_opening *opening) {
  *opening = (hv_opening){0};
  pthread_mutex_init(&opening->lock, NULL);
}

void hv_opening_start(hv_opening *opening, hv_mem *mem, hv_log *log, hv_loop *loop, const hv_addr *addrs, size_t n_addrs) {
  opening->log = log;
  opening->loop = loop;
  size_t i = 0;
  while (i < n_addrs && !(addrs[i].kind == HV_ADDR_IP4 && hv_addr_is_private(&addrs[i]) && !hv_addr_is_loopback(&addrs[i])))
    i++;
  if (i == n_addrs)
    return;
  hv_ports_config config = {.port = addrs[i].port, .told = told, .arg = opening};
  hv_ports *ports = NULL;
  hv_status status = hv_ports_open(mem, &config, &ports);
  opening->ports = ports;
  if (status != HV_OK)
    hv_log_write(log, hv_clock_us(), HV_LOG_WARN, "net", "port_not_opened",
                 "no port was opened at the gateway: no thread or no memory for it; forward the port by hand");
}

void hv_opening_again(hv_opening *opening) {
  if (opening->ports)
    hv_ports_again(opening->ports);
}

void hv_opening_stop(hv_opening *opening) {
  hv_ports_close(opening->ports);
  opening->ports = NULL;
}

void hv_opening_fini(hv_opening *opening) {
  pthread_mutex_destroy(&opening->lock);
}

void hv_opening_see(hv_opening *opening, const hv_addr *seen) {
  pthread_mutex_lock(&opening->lock);
  opening->seen = *seen;
  pthread_mutex_unlock(&opening->lock);
}

int hv_opening_text(hv_opening *opening, char out[HV_PORTS_TEXT_MAX], hv_addr *seen) {
  pthread_mutex_lock(&opening->lock);
  *seen = opening->seen;
  memcpy(out, opening->news.text, HV_PORTS_TEXT_MAX);
  int open = opening->news.open;
  pthread_mutex_unlock(&opening->lock);
  return open;
}
