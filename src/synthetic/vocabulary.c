// A vocabulary for synthetic models: byte-level BPE that can tokenize any text, with a given number of
// for.
#include "synthetic/synthesis.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_ROOM = 32 };

// Byte-level vocabularies spell a byte as a printable character: itself where it is one in Latin-1, otherwise the next
// one from U+0100 on.
static uint32_t spelling(uint32_t byte, uint32_t *next) {
  bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
  return printable ? byte : (*next)++;
}

// The texts, TOKEN_ROOM bytes apart in `room`.
static void make_tokens(uint32_t n, char *room, st_text *texts, int32_t *types) {
  uint32_t next = 256;
  for (uint32_t id = 0; id < n; id++) {
    char *text = room + (size_t)id * TOKEN_ROOM;
    size_t length;
    types[id] = id + 2 < n ? TOKEN_NORMAL : TOKEN_CONTROL;
    if (id < 256) {
      length = (size_t)st_utf8_encode(spelling(id, &next), text);
    } else if (id == 256) {
      length = (size_t)snprintf(text, TOKEN_ROOM, "th");
    } else if (id + 2 >= n) {
      length = (size_t)snprintf(text, TOKEN_ROOM, "<|%s_of_text|>", id + 1 == n ? "end" : "begin");
    } else {
      length = (size_t)snprintf(text, TOKEN_ROOM,
                                "\xC4\xA0"
                                "w%u",
                                id); // U+0120, a space
    }
    texts[id] = (st_text){text, length};
  }
}

setun_status st_synthetic_vocabulary(uint32_t n, st_keys *keys, setun_error *err) {
  static const st_text merge = {"t h", 3};
  char *room = st_malloc(n, TOKEN_ROOM);
  st_text *texts = st_malloc(n, sizeof *texts);
  int32_t *types = st_malloc(n, sizeof *types);
  bool ok = room && texts && types;
  if (ok) {
    make_tokens(n, room, texts, types);
    st_keys_text(keys, "tokenizer.ggml.model", "gpt2");
    st_keys_text(keys, "tokenizer.ggml.pre", "llama-bpe");
    st_keys_texts(keys, "tokenizer.ggml.tokens", texts, n);
    st_keys_i32s(keys, "tokenizer.ggml.token_type", types, n);
    st_keys_texts(keys, "tokenizer.ggml.merges", &merge, 1);
    st_keys_u32(keys, "tokenizer.ggml.bos_token_id", n - 2);
    st_keys_u32(keys, "tokenizer.ggml.eos_token_id", n - 1);
    ok = st_keys_bool(keys, "tokenizer.ggml.add_bos_token", true);
  }
  st_free(room);
  st_free(texts);
  st_free(types);
  return ok ? SETUN_OK : st_fail_memory(err, "the vocabulary");
}
