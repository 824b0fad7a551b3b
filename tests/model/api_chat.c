// The chat section of setun.h: what it refuses, and the parts of answers, token by token.
#include "models.h"

#define MODEL SETUN_SOURCE_DIR "/models/setun-tales-7m"

static setun_model *vocabulary(void) {
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  if (setun_model_load_vocabulary(MODEL, NULL, &m, &err) != SETUN_OK) fail_msg("%s", err.message);
  return m;
}

static setun_chat *chat_of(const setun_model *m, const char *text) {
  setun_error err = {SETUN_OK, ""};
  setun_chat_params p = setun_chat_params_default();
  setun_chat *chat = NULL;
  p.text = text, p.length = strlen(text);
  if (setun_chat_new(m, &p, &chat, &err) != SETUN_OK) fail_msg("%s", err.message);
  return chat;
}

static setun_rendering *rendering_of(const setun_chat *chat, const char *context) {
  setun_error err = {SETUN_OK, ""};
  setun_rendering *r = NULL;
  if (setun_chat_render(chat, context, strlen(context), NULL, &r, &err) != SETUN_OK) fail_msg("%s", err.message);
  return r;
}

static void expect(setun_status want, setun_status got, const setun_error *err, const char *mention) {
  if (got != want || err->code != want) fail_msg("expected status %d, found %d: %s", want, got, err->message);
  assert_null(strpbrk(err->message, "\r\n"));
  if (!strstr(err->message, mention)) fail_msg("\"%s\" does not mention %s", err->message, mention);
}

static void refusals(void **state) {
  (void)state;
  setun_model *m = vocabulary();
  setun_error err;
  setun_chat_params p = setun_chat_params_default();
  setun_chat *chat = NULL;
  setun_rendering *r = NULL;
  expect(SETUN_ERROR_ARGUMENT, setun_chat_new(NULL, NULL, &chat, &err), &err, "neither");
  expect(SETUN_ERROR_STATE, setun_chat_new(m, NULL, &chat, &err), &err, "a template may be given");
  p.name = "rag";
  expect(SETUN_ERROR_STATE, setun_chat_new(m, &p, &chat, &err), &err, "rag");
  p.text = "{% frobnicate %}", p.length = strlen(p.text);
  expect(SETUN_ERROR_FORMAT, setun_chat_new(m, &p, &chat, &err), &err, "rag: line 1");
  p.text = "\xFF", p.length = 1;
  expect(SETUN_ERROR_FORMAT, setun_chat_new(m, &p, &chat, &err), &err, "UTF-8");
  assert_null(chat);
  assert_int_equal(setun_chat_new(m, NULL, &chat, NULL), SETUN_ERROR_STATE);
  chat = chat_of(m, "{{ raise_exception('no ' ~ what) }}");
  expect(SETUN_ERROR_FORMAT, setun_chat_render(chat, "[]", 2, NULL, &r, &err), &err, "object");
  expect(SETUN_ERROR_FORMAT, setun_chat_render(chat, "{", 1, NULL, &r, &err), &err, "line 1");
  expect(SETUN_ERROR_ARGUMENT, setun_chat_render(chat, "{\"what\": \"way\"}", 15, NULL, &r, &err), &err, "no way");
  static const setun_clock wrong[] = {{2023, 2, 29, 0, 0, 0}, {2024, 13, 1, 0, 0, 0}, {2024, 1, 1, 24, 0, 0},
                                      {0, 1, 1, 0, 0, 0},     {2024, 1, 0, 0, 0, 0},  {2024, 1, 1, 0, 60, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    expect(SETUN_ERROR_ARGUMENT, setun_chat_render(chat, "{}", 2, &wrong[i], &r, &err), &err, "clock");
  }
  assert_null(r);
  setun_chat_free(chat);
  setun_model_free(m);
  setun_chat_free(NULL);
  setun_rendering_free(NULL);
  setun_reply_free(NULL);
}

static void without_a_model(void **state) {
  (void)state;
  setun_chat *chat = chat_of(NULL, "{{ a }}<b>{{ bos_token is defined }}");
  setun_rendering *r = rendering_of(chat, "{\"a\": \"xyz\"}");
  setun_reply *reply = NULL;
  setun_error err;
  size_t n = 0;
  assert_string_equal(setun_rendering_text(r, &n), "xyz<b>False");
  assert_int_equal(n, 11);
  const setun_span *spans = setun_rendering_spans(r, &n);
  assert_int_equal(n, 1);
  assert_int_equal(spans[0].begin, 0);
  assert_int_equal(spans[0].end, 3);
  expect(SETUN_ERROR_STATE, setun_rendering_tokenize(r, NULL, 0, &n, &err), &err, "without a model");
  expect(SETUN_ERROR_STATE, setun_reply_new(r, &reply, &err), &err, "without a model");
  assert_string_equal(setun_chat_origin(chat), "template");
  setun_rendering_free(r);
  setun_chat_free(chat);
}

// The capacity limits what is written, not what is counted.
static void capacities(void **state) {
  (void)state;
  setun_model *m = vocabulary();
  setun_chat *chat = chat_of(m, "Once upon a time{{ bos_token }}");
  setun_rendering *r = rendering_of(chat, "{}");
  setun_token all[64], some[64];
  size_t total = 0, n = 0;
  assert_int_equal(setun_rendering_tokenize(r, all, 64, &total, NULL), SETUN_OK);
  assert_in_range(total, 4, 64);
  assert_int_equal(all[0], 0);         // added, as the tokenizer specifies
  assert_int_equal(all[total - 1], 0); // the template's own
  for (size_t capacity = 0; capacity <= total; capacity++) {
    memset(some, 0x55, sizeof some);
    assert_int_equal(setun_rendering_tokenize(r, some, capacity, &n, NULL), SETUN_OK);
    assert_int_equal(n, total);
    assert_memory_equal(some, all, capacity * sizeof *all);
    assert_int_equal(some[capacity], 0x55555555);
  }
  setun_rendering_free(r);
  setun_chat_free(chat);
  setun_model_free(m);
}

typedef struct answer {
  char text[4][256]; // of each channel
  bool stop;
} answer;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  answer *a = user;
  strncat(a->text[channel], text, length);
  return !a->stop;
}

static void answers(void **state) {
  (void)state;
  static const struct {
    const char *tail, *answer, *reasoning, *content;
  } rows[] = {
      {"", "Yes, caf\xC3\xA9.", "", "Yes, caf\xC3\xA9."},
      {"", "<think>Hm \xE6\x97\xA5.</think>\n\nYes.", "Hm \xE6\x97\xA5.", "Yes."},
      {"<think>\n", "Hm.</think>Yes.", "Hm.", "Yes."},
      {"<think>\n\n</think>\n\n", "Yes.", "", "Yes."},
  };
  setun_model *m = vocabulary();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    setun_chat *chat = chat_of(m, rows[i].tail);
    setun_rendering *r = rendering_of(chat, "{}");
    setun_reply *reply = NULL;
    setun_token ids[128];
    size_t n = 0;
    answer a = {0};
    assert_int_equal(setun_tokenize(m, rows[i].answer, strlen(rows[i].answer), 0, ids, 128, &n, NULL), SETUN_OK);
    assert_int_equal(setun_reply_new(r, &reply, NULL), SETUN_OK);
    for (size_t k = 0; k < n; k++) assert_int_equal(setun_reply_push(reply, ids[k], take, &a, NULL), SETUN_OK);
    assert_int_equal(setun_reply_push(reply, 1, take, &a, NULL), SETUN_OK); // an end token is not text
    assert_int_equal(setun_reply_finish(reply, take, &a, NULL), SETUN_OK);
    assert_string_equal(a.text[SETUN_CHANNEL_REASONING], rows[i].reasoning);
    assert_string_equal(a.text[SETUN_CHANNEL_CONTENT], rows[i].content);
    assert_int_equal(setun_reply_push(reply, ids[0], NULL, NULL, NULL), SETUN_ERROR_ARGUMENT);
    assert_int_equal(setun_reply_push(NULL, ids[0], take, &a, NULL), SETUN_ERROR_ARGUMENT);
    assert_int_equal(setun_reply_finish(reply, NULL, NULL, NULL), SETUN_ERROR_ARGUMENT);
    a.stop = true;
    setun_status s = SETUN_OK;
    for (size_t k = 0; k < n && s == SETUN_OK; k++) s = setun_reply_push(reply, ids[k], take, &a, NULL);
    assert_int_equal(s, SETUN_ERROR_CANCELED);
    setun_reply_free(reply);
    setun_rendering_free(r);
    setun_chat_free(chat);
  }
  setun_model_free(m);
}

// A user's text after the template's mark for thoughts does not open them.
static void thoughts_are_the_templates(void **state) {
  (void)state;
  setun_model *m = vocabulary();
  setun_chat *chat = chat_of(m, "{{ text }}");
  setun_rendering *r = rendering_of(chat, "{\"text\": \"<think>\"}");
  setun_reply *reply = NULL;
  setun_token ids[16];
  size_t n = 0;
  answer a = {0};
  setun_error err;
  assert_int_equal(setun_tokenize(m, "Yes.", 4, 0, ids, 16, &n, NULL), SETUN_OK);
  assert_int_equal(setun_reply_new(r, &reply, NULL), SETUN_OK);
  for (size_t k = 0; k < n; k++) assert_int_equal(setun_reply_push(reply, ids[k], take, &a, NULL), SETUN_OK);
  assert_int_equal(setun_reply_finish(reply, take, &a, NULL), SETUN_OK);
  assert_string_equal(a.text[SETUN_CHANNEL_CONTENT], "Yes.");
  expect(SETUN_ERROR_ARGUMENT, setun_reply_push(reply, 1 << 20, take, &a, &err), &err, "");
  setun_reply_free(reply);
  setun_rendering_free(r);
  setun_chat_free(chat);
  setun_model_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refusals),
      cmocka_unit_test(without_a_model),
      cmocka_unit_test(capacities),
      cmocka_unit_test(answers),
      cmocka_unit_test(thoughts_are_the_templates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
