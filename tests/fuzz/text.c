// Fuzz target: any text through tokenizers and back, as what a user says in a conversation, and as a model's answer
// that is told apart into channels. The first byte says which; what must hold of every text is checked.
#include "chat/channels.h"
#include "tokenizer/tokenizer.h"

#include "base/file.h"
#include "base/memory.h"
#include "setun.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// ---- tokenizers ----

static const char *const FILES[] = {"golden/hf/llama3/tokenizer.json",
                                    "tok/gpt2.json",
                                    "tok/llama3.json",
                                    "tok/gpt4o.json",
                                    "tok/falcon.json",
                                    "tok/smollm.json",
                                    "tok/qwen2.json",
                                    "tok/llama2.json",
                                    "tok/metaspace.json",
                                    "tok/unigram.json",
                                    "tok/unigram_bytes.json",
                                    "tok/whitespace.json",
                                    "tok/splits.json",
                                    "tok/nofuse.json",
                                    "tok/sp_bpe.model",
                                    "tok/sp_bpe_user.model",
                                    "tok/sp_unigram.model",
                                    "tok/sp_unigram_bytes.model"};
enum { EXACT = 1 }; // so many of the first have all bytes and change nothing: decoding gives every text back
enum { N_FILES = sizeof FILES / sizeof FILES[0] };

static st_tokenizer *tokenizer(size_t which) {
  static st_tokenizer *made[N_FILES];
  if (made[which]) return made[which];
  char path[512], *text = NULL;
  size_t length = 0;
  snprintf(path, sizeof path, "%s/%s", SETUN_TEST_DATA, FILES[which]);
  if (st_file_load(path, 1 << 20, &text, &length, NULL) != SETUN_OK) abort();
  setun_status s = strstr(path, ".model") ? st_tokenizer_from_sentencepiece(text, length, path, &made[which], NULL)
                                          : st_tokenizer_from_json(text, length, path, &made[which], NULL);
  if (s != SETUN_OK) abort();
  st_free(text);
  return made[which];
}

static void decode(const st_tokenizer *t, const st_token_list *ids, const char *text, size_t length, bool exact) {
  st_decoder *d = NULL;
  st_buffer all = {0};
  const char *out;
  size_t n;
  if (st_decoder_new(t, true, false, &d, NULL) != SETUN_OK) abort();
  for (size_t i = 0; i < ids->length; i++) {
    if (st_decoder_push(d, ids->ids[i], &out, &n, NULL) != SETUN_OK) abort();
    if (!st_buffer_append(&all, out, n)) abort();
  }
  if (st_decoder_finish(d, &out, &n, NULL) != SETUN_OK || !st_buffer_append(&all, out, n)) abort();
  if (exact && (all.length != length || (length && memcmp(all.data, text, length)))) abort();
  st_buffer_free(&all);
  st_decoder_free(d);
}

static void encode(size_t which, const char *text, size_t length) {
  const st_tokenizer *t = tokenizer(which);
  st_token_list plain = {0}, special = {0}, guarded = {0};
  setun_span all = {0, length};
  setun_error err = {SETUN_OK, ""};
  setun_status s = st_tokenizer_encode(t, text, length, false, &plain, &err);
  if (s != SETUN_OK && (plain.length || !err.message[0])) abort();
  if (st_tokenizer_encode(t, text, length, true, &special, NULL) != s) abort();
  if (st_tokenizer_encode_guarded(t, text, length, &all, length > 0, &guarded, NULL) != s) abort();
  for (size_t i = 0; i < special.length; i++) {
    if (special.ids[i] < 0 || (uint32_t)special.ids[i] >= st_tokenizer_size(t)) abort();
  }
  // guarded as a whole: as without control tokens
  if (plain.length != guarded.length ||
      (plain.length && memcmp(plain.ids, guarded.ids, plain.length * sizeof *plain.ids))) {
    abort();
  }
  if (s == SETUN_OK) {
    decode(t, &plain, text, length, which < EXACT);
    decode(t, &special, text, length, which < EXACT);
  }
  st_token_list_free(&plain);
  st_token_list_free(&special);
  st_token_list_free(&guarded);
}

// ---- conversations ----

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}<s>{{ m.role }}\n{{ m.content | trim }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}";

static const setun_chat *chat(setun_model **model) {
  static setun_model *m;
  static setun_chat *c;
  if (!m && setun_model_load_vocabulary(SETUN_TEST_DATA "/golden/hf/llama3", NULL, &m, NULL) != SETUN_OK) abort();
  setun_chat_params p = setun_chat_params_default();
  p.text = template_text;
  p.length = strlen(template_text);
  p.name = "fuzz";
  if (!c && setun_chat_new(m, &p, &c, NULL) != SETUN_OK) abort();
  *model = m;
  return c;
}

// How many control tokens (0, 1 and 2 in this vocabulary) a user's text makes of the template; -1: refused.
static int controls(const char *text, size_t length) {
  setun_model *m;
  const setun_chat *c = chat(&m);
  json_t *content = json_stringn(text, length); // NULL: not UTF-8
  if (!content) return -1;
  json_t *context =
      json_pack("{s:[{s:s, s:o}], s:b}", "messages", "role", "user", "content", content, "add_generation_prompt", 1);
  char *json = context ? json_dumps(context, 0) : NULL;
  if (!json) abort();
  setun_rendering *r = NULL;
  setun_clock now = {2026, 1, 2, 3, 4, 5};
  int count = -1;
  if (setun_chat_render(c, json, strlen(json), &now, &r, NULL) == SETUN_OK) {
    size_t n = 0;
    if (setun_rendering_tokenize(r, NULL, 0, &n, NULL) != SETUN_OK) abort();
    setun_token *ids = calloc(n + 1, sizeof *ids);
    if (!ids || setun_rendering_tokenize(r, ids, n, &n, NULL) != SETUN_OK) abort();
    count = 0;
    for (size_t i = 0; i < n; i++) count += ids[i] <= 2;
    free(ids);
  }
  setun_rendering_free(r);
  free(json);
  json_decref(context);
  return count;
}

// ---- channels ----

typedef struct answer {
  st_buffer text[4]; // by channel
  setun_channel order[64];
  size_t n;
} answer;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  answer *a = user;
  if (!st_buffer_append(&a->text[channel], text, length)) abort();
  if (length && (!a->n || a->order[a->n - 1] != channel) && a->n < 64) a->order[a->n++] = channel;
  return true;
}

// Bytes from 0xF8 on, which no text has, are control tokens; the text between comes in pieces of `step` bytes.
static void feed(const char *tail, const char *text, size_t length, size_t step, answer *a) {
  static const char *const control[] = {"<|start|>",  "<|end|>",  "<|message|>", "<|channel|>",
                                        "<|return|>", "<|call|>", "<think>",     "</think>"};
  st_channels c;
  st_channels_begin(&c, tail, strlen(tail));
  for (size_t i = 0, n; i < length; i += n) {
    unsigned char byte = (unsigned char)text[i];
    n = 1;
    setun_status s;
    if (byte >= 0xF8) {
      s = st_channels_control(&c, control[byte - 0xF8], strlen(control[byte - 0xF8]), take, a, NULL);
    } else {
      while (n < step && i + n < length && (unsigned char)text[i + n] < 0xF8) n++;
      s = st_channels_text(&c, text + i, n, take, a, NULL);
    }
    if (s == SETUN_ERROR_LIMIT) break; // a header has no end
    if (s != SETUN_OK) abort();
  }
  if (st_channels_finish(&c, take, a, NULL) != SETUN_OK) abort();
  st_channels_free(&c);
}

// What comes out must not depend on how the text arrived.
static void channels(const char *text, size_t length) {
  static const char *const tails[] = {"", "<think>\n", "<|start|>assistant",
                                      "<|start|>assistant<|channel|>analysis<|message|>"};
  if (!length) return;
  const char *tail = tails[(unsigned char)text[0] % 4];
  answer whole = {0}, bytes = {0};
  feed(tail, text + 1, length - 1, SIZE_MAX, &whole);
  feed(tail, text + 1, length - 1, 1, &bytes);
  if (whole.n != bytes.n || memcmp(whole.order, bytes.order, whole.n * sizeof *whole.order)) abort();
  for (int i = 0; i < 4; i++) {
    if (whole.text[i].length != bytes.text[i].length ||
        (whole.text[i].length && memcmp(whole.text[i].data, bytes.text[i].data, whole.text[i].length))) {
      abort();
    }
    st_buffer_free(&whole.text[i]);
    st_buffer_free(&bytes.text[i]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  const char *text = (const char *)data + 1;
  unsigned which = data[0] % (N_FILES + 2);
  if (which < N_FILES) {
    encode(which, text, size - 1);
  } else if (which == N_FILES) {
    int n = controls(text, size - 1);
    if (n >= 0 && n != controls("x", 1)) abort();
  } else {
    channels(text, size - 1);
  }
  return 0;
}
