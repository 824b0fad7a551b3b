// The state machine of channels.h.
#include "chat/channels.h"

#include <string.h>

// The marks of reasoning blocks in published templates.
static const struct {
  const char *open, *close;
} blocks[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<thinking>", "</thinking>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"}, // a control token and a word
};
enum { BLOCKS = sizeof blocks / sizeof *blocks, HEADER_MOST = 4096 };

void st_channels_free(st_channels *c) {
  st_buffer_free(&c->pending);
}

static bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool same(const char *text, size_t length, const char *word) {
  return strlen(word) == length && !memcmp(text, word, length);
}

static bool ends_with(const char *text, size_t length, const char *word) {
  size_t n = strlen(word);
  return n <= length && !memcmp(text + length - n, word, n);
}

void st_channels_begin(st_channels *c, const char *tail, size_t length) {
  *c = (st_channels){0};
  if (ends_with(tail, length, "<|start|>assistant")) {
    c->state = ST_CHANNELS_HEADER;
    return;
  }
  while (length && is_space(tail[length - 1])) length--;
  for (size_t i = 0; i < BLOCKS; i++) {
    if (!ends_with(tail, length, blocks[i].open)) continue;
    c->state = ST_CHANNELS_BLOCK;
    c->block = i;
  }
}

bool st_channels_marks(size_t block, const char **open, const char **close) {
  if (block >= BLOCKS) return false;
  *open = blocks[block].open;
  *close = blocks[block].close;
  return true;
}

static setun_status give(setun_channel channel, const char *text, size_t length, setun_reply_fn fn, void *user,
                         setun_error *err) {
  if (!length || fn(channel, text, length, user)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_CANCELED, "canceled");
}

// Outputs the first n pending bytes and keeps the rest.
static setun_status release(st_channels *c, setun_channel channel, size_t n, setun_reply_fn fn, void *user,
                            setun_error *err) {
  if (!n) return SETUN_OK;
  setun_status s = give(channel, c->pending.data, n, fn, user, err);
  memmove(c->pending.data, c->pending.data + n, c->pending.length - n + 1);
  c->pending.length -= n;
  return s;
}

static void drop(st_channels *c, size_t n) {
  if (!n) return;
  memmove(c->pending.data, c->pending.data + n, c->pending.length - n + 1);
  c->pending.length -= n;
}

static size_t leading_space(const st_buffer *pending) {
  size_t n = 0;
  while (n < pending->length && is_space(pending->data[n])) n++;
  return n;
}

// At the beginning: the pending text opens a block (true), may still open one (*wait), or is text.
static bool opens_block(st_channels *c, bool *wait) {
  size_t space = leading_space(&c->pending), n = c->pending.length - space;
  const char *text = n ? c->pending.data + space : "";
  *wait = n == 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    size_t length = strlen(blocks[i].open), shared = n < length ? n : length;
    if (memcmp(text, blocks[i].open, shared)) continue;
    *wait = true;
    if (n < length) continue;
    drop(c, space + length);
    c->block = i;
    return true;
  }
  return false;
}

// The number of bytes at the end of `text` that may be the beginning of `mark`.
static size_t partial(const char *text, size_t length, const char *mark) {
  size_t n = strlen(mark) - 1;
  if (n > length) n = length;
  while (n && memcmp(text + length - n, mark, n)) n--;
  return n;
}

// The position of the mark, or SIZE_MAX; the text may contain 0 bytes.
static size_t find(const st_buffer *pending, const char *mark) {
  size_t n = strlen(mark);
  for (size_t i = 0; i + n <= pending->length; i++) {
    if (pending->data[i] == *mark && !memcmp(pending->data + i, mark, n)) return i;
  }
  return SIZE_MAX;
}

// Reasoning up to the mark that ends it, or up to what may be the beginning of the mark or white space before it.
static setun_status read_block(st_channels *c, bool *again, setun_reply_fn fn, void *user, setun_error *err) {
  const char *mark = blocks[c->block].close;
  if (!c->started) drop(c, leading_space(&c->pending));
  if (!c->pending.length) return SETUN_OK;
  size_t found = find(&c->pending, mark), end = found;
  if (found == SIZE_MAX) end = c->pending.length - partial(c->pending.data, c->pending.length, mark);
  while (end && is_space(c->pending.data[end - 1])) end--;
  if (end) c->started = true;
  setun_status s = release(c, SETUN_CHANNEL_REASONING, end, fn, user, err);
  if (found == SIZE_MAX) return s;
  drop(c, found - end + strlen(mark));
  c->state = ST_CHANNELS_AFTER;
  *again = true;
  return s;
}

static setun_status advance(st_channels *c, setun_reply_fn fn, void *user, setun_error *err) {
  bool again = true, wait = false;
  setun_status s = SETUN_OK;
  while (again && !s) {
    again = false;
    switch (c->state) {
    case ST_CHANNELS_BEGIN:
      if (opens_block(c, &wait)) {
        c->state = ST_CHANNELS_BLOCK;
        c->started = false;
        again = true;
      } else if (!wait) {
        c->state = ST_CHANNELS_TEXT;
        again = true;
      }
      break;
    case ST_CHANNELS_BLOCK: s = read_block(c, &again, fn, user, err); break;
    case ST_CHANNELS_AFTER:
      drop(c, leading_space(&c->pending));
      if (c->pending.length) {
        c->state = ST_CHANNELS_TEXT;
        again = true;
      }
      break;
    case ST_CHANNELS_TEXT: s = release(c, SETUN_CHANNEL_CONTENT, c->pending.length, fn, user, err); break;
    case ST_CHANNELS_MESSAGE: s = release(c, c->channel, c->pending.length, fn, user, err); break;
    case ST_CHANNELS_HEADER: break;
    case ST_CHANNELS_BETWEEN: drop(c, c->pending.length); break;
    }
  }
  return s;
}

static setun_status add_to_header(st_channels *c, const char *text, size_t length, setun_error *err) {
  if (length > HEADER_MOST - c->pending.length) {
    return st_fail(err, SETUN_ERROR_LIMIT, "a message's header: expected at most %d bytes, found more", HEADER_MOST);
  }
  return st_buffer_append(&c->pending, text, length) ? SETUN_OK : st_fail_memory(err, "a message's header");
}

setun_status st_channels_text(st_channels *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err) {
  if (!length) return SETUN_OK;
  if (c->state == ST_CHANNELS_HEADER) return add_to_header(c, text, length, err);
  if (!st_buffer_append(&c->pending, text, length)) return st_fail_memory(err, "an answer");
  return advance(c, fn, user, err);
}

// "analysis", "final", "commentary to=functions.f <|constrain|>json" and similar ones.
static setun_channel channel_of(const st_buffer *header) {
  const char *text = header->data ? header->data : "";
  const char *mark = strstr(text, "<|channel|>");
  if (strstr(text, "to=")) return SETUN_CHANNEL_CALL;
  if (!mark) return SETUN_CHANNEL_CONTENT;
  mark += strlen("<|channel|>");
  while (is_space(*mark)) mark++;
  if (!strncmp(mark, "analysis", 8)) return SETUN_CHANNEL_REASONING;
  if (!strncmp(mark, "commentary", 10)) return SETUN_CHANNEL_COMMENTARY;
  return SETUN_CHANNEL_CONTENT;
}

// The recipient of a message: the word after "to=", without the namespace of functions.
static st_text recipient_of(const st_buffer *header) {
  static const char functions[] = "functions.";
  const char *text = strstr(header->data, "to=") + strlen("to=");
  if (!strncmp(text, functions, sizeof functions - 1)) text += sizeof functions - 1;
  return (st_text){text, strcspn(text, " \t\r\n<")};
}

// A message's text begins. A message to a tool is a call: its name is output first.
static setun_status begin_message(st_channels *c, setun_reply_fn fn, void *user, setun_error *err) {
  setun_status s = SETUN_OK;
  c->channel = channel_of(&c->pending);
  c->state = ST_CHANNELS_MESSAGE;
  if (c->channel == SETUN_CHANNEL_CALL) {
    st_text name = recipient_of(&c->pending);
    s = give(SETUN_CHANNEL_CALL_NAME, name.data, name.length, fn, user, err);
  }
  drop(c, c->pending.length);
  return s;
}

// Handles the control tokens of a Harmony message. True if it was one of them.
static bool harmony(st_channels *c, const char *text, size_t length, setun_reply_fn fn, void *user, setun_status *s,
                    setun_error *err) {
  bool inside = c->state == ST_CHANNELS_HEADER || c->state == ST_CHANNELS_MESSAGE || c->state == ST_CHANNELS_BETWEEN;
  if (same(text, length, "<|start|>") || same(text, length, "<|channel|>")) {
    if (c->state != ST_CHANNELS_HEADER) drop(c, c->pending.length);
    c->state = ST_CHANNELS_HEADER;
    *s = add_to_header(c, text, length, err);
    return true;
  }
  if (!inside) return false;
  if (same(text, length, "<|message|>") && c->state == ST_CHANNELS_HEADER) {
    *s = begin_message(c, fn, user, err);
  } else if (same(text, length, "<|end|>") || same(text, length, "<|return|>") || same(text, length, "<|call|>")) {
    c->state = ST_CHANNELS_BETWEEN;
    drop(c, c->pending.length);
  } else if (c->state == ST_CHANNELS_HEADER) {
    *s = add_to_header(c, text, length, err); // <|constrain|> ends a recipient
  }
  return true;
}

setun_status st_channels_control(st_channels *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                                 setun_error *err) {
  setun_status s = SETUN_OK;
  bool wait;
  if (c->state == ST_CHANNELS_BEGIN || c->state == ST_CHANNELS_BLOCK) {
    for (size_t i = 0; i < BLOCKS; i++) {
      const char *mark = c->state == ST_CHANNELS_BEGIN ? blocks[i].open : blocks[c->block].close;
      // The mark that opens a block may have a word after its control token.
      if (!same(text, length, mark) &&
          (c->state != ST_CHANNELS_BEGIN || length < 2 || strncmp(mark, text, length) != 0))
        continue;
      return st_channels_text(c, text, length, fn, user, err);
    }
  }
  if (c->state == ST_CHANNELS_BEGIN && c->pending.length && !opens_block(c, &wait) &&
      leading_space(&c->pending) < c->pending.length) {
    c->state = ST_CHANNELS_TEXT; // a partial mark ends here
    s = advance(c, fn, user, err);
  }
  if (s == SETUN_OK) harmony(c, text, length, fn, user, &s, err);
  return s;
}

bool st_channels_in_answer(const st_channels *c) {
  return c->state == ST_CHANNELS_BEGIN || c->state == ST_CHANNELS_AFTER || c->state == ST_CHANNELS_TEXT;
}

setun_status st_channels_answer(st_channels *c, setun_reply_fn fn, void *user, setun_error *err) {
  if (c->state == ST_CHANNELS_BEGIN || c->state == ST_CHANNELS_AFTER) c->state = ST_CHANNELS_TEXT;
  return advance(c, fn, user, err);
}

setun_status st_channels_finish(st_channels *c, setun_reply_fn fn, void *user, setun_error *err) {
  setun_status s = SETUN_OK;
  bool blank = leading_space(&c->pending) == c->pending.length;
  if (c->state == ST_CHANNELS_BEGIN || c->state == ST_CHANNELS_TEXT) {
    s = release(c, SETUN_CHANNEL_CONTENT, c->pending.length, fn, user, err);
  } else if (c->state == ST_CHANNELS_BLOCK && !blank) {
    s = release(c, SETUN_CHANNEL_REASONING, c->pending.length, fn, user, err);
  }
  drop(c, c->pending.length);
  return s;
}
