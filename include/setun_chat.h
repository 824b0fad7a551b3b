/* Chat templates, rendered conversations, and the channels of answers. A part of setun.h, which states the
 * conventions. */
#ifndef SETUN_CHAT_H
#define SETUN_CHAT_H

#include "setun_model.h"
#include "setun_tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- chat -------------------------------------------------------------------------------------------------- */

/* The bytes [begin, end) of a text. */
typedef struct setun_span {
  size_t begin, end;
} setun_span;

/* A compiled chat template, which turns a conversation into text in the format that a model was trained on. Immutable:
 * any number of threads may render it at the same time. */
typedef struct setun_chat setun_chat;

typedef struct setun_chat_params {
  size_t size;      /* of this struct */
  const char *text; /* a template to use instead of the model's own; NULL: the model's */
  size_t length;
  const char *name; /* with `text`: its name in messages. Without: which of the model's named templates; NULL: the one
                       for tools if `tools` is set and there is one, else the default */
  bool tools;
  setun_log_fn log; /* called when the model's own template is missing or known to be wrong, with the replacement */
  void *user;
} setun_chat_params;

SETUN_PARAMS(setun_chat_params)

/* Takes the template from the model's files: the GGUF keys tokenizer.chat_template and tokenizer.chat_template.NAME; or
 * chat_template.jinja, additional_chat_templates/NAME.jinja, tokenizer_config.json, chat_template.json. A template that
 * is missing, or known to be wrong, is replaced by the family's if that is known, and logged; otherwise it is an error.
 * `model` may be NULL if `text` is given; it must outlive the chat. `params` may be NULL. The caller frees *chat with
 * setun_chat_free. */
SETUN_API setun_status setun_chat_new(const setun_model *model, const setun_chat_params *params, setun_chat **chat,
                                      setun_error *error);
SETUN_API void setun_chat_free(setun_chat *chat);
/* Where the template came from: "tokenizer.chat_template", "chat_template.jinja", ...; lives as long as the chat. */
SETUN_API const char *setun_chat_origin(const setun_chat *chat);
/* Experimental. The template itself, *length bytes and a 0 byte; lives as long as the chat. */
SETUN_API const char *setun_chat_text(const setun_chat *chat, size_t *length);

/* The local time that a template may ask for. */
typedef struct setun_clock {
  int year, month, day, hour, minute, second; /* 2026, 1..12, 1..31, 0..23, 0..59, 0..60 */
} setun_clock;

/* A conversation rendered as text. It belongs to one thread at a time; its chat and the chat's model must outlive
 * it. */
typedef struct setun_rendering setun_rendering;

/* Renders a JSON object of the template's variables: "messages", "tools", "add_generation_prompt", ... The tokenizer's
 * bos_token, eos_token and unk_token are added if absent. `now` NULL: the current local time. When the template itself
 * refuses the conversation (raise_exception), it is SETUN_ERROR_ARGUMENT with the template's message. The caller frees
 * *rendering with setun_rendering_free. */
SETUN_API setun_status setun_chat_render(const setun_chat *chat, const char *context, size_t length,
                                         const setun_clock *now, setun_rendering **rendering, setun_error *error);
SETUN_API void setun_rendering_free(setun_rendering *rendering);
/* Experimental. The same for a conversation in the form of OpenAI's API, converted to the template's form: tools
 * ("tools") and calls ("tool_calls" of an assistant's message, whose arguments may be JSON text) with their results
 * (messages of role "tool" with "tool_call_id" and a text as content). If the template does not support tools, the
 * system message describes them. The answer, see setun_reply_new, may then contain calls of these tools. */
SETUN_API setun_status setun_chat_render_tools(const setun_chat *chat, const char *context, size_t length,
                                               const setun_clock *now, setun_rendering **rendering, setun_error *error);
/* Experimental. How the model writes calls of tools: "hermes", "llama-3", "mistral-args", ...; "described" if the
 * template defines no format. Static text. */
SETUN_API const char *setun_chat_tool_format(const setun_chat *chat);
/* The text, *length bytes and a 0 byte; lives as long as the rendering. */
SETUN_API const char *setun_rendering_text(const setun_rendering *rendering, size_t *length);
/* The parts that came from the variables rather than from the template, in ascending order. */
SETUN_API const setun_span *setun_rendering_spans(const setun_rendering *rendering, size_t *count);
/* The tokens, as from setun_tokenize: the template's control tokens are recognized; what looks like one in a part that
 * came from the variables remains text. BOS is prepended, once, if the tokenizer or the template requires it. */
SETUN_API setun_status setun_rendering_tokenize(const setun_rendering *rendering, setun_token *ids, size_t capacity,
                                                size_t *count, setun_error *error);

/* The purpose of a part of a model's answer. */
typedef enum setun_channel {
  SETUN_CHANNEL_CONTENT,    /* the answer */
  SETUN_CHANNEL_REASONING,  /* reasoning before the answer, omitted from later turns */
  SETUN_CHANNEL_COMMENTARY, /* messages of a Harmony model to the user between tool calls */
  SETUN_CHANNEL_CALL,       /* the arguments of a call of a tool: JSON text of an object, possibly in several pieces */
  SETUN_CHANNEL_CALL_NAME   /* a call of a tool begins: the tool's name, all at once */
} setun_channel;

/* "content", "reasoning", "commentary", "call", "call_name"; NULL: not a setun_channel. */
SETUN_API const char *setun_channel_name(setun_channel channel);

/* Splits an answer into channels as its tokens arrive: <think> blocks and similar ones, the channels of the Harmony
 * format (gpt-oss), and calls of the tools that setun_chat_render_tools was given, in the model's own format. A call is
 * output once it is complete, with arguments that are valid JSON; what looks like a call but is not is content. It
 * belongs to one thread at a time. */
typedef struct setun_reply setun_reply;

/* Receives a channel's text, complete UTF-8 characters, valid during the call; returning false asks to stop. */
typedef bool (*setun_reply_fn)(setun_channel channel, const char *text, size_t length, void *user);

/* For the answer to a rendered conversation, which determines whether the answer begins inside a block. */
SETUN_API setun_status setun_reply_new(const setun_rendering *prompt, setun_reply **reply, setun_error *error);
SETUN_API void setun_reply_free(setun_reply *reply);
/* Adds the next token. Control tokens are never part of the text. SETUN_ERROR_CANCELED after `fn` returned false. */
SETUN_API setun_status setun_reply_push(setun_reply *reply, setun_token id, setun_reply_fn fn, void *user,
                                        setun_error *error);
/* Experimental. Gives calls as they come, name and pieces of the arguments, for an answer that a constraint makes certain
 * (setun_constraint_new_answer): before its first token. */
SETUN_API void setun_reply_stream_calls(setun_reply *reply);
/* Experimental. Whether a token was pushed that ends an answer although it is not one of the model's end tokens: the
 * one that some models write before a tool's result. */
SETUN_API bool setun_reply_is_over(const setun_reply *reply);
/* At the end of the answer: outputs the text that was withheld. */
SETUN_API setun_status setun_reply_finish(setun_reply *reply, setun_reply_fn fn, void *user, setun_error *error);

#ifdef __cplusplus
}
#endif

#endif
