// Regular expressions of tokenizers, in PCRE2 with its just-in-time compiler.
//
// tokenizer.json's patterns are written for Oniguruma (Ruby's syntax). Where PCRE2 reads the same text differently it
// is rewritten: \s is White_Space (PCRE2's also takes U+180E), \w has marks and connectors, \h is a hexadecimal digit,
// \uHHHH is a character, and ^ and $ match at line ends. Syntax without a counterpart is refused by name.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

#define SPACE "\\t-\\r\\x{85}\\p{Z}"
// Alphabetic (of the symbols, the letters in circles and squares are), marks, decimal digits and connectors.
#define WORD                                                                                                           \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{"      \
  "1F189}"
// Outside a class, Latin-1's numbers are word characters too.
#define WORD_ALONE WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define HEX "0-9A-Fa-f"

// Far more steps than a linear pattern takes for the longest text; a few seconds of work for one that is not linear.
enum { JIT_STACK_LIMIT = 64 << 20, HEAP_LIMIT_KIB = 512 << 10, MATCH_LIMIT = 1 << 28 };

struct st_regex {
  pcre2_code *code;
  bool jit;
};

typedef struct {
  char letter;
  const char *outside, *inside; // inside NULL: not allowed in a class
} escape;

static const escape escapes[] = {
    {'s', "[" SPACE "]", SPACE},      {'S', "[^" SPACE "]", NULL}, {'w', "[" WORD_ALONE "]", WORD},
    {'W', "[^" WORD_ALONE "]", NULL}, {'h', "[" HEX "]", HEX},     {'H', "[^" HEX "]", NULL},
};

static const escape *find_escape(char letter) {
  for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
    if (escapes[i].letter == letter) return &escapes[i];
  }
  return NULL;
}

// Rewrites the escape at p[0] == '\\'; returns the bytes that were read, 0 on failure.
static size_t translate_escape(const char *p, size_t n, bool in_class, st_buffer *out, setun_error *err) {
  if (n < 2) {
    st_fail(err, SETUN_ERROR_FORMAT, "the pattern ends in a backslash");
    return 0;
  }
  const escape *e = find_escape(p[1]);
  bool ok;
  size_t used = 2;
  if (e && in_class && !e->inside) {
    st_fail(err, SETUN_ERROR_UNSUPPORTED, "\\%c inside a character class", p[1]);
    return 0;
  }
  if (e) {
    ok = st_buffer_text(out, in_class ? e->inside : e->outside);
  } else if (p[1] == 'u' && n >= 6) {
    ok = st_buffer_text(out, "\\x{") && st_buffer_append(out, p + 2, 4) && st_buffer_text(out, "}");
    used = 6;
  } else {
    ok = st_buffer_append(out, p, 2);
  }
  if (ok) return used;
  st_fail_memory(err, "a pattern");
  return 0;
}

static setun_status translate(const char *p, size_t n, st_buffer *out, setun_error *err) {
  bool in_class = false;
  size_t opened = 0;
  for (size_t i = 0; i < n;) {
    if (p[i] == '\\') {
      size_t used = translate_escape(p + i, n - i, in_class, out, err);
      if (!used) return err ? err->code : SETUN_ERROR_FORMAT;
      i += used;
      continue;
    }
    if (in_class && (p[i] == '[' || (p[i] == '&' && i + 1 < n && p[i + 1] == '&'))) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a character class inside a character class, at byte %zu", i);
    }
    if (!in_class && n - i >= 3 && !memcmp(p + i, "(?m", 3)) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "the option (?m), at byte %zu", i);
    }
    if (!in_class && p[i] == '[') {
      in_class = true;
      opened = i + 1 < n && p[i + 1] == '^' ? i + 1 : i;
    } else if (in_class && p[i] == ']' && i > opened + 1) {
      in_class = false;
    }
    if (!st_buffer_append(out, p + i, 1)) return st_fail_memory(err, "a pattern");
    i++;
  }
  return SETUN_OK;
}

static void *allocate(size_t size, void *user) {
  (void)user;
  return st_malloc(size, 1);
}

static void release(void *block, void *user) {
  (void)user;
  st_free(block);
}

// The allocator of contexts and match data, which copy the two functions. NULL: out of memory.
static pcre2_general_context *allocator(void) {
  return pcre2_general_context_create(allocate, release, NULL);
}

static setun_status fail_compile(int code, size_t at, setun_error *err) {
  PCRE2_UCHAR text[128];
  if (code == PCRE2_ERROR_HEAP_FAILED) return st_fail_memory(err, "a pattern");
  pcre2_get_error_message(code, text, sizeof text);
  return st_fail(err, SETUN_ERROR_FORMAT, "%s, at byte %zu of its translation", (const char *)text, at);
}

static setun_status compile(const char *pattern, size_t length, uint32_t options, st_regex **regex, setun_error *err) {
  st_regex *r = st_calloc(1, sizeof *r);
  pcre2_general_context *general = allocator();
  pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
  pcre2_general_context_free(general);
  if (!r || !context || pcre2_set_newline(context, PCRE2_NEWLINE_LF)) {
    st_free(r);
    pcre2_compile_context_free(context);
    return st_fail_memory(err, "a pattern");
  }
  int code;
  PCRE2_SIZE at;
  r->code = pcre2_compile((PCRE2_SPTR)pattern, length, options, &code, &at, context);
  pcre2_compile_context_free(context);
  if (!r->code) {
    st_free(r);
    return fail_compile(code, at, err);
  }
  // Without memory for machine code the interpreter is used, with the same results.
  r->jit = !pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
  *regex = r;
  return SETUN_OK;
}

setun_status st_regex_new(const char *pattern, size_t length, st_regex **regex, setun_error *err) {
  if (length > ST_MAX_PATTERN) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a pattern of %zu bytes, more than %d", length, ST_MAX_PATTERN);
  }
  setun_error local;
  st_buffer translated = {0};
  setun_status s = translate(pattern, length, &translated, &local);
  if (!s) {
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    s = compile(translated.length ? translated.data : "", translated.length, options, regex, &local);
  }
  st_buffer_free(&translated);
  if (!s) return SETUN_OK;
  if (s == SETUN_ERROR_MEMORY) return st_fail_memory(err, "a pattern");
  return st_fail(err, s, "pattern \"%.*s%s\": %s", (int)(length < 120 ? length : 120), pattern,
                 length < 120 ? "" : "...", local.message);
}

setun_status st_regex_new_literal(const char *text, size_t length, st_regex **regex, setun_error *err) {
  if (length > ST_MAX_PATTERN) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a pattern of %zu bytes, more than %d", length, ST_MAX_PATTERN);
  }
  return compile(text, length, PCRE2_UTF | PCRE2_LITERAL, regex, err);
}

void st_regex_free(st_regex *r) {
  if (!r) return;
  pcre2_code_free(r->code);
  // PCRE2 keeps empty pages for machine code, and forgets them when it is unloaded together with this library.
  pcre2_jit_free_unused_memory(NULL);
  st_free(r);
}

void st_pattern_matcher_free(st_pattern_matcher *m) {
  pcre2_match_data_free(m->data);
  pcre2_match_context_free(m->context);
  if (m->stack) pcre2_jit_stack_free(m->stack);
  *m = (st_pattern_matcher){0};
}

static setun_status prepare(st_pattern_matcher *m, setun_error *err) {
  pcre2_general_context *general = allocator();
  if (general && !m->data) m->data = pcre2_match_data_create(1, general);
  if (general && !m->context) m->context = pcre2_match_context_create(general);
  pcre2_general_context_free(general);
  if (!m->data || !m->context) return st_fail_memory(err, "a pattern's matches");
  pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
  pcre2_set_match_limit(m->context, MATCH_LIMIT);
  return SETUN_OK;
}

// A match for which the machine stack is too small: again on a large stack of its own, then in the interpreter, which
// keeps its state on the heap.
static int match_large(const st_regex *r, st_pattern_matcher *m, const char *text, size_t length, size_t from) {
  if (!m->stack) {
    pcre2_general_context *general = allocator();
    if (general) m->stack = pcre2_jit_stack_create(64 << 10, JIT_STACK_LIMIT, general);
    pcre2_general_context_free(general);
    if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
  }
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (m->stack) rc = pcre2_jit_match(r->code, (PCRE2_SPTR)text, length, from, 0, m->data, m->context);
  if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
  return pcre2_match(r->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, m->data, m->context);
}

setun_status st_regex_match(const st_regex *r, st_pattern_matcher *m, const char *text, size_t length, size_t from,
                            bool *found, size_t *start, size_t *end, setun_error *err) {
  if ((!m->data || !m->context) && prepare(m, err)) return SETUN_ERROR_MEMORY;
  int rc;
  if (r->jit) {
    rc = pcre2_jit_match(r->code, (PCRE2_SPTR)text, length, from, 0, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match_large(r, m, text, length, from);
  } else {
    rc = pcre2_match(r->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
  }
  *found = rc >= 0;
  if (rc == PCRE2_ERROR_NOMATCH) return SETUN_OK;
  if (rc == PCRE2_ERROR_NOMEMORY) return st_fail_memory(err, "a pattern's matches");
  if (rc < 0) {
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(rc, message, sizeof message);
    return st_fail(err, SETUN_ERROR_LIMIT, "matching a pre-tokenizer's pattern at byte %zu of %zu: %s", from, length,
                   (const char *)message);
  }
  const PCRE2_SIZE *pair = pcre2_get_ovector_pointer(m->data);
  // \K in a lookahead could put a match's start beyond its end or before what was matched already.
  if (pair[0] > pair[1] || pair[0] < from) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a pre-tokenizer's pattern matched backwards at byte %zu", from);
  }
  *start = pair[0];
  *end = pair[1];
  return SETUN_OK;
}
