// setun.h: adapters that are loaded and freed independently of their model.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "base/process.h"

struct setun_adapters {
  st_lora *lora;
  const setun_model *model;
};

setun_status setun_adapters_load(const setun_model *model, const setun_adapter *list, size_t n, setun_adapters **loaded,
                                 setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(model);
  ST_NEED_ARRAY(list, n);
  ST_NEED(loaded);
  for (size_t i = 0; i < n; i++) {
    if (!list[i].path) return st_fail_null("an adapter's path", error);
  }
  if (!model->placement) {
    return st_fail(error, SETUN_ERROR_STATE, "adapters: expected a model with weights, found only a vocabulary");
  }
  setun_status s = st_process_check(model->maker, "adapters: the model", error);
  if (s != SETUN_OK) return s;
  setun_adapters *made = st_calloc(1, sizeof *made);
  if (!made) return st_fail_memory(error, "the adapters");
  made->model = model;
  s = st_placement_load_adapters(model->placement, model->container, list, n, &model->log, &made->lora, error);
  if (s == SETUN_OK) {
    *loaded = made;
  } else {
    st_free(made);
  }
  return s;
}

void setun_adapters_free(setun_adapters *adapters) {
  if (!adapters) return;
  st_lora_release(adapters->lora);
  st_free(adapters);
}

uint64_t setun_adapters_bytes(const setun_adapters *adapters) {
  return adapters ? adapters->lora->bytes : 0;
}

setun_status st_take_adapters(const st_model *model, const setun_adapters *adapters, float scale, st_adapting *adapting,
                              setun_error *error) {
  if (adapters && adapters->model->model != model) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "adapters: expected adapters of the same model, found another model's");
  }
  *adapting = st_adapting_of(adapters ? adapters->lora : model->lora, scale, model->identity);
  return SETUN_OK;
}
