// The ids of a model's logits without text, and the notice about them.
#include "runtime/token_gaps.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>

enum {
  MOST_PADDING = 1024, // ids: more than the padding of published embeddings (at most 905, in Phi-1.5 and CodeGen)
  SHOWN = 4            // most gaps listed in a notice
};

void st_token_gaps_free(st_token_gaps *g) {
  st_free(g->items);
  *g = (st_token_gaps){0};
}

setun_status st_token_gaps_find(const st_tokenizer *t, uint32_t n_vocab, st_token_gaps *g, setun_error *err) {
  for (uint32_t id = 0; id < n_vocab; id++) {
    if (st_tokenizer_has_text(t, (int32_t)id)) continue;
    if (g->count && g->items[g->count - 1].end == id) {
      g->items[g->count - 1].end++;
      continue;
    }
    if (!st_reserve(&g->items, &g->capacity, g->count + 1, sizeof *g->items)) {
      return st_fail_memory(err, "ids without text");
    }
    g->items[g->count++] = (st_token_gap){id, id + 1};
  }
  return SETUN_OK;
}

setun_status st_token_gaps_notice(const st_token_gaps *g, uint32_t n_vocab, const st_directory *d, setun_error *err) {
  if (!g->count) return SETUN_OK;
  st_buffer list = {0};
  uint32_t total = 0;
  bool ok = true;
  for (size_t i = 0; i < g->count; i++) {
    uint32_t first = g->items[i].begin, last = g->items[i].end - 1;
    total += last - first + 1;
    if (i < SHOWN) ok = ok && st_buffer_format(&list, "%s%" PRIu32, i ? ", " : "", first);
    if (i < SHOWN && last > first) ok = ok && st_buffer_format(&list, " to %" PRIu32, last);
  }
  if (ok && g->count > SHOWN) ok = st_buffer_format(&list, ", ...");
  bool padding = g->count == 1 && g->items[0].end == n_vocab && total <= MOST_PADDING && total <= n_vocab / 2;
  setun_status s = !ok ? st_fail_memory(err, "a notice")
                       : st_notices_add(d->notices, padding ? SETUN_LOG_INFO : SETUN_LOG_WARNING, err,
                                        "%s: the vocabulary has no text for %" PRIu32 " of %" PRIu32
                                        " token ids (%s)%s: they are never drawn",
                                        d->path, total, n_vocab, list.data, padding ? ", which pad the embedding" : "");
  st_buffer_free(&list);
  return s;
}
