// One answer of a conversation: the template applied, what is new computed, tokens drawn, and text printed as it comes.
#ifndef SETUN_APP_ANSWER_H
#define SETUN_APP_ANSWER_H

#include "conversation.h"
#include "editor.h"
#include "input.h"
#include "sampling.h"
#include "setun.h"

typedef enum overflow_choice { OVERFLOW_ASK, OVERFLOW_STOP, OVERFLOW_DROP } overflow_choice;

// What is known of an answer beside its text.
typedef struct answer_facts {
  const char *reason; // why it ended: "token", "stop", "length", "context", "interrupted"
  size_t prompt_tokens, new_tokens;
  size_t computed_tokens; // of the prompt; the others are in the cache
  double prompt_seconds, decode_seconds;
} answer_facts;

// What answers are made with. The members are the caller's.
typedef struct answerer {
  setun_model *model, *draft;
  setun_session *session;
  setun_chat *chat;
  conversation *talk;
  setun_stops *stops; // NULL: none
  editor *input;      // for asking
  const sampling_options *sampling;
  uint64_t seed, answers;   // each answer has a seed of its own, so that a second try may differ
  int64_t most;             // tokens of an answer; negative: no limit
  size_t longest;           // bytes of text that a message may have
  overflow_choice overflow; // but for OVERFLOW_STOP the session is one without an end
  uint32_t room;            // tokens of the context
  id_list held;             // what the session has evaluated, those forgotten too
  bool color;               // may text be dim
  bool terminal, hide_reasoning, ignore_end, verbose;
  bool silent;        // nothing is printed of an answer
  answer_facts facts; // of the last answer
} answerer;

typedef enum answer_result {
  ANSWER_DONE,        // it is part of the conversation now
  ANSWER_INTERRUPTED, // by a signal; what there was of it is part of the conversation, unless that was nothing
  ANSWER_FULL,        // no room for it, or for the rest of it; said so
  ANSWER_FAILED       // reported
} answer_result;

// Answers the last message. Where nothing was said, that message is still the last.
answer_result answer(answerer *a);
// The conversation's tokens. False after a report.
bool count_tokens(const answerer *a, size_t *count);

#endif
