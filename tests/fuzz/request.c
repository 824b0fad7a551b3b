// Fuzz target: requests to the server. The first line is a method, a path and, behind a ?, the name of a model; the
// rest is the body. Each is answered by the real handlers, scheduler and model, without a connection, and what comes
// back must be a reply or a stream of the server's kind.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memmem
#endif
#include "server/http.h"
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TEMPLATE[] = "{{ bos_token }}{% for m in messages %}{% if m.content == 'refuse me' %}"
                               "{{ raise_exception('refused') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
static const char *const ALIASES[] = {"other"};
static const server_model ABOUT = {.name = "tales", .file = "tales", .aliases = ALIASES, .n_aliases = 1};

static server *make_server(void) {
  server_options options = {.host = "127.0.0.1",
                            .models = &ABOUT,
                            .n_models = 1,
                            .template_text = TEMPLATE,
                            .template_name = "fuzz",
                            .template_length = sizeof TEMPLATE - 1,
                            .body_limit = 1 << 20,
                            .queue_limit = 8,
                            .answer_limit = 2,
                            .prefill_budget = 16};
  server_loaded only = {.context = setun_context_params_default(), .sampling = setun_sampler_params_default()};
  setun_model_params params = setun_model_params_default();
  server *s = NULL;
  setun_error error;
  only.context.n_ctx = 64;
  only.context.n_seq_max = 3;
  only.context.n_logits = 8;
  only.context.threads = 1;
  if (setun_model_load(SETUN_SOURCE_DIR "/models/setun-tales-7m", &params, &only.model, &error) != SETUN_OK ||
      server_start(&options, &s, &error) != SETUN_OK || server_serve(s, &only, &error) != SETUN_OK)
    abort();
  return s;
}

static bool is_json(const char *text, size_t n, st_json **root) {
  return st_json_parse_any(text, n, "reply", root, NULL) == SETUN_OK;
}

// An error has a message and a type.
static void check_error(const st_json *root) {
  const st_json *error = st_json_get(root, "error");
  if (!st_json_length(st_json_get(error, "message")) || !st_json_length(st_json_get(error, "type"))) abort();
}

// Every event has data: JSON, or the mark of the end.
static void check_stream(const st_buffer *out) {
  static const char gap[] = "\n\n", data[] = "data: ", done[] = "[DONE]", name[] = "event: ";
  for (const char *at = out->data, *end = at + out->length; at < end;) {
    const char *stop = memmem(at, (size_t)(end - at), gap, 2), *text = at;
    if (!stop) abort();
    if (!strncmp(text, name, strlen(name))) text = (const char *)memchr(text, '\n', (size_t)(stop - text)) + 1;
    if (strncmp(text, data, strlen(data)) != 0) abort();
    text += strlen(data);
    st_json *root = NULL;
    bool last = (size_t)(stop - text) == strlen(done) && !memcmp(text, done, strlen(done));
    if (!last && !is_json(text, (size_t)(stop - text), &root)) abort();
    st_json_free(root);
    at = stop + 2;
  }
}

static void check_reply(exchange *x) {
  st_json *root = NULL;
  unsigned s = x->status;
  if (!x->ended) abort();
  if (s != 200 && s != 400 && s != 404 && s != 501 && s != 503) abort();
  if (x->stream) {
    if (s != 200 || x->broken) abort();
    check_stream(&x->out);
    return;
  }
  if (!strncmp(x->type, "text/plain", 10)) return; // metrics
  if (strncmp(x->type, "application/json", 16) != 0 || !is_json(x->out.data, x->out.length, &root)) abort();
  if (s != 200) check_error(root);
  st_json_free(root);
}

// Until nobody else has the exchange. The client of one that takes long leaves; a server that keeps it then is a
// finding.
static void wait_for(exchange *x) {
  enum { LEAVE = 30000, MOST = 130000 }; // of a tenth of a millisecond
  for (int i = 0; i < MOST; i++) {
    struct timespec pause = {0, i < 100 ? 10000 : 100000};
    if (atomic_load(&x->references) == 1) return;
    if (i == LEAVE) atomic_store(&x->gone, true);
    nanosleep(&pause, NULL);
  }
  abort();
}

static void answer(server *s, const route *r, const exchange *from, const uint8_t *body, size_t n) {
  static char connection[8]; // its address alone is used: the reply stays in the exchange, where nobody takes it
  exchange *x = exchange_new((struct MHD_Connection *)(void *)connection, NULL);
  if (!x || !st_buffer_append(&x->body, body, n)) abort();
  x->route = r;
  x->rest_length = from->rest_length;
  memcpy(x->rest, from->rest, sizeof x->rest);
  memcpy(x->model, from->model, sizeof x->model);
  http_handle(s, x);
  wait_for(x);
  if (!atomic_load(&x->gone)) check_reply(x);
  exchange_release(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static server *s;
  exchange asked = {0};
  char line[512], allowed[64];
  const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
  size_t n = end ? (size_t)(end - data) : 0, ignored;
  if (!s) s = make_server();
  if (!end || n >= sizeof line || memchr(data, 0, n)) return -1;
  memcpy(line, data, n);
  line[n] = 0;
  char *path = strchr(line, ' ');
  if (!path) return -1;
  *path++ = 0;
  char *model = strchr(path, '?');
  if (model) *model++ = 0;
  const route *r = find_route(line, path, asked.rest, &asked.rest_length, allowed);
  if (strlen(allowed) >= sizeof allowed || asked.rest_length >= sizeof asked.rest) abort();
  if (!r || r->handle == handle_page) return 0; // the page's files look at the connection's headers
  if (model && *model && !decode_part(model, asked.model, &ignored)) asked.model[0] = 0;
  answer(s, r, &asked, end + 1, size - n - 1);
  return 0;
}
