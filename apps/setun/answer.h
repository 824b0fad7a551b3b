// One answer of a conversation: applies the template, computes what is new, draws tokens, and prints text as it is
// generated.
#ifndef SETUN_APP_ANSWER_H
#define SETUN_APP_ANSWER_H

#include "conversation.h"
#include "editor.h"
#include "input.h"
#include "sampling.h"
#include "setun.h"

typedef enum overflow_choice { OVERFLOW_ASK, OVERFLOW_STOP, OVERFLOW_DROP } overflow_choice;

// Facts about an answer in addition to its text.
typedef struct answer_facts {
  const char *reason; // why it ended: "token", "stop", "length", "context", "interrupted"
  size_t prompt_tokens, new_tokens;
  size_t computed_tokens; // computed tokens of the prompt; the others are in the cache
  double prompt_seconds, decode_seconds;
} answer_facts;

// What answers are made with. The caller owns the members.
typedef struct answerer {
  setun_model *model, *draft;
  setun_session *session;
  setun_chat *chat;
  conversation *talk;
  setun_stops *stops; // NULL: none
  editor *input;      // for questions
  const sampling_options *sampling;
  const setun_constraint_params *constraint; // what answers must be; NULL: anything
  uint64_t seed, answers;                    // each answer has its own seed, so that a second try may differ
  int64_t most;                              // most tokens of an answer; negative: no limit
  size_t longest;                            // most bytes of a message's text
  overflow_choice overflow;                  // except with OVERFLOW_STOP the session's length is not limited
  uint32_t room;                             // tokens of the context
  id_list evaluated;                         // tokens that the session has evaluated, including forgotten ones
  bool color;                                // whether text may be dim
  bool terminal, hide_reasoning, ignore_end, verbose;
  bool silent;        // answers are not printed
  answer_facts facts; // of the last answer
} answerer;

typedef enum answer_result {
  ANSWER_DONE,        // it is now part of the conversation
  ANSWER_INTERRUPTED, // by a signal; a part of it, unless empty, is in the conversation
  ANSWER_FULL,        // no room for it, or for the rest of it; reported
  ANSWER_FAILED       // reported
} answer_result;

// Answers the last message. If the answer is empty, that message remains the last.
answer_result answer(answerer *a);
// The conversation's tokens. False after a report.
bool count_tokens(const answerer *a, size_t *count);

#endif
