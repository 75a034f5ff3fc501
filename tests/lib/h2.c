#include "lib/h2.h"

#include "lib/check.h"
#include "net/clock.h"
#include "net/transport/trust.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- keys and connections ---- */

static const hv_credentials *joined;

void h2_join(const hv_credentials *credentials) {
  joined = credentials;
}

void h2_key_init(h2_key *key, const uint8_t seed[32]) {
  char *certificate, *secret;
  uint8_t proof[HV_PROOF_MAX];
  size_t size = 0;
  hv_mem_init(&key->mem, NULL, HV_MEM_UNLIMITED);
  key->identity = hv_identity_from_seed(&key->mem, seed);
  if (joined)
    assert_int_equal(hv_proof_make(joined, hv_identity_peer(key->identity), proof, &size), HV_OK);
  assert_int_equal(
      hv_identity_certificate_with(key->identity, &key->mem, hv_span_of(proof, size), hv_clock_unix_s(), 10, &certificate, &secret),
      HV_OK);
  BIO *a = BIO_new_mem_buf(certificate, -1), *b = BIO_new_mem_buf(secret, -1);
  key->certificate = PEM_read_bio_X509(a, NULL, NULL, NULL);
  key->secret = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
  BIO_free(a);
  BIO_free(b);
  hv_mem_free(certificate);
  hv_mem_free(secret);
}

void h2_key_fini(h2_key *key) {
  EVP_PKEY_free(key->secret);
  X509_free(key->certificate);
  hv_identity_free(key->identity);
}

int h2_dial(uint32_t from, const hv_addr *to, unsigned patience_ms) {
  struct sockaddr_in me = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(to->port)};
  struct timeval patience = {.tv_sec = patience_ms / 1000, .tv_usec = patience_ms % 1000 * 1000};
  memcpy(&at.sin_addr, to->host.ip, 4);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if ((from && bind(fd, (struct sockaddr *)&me, sizeof me) != 0) || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

int h2_greet(h2_client *client, int fd, h2_key *key) {
  *client = (h2_client){.fd = fd, .stream = UINT32_MAX};
  if (fd < 0 || !key)
    return fd >= 0;
  client->me = *hv_identity_peer(key->identity);
  client->context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_use_certificate(client->context, key->certificate);
  SSL_CTX_use_PrivateKey(client->context, key->secret);
  SSL_CTX_set_alpn_protos(client->context, (const unsigned char *)"\2h2", 3);
  client->ssl = SSL_new(client->context);
  SSL_set_fd(client->ssl, fd);
  return SSL_connect(client->ssl) == 1;
}

void h2_close(h2_client *client) {
  SSL_free(client->ssl);
  SSL_CTX_free(client->context);
  if (client->fd >= 0)
    close(client->fd);
  client->fd = -1;
  client->ssl = NULL;
  client->context = NULL;
  ERR_clear_error();
}

/* ---- frames ---- */

int h2_send(h2_client *client, const void *bytes, size_t size) {
  client->sent += size;
  if (client->ssl)
    return SSL_write(client->ssl, bytes, (int)size) == (int)size;
  return send(client->fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

int h2_frame(h2_client *client, int type, int flags, uint32_t stream, hv_span body) {
  uint8_t frame[9 + H2_FRAME_MAX] = {0,
                                     (uint8_t)(body.size >> 8),
                                     (uint8_t)body.size,
                                     (uint8_t)type,
                                     (uint8_t)flags,
                                     (uint8_t)(stream >> 24),
                                     (uint8_t)(stream >> 16),
                                     (uint8_t)(stream >> 8),
                                     (uint8_t)stream};
  assert_true(body.size <= H2_FRAME_MAX);
  if (body.size)
    memcpy(frame + 9, body.data, body.size);
  return h2_send(client, frame, 9 + body.size);
}

int h2_preface(h2_client *client, uint32_t window) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  uint8_t setting[6] = {0, 4, (uint8_t)(window >> 24), (uint8_t)(window >> 16), (uint8_t)(window >> 8), (uint8_t)window};
  return h2_send(client, preface, sizeof preface - 1) && h2_frame(client, H2_SETTINGS, 0, 0, hv_span_of(setting, 6));
}

/* ---- calls ---- */

static void put_header(hv_buf *to, uint8_t how, const char *name, const char *value) {
  uint8_t sizes[] = {how, (uint8_t)strlen(name), (uint8_t)strlen(value)};
  hv_buf_append(to, sizes, 2);
  hv_buf_append(to, name, sizes[1]);
  hv_buf_append(to, sizes + 2, 1);
  hv_buf_append(to, value, sizes[2]);
}

void h2_header(hv_buf *to, const char *name, const char *value) {
  put_header(to, 0, name, value);
}

static void put_headers(const h2_client *client, uint8_t how, const char *method, hv_buf *to) {
  char agent[HV_CLAIM_MAX + 16] = "hv-peer/", path[64];
  hv_trust_claim(&client->me, agent + strlen(agent));
  snprintf(path, sizeof path, "/hivemind_c.Hive/%s", method);
  const char *const fields[][2] = {
      {":method", "POST"}, {":scheme", client->ssl ? "https" : "http"}, {":path", path},      {":authority", "here"},
      {"te", "trailers"},  {"content-type", "application/grpc"},        {"user-agent", agent}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    put_header(to, how, fields[i][0], fields[i][1]);
}

void h2_headers(const h2_client *client, const char *method, hv_buf *to) {
  put_headers(client, 0, method, to);
}

void h2_headers_kept(const h2_client *client, const char *method, hv_buf *to) {
  enum { KEEP = 0x40 };
  put_headers(client, KEEP, method, to);
}

int h2_begin(h2_client *client, const char *method) {
  hv_mem mem;
  hv_buf headers;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&headers, &mem, 4096);
  h2_headers(client, method, &headers);
  client->stream += 2; /* from 1 on */
  int sent = h2_frame(client, H2_HEADERS, H2_END_HEADERS, client->stream, hv_span_of(headers.data, headers.size));
  hv_buf_fini(&headers);
  return sent;
}

int h2_say(h2_client *client, hv_span bytes, size_t promised, int ends) {
  uint8_t body[H2_FRAME_MAX];
  size_t head = promised ? 5 : 0;
  uint8_t frame[5] = {0, (uint8_t)(promised >> 24), (uint8_t)(promised >> 16), (uint8_t)(promised >> 8), (uint8_t)promised};
  assert_true(head + bytes.size <= sizeof body);
  memcpy(body, frame, head);
  if (bytes.size)
    memcpy(body + head, bytes.data, bytes.size);
  return h2_frame(client, H2_DATA, ends ? H2_END_STREAM : 0, client->stream, hv_span_of(body, head + bytes.size));
}

int h2_ask(h2_client *client, hv_span message) {
  size_t at = message.size < H2_FRAME_MAX - 5 ? message.size : H2_FRAME_MAX - 5;
  int sent = h2_begin(client, "Call") && h2_say(client, hv_span_of(message.data, at), message.size, at == message.size);
  for (size_t size; sent && at < message.size; at += size) {
    size = message.size - at < H2_FRAME_MAX ? message.size - at : H2_FRAME_MAX;
    sent = h2_say(client, hv_span_of((const uint8_t *)message.data + at, size), 0, at + size == message.size);
  }
  return sent;
}

int h2_open(h2_client *client, const hv_target *to, uint8_t seed, unsigned network, int insecure) {
  enum { PATIENCE_MS = 10000 };
  h2_key key;
  h2_key_init(&key, (uint8_t[32]){seed, 1});
  int fd = h2_dial(0x7f000001 | network << 8, &to->addr, PATIENCE_MS);
  assert_true(fd >= 0);
  int is_open = h2_greet(client, fd, insecure ? NULL : &key);
  client->me = *hv_identity_peer(key.identity);
  is_open = is_open && h2_preface(client, 0);
  h2_key_fini(&key);
  return is_open;
}
