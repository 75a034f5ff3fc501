#include "net/transport/world.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static size_t bucket_of(const hv_target *to) {
  uint8_t bytes[HV_ADDR_PACKED_MAX + sizeof to->id];
  size_t n = hv_addr_pack(&to->addr, bytes);
  memcpy(bytes + n, &to->id, sizeof to->id);
  return XXH3_64bits(bytes, n + sizeof to->id) % HV_LINK_BUCKETS;
}

static void watch_again(hv_link *link) {
  link->watched = 1;
  link->up = hv_grpc_channel_watch(link->channel, &link->watch);
}

static void put_in(hv_link *link) {
  hv_loop *loop = link->loop;
  link->bucket = bucket_of(&link->to);
  link->next = loop->buckets[link->bucket];
  loop->buckets[link->bucket] = link;
}

static void take_out(hv_link *link) {
  hv_link **at = &link->loop->buckets[link->bucket];
  while (*at != link)
    at = &(*at)->next;
  *at = link->next;
}

static void free_if_done(hv_link *link) {
  if (!link->dropped || link->uses)
    return;
  hv_grpc_channel_free(link->channel); /* completes the watch if it is under way */
  link->channel = NULL;
  for (int i = 0; i < HV_LANES_MAX; i++) {
    hv_grpc_channel_free(link->bulk[i]);
    link->bulk[i] = NULL;
  }
  if (link->watched)
    return;
  hv_ring_remove(&link->all);
  link->loop->n_links--;
  hv_mem_free(link);
}

static void cancel_uses(hv_ring *uses) {
  for (hv_ring *at = uses->next; at != uses; at = at->next) {
    hv_link_use *use = HV_HOLDER(hv_link_use, ring, at);
    use->dropped(use);
  }
}

static void drop(hv_link *link) {
  if (link->dropped)
    return;
  link->dropped = 1;
  if (!link->retired)
    take_out(link);
  cancel_uses(&link->calls);
  cancel_uses(&link->streams);
  free_if_done(link);
}

/* Nothing new uses it: the next call to the peer opens another one. */
static void retire(hv_link *link) {
  if (link->dropped || link->retired)
    return;
  if (!link->uses) {
    drop(link);
    return;
  }
  link->retired = 1;
  take_out(link);
}

static void changed(hv_grpc_op *op, int ok) {
  (void)ok;
  hv_link *link = HV_HOLDER(hv_link, watch, op);
  link->watched = 0;
  if (link->dropped) {
    free_if_done(link);
    return;
  }
  const hv_peer_id *peer = hv_peer_is_known(&link->to.id) ? &link->to.id : &link->met;
  if (link->up)
    link->sure = 0;
  if (link->up && !link->retired && hv_peer_is_known(peer)) {
    char where[HV_ADDR_TEXT_MAX], text[HV_WORLD_TEXT_MAX];
    snprintf(text, sizeof text, "the connection to %s broke", hv_addr_print_short(&link->to.addr, where));
    hv_event event = {.kind = HV_EVENT_PEER_DOWN, .peer = *peer, .text = text};
    link->uses++; /* core may drop the link in this step */
    hv_loop_deliver(link->loop, &event);
    link->uses--;
  }
  if (link->dropped)
    free_if_done(link);
  else
    watch_again(link);
}

static hv_link *make(hv_loop *loop, const hv_target *to, hv_status *status) {
  hv_link *link = hv_mem_zalloc(loop->mem, sizeof *link);
  if (!link) {
    *status = HV_NOMEM;
    return NULL;
  }
  *status = hv_grpc_channel_new(loop->grpc, to, &link->channel);
  if (*status != HV_OK) {
    hv_mem_free(link);
    return NULL;
  }
  link->loop = loop;
  link->to = *to;
  link->made_s = hv_clock_unix_s();
  link->watch.done = changed;
  hv_ring_init(&link->calls);
  hv_ring_init(&link->streams);
  hv_ring_add(&loop->links, &link->all);
  loop->n_links++;
  put_in(link);
  watch_again(link);
  return link;
}

static hv_link *find(hv_loop *loop, const hv_target *to) {
  for (hv_link *link = loop->buckets[bucket_of(to)]; link; link = link->next)
    if (hv_peer_equal(&link->to.id, &to->id) && hv_addr_equal(&link->to.addr, &to->addr))
      return link;
  return NULL;
}

static void expect(hv_grpc_channel *channel, const hv_peer_id *peer) {
  hv_trust *trust = channel ? hv_grpc_channel_trust(channel) : NULL;
  if (trust)
    hv_trust_expect(trust, peer);
}

/* Finds a link that was opened to any peer at this address and reached the wanted one, and binds it to that peer. NULL: none. */
static hv_link *adopt(hv_loop *loop, const hv_target *to) {
  hv_target anyone = {.addr = to->addr};
  hv_link *link = find(loop, &anyone);
  if (!link || !hv_peer_equal(&link->met, &to->id))
    return NULL;
  take_out(link);
  link->to.id = to->id;
  expect(link->channel, &to->id);
  for (int i = 0; i < HV_LANES_MAX; i++)
    expect(link->bulk[i], &to->id);
  put_in(link);
  return link;
}

static int drop_idlest(hv_loop *loop) {
  for (hv_ring *at = loop->links.next; at != &loop->links; at = at->next) {
    hv_link *link = HV_HOLDER(hv_link, all, at);
    if (!link->uses && !link->dropped) {
      drop(link);
      return 1;
    }
  }
  return 0;
}

hv_status hv_link_get(hv_loop *loop, const hv_target *to, hv_link **out) {
  hv_status status = HV_OK;
  hv_link *link = find(loop, to);
  if (!link && hv_peer_is_known(&to->id))
    link = adopt(loop, to);
  if (!link && loop->n_links >= HV_LOOP_LINKS_MAX && !drop_idlest(loop))
    return HV_BUSY;
  if (!link && !(link = make(loop, to, &status)))
    return status;
  link->uses++;
  link->used_us = loop->now_us;
  hv_ring_remove(&link->all);
  hv_ring_add(&loop->links, &link->all);
  *out = link;
  return HV_OK;
}

void hv_link_release(hv_link *link) {
  link->uses--;
  link->used_us = link->loop->now_us;
  if (link->retired && !link->uses)
    drop(link);
  else
    free_if_done(link);
}

hv_status hv_link_meet(hv_link *link, const hv_peer_id *peer, char text[HV_WORLD_TEXT_MAX]) {
  if (hv_peer_is_known(&link->to.id) && !hv_peer_equal(&link->to.id, peer)) {
    char where[HV_ADDR_TEXT_MAX], found[HV_PEER_TEXT_MAX], wanted[HV_PEER_TEXT_MAX];
    hv_trust_print_other(hv_addr_print_short(&link->to.addr, where), hv_peer_print(peer, found),
                         hv_peer_print(&link->to.id, wanted), text);
    return HV_DENIED;
  }
  link->met = *peer;
  return HV_OK;
}

/* Judges a member now, and once more when its invitation and when its membership ends. */
static hv_cause judge(hv_loop *loop, const hv_peer_id *peer, const hv_membership *shown) {
  int64_t now_s = hv_clock_unix_s(), end_s = shown->invitation.end_s;
  hv_cause apart = hv_admission_judge(loop->env.admission, peer, shown, now_s);
  if (end_s < now_s)
    end_s += HV_ADMISSION_GRACE_S;
  if (!apart && shown->kind == HV_MEMBERSHIP_INVITED && end_s < loop->next_end_s)
    loop->next_end_s = end_s;
  return apart;
}

hv_cause hv_link_judge(hv_loop *loop, hv_grpc_call *rpc, hv_membership *shown) {
  hv_peer_id peer = {{0}};
  *shown = (hv_membership){0};
  if (!loop->env.admission)
    return HV_CAUSE_OTHER;
  if (hv_grpc_call_membership(rpc, &peer, shown) != HV_OK)
    *shown = (hv_membership){0};
  return judge(loop, &peer, shown);
}

hv_status hv_link_judge_called(hv_link *link, hv_grpc_call *rpc, hv_cause *cause, char text[HV_WORLD_TEXT_MAX]) {
  char where[HV_ADDR_TEXT_MAX];
  hv_membership shown;
  if (!link->loop->env.admission)
    return HV_OK;
  hv_cause apart = hv_link_judge(link->loop, rpc, &shown);
  link->shown = shown;
  if (!apart)
    return HV_OK;
  *cause = apart;
  hv_admission_explain(apart, hv_addr_print_short(&link->to.addr, where), &shown, hv_clock_unix_s(), text);
  if (apart == HV_CAUSE_INVITATION_ENDED) {
    retire(link);
    return HV_CLOSED;
  }
  return HV_DENIED; /* as if another peer answered: the one that was meant is not there */
}

void hv_link_measure(hv_link *link, hv_grpc_call *call) {
  enum {
    SAMPLE = 2000,
    FAR_US = 10000,
    FEW = 10000
  }; /* least packets to judge by; least round-trip time; one lost packet in this many */
  hv_addr at;
  hv_line now;
  if (link->lossy)
    return;
  hv_grpc_call_from(call, &at);
  if (!hv_sockets_line(&link->loop->sockets, &at, link->loop->now_us, &now) || now.sent < SAMPLE)
    return;
  link->lossy = now.fears_loss && now.rtt_us >= FAR_US && (uint64_t)now.lost * FEW >= now.sent;
}

/* True if the last attempt to connect ended before a handshake, so that a failed check belongs to an earlier one. */
static int is_before_handshake(hv_cause cause) {
  return cause == HV_CAUSE_REFUSED || cause == HV_CAUSE_NO_ROUTE || cause == HV_CAUSE_NAME_NOT_FOUND || cause == HV_CAUSE_TIMED_OUT;
}

hv_grpc_channel *hv_link_bulk(hv_link *link, const hv_peer_id *peer, size_t lane) {
  hv_target to = {*peer, link->to.addr};
  hv_grpc_channel **channel = &link->bulk[lane];
  if (!*channel && hv_grpc_channel_new(link->loop->grpc, &to, channel) != HV_OK)
    *channel = NULL;
  return *channel;
}

hv_status hv_link_explain(hv_link *link, hv_grpc_channel *channel, hv_grpc_call *call, hv_status own, uint32_t timeout_ms,
                          hv_cause *cause, char text[HV_WORLD_TEXT_MAX]) {
  char where[HV_ADDR_TEXT_MAX], detail[HV_GRPC_TEXT_MAX];
  hv_status status = hv_grpc_call_result(call, cause, detail);
  text[0] = 0;
  if (status == HV_OK)
    return status;
  hv_addr_print_short(&link->to.addr, where);
  if (status == HV_CANCELLED)
    status = own != HV_OK ? own : HV_CLOSED;
  int no_way = status == HV_REFUSED || status == HV_UNREACHABLE || status == HV_CLOSED;
  char why[HV_TRUST_TEXT_MAX];
  hv_trust *trust = hv_grpc_channel_trust(channel);
  if (trust && is_before_handshake(*cause))
    hv_trust_forget(trust);
  int is_theirs = no_way && own == HV_OK && trust;
  hv_cause denied = is_theirs ? hv_trust_denied(trust, why) : HV_CAUSE_OTHER;
  if (denied) {
    snprintf(text, HV_WORLD_TEXT_MAX, "%s", why);
    *cause = denied;
    return HV_DENIED;
  }
  if (is_theirs && hv_trust_saw_closed(trust)) {
    *cause = HV_CAUSE_NOT_INVITED;
    hv_admission_refuse(*cause, &(hv_membership){0}, hv_clock_unix_s(), text);
    return HV_NOT_ADMITTED;
  }
  switch (status) {
  case HV_REFUSED:
    snprintf(text, HV_WORLD_TEXT_MAX, "nothing listens on %s (%s): start the peer there, or correct the address", where, detail);
    break;
  case HV_UNREACHABLE:
    snprintf(text, HV_WORLD_TEXT_MAX, "cannot connect to %s (%s): check the address, the network and firewalls", where, detail);
    break;
  case HV_TIMEOUT:
    snprintf(text, HV_WORLD_TEXT_MAX, "%s did not answer within %u ms: check that it runs and that a firewall lets it answer",
             where, timeout_ms);
    break;
  case HV_CANCELLED:
    if (!link->dropped)
      snprintf(text, HV_WORLD_TEXT_MAX, "cancelled");
    else if (link->loop->phase >= HV_PHASE_ENDING)
      snprintf(text, HV_WORLD_TEXT_MAX, "this node is shutting down");
    else
      snprintf(text, HV_WORLD_TEXT_MAX,
               "the connection to %s was closed, because this machine's network or the peer's address has changed: try again",
               where);
    break;
  case HV_CLOSED:
    *cause = HV_CAUSE_CONNECTION_LOST;
    snprintf(text, HV_WORLD_TEXT_MAX, "the connection to %s was lost (%s)", where, detail);
    break;
  default:
    snprintf(text, HV_WORLD_TEXT_MAX, "%s: %s", where, detail);
  }
  return status;
}

static int concerns(const hv_link *link, const hv_target *to) {
  int known = hv_peer_is_known(&to->id), same_place = hv_addr_equal(&link->to.addr, &to->addr);
  if (known && (hv_peer_equal(&link->to.id, &to->id) || (!hv_peer_is_known(&link->to.id) && hv_peer_equal(&link->met, &to->id))))
    return 1;
  return same_place && (!known || !hv_peer_is_known(&link->to.id));
}

void hv_links_forget(hv_loop *loop, const hv_target *to) {
  for (hv_ring *at = loop->links.next, *next; at != &loop->links; at = next) {
    next = at->next;
    hv_link *link = HV_HOLDER(hv_link, all, at);
    if (!to || concerns(link, to))
      drop(link);
  }
}

/* True if the invitation of its peer has ended since it was made: the peer may have renewed it. */
static int is_older(const hv_link *link, int64_t now_s) {
  int64_t end_s = link->shown.invitation.end_s;
  return link->shown.kind == HV_MEMBERSHIP_INVITED && link->made_s <= end_s && end_s < now_s;
}

void hv_links_deny(hv_loop *loop) {
  for (hv_ring *at = loop->links.next, *next; at != &loop->links; at = next) {
    next = at->next;
    hv_link *link = HV_HOLDER(hv_link, all, at);
    if (link->shown.kind && judge(loop, &link->met, &link->shown))
      drop(link);
    else if (is_older(link, hv_clock_unix_s()))
      retire(link);
  }
}

void hv_links_retire(hv_loop *loop) {
  for (hv_ring *at = loop->links.next, *next; at != &loop->links; at = next) {
    next = at->next;
    retire(HV_HOLDER(hv_link, all, at));
  }
}

static int is_up(const hv_link *link) {
  int up = link->up;
  for (int i = 0; i < HV_LANES_MAX && !up; i++)
    up = link->bulk[i] && hv_grpc_channel_watch(link->bulk[i], NULL);
  return up;
}

void hv_links_part(hv_loop *loop, const hv_roam_news *news) {
  hv_sockets_forget(&loop->sockets); /* the next question makes a new list */
  for (hv_ring *at = loop->links.next, *next; at != &loop->links; at = next) {
    next = at->next;
    hv_link *link = HV_HOLDER(hv_link, all, at);
    if (!is_up(link) || news->slept || hv_sockets_lost(&loop->sockets, &link->to.addr, news, loop->now_us))
      drop(link);
  }
}

void hv_links_tick(hv_loop *loop) {
  for (hv_ring *at = loop->links.next, *next; at != &loop->links; at = next) {
    next = at->next;
    hv_link *link = HV_HOLDER(hv_link, all, at);
    if (!link->uses && link->used_us + HV_LOOP_IDLE_MS * (uint64_t)1000 < loop->now_us)
      drop(link);
  }
}
