// setun.h: the plan, and what streaming did.
#include "api/api.h"

#include "base/process.h"
#include "base/system_memory.h"

setun_plan st_api_plan_of(const st_memory_plan *p) {
  return (setun_plan){.budget = p->budget,
                      .least = p->least,
                      .total = st_memory_plan_total(p),
                      .process = p->process,
                      .vectors = p->vectors,
                      .held = p->resident,
                      .rounding = p->rounding,
                      .ring = p->ring,
                      .packed = p->packed,
                      .cache = p->cache,
                      .work = p->work,
                      .reserve = ST_MEMORY_RESERVE,
                      .weights = p->all,
                      .stored = p->stored,
                      .streamed = p->streamed,
                      .rearranged = p->rearranged,
                      .token_bytes = p->token_bytes,
                      .token_macs = p->token_macs,
                      .n_layer = p->n_layer,
                      .n_ctx = p->n_ctx,
                      .n_batch = p->n_batch};
}

setun_status st_api_make_plan(setun_model *m, const st_directory *d, const setun_model_params *p, void *context,
                              setun_error *err) {
  st_placement_options options = st_placement_options_of(p, &m->log);
  return st_placement_plan(d, &options, context, err);
}

setun_status setun_plan_model(const char *path, const setun_model_params *params, setun_plan *plan,
                              setun_error *error) {
  st_memory_plan made = {0};
  setun_model *model = NULL;
  setun_status s = st_api_open(path, NULL, params, st_api_make_plan, &made, &made, &model, error);
  *plan = st_api_plan_of(&made);
  st_memory_plan_free(&made);
  setun_model_free(model);
  return s;
}

setun_plan setun_model_get_plan(const setun_model *m) {
  return m->placement ? st_api_plan_of(&m->placement->plan) : (setun_plan){0};
}

setun_stream_stats setun_model_get_stream_stats(const setun_model *m) {
  // In a forked child a thread that it does not have may hold the lock.
  if (!m->placement || !m->placement->streamer || m->maker != st_process_current()) return (setun_stream_stats){0};
  st_streamer_stats s = st_streamer_get_stats(m->placement->streamer);
  return (setun_stream_stats){.bytes = s.read.bytes,
                              .read_s = s.read.busy_s,
                              .waited_s = s.read.waited_s,
                              .packed_s = s.packed_s,
                              .passes_s = s.passes_s,
                              .how = s.read.how};
}

setun_status setun_model_measure_disk(const setun_model *m, uint64_t total_bytes, double *bytes_per_s,
                                      setun_error *error) {
  if (!m->placement || !m->placement->streamer) return st_fail(error, SETUN_ERROR_STATE, "nothing is streamed");
  setun_status s = st_process_check(m->maker, "the model", error);
  if (s != SETUN_OK) return s;
  return st_streamer_measure(m->placement->streamer, total_bytes, bytes_per_s, error);
}

uint64_t setun_memory_peak(void) {
  return st_memory_peak();
}
