/* How long a round of differences may take, and in how many bits this peer sends, by what the line's rounds and the quickest load
 * took (docs/design/local-steps.md, "Beside a slow line" and "Bits").
 */
#include "core/epoch/epoch_inner.h"

enum { TIMES = 3 };   /* of what the line needs: it has slower moments */
enum { WAITED = 10 }; /* the part of an epoch, in percent, for a round that training waits for */
enum { WIDER = 4 };   /* of a narrow round: twice the time of a wide one, which is twice as long */

uint64_t hv_epoch_averaging_us(const hv_epoch *self) {
  uint64_t option_us = self->config.averaging_us, need_us = self->line.need_us;
  if (!self->traits.carries || self->config.averaging_given)
    return option_us;
  uint64_t us = need_us < HV_EPOCH_LINE_US / TIMES ? TIMES * need_us : HV_EPOCH_LINE_US;
  return us > option_us ? us : option_us;
}

void epoch_line_begins(hv_epoch *self, uint64_t now_us) {
  self->line.begun_us = now_us;
}

/* A round whose time ended needs more than it had. */
void epoch_line_took(hv_epoch *self, const epoch_event *e) {
  hv_epoch_line *line = &self->line;
  uint64_t took_us = line->begun_us == HV_EPOCH_NONE ? 0 : e->now_us - line->begun_us, had_us = hv_epoch_averaging_us(self);
  if (e->took_us) /* its outcome may be told late */
    took_us = e->took_us;
  line->begun_us = HV_EPOCH_NONE;
  line->ran_out = e->ran_out || (line->ran_out && e->outcome != HV_EPOCH_CONFIRMED);
  if (!took_us || (!e->ran_out && e->outcome != HV_EPOCH_CONFIRMED))
    return;
  if (e->outcome == HV_EPOCH_CONFIRMED) {
    line->before_us = line->took_us ? line->took_us : took_us;
    line->took_us = took_us;
  }
  if (e->ran_out && took_us < had_us)
    took_us = had_us;
  if (took_us > line->need_us)
    line->need_us = took_us;
  else if (!e->ran_out)
    line->need_us -= (line->need_us - took_us) / 8;
}

uint64_t epoch_line_round_us(const hv_epoch *self) {
  const hv_epoch_line *line = &self->line;
  return line->took_us < line->before_us ? line->took_us : line->before_us;
}

/* Each member sends an average twice: to those who make it, and as one who makes a part of it. So does it receive. */
void epoch_line_loaded(hv_epoch *self) {
  const hv_epoch_config *c = &self->config;
  if (!c->state_bytes)
    return;
  double need_us = (double)self->load_us * 2 * (double)c->entry_bytes / (double)c->state_bytes;
  if (need_us > (double)self->line.need_us)
    self->line.need_us = need_us < (double)HV_EPOCH_LINE_US ? (uint64_t)need_us : HV_EPOCH_LINE_US;
}

void epoch_line_chooses(hv_epoch *self, const hv_progress_figures *f) {
  hv_epoch_line *line = &self->line;
  uint64_t part = self->traits.overlap ? self->traits.overlap : WAITED;
  uint64_t round_us = line->took_us && !line->ran_out ? epoch_line_round_us(self) : line->need_us;
  if (!self->traits.carries || !round_us || !(f->speed > 0))
    return;
  double may_us = (double)part / 100 * 1e6 * (double)self->config.target / f->speed;
  if (round_us > HV_EPOCH_CHASE_US && (double)round_us > may_us)
    line->narrow = 1;
  else if (round_us <= HV_EPOCH_CHASE_US / WIDER || WIDER * (double)round_us < may_us)
    line->narrow = 0;
}
