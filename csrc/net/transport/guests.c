#include "net/transport/guests.h"

#include <string.h>

hv_status hv_guests_init(hv_guests *guests, hv_mem *mem, const hv_guest_limits *limits) {
  *guests = (hv_guests){.limits = *limits, .n = limits->new_ones + limits->known};
  guests->places = hv_mem_zalloc(mem, guests->n * sizeof *guests->places);
  guests->accounts = hv_mem_zalloc(mem, guests->n * sizeof *guests->accounts);
  if (guests->places && guests->accounts)
    return HV_OK;
  hv_guests_fini(guests);
  return HV_NOMEM;
}

void hv_guests_fini(hv_guests *guests) {
  hv_mem_free(guests->places);
  hv_mem_free(guests->accounts);
  *guests = (hv_guests){0};
}

uint64_t hv_guest_network(const hv_addr *addr) {
  size_t n = addr->kind == HV_ADDR_IP4 ? 3 : 6;
  uint64_t network = addr->kind; /* not 0, and not the other family's */
  for (size_t i = 0; i < n; i++)
    network = network << 8 | addr->host.ip[i];
  return network;
}

uint64_t hv_guest_key(const hv_addr *addr) {
  size_t n = addr->kind == HV_ADDR_IP4 ? 4 : 16;
  uint64_t key = UINT64_C(0xcbf29ce484222325) ^ addr->port;
  for (size_t i = 0; i < n; i++)
    key = (key ^ addr->host.ip[i]) * UINT64_C(0x100000001b3);
  return key | 1;
}

static const hv_guest_account *account_of(const hv_guests *guests, uint64_t network) {
  for (size_t i = 0; i < guests->n; i++)
    if (guests->accounts[i].network == network)
      return &guests->accounts[i];
  return NULL;
}

static const hv_guest_account *largest(const hv_guests *guests, hv_guest_state state) {
  const hv_guest_account *most = guests->accounts;
  for (size_t i = 1; i < guests->n; i++)
    if (guests->accounts[i].in[state] > most->in[state])
      most = &guests->accounts[i];
  return most;
}

/* The guest on that account which has been in that state longest; or shortest. */
static long pick(const hv_guests *guests, hv_guest_state state, const hv_guest_account *account, int newest) {
  long found = HV_GUEST_REFUSE;
  uint64_t since = 0;
  for (size_t i = 0; i < guests->n; i++) {
    const hv_guest *guest = &guests->places[i];
    if (guest->state != state || &guests->accounts[guest->account] != account)
      continue;
    if (found < 0 || (newest ? guest->since_us >= since : guest->since_us < since)) {
      found = (long)i;
      since = guest->since_us;
    }
  }
  return found;
}

long hv_guests_make_room(const hv_guests *guests, hv_guest_state state, uint64_t network) {
  const hv_guest_limits *limits = &guests->limits;
  int is_new = state == HV_GUEST_NEW;
  const hv_guest_account *own = account_of(guests, network);
  size_t n = own ? own->in[state] : 0;
  if (n >= (is_new ? limits->new_of_one : limits->known_of_one))
    return is_new ? pick(guests, state, own, 0) : HV_GUEST_REFUSE;
  if (guests->in[state] < (is_new ? limits->new_ones : limits->known))
    return HV_GUEST_ADMIT;
  const hv_guest_account *crowd = largest(guests, state);
  if (!is_new && n + 1 >= crowd->in[state])
    return HV_GUEST_REFUSE;
  return pick(guests, state, crowd, !is_new);
}

size_t hv_guests_enter(hv_guests *guests, const hv_addr *from, int fd, uint64_t now_us) {
  uint64_t network = hv_guest_network(from);
  const hv_guest_account *own = account_of(guests, network);
  if (!own)
    own = account_of(guests, 0); /* there are as many accounts as places */
  size_t account = (size_t)(own - guests->accounts), place = 0;
  while (guests->places[place].state != HV_GUEST_NONE)
    place++;
  guests->accounts[account].network = network;
  guests->accounts[account].in[HV_GUEST_NEW]++;
  guests->in[HV_GUEST_NEW]++;
  guests->places[place] = (hv_guest){.state = HV_GUEST_NEW,
                                     .fd = fd,
                                     .key = hv_guest_key(from),
                                     .account = (uint32_t)account,
                                     .serial = ++guests->serial,
                                     .since_us = now_us};
  return place;
}

static void move(hv_guests *guests, hv_guest *guest, hv_guest_state to) {
  hv_guest_account *account = &guests->accounts[guest->account];
  account->in[guest->state]--;
  guests->in[guest->state]--;
  account->in[to]++;
  guests->in[to]++;
  guest->state = to;
}

void hv_guests_know(hv_guests *guests, size_t place, uint64_t now_us) {
  move(guests, &guests->places[place], HV_GUEST_KNOWN);
  guests->places[place].since_us = now_us;
}

void hv_guests_wait(hv_guests *guests, size_t place) {
  guests->waiting += !guests->places[place].waits;
  guests->places[place].waits = 1;
}

static void wait_no_more(hv_guests *guests, hv_guest *guest) {
  guests->waiting -= guest->waits != 0;
  guest->waits = 0;
}

static int goes_before(const hv_guests *guests, const hv_guest *a, const hv_guest *b) {
  uint64_t turn_a = guests->accounts[a->account].turn, turn_b = guests->accounts[b->account].turn;
  return turn_a != turn_b ? turn_a < turn_b : (int32_t)(a->serial - b->serial) > 0;
}

size_t hv_guests_next(hv_guests *guests) {
  hv_guest *next = NULL;
  for (size_t i = 0; guests->waiting && i < guests->n; i++) {
    hv_guest *guest = &guests->places[i];
    if (guest->waits && (!next || goes_before(guests, guest, next)))
      next = guest;
  }
  if (!next)
    return guests->n;
  wait_no_more(guests, next);
  next->spoke = 1;
  guests->accounts[next->account].turn = ++guests->turns;
  return (size_t)(next - guests->places);
}

size_t hv_guests_find(const hv_guests *guests, uint64_t key) {
  for (size_t i = 0; i < guests->n; i++)
    if (guests->places[i].state != HV_GUEST_NONE && guests->places[i].key == key)
      return i;
  return guests->n;
}

void hv_guests_leave(hv_guests *guests, size_t place) {
  hv_guest *guest = &guests->places[place];
  hv_guest_account *account = &guests->accounts[guest->account];
  wait_no_more(guests, guest);
  move(guests, guest, HV_GUEST_NONE);
  account->in[HV_GUEST_NONE] = guests->in[HV_GUEST_NONE] = 0; /* nobody counts those who left */
  if (!account->in[HV_GUEST_NEW] && !account->in[HV_GUEST_KNOWN])
    *account = (hv_guest_account){0};
}

enum { RECORD_HEADER = 5, HELLO_LEAST = 42, HELLO_HEADER = 4, VERSION_AND_RANDOM = 34, SUPPORTED_VERSIONS = 43, TLS_1_3 = 0x0304 };

/* Takes a field from the front of a hello: a length of so many bytes, and what it counts. False: it is not all there. */
static int take_field(hv_span *hello, size_t length_bytes, hv_span *out) {
  size_t size = 0;
  if (hello->size < length_bytes)
    return 0;
  for (size_t i = 0; i < length_bytes; i++)
    size = size << 8 | hello->data[i];
  if (size > hello->size - length_bytes)
    return 0;
  *out = hv_span_of(hello->data + length_bytes, size);
  *hello = hv_span_of(out->data + size, hello->size - length_bytes - size);
  return 1;
}

static int names_tls_1_3(hv_span extension) {
  hv_span versions;
  if (!take_field(&extension, 1, &versions))
    return 0;
  for (size_t i = 0; i + 1 < versions.size; i += 2)
    if ((versions.data[i] << 8 | versions.data[i + 1]) == TLS_1_3)
      return 1;
  return 0;
}

/* Reads a ClientHello (RFC 8446, 4.1.2) without its header. */
static long read_versions(hv_span hello) {
  hv_span session, ciphers, compressions, extensions, extension;
  hello = hv_span_of(hello.data + VERSION_AND_RANDOM, hello.size - VERSION_AND_RANDOM);
  if (!take_field(&hello, 1, &session) || !take_field(&hello, 2, &ciphers) || !take_field(&hello, 1, &compressions))
    return HV_GUEST_STRANGE;
  if (hello.size == 0)
    return HV_GUEST_OLD_TLS;
  if (!take_field(&hello, 2, &extensions))
    return HV_GUEST_STRANGE;
  while (extensions.size >= 2) {
    int kind = extensions.data[0] << 8 | extensions.data[1];
    extensions = hv_span_of(extensions.data + 2, extensions.size - 2);
    if (!take_field(&extensions, 2, &extension))
      return HV_GUEST_STRANGE;
    if (kind == SUPPORTED_VERSIONS)
      return names_tls_1_3(extension) ? 0 : HV_GUEST_OLD_TLS;
  }
  return HV_GUEST_OLD_TLS;
}

static long read_client_hello(const uint8_t *first, size_t n) {
  static const uint8_t handshake[] = {0x16, 3};
  if (n > 0 && memcmp(first, handshake, n < sizeof handshake ? n : sizeof handshake) != 0)
    return HV_GUEST_STRANGE;
  if (n <= RECORD_HEADER)
    return RECORD_HEADER + 1;
  size_t size = (size_t)(first[3] << 8 | first[4]), whole = RECORD_HEADER + size;
  if (first[RECORD_HEADER] != 1 || size < HELLO_LEAST || whole > HV_GUEST_FIRST_MAX)
    return HV_GUEST_STRANGE;
  if (n < whole)
    return (long)whole;
  return read_versions(hv_span_of(first + RECORD_HEADER + HELLO_HEADER, size - HELLO_HEADER));
}

long hv_guest_reads(const uint8_t *first, size_t n, int insecure) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  size_t whole = sizeof preface - 1;
  if (!insecure)
    return read_client_hello(first, n);
  if (memcmp(first, preface, n < whole ? n : whole) != 0)
    return HV_GUEST_STRANGE;
  return n < whole ? (long)whole : 0;
}
