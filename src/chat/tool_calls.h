// Separates calls of tools from the text of an answer as it arrives. What looks like a call but cannot be parsed is
// output as text, so that nothing is lost. Calls are output once they are complete, their arguments as one valid JSON
// object; with `streams`, for text that a grammar constrains to valid calls, as they arrive.
#ifndef SETUN_CHAT_TOOL_CALLS_H
#define SETUN_CHAT_TOOL_CALLS_H

#include "chat/tool_parse.h"
#include "setun.h"

// Zero-initialize; `format` NULL: text is only passed on. Freed with st_calls_free.
typedef struct st_calls {
  const st_tool_format *format;
  const st_json *tools;        // of the request; must outlive this
  bool control[ST_TOOL_OPENS]; // for each mark that opens calls: it is a control token, never plain text
  bool streams;

  st_buffer pending; // while `inside`: white space, and from `lead` on the calls; else white space, a partial mark
  size_t lead;
  bool inside, started, over;
  bool after_call;   // a call has ended, and only white space has followed
  bool open;         // Harmony: a message to a tool has begun
  st_buffer name;    // its recipient
  st_buffer message; // and its text
  size_t calls;      // of the pending text: complete calls that were output
  size_t emitted;    // of the next call: bytes that were output
  size_t seen;       // calls found by the current parse
  setun_reply_fn fn;
  void *user;
} st_calls;

void st_calls_free(st_calls *c);

// Text of the answer. Events: SETUN_CHANNEL_CONTENT, or SETUN_CHANNEL_CALL_NAME followed by SETUN_CHANNEL_CALL.
setun_status st_calls_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                           setun_error *err);
// Whether a control token is one of the format's.
bool st_calls_takes(const st_calls *c, const char *text, size_t length);
setun_status st_calls_control(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err);
// A Harmony message to a tool: its recipient, and its text.
setun_status st_calls_message(st_calls *c, const char *name, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err);
setun_status st_calls_message_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                                   setun_error *err);
setun_status st_calls_message_end(st_calls *c, setun_reply_fn fn, void *user, setun_error *err);
// At the end of the answer: outputs the text that was withheld.
setun_status st_calls_finish(st_calls *c, setun_reply_fn fn, void *user, setun_error *err);

#endif
