// Tells calls of tools from the text of an answer while it comes. What looks like a call and does not parse is given as
// text: nothing is lost. Calls are given when they are whole, their arguments as one valid JSON object; with `streams`,
// for text that a grammar has made certain, as they come.
#ifndef SETUN_CHAT_TOOL_CALLS_H
#define SETUN_CHAT_TOOL_CALLS_H

#include "chat/tool_parse.h"
#include "setun.h"

// Zero-initialize; `format` NULL: text is only passed on. Freed with st_calls_free.
typedef struct st_calls {
  const st_tool_format *format;
  const st_json *tools;        // of the request; live as long
  bool control[ST_TOOL_OPENS]; // of the marks that open calls: a control token, and never found in plain text
  bool streams;

  st_buffer
      pending; // while `inside` white space and from `lead` on the calls; else white space, and what may be a mark
  size_t lead;
  bool inside, started, over;
  bool behind;         // a call has ended, and only white space has followed
  bool open;           // Harmony: a message to a tool has begun
  st_buffer name;      // its recipient
  st_buffer message;   // and its text
  size_t calls, given; // of what is inside: calls that were given whole; bytes that were given of the next
  size_t seen;         // calls that this reading has found
  setun_reply_fn fn;
  void *user;
} st_calls;

void st_calls_free(st_calls *c);

// Text of the answer. Events: SETUN_CHANNEL_CONTENT, or SETUN_CHANNEL_CALL_NAME followed by SETUN_CHANNEL_CALL.
setun_status st_calls_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                           setun_error *err);
// A control token. False: it is none of the format's, and nothing was done.
bool st_calls_takes(const st_calls *c, const char *text, size_t length);
setun_status st_calls_control(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err);
// A Harmony message to a tool: its recipient, and its text.
setun_status st_calls_message(st_calls *c, const char *name, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err);
setun_status st_calls_message_text(st_calls *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                                   setun_error *err);
setun_status st_calls_message_end(st_calls *c, setun_reply_fn fn, void *user, setun_error *err);
// At the end of the answer: gives what was held back.
setun_status st_calls_finish(st_calls *c, setun_reply_fn fn, void *user, setun_error *err);

#endif
