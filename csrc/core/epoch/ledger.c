#include "core/epoch/ledger.h"

const char *hv_epoch_outcome_name(hv_epoch_outcome outcome) {
  static const char *const names[] = {
#define HV_EPOCH_OUTCOME_NAME(name) #name,
      HV_EPOCH_OUTCOME_MAP(HV_EPOCH_OUTCOME_NAME)
#undef HV_EPOCH_OUTCOME_NAME
  };
  return (unsigned)outcome < HV_EPOCH_OUTCOMES ? names[outcome] : "?";
}

const char *hv_epoch_loss_name(hv_epoch_loss loss) {
  static const char *const names[] = {
#define HV_EPOCH_LOSS_NAME(name, text) #name,
      HV_EPOCH_LOSS_MAP(HV_EPOCH_LOSS_NAME)
#undef HV_EPOCH_LOSS_NAME
  };
  return (unsigned)loss < HV_EPOCH_LOSSES ? names[loss] : "?";
}

const char *hv_epoch_loss_text(hv_epoch_loss loss) {
  static const char *const texts[] = {
#define HV_EPOCH_LOSS_TEXT(name, text) text,
      HV_EPOCH_LOSS_MAP(HV_EPOCH_LOSS_TEXT)
#undef HV_EPOCH_LOSS_TEXT
  };
  return (unsigned)loss < HV_EPOCH_LOSSES ? texts[loss] : "?";
}

int hv_epoch_ledger_holds(const hv_epoch_ledger *l) {
  uint64_t lost = 0;
  for (size_t i = 0; i < HV_EPOCH_LOSSES; i++)
    lost += l->lost_by[i];
  return lost == l->lost && l->produced == l->averaged + l->kept + l->sums + l->in_flight + l->lost;
}

uint64_t hv_epoch_ledger_held(const hv_epoch_ledger *l) {
  return l->produced - l->lost;
}

/* Moves samples from one place to another; returns how many. */
static uint64_t move(uint64_t *from, uint64_t *to, uint64_t samples) {
  *from -= samples;
  *to += samples;
  return samples;
}

static uint64_t lose(hv_epoch_ledger *l, uint64_t *from, uint64_t samples, hv_epoch_loss why) {
  l->lost_by[why] += samples;
  return move(from, &l->lost, samples);
}

void hv_epoch_ledger_counted(hv_epoch_ledger *l, uint64_t samples) {
  l->produced += samples;
  l->sums += samples;
}

uint64_t hv_epoch_ledger_behind(hv_epoch_ledger *l, uint64_t samples) {
  hv_epoch_ledger_counted(l, samples);
  return lose(l, &l->sums, samples, HV_EPOCH_LOSS_BEHIND);
}

uint64_t hv_epoch_ledger_overflow(hv_epoch_ledger *l, uint64_t samples, uint64_t summed) {
  uint64_t there = summed < l->sums ? summed : l->sums;
  hv_epoch_ledger_counted(l, samples);
  return lose(l, &l->sums, samples + there, HV_EPOCH_LOSS_OVERFLOW);
}

uint64_t hv_epoch_ledger_replaced(hv_epoch_ledger *l) {
  return lose(l, &l->sums, l->sums, HV_EPOCH_LOSS_REPLACED);
}

uint64_t hv_epoch_ledger_restored(hv_epoch_ledger *l) {
  return lose(l, &l->sums, l->sums, HV_EPOCH_LOSS_RESTORED);
}

uint64_t hv_epoch_ledger_taken(hv_epoch_ledger *l) {
  move(&l->sums, &l->in_flight, l->sums);
  return l->in_flight;
}

uint64_t hv_epoch_ledger_not_finite(hv_epoch_ledger *l) {
  return lose(l, &l->in_flight, l->in_flight, HV_EPOCH_LOSS_NOT_FINITE);
}

uint64_t hv_epoch_ledger_cut(hv_epoch_ledger *l, uint64_t most) {
  return lose(l, &l->in_flight, l->in_flight > most ? l->in_flight - most : 0, HV_EPOCH_LOSS_CUT);
}

/* The part of a number of samples that did not reach an average. */
static uint64_t late_part(uint64_t samples, double share) {
  if (share >= 1)
    return 0;
  double late = (double)samples * (1 - (share > 0 ? share : 0)) + 0.5;
  return late < (double)samples ? (uint64_t)late : samples;
}

uint64_t hv_epoch_ledger_over(hv_epoch_ledger *l, hv_epoch_outcome outcome, double share) {
  uint64_t lost = 0;
  if (outcome == HV_EPOCH_LEFT_OUT)
    return lose(l, &l->in_flight, l->in_flight, HV_EPOCH_LOSS_LEFT_OUT);
  if (outcome == HV_EPOCH_CONFIRMED) {
    lost = lose(l, &l->in_flight, late_part(l->in_flight, share), HV_EPOCH_LOSS_LATE);
    move(&l->in_flight, &l->averaged, l->in_flight);
  }
  return lost;
}

void hv_epoch_ledger_shared(hv_epoch_ledger *l, double share) {
  move(&l->in_flight, &l->averaged, l->in_flight - late_part(l->in_flight, share));
  hv_epoch_ledger_returned(l);
}

void hv_epoch_ledger_returned(hv_epoch_ledger *l) {
  move(&l->in_flight, &l->sums, l->in_flight);
}

uint64_t hv_epoch_ledger_dropped(hv_epoch_ledger *l) {
  return lose(l, &l->in_flight, l->in_flight, HV_EPOCH_LOSS_DROPPED);
}

uint64_t hv_epoch_ledger_broken(hv_epoch_ledger *l) {
  return lose(l, &l->in_flight, l->in_flight, HV_EPOCH_LOSS_BROKEN);
}

uint64_t hv_epoch_ledger_stepped(hv_epoch_ledger *l) {
  return move(&l->in_flight, &l->kept, l->in_flight);
}

void hv_epoch_ledger_kept_settled(hv_epoch_ledger *l) {
  move(&l->kept, &l->averaged, l->kept);
}

uint64_t hv_epoch_ledger_kept_given_up(hv_epoch_ledger *l) {
  return lose(l, &l->kept, l->kept, HV_EPOCH_LOSS_GIVEN_UP);
}
