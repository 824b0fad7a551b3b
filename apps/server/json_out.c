// JSON replies.
#include "json_out.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void put(st_json *root, st_json *object, const char *key, st_json value) {
  if (root) st_json_add(root, object, key, strlen(key), value);
}

void push(st_json *root, st_json *array, st_json value) {
  if (root) st_json_push(root, array, value);
}

void put_text(st_json *root, st_json *object, const char *key, const char *text) {
  put(root, object, key, text ? bytes_value(root, text, strlen(text)) : st_json_make_null());
}

void put_bytes(st_json *root, st_json *object, const char *key, const char *bytes, size_t n) {
  put(root, object, key, bytes_value(root, bytes, n));
}

void put_integer(st_json *root, st_json *object, const char *key, int64_t value) {
  put(root, object, key, st_json_make_integer(value));
}

void put_real(st_json *root, st_json *object, const char *key, double value) {
  put(root, object, key, real_value(root, value));
}

void put_bool(st_json *root, st_json *object, const char *key, bool value) {
  put(root, object, key, st_json_make_bool(value));
}

void put_null(st_json *root, st_json *object, const char *key) {
  put(root, object, key, st_json_make_null());
}

st_json real_value(st_json *root, double value) {
  return root && isfinite(value) ? st_json_make_real(root, value) : st_json_make_null();
}

st_json bytes_value(st_json *root, const char *bytes, size_t n) {
  if (!root) return st_json_make_null();
  if (st_utf8_valid(bytes, n)) return st_json_make_string(root, n ? bytes : "", n);
  st_buffer clean = {0};
  bool whole = true;
  for (size_t i = 0; i < n && whole;) {
    uint32_t code;
    int length = st_utf8_decode(bytes + i, n - i, &code);
    whole = st_buffer_append(&clean, length > 0 ? bytes + i : "\xEF\xBF\xBD", length > 0 ? (size_t)length : 3);
    i += length > 0 ? (size_t)length : 1;
  }
  st_json value = st_json_make_string(root, clean.data ? clean.data : "", clean.length);
  st_buffer_free(&clean);
  return value;
}

// ---- problems ----

static bool set_problem(problem *p, unsigned status, const char *type, const char *param, const char *format,
                        va_list args) {
  *p = (problem){.status = status, .type = type};
  if (param) snprintf(p->param, sizeof p->param, "%s", param);
  vsnprintf(p->message, sizeof p->message, format, args);
  return false;
}

bool fail(problem *p, unsigned status, const char *type, const char *param, const char *format, ...) {
  va_list args;
  va_start(args, format);
  set_problem(p, status, type, param, format, args);
  va_end(args);
  return false;
}

bool invalid(problem *p, const char *param, const char *format, ...) {
  va_list args;
  va_start(args, format);
  set_problem(p, MHD_HTTP_BAD_REQUEST, "invalid_request_error", param, format, args);
  va_end(args);
  return false;
}

bool fail_memory(problem *p) {
  return fail(p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL, "out of memory");
}

bool fail_with(problem *p, const char *param, const setun_error *error) {
  bool theirs = error->code == SETUN_ERROR_ARGUMENT || error->code == SETUN_ERROR_FORMAT ||
                error->code == SETUN_ERROR_LIMIT || error->code == SETUN_ERROR_UNSUPPORTED;
  if (theirs) return invalid(p, param, "%s", error->message);
  if (error->code == SETUN_ERROR_MEMORY)
    return fail(p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", param, "%s", error->message);
  return fail(p, MHD_HTTP_INTERNAL_SERVER_ERROR, "server_error", param, "%s", error->message);
}

st_json problem_value(st_json *root, const problem *p) {
  st_json error = st_json_make_object();
  put_text(root, &error, "message", p->message);
  put_text(root, &error, "type", p->type);
  put_text(root, &error, "param", p->param[0] ? p->param : NULL);
  put_text(root, &error, "code", p->code);
  if (p->n_ctx) {
    put_integer(root, &error, "n_prompt_tokens", p->n_prompt_tokens);
    put_integer(root, &error, "n_ctx", p->n_ctx);
  }
  return error;
}

// Takes the document's text, and frees it. False: out of memory.
static bool take_text(st_json *root, st_buffer *text) {
  bool whole = root && !st_json_failed(root) && st_json_append(root, text);
  st_json_free(root);
  return whole;
}

static void reply_with(exchange *x, unsigned status, st_json *root) {
  static const char failed[] =
      "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
  st_buffer text = {0};
  if (!take_text(root, &text)) {
    text.length = 0;
    status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    st_buffer_text(&text, failed);
  }
  exchange_reply(x, status, "application/json; charset=utf-8", &text);
}

void reply_problem(exchange *x, const problem *p) {
  st_json *root = st_json_new();
  char seconds[16];
  put_text(root, root, "type", "error"); // where Anthropic's clients look
  if (root) put(root, root, "error", problem_value(root, p));
  if (p->status == MHD_HTTP_UNAUTHORIZED) exchange_header(x, "WWW-Authenticate", "Bearer");
  if (p->retry_after) {
    snprintf(seconds, sizeof seconds, "%u", p->retry_after);
    exchange_header(x, "Retry-After", seconds);
  } else if (p->status >= 500) {
    exchange_header(x, "x-should-retry", "false");
  }
  reply_with(x, p->status, root);
}

void reply_json(exchange *x, st_json *root) {
  reply_with(x, MHD_HTTP_OK, root);
}

bool send_event(exchange *x, const char *event, st_json *root) {
  st_buffer text = {0};
  bool ok = (!event || st_buffer_format(&text, "event: %s\n", event)) && st_buffer_text(&text, "data: ");
  ok = take_text(root, &text) && ok && st_buffer_text(&text, "\n\n") && exchange_write(x, text.data, text.length);
  st_buffer_free(&text);
  return ok;
}
