#include "core/sum.h"

enum { OWNERS_MAX = 1 << 28 };

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b, uint64_t most) {
  return least(a + b, most); /* both are below 2^62 */
}

/* The part with this epoch, or a place for one; NULL: there are enough larger ones. */
static hv_part *part_for(hv_sum *sum, uint64_t epoch, uint32_t owners) {
  hv_part *smallest = &sum->parts[0];
  for (size_t i = 0; i < sum->n_parts; i++) {
    if (sum->parts[i].epoch == epoch)
      return &sum->parts[i];
    if (sum->parts[i].owners < smallest->owners)
      smallest = &sum->parts[i];
  }
  if (sum->n_parts < HV_PARTS_MAX)
    smallest = &sum->parts[sum->n_parts++];
  else if (smallest->owners >= owners)
    return NULL;
  *smallest = (hv_part){.epoch = epoch};
  return smallest;
}

void hv_sum_add_part(hv_sum *sum, const hv_part *part) {
  hv_part *to = part_for(sum, part->epoch, part->owners);
  if (!to)
    return;
  to->owners = (uint32_t)plus(to->owners, part->owners, OWNERS_MAX);
  to->samples = plus(to->samples, part->samples, HV_REPORT_SAMPLES_MAX);
  to->before = plus(to->before, part->before, HV_REPORT_SAMPLES_MAX);
  to->speed_milli = plus(to->speed_milli, part->speed_milli, HV_REPORT_SAMPLES_MAX);
}

void hv_sum_add(hv_sum *sum, const hv_sum *other) {
  for (size_t i = 0; i < other->n_parts; i++)
    hv_sum_add_part(sum, &other->parts[i]);
  uint64_t ages = (uint64_t)sum->age_ms * sum->owners + (uint64_t)other->age_ms * other->owners,
           all = (uint64_t)sum->owners + other->owners;
  sum->age_ms = (uint32_t)(all ? ages / all : sum->age_ms | other->age_ms);
  sum->owners = (uint32_t)plus(sum->owners, other->owners, OWNERS_MAX);
  sum->contributors = (uint32_t)plus(sum->contributors, other->contributors, OWNERS_MAX);
  sum->clients = (uint32_t)plus(sum->clients, other->clients, OWNERS_MAX);
}

void hv_sum_forward(hv_sum *sum, uint64_t us) {
  for (size_t i = 0; i < sum->n_parts; i++) {
    double more = (double)sum->parts[i].speed_milli * (double)us * 1e-9;
    sum->parts[i].samples = plus(sum->parts[i].samples, (uint64_t)(more < 1e14 ? more + 0.5 : 1e14), HV_REPORT_SAMPLES_MAX);
  }
  sum->age_ms = (uint32_t)plus(sum->age_ms, us / 1000, UINT32_MAX);
}

static void scale(uint64_t *value, double by) {
  *value = (uint64_t)((double)*value * by);
}

void hv_sum_limit_owners(hv_sum *sum, uint32_t most) {
  if (sum->owners <= most)
    return;
  double by = (double)most / (double)sum->owners;
  for (size_t i = 0; i < sum->n_parts; i++) {
    hv_part *p = &sum->parts[i];
    p->owners = (uint32_t)((double)p->owners * by);
    scale(&p->samples, by);
    scale(&p->before, by);
    scale(&p->speed_milli, by);
  }
  sum->contributors = (uint32_t)((double)sum->contributors * by);
  sum->clients = (uint32_t)((double)sum->clients * by);
  sum->owners = most;
}

static void cut(uint64_t *value, double most) {
  if ((double)*value > most)
    *value = (uint64_t)most;
}

void hv_sum_limit_each(hv_sum *sum, double samples, double speed) {
  for (size_t i = 0; i < sum->n_parts; i++) {
    hv_part *p = &sum->parts[i];
    cut(&p->samples, samples * p->owners);
    cut(&p->before, samples * p->owners);
    cut(&p->speed_milli, speed * 1000 * p->owners);
  }
}

static uint32_t owners_from(const hv_sum *sum, uint64_t epoch) {
  uint64_t n = 0;
  for (size_t i = 0; i < sum->n_parts; i++)
    n += sum->parts[i].epoch >= epoch ? sum->parts[i].owners : 0;
  return (uint32_t)least(n, OWNERS_MAX);
}

uint64_t hv_sum_epoch(const hv_sum *sum) {
  uint64_t best = 0;
  for (size_t i = 0; i < sum->n_parts; i++) {
    uint64_t epoch = sum->parts[i].epoch;
    if (epoch > best && owners_from(sum, epoch) > sum->owners / 3)
      best = epoch;
  }
  return best;
}

double hv_sum_samples(const hv_sum *sum, uint64_t epoch) {
  double samples = 0;
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    samples += p->epoch == epoch ? (double)p->samples : p->epoch == epoch + 1 ? (double)p->before : 0;
  }
  return samples;
}

double hv_sum_speed(const hv_sum *sum, uint64_t epoch) {
  double speed = 0;
  for (size_t i = 0; i < sum->n_parts; i++)
    speed += sum->parts[i].epoch == epoch ? (double)sum->parts[i].speed_milli * 1e-3 : 0;
  return speed;
}

double hv_sum_place(const hv_sum *sum, uint64_t epoch, double share) {
  double place = 0;
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    double ahead = p->epoch >= epoch ? (double)(p->epoch - epoch) : -(double)(epoch - p->epoch);
    place += (double)p->samples + ahead * share * p->owners;
  }
  return place;
}

hv_status hv_sum_hear(const hv_sum_told *told, hv_sum *out) {
  uint64_t owners = 0;
  *out = (hv_sum){.owners = told->owners, .clients = told->clients, .age_ms = told->age_ms};
  if (told->owners > OWNERS_MAX || told->more > OWNERS_MAX || told->clients > told->owners + told->more)
    return HV_MALFORMED;
  out->contributors = told->owners + told->more;
  for (size_t i = 0; i < told->n_parts; i++) {
    const hv_part *p = &told->parts[i];
    owners += p->owners;
    if (p->epoch > HV_REPORT_EPOCH_MAX || p->samples > HV_REPORT_SAMPLES_MAX || p->before > HV_REPORT_SAMPLES_MAX ||
        p->speed_milli > HV_REPORT_SAMPLES_MAX || p->owners > OWNERS_MAX)
      return HV_MALFORMED;
    hv_sum_add_part(out, p);
  }
  return owners <= told->owners ? HV_OK : HV_MALFORMED;
}

void hv_sum_say(const hv_sum *sum, hv_sum_told *out) {
  *out = (hv_sum_told){.parts = sum->parts,
                       .n_parts = sum->n_parts,
                       .owners = sum->owners,
                       .more = sum->contributors > sum->owners ? sum->contributors - sum->owners : 0,
                       .clients = sum->clients,
                       .age_ms = sum->age_ms};
}
