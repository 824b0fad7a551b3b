// setun.h: embeddings.
#include "api/api.h"

#include "base/float_modes.h"
#include "model/embedding.h"

const char *setun_pooling_name(setun_pooling pooling) {
  return st_pooling_name(pooling);
}

setun_status setun_model_get_embedding_info(const setun_model *model, setun_embedding_info *info, setun_error *error) {
  ST_NEED(model);
  ST_NEED(info);
  setun_embedding_info texts = {.n_prompts = model->prompts.n, .prompt = model->prompts.chosen};
  if (!model->model) return ST_FILL(info, &texts);
  const st_hparams *h = &model->model->h;
  const st_embedding *e = &h->embedding;
  setun_embedding_info found = {.n_dimensions = st_embedding_length(h),
                                .n_ctx = e->n_ctx && e->n_ctx < h->n_ctx_most ? e->n_ctx : h->n_ctx_most,
                                .n_dense = e->n_dense,
                                .pooling = st_embedding_pooling(h),
                                .source = e->source,
                                .bidirectional = h->bidirectional,
                                .nested = e->nested,
                                .n_prompts = model->prompts.n,
                                .prompt = model->prompts.chosen,
                                .no_text = h->bidirectional || h->headless,
                                .lengths = e->n_lengths ? e->lengths : NULL,
                                .n_lengths = e->n_lengths,
                                .unscaled = e->unscaled};
  return ST_FILL(info, &found);
}

setun_status setun_model_get_prompt(const setun_model *model, size_t index, const char **name, const char **text,
                                    setun_error *error) {
  ST_NEED(model);
  ST_NEED(name);
  ST_NEED(text);
  const st_prompts *p = &model->prompts;
  if (index >= p->n) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "prompt: expected an index below %zu, found %zu", p->n, index);
  }
  if (model->model && model->model->h.embedding.skips_prompt) {
    return st_fail(error, SETUN_ERROR_UNSUPPORTED,
                   "include_prompt: expected true for texts with a prompt, found false, which is not supported");
  }
  *name = p->names[index];
  *text = p->texts[index];
  return SETUN_OK;
}

setun_status setun_context_embed(setun_context *context, const setun_embedding_input *texts, size_t n,
                                 const setun_embedding_params *params, float *embeddings, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_embedding_params own;
  ST_NEED(context);
  ST_NEED_ARRAY(texts, n);
  ST_NEED_ARRAY(embeddings, n);
  for (size_t i = 0; i < n; i++) ST_NEED_ARRAY(texts[i].ids, texts[i].n);
  setun_status s = st_take_embedding_params(&own, params, error);
  return s == SETUN_OK ? st_context_embed(st_context_of(context), texts, n, &own, embeddings, error) : s;
}

setun_status setun_context_get_embedding(setun_context *context, int sequence, const setun_embedding_params *params,
                                         float *embedding, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_embedding_params own;
  ST_NEED(context);
  ST_NEED(embedding);
  setun_status s = st_take_embedding_params(&own, params, error);
  return s == SETUN_OK ? st_context_get_embedding(st_context_of(context), sequence, &own, embedding, error) : s;
}
