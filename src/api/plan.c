// setun.h: the plan, and statistics of streaming.
#include "api/api.h"

#include "base/process.h"
#include "base/system_memory.h"

#include <string.h>

static setun_plan plan_of(const st_memory_plan *p) {
  setun_plan plan = {.budget = p->budget,
                     .least = p->least,
                     .total = st_memory_plan_total(p),
                     .process = p->process,
                     .vectors = p->vectors,
                     .resident = p->resident,
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
                     .n_batch = p->n_batch,
                     .cache_pages = p->pages,
                     .cache_states = p->states,
                     .expert_cache = p->expert_area,
                     .expert_token_bytes = st_expert_token_bytes(&p->experts),
                     .n_experts_cached = p->experts.capacity,
                     .n_experts = p->experts.n,
                     .n_expert_layers = p->experts.n_layers,
                     .n_experts_of_token = p->experts.used,
                     .n_expert_deltas = p->experts.with_deltas ? p->experts.deltas.n : 0,
                     .expert_delta_bytes = p->experts.with_deltas ? p->experts.deltas.bytes : 0,
                     .n_ctx_most = p->n_ctx_most};
  if (!p->device_owns) return plan;
  plan.device_budget = p->device_budget, plan.device_least = p->device_least, plan.device_whole = p->device_whole;
  plan.device_total = st_memory_plan_device(p);
  plan.device_rounding = st_memory_plan_device_rounding(p);
  plan.device_buffers = st_memory_plan_device_buffers(p);
  plan.device_work = p->session;
  return plan;
}

// A `next` (st_next_fn) that makes the plan, an st_memory_plan, which is `context`.
static setun_status make_plan(setun_model *m, const st_directory *d, const setun_model_params *p, void *context,
                              setun_error *err) {
  st_placement_options options = st_placement_options_of(p, &m->log);
  return st_placement_plan(d, &options, context, err);
}

// Fills in a plan, whose struct was checked, also if the budget is too small, and frees what it was made from.
static void fill_plan(setun_status status, st_memory_plan *made, setun_plan *plan) {
  const setun_plan found = plan_of(made);
  if (status == SETUN_OK || status == SETUN_ERROR_MEMORY) st_fill(plan, &found, sizeof found, "plan", NULL);
  st_memory_plan_free(made);
}

setun_status setun_model_plan(const char *path, const setun_model_params *params, setun_plan *plan,
                              setun_error *error) {
  st_memory_plan made = {0};
  setun_model *model = NULL;
  setun_status s = st_check_struct(plan, sizeof *plan, "plan", error);
  if (s != SETUN_OK) return s;
  s = st_api_open(path, params, NULL, make_plan, &made, &made, &model, error);
  fill_plan(s, &made, plan);
  setun_model_free(model);
  return s;
}

setun_status setun_model_plan_synthetic(const setun_synthesis_params *params, const setun_model_params *model_params,
                                        setun_plan *plan, setun_error *error) {
  st_memory_plan made = {0};
  setun_model *model = NULL;
  setun_status s = st_check_struct(plan, sizeof *plan, "plan", error);
  if (s != SETUN_OK) return s;
  s = st_api_open_synthetic(params, model_params, make_plan, &made, &made, &model, error);
  fill_plan(s, &made, plan);
  setun_model_free(model);
  return s;
}

setun_status setun_model_get_plan(const setun_model *model, setun_plan *plan, setun_error *error) {
  ST_NEED(model);
  if (!model->placement) return st_fail(error, SETUN_ERROR_STATE, "plan: expected a model, found only a vocabulary");
  const setun_plan found = plan_of(&model->placement->plan);
  return ST_FILL(plan, &found);
}

setun_status setun_model_get_stream_stats(const setun_model *model, setun_stream_stats *stats, setun_error *error) {
  ST_NEED(model);
  setun_stream_stats found = {0};
  // In a forked child, the lock may be held by a thread that does not exist there.
  if (model->placement && model->placement->streamer && model->maker == st_process_current()) {
    st_streamer_stats s = st_streamer_get_stats(model->placement->streamer);
    found = (setun_stream_stats){.bytes = s.read.bytes,
                                 .read_s = s.read.busy_s,
                                 .waited_s = s.read.waited_s,
                                 .packed_s = s.packed_s,
                                 .passes_s = s.passes_s,
                                 .how = s.read.how,
                                 .expert_hits = s.expert_hits,
                                 .expert_misses = s.expert_misses,
                                 .expert_rule = s.expert_rule,
                                 .experts_prefetched = s.prefetched,
                                 .prefetch_hits = s.prefetch_hits,
                                 .expert_deltas = s.deltas,
                                 .expert_delta_bytes = s.delta_bytes,
                                 .experts_in_turn = s.experts_in_turn,
                                 .prefetch_trials = s.effect.trials,
                                 .prefetch_on = s.effect.on,
                                 .prefetch_time = s.effect.trials ? s.effect.time : 0};
    memcpy(found.prefetch_recall, s.recall, sizeof found.prefetch_recall);
  }
  return ST_FILL(stats, &found);
}

setun_status setun_model_count_experts(const setun_model *model, uint32_t layer, uint64_t *hits, uint64_t *misses,
                                       setun_error *error) {
  const setun_model *m = model;
  ST_NEED(model);
  ST_NEED(hits);
  ST_NEED(misses);
  uint32_t n = m->model ? m->model->h.n_layer : 0;
  if (layer >= n) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "layer: expected one of %u, found %u", (unsigned)n, (unsigned)layer);
  }
  *hits = *misses = 0;
  if (m->placement->streamer && m->maker == st_process_current()) {
    st_streamer_count_experts(m->placement->streamer, layer, hits, misses);
  }
  return SETUN_OK;
}

setun_status setun_model_save_experts(const setun_model *model, const char *path, setun_error *error) {
  const setun_model *m = model;
  ST_NEED(model);
  ST_NEED(path);
  if (!m->placement || !m->placement->streamer) {
    return st_fail(error, SETUN_ERROR_STATE, "%s: expected a cache of experts, found none", path);
  }
  setun_status s = st_process_check(m->maker, "the model", error);
  return s == SETUN_OK ? st_streamer_save_experts(m->placement->streamer, path, error) : s;
}

setun_status setun_model_measure_disk(const setun_model *model, uint64_t total_bytes, double *bytes_per_s,
                                      setun_error *error) {
  const setun_model *m = model;
  ST_NEED(model);
  ST_NEED(bytes_per_s);
  if (!m->placement || !m->placement->streamer) return st_fail(error, SETUN_ERROR_STATE, "all weights are resident");
  setun_status s = st_process_check(m->maker, "the model", error);
  if (s != SETUN_OK) return s;
  return st_streamer_measure(m->placement->streamer, total_bytes, bytes_per_s, error);
}

uint64_t setun_memory_peak(void) {
  return st_memory_peak();
}
