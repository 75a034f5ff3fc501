#include "core/progress/tally.h"
#include "core/util/sort.h"

_Static_assert(sizeof(hv_claim) <= HV_SORT_SIZE_MAX, "a claim is sorted as one");

/* One owner, its contributors together. */
typedef struct share {
  uint64_t epoch;
  double samples, speed;
  double any_speed;            /* of all its contributors, in whatever epoch they are */
  double my_samples, my_speed; /* the part that is `mine` */
  size_t first, n;             /* of the claims */
} share;

typedef struct count {
  const hv_claim *claims;
  const hv_tally_rule *rule;
  uint64_t now_us;
  share *shares;
  double *values;
  size_t n, tolerated;
} count;

static int by_owner(const void *a, const void *b) {
  const hv_claim *x = a, *y = b;
  int order = hv_peer_compare(&x->owner, &y->owner);
  return order ? order : (int)y->mine - (int)x->mine;
}

static int downwards(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

double hv_tally_reference(double *values, size_t n, size_t tolerated) {
  hv_sort(values, n, sizeof *values, downwards);
  return n ? values[tolerated < n ? tolerated : n - 1] : 0;
}

static int is_counted(const hv_claim *claim, const hv_tally_rule *rule, uint64_t now_us) {
  return !claim->report.gone &&
         (claim->mine || now_us <= claim->heard_us || now_us - claim->heard_us <= rule->stale_ms * UINT64_C(1000));
}

/* Moves the claims that count to the front, those of one owner together; returns their number. */
static size_t drop_the_rest(hv_claim *claims, size_t n, const hv_tally_rule *rule, uint64_t now_us) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++)
    if (is_counted(&claims[i], rule, now_us)) {
      hv_claim claim = claims[i];
      claims[i] = claims[kept];
      claims[kept++] = claim;
    }
  if (kept > 1)
    hv_sort(claims, kept, sizeof *claims, by_owner);
  return kept;
}

static void gather_owners(count *c, size_t n) {
  for (size_t i = 0; i < n; i++) {
    share *last = c->n ? &c->shares[c->n - 1] : NULL;
    if (last && hv_peer_equal(&c->claims[last->first].owner, &c->claims[i].owner)) {
      last->n++;
      if (last->n > HV_TALLY_INSTANCES_MAX)
        continue;
    } else {
      last = &c->shares[c->n++];
      *last = (share){.first = i, .n = 1};
    }
    last->epoch = c->claims[i].report.epoch > last->epoch ? c->claims[i].report.epoch : last->epoch;
  }
  c->tolerated = c->n / 3;
}

static uint64_t tally_epoch(const count *c) {
  for (size_t i = 0; i < c->n; i++)
    c->values[i] = (double)c->shares[i].epoch; /* 48 bits: exact */
  return (uint64_t)hv_tally_reference(c->values, c->n, c->tolerated);
}

double hv_claim_samples(const hv_claim *claim, uint64_t now_us, uint64_t most_us) {
  const hv_report *r = &claim->report;
  uint64_t age = now_us > claim->at_us ? now_us - claim->at_us : 0;
  return (double)r->samples + (claim->mine ? 0 : r->speed * (double)(age < most_us ? age : most_us) * 1e-6);
}

static double samples_of(const count *c, const hv_claim *claim, uint64_t epoch) {
  const hv_report *r = &claim->report;
  if (r->epoch == epoch + 1)
    return (double)r->before;
  if (r->epoch != epoch)
    return 0;
  return hv_claim_samples(claim, c->now_us, c->rule->horizon_ms * UINT64_C(1000));
}

static void add_up(count *c, uint64_t epoch) {
  for (size_t i = 0; i < c->n; i++) {
    share *s = &c->shares[i];
    for (size_t j = 0; j < s->n && j < HV_TALLY_INSTANCES_MAX; j++) {
      const hv_claim *claim = &c->claims[s->first + j];
      double samples = samples_of(c, claim, epoch), speed = claim->report.epoch == epoch ? claim->report.speed : 0;
      s->samples += samples;
      s->speed += speed;
      s->any_speed += claim->report.speed;
      if (claim->mine) {
        s->my_samples = samples;
        s->my_speed = speed;
      }
    }
  }
}

static double most_samples(const count *c) {
  for (size_t i = 0; i < c->n; i++)
    c->values[i] = c->shares[i].samples;
  double most = c->rule->fast * hv_tally_reference(c->values, c->n, c->tolerated), fair = (double)c->rule->target / (double)c->n;
  return most > fair ? most : fair;
}

static double most_speed(const count *c) {
  for (size_t i = 0; i < c->n; i++)
    c->values[i] = c->shares[i].any_speed;
  return c->rule->fast * hv_tally_reference(c->values, c->n, c->tolerated);
}

static double tally_least(double a, double b) {
  return a < b ? a : b;
}

/* Beyond the most that counts, the others' part is cut first to what is left beside mine. */
static void sum(const count *c, hv_tally *out) {
  for (size_t i = 0; i < c->n; i++) {
    const share *s = &c->shares[i];
    double samples = tally_least(s->samples, out->most_samples), speed = tally_least(s->speed, out->most_speed);
    out->samples += samples;
    out->speed += speed;
    out->others_samples += samples - tally_least(s->my_samples, samples);
    out->others_speed += speed - tally_least(s->my_speed, speed);
    for (size_t j = 0; j < s->n && j < HV_TALLY_INSTANCES_MAX; j++) {
      out->n++;
      out->n_clients += c->claims[s->first + j].report.client_mode;
      out->n_behind += c->claims[s->first + j].report.epoch < out->epoch;
    }
  }
}

hv_status hv_tally_count(hv_mem *mem, hv_claim *claims, size_t n, const hv_tally_rule *rule, uint64_t now_us, hv_tally *out) {
  *out = (hv_tally){0};
  n = drop_the_rest(claims, n, rule, now_us);
  if (n == 0)
    return HV_OK;
  count c = {.claims = claims, .rule = rule, .now_us = now_us};
  c.shares = hv_mem_array(mem, n, sizeof *c.shares);
  c.values = hv_mem_array(mem, n, sizeof *c.values);
  hv_status status = c.shares && c.values ? HV_OK : HV_NOMEM;
  if (status == HV_OK) {
    gather_owners(&c, n);
    out->any = 1;
    out->n_owners = c.n;
    out->tolerated = c.tolerated;
    out->epoch = tally_epoch(&c);
    add_up(&c, out->epoch);
    out->most_samples = most_samples(&c);
    out->most_speed = most_speed(&c);
    sum(&c, out);
  }
  hv_mem_free(c.shares);
  hv_mem_free(c.values);
  return status;
}
