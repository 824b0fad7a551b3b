// Information about the server: health, models.
#include "json_out.h"
#include "models.h"
#include "routes.h"

#include <string.h>

void handle_health(server *s, exchange *x) {
  st_json *root = st_json_new();
  problem p = {0};
  int phase = atomic_load(&s->phase);
  if (phase == SERVER_READY) {
    put_text(root, root, "status", "ok");
    reply_json(x, root);
    return;
  }
  st_json_free(root);
  fail(&p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL,
       phase == SERVER_LOADING ? "Loading model" : "the server is shutting down");
  p.retry_after = 1;
  reply_problem(x, &p);
}

// A list of models under construction.
typedef struct model_list {
  st_json *root, *data;
  const server *front;
  const server_model *wanted; // only this one, as the document itself; NULL: all
} model_list;

static st_json meta_value(const server *s, st_json *root) {
  st_json meta = st_json_make_object();
  put_integer(root, &meta, "n_vocab", s->info.n_vocab);
  put_integer(root, &meta, "n_ctx", s->n_ctx);
  put_integer(root, &meta, "n_ctx_train", s->info.n_ctx_train);
  put_integer(root, &meta, "n_embd", s->info.n_embd);
  put_integer(root, &meta, "n_params", (int64_t)s->info.n_params);
  put_integer(root, &meta, "size", (int64_t)s->info.weight_bytes);
  return meta;
}

static void add_model(const server_model *about, bool loading, server *s, void *user) {
  model_list *list = user;
  st_json *root = list->root;
  st_json model = st_json_make_object(), aliases = st_json_make_array(), status = st_json_make_object();
  if (list->wanted && list->wanted != about) return;
  put_text(root, &model, "id", about->name);
  put_text(root, &model, "object", "model");
  put_integer(root, &model, "created", about->created ? about->created : list->front->started);
  put_text(root, &model, "owned_by", "setun");
  for (size_t i = 0; i < about->n_aliases; i++)
    push(root, &aliases, bytes_value(root, about->aliases[i], strlen(about->aliases[i])));
  if (about->n_aliases) put(root, &model, "aliases", aliases);
  if (s) put(root, &model, "meta", meta_value(s, root));
  put_text(root, &status, "value", s ? "loaded" : loading ? "loading" : "unloaded");
  if (models_are_chosen(list->front->models)) put(root, &model, "status", status);
  if (list->wanted && root)
    *root = model;
  else
    push(root, list->data, model);
}

void handle_models(server *s, exchange *x) {
  st_json *root = st_json_new();
  st_json data = st_json_make_array();
  model_list list = {root, &data, s, NULL};
  models_each(s->models, add_model, &list);
  put_text(root, root, "object", "list");
  put(root, root, "data", data);
  reply_json(x, root);
}

void handle_model(server *s, exchange *x) {
  problem p = {0};
  const server_model *wanted = strlen(x->rest) == x->rest_length ? models_find(s->models, x->rest) : NULL;
  st_json *root = wanted ? st_json_new() : NULL;
  model_list list = {root, NULL, s, wanted};
  if (!wanted) {
    fail(&p, MHD_HTTP_NOT_FOUND, "invalid_request_error", "model", "the model does not exist");
    p.code = "model_not_found";
    reply_problem(x, &p);
    return;
  }
  models_each(s->models, add_model, &list);
  reply_json(x, root);
}
