// Ollama's endpoints that editors call before they use OpenAI's: /api/version, /api/tags, /api/show.
#define _POSIX_C_SOURCE 200809L
#include "json_out.h"
#include "models.h"
#include "params.h"
#include "routes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const field show_fields[] = {
    {"name", FIELD_OTHER, 0, 0, 0, "the same as model", "{\"type\":\"string\"}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const show_tables[] = {show_fields, NULL};

void handle_ollama_version(server *s, exchange *x) {
  st_json *root = st_json_new();
  (void)s;
  put_text(root, root, "version", "0.14.0"); // of the interface, which clients compare as numbers
  reply_json(x, root);
}

static st_json details_value(server *s, st_json *root) {
  st_json value = st_json_make_object(), families = st_json_make_array();
  char size[32];
  snprintf(size, sizeof size, "%.1fM", (double)s->info.n_params / 1e6);
  push(root, &families, bytes_value(root, s->info.architecture, strlen(s->info.architecture)));
  put_text(root, &value, "parent_model", "");
  put_text(root, &value, "format", s->info.container);
  put_text(root, &value, "family", s->info.architecture);
  put(root, &value, "families", families);
  put_text(root, &value, "parameter_size", size);
  put_text(root, &value, "quantization_level", s->info.activation);
  return value;
}

typedef struct tag_list {
  st_json *root, list;
  const server *front;
} tag_list;

static void add_tag(const server_model *about, bool loading, server *s, void *user) {
  tag_list *tags = user;
  st_json *root = tags->root;
  st_json one = st_json_make_object();
  char when[32] = "";
  time_t created = (time_t)(about->created ? about->created : tags->front->started);
  struct tm t;
  (void)loading;
  if (gmtime_r(&created, &t)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &t);
  put_text(root, &one, "name", about->name);
  put_text(root, &one, "model", about->name);
  put_text(root, &one, "modified_at", when);
  put_integer(root, &one, "size", (int64_t)(s ? s->info.weight_bytes : about->bytes));
  put_text(root, &one, "digest", "");
  if (root) put(root, &one, "details", s ? details_value(s, root) : st_json_make_object());
  push(root, &tags->list, one);
}

void handle_ollama_tags(server *s, exchange *x) {
  tag_list tags = {st_json_new(), st_json_make_array(), s};
  models_each(s->models, add_tag, &tags);
  put(tags.root, tags.root, "models", tags.list);
  reply_json(x, tags.root);
}

void handle_ollama_show(server *s, exchange *x) {
  problem p = {0};
  st_json *body = read_body(x, &p);
  const st_json *name = st_json_get(body, "name");
  if (name && !st_json_is_string(name)) invalid(&p, "name", "name: expected a string, found %s", kind_of(name));
  st_json *root = body && !p.status ? st_json_new() : NULL;
  st_json capabilities = st_json_make_array(), info = st_json_make_object();
  size_t n = 0;
  const char *text = setun_chat_text(s->chat, &n);
  char key[96];
  st_json_free(body);
  if (!root) {
    if (!p.status) fail_memory(&p);
    reply_problem(x, &p);
    return;
  }
  snprintf(key, sizeof key, "%.64s.context_length", s->info.architecture);
  if (s->embeddings.no_text)
    push(root, &capabilities, bytes_value(root, "embedding", 9));
  else
    push(root, &capabilities, bytes_value(root, "completion", 10));
  if (s->chat) push(root, &capabilities, bytes_value(root, "tools", 5)); // templates without tools are told them in words
  put_text(root, &info, "general.architecture", s->info.architecture);
  put_integer(root, &info, "general.parameter_count", (int64_t)s->info.n_params);
  put_integer(root, &info, key, s->n_ctx);
  put_bytes(root, root, "template", text ? text : "", n);
  put(root, root, "details", details_value(s, root));
  put(root, root, "model_info", info);
  put(root, root, "capabilities", capabilities);
  reply_json(x, root);
}
