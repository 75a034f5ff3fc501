#include "core/progress/sum.h"

enum { OWNERS_MAX = HV_SUM_OWNERS_MAX };

static const double LONGEST_US = 1e18; /* longer than any clock has run; samples and speeds that peers claim can give more */

static uint64_t sum_least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b, uint64_t most) {
  return sum_least(a + b, most); /* both are below 2^62 */
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
  uint64_t all = (uint64_t)to->owners + part->owners;
  to->age_ms = (uint32_t)(all ? ((uint64_t)to->age_ms * to->owners + (uint64_t)part->age_ms * part->owners) / all : part->age_ms);
  to->owners = (uint32_t)plus(to->owners, part->owners, OWNERS_MAX);
  to->samples = plus(to->samples, part->samples, HV_REPORT_SAMPLES_MAX);
  to->before = plus(to->before, part->before, HV_REPORT_SAMPLES_MAX);
  to->speed_milli = plus(to->speed_milli, part->speed_milli, HV_REPORT_SAMPLES_MAX);
}

void hv_sum_add(hv_sum *sum, const hv_sum *other) {
  for (size_t i = 0; i < other->n_parts; i++)
    hv_sum_add_part(sum, &other->parts[i]);
  sum->owners = (uint32_t)plus(sum->owners, other->owners, OWNERS_MAX);
  sum->contributors = (uint32_t)plus(sum->contributors, other->contributors, OWNERS_MAX);
  sum->clients = (uint32_t)plus(sum->clients, other->clients, OWNERS_MAX);
}

void hv_sum_forward(hv_sum *sum, uint64_t us) {
  for (size_t i = 0; i < sum->n_parts; i++) {
    double more = (double)sum->parts[i].speed_milli * (double)us * 1e-9;
    sum->parts[i].samples = plus(sum->parts[i].samples, (uint64_t)(more < 1e14 ? more + 0.5 : 1e14), HV_REPORT_SAMPLES_MAX);
    sum->parts[i].age_ms = (uint32_t)plus(sum->parts[i].age_ms, us / 1000, UINT32_MAX);
  }
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

uint32_t hv_sum_age_ms(const hv_sum *sum) {
  uint64_t ages = 0, owners = 0;
  for (size_t i = 0; i < sum->n_parts; i++) {
    ages += (uint64_t)sum->parts[i].age_ms * sum->parts[i].owners;
    owners += sum->parts[i].owners;
  }
  return (uint32_t)(owners ? ages / owners : 0);
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

uint64_t hv_sum_since_us(const hv_sum *sum, uint64_t epoch) {
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    double since = p->speed_milli ? (double)p->samples / (double)p->speed_milli * 1e9 : 0;
    if (p->epoch == epoch && p->speed_milli)
      return (uint64_t)(since < LONGEST_US ? since : LONGEST_US);
  }
  return 0;
}

void hv_sum_carry(hv_sum *sum, uint64_t epoch, uint64_t since_us) {
  for (size_t i = sum->n_parts; i-- > 0;) {
    hv_part old = sum->parts[i];
    if (old.epoch >= epoch || old.age_ms * UINT64_C(1000) < since_us)
      continue;
    double begun = (double)old.speed_milli * (double)since_us * 1e-9;
    hv_part moved = {.epoch = epoch, .owners = old.owners, .age_ms = old.age_ms, .speed_milli = old.speed_milli};
    moved.samples = (uint64_t)(begun < (double)HV_REPORT_SAMPLES_MAX ? begun : (double)HV_REPORT_SAMPLES_MAX);
    if (old.epoch + 1 == epoch && old.samples > moved.samples)
      moved.before = old.samples - moved.samples;
    sum->parts[i] = sum->parts[--sum->n_parts];
    hv_sum_add_part(sum, &moved);
  }
}
