/* Trainers that only dial out give their states to a hub, from which joiners load them, told against the virtual clock. */
#include "lib/gift_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 40000, JOINER_S = 30 };

typedef struct scene {
  hv_mem mem;
  hv_sim *sim;
  gift_scene g;
} scene;

static void print_line(void *arg, const char *line) {
  (void)arg;
  puts(line);
}

static scene *open_scene(uint64_t seed, size_t clients, hv_codec codec) {
  scene *sc = calloc(1, sizeof *sc);
  hv_mem_init(&sc->mem, NULL, HV_MEM_UNLIMITED);
  hv_sim_config config = hv_sim_defaults(seed);
  config.window = 16384; /* so that what is sent waits for the line at its sender */
  config.say = getenv("HV_NARRATE") ? print_line : NULL;
  sc->sim = hv_sim_new(&sc->mem, &config);
  gift_scene_init(&sc->g, sc->sim, &sc->mem, clients, VALUES, codec);
  return sc;
}

static void close_scene(scene *sc) {
  assert_string_equal(sc->g.broken, "");
  assert_int_equal(hv_sim_free(sc->sim), 0);
  gift_scene_fini(&sc->g);
  assert_int_equal(sc->mem.blocks, 0);
  free(sc);
}

/* A joiner that only dials out gets the state of this epoch, bit by bit. */
static void joiner_gets(scene *sc, uint64_t epoch) {
  state_try *try = calloc(1, sizeof *try);
  size_t node = state_scene_add(&sc->g.s, STATE_HONEST, 1);
  gift_scene_run(&sc->g, 3);
  state_load(&sc->g.s, node, try, "run", JOINER_S * 1000);
  for (int i = 0; i < JOINER_S && !try->done; i++)
    gift_scene_run(&sc->g, 1);
  if (!try->done || try->status != HV_OK)
    fail_msg("it ended with %s: %s", hv_status_name(try->status), try->text);
  assert_in_range(try->epoch, epoch, epoch + 1);
  assert_true(gift_same(&sc->g, try));
  state_try_free(try);
  free(try);
}

static void joiner_loads_the_gift_of_a_client_from_a_hub(void **unused) {
  (void)unused;
  scene *sc = open_scene(1, 3, HV_CODEC_NONE);
  assert_true(gift_scene_await(&sc->g, 1, 15));
  joiner_gets(sc, 1);
  for (uint64_t epoch = 2; epoch < 8; epoch++) {
    gift_scene_next_epoch(&sc->g);
    assert_true(gift_scene_await(&sc->g, epoch, 15));
  }
  joiner_gets(sc, 7);
  assert_int_equal(sc->g.hub.n_taken, 7);
  close_scene(sc);
}

/* The hub holds plain values, and encodes them once, as a trainer that could be dialled would. */
static void joiner_gets_values_that_were_encoded_once(void **unused) {
  (void)unused;
  scene *sc = open_scene(2, 2, HV_CODEC_FLOAT16);
  assert_true(gift_scene_await(&sc->g, 1, 15));
  joiner_gets(sc, 1);
  close_scene(sc);
}

static void words_of_a_round_bring_a_state_without_a_request(void **unused) {
  (void)unused;
  scene *sc = open_scene(3, 3, HV_CODEC_NONE);
  assert_true(gift_scene_await(&sc->g, 1, 15));
  gift_scene_run(&sc->g, 3);
  for (size_t i = 0; i < 3; i++) {
    gift_scene_meet(&sc->g, i);
    assert_true(gift_scene_await(&sc->g, sc->g.epoch, 3)); /* sooner than a look, a store and a lookup would take */
    assert_true(sc->g.clients[i].n_given > 0);
  }
  close_scene(sc);
}

static void giver_that_dies_is_replaced(void **unused) {
  (void)unused;
  for (int unplugged = 0; unplugged < 2; unplugged++) {
    scene *sc = open_scene(4, 3, HV_CODEC_NONE);
    hv_sim_link slow = hv_sim_defaults(1).link;
    slow.rate = 20000; /* 160 kB take 8 s */
    for (size_t i = 1; i <= 3; i++)
      hv_sim_set_link(sc->sim, i, HV_SIM_ANY, &slow);
    size_t giver = 0;
    for (int i = 0; i < 80 && !sc->g.hub.arriving; i++)
      gift_scene_run(&sc->g, 0.25);
    assert_non_null(sc->g.hub.arriving);
    for (size_t i = 0; i < 3; i++)
      giver = sc->g.clients[i].given ? i : giver;
    gift_scene_run(&sc->g, 2);
    unplugged ? hv_sim_unplug(sc->sim, 1 + giver) : hv_sim_kill(sc->sim, 1 + giver);
    assert_true(gift_scene_await(&sc->g, 1, unplugged ? 80 : 40));
    assert_int_equal(sc->g.clients[giver].n_arrived, 0);
    joiner_gets(sc, 1);
    close_scene(sc);
  }
}

static void giver_rests_less_while_somebody_is_on_the_way(void **unused) {
  (void)unused;
  for (int urgent = 0; urgent < 2; urgent++) {
    scene *sc = open_scene(7, 1, HV_CODEC_NONE);
    hv_sim_link slow = hv_sim_defaults(1).link;
    slow.rate = 20000; /* a state takes 8 s */
    hv_sim_set_link(sc->sim, 1, HV_SIM_ANY, &slow);
    sc->g.clients[0].is_urgent = urgent;
    assert_true(gift_scene_await(&sc->g, 1, 30));
    gift_scene_next_epoch(&sc->g);
    assert_int_equal(gift_scene_await(&sc->g, 2, 28), urgent);
    assert_true(gift_scene_await(&sc->g, 2, 22));
    close_scene(sc);
  }
}

static void hub_that_dies_asks_again_in_its_next_life(void **unused) {
  (void)unused;
  scene *sc = open_scene(5, 3, HV_CODEC_NONE);
  assert_true(gift_scene_await(&sc->g, 1, 15));
  hv_sim_kill(sc->sim, GIFT_HUB);
  gift_scene_run(&sc->g, 5);
  gift_scene_next_epoch(&sc->g);
  assert_int_equal(hv_sim_restart(sc->sim, GIFT_HUB), HV_OK);
  assert_true(gift_scene_await(&sc->g, 2, 60));
  joiner_gets(sc, 2);
  close_scene(sc);
}

static void giver_that_stands_still_in_the_middle_is_left(void **unused) {
  (void)unused;
  scene *sc = open_scene(6, 2, HV_CODEC_NONE);
  hv_sim_link slow = hv_sim_defaults(1).link;
  slow.rate = 20000;
  for (size_t i = 1; i <= 2; i++)
    hv_sim_set_link(sc->sim, i, HV_SIM_ANY, &slow);
  size_t giver = 0;
  for (int i = 0; i < 80 && !sc->g.hub.arriving; i++)
    gift_scene_run(&sc->g, 0.25);
  for (size_t i = 0; i < 2; i++)
    giver = sc->g.clients[i].given ? i : giver;
  hv_sim_pause(sc->sim, 1 + giver);
  assert_true(gift_scene_await(&sc->g, 1, 90));
  assert_true(sc->g.clients[1 - giver].n_given > 0);
  hv_sim_continue(sc->sim, 1 + giver);
  gift_scene_run(&sc->g, 40);
  close_scene(sc);
}

static void joiner_that_downloads_keeps_the_hub_within_its_bound(void **unused) {
  (void)unused;
  scene *sc = open_scene(7, 2, HV_CODEC_NONE);
  state_try *try = calloc(1, sizeof *try);
  hv_sim_link slow = hv_sim_defaults(1).link;
  slow.rate = 3000; /* a download of 50 s */
  size_t node = state_scene_add(&sc->g.s, STATE_HONEST, 1);
  hv_sim_set_link(sc->sim, GIFT_HUB, node, &slow);
  assert_true(gift_scene_await(&sc->g, 1, 15));
  gift_scene_run(&sc->g, 3);
  state_load(&sc->g.s, node, try, "run", 120000);
  for (int i = 0; i < 60 && !try->done; i++) {
    gift_scene_run(&sc->g, 1);
    if (i % 3 == 0)
      gift_scene_next_epoch(&sc->g);
  }
  assert_true(sc->g.hub.bytes_peak <= HV_KEEP_STATES * sc->g.size_max);
  assert_true(sc->g.hub.n_taken > 10); /* the newest ones are taken beside the one that is downloaded */
  for (int i = 0; i < 60 && !try->done; i++)
    gift_scene_run(&sc->g, 1);
  assert_true(try->done && gift_same(&sc->g, try));
  assert_true(gift_scene_await(&sc->g, sc->g.epoch, 30));
  state_try_free(try);
  free(try);
  close_scene(sc);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joiner_loads_the_gift_of_a_client_from_a_hub),
      cmocka_unit_test(joiner_gets_values_that_were_encoded_once),
      cmocka_unit_test(words_of_a_round_bring_a_state_without_a_request),
      cmocka_unit_test(giver_that_dies_is_replaced),
      cmocka_unit_test(giver_rests_less_while_somebody_is_on_the_way),
      cmocka_unit_test(hub_that_dies_asks_again_in_its_next_life),
      cmocka_unit_test(giver_that_stands_still_in_the_middle_is_left),
      cmocka_unit_test(joiner_that_downloads_keeps_the_hub_within_its_bound),
  };
  return cmocka_run_group_tests_name("gifts in the simulator", tests, NULL, NULL);
}
