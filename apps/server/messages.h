// Conversations: a request's messages, rendered by the template and tokenized.
#ifndef SETUN_SERVER_MESSAGES_H
#define SETUN_SERVER_MESSAGES_H

#include "job.h"

// The template's variables: an object with "messages", each with a role and a string as content, and the request's
// variables for the template (chat_template_kwargs, add_generation_prompt). Content other than text is refused. `body`
// has the form of OpenAI's chat. NULL: `p` has the reason. If the last message is an answer to continue, it is left
// out, and *rest is that message, valid as long as `body`.
st_json *conversation_of(const st_json *body, const st_json **rest, problem *p);
// Renders the conversation and adds the prompt to the job, which is then marked as a conversation. Frees `context`.
bool job_add_conversation(job *j, st_json *context, const st_json *rest, problem *p);
// Adds a message with a role and a string, for endpoints whose requests have other forms.
void add_message(st_json *root, st_json *messages, const char *role, st_json content);
// A tool call, as an element of a message's tool_calls; the values are copied.
st_json call_value(st_json *root, const st_json *id, const st_json *name, const st_json *arguments);
// Adds a call's result, a message with role tool. `id` is copied; takes ownership of `content`.
void add_tool_message(st_json *root, st_json *messages, const st_json *id, st_json content);
// The text of content: a string, or an array of text parts, which are joined by newlines. False: `p` has the reason.
bool content_text(st_json *root, const st_json *content, const char *param, st_json *text, problem *p);

#endif
