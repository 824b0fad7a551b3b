// The published pre-tokenizers: patterns that were rewritten to take linear time cut as the published ones do, every
// name can be set up, and one of each row takes a megabyte of anything.
#include "base/memory.h"
#include "tokenizer/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define UPPER "(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

static setun_error err;
static uint64_t state = 7;

static uint32_t draw(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

// Where each piece begins, one bit a byte; patterns split the pieces that those before them left.
static void cut(const char *const *patterns, const char *text, size_t begin, size_t end, st_pattern_matcher *m,
                bool *starts) {
  if (begin == end) return;
  starts[begin] = true;
  if (!*patterns) return;
  st_regex *r = NULL;
  if (st_regex_new(*patterns, strlen(*patterns), &r, &err)) fail_msg("%s", err.message);
  size_t done = 0, from = 0, length = end - begin;
  while (from < length) {
    bool found;
    size_t a, b;
    if (st_regex_match(r, m, text + begin, length, from, &found, &a, &b, &err)) fail_msg("%s", err.message);
    if (!found) break;
    cut(patterns + 1, text, begin + done, begin + a, m, starts);
    cut(patterns + 1, text, begin + a, begin + b, m, starts);
    done = from = b;
    if (a == b) {
      for (from++; from < length && ((unsigned char)text[begin + from] & 0xC0) == 0x80;) from++;
    }
  }
  cut(patterns + 1, text, begin + done, end, m, starts);
  st_regex_free(r);
}

static void random_text(char *out) {
  static const char *const parts[] = {"1",
                                      "2",
                                      "34",
                                      "567",
                                      "1234567",
                                      "\xC2\xBD",
                                      "\xD9\xA3",
                                      "a",
                                      "B",
                                      "Ab",
                                      " ",
                                      "  ",
                                      "\n",
                                      "\r\n",
                                      ".",
                                      "_",
                                      "-",
                                      "'s",
                                      "'LL",
                                      "\xC3\xA9",
                                      "\xCC\x81",
                                      "\xE4\xB8\xAD",
                                      "\xE3\x80\x85",
                                      "\xE3\x81\xAE",
                                      "\xED\x95\x9C",
                                      "\xF0\x9F\x98\x80",
                                      "/",
                                      "\xE3\x80\x80",
                                      "\t"};
  *out = '\0';
  for (uint32_t n = 1 + draw(14); n; n--) strcat(out, parts[draw(COUNT(parts))]);
}

static void test_rewritten(void **unused) {
  (void)unused;
  static const struct {
    const char *name, *published[8];
  } rows[] = {
      {"superbpe", {"\\p{N}+", "(?=(\\p{Nd}{3})+(?!\\p{Nd}))"}},
      {"tiny_aya",
       {"\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?:(?<=\\w)(?!\\w)|(?<!\\w)(?=\\w)))",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" SUFFIX
        "?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" SUFFIX
        "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"kimi-k2",
       {"\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?(?:" UPPER ")*(?:" LOWER ")+" SUFFIX "?|[^\\r\\n\\p{L}\\p{N}]?(?:" UPPER
        ")+(?:" LOWER ")*" SUFFIX "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"exaone-moe",
       {SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
               "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
  };
  enum { MOST = 256 };
  st_pattern_matcher m = {0};
  for (size_t i = 0; i < COUNT(rows); i++) {
    const st_pretokenizer *p = st_pretokenizer_find(rows[i].name);
    assert_non_null(p);
    for (int k = 0; k < 3000; k++) {
      char text[MOST];
      bool wanted[MOST] = {0}, got[MOST] = {0};
      random_text(text);
      size_t length = strlen(text);
      cut(rows[i].published, text, 0, length, &m, wanted);
      cut(p->patterns, text, 0, length, &m, got);
      if (memcmp(wanted, got, length)) fail_msg("%s cuts \"%s\" at other places", rows[i].name, text);
    }
  }
  st_pattern_matcher_free(&m);
}

// A byte-level vocabulary of the bytes alone, with a row's patterns.
static st_tokenizer *bytes_tokenizer(const char *pre) {
  static char printed[256][3];
  static st_text tokens[257];
  st_text merge = {"a a", 3};
  for (int i = 0; i < 256; i++) {
    char c = (char)i;
    tokens[i] = (st_text){printed[i], st_bytes_print(&c, 1, printed[i])};
  }
  tokens[256] = (st_text){"aa", 2};
  st_vocabulary v;
  st_vocabulary_init(&v);
  v.model = "gpt2", v.pre = pre, v.n = 257, v.tokens = tokens, v.n_merges = 1, v.merges = &merge;
  st_tokenizer *t = NULL;
  if (st_tokenizer_from_vocabulary(&v, &t, &err)) fail_msg("%s: %s", pre, err.message);
  return t;
}

// No byte is lost, no limit of PCRE2 is reached, and the time does not grow faster than the text (the test would not
// end).
static void test_megabytes(void **unused) {
  (void)unused;
  static const char *const names[] = {
      "default",    "gpt-2",      "smollm", "llama-bpe",    "minicpm5",       "qwen2",       "laguna",
      "ufakzeka",   "exaone-moe", "qwen35", "deepseek-llm", "deepseek-coder", "deepseek-v3", "spark2_5",
      "falcon",     "tekken",     "gpt-4o", "tiny_aya",     "youtu",          "kimi-k2",     "superbpe",
      "bailingmoe", "seed-coder", "bloom",  "viking",       "afmoe",          "jais-2",      "chameleon"};
  static const char *const units[] = {"a",
                                      " ",
                                      "\n",
                                      "\xF0\x9F\x98\x80",
                                      "\xCC\x81",
                                      "7",
                                      "!",
                                      "\xE4\xB8\xAD",
                                      "aB",
                                      "'",
                                      "\r\n",
                                      "7a",
                                      " a",
                                      "\xC2\xBD\x31", // 1/2 as a character, 1
                                      "\xE3\x80\x80"};
#ifdef __SANITIZE_ADDRESS__
  enum { LENGTH = 1 << 17 };
#else
  enum { LENGTH = 1 << 20 };
#endif
  char *text = st_malloc(LENGTH, 1);
  assert_non_null(text);
  for (size_t i = 0; i < COUNT(names); i++) {
    st_tokenizer *t = bytes_tokenizer(names[i]);
    for (size_t u = 0; u < COUNT(units); u++) {
      size_t n = strlen(units[u]), length = LENGTH / n * n, bytes = 0;
      for (size_t k = 0; k < length; k += n) memcpy(text + k, units[u], n);
      st_token_list ids = {0};
      if (st_tokenizer_encode(t, text, length, false, &ids, &err)) fail_msg("%s: %s", names[i], err.message);
      for (size_t k = 0; k < ids.length; k++) bytes += ids.ids[k] == 256 ? 2 : 1;
      assert_int_equal(bytes, length);
      st_token_list_free(&ids);
    }
    st_tokenizer_free(t);
  }
  st_free(text);
}

static void test_names(void **unused) {
  (void)unused;
  static const char *const names[] = {"default",
                                      "gpt-2",
                                      "olmo",
                                      "mpt",
                                      "phi-2",
                                      "jais",
                                      "trillion",
                                      "granite-docling",
                                      "exaone4",
                                      "gigachat",
                                      "mellum",
                                      "a.x-4.0",
                                      "modern-bert",
                                      "smollm",
                                      "starcoder",
                                      "refact",
                                      "command-r",
                                      "codeshell",
                                      "exaone",
                                      "minerva-7b",
                                      "mellum2",
                                      "llama-bpe",
                                      "llama3",
                                      "llama-v3",
                                      "falcon3",
                                      "falcon_e",
                                      "falcon-h1",
                                      "pixtral",
                                      "midm-2.0",
                                      "lfm2",
                                      "jina-v5-nano",
                                      "dbrx",
                                      "smaug-bpe",

                                      "chatglm-bpe",
                                      "glm4",
                                      "glm5",
                                      "minicpm5",
                                      "qwen2",
                                      "stablelm2",
                                      "deepseek-r1-qwen",
                                      "megrez",
                                      "hunyuan",
                                      "grok-2",
                                      "kormo",
                                      "solar-open",
                                      "f2llmv2",
                                      "laguna",
                                      "ufakzeka",
                                      "exaone-moe",
                                      "qwen35",
                                      "deepseek-llm",
                                      "deepseek-coder",
                                      "deepseek-v3",
                                      "hunyuan-dense",
                                      "joyai-llm",
                                      "hy_v4",
                                      "spark2_5",
                                      "falcon",
                                      "tekken",
                                      "gpt-4o",
                                      "llama4",
                                      "kanana2",
                                      "minimax-m2",
                                      "talkie",
                                      "tiny_aya",
                                      "cohere2moe",
                                      "youtu",
                                      "kimi-k2",
                                      "superbpe",
                                      "bailingmoe",
                                      "bailingmoe2",
                                      "llada-moe",
                                      "seed-coder",
                                      "bloom",
                                      "poro-chat",
                                      "gpt3-finnish",
                                      "viking",
                                      "afmoe",
                                      "jais-2",
                                      "chameleon",
                                      "granite-embed-multi-97m",
                                      "jina-es",
                                      "jina-de",
                                      "jina-v1-en",
                                      "jina-v2-es",
                                      "jina-v2-de",
                                      "jina-v2-code",
                                      "roberta-bpe"};
  for (size_t i = 0; i < COUNT(names); i++) {
    st_tokenizer *t = bytes_tokenizer(names[i]);
    const st_pretokenizer *p = st_pretokenizer_find(names[i]);
    assert_true(p && p->alphabet == ST_ALPHABET_BYTES);
    st_tokenizer_free(t);
  }
  st_tokenizer *t = NULL;
  st_vocabulary v;
  st_vocabulary_init(&v);
  st_text tokens[] = {{"a", 1}, {"aa", 2}}, merge = {"a a", 3};
  v.model = "gpt2", v.pre = "no-such-pattern", v.n = 2, v.tokens = tokens, v.n_merges = 1, v.merges = &merge;
  assert_int_equal(st_tokenizer_from_vocabulary(&v, &t, &err), SETUN_ERROR_UNSUPPORTED);
  assert_non_null(strstr(err.message, "\"no-such-pattern\""));
  assert_non_null(strstr(err.message, "expected one of default, gpt-2, "));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rewritten), cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_megabytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
