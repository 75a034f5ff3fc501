#include "core/addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHAPE "/ip4|ip6|dns4|dns6/HOST/tcp/PORT[/p2p/PEERID]"
enum { TEXT_LIMIT = 1024, NAME_LIMIT = HV_ADDR_HOST_MAX - 1, LABEL_LIMIT = 63 };

/* ---- what multiaddrs are made of ---- */

/* Where a protocol stands in the addresses spoken here. FOREIGN: in none of them. */
typedef enum stage { AT_HOST, AT_PORT, AT_PEER, AT_END, FOREIGN } stage;
typedef enum form { NOTHING, IP4, IP6, NAME, PORT, PEER, OPAQUE } form;
enum { COUNTED = -1 }; /* a packed value with its size in front, as a varint */

typedef struct protocol {
  const char *name;
  uint32_t code; /* the multicodec */
  stage stage;
  form value;
  int size; /* of a packed value */
  hv_addr_kind kind;
} protocol;

static const protocol protocols[] = {
    {"ip4", 4, AT_HOST, IP4, 4, HV_ADDR_IP4},
    {"ip6", 41, AT_HOST, IP6, 16, HV_ADDR_IP6},
    {"dns", 53, AT_HOST, NAME, COUNTED, HV_ADDR_DNS},
    {"dns4", 54, AT_HOST, NAME, COUNTED, HV_ADDR_DNS4},
    {"dns6", 55, AT_HOST, NAME, COUNTED, HV_ADDR_DNS6},
    {"tcp", 6, AT_PORT, PORT, 2, HV_ADDR_NONE},
    {"p2p", 421, AT_PEER, PEER, COUNTED, HV_ADDR_NONE},
    {"ipfs", 421, AT_PEER, PEER, COUNTED, HV_ADDR_NONE}, /* the older name of p2p */
    {"udp", 273, FOREIGN, PORT, 2, HV_ADDR_NONE},
    {"quic", 460, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"quic-v1", 461, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"p2p-circuit", 290, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"dnsaddr", 56, FOREIGN, NAME, COUNTED, HV_ADDR_NONE},
    {"ip6zone", 42, FOREIGN, OPAQUE, COUNTED, HV_ADDR_NONE},
    {"ws", 477, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"wss", 478, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"http", 480, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"https", 443, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"tls", 448, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"sni", 449, FOREIGN, OPAQUE, COUNTED, HV_ADDR_NONE},
    {"noise", 454, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"webtransport", 465, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"certhash", 466, FOREIGN, OPAQUE, COUNTED, HV_ADDR_NONE},
    {"webrtc-direct", 280, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"webrtc", 281, FOREIGN, NOTHING, 0, HV_ADDR_NONE},
    {"onion3", 445, FOREIGN, OPAQUE, 37, HV_ADDR_NONE},
};
enum { N_PROTOCOLS = sizeof protocols / sizeof *protocols };

/* An address as far as it has been read. */
typedef struct reading {
  hv_addr addr;
  hv_peer_id peer;
  hv_error peer_error;   /* told only if nothing else is wrong */
  stage next;            /* what may stand next */
  const char *misplaced; /* the first protocol that stood elsewhere */
  const char *foreign;   /* the first of another transport */
} reading;

static void addr_advance(reading *r, const protocol *p) {
  if (p->stage == FOREIGN)
    r->foreign = r->foreign ? r->foreign : p->name;
  else if (p->stage == r->next)
    r->next = p->stage + 1;
  else
    r->misplaced = r->misplaced ? r->misplaced : p->name;
  if (p->stage == AT_HOST)
    r->addr.kind = (uint8_t)p->kind;
}

/* ---- values in text ---- */

/* A terminated copy; 0 when it does not fit or holds a zero byte. */
static int terminated(hv_span text, char *out, size_t room) {
  if (text.size >= room || memchr(text.data, 0, text.size))
    return 0;
  memcpy(out, text.data, text.size);
  out[text.size] = 0;
  return 1;
}

static int read_ip(int family, hv_span text, uint8_t *out) {
  char copy[INET6_ADDRSTRLEN];
  return terminated(text, copy, sizeof copy) && inet_pton(family, copy, out) == 1;
}

static int read_port(hv_span text, uint16_t *out) {
  unsigned port = 0;
  if (text.size == 1 && text.data[0] == '*')
    return *out = 0, 1;
  for (size_t i = 0; i < text.size; i++) {
    if (i == 5 || text.data[i] < '0' || text.data[i] > '9')
      return 0;
    port = port * 10 + text.data[i] - '0';
  }
  *out = (uint16_t)port;
  return text.size > 0 && port <= UINT16_MAX;
}

/* Labels of letters, digits, '-' and '_' with single dots between. The last one is no number: resolvers would take it for an IPv4
 * address. */
static int read_name(hv_span text, char out[HV_ADDR_HOST_MAX]) {
  size_t label = 0;
  int number = 1;
  if (text.size > NAME_LIMIT)
    return 0;
  for (size_t i = 0; i < text.size; i++) {
    unsigned char c = text.data[i];
    if (c >= 'A' && c <= 'Z')
      c = (unsigned char)(c + 'a' - 'A');
    if (c == '.') {
      if (label == 0)
        return 0;
      label = 0;
      number = 1;
    } else {
      int digit = c >= '0' && c <= '9';
      if ((!digit && !(c >= 'a' && c <= 'z') && c != '-' && c != '_') || ++label > LABEL_LIMIT)
        return 0;
      number &= digit;
    }
    out[i] = (char)c;
  }
  out[text.size] = 0;
  return label > 0 && !number;
}

static hv_status bad_value(hv_error *err, const protocol *p, hv_span text) {
  char quote[HV_QUOTE_MAX];
  hv_span_quote(text, quote);
  switch (p->value) {
  case IP4:
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is not an IPv4 address: expected four numbers like 192.0.2.1 (a host name needs /dns4/)", quote);
  case IP6:
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' is not an IPv6 address: expected an address like 2001:db8::1 (a host name needs /dns6/)", quote);
  case PORT:
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "'%s' is not a port: expected a number from 0 to 65535", quote);
  default:
    return hv_fail_by(
        err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
        "'%s' is not a host name: expected letters, digits, '-' and '_' in parts of at most 63, with dots between them; the last "
        "part must not be a number",
        quote);
  }
}

/* ---- multiaddrs in text ---- */

/* Takes "/piece" off the front. */
static hv_span take_piece(hv_span *rest) {
  const uint8_t *start = rest->data + 1;
  size_t left = rest->size - 1;
  const uint8_t *end = left ? memchr(start, '/', left) : NULL;
  hv_span piece = hv_span_of(start, end ? (size_t)(end - start) : left);
  *rest = hv_span_of(start + piece.size, left - piece.size);
  return piece;
}

static const protocol *named(hv_span name) {
  for (int i = 0; i < N_PROTOCOLS; i++)
    if (hv_span_equal(name, hv_span_of(protocols[i].name, strlen(protocols[i].name))))
      return &protocols[i];
  return NULL;
}

static hv_status read_value(reading *r, const protocol *p, hv_span text, hv_error *err) {
  int right = 1;
  switch (p->value) {
  case IP4:
    right = read_ip(AF_INET, text, r->addr.host.ip);
    break;
  case IP6:
    right = read_ip(AF_INET6, text, r->addr.host.ip);
    break;
  case NAME:
    right = read_name(text, r->addr.host.name);
    break;
  case PORT:
    right = read_port(text, &r->addr.port);
    break;
  case PEER:
    hv_peer_parse(text, &r->peer, &r->peer_error);
    break;
  case NOTHING:
  case OPAQUE:
    break;
  }
  return right ? HV_OK : bad_value(err, p, text);
}

static hv_status judge(const reading *r, hv_span text, hv_error *err) {
  char quote[HV_QUOTE_MAX];
  hv_span_quote(text, quote);
  if (r->foreign)
    return hv_fail_by(err, HV_UNSUPPORTED, HV_CAUSE_OTHER_TRANSPORT,
                      "cannot use the address '%s': '%s' is not supported, only TCP; give an address like " SHAPE, quote,
                      r->foreign);
  if (r->misplaced)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "'%s' is at the wrong position in '%s': expected " SHAPE,
                      r->misplaced, quote);
  if (r->next <= AT_PORT)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "'%s' has no port: expected " SHAPE, quote);
  if (r->peer_error.status != HV_OK)
    return hv_fail_by(err, r->peer_error.status, r->peer_error.cause, "%s", r->peer_error.text);
  return HV_OK;
}

static hv_status read_multiaddr(reading *r, hv_span text, hv_error *err) {
  char piece[HV_QUOTE_MAX], whole[HV_QUOTE_MAX];
  hv_span rest = text;
  hv_span_quote(text, whole);
  while (rest.size) {
    hv_span name = take_piece(&rest);
    const protocol *p = named(name);
    if (!p)
      return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "unknown protocol '%s' in '%s': expected " SHAPE,
                        hv_span_quote(name, piece), whole);
    hv_span value = p->value != NOTHING && rest.size ? take_piece(&rest) : hv_span_of(NULL, 0);
    if (p->value != NOTHING && !value.size)
      return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "no value after '/%s' in '%s': expected " SHAPE, p->name, whole);
    hv_status status = read_value(r, p, value, err);
    if (status != HV_OK)
      return status;
    addr_advance(r, p);
  }
  return judge(r, text, err);
}

/* ---- HOST:PORT ---- */

static int looks_like_ip4(hv_span host) {
  for (size_t i = 0; i < host.size; i++)
    if (host.data[i] != '.' && (host.data[i] < '0' || host.data[i] > '9'))
      return 0;
  return host.size > 0;
}

static hv_status read_host_port(reading *r, hv_span text, hv_error *err) {
  char quote[HV_QUOTE_MAX];
  hv_span_quote(text, quote);
  const uint8_t *colon = text.size ? memrchr(text.data, ':', text.size) : NULL;
  if (!colon)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "'%s' is not an address: expected HOST:PORT, [IPV6]:PORT or " SHAPE,
                      quote);
  hv_span host = hv_span_of(text.data, (size_t)(colon - text.data));
  hv_span port = hv_span_of(colon + 1, text.size - host.size - 1);
  const char *kind = looks_like_ip4(host) ? "ip4" : "dns";
  if (host.size >= 2 && host.data[0] == '[' && host.data[host.size - 1] == ']') {
    host = hv_span_of(host.data + 1, host.size - 2);
    kind = "ip6";
  } else if (memchr(host.data, ':', host.size)) {
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS,
                      "'%s' has more than one ':': expected HOST:PORT, [IPV6]:PORT or " SHAPE, quote);
  }
  const protocol *at_host = named(hv_span_of(kind, 3)), *tcp = named(hv_span_of("tcp", 3));
  hv_status status = read_value(r, at_host, host, err);
  if (status == HV_OK)
    status = read_value(r, tcp, port, err);
  addr_advance(r, at_host);
  addr_advance(r, tcp);
  return status;
}

hv_status hv_addr_parse(hv_span text, hv_addr *out, hv_peer_id *peer, hv_error *err) {
  reading r = {0};
  char quote[HV_QUOTE_MAX];
  if (text.size > TEXT_LIMIT)
    return hv_fail_by(err, HV_MALFORMED, HV_CAUSE_BAD_ADDRESS, "'%s' has %zu characters: an address has at most %d",
                      hv_span_quote(text, quote), text.size, TEXT_LIMIT);
  hv_status status = text.size && text.data[0] == '/' ? read_multiaddr(&r, text, err) : read_host_port(&r, text, err);
  if (status != HV_OK)
    return status;
  *out = r.addr;
  if (peer)
    *peer = r.peer;
  return HV_OK;
}

/* ---- printing ---- */

static const protocol *of_kind(uint8_t kind) {
  for (int i = 0; i < N_PROTOCOLS; i++)
    if (protocols[i].stage == AT_HOST && protocols[i].kind == kind)
      return &protocols[i];
  return NULL;
}

static const char *print_host(const hv_addr *addr, const protocol *p, char out[HV_ADDR_HOST_MAX]) {
  if (p->value == NAME)
    return addr->host.name;
  return inet_ntop(p->value == IP4 ? AF_INET : AF_INET6, addr->host.ip, out, HV_ADDR_HOST_MAX);
}

const char *hv_addr_print(const hv_addr *addr, const hv_peer_id *peer, char out[HV_ADDR_TEXT_MAX]) {
  char host[HV_ADDR_HOST_MAX], id[HV_PEER_TEXT_MAX];
  const protocol *p = of_kind(addr->kind);
  int known = peer && hv_peer_is_known(peer);
  if (!p)
    return strcpy(out, "(no address)");
  snprintf(out, HV_ADDR_TEXT_MAX, "/%s/%.*s/tcp/%u%s%s", p->name, NAME_LIMIT, print_host(addr, p, host), addr->port,
           known ? "/p2p/" : "", known ? hv_peer_print(peer, id) : "");
  return out;
}

const char *hv_addr_print_short(const hv_addr *addr, char out[HV_ADDR_TEXT_MAX]) {
  char host[HV_ADDR_HOST_MAX];
  const protocol *p = of_kind(addr->kind);
  if (!p)
    return strcpy(out, "(no address)");
  snprintf(out, HV_ADDR_TEXT_MAX, p->value == IP6 ? "[%.*s]:%u" : "%.*s:%u", NAME_LIMIT, print_host(addr, p, host), addr->port);
  return out;
}

/* ---- what kind of place is it ---- */

int hv_addr_equal(const hv_addr *a, const hv_addr *b) {
  const protocol *p = of_kind(a->kind);
  if (a->kind != b->kind || a->port != b->port)
    return 0;
  if (p && p->value == NAME)
    return strcasecmp(a->host.name, b->host.name) == 0;
  return !p || memcmp(a->host.ip, b->host.ip, (size_t)p->size) == 0;
}

/* The four bytes of an IPv4 address, also of one inside ::ffff:0:0/96; NULL for others. */
static const uint8_t *as_ip4(const hv_addr *addr) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  if (addr->kind == HV_ADDR_IP4)
    return addr->host.ip;
  return addr->kind == HV_ADDR_IP6 && memcmp(addr->host.ip, mapped, 12) == 0 ? addr->host.ip + 12 : NULL;
}

/* 1 for fifteen zero bytes and this one. */
static int is_low_ip6(const hv_addr *addr, uint8_t last) {
  static const uint8_t zeros[15];
  return addr->kind == HV_ADDR_IP6 && memcmp(addr->host.ip, zeros, 15) == 0 && addr->host.ip[15] == last;
}

int hv_addr_is_unspecified(const hv_addr *addr) {
  const uint8_t *ip = as_ip4(addr);
  return ip ? !(ip[0] | ip[1] | ip[2] | ip[3]) : is_low_ip6(addr, 0);
}

int hv_addr_is_loopback(const hv_addr *addr) {
  const uint8_t *ip = as_ip4(addr);
  const protocol *p = of_kind(addr->kind);
  if (p && p->value == NAME)
    return strcasecmp(addr->host.name, "localhost") == 0;
  return ip ? ip[0] == 127 : is_low_ip6(addr, 1);
}

int hv_addr_is_private(const hv_addr *addr) {
  const uint8_t *ip = as_ip4(addr);
  if (hv_addr_is_loopback(addr))
    return 1;
  if (ip)
    return ip[0] == 10 || (ip[0] == 172 && ip[1] >> 4 == 1) || (ip[0] == 192 && ip[1] == 168) || (ip[0] == 169 && ip[1] == 254) ||
           (ip[0] == 100 && ip[1] >> 6 == 1);
  ip = addr->host.ip;
  return addr->kind == HV_ADDR_IP6 && ((ip[0] & 0xfe) == 0xfc || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80));
}

/* ---- packed ---- */

static size_t put_varint(uint8_t *out, uint32_t value) {
  size_t n = 0;
  for (; value >= 0x80; value >>= 7)
    out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}

/* Takes a varint in its shortest form off the front; 0 when there is none. */
static int take_varint(hv_span *rest, uint32_t *out) {
  *out = 0;
  for (unsigned i = 0; i < 4 && i < rest->size; i++) {
    uint8_t byte = rest->data[i];
    *out |= (uint32_t)(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      *rest = hv_span_of(rest->data + i + 1, rest->size - i - 1);
      return byte != 0 || i == 0;
    }
  }
  return 0;
}

static int take_bytes(hv_span *rest, size_t size, hv_span *out) {
  if (size > rest->size)
    return 0;
  *out = hv_span_of(rest->data, size);
  *rest = hv_span_of(rest->data + size, rest->size - size);
  return 1;
}

size_t hv_addr_pack(const hv_addr *addr, uint8_t out[HV_ADDR_PACKED_MAX]) {
  const protocol *p = of_kind(addr->kind);
  if (!p)
    return 0;
  size_t n = put_varint(out, p->code), size = p->value == NAME ? strnlen(addr->host.name, NAME_LIMIT) : (size_t)p->size;
  if (p->size == COUNTED)
    n += put_varint(out + n, (uint32_t)size);
  memcpy(out + n, p->value == NAME ? (const uint8_t *)addr->host.name : addr->host.ip, size);
  n += size;
  n += put_varint(out + n, 6);
  out[n++] = (uint8_t)(addr->port >> 8);
  out[n++] = (uint8_t)addr->port;
  return n;
}

static const protocol *coded(uint32_t code) {
  for (int i = 0; i < N_PROTOCOLS; i++)
    if (protocols[i].code == code)
      return &protocols[i];
  return NULL;
}

/* 1: one protocol with its value has been taken off the front of rest. */
static int unpack_piece(reading *r, hv_span *rest) {
  uint32_t code, size;
  hv_span bytes;
  if (!take_varint(rest, &code))
    return 0;
  const protocol *p = coded(code);
  if (!p)
    return 0;
  size = (uint32_t)p->size;
  if (p->size == COUNTED && !take_varint(rest, &size))
    return 0;
  if (!take_bytes(rest, size, &bytes))
    return 0;
  char name[HV_ADDR_HOST_MAX] = {0};
  if (p->value == NAME && !read_name(bytes, name))
    return 0;
  if (p->stage == AT_HOST)
    memcpy(r->addr.host.ip, p->value == NAME ? (const uint8_t *)name : bytes.data, p->value == NAME ? sizeof name : bytes.size);
  if (p->stage == AT_PORT)
    r->addr.port = (uint16_t)(bytes.data[0] << 8 | bytes.data[1]);
  addr_advance(r, p);
  return 1;
}

hv_status hv_addr_unpack(hv_span bytes, hv_addr *out) {
  reading r = {0};
  if (bytes.size > TEXT_LIMIT)
    return HV_MALFORMED;
  while (bytes.size)
    if (!unpack_piece(&r, &bytes))
      return HV_MALFORMED;
  if (r.foreign)
    return HV_UNSUPPORTED;
  if (r.misplaced || r.next != AT_PEER)
    return HV_MALFORMED;
  *out = r.addr;
  return HV_OK;
}
