#include "siege/sink.h"

#include "lib/h2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static SSL_CTX *context;

static int any_certificate(int is_right, X509_STORE_CTX *store) {
  (void)is_right;
  (void)store;
  return 1;
}

static void *take_all(void *arg) {
  int fd = (int)(intptr_t)arg;
  char first, bytes[16384];
  if (recv(fd, &first, 1, MSG_PEEK) == 1) {
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (first == 22 && SSL_accept(ssl) == 1)
      while (SSL_read(ssl, bytes, sizeof bytes) > 0)
        ;
    else
      while (recv(fd, bytes, sizeof bytes, 0) > 0)
        ;
    SSL_free(ssl);
  }
  close(fd);
  return NULL;
}

static int choose_http2(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *in, unsigned in_n, void *arg) {
  (void)ssl;
  (void)in;
  (void)in_n;
  (void)arg;
  *out = (const unsigned char *)"h2";
  *n = 2;
  return SSL_TLSEXT_ERR_OK;
}

void sink_run(const hv_addr *at) {
  static h2_key key;
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(at->port)};
  memcpy(&here.sin_addr, at->host.ip, 4);
  h2_key_init(&key, (uint8_t[32]){77});
  context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate(context, key.certificate);
  SSL_CTX_use_PrivateKey(context, key.secret);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, any_certificate);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context, choose_http2, NULL);
  int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 || listen(listener, 1024) != 0) {
    perror("attacker: --sink");
    return;
  }
  puts("ready");
  fflush(stdout);
  for (;;) {
    pthread_t thread;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
      usleep(10000);
    else if (pthread_create(&thread, NULL, take_all, (void *)(intptr_t)fd) == 0)
      pthread_detach(thread);
    else
      close(fd);
  }
}
