// Every function of setun.h with NULL and nonsense for each of its arguments: refused by status where NULL has no
// meaning of its own; never a crash, and output parameters untouched on failure. The calls are made from the header by
// tests/support/make_api_calls.py.
#define _XOPEN_SOURCE 700 // mkdtemp
#include "models.h"

#include <math.h>
#include <unistd.h>

// The valid arguments of the calls.
static const char *const model_path = GOLDEN "hf/bitnet-auto";
static char folder[] = "/tmp/setun-arguments-XXXXXX", target_path[64];
static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
static const char *const stop_texts[] = {"abc", "cd"};
static const setun_clock moment = {2026, 1, 2, 3, 4, 5};
static const setun_token ids[] = {1, 2};
static float *logits;
static _Alignas(16) char buffer[4096];
static setun_token out_ids[8];
static setun_candidate candidates[8];
static setun_logprob logprobs[8];
static const size_t capacity = 8;
static size_t length_of_text;
static setun_model *model;
static const setun_adapter list[] = {{"no-such-adapter", 1}, {"no-such-adapter", 1}};
static setun_adapters *adapters;
static setun_session *session_;
static setun_context *context;
static const setun_batch_entry entries[] = {{0, SETUN_LOGITS_LAST, ids, 1}, {1, SETUN_LOGITS_NONE, ids, 2}};
static const setun_embedding_input texts[] = {{ids, 1}, {ids, 2}};
static setun_sampler *sampler;
static setun_decoder *decoder;
static setun_stops *stops;
static setun_chat *chat;
static setun_rendering *rendering;
static setun_reply *reply;
static setun_constraint *constraint;
static setun_matcher *matcher;
static setun_file *file;
static setun_output *output;

static bool on_reply(setun_channel channel, const char *text, size_t length, void *user) {
  (void)channel, (void)text, (void)length, (void)user;
  return true;
}

#define MAKE(kind)                                                                                                     \
  static setun_##kind##_params make_##kind##_params(void) {                                                            \
    return setun_##kind##_params_default();                                                                            \
  }
MAKE(session)
MAKE(context)
MAKE(eval)
MAKE(sampler)
MAKE(chat)
MAKE(embedding)
MAKE(file)
static setun_model_params make_model_params(void) {
  setun_model_params p = setun_model_params_default();
  p.threads = 1;
  return p;
}
static setun_generate_params make_generate_params(void) {
  setun_generate_params p = setun_generate_params_default();
  p.max_tokens = 1;
  return p;
}
static setun_constraint_params make_constraint_params(void) {
  setun_constraint_params p = setun_constraint_params_default();
  p.grammar = SETUN_GRAMMAR_EXPRESSION;
  p.text = "(a|b)*";
  p.length = strlen(p.text);
  return p;
}
static setun_answer_params make_answer_params(void) {
  static setun_constraint_params text;
  setun_answer_params p = setun_answer_params_default();
  text = make_constraint_params();
  p.text = &text;
  return p;
}
static setun_convert_params make_convert_params(void) {
  setun_convert_params p = setun_convert_params_default();
  p.to = "tq2_0";
  return p;
}
static setun_quantize_params make_quantize_params(void) {
  setun_quantize_params p = setun_quantize_params_default();
  p.scheme = "q8_0";
  return p;
}
static setun_synthesis_params make_synthesis_params(void) {
  setun_synthesis_params p = setun_synthesis_params_default();
  p.shape = "tiny";
  p.format = "t16";
  return p;
}

// A status and, where there is one, an error that says the same; `refused`: the argument must be.
static void check(setun_status status, const setun_error *error, bool refused, const char *what) {
  if (!setun_status_name(status)) fail_msg("%s: no status: %d", what, (int)status);
  if (refused && status != SETUN_ERROR_ARGUMENT) {
    fail_msg("%s: expected SETUN_ERROR_ARGUMENT, found %s", what, setun_status_name(status));
  }
  if (!error || status == SETUN_OK) return;
  if (error->code != status || !*error->message)
    fail_msg("%s: status %d, error %d: \"%s\"", what, (int)status, (int)error->code, error->message);
}

// Output parameters hold a pattern before a call, so that one that fails is seen to leave them.
#define FILL(x) memset(&(x), 0xA5, sizeof(x))
static void check_filled(const void *filled, size_t from, size_t size, const char *what) {
  for (const unsigned char *p = filled; from < size; from++) {
    if (p[from] != 0xA5) fail_msg("%s: an output parameter was changed at byte %zu", what, from);
  }
}

#define session session_
#include "api_calls.h"
#undef session

static void make_objects(void) {
  setun_error err = {SETUN_OK, ""};
  setun_chat_params chat_params = setun_chat_params_default();
  chat_params.text = "{{ messages[0].content }}";
  chat_params.length = strlen(chat_params.text);
  setun_model_params one = make_model_params();
  setun_session_params small = setun_session_params_default();
  small.n_ctx = 64;
  small.threads = 1;
  setun_status s = setun_model_load(model_path, &one, &model, &err);
  if (s == SETUN_OK) s = setun_session_new(model, &small, &session_, &err);
  if (s == SETUN_OK) s = setun_session_eval(session_, ids, 2, NULL, &err);
  setun_context_params few = setun_context_params_default();
  few.n_ctx = 64;
  few.pooling = SETUN_POOLING_MODEL;
  few.threads = 1;
  int sequence = 0;
  if (s == SETUN_OK) s = setun_context_new(model, &few, &context, &err);
  for (int i = 0; i < 2 && s == SETUN_OK; i++) s = setun_context_add(context, &sequence, &err);
  if (s == SETUN_OK) s = setun_sampler_new(NULL, &sampler, &err);
  if (s == SETUN_OK) s = setun_decoder_new(model, 0, &decoder, &err);
  if (s == SETUN_OK) s = setun_stops_new(stop_texts, 2, &stops, &err);
  if (s == SETUN_OK) s = setun_chat_new(model, &chat_params, &chat, &err);
  if (s == SETUN_OK) s = setun_chat_render(chat, conversation, strlen(conversation), NULL, &rendering, &err);
  if (s == SETUN_OK) s = setun_reply_new(rendering, &reply, &err);
  setun_constraint_params ab = make_constraint_params();
  if (s == SETUN_OK) s = setun_constraint_new(model, &ab, &constraint, &err);
  if (s == SETUN_OK) s = setun_matcher_new(constraint, &matcher, &err);
  if (s == SETUN_OK) s = setun_file_open(model_path, NULL, &file, &err);
  if (s == SETUN_OK) s = setun_output_open(target_path, &output, &err);
  if (s != SETUN_OK) fail_msg("%s", err.message);
  logits = calloc(setun_model_n_vocab(model), sizeof *logits);
}

static void free_objects(void) {
  free(logits);
  setun_output_discard(output);
  setun_file_close(file);
  setun_matcher_free(matcher);
  setun_constraint_free(constraint);
  setun_reply_free(reply);
  setun_rendering_free(rendering);
  setun_chat_free(chat);
  setun_stops_free(stops);
  setun_decoder_free(decoder);
  setun_sampler_free(sampler);
  setun_context_free(context);
  setun_session_free(session_);
  setun_model_free(model);
  output = NULL, file = NULL, reply = NULL, rendering = NULL, chat = NULL, stops = NULL, decoder = NULL;
  matcher = NULL, constraint = NULL;
  sampler = NULL, context = NULL, session_ = NULL, model = NULL, logits = NULL;
}

static void every_function(void **state) {
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(target_path, sizeof target_path, "%s/target.gguf", folder);
  make_objects();
  for (size_t i = 0; i < sizeof api_calls / sizeof *api_calls; i++) {
    print_message("%s\n", api_calls[i].name); // a crash then shows where it happened
    api_calls[i].call();
    unlink(target_path);
  }
  free_objects();
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_function)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
