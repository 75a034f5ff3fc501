#include "lib/h2.h"

#include "lib/check.h"
#include "net/clock.h"
#include "net/identity.h"
#include "net/transport/trust.h"

#include <netinet/in.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <unistd.h>

enum { H2_DATA = 0, H2_HEADERS = 1, H2_SETTINGS = 4, H2_END_STREAM = 1, H2_END_HEADERS = 4, FRAME_MAX = 16384 };

static int h2_send(h2_client *client, const void *bytes, size_t size) {
  client->sent += size;
  if (client->ssl)
    return SSL_write(client->ssl, bytes, (int)size) == (int)size;
  return send(client->fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static int send_frame(h2_client *client, int type, int flags, uint32_t stream, hv_span body) {
  static uint8_t frame[9 + FRAME_MAX];
  assert_true(body.size <= FRAME_MAX);
  uint8_t head[9] = {0,
                     (uint8_t)(body.size >> 8),
                     (uint8_t)body.size,
                     (uint8_t)type,
                     (uint8_t)flags,
                     (uint8_t)(stream >> 24),
                     (uint8_t)(stream >> 16),
                     (uint8_t)(stream >> 8),
                     (uint8_t)stream};
  memcpy(frame, head, sizeof head);
  if (body.size)
    memcpy(frame + sizeof head, body.data, body.size);
  return h2_send(client, frame, sizeof head + body.size);
}

static void show_papers(h2_client *client, hv_mem *mem, const hv_identity *identity) {
  char *certificate, *key;
  assert_int_equal(hv_identity_certificate(identity, mem, hv_clock_unix_s(), 10, &certificate, &key), HV_OK);
  BIO *a = BIO_new_mem_buf(certificate, -1), *b = BIO_new_mem_buf(key, -1);
  X509 *x509 = PEM_read_bio_X509(a, NULL, NULL, NULL);
  EVP_PKEY *secret = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
  client->context = SSL_CTX_new(TLS_client_method());
  assert_int_equal(SSL_CTX_use_certificate(client->context, x509), 1);
  assert_int_equal(SSL_CTX_use_PrivateKey(client->context, secret), 1);
  SSL_CTX_set_alpn_protos(client->context, (const unsigned char *)"\2h2", 3);
  client->ssl = SSL_new(client->context);
  SSL_set_fd(client->ssl, client->fd);
  EVP_PKEY_free(secret);
  X509_free(x509);
  BIO_free(a);
  BIO_free(b);
  hv_mem_free(certificate);
  hv_mem_free(key);
}

static int dial(unsigned network, const hv_target *to) {
  struct sockaddr_in me = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001 | network << 8)};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(to->addr.port)};
  memcpy(&at.sin_addr, to->addr.host.ip, 4);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&me, sizeof me), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  return fd;
}

int h2_open(h2_client *client, const hv_target *to, uint8_t seed, unsigned network, int insecure) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *identity = hv_identity_from_seed(&mem, (uint8_t[32]){seed, 1});
  *client = (h2_client){.fd = dial(network, to), .me = *hv_identity_peer(identity), .stream = UINT32_MAX};
  if (!insecure)
    show_papers(client, &mem, identity);
  hv_identity_free(identity);
  return (insecure || SSL_connect(client->ssl) == 1) && h2_send(client, preface, sizeof preface - 1) &&
         send_frame(client, H2_SETTINGS, 0, 0, hv_span_of("\0\4\0\0\0\0", 6)); /* the window of each stream: 0 */
}

void h2_close(h2_client *client) {
  SSL_free(client->ssl);
  SSL_CTX_free(client->context);
  close(client->fd);
  client->fd = -1;
}

/* A header that HPACK neither packs nor keeps. */
static void add_header(hv_buf *to, const char *name, const char *value) {
  uint8_t sizes[] = {0, (uint8_t)strlen(name), (uint8_t)strlen(value)};
  hv_buf_append(to, sizes, 2);
  hv_buf_append(to, name, sizes[1]);
  hv_buf_append(to, sizes + 2, 1);
  hv_buf_append(to, value, sizes[2]);
}

int h2_begin(h2_client *client, const char *method) {
  char agent[HV_CLAIM_MAX + 16] = "hv-peer/", path[64];
  hv_mem mem;
  hv_buf headers;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&headers, &mem, 4096);
  hv_trust_claim(&client->me, agent + strlen(agent));
  snprintf(path, sizeof path, "/hivemind_c.Hive/%s", method);
  const char *const fields[][2] = {
      {":method", "POST"}, {":scheme", client->ssl ? "https" : "http"}, {":path", path},      {":authority", "here"},
      {"te", "trailers"},  {"content-type", "application/grpc"},        {"user-agent", agent}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    add_header(&headers, fields[i][0], fields[i][1]);
  client->stream += 2; /* from 1 on */
  int sent = send_frame(client, H2_HEADERS, H2_END_HEADERS, client->stream, hv_span_of(headers.data, headers.size));
  hv_buf_fini(&headers);
  return sent;
}

int h2_say(h2_client *client, hv_span bytes, size_t promised, int ends) {
  static uint8_t body[FRAME_MAX];
  size_t head = promised ? 5 : 0;
  uint8_t frame[5] = {0, (uint8_t)(promised >> 24), (uint8_t)(promised >> 16), (uint8_t)(promised >> 8), (uint8_t)promised};
  assert_true(head + bytes.size <= sizeof body);
  memcpy(body, frame, head);
  if (bytes.size)
    memcpy(body + head, bytes.data, bytes.size);
  return send_frame(client, H2_DATA, ends ? H2_END_STREAM : 0, client->stream, hv_span_of(body, head + bytes.size));
}

int h2_ask(h2_client *client, hv_span message) {
  return h2_begin(client, "Call") && h2_say(client, message, message.size, 1);
}
