// The published pre-tokenizers: the names in `tokenizer.ggml.pre`, and their patterns.
//
// A new one is one row at the end of this file. Patterns are those of the models' own tokenizer.json, in its syntax
// (see regex.c); if a row has several, each splits the pieces of the previous one, including gaps.
#include "tokenizer/internal.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SYMBOLS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define LLAMA3 WORDS "\\p{N}{1,3}" SYMBOLS
#define QWEN2 WORDS "\\p{N}" SYMBOLS
#define QWEN35 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
// Words split where case changes; `end` may follow each.
#define CASED(end)                                                                                                     \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end "|"
#define CASED_SYMBOLS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define TEKKEN CASED("") "\\p{N}" CASED_SYMBOLS
#define GPT4O CASED(CONTRACTIONS "?") "\\p{N}{1,3}" CASED_SYMBOLS
#define ASCII_SYMBOLS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                                                      \
  ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define KANA_HAN "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define LINES "[^\\n]+|[\\n]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
// The letters of scripts that have case.
#define CASED_LETTERS                                                                                                  \
  "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"                      \
  "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"               \
  "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                      \
  "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                    \
  "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                    \
  "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"            \
  "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"           \
  "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                     \
  "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"                      \
  "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"                      \
  "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"                     \
  "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"                    \
  "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"                  \
  "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"                               \
  "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

// "\\s+$" of the published pattern, written so that a run of spaces that does not reach the end is tried only once, not
// once for each character.
#define TRAILING_SPACE "(?<!\\s)\\s++$"

// Kimi's words: "[...&&[^\\p{Han}]]" of the published pattern, written with negated properties.
#define NO_HAN "\\p{C}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{Han}"
#define UPPER_NO_HAN "[^\\p{Ll}" NO_HAN "]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}" NO_HAN "]"
#define KIMI                                                                                                           \
  "\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" UPPER_NO_HAN "*" LOWER_NO_HAN "+" CONTRACTIONS                                    \
  "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER_NO_HAN "+" LOWER_NO_HAN "*" CONTRACTIONS                                            \
  "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

// Groups of three digits, counted from the end of a run. The published patterns look ahead to that end from each group;
// these do it once a run: \G, where the match before ended, with a digit before it, is inside of a run that was
// counted.
#define TRIPLES_AHEAD "(?=(?:\\p{Nd}{3})++(?!\\p{Nd}))"
// "(?=(\\d{3})+(?!\\d))", which cuts before each group and nowhere else.
#define CUT_TRIPLES                                                                                                    \
  "(?:\\G(?<=\\p{Nd})|" TRIPLES_AHEAD ")\\p{Nd}{3}"                                                                    \
  "(?:(?!\\p{Nd})(?:\\P{Nd}++(?:\\p{Nd}{1,2}(?!\\p{Nd}))?)*+(?:\\p{Nd}{1,2}" TRIPLES_AHEAD ")?)?"
// "\\d{1,3}(?=(?:\\d{3})*\\b)"
#define WORD_TRIPLES "\\G(?<=\\p{Nd})\\p{Nd}{3}|(?<!\\p{Nd})\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+(?!\\w))"
// Whole runs of digits in groups of three, counted from their end.
#define RUN_TRIPLES "\\G(?<=\\p{N})\\p{N}{3}|(?<!\\p{N})\\p{N}{1,3}(?=(?:\\p{N}{3})*+(?!\\p{N}))"
// Scripts without spaces between words.
#define UNSPACED                                                                                                       \
  "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{"     \
  "FF9F}"                                                                                                              \
  "\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"     \
  "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"
// Llama 3's with runs of spaces in powers of two.
#define JAIS2                                                                                                          \
  WORDS "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"    \
        "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define BAILING                                                                                                        \
  "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"          \
  "\\s+(?!\\S)|\\s+"
// Letters with single spaces among them; possessive, since nothing after it can require backtracking.
#define EXAONE_MOE                                                                                                     \
  CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"   \
               "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define YOUTU                                                                                                          \
  "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|"                                                                         \
  "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"     \
  "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" KANA_HAN
#define SPARK                                                                                                          \
  ASCII_SYMBOLS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"

const char ST_PATTERN_GPT2[] = GPT2;

#define YES true
#define NO false
#define BYTES ST_ALPHABET_BYTES
#define MARKS ST_ALPHABET_MARKS
// name, patterns, ignore_merges, BOS by default, alphabet
static const st_pretokenizer table[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, NO, NO, BYTES},
    {"gpt-2", {GPT2}, NO, NO, BYTES},
    {"olmo", {GPT2}, NO, NO, BYTES},
    {"mpt", {GPT2}, NO, NO, BYTES},
    {"phi-2", {GPT2}, NO, NO, BYTES},
    {"jais", {GPT2}, NO, NO, BYTES},
    {"trillion", {GPT2}, NO, NO, BYTES},
    {"granite-docling", {GPT2}, NO, NO, BYTES},
    {"exaone4", {GPT2}, NO, NO, BYTES},
    {"gigachat", {GPT2}, NO, NO, BYTES},
    {"mellum", {GPT2}, NO, NO, BYTES},
    {"a.x-4.0", {GPT2}, NO, NO, BYTES},
    {"modern-bert", {GPT2}, NO, NO, BYTES},
    {"jina-es", {GPT2}, NO, NO, BYTES},
    {"jina-de", {GPT2}, NO, NO, BYTES},
    {"jina-v1-en", {GPT2}, NO, NO, BYTES},
    {"jina-v2-es", {GPT2}, NO, NO, BYTES},
    {"jina-v2-de", {GPT2}, NO, NO, BYTES},
    {"jina-v2-code", {GPT2}, NO, NO, BYTES},
    {"roberta-bpe", {GPT2}, NO, NO, BYTES},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
     NO,
     YES,
     BYTES},
    {"smollm", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"starcoder", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"refact", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"command-r", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"codeshell", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"exaone", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"minerva-7b", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"mellum2", {"\\p{N}", GPT2}, NO, NO, BYTES},
    {"llama-bpe", {LLAMA3}, YES, YES, BYTES},
    {"llama3", {LLAMA3}, YES, YES, BYTES},
    {"llama-v3", {LLAMA3}, YES, YES, BYTES},
    {"falcon3", {LLAMA3}, YES, YES, BYTES},
    {"falcon_e", {LLAMA3}, YES, YES, BYTES},
    {"falcon-h1", {LLAMA3}, YES, YES, BYTES},
    {"pixtral", {LLAMA3}, YES, YES, BYTES},
    {"midm-2.0", {LLAMA3}, YES, YES, BYTES},
    {"lfm2", {LLAMA3}, YES, YES, BYTES},
    {"jina-v5-nano", {LLAMA3}, YES, YES, BYTES},
    {"jais-2", {JAIS2}, NO, NO, BYTES},
    {"dbrx", {LLAMA3}, NO, NO, BYTES},
    {"smaug-bpe", {LLAMA3}, NO, NO, BYTES},
    {"chatglm-bpe", {LLAMA3}, NO, NO, BYTES},
    {"glm4", {LLAMA3}, YES, NO, BYTES},
    {"glm5", {LLAMA3}, YES, NO, BYTES},
    {"minicpm5", {"\\p{N}{1,3}", WORDS "\\p{N}+" SYMBOLS}, YES, NO, BYTES},
    {"qwen2", {QWEN2}, NO, NO, BYTES},
    {"stablelm2", {QWEN2}, NO, NO, BYTES},
    {"deepseek-r1-qwen", {QWEN2}, NO, NO, BYTES},
    {"megrez", {QWEN2}, NO, NO, BYTES},
    {"hunyuan", {QWEN2}, NO, NO, BYTES},
    {"grok-2", {QWEN2}, NO, NO, BYTES},
    {"kormo", {QWEN2}, NO, NO, BYTES},
    {"solar-open", {QWEN2}, NO, NO, BYTES},
    {"f2llmv2", {QWEN2}, NO, NO, BYTES},
    {"laguna", {LINES, QWEN2}, NO, NO, BYTES},
    {"ufakzeka", {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SYMBOLS}, NO, NO, BYTES},
    {"exaone-moe", {EXAONE_MOE}, NO, NO, BYTES},
    {"qwen35", {QWEN35}, NO, NO, BYTES},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", TRAILING_SPACE, CJK,
      "\\p{N}+"},
     NO,
     NO,
     BYTES},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}, NO, NO, BYTES},
    {"deepseek-v3", {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}, NO, NO, BYTES},
    {"hunyuan-dense", {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}, NO, NO, BYTES},
    {"joyai-llm", {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}, NO, NO, BYTES},
    {"hy_v4", {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3}, NO, NO, BYTES},
    {"afmoe", {RUN_TRIPLES, UNSPACED, DEEPSEEK3}, NO, NO, BYTES},
    {"spark2_5", {"\\p{N}{1,3}", KANA_HAN, SPARK, "\\p{N}"}, NO, NO, BYTES},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, NO, NO, BYTES},
    {"tekken", {TEKKEN}, YES, YES, BYTES},
    {"gpt-4o", {GPT4O}, NO, NO, BYTES},
    {"llama4", {GPT4O}, NO, NO, BYTES},
    {"kanana2", {GPT4O}, NO, NO, BYTES},
    {"minimax-m2", {GPT4O}, NO, NO, BYTES},
    {"talkie", {GPT4O}, NO, NO, BYTES},
    {"granite-embed-multi-97m", {GPT4O}, YES, NO, BYTES},
    {"tiny_aya", {WORD_TRIPLES, GPT4O}, NO, NO, BYTES},
    {"cohere2moe", {WORD_TRIPLES, GPT4O}, NO, NO, BYTES},
    {"youtu", {YOUTU, CASED(CONTRACTIONS "?") "\\p{N}" CASED_SYMBOLS}, YES, NO, BYTES},
    {"kimi-k2", {KIMI}, NO, NO, BYTES},
    {"superbpe", {"\\p{N}+", CUT_TRIPLES}, NO, NO, BYTES},
    {"bailingmoe", {BAILING}, NO, NO, BYTES},
    {"bailingmoe2", {BAILING}, NO, NO, BYTES},
    {"llada-moe", {BAILING}, NO, NO, BYTES},
    {"seed-coder", {WORDS "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}, NO, NO, BYTES},
    {"bloom", {BLOOM}, NO, NO, BYTES},
    {"poro-chat", {BLOOM}, NO, NO, BYTES},
    {"gpt3-finnish", {BLOOM}, NO, NO, BYTES},
    {"viking", {BLOOM, "\\p{N}"}, NO, NO, BYTES},
    {"gemma4", {LINES}, NO, YES, MARKS},
    {"granite-embed-multi-311m", {LINES}, NO, YES, MARKS},
    {"sarvam-moe", {LINES}, NO, NO, MARKS},
    {"whitespace", {"\\S+"}, NO, NO, ST_ALPHABET_WORDS},
};

const st_pretokenizer *st_pretokenizer_find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!strcmp(table[i].name, name)) return &table[i];
  }
  return NULL;
}

static bool has_patterns(const st_tokenizer *t, const st_pretokenizer *p) {
  size_t n = 0;
  while (p->patterns[n]) n++;
  if (n != t->n_stages || p->alphabet != ST_ALPHABET_BYTES || p->ignore_merges != t->ignore_merges) return false;
  for (size_t i = 0; i < n; i++) {
    const st_stage *stage = &t->stages[i];
    if (stage->kind != ST_STAGE_SPLIT || stage->behavior != ST_SPLIT_ISOLATED || stage->invert) return false;
    if (!stage->pattern.data || stage->pattern.length != strlen(p->patterns[i])) return false;
    if (memcmp(stage->pattern.data, p->patterns[i], stage->pattern.length)) return false;
  }
  return true;
}

const st_pretokenizer *st_pretokenizer_of(const st_tokenizer *t) {
  for (size_t i = 0; t->byte_level && i < sizeof table / sizeof *table; i++) {
    if (has_patterns(t, &table[i])) return &table[i];
  }
  return NULL;
}

// As many of the known names as a message has room for.
static setun_status refuse(const char *name, setun_error *err) {
  char known[360] = "";
  size_t n = sizeof table / sizeof *table, length = 0, i = 0;
  for (; i < n && length + strlen(table[i].name) + 2 < sizeof known; i++) {
    memcpy(known + length, table[i].name, strlen(table[i].name));
    length += strlen(table[i].name);
    memcpy(known + length, ", ", 3);
    length += 2;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "tokenizer.ggml.pre: unknown pre-tokenizer \"%.40s\", expected one of %sand %zu more (see "
                 "docs/tokenizers.md)",
                 name, known, n - i);
}

setun_status st_pretokenizer_apply(st_tokenizer *t, const char *name, setun_error *err) {
  const st_pretokenizer *p = st_pretokenizer_find(name);
  if (!p) return refuse(name, err);
  bool words = p->alphabet == ST_ALPHABET_WORDS;
  for (size_t i = 0; p->patterns[i]; i++) {
    st_split_behavior behavior = words ? ST_SPLIT_REMOVED : ST_SPLIT_ISOLATED;
    setun_status s = st_stage_add_split(t, p->patterns[i], behavior, words, err);
    if (s) return s;
  }
  t->ignore_merges = p->ignore_merges;
  t->add_bos = p->add_bos;
  t->byte_level = p->alphabet == ST_ALPHABET_BYTES;
  return SETUN_OK;
}
