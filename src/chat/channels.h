// Separates the channels of an answer while it arrives: blocks such as <think>...</think>, which some models mark by
// control tokens and some by plain text, and the messages of the Harmony format (gpt-oss), which are
// <|channel|>NAME<|message|>TEXT<|end|>, more of them after <|start|>assistant.
//
// A block can only be at the beginning of an answer: later, "<think>" is plain text. White space around a block belongs
// to neither side.
#ifndef SETUN_CHAT_CHANNELS_H
#define SETUN_CHAT_CHANNELS_H

#include "base/buffer.h"
#include "setun.h"

typedef enum st_channels_state {
  ST_CHANNELS_BEGIN,   // only white space so far: a block may open
  ST_CHANNELS_BLOCK,   // inside a block
  ST_CHANNELS_AFTER,   // after a block, before the first text
  ST_CHANNELS_TEXT,    // the answer
  ST_CHANNELS_HEADER,  // Harmony: from <|start|> or <|channel|> to <|message|>
  ST_CHANNELS_MESSAGE, // Harmony: a message's text
  ST_CHANNELS_BETWEEN  // Harmony: after <|end|>
} st_channels_state;

// Zero-initialize; freed with st_channels_free.
typedef struct st_channels {
  st_channels_state state;
  size_t block;          // which kind of block is open
  bool started;          // a block or message has had text
  setun_channel channel; // of the message
  st_buffer pending;     // text that may turn out to be a mark, or white space that may be left out; or the header
} st_channels;

void st_channels_free(st_channels *c);

// Determines where the answer begins from the end of the template's own text before it (without users' text): inside a
// block that this text opens, or in a Harmony message's header.
void st_channels_begin(st_channels *c, const char *tail, size_t length);

// The marks around a kind of block. False: there are not that many kinds.
bool st_channels_marks(size_t block, const char **open, const char **close);

// Takes text, or a control token by its text (which is never part of an answer). setun_reply_fn as in setun.h; after it
// returned false: SETUN_ERROR_CANCELED.
setun_status st_channels_text(st_channels *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                              setun_error *err);
setun_status st_channels_control(st_channels *c, const char *text, size_t length, setun_reply_fn fn, void *user,
                                 setun_error *err);
// Whether text of the answer may arrive now: neither a block nor a Harmony message is open.
bool st_channels_in_answer(const st_channels *c);
// What arrives from now on is text of the answer, even if it looks like a block.
setun_status st_channels_answer(st_channels *c, setun_reply_fn fn, void *user, setun_error *err);
// Outputs the text that was withheld.
setun_status st_channels_finish(st_channels *c, setun_reply_fn fn, void *user, setun_error *err);

#endif
