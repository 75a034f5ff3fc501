/* Real nodes of a closed swarm over TLS: a stranger gets no further than the handshake, a member is judged at its calls and again
 * when its membership ends, a renewed invitation counts without a restart, and a member says nothing to a stranger. */
#include "lib/check.h"
#include "lib/h2.h"
#include "lib/real.h"

#include "core/peers/denials.h"
#include "net/clock.h"
#include "net/invitation.h"
#include "net/transport/trust.h"
#include "net/transport/world.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

static const uint8_t swarm_seed[32] = {1}, guest_seed[32] = {3};

typedef struct swarm {
  hv_mem mem;
  hv_identity *key;
  hv_credentials holder, guest;
  hv_invitation invitation;
} swarm;

/* The swarm of a key, and a guest whose invitation ends in some seconds. */
static void swarm_make(swarm *s, int64_t seconds) {
  char key[HV_SWARM_KEY_TEXT_MAX], invite[HV_INVITE_TEXT_MAX];
  hv_mem_init(&s->mem, NULL, HV_MEM_UNLIMITED);
  s->key = hv_identity_from_seed(&s->mem, swarm_seed);
  hv_swarm_key_print(swarm_seed, key);
  int64_t end_s = hv_clock_unix_s() - HV_ADMISSION_GRACE_S + seconds;
  assert_int_equal(hv_invite_make(&s->mem, s->key, guest_seed, end_s, "lab-3", invite, &s->invitation, NULL), HV_OK);
  assert_int_equal(hv_credentials_read(&s->mem, key, NULL, &s->holder, NULL), HV_OK);
  assert_int_equal(hv_credentials_read(&s->mem, NULL, invite, &s->guest, NULL), HV_OK);
}

static void swarm_end(swarm *s) {
  hv_credentials_fini(&s->holder);
  hv_credentials_fini(&s->guest);
  hv_identity_free(s->key);
  assert_int_equal(atomic_load(&s->mem.blocks), 0);
}

static void start(real_node *node, uint8_t seed, const hv_credentials *credentials) {
  real_start(node, &(real_options){.seed = seed, .credentials = credentials});
}

static void assert_refused(real_node *from, const real_node *to, hv_status status, hv_cause cause, const char *words) {
  assert_int_equal(real_echo(from, &to->target, "x", PATIENCE_MS), status);
  assert_int_equal(from->last_cause, cause);
  if (!strstr(from->last_text, words))
    fail_msg("'%s' does not say '%s'", from->last_text, words);
}

typedef struct opening {
  hv_stream_events on;
  hv_target to;
  hv_stream *stream;
  real_node *node;
} opening;

static void stream_closed(hv_stream *stream, const hv_event *event) {
  real_node *node = ((opening *)stream->owner)->node;
  pthread_mutex_lock(&node->lock);
  node->last_status = event->status;
  node->last_cause = event->cause;
  node->events[HV_EVENT_STREAM_CLOSED]++;
  pthread_cond_broadcast(&node->changed);
  pthread_mutex_unlock(&node->lock);
}

static void open_stream(real_node *node, void *arg) {
  opening *o = arg;
  hv_msg first = {.kind = HV_MSG_ECHO};
  o->node = node;
  o->on = (hv_stream_events){.data = real_data, .closed = stream_closed};
  assert_int_equal(node->env->stream_open(node->env, &o->to, &first, &o->on, o, &o->stream), HV_OK);
}

static void members_call_each_other_and_a_stranger_is_refused(void **unused) {
  swarm s;
  real_node holder, guest, stranger;
  (void)unused;
  swarm_make(&s, 7200);
  start(&holder, 10, &s.holder);
  start(&guest, 11, &s.guest);
  start(&stranger, 12, NULL);
  assert_int_equal(real_echo(&guest, &holder.target, "x", PATIENCE_MS), HV_OK);
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  int asked = real_count(&holder, HV_EVENT_REQUEST), opened = real_count(&holder, HV_EVENT_STREAM_OPENED);
  assert_refused(&stranger, &holder, HV_NOT_ADMITTED, HV_CAUSE_NOT_INVITED, "this swarm is closed");
  opening o = {.to = holder.target};
  int closed = real_count(&stranger, HV_EVENT_STREAM_CLOSED);
  real_do(&stranger, open_stream, &o);
  assert_true(real_wait_for(&stranger, HV_EVENT_STREAM_CLOSED, closed + 1, PATIENCE_MS));
  assert_int_equal(stranger.last_status, HV_NOT_ADMITTED);
  assert_int_equal(stranger.last_cause, HV_CAUSE_NOT_INVITED);
  assert_int_equal(real_count(&holder, HV_EVENT_REQUEST), asked); /* core has seen nothing of it */
  assert_int_equal(real_count(&holder, HV_EVENT_STREAM_OPENED), opened);
  real_stop(&stranger);
  real_stop(&guest);
  real_stop(&holder);
  swarm_end(&s);
}

static void member_says_nothing_to_a_stranger(void **unused) {
  swarm s;
  real_node guest, stranger;
  (void)unused;
  swarm_make(&s, 7200);
  start(&guest, 11, &s.guest);
  start(&stranger, 12, NULL);
  assert_refused(&guest, &stranger, HV_DENIED, HV_CAUSE_NOT_INVITED, "not in this peer's closed swarm");
  assert_int_equal(real_count(&stranger, HV_EVENT_REQUEST), 0);
  real_stop(&stranger);
  real_stop(&guest);
  swarm_end(&s);
}

/* A stranger saw the statement and the signature of the key in a member's certificate, and has not the secret half. */
static void stranger_with_a_copied_statement_is_refused(void **unused) {
  swarm s;
  real_node holder, thief;
  (void)unused;
  swarm_make(&s, 7200);
  hv_credentials copied = s.guest;
  copied.signer = hv_identity_from_seed(&s.mem, (uint8_t[32]){66});
  start(&holder, 10, &s.holder);
  start(&thief, 12, &copied);
  assert_refused(&thief, &holder, HV_UNREACHABLE, HV_CAUSE_OTHER, "cannot connect"); /* in the handshake */
  assert_refused(&holder, &thief, HV_DENIED, HV_CAUSE_NOT_INVITED, "closed swarm");
  real_stop(&thief);
  real_stop(&holder);
  hv_identity_free(copied.signer);
  swarm_end(&s);
}

/* The first bytes that a node sends to an attacker after the handshake; 0: it ends the connection. */
static int first_word(const real_node *node, uint8_t seed, uint8_t *out, int size) {
  h2_client client;
  int n = 0;
  if (h2_open(&client, &node->target, seed, 0, 0)) {
    assert_int_equal(SSL_version(client.ssl), TLS1_3_VERSION); /* so that the handshake seems to have succeeded */
    n = SSL_read(client.ssl, out, size);
  }
  h2_close(&client);
  return n > 0 ? n : 0;
}

static void stranger_gets_no_frame_of_http2(void **unused) {
  enum { FRAME_HEAD = 9 };
  swarm s;
  real_node holder;
  uint8_t said[FRAME_HEAD];
  (void)unused;
  swarm_make(&s, 7200);
  start(&holder, 10, &s.holder);
  assert_int_equal(first_word(&holder, 20, said, sizeof said), 0);
  h2_join(&s.guest);
  assert_int_equal(first_word(&holder, 21, said, sizeof said), FRAME_HEAD);
  assert_int_equal(said[3], H2_SETTINGS);
  h2_join(NULL);
  real_stop(&holder);
  swarm_end(&s);
}

/* A guest whose invitation has ended comes as far as its call, which says why. */
static void ended_and_denied_callers_pass_the_handshake(void **unused) {
  enum { FRAME_HEAD = 9 };
  swarm s;
  real_node holder;
  uint8_t said[FRAME_HEAD];
  (void)unused;
  swarm_make(&s, -60);
  start(&holder, 10, &s.holder);
  h2_join(&s.guest);
  assert_int_equal(first_word(&holder, 21, said, sizeof said), FRAME_HEAD);
  h2_join(NULL);
  real_stop(&holder);
  swarm_end(&s);
}

static void older_tls_gets_an_alert(void **unused) {
  enum { ALERT = 7, PATIENCE = 10000 };
  real_node node;
  h2_key key;
  (void)unused;
  real_start(&node, &(real_options){.seed = 10});
  h2_key_init(&key, (uint8_t[32]){20});
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_use_certificate(context, key.certificate);
  SSL_CTX_use_PrivateKey(context, key.secret);
  SSL *ssl = SSL_new(context);
  int fd = h2_dial(0, &node.target.addr, PATIENCE);
  SSL_set_fd(ssl, fd);
  assert_int_equal(SSL_connect(ssl), -1);
  assert_int_equal(ERR_GET_REASON(ERR_get_error()), SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
  ERR_clear_error();
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  h2_key_fini(&key);
  real_stop(&node);
}

static void invitation_ends_on_an_open_connection(void **unused) {
  swarm s;
  real_node holder, guest;
  (void)unused;
  swarm_make(&s, 2);
  start(&holder, 10, &s.holder);
  start(&guest, 11, &s.guest);
  opening from_guest = {.to = holder.target}, from_holder = {.to = guest.target};
  real_do(&guest, open_stream, &from_guest);
  real_do(&holder, open_stream, &from_holder);
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_true(real_wait_for(&guest, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_int_equal(real_echo(&guest, &holder.target, "x", PATIENCE_MS), HV_OK);
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_CLOSED, 2, 5000)); /* both streams, while nobody calls */
  real_echo(&guest, &holder.target, "x", PATIENCE_MS);                  /* it may meet the end of the connection */
  assert_refused(&guest, &holder, HV_NOT_ADMITTED, HV_CAUSE_INVITATION_ENDED, "UTC");
  assert_refused(&holder, &guest, HV_DENIED, HV_CAUSE_INVITATION_ENDED, "UTC");
  real_stop(&guest);
  real_stop(&holder);
  swarm_end(&s);
}

/* The guest's invitation with an end in two hours. */
static void renewed_make(const swarm *s, hv_credentials *out) {
  char invite[HV_INVITE_TEXT_MAX];
  hv_invitation invitation;
  assert_int_equal(
      hv_invite_make((hv_mem *)&s->mem, s->key, guest_seed, hv_clock_unix_s() + 7200, "lab-3", invite, &invitation, NULL), HV_OK);
  assert_int_equal(hv_credentials_read((hv_mem *)&s->mem, NULL, invite, out, NULL), HV_OK);
}

static void renew(real_node *node, void *credentials) {
  assert_int_equal(hv_loop_renew(node->loop, credentials), HV_OK);
}

static void wait_until(int64_t unix_s) {
  while (hv_clock_unix_s() < unix_s)
    usleep(100000);
}

static void renewed_guest_calls_and_is_called_after_its_end(void **unused) {
  swarm s;
  hv_credentials renewed;
  real_node holder, guest;
  (void)unused;
  swarm_make(&s, 4);
  start(&holder, 10, &s.holder);
  start(&guest, 11, &s.guest);
  opening from_guest = {.to = holder.target};
  real_do(&guest, open_stream, &from_guest);
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_int_equal(real_echo(&guest, &holder.target, "x", PATIENCE_MS), HV_OK);
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  renewed_make(&s, &renewed);
  real_do(&guest, renew, &renewed);
  assert_int_equal(real_count(&guest, HV_EVENT_STREAM_CLOSED), 0);                        /* it stays where it is */
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_CLOSED, 1, 4000 + PATIENCE_MS / 2)); /* until that connection's end */
  wait_until(s.invitation.end_s + HV_ADMISSION_GRACE_S + 2);
  assert_int_equal(real_echo(&guest, &holder.target, "x", PATIENCE_MS), HV_OK);
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  opening again = {.to = holder.target};
  real_do(&guest, open_stream, &again);
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_OPENED, 2, PATIENCE_MS));
  real_stop(&guest);
  real_stop(&holder);
  hv_credentials_fini(&renewed);
  swarm_end(&s);
}

static void holder_cannot_renew(void **unused) {
  swarm s;
  real_node holder;
  (void)unused;
  swarm_make(&s, 7200);
  start(&holder, 10, &s.holder);
  assert_int_equal(hv_loop_renew(holder.loop, &s.holder), HV_UNSUPPORTED);
  real_stop(&holder);
  swarm_end(&s);
}

static void count_links(real_node *node, void *count) {
  *(size_t *)count = node->loop->n_links;
}

/* In the hour of grace a peer is called over a new connection, because it may have renewed its invitation. */
static void connection_is_made_anew_when_an_invitation_ends(void **unused) {
  swarm s;
  real_node holder, guest;
  size_t links;
  (void)unused;
  swarm_make(&s, HV_ADMISSION_GRACE_S + 3);
  start(&holder, 10, &s.holder);
  start(&guest, 11, &s.guest);
  opening from_holder = {.to = guest.target};
  real_do(&holder, open_stream, &from_holder);
  assert_true(real_wait_for(&guest, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  for (int i = 0; i < 2; i++) {
    real_do(&holder, count_links, &links);
    assert_int_equal(links, 1 + i);
    wait_until(s.invitation.end_s + 3 + i);
    assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  }
  real_do(&holder, count_links, &links);
  assert_int_equal(links, 2); /* once, and the stream goes on */
  assert_int_equal(real_count(&guest, HV_EVENT_STREAM_CLOSED), 0);
  real_stop(&guest);
  real_stop(&holder);
  swarm_end(&s);
}

static void deny(real_node *node, void *list) {
  assert_int_equal(node->env->deny(node->env, *(hv_span *)list), HV_OK);
}

static void denied_peer_loses_its_streams_and_calls(void **unused) {
  swarm s;
  real_node holder, guest;
  hv_span list;
  char id[HV_INVITATION_TEXT_MAX];
  (void)unused;
  swarm_make(&s, 7200);
  start(&holder, 10, &s.holder);
  start(&guest, 11, &s.guest);
  opening from_guest = {.to = holder.target}, from_holder = {.to = guest.target};
  real_do(&guest, open_stream, &from_guest);
  real_do(&holder, open_stream, &from_holder);
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_true(real_wait_for(&guest, HV_EVENT_STREAM_OPENED, 1, PATIENCE_MS));
  assert_int_equal(real_echo(&holder, &guest.target, "x", PATIENCE_MS), HV_OK);
  hv_invitation_print(&s.invitation, id);
  hv_denials_order order = {.id = id, .end_s = HV_DENIALS_NO_END};
  assert_int_equal(hv_denials_change(&s.mem, s.key, hv_span_of(NULL, 0), &order, 0, &list, NULL), HV_OK);
  real_do(&holder, deny, &list);
  assert_true(real_wait_for(&guest, HV_EVENT_STREAM_CLOSED, 2, PATIENCE_MS)); /* that which it opened, and that of the holder */
  assert_true(real_wait_for(&holder, HV_EVENT_STREAM_CLOSED, 2, PATIENCE_MS));
  real_echo(&guest, &holder.target, "x", PATIENCE_MS); /* a call may meet the end of the connection, which says no cause */
  assert_refused(&guest, &holder, HV_NOT_ADMITTED, HV_CAUSE_DENIED, "denied");
  assert_refused(&holder, &guest, HV_DENIED, HV_CAUSE_DENIED, "denied"); /* by its answer: it may be told for a moment */
  usleep((HV_TRUST_TELL_MS + 2500) * 1000);
  int asked = real_count(&guest, HV_EVENT_REQUEST);
  assert_refused(&holder, &guest, HV_DENIED, HV_CAUSE_DENIED, "denied");
  assert_int_equal(real_count(&guest, HV_EVENT_REQUEST), asked); /* in the handshake: it is asked nothing */
  real_stop(&guest);
  real_stop(&holder);
  hv_mem_free((void *)list.data);
  swarm_end(&s);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN); /* an attacker writes to a connection that has ended */
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_call_each_other_and_a_stranger_is_refused),
      cmocka_unit_test(member_says_nothing_to_a_stranger),
      cmocka_unit_test(stranger_with_a_copied_statement_is_refused),
      cmocka_unit_test(stranger_gets_no_frame_of_http2),
      cmocka_unit_test(ended_and_denied_callers_pass_the_handshake),
      cmocka_unit_test(older_tls_gets_an_alert),
      cmocka_unit_test(invitation_ends_on_an_open_connection),
      cmocka_unit_test(renewed_guest_calls_and_is_called_after_its_end),
      cmocka_unit_test(holder_cannot_renew),
      cmocka_unit_test(connection_is_made_anew_when_an_invitation_ends),
      cmocka_unit_test(denied_peer_loses_its_streams_and_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
