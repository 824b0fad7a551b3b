// Chat templates: the subset of Jinja that published templates are written in, rendered as Hugging Face's transformers
// renders them (an immutable sandbox, trim_blocks, lstrip_blocks, no autoescape, json.dumps for tojson, and the tags
// break, continue and generation). A template is untrusted: it can access only the variables passed to it, and its
// steps, depth, memory and output are bounded.
#ifndef SETUN_JINJA_TEMPLATE_H
#define SETUN_JINJA_TEMPLATE_H

#include "base/buffer.h"
#include "base/json.h"

// Immutable: any number of threads may render it at once.
typedef struct st_template st_template;

// Compiles UTF-8 text of at most 4 MiB; `name` is for messages and is copied. A syntax error (SETUN_ERROR_FORMAT), or
// a part of Jinja that is not supported (SETUN_ERROR_UNSUPPORTED), names the line and what was found. On success the
// caller frees *out with st_template_free.
setun_status st_template_compile(const char *text, size_t length, const char *name, st_template **out,
                                 setun_error *err);
void st_template_free(st_template *t);

// A local time.
typedef struct st_template_time {
  int year, month, day; // 2026, 1..12, 1..31
  int hour, minute, second, microsecond;
} st_template_time;

typedef struct st_template_options {
  const st_template_time *now; // the time for strftime_now; NULL: the local time
  // Top-level names of the context whose strings are trusted like the template, not users' text; NULL-terminated. NULL
  // means bos_token, eos_token, unk_token, pad_token, sep_token, cls_token and mask_token.
  const char *const *trusted;
  uint64_t max_steps; // 0: 50 million
  size_t max_memory;  // bytes; 0: 512 MiB
  size_t max_output;  // bytes; 0: 64 MiB
} st_template_options;

// The bytes [begin, end) of the rendered text.
typedef struct st_template_span {
  size_t begin, end;
} st_template_span;

// Which parts of the rendered text came from strings of the context that are not trusted (user text, tool results,
// ...), in ascending order, never adjacent. The template's own text and its string literals are not among them. Text
// that looks like a control token is one only where none of its bytes is in a span. Zero-initialize; freed by the
// caller.
typedef struct st_template_spans {
  st_template_span *items;
  size_t n;
} st_template_spans;

void st_template_spans_free(st_template_spans *spans);

// Appends the rendered text to `out`; `spans` (may be NULL) are relative to its beginning. `context` is an object of
// the variables: messages, tools, add_generation_prompt, ...; its integers are integers and its reals reals (see
// st_json_parse_values); `options` may be NULL. Compiling and rendering take less than 64 KiB of stack. On failure
// `out` and `spans` are unchanged.
//   SETUN_ERROR_ARGUMENT: the template called raise_exception; the message is the template's own
//   SETUN_ERROR_FORMAT: an error in Jinja too
//   SETUN_ERROR_UNSUPPORTED: possible in Jinja, but not supported here
//   SETUN_ERROR_LIMIT: a limit was reached
setun_status st_template_render(const st_template *t, const st_json *context, const st_template_options *options,
                                st_buffer *out, st_template_spans *spans, setun_error *err);

#endif
