// Texts and tokens: /tokenize, /detokenize, /apply-template, /tokenizer_info.
#include "calls.h"
#include "messages.h"
#include "replies.h"
#include "routes.h"

#include <stdlib.h>
#include <string.h>

static const field tokenize_fields[] = {
    {"content", FIELD_OTHER, 0, 0, 0, "the text", "{\"type\":\"string\"}"},
    {"prompt", FIELD_OTHER, 0, 0, 0, "the text, where there is no content", "{\"type\":\"string\"}"},
    {"add_special", FIELD_OTHER, 0, 0, 0, "begin with BOS", "{\"type\":\"boolean\"}"},
    {"add_special_tokens", FIELD_OTHER, 0, 0, 0, "the same", "{\"type\":\"boolean\"}"},
    {"parse_special", FIELD_OTHER, 0, 0, 0, "recognize control tokens (default true)", "{\"type\":\"boolean\"}"},
    {"with_pieces", FIELD_OTHER, 0, 0, 0, "the tokens' texts beside their ids", "{\"type\":\"boolean\"}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
static const field detokenize_fields[] = {
    {"tokens", FIELD_OTHER, 0, 1, 0, "token ids", "{\"type\":\"array\",\"items\":" SCHEMA("Token") "}"},
    {NULL, FIELD_BOOL, 0, 0, 0, NULL, NULL},
};
const field *const tokenize_tables[] = {tokenize_fields, NULL};
const field *const detokenize_tables[] = {detokenize_fields, NULL};

static bool read_bool(const st_json *body, const char *key, bool *value, problem *p) {
  const st_json *v = st_json_get(body, key);
  if (v && !st_json_is_bool(v)) return invalid(p, key, "%s: expected true or false, found %s", key, kind_of(v));
  if (v) *value = st_json_is(v, ST_JSON_TRUE);
  return true;
}

// A token's text: a string, or its bytes if they are not whole characters.
static st_json piece_value(st_json *root, const char *bytes, size_t n) {
  st_json text = bytes_value(root, bytes, n), list = st_json_make_array();
  if (st_json_length(&text) == n && !memcmp(st_json_string(&text), bytes, n)) return text;
  for (size_t i = 0; i < n; i++) push(root, &list, st_json_make_integer((unsigned char)bytes[i]));
  return list;
}

static st_json token_value(st_json *root, const server *s, setun_token id, bool pieces) {
  const char *bytes = "";
  size_t n = 0;
  st_json value = st_json_make_object();
  if (!pieces) return st_json_make_integer(id);
  setun_token_get_text(s->model, id, &bytes, &n, NULL);
  put_integer(root, &value, "id", id);
  put(root, &value, "piece", root ? piece_value(root, bytes, n) : st_json_make_null());
  return value;
}

static bool tokenize(server *s, const st_json *body, st_json *root, problem *p) {
  const st_json *content = st_json_get(body, "content"), *text = content ? content : st_json_get(body, "prompt");
  bool add = false, parse = true, pieces = false;
  size_t n = 0;
  st_json list = st_json_make_array();
  if (!read_bool(body, "add_special", &add, p) || !read_bool(body, "add_special_tokens", &add, p) ||
      !read_bool(body, "parse_special", &parse, p) || !read_bool(body, "with_pieces", &pieces, p)) {
    return false;
  }
  if (!optional_string(body, "content", p) || !optional_string(body, "prompt", p)) return false;
  if (!text && st_json_get(body, "messages"))
    return invalid(p, "messages", "messages: expected content or prompt; see /apply-template");
  int flags = (add ? SETUN_TOKENIZE_BOS : 0) | (parse ? SETUN_TOKENIZE_SPECIAL : 0);
  setun_token *ids = prompt_tokens_of(s, text ? st_json_string(text) : "", st_json_length(text), flags, &n, p);
  if (!ids) return false;
  for (size_t i = 0; i < n; i++) push(root, &list, token_value(root, s, ids[i], pieces));
  free(ids);
  put(root, root, "tokens", list);
  put_integer(root, root, "count", (int64_t)n);
  put_integer(root, root, "max_model_len", s->n_ctx);
  return true;
}

static bool detokenize(server *s, const st_json *body, st_json *root, problem *p) {
  const st_json *tokens = st_json_get(body, "tokens");
  size_t n = st_json_size(tokens), length = 0, got = 0;
  uint32_t n_vocab = setun_model_n_vocab(s->model);
  setun_error error;
  if (!st_json_is_array(tokens)) return invalid(p, "tokens", "tokens: expected an array, found %s", kind_of(tokens));
  setun_token *ids = malloc((n + 1) * sizeof *ids);
  char *text = NULL;
  bool fine = ids || fail_memory(p);
  for (size_t i = 0; fine && i < n; i++) {
    const st_json *v = st_json_at(tokens, i);
    double x = st_json_number(v);
    char found[32];
    if (!st_json_is_number(v) || !(x >= 0 && x < n_vocab) || x != (double)(uint32_t)x)
      fine = invalid(p, "tokens", "tokens[%zu]: expected an id below %u, found %s", i, (unsigned)n_vocab,
                     shown_value(v, found));
    else
      ids[i] = (setun_token)x;
  }
  if (fine)
    fine = setun_detokenize(s->model, ids, n, SETUN_DECODE_SPECIAL, NULL, 0, &length, &error) == SETUN_OK ||
           fail_with(p, "tokens", &error);
  if (fine) fine = (text = malloc(length + 1)) || fail_memory(p);
  if (fine)
    fine = setun_detokenize(s->model, ids, n, SETUN_DECODE_SPECIAL, text, length, &got, &error) == SETUN_OK ||
           fail_with(p, "tokens", &error);
  if (fine) {
    put_bytes(root, root, "content", text, got);
    put_bytes(root, root, "prompt", text, got);
  }
  free(text);
  free(ids);
  return fine;
}

static bool render(server *s, const st_json *body, st_json *root, problem *p) {
  const st_json *rest = NULL;
  st_json content = st_json_make_null();
  size_t n = 0;
  st_json *context = conversation_of(body, &rest, p);
  job *j = context ? job_new(s, NULL, NULL, "") : NULL;
  st_buffer text = {0};
  if (context && !j) st_json_free(context);
  bool fine = context && (j || fail_memory(p)) && job_add_conversation(j, context, rest, p) && read_tools(j, body, p) &&
              content_text(root, rest ? st_json_get(rest, "content") : NULL, "messages", &content, p);
  if (fine) {
    const char *rendered = setun_rendering_text(j->rendering, &n);
    fine = st_buffer_append(&text, rendered, n) &&
           (!st_json_length(&content) || st_buffer_append(&text, st_json_string(&content), st_json_length(&content)));
    if (fine)
      put_bytes(root, root, "prompt", text.data, text.length);
    else
      fail_memory(p);
  }
  st_buffer_free(&text);
  job_free(j);
  return fine;
}

// Reads the body, lets `make` fill the reply, and sends the reply or an error.
static void answer(server *s, exchange *x, bool (*make)(server *, const st_json *, st_json *, problem *)) {
  problem p = {0};
  st_json *body = read_body(x, &p), *root = body ? st_json_new() : NULL;
  bool fine = body && (root || fail_memory(&p)) && make(s, body, root, &p);
  st_json_free(body);
  if (fine) {
    reply_json(x, root);
  } else {
    st_json_free(root);
    reply_problem(x, &p);
  }
}

void handle_tokenize(server *s, exchange *x) {
  answer(s, x, tokenize);
}

void handle_detokenize(server *s, exchange *x) {
  answer(s, x, detokenize);
}

void handle_template(server *s, exchange *x) {
  answer(s, x, render);
}

void put_token_text(const server *s, st_json *root, const char *key, setun_token id) {
  const char *bytes;
  size_t n;
  if (id >= 0 && setun_token_get_text(s->model, id, &bytes, &n, NULL) == SETUN_OK)
    put_bytes(root, root, key, bytes, n);
  else
    put_null(root, root, key);
}

void handle_tokenizer_info(server *s, exchange *x) {
  st_json *root = st_json_new();
  size_t n = 0;
  const char *text = setun_chat_text(s->chat, &n);
  put_text(root, root, "tokenizer_class", "setun");
  put_token_text(s, root, "bos_token", setun_token_bos(s->model));
  put_token_text(s, root, "eos_token", setun_token_eos(s->model));
  put_token_text(s, root, "pad_token", -1);
  put_token_text(s, root, "unk_token", setun_token_unknown(s->model));
  put_integer(root, root, "model_max_length", s->n_ctx);
  put_integer(root, root, "vocab_size", s->info.n_vocab);
  if (text)
    put_bytes(root, root, "chat_template", text, n);
  else
    put_null(root, root, "chat_template");
  reply_json(x, root);
}
