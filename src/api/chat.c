// setun.h: chat templates, rendered conversations, and the channels of answers.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "chat/channels.h"
#include "chat/tool_calls.h"
#include "chat/tool_history.h"
#include "jinja/template.h"

#include <string.h>

struct setun_chat {
  const setun_model *model; // NULL: only a template's text was given
  st_template *compiled;
  char *origin, *text; // text: `length` bytes and a 0
  size_t length;
  st_tool_template tools;
};

struct setun_rendering {
  const setun_chat *chat;
  st_buffer text;
  setun_span *spans;
  size_t n_spans;
  bool with_tools; // the answer may have calls of
  st_buffer tools; // these: JSON text of an array
};

struct setun_reply {
  const st_tokenizer *tokenizer;
  st_decoder *decoder;
  st_channels channels;
  st_calls calls;
  st_json *tools;
  setun_reply_fn fn; // of the present call
  void *user;
  setun_error *err;
  setun_status status;
};

static bool has_control(const void *tokenizer, const char *text) {
  int32_t id = st_tokenizer_find(tokenizer, text, strlen(text));
  return id >= 0 && st_tokenizer_is_control(tokenizer, id);
}

static st_chat_model chat_model(const st_spec *spec, const char *architecture, const st_tokenizer *t) {
  return (st_chat_model){.architecture = architecture,
                         .templates = spec ? spec->chat_templates : NULL,
                         .has_control = has_control,
                         .user = t};
}

setun_status st_notice_template(const st_directory *d, const st_templates *templates, const char *architecture,
                                const st_tokenizer *t, setun_error *err) {
  st_chat_model facts = chat_model(st_spec_of(d), architecture, t);
  st_chosen_template chosen = {0};
  setun_status s = st_choose_template(templates, &facts, NULL, false, NULL, &chosen, NULL);
  if (s != SETUN_OK || !chosen.replaces) return SETUN_OK; // reported when it is rendered
  return st_notices_add(d->notices, SETUN_LOG_INFO, err,
                        "%s: %s is not what the model was trained with: `chat` uses that of %s, or --template", d->path,
                        chosen.replaces, chosen.origin);
}

static setun_status choose(const setun_model *model, const setun_chat_params *p, st_chosen_template *chosen,
                           setun_error *err) {
  if (p->text) {
    *chosen = (st_chosen_template){.text = p->text, .origin = p->name ? p->name : "template", .length = p->length};
    return SETUN_OK;
  }
  if (!model) return st_fail(err, SETUN_ERROR_ARGUMENT, "chat: expected a model or a template, found neither");
  st_log log = {p->log, p->user};
  st_chat_model facts = chat_model(model->spec, model->architecture, model->tokenizer);
  return st_choose_template(&model->templates, &facts, p->name, p->tools, &log, chosen, err);
}

setun_status setun_chat_new(const setun_model *model, const setun_chat_params *params, setun_chat **chat,
                            setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_chat_params p;
  st_chosen_template chosen = {0};
  ST_NEED(chat);
  setun_status s = st_take_chat_params(&p, params, error);
  if (s == SETUN_OK && !p.text && p.length) s = st_fail_null("setun_chat_params.text", error);
  if (s == SETUN_OK) s = choose(model, &p, &chosen, error);
  if (s != SETUN_OK) return s;
  setun_chat *c = st_calloc(1, sizeof *c);
  if (!c) return st_fail_memory(error, "a chat template");
  c->model = model;
  c->origin = st_strdup(chosen.origin);
  c->text = chosen.length < SIZE_MAX ? st_malloc(chosen.length + 1, 1) : NULL;
  if (c->text) {
    if (chosen.length) memcpy(c->text, chosen.text, chosen.length);
    c->text[c->length = chosen.length] = 0;
    st_tool_template_of(c->text, c->length, &c->tools);
  }
  s = c->origin && c->text ? st_template_compile(chosen.text, chosen.length, c->origin, &c->compiled, error)
                           : st_fail_memory(error, "a chat template");
  if (s == SETUN_OK) {
    *chat = c;
  } else {
    setun_chat_free(c);
  }
  return s;
}

void setun_chat_free(setun_chat *chat) {
  if (!chat) return;
  st_template_free(chat->compiled);
  st_free(chat->origin);
  st_free(chat->text);
  st_free(chat);
}

const char *setun_chat_origin(const setun_chat *chat) {
  return chat ? chat->origin : NULL;
}

const char *setun_chat_text(const setun_chat *chat, size_t *length) {
  if (length) *length = chat ? chat->length : 0;
  return chat ? chat->text : NULL;
}

// ---- rendering ----

// Adds a special token's text as a variable, if the tokenizer has the token and the context lacks the variable.
static setun_status add_token(st_json *context, const char *name, const st_tokenizer *t, int32_t id, setun_error *err) {
  const char *bytes = NULL;
  size_t length = 0;
  if (id < 0 || st_json_find(context, name)) return SETUN_OK;
  setun_status s = st_tokenizer_piece(t, id, true, &bytes, &length, err);
  if (s != SETUN_OK || !st_utf8_valid(bytes, length)) return s;
  st_json_set(context, context, name, st_json_make_string(context, bytes, length));
  return st_json_failed(context) ? st_fail_memory(err, name) : SETUN_OK;
}

static setun_status add_tokens(st_json *context, const setun_model *model, setun_error *err) {
  if (!model) return SETUN_OK;
  const st_tokenizer *t = model->tokenizer;
  setun_status s = add_token(context, "bos_token", t, st_tokenizer_bos(t), err);
  if (s == SETUN_OK) s = add_token(context, "eos_token", t, st_tokenizer_eos(t), err);
  if (s == SETUN_OK) s = add_token(context, "unk_token", t, st_tokenizer_unk(t), err);
  return s;
}

static setun_status render(setun_rendering *r, const st_json *context, const setun_clock *now, setun_error *err) {
  st_template_time time = {0};
  st_template_options options = {0};
  st_template_spans spans = {0};
  if (now) {
    time = (st_template_time){now->year, now->month, now->day, now->hour, now->minute, now->second, 0};
    options.now = &time;
  }
  setun_status s = st_template_render(r->chat->compiled, context, &options, &r->text, &spans, err);
  if (s == SETUN_OK && spans.n) {
    r->spans = st_malloc(spans.n, sizeof *r->spans);
    if (!r->spans) s = st_fail_memory(err, "a conversation");
    for (size_t i = 0; r->spans && i < spans.n; i++) {
      r->spans[i] = (setun_span){spans.items[i].begin, spans.items[i].end};
    }
    r->n_spans = r->spans ? spans.n : 0;
  }
  st_template_spans_free(&spans);
  return s;
}

static bool is_clock(const setun_clock *t) {
  static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool leap = t->year % 4 == 0 && (t->year % 100 != 0 || t->year % 400 == 0);
  if (t->year < 1 || t->year > 9999 || t->month < 1 || t->month > 12 || t->day < 1) return false;
  if (t->day > days[t->month - 1] - (t->month == 2 && !leap)) return false;
  return t->hour >= 0 && t->hour < 24 && t->minute >= 0 && t->minute < 60 && t->second >= 0 && t->second <= 60;
}

static setun_status check_clock(const setun_clock *now, setun_error *err) {
  if (!now || is_clock(now)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "clock: expected a time in the years 1 to 9999, found %d-%d-%d %d:%d:%d",
                 now->year, now->month, now->day, now->hour, now->minute, now->second);
}

// Renders variables, which stay the caller's.
static setun_status render_variables(const setun_chat *chat, st_json *variables, const setun_clock *now,
                                     setun_rendering **out, setun_error *err) {
  setun_rendering *r = st_calloc(1, sizeof *r);
  setun_status s = r ? add_tokens(variables, chat->model, err) : st_fail_memory(err, "a conversation");
  if (s == SETUN_OK) {
    r->chat = chat;
    s = render(r, variables, now, err);
  }
  if (s == SETUN_OK) {
    *out = r;
  } else {
    setun_rendering_free(r);
  }
  return s;
}

setun_status setun_chat_render(const setun_chat *chat, const char *context, size_t length, const setun_clock *now,
                               setun_rendering **rendering, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(chat);
  ST_NEED(context);
  ST_NEED(rendering);
  st_json *variables = NULL;
  setun_status s = check_clock(now, error);
  if (s == SETUN_OK) s = st_json_parse_values(context, length, "context", &variables, error);
  if (s == SETUN_OK) s = render_variables(chat, variables, now, rendering, error);
  st_json_free(variables);
  return s;
}

static setun_status render_adapted(const setun_chat *chat, const char *context, size_t length, int form,
                                   const setun_clock *now, setun_rendering **out, setun_error *err) {
  st_json *variables = NULL;
  setun_rendering *r = NULL;
  setun_status s = st_json_parse_values(context, length, "context", &variables, err);
  if (s == SETUN_OK) s = st_tool_adapt(&chat->tools, form, variables, err);
  if (s == SETUN_OK) s = render_variables(chat, variables, now, &r, err);
  const st_json *tools = st_json_get(variables, "tools");
  if (s == SETUN_OK && st_json_size(tools)) {
    r->with_tools = st_json_append_shortest(tools, &r->tools);
    if (!r->with_tools) s = st_fail_memory(err, "the tools");
  }
  st_json_free(variables);
  if (s == SETUN_OK) {
    *out = r;
  } else {
    setun_rendering_free(r);
  }
  return s;
}

setun_status setun_chat_render_tools(const setun_chat *chat, const char *context, size_t length, const setun_clock *now,
                                     setun_rendering **rendering, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(chat);
  ST_NEED(context);
  ST_NEED(rendering);
  setun_status s = check_clock(now, error);
  if (s == SETUN_OK) s = render_adapted(chat, context, length, 0, now, rendering, error);
  for (int form = 1; s == SETUN_ERROR_FORMAT && form < ST_TOOL_FORMS; form++) {
    if (render_adapted(chat, context, length, form, now, rendering, NULL) == SETUN_OK) s = SETUN_OK;
  }
  return s;
}

const char *setun_chat_tool_format(const setun_chat *chat) {
  return chat ? chat->tools.format->name : NULL;
}

void setun_rendering_free(setun_rendering *rendering) {
  if (!rendering) return;
  st_buffer_free(&rendering->text);
  st_buffer_free(&rendering->tools);
  st_free(rendering->spans);
  st_free(rendering);
}

const char *setun_rendering_text(const setun_rendering *rendering, size_t *length) {
  if (length) *length = rendering ? rendering->text.length : 0;
  return !rendering ? NULL : rendering->text.data ? rendering->text.data : "";
}

const setun_span *setun_rendering_spans(const setun_rendering *rendering, size_t *count) {
  if (count) *count = rendering ? rendering->n_spans : 0;
  return rendering ? rendering->spans : NULL;
}

// BOS exactly once: not if the template wrote it, and not twice if it is written twice.
static void resolve_bos(const st_tokenizer *t, const st_token_list *list, size_t *skip, bool *add) {
  int32_t bos = st_tokenizer_bos(t);
  *skip = 0;
  while (bos >= 0 && *skip + 1 < list->length && list->ids[*skip] == bos && list->ids[*skip + 1] == bos) ++*skip;
  *add = bos >= 0 && st_tokenizer_add_bos(t) && !(list->length && list->ids[0] == bos);
}

setun_status setun_rendering_tokenize(const setun_rendering *rendering, setun_token *ids, size_t capacity,
                                      size_t *count, setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  ST_NEED(rendering);
  ST_NEED_ARRAY(ids, capacity);
  ST_NEED(count);
  const setun_rendering *r = rendering;
  if (!r->chat->model) return st_fail(error, SETUN_ERROR_STATE, "chat: the template was given without a model");
  const st_tokenizer *t = r->chat->model->tokenizer;
  st_token_list list = {0};
  size_t length, skip;
  bool add;
  const char *text = setun_rendering_text(r, &length);
  setun_status s = st_tokenizer_encode_guarded(t, text, length, r->spans, r->n_spans, &list, error);
  if (s == SETUN_OK) {
    resolve_bos(t, &list, &skip, &add);
    if (add && capacity) ids[0] = st_tokenizer_bos(t);
    size_t room = capacity > add ? capacity - add : 0, n = list.length - skip;
    if (room && n) memcpy(ids + add, list.ids + skip, (n < room ? n : room) * sizeof *ids);
    *count = n + add;
  }
  st_token_list_free(&list);
  return s;
}

// ---- answers ----

const setun_model *st_rendering_model(const setun_rendering *rendering) {
  return rendering->chat->model;
}

const char *st_rendering_tools(const setun_rendering *rendering, size_t *length) {
  *length = rendering->tools.length;
  return rendering->with_tools ? rendering->tools.data : NULL;
}

// The template's own text after what users wrote last.
static st_text tail_of(const setun_rendering *r) {
  size_t from = r->n_spans ? r->spans[r->n_spans - 1].end : 0, length;
  const char *text = setun_rendering_text(r, &length);
  return (st_text){text + from, length - from};
}

st_answer_place st_rendering_place(const setun_rendering *rendering) {
  const setun_chat *chat = rendering->chat;
  return (st_answer_place){.tokenizer = chat->model->tokenizer,
                           .format = chat->tools.format,
                           .template_text = {chat->text, chat->length},
                           .tail = tail_of(rendering)};
}

// Control tokens of the format never match plain text.
static setun_status use_tools(setun_reply *r, const setun_rendering *prompt, setun_error *err) {
  const st_tool_format *format = prompt->chat->tools.format;
  if (!prompt->with_tools) return SETUN_OK;
  setun_status s = st_json_parse_any(prompt->tools.data, prompt->tools.length, "tools", &r->tools, err);
  r->calls.format = format;
  r->calls.tools = r->tools;
  for (size_t i = 0; i < ST_TOOL_OPENS && format->opens[i]; i++)
    r->calls.control[i] = has_control(r->tokenizer, format->opens[i]);
  return s;
}

setun_status setun_reply_new(const setun_rendering *prompt, setun_reply **reply, setun_error *error) {
  ST_NEED(prompt);
  ST_NEED(reply);
  if (!prompt->chat->model) return st_fail(error, SETUN_ERROR_STATE, "chat: the template was given without a model");
  setun_reply *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(error, "an answer");
  r->tokenizer = prompt->chat->model->tokenizer;
  setun_status s = st_decoder_new(r->tokenizer, false, true, &r->decoder, error);
  if (s == SETUN_OK) s = use_tools(r, prompt, error);
  if (s != SETUN_OK) {
    setun_reply_free(r);
    return s;
  }
  st_text tail = tail_of(prompt);
  st_channels_begin(&r->channels, tail.data, tail.length);
  *reply = r;
  return SETUN_OK;
}

void setun_reply_free(setun_reply *reply) {
  if (!reply) return;
  st_decoder_free(reply->decoder);
  st_channels_free(&reply->channels);
  st_calls_free(&reply->calls);
  st_json_free(reply->tools);
  st_free(reply);
}

void setun_reply_stream_calls(setun_reply *reply) {
  if (reply) reply->calls.streams = true;
}

bool setun_reply_is_over(const setun_reply *reply) {
  return reply && reply->calls.over;
}

// A setun_reply_fn: passes the channels' text on to the calls, except for reasoning and the like.
static bool route(setun_channel channel, const char *text, size_t length, void *user) {
  setun_reply *r = user;
  st_calls *c = &r->calls;
  if (channel != SETUN_CHANNEL_CALL && c->open) r->status = st_calls_message_end(c, r->fn, r->user, r->err);
  if (r->status != SETUN_OK) return false;
  if (channel == SETUN_CHANNEL_CONTENT)
    r->status = st_calls_text(c, text, length, r->fn, r->user, r->err);
  else if (channel == SETUN_CHANNEL_CALL_NAME)
    r->status = st_calls_message(c, text, length, r->fn, r->user, r->err);
  else if (channel == SETUN_CHANNEL_CALL)
    r->status = st_calls_message_text(c, text, length, r->fn, r->user, r->err);
  else if (!r->fn(channel, text, length, r->user))
    r->status = st_fail(r->err, SETUN_ERROR_CANCELED, "canceled");
  return r->status == SETUN_OK;
}

// The status of what the channels did: what `route` failed with counts.
static setun_status routed(setun_reply *r, setun_status s) {
  return r->status != SETUN_OK ? r->status : s;
}

static void begin_routing(setun_reply *r, setun_reply_fn fn, void *user, setun_error *err) {
  r->fn = fn;
  r->user = user;
  r->err = err;
  r->status = SETUN_OK;
}

static setun_status give_text(setun_reply *r, const char *text, size_t length, setun_error *err) {
  setun_error own;
  setun_status s = st_channels_text(&r->channels, text, length, route, r, &own);
  if (r->status == SETUN_OK && s != SETUN_OK && err) *err = own;
  return routed(r, s);
}

static setun_status flush(setun_reply *r, setun_error *err) {
  const char *text = NULL;
  size_t length = 0;
  setun_status s = st_decoder_finish(r->decoder, &text, &length, err);
  return s == SETUN_OK ? give_text(r, text, length, err) : s;
}

static setun_status give_control(setun_reply *r, const char *text, size_t length, setun_error *err) {
  setun_error own;
  bool call = st_channels_in_answer(&r->channels) && st_calls_takes(&r->calls, text, length);
  setun_status s = call ? st_channels_answer(&r->channels, route, r, &own)
                        : st_channels_control(&r->channels, text, length, route, r, &own);
  if (r->status == SETUN_OK && s != SETUN_OK && err) *err = own;
  s = routed(r, s);
  return s == SETUN_OK && call ? st_calls_control(&r->calls, text, length, r->fn, r->user, err) : s;
}

setun_status setun_reply_push(setun_reply *reply, setun_token id, setun_reply_fn fn, void *user, setun_error *error) {
  const char *text = NULL;
  size_t length = 0;
  ST_NEED(reply);
  ST_NEED(fn);
  begin_routing(reply, fn, user, error);
  if (!st_tokenizer_is_control(reply->tokenizer, id)) {
    setun_status s = st_decoder_push(reply->decoder, id, &text, &length, error);
    return s == SETUN_OK ? give_text(reply, text, length, error) : s;
  }
  setun_status s = flush(reply, error);
  if (s == SETUN_OK) s = st_tokenizer_piece(reply->tokenizer, id, true, &text, &length, error);
  return s == SETUN_OK ? give_control(reply, text, length, error) : s;
}

setun_status setun_reply_finish(setun_reply *reply, setun_reply_fn fn, void *user, setun_error *error) {
  setun_error own;
  ST_NEED(reply);
  ST_NEED(fn);
  begin_routing(reply, fn, user, error);
  setun_status s = flush(reply, error);
  if (s != SETUN_OK) return s;
  s = st_channels_finish(&reply->channels, route, reply, &own);
  if (reply->status == SETUN_OK && s != SETUN_OK && error) *error = own;
  s = routed(reply, s);
  return s == SETUN_OK ? st_calls_finish(&reply->calls, fn, user, error) : s;
}
