#include "net/ports/ports.h"

#include "net/clock.h"
#include "net/ports/gateway.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FIRST_RETRY_S = 60, RETRY_MAX_S = 900, LEASE_MIN_S = 2, LEASE_MAX_S = 86400 };

typedef enum protocol { NATPMP, UPNP, PROTOCOLS } protocol;

struct hv_ports {
  hv_mem *mem;
  hv_ports_config config;
  pthread_mutex_t lock;
  pthread_cond_t bell;
  int refs;           /* the program's and the helper's */
  int closing, again; /* what the program wants of the helper */
  int ended;          /* the port is given back */
  hv_ports_news news; /* as it was told last */
  hv_gateway gateway; /* the helper's, as the two below */
  hv_gateway_grant grant;
  protocol by;
};

static void release(hv_ports *ports) {
  pthread_mutex_lock(&ports->lock);
  int left = --ports->refs;
  pthread_mutex_unlock(&ports->lock);
  if (left)
    return;
  pthread_cond_destroy(&ports->bell);
  pthread_mutex_destroy(&ports->lock);
  hv_mem_free(ports);
}

static void wait_until(hv_ports *ports, uint64_t until_us) { /* with the lock held; the bell may ring sooner */
  struct timespec at = {.tv_sec = (time_t)(until_us / 1000000), .tv_nsec = (long)(until_us % 1000000) * 1000};
  pthread_cond_timedwait(&ports->bell, &ports->lock, &at);
}

static void tell(hv_ports *ports, const hv_ports_news *news) {
  pthread_mutex_lock(&ports->lock);
  int is_new = strcmp(news->text, ports->news.text) != 0 || news->open != ports->news.open;
  ports->news = *news;
  if (is_new && !ports->closing)
    ports->config.told(ports->config.arg, news);
  pthread_mutex_unlock(&ports->lock);
}

static void give_back(hv_ports *ports) {
  if (ports->grant.outer.port == 0)
    return;
  if (ports->by == NATPMP)
    hv_natpmp_close(&ports->gateway, ports->config.port);
  else
    hv_upnp_close(&ports->grant);
  ports->grant = (hv_gateway_grant){0};
}

/* A gateway with a private address of its own is behind another NAT; one that says 0.0.0.0 has no connection. */
static int is_usable(const hv_gateway_grant *grant) {
  return grant->outer.port && !hv_addr_is_private(&grant->outer) && !hv_addr_is_unspecified(&grant->outer);
}

/* Asks the gateway by both protocols, first by the one that served before. Fills in the news. */
static void ask(hv_ports *ports, hv_ports_news *news) {
  static const char *const names[PROTOCOLS] = {"NAT-PMP", "UPnP"};
  uint32_t lease_s = ports->config.lease_s ? ports->config.lease_s : HV_PORTS_LEASE_S;
  uint16_t port = ports->config.port, wanted = ports->grant.outer.port ? ports->grant.outer.port : port;
  char why[PROTOCOLS][HV_GATEWAY_WHY_MAX] = {"", ""};
  hv_gateway now;
  *news = (hv_ports_news){0};
  if (!hv_gateway_find(ports->config.routes, &now)) {
    ports->grant = (hv_gateway_grant){0};
    snprintf(news->text, sizeof news->text, "no port was opened: this machine has no gateway with a private address");
    return;
  }
  if (memcmp(now.ip, ports->gateway.ip, sizeof now.ip) != 0)
    ports->grant = (hv_gateway_grant){0}; /* of a network that this machine has left */
  ports->gateway = now;
  for (int i = 0; i < PROTOCOLS; i++) {
    protocol by = i ? !ports->by : ports->by;
    hv_gateway_grant grant;
    int granted =
        by == NATPMP ? hv_natpmp_open(&now, port, wanted, lease_s, &grant) : hv_upnp_open(&now, port, wanted, lease_s, &grant);
    memcpy(why[by], grant.why, sizeof why[by]);
    if (!granted)
      continue;
    char where[HV_ADDR_TEXT_MAX];
    hv_addr_print_short(&grant.outer, where);
    ports->grant = grant;
    ports->by = by;
    if (is_usable(&grant)) {
      news->open = 1;
      news->addr = grant.outer;
      snprintf(news->text, sizeof news->text, "the gateway %s opened %s for this peer (%s)", now.text, where, names[by]);
      return;
    }
    give_back(ports);
    snprintf(why[by], sizeof why[by], "its own address is private, so it is behind another NAT");
  }
  ports->grant = (hv_gateway_grant){0};
  snprintf(news->text, sizeof news->text, "no port was opened: gateway %s: by NAT-PMP %s; by UPnP %s", now.text, why[NATPMP],
           why[UPNP]);
}

/* Seconds until the port is asked for again: half of its lease, or a pause that doubles. */
static uint32_t pause_s(const hv_ports *ports, unsigned failures) {
  uint32_t lease_s = ports->grant.lease_s;
  uint32_t retry_s = ports->config.first_retry_s ? ports->config.first_retry_s : FIRST_RETRY_S;
  if (failures == 0 && lease_s)
    return (lease_s < LEASE_MIN_S ? LEASE_MIN_S : lease_s > LEASE_MAX_S ? LEASE_MAX_S : lease_s) / 2;
  while (failures-- > 1 && retry_s < RETRY_MAX_S)
    retry_s *= 2;
  return retry_s < RETRY_MAX_S ? retry_s : RETRY_MAX_S;
}

static void *help(void *arg) {
  hv_ports *ports = arg;
  unsigned failures = 0;
  pthread_mutex_lock(&ports->lock);
  while (!ports->closing) {
    hv_ports_news news;
    ports->again = 0;
    pthread_mutex_unlock(&ports->lock);
    ask(ports, &news);
    tell(ports, &news);
    failures = news.open ? 0 : failures + 1;
    uint64_t until = hv_clock_us() + pause_s(ports, failures) * UINT64_C(1000000);
    pthread_mutex_lock(&ports->lock);
    while (!ports->closing && !ports->again && hv_clock_us() < until)
      wait_until(ports, until);
    if (ports->again)
      failures = 0;
  }
  pthread_mutex_unlock(&ports->lock);
  give_back(ports);
  pthread_mutex_lock(&ports->lock);
  ports->ended = 1;
  pthread_cond_broadcast(&ports->bell);
  pthread_mutex_unlock(&ports->lock);
  release(ports);
  return NULL;
}

hv_status hv_ports_open(hv_mem *mem, const hv_ports_config *config, hv_ports **out) {
  hv_ports *ports = hv_mem_zalloc(mem, sizeof *ports);
  if (!ports)
    return HV_NOMEM;
  ports->mem = mem;
  ports->config = *config;
  ports->refs = 2;
  pthread_mutex_init(&ports->lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&ports->bell, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_t thread;
  if (pthread_create(&thread, NULL, help, ports) != 0) {
    ports->refs = 1;
    release(ports);
    return HV_IO;
  }
  pthread_detach(thread);
  *out = ports;
  return HV_OK;
}

int hv_ports_are_built(void) {
#ifdef HV_HAS_PORTS
  return 1;
#else
  return 0;
#endif
}

void hv_ports_again(hv_ports *ports) {
  pthread_mutex_lock(&ports->lock);
  ports->again = 1;
  pthread_cond_broadcast(&ports->bell);
  pthread_mutex_unlock(&ports->lock);
}

void hv_ports_close(hv_ports *ports) {
  if (!ports)
    return;
  uint64_t until = hv_clock_us() + HV_PORTS_CLOSE_MS * UINT64_C(1000);
  pthread_mutex_lock(&ports->lock);
  ports->closing = 1;
  pthread_cond_broadcast(&ports->bell);
  while (ports->news.open && !ports->ended && hv_clock_us() < until)
    wait_until(ports, until);
  pthread_mutex_unlock(&ports->lock);
  release(ports);
}
