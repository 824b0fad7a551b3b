// /v1/embeddings, as in OpenAI's API, and llama.cpp's /embedding: vectors of texts.
#include "prompts.h"
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const field embedding_only[] = {
    {"input", FIELD_OTHER, 0, 1, 0, "a text or token ids, or several of these", SCHEMA("Inputs")},
    {"encoding_format", FIELD_OTHER, 0, 0, 0, "how vectors are written (default float)",
     "{\"enum\":[\"float\",\"base64\"]}"},
    {"dimensions", FIELD_OTHER, 0, 0, 0,
     "keep only this many numbers of each vector, from its start, where the model allows it", SCHEMA("Dimensions")},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
static const field llama_only[] = {
    {"content", FIELD_OTHER, 0, 1, 0, "a text or token ids, or several of these; also as input", SCHEMA("Inputs")},
    {"embd_normalize", FIELD_OTHER, 0, 0, 0,
     "2: vectors are scaled to length 1 (default, unless the server runs with --pooling none); -1: they are left as "
     "they "
     "are",
     "{\"enum\":[2,-1]}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const embedding_tables[] = {embedding_only, NULL};
const field *const llama_embedding_tables[] = {llama_only, NULL};

// ---- the reply ----

// Padded base64 (RFC 4648, section 4) of little-endian float32.
static st_json base64_value(st_json *root, const float *x, uint32_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  st_buffer text = {0};
  size_t length = (size_t)n * sizeof *x;
  const unsigned char *bytes = (const unsigned char *)x;
  bool fine = true;
  for (size_t i = 0; i < length && fine; i += 3) {
    size_t left = length - i;
    uint32_t bits =
        (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
    const char group[4] = {digits[bits >> 18], digits[bits >> 12 & 63], left > 1 ? digits[bits >> 6 & 63] : '=',
                           left > 2 ? digits[bits & 63] : '='};
    fine = st_buffer_append(&text, group, sizeof group);
  }
  st_json value = bytes_value(root, text.data ? text.data : "", text.length);
  st_buffer_free(&text);
  return value;
}

size_t embedding_vectors(const choice *c) {
  return c->job->server->pooling == SETUN_POOLING_NONE ? c->job->prompts[c->prompt].n : 1;
}

static st_json vector_value(st_json *root, const embedding_request *e, const float *x, uint32_t n) {
  st_json list = st_json_make_array();
  if (e->base64) return base64_value(root, x, n);
  for (uint32_t i = 0; i < n; i++) push(root, &list, real_value(root, (double)x[i]));
  return list;
}

static st_json vectors_value(st_json *root, const choice *c) {
  const embedding_request *e = &c->job->embedding;
  uint32_t n = e->params.n_dimensions ? e->params.n_dimensions : c->job->server->embeddings.n_dimensions;
  st_json nested = st_json_make_array();
  if (!e->nested) return vector_value(root, e, c->vector, n);
  for (size_t i = 0; i < embedding_vectors(c); i++) push(root, &nested, vector_value(root, e, c->vector + i * n, n));
  return nested;
}

static st_json data_value(st_json *root, const job *j) {
  st_json data = st_json_make_array();
  for (size_t i = 0; i < j->n_choices; i++) {
    st_json one = st_json_make_object();
    if (!j->embedding.nested) put_text(root, &one, "object", "embedding");
    put_integer(root, &one, "index", (int64_t)i);
    put(root, &one, "embedding", root ? vectors_value(root, &j->choices[i]) : st_json_make_null());
    push(root, &data, one);
  }
  return data;
}

static void finish(job *j) {
  st_json *root = st_json_new();
  st_json data = data_value(root, j), counts = st_json_make_object();
  int64_t tokens = (int64_t)job_usage(j).prompt;
  put_text(root, root, "object", "list");
  put(root, root, "data", data);
  put_text(root, root, "model", j->server->about->name);
  put_integer(root, &counts, "prompt_tokens", tokens);
  put_integer(root, &counts, "total_tokens", tokens);
  put(root, root, "usage", counts);
  reply_json(j->x, root);
}

// llama.cpp's form: a bare list, with the vectors of each text in a list.
static void finish_llama(job *j) {
  st_json *root = st_json_new();
  st_json data = data_value(root, j);
  if (root) *root = data;
  reply_json(j->x, root);
}

static const job_format embedding_format = {NULL, NULL, NULL, finish, NULL, NULL};
static const job_format llama_embedding_format = {NULL, NULL, NULL, finish_llama, NULL, NULL};

// ---- the request ----

static bool read_format(job *j, const st_json *body, problem *p) {
  const st_json *v = st_json_get(body, "encoding_format");
  const char *name = st_json_string(v);
  j->embedding.base64 = name && !strcmp(name, "base64");
  if (!v || j->embedding.base64 || (name && !strcmp(name, "float"))) return true;
  return invalid(p, "encoding_format", "encoding_format: expected float or base64, found %s", name ? name : kind_of(v));
}

// A length is listed if the model's files list it, or if it is the whole vector's.
static bool check_listed(const setun_embedding_info *info, uint32_t n, problem *p) {
  char listed[256] = "";
  size_t length = 0;
  bool found = !info->n_lengths || n == info->n_dimensions;
  for (size_t i = 0; i < info->n_lengths; i++) {
    found = found || info->lengths[i] == n;
    if (length < sizeof listed) {
      length += (size_t)snprintf(listed + length, sizeof listed - length, "%u, ", (unsigned)info->lengths[i]);
    }
  }
  return found || invalid(p, "dimensions", "dimensions: expected one of %s%u, which the model's files list, found %u",
                          listed, info->n_dimensions, (unsigned)n);
}

static bool read_dimensions(job *j, const st_json *body, problem *p) {
  const setun_embedding_info *info = &j->server->embeddings;
  const st_json *v = st_json_get(body, "dimensions");
  double x = st_json_number(v);
  char text[32];
  if (!v) return true;
  if (!st_json_is_number(v) || !(x >= 1 && x <= info->n_dimensions) || x != (double)(uint32_t)x) {
    return invalid(p, "dimensions", "dimensions: expected an integer from 1 to %u, found %s", info->n_dimensions,
                   shown_value(v, text));
  }
  if (!info->nested && (uint32_t)x != info->n_dimensions) {
    return invalid(p, "dimensions", "dimensions: expected %u, since the model's vectors cannot be cut, found %u",
                   info->n_dimensions, (unsigned)x);
  }
  if (!check_listed(info, (uint32_t)x, p)) return false;
  j->embedding.params.n_dimensions = (uint32_t)x;
  return true;
}

static bool read_normalize(job *j, const st_json *body, problem *p) {
  static const double length = 2, none = -1; // llama.cpp's other norms are not supported
  const st_json *v = st_json_get(body, "embd_normalize");
  double x = st_json_number(v);
  char text[32];
  if (v && (!st_json_is_number(v) || (x != length && x != none))) {
    return invalid(p, "embd_normalize", "embd_normalize: expected 2 or -1, found %s", shown_value(v, text));
  }
  j->embedding.params.raw = v ? x == none : j->server->pooling == SETUN_POOLING_NONE; // as llama.cpp does
  j->embedding.params.normalize = v && x == length;
  return true;
}

static bool read_common(job *j, const st_json *body, const char *key, problem *p) {
  const server *s = j->server;
  if (s->pooling == SETUN_POOLING_OFF) {
    return fail(p, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error", NULL,
                "the model's files say that it does not pool whole texts: start the server with --pooling");
  }
  j->embedding.params = setun_embedding_params_default();
  j->embed = true;
  return read_format(j, body, p) && read_dimensions(j, body, p) && job_add_prompts(j, st_json_get(body, key), key, p);
}

static bool read_embedding(job *j, const st_json *body, problem *p) {
  if (j->server->pooling == SETUN_POOLING_NONE) {
    return invalid(p, "input",
                   "--pooling: expected mean, cls or last for one vector per text, found none: /embedding "
                   "answers with the vectors of all tokens");
  }
  return read_common(j, body, "input", p);
}

static bool read_llama_embedding(job *j, const st_json *body, problem *p) {
  j->embedding.nested = true;
  const char *key = st_json_get(body, "content") ? "content" : "input";
  return read_common(j, body, key, p) && read_normalize(j, body, p);
}

void handle_embeddings(server *s, exchange *x) {
  start_job(s, x, &embedding_format, "embd-", read_embedding);
}

void handle_llama_embedding(server *s, exchange *x) {
  start_job(s, x, &llama_embedding_format, "embd-", read_llama_embedding);
}
