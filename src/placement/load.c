// Making a placement: parameters, device, bound weights, memory plan, then the weights.
#include "placement/loader.h"

#include "base/memory.h"

// Everything before the weights: what the memory plan is made from, and the plan.
static setun_status prepare(st_loader *l) {
  st_model *m = l->m;
  st_device_options device = {.isa = l->o->isa, .index = l->o->device, .log = l->o->log, .cache = l->o->device_cache};
  m->backend = l->o->backend;
  l->threads = l->o->threads > 0 ? l->o->threads : st_default_threads();
  setun_status s = st_hparams_read(l->d, l->o->activation, &m->spec, &m->h, l->err);
  if (s == SETUN_OK) s = m->backend->device_new(&device, &m->device, l->err);
  if (s == SETUN_OK) s = st_bind(l->d, m->spec, &m->h, l->weights, l->err);
  if (s == SETUN_OK && l->o->n_adapters) {
    s = st_adapters_open(l->o->adapters, l->o->n_adapters, l->d->container, m->spec, l->o->log, &l->adapters, l->err);
  }
  return s == SETUN_OK ? st_plan_memory(l) : s;
}

setun_status st_placement_plan(const st_directory *d, const st_placement_options *options, st_memory_plan *plan,
                               setun_error *err) {
  st_model *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "the model");
  *plan = (st_memory_plan){0};
  st_bound_list weights = {0};
  st_loader l = {.d = d, .o = options, .m = m, .weights = &weights, .plan = plan, .err = err};
  setun_status s = prepare(&l);
  st_adapters_free(l.adapters);
  st_bound_list_free(&weights);
  st_model_free(m);
  return s;
}

static setun_status load(st_loader *l, st_placement *p) {
  st_model *m = l->m;
  setun_status s = prepare(l);
  if (s == SETUN_OK) s = m->backend->pool_new(m->device, l->threads, &l->pool, l->err);
  if (s == SETUN_OK) s = st_streamer_new(m, l->plan, l->d, l->pool, &l->o->prefetch, l->o->log, &p->streamer, l->err);
  l->streamer = p->streamer;
  m->n_batch = l->plan->n_batch;
  if (s == SETUN_OK) s = st_identify(l->d, &m->identity, l->err);
  if (s == SETUN_OK) s = st_place_weights(l);
  for (uint32_t i = 0; i < l->d->n_parts && s == SETUN_OK; i++) s = st_file_check(&l->d->parts[i], l->err);
  if (s != SETUN_OK || !l->streamer) return s;
  if ((s = st_streamer_open(l->streamer, l->err)) != SETUN_OK) return s;
  l->pool = NULL; // now owned by the streamer
  m->supply = st_streamer_supply(l->streamer);
  return l->o->experts_state ? st_streamer_load_experts(l->streamer, l->o->experts_state, l->err) : SETUN_OK;
}

setun_status st_placement_load(const st_directory *d, const st_placement_options *options, st_placement **placement,
                               setun_error *err) {
  st_placement *p = st_calloc(1, sizeof *p);
  if (!p || !(p->model = st_calloc(1, sizeof *p->model))) {
    st_free(p);
    return st_fail_memory(err, "the model");
  }
  st_bound_list weights = {0};
  st_loader l = {.d = d, .o = options, .m = p->model, .weights = &weights, .plan = &p->plan, .err = err};
  setun_status s = load(&l, p);
  st_adapters_free(l.adapters);
  st_bound_list_free(&weights);
  st_pool_free(l.pool); // before the device, whose threads it uses
  atomic_init(&p->adapter_room, options->adapter_bytes);
  if (s == SETUN_OK) {
    *placement = p;
  } else {
    st_placement_free(p);
  }
  return s;
}

setun_status st_placement_load_adapters(st_placement *p, st_container container, const setun_adapter *list, size_t n,
                                        const st_log *log, st_lora **lora, setun_error *err) {
  st_adapters *adapters = NULL;
  setun_status s = st_adapters_open(list, n, container, p->model->spec, log, &adapters, err);
  if (s == SETUN_OK) s = st_adapters_place(adapters, p->model, &p->adapter_room, lora, err);
  st_adapters_free(adapters);
  return s;
}

void st_placement_free(st_placement *p) {
  if (!p) return;
  st_streamer_free(p->streamer);
  st_model_free(p->model);
  st_memory_plan_free(&p->plan);
  st_free(p);
}
