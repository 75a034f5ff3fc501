/* Multiaddrs: what is read, what is refused and why, and that text and packed bytes come back as they went. */
#include "lib/check.h"

#include "core/addr.h"

#include <stdio.h>
#include <string.h>

#define ID "12D3KooWEChVMMMzV8acJ53mJHrw1pQ27UAGkCxWXLJutbeUMvVu"
#define RSA_ID "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"

static hv_span text_of(const char *text) {
  return hv_span_of(text, strlen(text));
}

static hv_addr read_addr(const char *text) {
  hv_addr addr;
  hv_error err = {0};
  if (hv_addr_parse(text_of(text), &addr, NULL, &err) != HV_OK)
    fail_msg("%s", err.text);
  return addr;
}

static void every_form_reads_and_prints(void **state) {
  (void)state;
  static const struct {
    const char *text, *printed, *brief;
    hv_addr_kind kind;
    unsigned port;
  } forms[] = {
      {"/ip4/192.0.2.1/tcp/31337", "/ip4/192.0.2.1/tcp/31337", "192.0.2.1:31337", HV_ADDR_IP4, 31337},
      {"/ip6/2001:db8::1/tcp/80", "/ip6/2001:db8::1/tcp/80", "[2001:db8::1]:80", HV_ADDR_IP6, 80},
      {"/ip6/2001:DB8:0:0:0:0:0:1/tcp/080", "/ip6/2001:db8::1/tcp/80", "[2001:db8::1]:80", HV_ADDR_IP6, 80},
      {"/dns4/Hive.Example.org/tcp/65535", "/dns4/hive.example.org/tcp/65535", "hive.example.org:65535", HV_ADDR_DNS4, 65535},
      {"/dns6/a/tcp/1", "/dns6/a/tcp/1", "a:1", HV_ADDR_DNS6, 1},
      {"/dns/my_host-2.lan/tcp/0", "/dns/my_host-2.lan/tcp/0", "my_host-2.lan:0", HV_ADDR_DNS, 0},
      {"/ip4/0.0.0.0/tcp/*", "/ip4/0.0.0.0/tcp/0", "0.0.0.0:0", HV_ADDR_IP4, 0},
      {"0.0.0.0:31337", "/ip4/0.0.0.0/tcp/31337", "0.0.0.0:31337", HV_ADDR_IP4, 31337},
      {"[::]:*", "/ip6/::/tcp/0", "[::]:0", HV_ADDR_IP6, 0},
      {"[fe80::1]:443", "/ip6/fe80::1/tcp/443", "[fe80::1]:443", HV_ADDR_IP6, 443},
      {"localhost:9", "/dns/localhost/tcp/9", "localhost:9", HV_ADDR_DNS, 9},
      {"1.example:9", "/dns/1.example/tcp/9", "1.example:9", HV_ADDR_DNS, 9},
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    char out[HV_ADDR_TEXT_MAX];
    hv_addr addr = read_addr(forms[i].text), again = read_addr(forms[i].printed);
    assert_int_equal(addr.kind, forms[i].kind);
    assert_int_equal(addr.port, forms[i].port);
    assert_string_equal(hv_addr_print(&addr, NULL, out), forms[i].printed);
    assert_string_equal(hv_addr_print_short(&addr, out), forms[i].brief);
    assert_true(hv_addr_equal(&addr, &again));
    assert_memory_equal(&addr, &again, sizeof addr); /* what is not used is zero */
  }
}

static void the_peer_behind_p2p_is_read(void **state) {
  (void)state;
  hv_addr addr;
  hv_peer_id peer;
  char out[HV_ADDR_TEXT_MAX];
  assert_int_equal(hv_addr_parse(text_of("/dns4/x.org/tcp/5/p2p/" ID), &addr, &peer, NULL), HV_OK);
  assert_string_equal(hv_addr_print(&addr, &peer, out), "/dns4/x.org/tcp/5/p2p/" ID);
  assert_int_equal(hv_addr_parse(text_of("/dns4/x.org/tcp/5/ipfs/" ID), &addr, &peer, NULL), HV_OK);
  assert_string_equal(hv_addr_print(&addr, &peer, out), "/dns4/x.org/tcp/5/p2p/" ID);
  assert_int_equal(hv_addr_parse(text_of("/dns4/x.org/tcp/5"), &addr, &peer, NULL), HV_OK);
  assert_false(hv_peer_is_known(&peer));
  assert_string_equal(hv_addr_print(&addr, &peer, out), "/dns4/x.org/tcp/5");
  assert_int_equal(hv_addr_parse(text_of("/ip4/1.2.3.4/tcp/5/p2p/" ID), &addr, NULL, NULL), HV_OK);
}

static void refuse(const char *text, size_t size, hv_status status, const char *why) {
  hv_addr out, before;
  hv_peer_id peer, peer_before;
  hv_error err = {0};
  memset(&out, 7, sizeof out);
  memset(&peer, 7, sizeof peer);
  before = out;
  peer_before = peer;
  hv_status got = hv_addr_parse(hv_span_of(text, size), &out, &peer, &err);
  if (got != status || err.status != status || !strstr(err.text, why))
    fail_msg("'%.*s' gave %s, '%s', and should have said '%s'", (int)size, text, hv_status_name(got), err.text, why);
  assert_int_equal(hv_addr_parse(hv_span_of(text, size), &out, &peer, NULL), status);
  assert_memory_equal(&out, &before, sizeof out);
  assert_memory_equal(&peer, &peer_before, sizeof peer);
}

static void malformed_addresses_are_refused_with_their_cause(void **state) {
  (void)state;
  static const char *const bad[][2] = {
      {"", "'' is not an address"},
      {"/", "unknown protocol"},
      {"//", "unknown protocol"},
      {"nonsense", "'nonsense' is not an address"},
      {"example.org", "HOST:PORT"},
      {"1.2.3.4", "HOST:PORT"},
      {"http://x:80", "more than one ':'"},
      {"::1:80", "more than one ':'"},
      {":80", "'' is not a host name"},
      {"x:", "'' is not a port"},
      {"x:-1", "'-1' is not a port"},
      {"x:+1", "'+1' is not a port"},
      {"x: 1", "' 1' is not a port"},
      {"x:65536", "'65536' is not a port"},
      {"x:000080", "'000080' is not a port"},
      {"x:**", "'**' is not a port"},
      {"x:99999999999999999999", "is not a port"},
      {"x:80/p2p/" ID, "is not a port"},
      {" x:80", "' x' is not a host name"},
      {"x\n:80", "'x?' is not a host name"},
      {"a b:80", "'a b' is not a host name"},
      {"a..b:80", "'a..b' is not a host name"},
      {".a:80", "'.a' is not a host name"},
      {"a.:80", "'a.' is not a host name"},
      {"*:80", "'*' is not a host name"},
      {"h\xc3\xbc:80", "'h?\?' is not a host name"},
      {"256.1.1.1:80", "'256.1.1.1' is not an IPv4"},
      {"127.1:80", "'127.1' is not an IPv4"},
      {"12345:80", "'12345' is not an IPv4"},
      {"01.2.3.4:80", "'01.2.3.4' is not an IPv4"},
      {"[]:80", "'' is not an IPv6"},
      {"[:80", "not a host name"},
      {"[::1:80", "more than one ':'"},
      {"::1]:80", "more than one ':'"},
      {"[::1]80", "more than one ':'"},
      {"[1.2.3.4]:80", "'1.2.3.4' is not an IPv6"},
      {"[::1%lo]:80", "'::1%lo' is not an IPv6"},
      {"[1:2:3:4:5:6:7:8:9]:80", "is not an IPv6"},
      {"/ip4", "no value after '/ip4'"},
      {"/ip4/", "no value after '/ip4'"},
      {"/ip4//tcp/1", "no value after '/ip4'"},
      {"/ip4/1.2.3.4", "has no port"},
      {"/ip4/1.2.3.4/", "unknown protocol"},
      {"/ip4/1.2.3.4/tcp", "no value after '/tcp'"},
      {"/ip4/1.2.3.4/tcp/", "no value after '/tcp'"},
      {"/ip4/1.2.3.4/tcp/x", "'x' is not a port"},
      {"/ip4/1.2.3.4/tcp/1/", "unknown protocol"},
      {"/ip4/1.2.3.4/tcp/70000", "'70000' is not a port"},
      {"/ip4/1.2.3.4/tcp/1/tcp/2", "'tcp' is at the wrong position"},
      {"/ip4/1.2.3.4/ip4/1.2.3.4/tcp/1", "'ip4' is at the wrong position"},
      {"/tcp/1", "'tcp' is at the wrong position"},
      {"/tcp/1/ip4/1.2.3.4", "'tcp' is at the wrong position"},
      {"/p2p/" ID, "'p2p' is at the wrong position"},
      {"/ip4/1.2.3.4/p2p/" ID, "'p2p' is at the wrong position"},
      {"/ip4/1.2.3.4/tcp/1/p2p/" ID "/p2p/" ID, "'p2p' is at the wrong position"},
      {"/ip4/1.2.3.4/tcp/1/p2p", "no value after '/p2p'"},
      {"/ip4/1.2.3.4/tcp/1/p2p/abc", "'abc' is not a peer ID"},
      {"/ip4/1.2.3.4/tcp/1/p2p/" RSA_ID, "RSA"},
      {"/ip4/example.org/tcp/1", "'example.org' is not an IPv4"},
      {"/ip4/::1/tcp/1", "'::1' is not an IPv4"},
      {"/ip6/1.2.3.4/tcp/1", "'1.2.3.4' is not an IPv6"},
      {"/dns4/1.2.3.4/tcp/1", "'1.2.3.4' is not a host name"},
      {"/dns4/a.1/tcp/1", "'a.1' is not a host name"},
      {"/IP4/1.2.3.4/tcp/1", "'IP4' in"},
      {"/ip5/1.2.3.4/tcp/1", "'ip5' in"},
      {"/unix/tmp/x", "'unix' in"},
      {"/ip4/1.2.3.4/udp/70000/quic", "'70000' is not a port"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    refuse(bad[i][0], strlen(bad[i][0]), HV_MALFORMED, bad[i][1]);
  refuse("/ip4/1.2.3.4\0x/tcp/1", 20, HV_MALFORMED, "'1.2.3.4?x' is not an IPv4");
  refuse("/dns4/a\0b/tcp/1", 15, HV_MALFORMED, "'a?b' is not a host name");
  refuse("x:8\0", 4, HV_MALFORMED, "'8?' is not a port");
  refuse("/ip4\0/1.2.3.4/tcp/1", 19, HV_MALFORMED, "unknown protocol");
}

static void the_longest_name_fits_and_a_longer_one_is_refused(void **state) {
  (void)state;
  char label[64], name[512], text[1024], out[HV_ADDR_TEXT_MAX];
  uint8_t packed[HV_ADDR_PACKED_MAX];
  memset(label, 'a', 63);
  label[63] = 0;
  snprintf(name, sizeof name, "%s.%s.%s.%.61s", label, label, label, label);
  assert_int_equal(strlen(name), 253);
  snprintf(text, sizeof text, "/dns4/%s/tcp/65535/p2p/" ID, name);
  hv_addr addr, again;
  hv_peer_id peer;
  assert_int_equal(hv_addr_parse(text_of(text), &addr, &peer, NULL), HV_OK);
  assert_string_equal(hv_addr_print(&addr, &peer, out), text);
  size_t size = hv_addr_pack(&addr, packed);
  assert_in_range(size, 254, HV_ADDR_PACKED_MAX);
  assert_int_equal(hv_addr_unpack(hv_span_of(packed, size), &again), HV_OK);
  assert_memory_equal(&addr, &again, sizeof addr);
  snprintf(text, sizeof text, "/dns4/%sa/tcp/1", name);
  refuse(text, strlen(text), HV_MALFORMED, "is not a host name");
  snprintf(text, sizeof text, "/dns4/%sa/tcp/1", label);
  refuse(text, strlen(text), HV_MALFORMED, "is not a host name");
  char noise[5000];
  memset(noise, 'a', sizeof noise);
  refuse(noise, sizeof noise, HV_MALFORMED, "has 5000 characters");
}

static void other_transports_are_distinguished_from_nonsense(void **state) {
  (void)state;
  static const char *const foreign[][2] = {
      {"/ip4/1.2.3.4/udp/4001/quic", "'udp'"},
      {"/ip4/1.2.3.4/udp/4001/quic/p2p/" ID, "'udp'"},
      {"/ip6/::1/udp/4001/quic-v1/p2p/" RSA_ID, "'udp'"},
      {"/ip4/1.2.3.4/udp/4001/quic-v1/webtransport/certhash/uEiA", "'udp'"},
      {"/ip4/1.2.3.4/tcp/4001/p2p/" ID "/p2p-circuit", "'p2p-circuit'"},
      {"/ip4/1.2.3.4/tcp/4001/p2p/" RSA_ID "/p2p-circuit/p2p/" ID, "'p2p-circuit'"},
      {"/p2p/" ID "/p2p-circuit/p2p/" ID, "'p2p-circuit'"},
      {"/ip4/1.2.3.4/tcp/443/wss", "'wss'"},
      {"/ip4/1.2.3.4/tcp/443/tls/sni/x.org/ws", "'tls'"},
      {"/dnsaddr/bootstrap.libp2p.io/p2p/" RSA_ID, "'dnsaddr'"},
      {"/ip6zone/eth0/ip6/fe80::1/tcp/1", "'ip6zone'"},
  };
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    refuse(foreign[i][0], strlen(foreign[i][0]), HV_UNSUPPORTED, foreign[i][1]);
}

static void places_are_told_apart(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int unspecified, loopback, private;
  } places[] = {
      {"0.0.0.0:1", 1, 0, 0},
      {"[::]:1", 1, 0, 0},
      {"[::ffff:0.0.0.0]:1", 1, 0, 0},
      {"127.0.0.1:1", 0, 1, 1},
      {"127.255.0.9:1", 0, 1, 1},
      {"[::1]:1", 0, 1, 1},
      {"[::ffff:127.0.0.1]:1", 0, 1, 1},
      {"LOCALHOST:1", 0, 1, 1},
      {"localhost.org:1", 0, 0, 0},
      {"10.1.2.3:1", 0, 0, 1},
      {"11.1.2.3:1", 0, 0, 0},
      {"172.15.0.1:1", 0, 0, 0},
      {"172.16.0.1:1", 0, 0, 1},
      {"172.31.0.1:1", 0, 0, 1},
      {"172.32.0.1:1", 0, 0, 0},
      {"192.168.0.1:1", 0, 0, 1},
      {"192.169.0.1:1", 0, 0, 0},
      {"169.254.0.1:1", 0, 0, 1},
      {"100.63.0.1:1", 0, 0, 0},
      {"100.64.0.1:1", 0, 0, 1},
      {"100.127.0.1:1", 0, 0, 1},
      {"100.128.0.1:1", 0, 0, 0},
      {"128.0.0.1:1", 0, 0, 0},
      {"8.8.8.8:1", 0, 0, 0},
      {"[fc00::1]:1", 0, 0, 1},
      {"[fdff::1]:1", 0, 0, 1},
      {"[fe00::1]:1", 0, 0, 0},
      {"[fe80::1]:1", 0, 0, 1},
      {"[febf::1]:1", 0, 0, 1},
      {"[fec0::1]:1", 0, 0, 0},
      {"[2001:db8::1]:1", 0, 0, 0},
      {"[::2]:1", 0, 0, 0},
      {"[::ffff:10.0.0.1]:1", 0, 0, 1},
      {"[::ffff:8.8.8.8]:1", 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    hv_addr addr = read_addr(places[i].text);
    if (hv_addr_is_unspecified(&addr) != places[i].unspecified || hv_addr_is_loopback(&addr) != places[i].loopback ||
        hv_addr_is_private(&addr) != places[i].private)
      fail_msg("%s is put in the wrong place", places[i].text);
  }
  hv_addr none = {0};
  assert_false(hv_addr_is_unspecified(&none) || hv_addr_is_loopback(&none) || hv_addr_is_private(&none));
}

static void equality_looks_at_all_that_counts(void **state) {
  (void)state;
  hv_addr a = read_addr("/dns4/x.org/tcp/1"), b = read_addr("/dns4/X.ORG/tcp/1"), c = read_addr("/dns6/x.org/tcp/1"),
          d = read_addr("/dns4/x.org/tcp/2"), e = read_addr("/dns4/y.org/tcp/1"), f = read_addr("1.2.3.4:1"),
          g = read_addr("1.2.3.5:1"), h = read_addr("[::1]:1"), i = read_addr("[::2]:1"), none = {0};
  assert_true(hv_addr_equal(&a, &b) && hv_addr_equal(&f, &f) && hv_addr_equal(&h, &h) && hv_addr_equal(&none, &none));
  assert_false(hv_addr_equal(&a, &c) || hv_addr_equal(&a, &d) || hv_addr_equal(&a, &e) || hv_addr_equal(&f, &g) ||
               hv_addr_equal(&h, &i) || hv_addr_equal(&a, &none));
}

static void no_address_prints_and_packs_as_nothing(void **state) {
  (void)state;
  hv_addr none = {0}, odd = {.kind = 99};
  char out[HV_ADDR_TEXT_MAX];
  uint8_t packed[HV_ADDR_PACKED_MAX];
  assert_string_equal(hv_addr_print(&none, NULL, out), "(no address)");
  assert_string_equal(hv_addr_print_short(&odd, out), "(no address)");
  assert_int_equal(hv_addr_pack(&none, packed) + hv_addr_pack(&odd, packed), 0);
}

static void packed_addresses_are_binary_multiaddrs(void **state) {
  (void)state;
  uint8_t out[HV_ADDR_PACKED_MAX];
  hv_addr ip4 = read_addr("/ip4/127.0.0.1/tcp/4001"), ip6 = read_addr("/ip6/::1/tcp/80"), name = read_addr("/dns4/a.io/tcp/443");
  assert_int_equal(hv_addr_pack(&ip4, out), 8);
  assert_memory_equal(out, "\x04\x7f\x00\x00\x01\x06\x0f\xa1", 8);
  assert_int_equal(hv_addr_pack(&ip6, out), 20);
  assert_memory_equal(out, "\x29\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x06\x00\x50", 20);
  assert_int_equal(hv_addr_pack(&name, out), 9);
  assert_memory_equal(out,
                      "\x36\x04"
                      "a.io\x06\x01\xbb",
                      9);
}

static void unpack_as(hv_status status, const char *bytes, size_t size) {
  hv_addr out, before;
  memset(&out, 7, sizeof out);
  before = out;
  assert_int_equal(hv_addr_unpack(hv_span_of(bytes, size), &out), status);
  assert_memory_equal(&out, &before, sizeof out);
}

static void malformed_bytes_are_refused(void **state) {
  (void)state;
  const char good[] = "\x04\x7f\x00\x00\x01\x06\x0f\xa1";
  for (size_t n = 0; n < 8; n++)
    unpack_as(HV_MALFORMED, good, n);
  unpack_as(HV_MALFORMED, good, 9);                                        /* a byte too many */
  unpack_as(HV_MALFORMED, "\x84\x00\x7f\x00\x00\x01\x06\x0f\xa1", 9);      /* a code longer than needed */
  unpack_as(HV_MALFORMED, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10); /* an endless code */
  unpack_as(HV_MALFORMED, "\x06\x0f\xa1\x04\x7f\x00\x00\x01", 8);          /* the wrong way round */
  unpack_as(HV_MALFORMED, "\x06\x0f\xa1", 3);                              /* no host */
  unpack_as(HV_MALFORMED, "\x36\x00\x06\x00\x01", 5);                      /* an empty name */
  unpack_as(HV_MALFORMED,
            "\x36\x03"
            "a\0b\x06\x00\x01",
            8); /* a name with a zero byte */
  unpack_as(HV_MALFORMED,
            "\x36\x03"
            "a/b\x06\x00\x01",
            8); /* a name that would print as more */
  unpack_as(HV_MALFORMED,
            "\x36\x07"
            "1.2.3.4\x06\x00\x01",
            12); /* an IPv4 address dressed as a name */
  unpack_as(HV_MALFORMED,
            "\x36\xff\xff\xff\x7f"
            "abc\x06\x00\x01",
            11);                              /* a size beyond the end */
  unpack_as(HV_MALFORMED, "\x01\x02\x03", 3); /* no such code */
  char much[5000] = {0};
  unpack_as(HV_MALFORMED, much, sizeof much);
  unpack_as(HV_UNSUPPORTED, "\x04\x7f\x00\x00\x01\x91\x02\x0f\xa1\xcc\x03", 11);          /* udp, quic */
  unpack_as(HV_UNSUPPORTED, "\x04\x7f\x00\x00\x01\x91\x02\x0f\xa1\xcd\x03", 11);          /* udp, quic-v1 */
  unpack_as(HV_UNSUPPORTED, "\x04\x7f\x00\x00\x01\x06\x0f\xa1\xa5\x03\x01x\xa2\x02", 14); /* p2p-circuit */
  unpack_as(HV_MALFORMED, "\x04\x7f\x00\x00\x01\x91\x02\x0f", 8);                         /* udp, cut off */
  unpack_as(HV_MALFORMED, "\x04\x7f\x00\x00\x01\x06\x0f\xa1\xa5\x03\x01x", 12);           /* p2p has no place in packed addresses */
}

static hv_addr random_addr(check_rng *rng) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  hv_addr addr = {.kind = (uint8_t)(1 + check_random(rng) % 5), .port = (uint16_t)check_random(rng)};
  uint64_t a = check_random(rng), b = check_random(rng);
  if (addr.kind == HV_ADDR_IP4) {
    memcpy(addr.host.ip, &a, 4);
  } else if (addr.kind == HV_ADDR_IP6) {
    a &= check_random(rng) % 4 ? 0xffff00000000ffff : UINT64_MAX;
    b &= check_random(rng) % 4 ? 0xffffffff0000 : UINT64_MAX;
    memcpy(addr.host.ip, &a, 8);
    memcpy(addr.host.ip + 8, &b, 8);
  } else {
    size_t n = 0, labels = 1 + a % 3;
    for (size_t i = 0; i < labels; i++) {
      size_t size = 1 + check_random(rng) % 63;
      for (size_t j = 0; j < size; j++)
        addr.host.name[n++] = letters[check_random(rng) % (sizeof letters - 1)];
      addr.host.name[n - 1] = letters[check_random(rng) % 26]; /* no label a number */
      addr.host.name[n++] = '.';
    }
    addr.host.name[n - 1] = 0;
  }
  return addr;
}

static void any_address_comes_back_from_text_and_bytes(void **state) {
  (void)state;
  check_rng rng = {42};
  for (int i = 0; i < 300000; i++) {
    char text[HV_ADDR_TEXT_MAX], brief[HV_ADDR_TEXT_MAX];
    uint8_t packed[HV_ADDR_PACKED_MAX];
    hv_addr addr = random_addr(&rng), read;
    hv_peer_id peer = {{0}}, read_peer;
    if (i % 16 == 0)
      memset(peer.key, i >> 4 & 0xff, 32);
    hv_addr_print(&addr, &peer, text);
    assert_int_equal(hv_addr_parse(text_of(text), &read, &read_peer, NULL), HV_OK);
    assert_memory_equal(&addr, &read, sizeof addr);
    assert_memory_equal(&peer, &read_peer, sizeof peer);
    size_t size = hv_addr_pack(&addr, packed);
    assert_int_equal(hv_addr_unpack(hv_span_of(packed, size), &read), HV_OK);
    assert_memory_equal(&addr, &read, sizeof addr);
    hv_addr_print_short(&addr, brief);
    assert_int_equal(hv_addr_parse(text_of(brief), &read, NULL, NULL), HV_OK);
    if (addr.kind == HV_ADDR_DNS4 || addr.kind == HV_ADDR_DNS6) /* the short form does not tell the family */
      read.kind = addr.kind;
    assert_memory_equal(&addr, &read, sizeof addr);
  }
}

static void random_noise_never_gets_through_unlike_itself(void **state) {
  (void)state;
  check_rng rng = {7};
  char pieces[][16] = {"/",   "ip4", "ip6", "dns4", "tcp", "udp", "quic", "p2p",        "1.2.3.4",
                       "::1", "a.b", "80",  ":",    "[",   "]",   "*",    "p2p-circuit"};
  for (int i = 0; i < 300000; i++) {
    char text[256] = "";
    for (unsigned n = check_random(&rng) % 10; n--;) {
      if (check_random(&rng) % 3)
        strcat(text, "/");
      strcat(text, pieces[check_random(&rng) % (sizeof pieces / sizeof *pieces)]);
    }
    hv_addr addr, again;
    hv_error err = {0};
    char out[HV_ADDR_TEXT_MAX];
    hv_status status = hv_addr_parse(text_of(text), &addr, NULL, &err);
    if (status == HV_OK) {
      assert_int_equal(hv_addr_parse(text_of(hv_addr_print(&addr, NULL, out)), &again, NULL, NULL), HV_OK);
      assert_true(hv_addr_equal(&addr, &again));
    } else {
      assert_true(status == HV_MALFORMED || status == HV_UNSUPPORTED);
      assert_true(err.text[0] != 0);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_reads_and_prints),
      cmocka_unit_test(the_peer_behind_p2p_is_read),
      cmocka_unit_test(malformed_addresses_are_refused_with_their_cause),
      cmocka_unit_test(the_longest_name_fits_and_a_longer_one_is_refused),
      cmocka_unit_test(other_transports_are_distinguished_from_nonsense),
      cmocka_unit_test(places_are_told_apart),
      cmocka_unit_test(equality_looks_at_all_that_counts),
      cmocka_unit_test(no_address_prints_and_packs_as_nothing),
      cmocka_unit_test(packed_addresses_are_binary_multiaddrs),
      cmocka_unit_test(malformed_bytes_are_refused),
      cmocka_unit_test(any_address_comes_back_from_text_and_bytes),
      cmocka_unit_test(random_noise_never_gets_through_unlike_itself),
  };
  return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
