/* Members of a closed swarm that lie about denials, in a process of their own: all came by one invitation, name marks of lists that
 * nobody has, and keep their answers back; one of them is an initial peer that acknowledges each list and drops it. A denial still
 * reaches the other members within 30 s, in both directions. */
#include "lib/check.h"
#include "lib/hives.h"
#include "lib/real.h"

#include "hivemind_c.h"
#include "net/clock.h"
#include "net/invitation.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIARS = 8, VICTIMS = 2, PATIENCE_MS = 60000, BOUND_MS = 30000, EVERY_US = 200000 };

static const uint8_t swarm_seed[32] = {1}, liars_seed[32] = {3}, guest_seed[32] = {4};

static void invitation_of(const uint8_t seed[32], char out[HV_INVITE_TEXT_MAX]) {
  hv_mem mem;
  hv_invitation invitation;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *key = hv_identity_from_seed(&mem, swarm_seed);
  assert_int_equal(hv_invite_make(&mem, key, seed, hv_clock_unix_s() + 86400, "", out, &invitation, NULL), HV_OK);
  hv_identity_free(key);
}

/* ---- the liars ---- */

typedef struct liar {
  real_node node; /* first */
  hv_call calls[VICTIMS];
  int acknowledges;
  int holds, out; /* it has kept an answer back, of which it tells there */
} liar;

static hv_msg hello_of(const real_node *node) {
  hv_msg hello = {.kind = HV_MSG_HELLO};
  hello.u.hello.me = (hv_card){.id = node->target.id, .n_addrs = 1, .addrs = {node->target.addr}};
  hello.u.hello.life = 7;
  hv_random(&hello.u.hello.denials, sizeof hello.u.hello.denials);
  return hello;
}

static void lie(real_node *node, const hv_event *event) {
  liar *self = (liar *)node;
  hv_msg hello = hello_of(node);
  if (event->msg->kind == HV_MSG_HELLO)
    node->env->reply(node->env, event->request, &hello);
  else if (event->msg->kind != HV_MSG_DENIALS || self->acknowledges)
    node->env->reply(node->env, event->request, event->msg);
  else if (!self->holds)
    self->holds = write(self->out, "", 1) == 1;
}

static void greeted(hv_call *call, const hv_event *event) {
  (void)event;
  call->owner = NULL;
}

static void say_hello(real_node *node, void *victims) {
  liar *self = (liar *)node;
  hv_msg hello = hello_of(node);
  for (int i = 0; i < VICTIMS; i++) {
    hv_call *call = &self->calls[i];
    if (call->owner)
      continue;
    *call = (hv_call){.to = ((hv_target *)victims)[i], .done = greeted, .owner = self, .timeout_ms = 5000};
    if (node->env->call(node->env, call, &hello) != HV_OK)
      call->owner = NULL;
  }
}

/* Writes the target of the liar that acknowledges, reads those of its victims, and lies until it is killed. */
static void live_as_liars(int in, int out) {
  static liar liars[LIARS];
  hv_mem mem;
  hv_credentials guest;
  hv_target victims[VICTIMS];
  char invite[HV_INVITE_TEXT_MAX];
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  invitation_of(liars_seed, invite);
  assert_int_equal(hv_credentials_read(&mem, NULL, invite, &guest, NULL), HV_OK);
  for (int i = 0; i < LIARS; i++) {
    liars[i].acknowledges = i == 0;
    liars[i].out = out;
    real_start(&liars[i].node, &(real_options){.seed = (uint8_t)(40 + i), .credentials = &guest, .asked = lie});
  }
  assert_int_equal(write(out, &liars[0].node.target, sizeof(hv_target)), sizeof(hv_target));
  for (int i = 0; i < VICTIMS; i++)
    if (read(in, &victims[i], sizeof *victims) != sizeof *victims)
      return; /* the test has failed */
  for (;; usleep(EVERY_US))
    for (int i = 0; i < LIARS; i++)
      real_do(&liars[i].node, say_hello, victims);
}

/* ---- their victims ---- */

static hv_target target_of(hv_hive *hive) {
  hv_target target = {.id = *hv_hive_peer(hive)};
  assert_int_equal(hv_hive_addrs(hive, &target.addr, 1), 1);
  return target;
}

static void wait_for_peers(hv_hive *hive, size_t n) {
  hv_future *met;
  assert_int_equal(hv_hive_wait_peers(hive, n, &met), HV_OK);
  assert_true(hv_future_wait(met, PATIENCE_MS));
  assert_int_equal(hv_future_result(met, NULL, NULL, NULL), HV_OK);
  hv_future_release(met);
}

static size_t denials_of(hv_hive *hive, uint8_t list[HV_DENIALS_BYTES_MAX]) {
  hv_hive_denials_told told;
  return hv_hive_denials(hive, list, HV_DENIALS_BYTES_MAX, &told) / HV_DENIAL_BYTES;
}

/* Denies one more ID at one member, and waits until the other one has it. */
static void deny_at(hv_hive *one, hv_hive *other, const char *key, const char *id) {
  static uint8_t list[HV_DENIALS_BYTES_MAX];
  hv_mem mem;
  hv_span denials;
  hv_error err = {0};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  size_t n = denials_of(one, list);
  assert_int_equal(hv_denials_new(&mem, key, hv_span_of(list, n * HV_DENIAL_BYTES), id, HV_DENIALS_NO_END, &denials, &err), HV_OK);
  assert_int_equal(hv_hive_deny(one, denials, &err), HV_OK);
  hv_mem_free((void *)denials.data);
  uint64_t until = hv_clock_us() + BOUND_MS * UINT64_C(1000);
  while (denials_of(other, list) != n + 1 && hv_clock_us() < until)
    usleep(20000);
  assert_int_equal(denials_of(other, list), n + 1);
}

static void liars_do_not_hold_a_denial_back(void **unused) {
  int to[2], from[2];
  hv_target deaf, victims[VICTIMS];
  char key[HV_SWARM_KEY_TEXT_MAX], invite[HV_INVITE_TEXT_MAX], one[HV_ADDR_TEXT_MAX], hub_text[HV_ADDR_TEXT_MAX],
      initial[2 * HV_ADDR_TEXT_MAX + 1];
  (void)unused;
  assert_int_equal(pipe(to) | pipe(from), 0);
  pid_t child = fork(); /* before this process has a node */
  if (child == 0) {
    live_as_liars(to[0], from[1]);
    _exit(0);
  }
  assert_int_equal(read(from[0], &deaf, sizeof deaf), sizeof deaf);
  hv_swarm_key_print(swarm_seed, key);
  invitation_of(guest_seed, invite);
  hv_hive *hub = hives_start_as((hv_hive_config){.swarm_key = key, .pool_threads = 1}, NULL);
  victims[0] = target_of(hub);
  snprintf(initial, sizeof initial, "%s,%s", hv_addr_print(&deaf.addr, &deaf.id, one),
           hv_addr_print(&victims[0].addr, &victims[0].id, hub_text));
  hv_hive *member = hives_start_as((hv_hive_config){.invite = invite, .pool_threads = 1}, initial);
  victims[1] = target_of(member);
  assert_int_equal(write(to[1], victims, sizeof victims), sizeof victims);
  wait_for_peers(hub, LIARS + 1);
  wait_for_peers(member, LIARS + 1);
  for (int i = 1; i < LIARS; i++) { /* each has kept back an answer */
    assert_int_equal(poll(&(struct pollfd){.fd = from[0], .events = POLLIN}, 1, PATIENCE_MS), 1);
    assert_int_equal(read(from[0], one, 1), 1);
  }
  deny_at(member, hub, key, "inv-0000000000000001");
  deny_at(hub, member, key, "inv-0000000000000002");
  deny_at(member, hub, key, "inv-0000000000000003");
  hv_hive_free(member);
  hv_hive_free(hub);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

int main(void) {
  static const struct CMUnitTest tests[] = {cmocka_unit_test(liars_do_not_hold_a_denial_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
