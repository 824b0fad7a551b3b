// A conversation: its messages, and additional variables for the template.
#ifndef SETUN_APP_CONVERSATION_H
#define SETUN_APP_CONVERSATION_H

#include "options.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct conversation conversation;

// Functions that return bool or a pointer report an error before returning false or NULL, unless their comment gives
// that another meaning.
conversation *conversation_new(void);
void conversation_free(conversation *c);

// "KEY=JSON": a variable for the template, such as enable_thinking=false. 0, or the exit status after a report.
int conversation_set_variable(conversation *c, const command *self, const char *assignment);
bool conversation_set_system(conversation *c, const char *text, size_t length);
const char *conversation_system(const conversation *c); // NULL: none
bool conversation_add_user(conversation *c, const char *text, size_t length);
// The reasoning is part of the answer: templates omit it or not, as their models were trained.
bool conversation_add_answer(conversation *c, const char *text, size_t length, const char *reasoning,
                             size_t reasoning_length);

size_t conversation_count(const conversation *c);      // number of messages
bool conversation_wants_answer(const conversation *c); // whether the last message is the user's
// Removes what follows the user's last message. False: none.
bool conversation_drop_answer(conversation *c);
// Removes the user's last message and what follows it. False: none.
bool conversation_undo(conversation *c);
void conversation_clear(conversation *c); // keeps the system prompt

// The template's variables as JSON text, freed with free. `generate`: an answer will follow.
char *conversation_context(const conversation *c, bool generate);

// {"messages": [...]}; written completely or not at all. An existing file is replaced only if it is a conversation of
// at most `most` bytes.
bool conversation_save(const conversation *c, const char *path, size_t most);
// Reads such a file, or an array of messages, of at most `most` bytes. On failure the conversation is unchanged.
bool conversation_load(conversation *c, const char *path, size_t most);

// The same from JSON text, named `name` in messages. `strict`: an object may have no other members.
bool conversation_read(conversation *c, const char *text, size_t length, const char *name, bool strict);
// Adds a message that is JSON text. False after a report.
bool conversation_add_json(conversation *c, const char *text, size_t length, const char *name);
const char *conversation_last_role(const conversation *c); // of the last message; "": none
// The messages as JSON text, one per line, or the last one as an object with the member "stop_reason", on one line;
// freed with free. NULL after a report: out of memory.
char *conversation_lines(const conversation *c);
char *conversation_last_line(const conversation *c, const char *stop_reason);

// Determines whether JSON text is an object with tools. False after a report: out of memory.
bool context_has_tools(const char *text, size_t length, bool *has);

#endif
