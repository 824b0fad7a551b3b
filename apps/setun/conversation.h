// A conversation: its messages, and the variables that a template is given beside them.
#ifndef SETUN_APP_CONVERSATION_H
#define SETUN_APP_CONVERSATION_H

#include "options.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct conversation conversation;

// The functions that return bool or a pointer report what went wrong before they return false or NULL, unless their
// comment says that this is an answer.
conversation *conversation_new(void);
void conversation_free(conversation *c);

// "KEY=JSON": a variable for the template, such as enable_thinking=false. 0, or the exit status after a report.
int conversation_set_variable(conversation *c, const command *self, const char *assignment);
bool conversation_set_system(conversation *c, const char *text, size_t length);
const char *conversation_system(const conversation *c); // NULL: none
bool conversation_add_user(conversation *c, const char *text, size_t length);
// The reasoning goes with the answer: templates leave it out or not, as their models were trained.
bool conversation_add_answer(conversation *c, const char *text, size_t length, const char *reasoning,
                             size_t reasoning_length);

size_t conversation_count(const conversation *c);      // of messages
bool conversation_wants_answer(const conversation *c); // is the last message the user's?
// Removes what follows the user's last message. False: there is no such message.
bool conversation_drop_answer(conversation *c);
// Removes the user's last message and what follows it. False: there is none.
bool conversation_undo(conversation *c);
void conversation_clear(conversation *c); // keeps the system prompt

// The template's variables as JSON text, freed with free. `generate`: an answer is to follow.
char *conversation_context(const conversation *c, bool generate);

// {"messages": [...]}; written whole or not at all. A file that is there is replaced only where it is
// such a file too, of at most `most` bytes.
bool conversation_save(const conversation *c, const char *path, size_t most);
// Such a file, or an array of messages, of at most `most` bytes. On failure the conversation is as it was.
bool conversation_load(conversation *c, const char *path, size_t most);

// The same from JSON text that `name` calls in messages. `strict`: an object may have no other members.
bool conversation_read(conversation *c, const char *text, size_t length, const char *name, bool strict);
// Adds a message that is JSON text. False after a report.
bool conversation_add_json(conversation *c, const char *text, size_t length, const char *name);
const char *conversation_last_role(const conversation *c); // of the last message; "": there is none
// The messages as JSON text, a line each, or the last one as an object with the member "stop_reason", in one line;
// freed with free. NULL after a report: out of memory.
char *conversation_lines(const conversation *c);
char *conversation_last_line(const conversation *c, const char *stop_reason);

// Whether a JSON object of variables has tools in it; it has none where it is not such an object. False after a report:
// out of memory.
bool context_has_tools(const char *text, size_t length, bool *has);

#endif
