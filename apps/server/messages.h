// Conversations: from a request's messages to the tokens that the template makes of them.
#ifndef SETUN_SERVER_MESSAGES_H
#define SETUN_SERVER_MESSAGES_H

#include "job.h"

// The template's variables: an object with "messages", each with a role and a text as content, and what the request
// says for the template (chat_template_kwargs, add_generation_prompt). Content that is no text is refused. `body` is as
// OpenAI's chat has it. NULL: `p` says why. Where the last message is an answer to go on with, it is left out, and
// *rest is its text, which lives as long as `body`.
st_json *conversation_of(const st_json *body, const st_json **rest, problem *p);
// Renders it and adds the prompt to the job, which then is one with a conversation. Frees `context`.
bool job_add_conversation(job *j, st_json *context, const st_json *rest, problem *p);
// A message with a role and a text, for endpoints whose requests have other shapes.
void add_message(st_json *root, st_json *messages, const char *role, st_json content);
// A call of a tool, as a member of a message's tool_calls; the values are copied.
st_json call_value(st_json *root, const st_json *id, const st_json *name, const st_json *arguments);
// A message with what a call gave: of role tool. `id` is copied, `content` taken.
void add_tool_message(st_json *root, st_json *messages, const st_json *id, st_json content);
// The text of content: a string, or an array of parts, all of them texts; joined by newlines. False: `p` says why.
bool content_text(st_json *root, const st_json *content, const char *param, st_json *text, problem *p);

#endif
