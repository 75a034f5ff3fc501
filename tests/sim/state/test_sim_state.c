/* How a joiner gets the swarm's state, told against the virtual clock: who dies, who lies, and what comes out. */
#include "lib/state_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 12, SECONDS = 120 };

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  state_scene s;
  state_copy copies[NODES];
  size_t n_copies;
  state_offering offers[NODES];
  state_try try;
} scene;

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static void open_scene(scene *sc, uint64_t seed, uint64_t rate) {
  memset(sc, 0, sizeof *sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.link.rate = rate;
  config.window = 64 << 10;
  config.say = getenv("HV_NARRATE") ? print_line : NULL;
  sc->sim = hv_sim_new(&sc->mem, &config);
  state_scene_init(&sc->s, sc->sim, &sc->mem);
}

static void nodes(scene *sc, size_t n) {
  for (size_t i = 0; i < n; i++)
    state_scene_add(&sc->s, STATE_HONEST, 0);
  dht_swarm_run(&sc->s.swarm, 5);
}

/* This node offers a replica of this number under "run"; it has its own copy of it. */
static void offers(scene *sc, size_t node, uint64_t number, uint64_t epoch, size_t values, hv_codec codec) {
  state_copy_make(&sc->copies[sc->n_copies], &sc->mem, number, values, codec);
  state_offer(&sc->s, node, &sc->offers[sc->n_copies], &sc->copies[sc->n_copies], "run", epoch);
  sc->n_copies++;
}

static void all_offered(scene *sc) {
  dht_swarm_run(&sc->s.swarm, 5);
  for (size_t i = 0; i < sc->n_copies; i++) {
    assert_int_equal(sc->offers[i].done, 1);
    assert_int_equal(sc->offers[i].status, HV_OK);
  }
}

static void load(scene *sc, size_t node) {
  state_load(&sc->s, node, &sc->try, "run", 60000);
}

static void finish(scene *sc) {
  assert_true(state_finish(&sc->s, &sc->try, 1, SECONDS));
}

static void ends(scene *sc, hv_status status) {
  finish(sc);
  if (sc->try.status != status)
    fail_msg("it ended with %s (%s), not %s", hv_status_name(sc->try.status), sc->try.text, hv_status_name(status));
  assert_true(status == HV_OK || strlen(sc->try.text) > 20);
}

static void close_scene(scene *sc) {
  dht_swarm_run(&sc->s.swarm, 60);
  assert_int_equal(hv_sim_free(sc->sim), 0);
  state_scene_fini(&sc->s);
  state_try_free(&sc->try);
  for (size_t i = 0; i < sc->n_copies; i++)
    state_copy_free(&sc->copies[i]);
  assert_int_equal(sc->mem.blocks, 0);
}

/* ---- nothing goes wrong ---- */

static void a_joiner_gets_the_state_that_all_offer(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 1, 0);
  nodes(&sc, 6);
  for (size_t i = 0; i < 5; i++)
    offers(&sc, i, 7, 12, 50000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 5);
  ends(&sc, HV_OK);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  assert_int_equal(sc.try.epoch, 12);
  assert_string_equal(sc.try.metadata, "metadata of epoch 12");
  assert_int_equal(sc.try.rooms, 1);
  assert_int_equal(state_twice(&sc.try), 0);
  assert_int_equal(sc.try.load.seen.voters, 5);
  assert_in_range(sc.try.load.seen.donors, 2, 4); /* at once */
  assert_int_equal(sc.try.load.seen.arrived, sc.try.n_chunks);
  close_scene(&sc);
}

static void encoded_parts_come_as_their_codec_leaves_them(void **unused) {
  (void)unused;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    scene sc;
    open_scene(&sc, 10 + (uint64_t)codec, 0);
    nodes(&sc, 4);
    for (size_t i = 0; i < 3; i++)
      offers(&sc, i, 3, 1, 5000, (hv_codec)codec);
    all_offered(&sc);
    assert_memory_equal(&sc.offers[0].offer.digest, &sc.offers[2].offer.digest, sizeof(hv_hash));
    load(&sc, 3);
    ends(&sc, HV_OK);
    assert_true(state_same(&sc.try, &sc.copies[0]));
    close_scene(&sc);
  }
}

static void lone_donor_is_enough(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 30, 0);
  nodes(&sc, 2);
  offers(&sc, 0, 7, 0, 0, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 1);
  ends(&sc, HV_OK);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  hv_target donor = hv_sim_target(sc.sim, 0);
  assert_true(hv_peer_equal(&sc.try.load.donor, &donor.id));
  close_scene(&sc);
}

static void donor_that_loads_itself_does_not_vote(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 31, 0);
  nodes(&sc, 3);
  offers(&sc, 0, 7, 4, 3000, HV_CODEC_NONE);
  offers(&sc, 1, 8, 4, 3000, HV_CODEC_NONE); /* fell out of step */
  all_offered(&sc);
  load(&sc, 1);
  ends(&sc, HV_OK);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  assert_int_equal(sc.try.load.seen.voters, 1);
  close_scene(&sc);
}

static void more_joiners_than_a_donor_serves_at_once_are_all_served(void **unused) {
  (void)unused;
  enum { JOINERS = 30 };
  scene sc;
  static state_try tries[JOINERS];
  open_scene(&sc, 32, 1 << 20);
  nodes(&sc, JOINERS + 1);
  offers(&sc, 0, 7, 4, 20000, HV_CODEC_FLOAT16);
  all_offered(&sc);
  for (size_t i = 0; i < JOINERS; i++)
    state_load(&sc.s, i + 1, &tries[i], "run", 120000);
  assert_true(state_finish(&sc.s, tries, JOINERS, 120));
  for (size_t i = 0; i < JOINERS; i++) {
    assert_int_equal(tries[i].status, HV_OK);
    assert_true(state_same(&tries[i], &sc.copies[0]));
    assert_int_equal(state_twice(&tries[i]), 0);
    state_try_free(&tries[i]);
  }
  close_scene(&sc);
}

static void download_memory_does_not_grow_with_the_state(void **unused) {
  (void)unused;
  size_t peaks[2][2];
  for (int big = 0; big < 2; big++) {
    scene sc;
    open_scene(&sc, 33, 4 << 20);
    sc.s.swarm.state.chunk_bytes = 8192;
    nodes(&sc, 2);
    offers(&sc, 0, 7, 4, big ? 4000000 : 1000000, HV_CODEC_NONE);
    dht_swarm_run(&sc.s.swarm, 60);
    load(&sc, 1);
    ends(&sc, HV_OK);
    peaks[big][0] = hv_sim_mem(sc.sim, 0)->peak;
    peaks[big][1] = hv_sim_mem(sc.sim, 1)->peak;
    close_scene(&sc);
  }
  for (int side = 0; side < 2; side++) /* the manifest does: 32 bytes for each 8 KiB here, a few times */
    assert_in_range(peaks[1][side], 0, peaks[0][side] + (12000000 / 8192) * 400);
}

/* ---- donors die ---- */

static void a_donor_that_dies_costs_at_most_one_chunk_twice(void **unused) {
  (void)unused;
  size_t deaths = 0;
  for (uint64_t seed = 100; seed < 160; seed++) {
    scene sc;
    check_rng rng = {seed};
    open_scene(&sc, seed, 100 << 10);
    nodes(&sc, 6);
    for (size_t i = 0; i < 5; i++)
      offers(&sc, i, 7, 3, 20000, HV_CODEC_NONE);
    all_offered(&sc);
    load(&sc, 5);
    size_t died = 0;
    for (; died < 4; died++) {
      dht_swarm_run(&sc.s.swarm, check_uniform(&rng) * 0.15);
      if (sc.try.done)
        break;
      hv_sim_kill(sc.sim, died + 1);
    }
    ends(&sc, HV_OK);
    assert_true(state_same(&sc.try, &sc.copies[0]));
    assert_in_range(state_twice(&sc.try), 0, died);
    assert_int_equal(sc.try.load.seen.arrived, sc.try.n_chunks);
    deaths += sc.try.load.seen.broken;
    close_scene(&sc);
  }
  assert_true(deaths > 40); /* most died while they were asked something */
}

static void unplugged_donor_is_given_up_by_measured_speed(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 161, 200 << 10);
  nodes(&sc, 4);
  for (size_t i = 0; i < 3; i++)
    offers(&sc, i, 7, 3, 100000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  dht_swarm_run(&sc.s.swarm, 0.4);
  assert_int_equal(sc.try.done, 0);
  hv_sim_unplug(sc.sim, 1); /* nobody is told */
  ends(&sc, HV_OK);
  assert_true(sc.try.load.seen.given_up + sc.try.load.seen.overtaken >= 1);
  assert_in_range(sc.try.ended_us - sc.try.started_us, 0, 10 * DHT_SECOND);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  close_scene(&sc);
}

static void load_says_so_if_all_donors_die(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 162, 100 << 10);
  nodes(&sc, 8);
  for (size_t i = 1; i < 4; i++)
    offers(&sc, i, 7, 3, 50000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 4);
  dht_swarm_run(&sc.s.swarm, 0.5);
  assert_int_equal(sc.try.done, 0);
  for (size_t i = 1; i < 4; i++)
    hv_sim_kill(sc.sim, i);
  ends(&sc, HV_UNREACHABLE);
  close_scene(&sc);
}

static void a_donor_that_comes_back_is_asked_again(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 163, 100 << 10);
  nodes(&sc, 4);
  offers(&sc, 1, 7, 3, 50000, HV_CODEC_NONE);
  offers(&sc, 2, 7, 3, 50000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  dht_swarm_run(&sc.s.swarm, 0.5);
  hv_sim_kill(sc.sim, 1);
  hv_sim_kill(sc.sim, 2);
  dht_swarm_run(&sc.s.swarm, 1);
  assert_int_equal(sc.try.done, 0);
  assert_int_equal(hv_sim_restart(sc.sim, 1), HV_OK);
  offers(&sc, 1, 7, 3, 50000, HV_CODEC_NONE);
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.rooms, 1); /* what had come was kept */
  assert_in_range(state_twice(&sc.try), 0, 2);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  close_scene(&sc);
}

static void load_restarts_after_the_swarm_moved_on(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 164, 100 << 10);
  nodes(&sc, 4);
  for (size_t i = 0; i < 3; i++)
    offers(&sc, i, 7, 3, 50000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  dht_swarm_run(&sc.s.swarm, 0.5);
  assert_int_equal(sc.try.done, 0);
  for (size_t i = 0; i < 3; i++) {
    state_withdraw(&sc.s, i, "run", 1);
    offers(&sc, i, 8, 4, 40000, HV_CODEC_NONE);
  }
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.epoch, 4);
  assert_int_equal(sc.try.load.seen.restarts, 1);
  assert_int_equal(sc.try.rooms, 2);
  assert_true(state_same(&sc.try, &sc.copies[3]));
  close_scene(&sc);
}

/* ---- a snapshot's life ---- */

static void snapshot_is_pinned_until_its_download_ends_and_no_longer(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 165, 100 << 10);
  nodes(&sc, 2);
  offers(&sc, 0, 7, 3, 50000, HV_CODEC_NONE);
  all_offered(&sc);
  hv_payload_release(&sc.copies[0].payload); /* now only the node has it */
  load(&sc, 1);
  dht_swarm_run(&sc.s.swarm, 0.5);
  assert_int_equal(sc.try.done, 0);
  offers(&sc, 0, 8, 4, 10, HV_CODEC_NONE);
  dht_swarm_run(&sc.s.swarm, 0.2);
  assert_int_equal(sc.copies[0].freed, 0);
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.epoch, 3);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  dht_swarm_run(&sc.s.swarm, 1);
  assert_int_equal(sc.offers[1].status, HV_OK);
  assert_int_equal(sc.copies[0].freed, 1);
  close_scene(&sc);
}

static void replaced_snapshot_is_released_in_the_end(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 169, 4 << 10);
  sc.s.swarm.state.chunk_bytes = 8192;
  nodes(&sc, 2);
  offers(&sc, 0, 7, 3, 800000, HV_CODEC_NONE); /* would take thirteen minutes */
  dht_swarm_run(&sc.s.swarm, 60);
  hv_payload_release(&sc.copies[0].payload);
  state_load(&sc.s, 1, &sc.try, "run", 1000000);
  dht_swarm_run(&sc.s.swarm, 30);
  assert_int_equal(hv_state_uploads(hv_node_state(sc.s.swarm.seats[0].node)), 1);
  offers(&sc, 0, 8, 4, 10, HV_CODEC_NONE);
  dht_swarm_run(&sc.s.swarm, 240);
  assert_int_equal(sc.copies[0].freed, 0);
  dht_swarm_run(&sc.s.swarm, 180);
  assert_int_equal(sc.copies[0].freed, 1);
  assert_true(state_finish(&sc.s, &sc.try, 1, 300));
  assert_int_equal(sc.try.status, HV_OK);
  assert_int_equal(sc.try.epoch, 4); /* it began again */
  close_scene(&sc);
}

/* Earlier offers: snapshot 1 is replaced by another one, or withdrawn so that its download may finish. Then the program wants its
 * memory. */
static void immediate_withdrawal_ends_downloads_of_earlier_offers(void **unused) {
  (void)unused;
  for (int replaced = 0; replaced < 2; replaced++) {
    scene sc;
    open_scene(&sc, 169, 10 << 10);
    nodes(&sc, 2);
    offers(&sc, 0, 7, 3, 100000, HV_CODEC_NONE);
    all_offered(&sc);
    hv_payload_release(&sc.copies[0].payload); /* now only the node has it */
    state_load(&sc.s, 1, &sc.try, "run", 60000);
    dht_swarm_run(&sc.s.swarm, 2);
    if (replaced)
      offers(&sc, 0, 8, 4, 10, HV_CODEC_NONE);
    else
      state_withdraw(&sc.s, 0, "run", 0);
    dht_swarm_run(&sc.s.swarm, 5);
    assert_int_equal(hv_state_uploads(hv_node_state(sc.s.swarm.seats[0].node)), 1);
    assert_int_equal(sc.copies[0].freed, 0);
    state_withdraw(&sc.s, 0, "other", 1); /* another prefix's downloads are its own */
    dht_swarm_run(&sc.s.swarm, 1);
    assert_int_equal(hv_state_uploads(hv_node_state(sc.s.swarm.seats[0].node)), 1);
    state_withdraw(&sc.s, 0, "run", 1);
    dht_swarm_run(&sc.s.swarm, 1);
    assert_int_equal(hv_state_uploads(hv_node_state(sc.s.swarm.seats[0].node)), 0);
    assert_int_equal(sc.copies[0].freed, 1);
    finish(&sc);
    assert_int_not_equal(sc.try.status, HV_OK);
    close_scene(&sc);
  }
}

static void a_newer_offer_takes_the_place_of_one_that_is_being_hashed(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 166, 0);
  nodes(&sc, 2);
  offers(&sc, 0, 7, 3, 500000, HV_CODEC_NONE);
  offers(&sc, 0, 8, 4, 1000, HV_CODEC_NONE);
  dht_swarm_run(&sc.s.swarm, 5);
  assert_int_equal(sc.offers[0].status, HV_CANCELLED);
  assert_int_equal(sc.offers[1].status, HV_OK);
  load(&sc, 1);
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.epoch, 4);
  close_scene(&sc);
}

static void withdrawn_state_is_offered_to_nobody(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 167, 0);
  nodes(&sc, 3);
  offers(&sc, 0, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  state_withdraw(&sc.s, 0, "run", 0);
  dht_swarm_run(&sc.s.swarm, 2);
  hv_payload_release(&sc.copies[0].payload);
  assert_int_equal(sc.copies[0].freed, 1);
  load(&sc, 2);
  ends(&sc, HV_NOT_FOUND);
  close_scene(&sc);
}

static void an_announcement_lives_no_longer_than_its_donor_renews_it(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 168, 0);
  sc.s.swarm.state.declare_ms = 4000;
  nodes(&sc, 4);
  offers(&sc, 1, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  dht_swarm_run(&sc.s.swarm, 60);
  load(&sc, 2);
  ends(&sc, HV_OK);
  state_try_free(&sc.try);
  hv_sim_kill(sc.sim, 1);
  dht_swarm_run(&sc.s.swarm, 11);
  load(&sc, 2);
  ends(&sc, HV_NOT_FOUND);
  close_scene(&sc);
}

/* ---- liars ---- */

/* The nodes that keep the announcements also keep a stranger's record under their key: a plain value that lives longer than they
 * do. */
static void strangers_record_among_announcements_excludes_no_joiner(void **unused) {
  (void)unused;
  dht_try plain;
  scene sc;
  open_scene(&sc, 200, 0);
  nodes(&sc, 5);
  dht_swarm_store(&sc.s.swarm, 4, &plain, "run.state", NULL, "nothing", 3000000);
  assert_true(dht_swarm_finish(&sc.s.swarm, &plain, 1, 10));
  assert_int_equal(plain.status, HV_OK);
  for (size_t i = 0; i < 3; i++)
    offers(&sc, i, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.load.seen.voters, 3);
  assert_true(state_same(&sc.try, &sc.copies[0]));
  close_scene(&sc);
}

static void an_epoch_that_a_lone_liar_makes_up_is_not_believed(void **unused) {
  (void)unused;
  for (size_t honest = 1; honest <= 6; honest++) {
    scene sc;
    open_scene(&sc, 200 + honest, 0);
    nodes(&sc, honest + 2);
    for (size_t i = 0; i < honest; i++)
      offers(&sc, i, 7, 3, 1000, HV_CODEC_NONE);
    offers(&sc, honest, 666, 1000000000, 1000, HV_CODEC_NONE);
    all_offered(&sc);
    load(&sc, honest + 1);
    ends(&sc, HV_OK);
    assert_int_equal(sc.try.epoch, 3);
    assert_true(state_same(&sc.try, &sc.copies[0]));
    close_scene(&sc);
  }
}

/* Their states differ by rounding: each is of another number here. Of one history, one of them will do; a newer offer without one
 * takes its place in what a node announces. */
static void replicas_of_one_history_count_though_their_bits_differ(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 33, 0);
  nodes(&sc, 6);
  for (int told = 1; told >= 0; told--) {
    for (size_t i = 1; i < 5; i++) { /* not the joiner's initial peer, which would decide alone */
      offers(&sc, i, 40 + i, 12, 100, HV_CODEC_NONE);
      memset(sc.offers[sc.n_copies - 1].offer.lineage, 9 * told, HV_BALLOT_LINEAGE);
    }
    all_offered(&sc);
    load(&sc, 5);
    ends(&sc, told ? HV_OK : HV_STATE);
    int same = 0;
    for (size_t i = 0; i < 4; i++)
      same += told && state_same(&sc.try, &sc.copies[i]);
    assert_int_equal(same, told);
    state_try_free(&sc.try);
  }
  close_scene(&sc);
}

static void donors_that_disagree_one_to_one_are_not_believed(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 210, 0);
  nodes(&sc, 4);
  offers(&sc, 1, 7, 3, 1000, HV_CODEC_NONE);
  offers(&sc, 2, 8, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  ends(&sc, HV_STATE);
  assert_int_equal(sc.try.rooms, 0);
  close_scene(&sc);
}

static void donor_of_a_wrong_chunk_is_not_asked_again(void **unused) {
  (void)unused;
  for (int lie = STATE_LIE_CHUNKS; lie < STATE_LIES; lie++) {
    scene sc;
    open_scene(&sc, 220 + (uint64_t)lie, 1 << 20);
    for (size_t i = 0; i < 7; i++)
      state_scene_add(&sc.s, i == 1 || i == 2 ? (state_lie)lie : STATE_HONEST, 0);
    dht_swarm_run(&sc.s.swarm, 5);
    for (size_t i = 0; i < 6; i++)
      offers(&sc, i, 7, 3, 30000, HV_CODEC_NONE);
    for (size_t i = 1; i < 3; i++) /* so that they are asked first */
      sc.offers[i].offer.priority = 5;
    all_offered(&sc);
    load(&sc, 6);
    ends(&sc, HV_OK);
    assert_true(state_same(&sc.try, &sc.copies[0]));
    if (lie == STATE_LIE_CHUNKS || lie == STATE_LIE_MANIFEST)
      assert_int_equal(sc.try.load.seen.liars, 2);
    close_scene(&sc);
  }
}

static void load_ends_with_a_reason_if_all_donors_lie(void **unused) {
  (void)unused;
  for (int lie = STATE_LIE_CHUNKS; lie <= STATE_LIE_SILENT; lie++) {
    scene sc;
    open_scene(&sc, 230 + (uint64_t)lie, 1 << 20);
    for (size_t i = 0; i < 4; i++)
      state_scene_add(&sc.s, i == 1 || i == 2 ? (state_lie)lie : STATE_HONEST, 0);
    dht_swarm_run(&sc.s.swarm, 5);
    offers(&sc, 1, 7, 3, 3000, HV_CODEC_UNIFORM8);
    offers(&sc, 2, 7, 3, 3000, HV_CODEC_UNIFORM8);
    all_offered(&sc);
    load(&sc, 3);
    ends(&sc, lie == STATE_LIE_SILENT ? HV_TIMEOUT : HV_UNREACHABLE);
    close_scene(&sc);
  }
}

/* ---- how else it may end ---- */

static void load_says_at_once_that_nobody_offers(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 240, 0);
  nodes(&sc, 3);
  load(&sc, 1);
  ends(&sc, HV_NOT_FOUND);
  assert_in_range(sc.try.ended_us - sc.try.started_us, 0, 3 * DHT_SECOND);
  close_scene(&sc);
}

static void clients_vote_on_the_state_but_serve_nobody(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 241, 0);
  state_scene_add(&sc.s, STATE_HONEST, 0);
  state_scene_add(&sc.s, STATE_HONEST, 1);
  state_scene_add(&sc.s, STATE_HONEST, 1);
  state_scene_add(&sc.s, STATE_HONEST, 0);
  dht_swarm_run(&sc.s.swarm, 5);
  offers(&sc, 1, 7, 3, 1000, HV_CODEC_NONE);
  offers(&sc, 2, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  ends(&sc, HV_UNREACHABLE);
  state_try_free(&sc.try);
  offers(&sc, 0, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 3);
  ends(&sc, HV_OK);
  assert_int_equal(sc.try.load.seen.voters, 3);
  close_scene(&sc);
}

static void load_keeps_the_callers_limits(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 242, 0);
  nodes(&sc, 2);
  offers(&sc, 0, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  load(&sc, 1);
  sc.try.load.size_max = 4000;
  ends(&sc, HV_TOO_LARGE);
  load(&sc, 1);
  sc.try.load.epoch_least = 4;
  ends(&sc, HV_NOT_FOUND);
  load(&sc, 1);
  sc.try.load.epoch_least = 3;
  ends(&sc, HV_OK);
  close_scene(&sc);
}

static void look_finds_the_offered_epoch_and_downloads_nothing(void **unused) {
  (void)unused;
  scene sc;
  open_scene(&sc, 244, 0);
  nodes(&sc, 2);
  offers(&sc, 0, 7, 3, 1000, HV_CODEC_NONE);
  all_offered(&sc);
  for (uint64_t least = 2; least <= 4; least++) {
    load(&sc, 1);
    sc.try.load.only_look = 1;
    sc.try.load.epoch_least = least;
    ends(&sc, least <= 3 ? HV_OK : HV_NOT_FOUND);
    assert_int_equal(sc.try.epoch, least <= 3 ? 3 : 0);
    assert_int_equal(sc.try.load.seen.looks, 1); /* also where nobody offers it: it does not wait for an offer */
    assert_int_equal(sc.try.rooms, 0);
  }
  close_scene(&sc);
}

/* Two honest donors, and three keys of one stranger, whose state is too large or is known to be of no use. */
static void refused_state_has_no_vote_and_the_next_is_loaded(void **unused) {
  (void)unused;
  for (int known = 0; known < 2; known++) {
    scene sc;
    open_scene(&sc, 245 + (uint64_t)known, 0);
    nodes(&sc, 7);
    for (size_t i = 1; i < 6; i++) /* not the joiner's initial peer, which would decide alone */
      offers(&sc, i, i < 3 ? 7 : 8, 3, i < 3 ? 1000 : 9000, HV_CODEC_NONE);
    all_offered(&sc);
    load(&sc, 6);
    if (known) {
      sc.try.load.refused[0] = sc.offers[4].offer.digest;
      sc.try.load.n_refused = 1;
    }
    sc.try.load.size_max = known ? 0 : 20000;
    ends(&sc, HV_OK);
    assert_true(state_same(&sc.try, &sc.copies[0]));
    assert_int_equal(sc.try.rooms, 1); /* none for the other */
    assert_int_equal(sc.try.load.n_refused, 1);
    assert_memory_equal(&sc.try.load.refused[0], &sc.offers[4].offer.digest, sizeof(hv_hash));
    state_try_free(&sc.try);
    load(&sc, 6);
    sc.try.load.size_max = 100;
    ends(&sc, HV_TOO_LARGE); /* both are */
    close_scene(&sc);
  }
}

static void ending_node_completes_its_loads_and_offers(void **unused) {
  (void)unused;
  for (int way = 0; way < 2; way++) {
    scene sc;
    open_scene(&sc, 244, 50 << 10);
    nodes(&sc, 3);
    offers(&sc, 0, 7, 3, 100000, HV_CODEC_NONE);
    all_offered(&sc);
    load(&sc, 1);
    dht_swarm_run(&sc.s.swarm, 0.5);
    offers(&sc, 1, 8, 4, 1000000, HV_CODEC_NONE);
    dht_swarm_run(&sc.s.swarm, 0.001);
    if (way)
      hv_sim_kill(sc.sim, 1);
    else
      hv_sim_stop(sc.sim, 1);
    ends(&sc, way ? HV_CLOSED : HV_CANCELLED);
    assert_int_equal(sc.offers[1].status, way ? HV_CLOSED : HV_CANCELLED);
    close_scene(&sc);
  }
}

/* ---- without memory ---- */

/* A donor and a joiner; the n-th allocation of one of them fails: it fails whole or does without, and nothing is left. 1: none was
 * refused. */
static int without(size_t node, long n, hv_codec codec) {
  scene sc;
  open_scene(&sc, 300, 0);
  nodes(&sc, 3);
  hv_mem_fail_in(hv_sim_mem(sc.sim, node), n);
  offers(&sc, 0, 7, 3, 3000, codec);
  offers(&sc, 1, 7, 3, 3000, codec);
  dht_swarm_run(&sc.s.swarm, 2);
  load(&sc, 2);
  finish(&sc);
  if (sc.try.status == HV_OK)
    assert_true(state_same(&sc.try, &sc.copies[0]));
  else
    assert_true(node == 2 && (sc.try.status == HV_NOMEM || sc.try.status == HV_UNREACHABLE || sc.try.status == HV_TIMEOUT));
  for (size_t i = 0; i < 2; i++)
    assert_true(sc.offers[i].status == HV_OK || (i == node && sc.offers[i].status == HV_NOMEM));
  int refused = hv_sim_mem(sc.sim, node)->refused > 0;
  for (size_t i = 0; i < 3; i++)
    assert_true(hv_sim_alive(sc.sim, i));
  close_scene(&sc);
  return !refused;
}

static void node_fails_alone_at_every_allocation_and_leaks_nothing(void **unused) {
  (void)unused;
  static const hv_codec codecs[] = {HV_CODEC_NONE, HV_CODEC_FLOAT16};
  for (size_t c = 0; c < 2; c++)
    for (size_t node = 0; node < 3; node += 2) {
      long n = 0;
      while (!without(node, n, codecs[c]))
        n++;
      assert_true(n > 20);
    }
}

/* Each offer has a prefix of its own. There is one more of them than a node has places for. */
static void offer_without_digests_leaves_its_place_to_others(void **unused) {
  (void)unused;
  state_offering o;
  scene sc;
  open_scene(&sc, 301, 0);
  nodes(&sc, 2);
  state_copy_make(&sc.copies[sc.n_copies++], &sc.mem, 7, 1000, HV_CODEC_NONE);
  long n = 0; /* the allocation that fails: first those of the offer itself, which refuse it at once */
  for (size_t failed = 0; failed <= HV_STATE_OFFERS_MAX;) {
    char prefix[40];
    snprintf(prefix, sizeof prefix, "run %zu", failed);
    hv_mem_fail_in(hv_sim_mem(sc.sim, 0), n);
    state_offer(&sc.s, 0, &o, &sc.copies[0], prefix, 3);
    dht_swarm_run(&sc.s.swarm, 0);
    int at_once = o.done;
    dht_swarm_run(&sc.s.swarm, 1);
    assert_int_equal(o.done, 1);
    assert_int_equal(o.status, HV_NOMEM);
    n += at_once;
    failed += !at_once;
  }
  hv_mem_fail_in(hv_sim_mem(sc.sim, 0), -1);
  state_offer(&sc.s, 0, &sc.offers[0], &sc.copies[0], "run", 3);
  all_offered(&sc);
  load(&sc, 1);
  ends(&sc, HV_OK);
  close_scene(&sc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_joiner_gets_the_state_that_all_offer),
      cmocka_unit_test(encoded_parts_come_as_their_codec_leaves_them),
      cmocka_unit_test(lone_donor_is_enough),
      cmocka_unit_test(donor_that_loads_itself_does_not_vote),
      cmocka_unit_test(more_joiners_than_a_donor_serves_at_once_are_all_served),
      cmocka_unit_test(download_memory_does_not_grow_with_the_state),
      cmocka_unit_test(a_donor_that_dies_costs_at_most_one_chunk_twice),
      cmocka_unit_test(unplugged_donor_is_given_up_by_measured_speed),
      cmocka_unit_test(load_says_so_if_all_donors_die),
      cmocka_unit_test(a_donor_that_comes_back_is_asked_again),
      cmocka_unit_test(load_restarts_after_the_swarm_moved_on),
      cmocka_unit_test(snapshot_is_pinned_until_its_download_ends_and_no_longer),
      cmocka_unit_test(replaced_snapshot_is_released_in_the_end),
      cmocka_unit_test(immediate_withdrawal_ends_downloads_of_earlier_offers),
      cmocka_unit_test(a_newer_offer_takes_the_place_of_one_that_is_being_hashed),
      cmocka_unit_test(withdrawn_state_is_offered_to_nobody),
      cmocka_unit_test(an_announcement_lives_no_longer_than_its_donor_renews_it),
      cmocka_unit_test(strangers_record_among_announcements_excludes_no_joiner),
      cmocka_unit_test(an_epoch_that_a_lone_liar_makes_up_is_not_believed),
      cmocka_unit_test(replicas_of_one_history_count_though_their_bits_differ),
      cmocka_unit_test(donors_that_disagree_one_to_one_are_not_believed),
      cmocka_unit_test(donor_of_a_wrong_chunk_is_not_asked_again),
      cmocka_unit_test(load_ends_with_a_reason_if_all_donors_lie),
      cmocka_unit_test(load_says_at_once_that_nobody_offers),
      cmocka_unit_test(clients_vote_on_the_state_but_serve_nobody),
      cmocka_unit_test(load_keeps_the_callers_limits),
      cmocka_unit_test(refused_state_has_no_vote_and_the_next_is_loaded),
      cmocka_unit_test(look_finds_the_offered_epoch_and_downloads_nothing),
      cmocka_unit_test(ending_node_completes_its_loads_and_offers),
      cmocka_unit_test(node_fails_alone_at_every_allocation_and_leaks_nothing),
      cmocka_unit_test(offer_without_digests_leaves_its_place_to_others),
  };
  return cmocka_run_group_tests_name("sim: state", tests, NULL, NULL);
}
