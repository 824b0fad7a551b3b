// The state machine of tool_calls.h.
#include "chat/tool_calls.h"

#include <string.h>

void st_calls_free(st_calls *c) {
  st_buffer_free(&c->pending);
  st_buffer_free(&c->message);
  st_buffer_free(&c->name);
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool same(const char *text, size_t length, const char *word) {
  return word && strlen(word) == length && !memcmp(text, word, length);
}

static void drop(st_buffer *b, size_t n) {
  if (!n) return;
  memmove(b->data, b->data + n, b->length - n + 1);
  b->length -= n;
}

static setun_status emit(st_calls *c, setun_channel channel, const char *text, size_t length, setun_error *err) {
  if ((!length && channel != SETUN_CHANNEL_CALL_NAME) || c->fn(channel, text, length, c->user)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_CANCELED, "canceled");
}

// Outputs the first n pending bytes as text.
static setun_status release(st_calls *c, size_t n, setun_error *err) {
  if (!n) return SETUN_OK;
  for (size_t i = 0; i < n && !c->started; i++) c->started = !is_space(c->pending.data[i]);
  c->after_call = false;
  setun_status s = emit(c, SETUN_CHANNEL_CONTENT, c->pending.data, n, err);
  drop(&c->pending, n);
  return s;
}

// ---- inside calls ----

typedef struct emission {
  st_calls *calls;
  setun_status status;
  setun_error *err;
} emission;

// An st_tool_call_fn: outputs the part of the call that was not output yet.
static bool emit_call(void *user, st_text name, st_text arguments, bool complete) {
  emission *t = user;
  st_calls *c = t->calls;
  size_t index = c->seen++;
  if (index < c->calls || (!complete && !c->streams)) return true;
  if (!c->emitted && arguments.length) t->status = emit(c, SETUN_CHANNEL_CALL_NAME, name.data, name.length, t->err);
  if (t->status == SETUN_OK && arguments.length > c->emitted) {
    t->status = emit(c, SETUN_CHANNEL_CALL, arguments.data + c->emitted, arguments.length - c->emitted, t->err);
    c->emitted = arguments.length;
  }
  if (complete) c->calls++, c->emitted = 0;
  return t->status == SETUN_OK;
}

// Drops `n` bytes of calls and the white space before them; if n is 0, the white space stays pending.
static void end_calls(st_calls *c, size_t n) {
  if (n) drop(&c->pending, c->lead + n);
  c->inside = false;
  c->calls = c->emitted = 0;
}

// The number of bytes up to the end of the mark that opened the calls: once they are output as text, it cannot open
// calls again.
static size_t opening(const st_calls *c) {
  for (size_t i = 0; i < ST_TOOL_OPENS && c->format->opens[i]; i++) {
    size_t n = strlen(c->format->opens[i]);
    if (c->lead + n <= c->pending.length && !memcmp(c->pending.data + c->lead, c->format->opens[i], n))
      return c->lead + n;
  }
  return c->lead + 1;
}

static setun_status read_calls(st_calls *c, bool final, bool *again, setun_error *err) {
  emission t = {c, SETUN_OK, err};
  st_tool_reader r = {.format = c->format,
                      .tools = c->tools,
                      .text = c->pending.data + c->lead,
                      .length = c->pending.length - c->lead,
                      .final = final,
                      .fn = emit_call,
                      .user = &t};
  c->seen = 0;
  *again = false;
  st_tool_result result = st_tool_read(&r);
  if (t.status != SETUN_OK) return t.status;
  switch (result) {
  case ST_TOOL_MEMORY: return st_fail_memory(err, "a call of a tool");
  case ST_TOOL_MORE: return SETUN_OK;
  case ST_TOOL_DONE:
    end_calls(c, r.at);
    c->started = c->after_call = true;
    *again = true;
    return SETUN_OK;
  case ST_TOOL_WRONG: break;
  }
  *again = true;
  bool partly = c->emitted > 0;
  end_calls(c, r.good);
  c->after_call = r.good > 0;
  c->started = true;
  if (partly) { // a part of the arguments was output: the rest is not text
    drop(&c->pending, c->pending.length);
    return SETUN_OK;
  }
  return r.good ? SETUN_OK : release(c, opening(c), err);
}

// ---- outside ----

// The first position of a mark that is plain text; SIZE_MAX: not found. *partial: the number of bytes at the end
// that may be the beginning of one.
static size_t find_open(const st_calls *c, size_t *partial) {
  size_t first = SIZE_MAX;
  *partial = 0;
  for (size_t i = 0; i < ST_TOOL_OPENS && c->format->opens[i]; i++) {
    if (c->control[i]) continue;
    st_tool_reader r = {.text = c->pending.data, .length = c->pending.length};
    size_t found = st_tool_find(&r, c->format->opens[i]), length = st_tool_partial(&r, c->format->opens[i]);
    if (found < first) first = found;
    if (length > *partial) *partial = length;
  }
  return first;
}

// For a format whose calls may have no mark: the position of a brace that opens one, at the beginning of the answer or
// after a call, possibly separated by semicolons. SIZE_MAX: none; *wait: it may still follow the pending text.
static size_t find_bare(const st_calls *c, bool *wait) {
  size_t at = 0;
  *wait = false;
  if (!c->format->bare || (c->started && !c->after_call)) return SIZE_MAX;
  while (at < c->pending.length && (is_space(c->pending.data[at]) || (c->after_call && c->pending.data[at] == ';')))
    at++;
  *wait = at == c->pending.length;
  return !*wait && c->pending.data[at] == '{' ? at : SIZE_MAX;
}

// `end` without the white space before it, which is output only if text follows.
static size_t without_space(const st_calls *c, size_t end) {
  while (end && is_space(c->pending.data[end - 1])) end--;
  return end;
}

static setun_status read_text(st_calls *c, bool *again, setun_error *err) {
  bool wait;
  size_t partial, at = find_open(c, &partial), bare = find_bare(c, &wait);
  *again = false;
  if (wait && at == SIZE_MAX) return SETUN_OK;
  if (bare < at) at = bare;
  if (at == SIZE_MAX) return release(c, without_space(c, c->pending.length - partial), err);
  // The white space before the mark is output only if no call follows.
  size_t text = c->after_call && at == bare ? 0 : without_space(c, at);
  setun_status s = release(c, text, err);
  c->lead = at - text;
  c->inside = *again = true;
  return s;
}

static setun_status advance(st_calls *c, bool final, setun_error *err) {
  bool again = c->pending.length > 0;
  setun_status s = SETUN_OK;
  while (again && s == SETUN_OK && c->pending.length) {
    s = c->inside ? read_calls(c, final, &again, err) : read_text(c, &again, err);
  }
  return s;
}

setun_status st_calls_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                           setun_error *err) {
  c->fn = fn;
  c->user = user;
  if (!c->format || c->format->syntax == ST_TOOLS_HARMONY) return emit(c, SETUN_CHANNEL_CONTENT, text, length, err);
  if (!length || c->over) return SETUN_OK;
  if (!st_buffer_append(&c->pending, text, length)) return st_fail_memory(err, "an answer");
  return advance(c, false, err);
}

bool st_calls_takes(const st_calls *c, const char *text, size_t length) {
  if (!c->format || c->format->syntax == ST_TOOLS_HARMONY) return false;
  if (c->inside || same(text, length, c->format->stop)) return true;
  for (size_t i = 0; i < ST_TOOL_OPENS; i++) {
    if (same(text, length, c->format->opens[i])) return true;
  }
  return false;
}

setun_status st_calls_control(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err) {
  c->fn = fn;
  c->user = user;
  if (!c->inside && same(text, length, c->format->stop)) {
    c->over = true;
    return SETUN_OK;
  }
  if (!c->inside) {
    setun_status s = release(c, without_space(c, c->pending.length), err);
    if (s != SETUN_OK) return s;
    c->lead = c->pending.length;
    c->inside = true;
  }
  if (!st_buffer_append(&c->pending, text, length)) return st_fail_memory(err, "an answer");
  return advance(c, false, err);
}

setun_status st_calls_finish(st_calls *c, setun_reply_fn fn, void *user, setun_error *err) {
  c->fn = fn;
  c->user = user;
  if (c->open) return st_calls_message_end(c, fn, user, err);
  if (!c->format) return SETUN_OK;
  setun_status s = advance(c, true, err);
  if (s == SETUN_OK && !(c->after_call && !without_space(c, c->pending.length))) s = release(c, c->pending.length, err);
  drop(&c->pending, c->pending.length);
  return s;
}

// ---- Harmony ----

setun_status st_calls_message(st_calls *c, const char *name, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err) {
  c->fn = fn;
  c->user = user;
  c->name.length = c->message.length = c->emitted = 0;
  c->open = true;
  return !length || st_buffer_append(&c->name, name, length) ? SETUN_OK : st_fail_memory(err, "a call of a tool");
}

setun_status st_calls_message_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                                   setun_error *err) {
  c->fn = fn;
  c->user = user;
  if (!st_buffer_append(&c->message, text, length)) return st_fail_memory(err, "a call of a tool");
  if (!c->streams) return SETUN_OK;
  setun_status s = c->emitted ? SETUN_OK : emit(c, SETUN_CHANNEL_CALL_NAME, c->name.data, c->name.length, err);
  c->emitted = c->message.length;
  return s == SETUN_OK ? emit(c, SETUN_CHANNEL_CALL, text, length, err) : s;
}

setun_status st_calls_message_end(st_calls *c, setun_reply_fn fn, void *user, setun_error *err) {
  c->fn = fn;
  c->user = user;
  st_text arguments = {c->message.data, c->message.length};
  setun_status s = SETUN_OK;
  if (!c->emitted) {
    if (c->name.length && arguments.length && st_tool_is_object(arguments)) {
      s = emit(c, SETUN_CHANNEL_CALL_NAME, c->name.data, c->name.length, err);
      if (s == SETUN_OK) s = emit(c, SETUN_CHANNEL_CALL, arguments.data, arguments.length, err);
    } else {
      s = emit(c, SETUN_CHANNEL_CONTENT, arguments.data, arguments.length, err);
    }
  }
  c->name.length = c->message.length = c->emitted = 0;
  c->open = false;
  return s;
}
