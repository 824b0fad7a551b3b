// What the server says of itself: health, models.
#include "json_out.h"
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

static st_json model_value(server *s, st_json *root) {
  st_json model = st_json_make_object(), meta = st_json_make_object();
  put_text(root, &model, "id", s->options.model_name);
  put_text(root, &model, "object", "model");
  put_integer(root, &model, "created", s->started);
  put_text(root, &model, "owned_by", "setun");
  put_integer(root, &meta, "n_vocab", s->info.n_vocab);
  put_integer(root, &meta, "n_ctx", s->n_ctx);
  put_integer(root, &meta, "n_ctx_train", s->info.n_ctx_train);
  put_integer(root, &meta, "n_embd", s->info.n_embd);
  put_integer(root, &meta, "n_params", (int64_t)s->info.n_params);
  put_integer(root, &meta, "size", (int64_t)s->info.weight_bytes);
  put(root, &model, "meta", meta);
  return model;
}

void handle_models(server *s, exchange *x) {
  st_json *root = st_json_new();
  st_json data = st_json_make_array();
  push(root, &data, model_value(s, root));
  put_text(root, root, "object", "list");
  put(root, root, "data", data);
  reply_json(x, root);
}

void handle_model(server *s, exchange *x) {
  st_json *root = NULL;
  problem p = {0};
  if (strcmp(x->rest, s->options.model_name)) {
    fail(&p, MHD_HTTP_NOT_FOUND, "invalid_request_error", "model", "there is no model of that name");
    p.code = "model_not_found";
    reply_problem(x, &p);
  } else if ((root = st_json_new())) {
    *root = model_value(s, root);
    reply_json(x, root);
  } else {
    fail_memory(&p);
    reply_problem(x, &p);
  }
}
