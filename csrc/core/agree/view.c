#include "core/agree/view.h"

#include "core/round/partition.h"

#include <string.h>

size_t hv_members_count(const hv_members *set) {
  size_t n = 0;
  for (size_t i = 0; i < sizeof set->bits; i++)
    n += (size_t)__builtin_popcount(set->bits[i]);
  return n;
}

int hv_members_equal(const hv_members *a, const hv_members *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

/* ---- the hold ---- */

hv_status hv_hold_init(hv_hold *hold, hv_mem *mem, uint32_t n_chunks) {
  *hold = (hv_hold){.n_chunks = n_chunks};
  hold->held = hv_mem_array(mem, hv_hold_bytes(n_chunks), 1);
  hold->from = hv_mem_array(mem, n_chunks, sizeof *hold->from);
  hold->made = hv_mem_array(mem, n_chunks, sizeof *hold->made);
  hold->denied = hv_mem_array(mem, n_chunks, sizeof *hold->denied);
  return hold->held && hold->from && hold->made && hold->denied ? HV_OK : HV_NOMEM;
}

void hv_hold_fini(hv_hold *hold) {
  hv_mem_free(hold->held);
  hv_mem_free(hold->from);
  hv_mem_free(hold->made);
  hv_mem_free(hold->denied);
  *hold = (hv_hold){0};
}

void hv_hold_put(hv_hold *hold, uint32_t chunk, const hv_members *from, uint32_t made) {
  if (hv_hold_has(hold, chunk))
    return;
  hold->held[chunk / 8] |= (uint8_t)(1u << chunk % 8);
  hold->n_held++;
  hv_hold_note(hold, chunk, from, made);
}

void hv_hold_note(hv_hold *hold, uint32_t chunk, const hv_members *from, uint32_t made) {
  hold->from[chunk] = *from;
  hold->made[chunk] = made;
}

/* ---- views ---- */

static hv_view *new_view(hv_mem *mem, const hv_round *round, uint32_t number) {
  hv_view *view = hv_mem_zalloc(mem, sizeof *view);
  if (!view)
    return NULL;
  view->number = number;
  view->chunks = hv_mem_array(mem, round->in->n_chunks, sizeof *view->chunks);
  view->sources = hv_mem_array(mem, round->in->n_chunks, sizeof *view->sources);
  view->first = hv_mem_array(mem, round->n_members, sizeof *view->first);
  view->count = hv_mem_array(mem, round->n_members, sizeof *view->count);
  if (view->chunks && view->sources && view->first && view->count)
    return view;
  hv_view_free(view);
  return NULL;
}

void hv_view_free(hv_view *view) {
  if (!view)
    return;
  hv_mem_free(view->chunks);
  hv_mem_free(view->sources);
  hv_mem_free(view->first);
  hv_mem_free(view->count);
  hv_mem_free(view);
}

static void add_item(hv_view *view, uint32_t chunk, uint16_t source) {
  view->chunks[view->n_work] = chunk;
  view->sources[view->n_work++] = source;
}

hv_status hv_view_first(hv_mem *mem, const hv_round *round, hv_view **out) {
  hv_view *view = new_view(mem, round, 0);
  if (!view)
    return HV_NOMEM;
  for (uint32_t chunk = 0; chunk < round->in->n_chunks; chunk++)
    add_item(view, chunk, HV_VIEW_REDUCE);
  for (size_t i = 0; i < round->n_members; i++) {
    hv_members_put(&view->members, i);
    view->first[i] = round->members[i].first;
    view->count[i] = round->members[i].count;
  }
  *out = view;
  return HV_OK;
}

/* ---- a new plan ---- */

static int holds(const hv_view_report *report, uint32_t chunk) {
  return report->held[chunk / 8] >> chunk % 8 & 1;
}

static int same_view(const hv_view_report *a, const hv_view_report *b) {
  return a->installed == b->installed && hv_members_equal(&a->members, &b->members);
}

/* As far as is known of its promises. Of another member that is only the highest one. */
static int may_have_promised(const hv_view_report *report, uint32_t view) {
  if (report->installed == view)
    return 1;
  return report->promises ? hv_promises_has(report->promises, view) : report->promised >= view;
}

/* It holds what agrees with the latest view: that is its own, or it was stopped for it and its plan did not come. */
static int is_of(const hv_view_report *latest, const hv_view_report *report, size_t member) {
  return same_view(report, latest) || (hv_members_has(&latest->members, member) && report->installed < latest->installed);
}

/* The latest view is without this one, or has another plan, and may have averaged anew what this one holds. Not so what is held by
 * one of that view, too, who lacks its plan and comes from this one's own view: both have the same copy, and since that member took
 * nothing more once it had promised the latest view, its coordinator knew of that copy, and forwards it. All else this one must
 * hold alone, or with others of its own view. Who holds nothing agrees with anybody.
 */
static int agrees_with_it(const hv_round *round, const hv_view_report *reports, const hv_members *here,
                          const hv_view_report *latest, const hv_view_report *own) {
  for (size_t at = 0; at < hv_hold_bytes(round->in->n_chunks); at++) {
    uint8_t agreed = 0, others = 0;
    for (size_t i = 0; own->held[at] && i < round->n_members; i++) {
      if (!hv_members_has(here, i))
        continue;
      if (!same_view(&reports[i], own))
        others |= reports[i].held[at];
      else if (is_of(latest, &reports[i], i) && may_have_promised(&reports[i], latest->installed))
        agreed |= reports[i].held[at];
    }
    if (own->held[at] & others & ~agreed)
      return 0;
  }
  return 1;
}

/* May it be so that there was the view that this one reports? A view has one plan: those who say that they were in another one of
 * the same number are against it. */
static int is_credible(const hv_round *round, const hv_view_report *reports, const hv_members *here, const hv_view_report *told) {
  size_t n = 0, left = 0, say_so = 0, never = 0, otherwise = 0;
  for (size_t i = 0; i < round->n_members; i++) {
    if (!hv_members_has(here, i))
      continue;
    n++;
    say_so += (size_t)same_view(&reports[i], told);
    if (reports[i].installed == told->installed && !same_view(&reports[i], told)) {
      otherwise++;
      if (i == round->me)
        return 0;
    }
    if (!hv_members_has(&told->members, i))
      continue;
    left++;
    if (may_have_promised(&reports[i], told->installed))
      continue;
    if (i == round->me)
      return 0;
    never++;
  }
  return left >= 2 && never < say_so && otherwise < say_so && (say_so > 1 || 2 * left > n);
}

hv_members hv_view_left(const hv_round *round, const hv_view_report *reports, const hv_members *answered) {
  hv_members here = *answered;
  for (;;) {
    const hv_view_report *latest = NULL;
    for (size_t i = 0; i < round->n_members; i++)
      if (hv_members_has(&here, i) && (!latest || reports[i].installed > latest->installed))
        latest = &reports[i];
    if (!latest || latest->installed == 0)
      return here; /* nobody was ever left out */
    int credible = is_credible(round, reports, &here, latest);
    for (size_t i = 0; i < round->n_members; i++) {
      if (!hv_members_has(&here, i))
        continue;
      int is_left = credible ? is_of(latest, &reports[i], i) || agrees_with_it(round, reports, &here, latest, &reports[i])
                             : !same_view(&reports[i], latest);
      if (!is_left)
        hv_members_drop(&here, i);
    }
    if (credible)
      return here;
  }
}

/* Who has a chunk: everybody who has a place for it (NONE), one (the first in order, of the better ones if any), or nobody. */
static uint16_t source_of(const hv_round *round, const hv_view *view, const hv_view_report *reports, const hv_members *better,
                          uint32_t chunk) {
  uint16_t source = HV_VIEW_REDUCE;
  int lacking = 0;
  for (size_t i = round->n_members; i-- > 0;) {
    if (!hv_members_has(&view->members, i) || round->members[i].auxiliary)
      continue;
    if (!holds(&reports[i], chunk))
      lacking = 1;
    else if (source == HV_VIEW_REDUCE || hv_members_has(better, i) || !hv_members_has(better, source))
      source = (uint16_t)i;
  }
  return lacking ? source : HV_VIEW_NONE;
}

static uint32_t latest_of(const hv_round *round, const hv_view_report *reports, const hv_members *members) {
  uint32_t latest = 0;
  for (size_t i = 0; i < round->n_members; i++)
    if (hv_members_has(members, i) && reports[i].installed > latest)
      latest = reports[i].installed;
  return latest;
}

/* Those of hv_view_left who were not in the view of everybody else: they agree with all, or would not be left. */
static hv_members who_fits(const hv_round *round, const hv_view_report *reports, const hv_members *members) {
  hv_members strangers = {{0}};
  for (size_t i = 0; i < round->n_members; i++) {
    if (!hv_members_has(members, i))
      continue;
    hv_members others = *members;
    hv_members_take_out(&others, &reports[i].members);
    hv_members_join(&strangers, &others);
  }
  return strangers;
}

/* Divides the work among those who owned something from the start; if none of them may, among all who may; if nobody may, among all
 * who can be dialled. */
static hv_status divide(hv_mem *mem, const hv_round *round, hv_view *view, const hv_members *may_own) {
  hv_partition_member *shares = hv_mem_array(mem, round->n_members, sizeof *shares);
  if (!shares)
    return HV_NOMEM;
  hv_status status = HV_STATE;
  for (int any = 0; any < 3 && status == HV_STATE; any++) {
    for (size_t i = 0; i < round->n_members; i++) {
      const hv_round_member *m = &round->members[i];
      int in = hv_members_has(&view->members, i),
          owns = in && !m->client && (any == 2 || hv_members_has(may_own, i)) && (any || m->count);
      shares[i] = (hv_partition_member){.owns = (uint8_t)owns, .contributes = (uint8_t)(in && !m->auxiliary)};
    }
    status = hv_partition(shares, round->n_members, view->n_work);
  }
  for (size_t i = 0; i < round->n_members; i++) {
    view->first[i] = shares[i].first;
    view->count[i] = shares[i].count;
  }
  hv_mem_free(shares);
  return status;
}

hv_status hv_view_plan(hv_mem *mem, const hv_round *round, uint32_t number, const hv_view_report *reports,
                       const hv_members *answered, const hv_members *may_own, hv_view **out) {
  hv_view *view = new_view(mem, round, number);
  if (!view)
    return HV_NOMEM;
  view->members = hv_view_left(round, reports, answered);
  view->latest = latest_of(round, reports, &view->members);
  view->fits = who_fits(round, reports, &view->members);
  for (uint32_t chunk = 0; chunk < round->in->n_chunks; chunk++) {
    uint16_t source = source_of(round, view, reports, may_own, chunk);
    if (source != HV_VIEW_NONE)
      add_item(view, chunk, source);
  }
  hv_status status = hv_members_count(&view->members) < 2 ? HV_STATE : divide(mem, round, view, may_own);
  if (status != HV_OK)
    hv_view_free(view);
  else
    *out = view;
  return status;
}

/* ---- as bytes ---- */

static size_t plan_bytes(const hv_round *round) {
  return round->n_members * 4 + (size_t)round->in->n_chunks * 2;
}

static void free_bytes(void *bytes) {
  hv_mem_free(bytes);
}

hv_payload *hv_view_write(hv_mem *mem, const hv_round *round, const hv_view *view) {
  size_t size = plan_bytes(round);
  uint8_t *bytes = hv_mem_alloc(mem, size), *to = bytes;
  hv_payload *payload = bytes ? hv_payload_borrow(mem, bytes, size, free_bytes, bytes) : NULL;
  if (!payload) {
    hv_mem_free(bytes);
    return NULL;
  }
  for (size_t i = 0; i < round->n_members; i++, to += 4)
    hv_le_put(to, view->count[i] | (hv_members_has(&view->fits, i) ? HV_VIEW_FITS : 0), 4);
  for (uint32_t chunk = 0, item = 0; chunk < round->in->n_chunks; chunk++, to += 2) {
    int is_work = item < view->n_work && view->chunks[item] == chunk;
    hv_le_put(to, is_work ? view->sources[item] : HV_VIEW_NONE, 2);
    item += (uint32_t)is_work;
  }
  return payload;
}

static hv_status read_spans(const hv_round *round, const uint8_t *from, hv_view *view) {
  uint32_t at = 0;
  for (size_t i = 0; i < round->n_members; i++, from += 4) {
    uint32_t told = (uint32_t)hv_le_get(from, 4), count = told & ~HV_VIEW_FITS;
    if (told & HV_VIEW_FITS)
      hv_members_put(&view->fits, i);
    if (count > view->n_work - at || (count && (round->members[i].client || !hv_members_has(&view->members, i))))
      return HV_MALFORMED;
    view->first[i] = at;
    view->count[i] = count;
    at += count;
  }
  return at == view->n_work ? HV_OK : HV_MALFORMED;
}

/* What a plan says of a chunk must agree with what is here. */
static int agrees(const hv_round *round, const hv_hold *hold, const hv_view *view, uint32_t chunk, uint32_t source) {
  int held = hv_hold_has(hold, chunk), auxiliary = round->members[round->me].auxiliary;
  if (source == HV_VIEW_NONE)
    return held || auxiliary;
  if (source == HV_VIEW_REDUCE)
    return !held;
  return source < round->n_members && hv_members_has(&view->members, source) && !round->members[source].auxiliary &&
         (source != round->me || held);
}

static hv_status read_plan(const hv_round *round, const hv_hold *hold, const uint8_t *bytes, hv_view *view) {
  const uint8_t *from = bytes + round->n_members * 4;
  for (uint32_t chunk = 0; chunk < round->in->n_chunks; chunk++, from += 2) {
    uint32_t source = (uint32_t)hv_le_get(from, 2);
    if (!agrees(round, hold, view, chunk, source))
      return HV_MALFORMED;
    if (source != HV_VIEW_NONE)
      add_item(view, chunk, (uint16_t)source);
  }
  return read_spans(round, bytes, view);
}

hv_status hv_view_read(hv_mem *mem, const hv_round *round, const hv_hold *hold, uint32_t number, const hv_members *members,
                       const hv_payload *payload, hv_view **out) {
  size_t size = plan_bytes(round);
  if (!payload || payload->size != size || !hv_members_has(members, round->me))
    return HV_MALFORMED;
  hv_view *view = new_view(mem, round, number);
  uint8_t *bytes = hv_mem_alloc(mem, size);
  hv_status status = HV_NOMEM;
  if (view && bytes) {
    view->members = *members;
    hv_payload_read(payload, 0, bytes, size);
    status = read_plan(round, hold, bytes, view);
  }
  hv_mem_free(bytes);
  if (status != HV_OK)
    hv_view_free(view);
  else
    *out = view;
  return status;
}
