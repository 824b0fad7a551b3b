// A tokenizer from vocab.json and merges.txt, the two files of GPT-2 and similar models. Neither says how text is cut
// into words: the caller names a pre-tokenizer of patterns.c. Control tokens come with tokenizer_config.json.
#include "tokenizer/json.h"

#include <string.h>

// The next line of the text, without its end; false after the last.
static bool next_line(const char **at, const char *end, st_text *line) {
  if (*at == end) return false;
  const char *newline = memchr(*at, '\n', (size_t)(end - *at)), *stop = newline ? newline : end;
  *line = (st_text){*at, (size_t)(stop - *at)};
  if (line->length && line->data[line->length - 1] == '\r') line->length--;
  *at = newline ? newline + 1 : end;
  return true;
}

static size_t count_lines(const char *at, const char *end) {
  size_t n = 0;
  for (st_text line; next_line(&at, end, &line);) n++;
  return n;
}

// "#version: ..." may come first; every other line is two strings separated by a space.
static setun_status read_merges(st_tokenizer *t, const char *at, const char *end, setun_error *err) {
  setun_status s = st_merges_reserve(t, count_lines(at, end), err);
  size_t number = 0, rank = 0;
  for (st_text line; !s && next_line(&at, end, &line);) {
    number++;
    if (!line.length || (number == 1 && line.length > 8 && !memcmp(line.data, "#version", 8))) continue;
    const char *space = memchr(line.data, ' ', line.length);
    size_t left = space ? (size_t)(space - line.data) : 0;
    if (!left || left + 1 == line.length) {
      return st_fail(err, SETUN_ERROR_FORMAT, "merges.txt: line %zu is not two strings separated by a space", number);
    }
    st_merge_row row = {{line.data, left}, {space + 1, line.length - left - 1}, rank++};
    s = st_merges_add(t, &row, 1, true, err);
    if (s) return st_fail_in(err, s, "merges.txt: line %zu", number);
  }
  return s;
}

setun_status st_tokenizer_from_vocab_merges(const char *vocab, size_t vocab_length, const char *merges,
                                            size_t merges_length, const char *pre, st_tokenizer **out,
                                            setun_error *err) {
  st_json *root;
  setun_status s = st_json_parse(vocab, vocab_length, "vocab.json", &root, err);
  if (s) return s;
  st_tokenizer *t = NULL;
  s = st_json_object_vocab(root, NULL, &t, err);
  st_json_free(root);
  if (s) s = st_fail_in(err, s, "vocab.json");
  if (!s) s = st_pretokenizer_apply(t, pre, err);
  if (!s) s = read_merges(t, merges, merges + merges_length, err);
  if (!s && !t->byte_level)
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "pre-tokenizer \"%s\" is not a byte-level one", pre);
  if (!s) {
    t->plain_added = true;
    t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_LEVEL};
    st_tokenizer_guard_ends(t);
    s = st_tokenizer_build_added(t, err);
  }
  if (!s) s = st_tokenizer_finish(t, err);
  if (s) {
    st_tokenizer_free(t);
    return s;
  }
  *out = t;
  return SETUN_OK;
}
