// Windows and sinks of a context.
#include "model/windows.h"

#include "base/error.h"

setun_status st_windows_of(const st_hparams *h, uint32_t n_ctx, uint32_t window, uint32_t sinks, st_windows *w,
                           setun_error *err) {
  if (h->delta.n_taps && (window || sinks)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "window and sinks: expected 0 with a model that has recurrent layers, whose state cannot forget "
                   "tokens, found %u and %u",
                   window, sinks);
  }
  if (!window && sinks >= n_ctx) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "sinks: expected fewer than the context's %u tokens, found %u", n_ctx,
                   sinks);
  }
  if (sinks > ST_CACHE_PART) {
    return st_fail(err, SETUN_ERROR_LIMIT, "sinks: expected at most %d tokens, found %u", ST_CACHE_PART, sinks);
  }
  if ((uint64_t)window + sinks > h->n_ctx_most) {
    return st_fail(err, SETUN_ERROR_LIMIT,
                   "window and sinks: expected at most the %u tokens that the model was trained for or its RoPE "
                   "scaling extends to, found %u and %u",
                   h->n_ctx_most, window, sinks);
  }
  if (!window && sinks) window = n_ctx - sinks;
  *w = (st_windows){.window = window, .sinks = sinks};
  if (!window) return SETUN_OK;
  if (h->bidirectional) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "window: expected 0 with a bidirectional model, found %u", window);
  }
  if (h->norm_after_rope) {
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "window: expected 0 with a model that normalizes queries and keys after RoPE, whose scores depend on "
        "more than the distance, found %u",
        window);
  }
  uint32_t widest = window;
  for (uint32_t i = 0; i < h->n_layer; i++) {
    uint32_t own = st_layer_window(h, w, i);
    if (own > h->n_ctx_most) own = h->n_ctx_most;
    if (own > widest) widest = own;
  }
  w->kept = st_blocks(sinks) * ST_CACHE_POSITIONS + widest;
  w->period = (w->kept / ST_CACHE_PART + 2) * ST_CACHE_PART;
  return SETUN_OK;
}

uint32_t st_layer_first(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t position) {
  uint32_t window = st_layer_window(h, w, layer), sinks = st_layer_sinks(h, w, layer);
  if (!window || position < window || position - window < sinks) return 0;
  return (position - window + 1) / ST_CACHE_POSITIONS;
}

uint32_t st_layer_blocks(const st_hparams *h, const st_windows *w, uint32_t layer, uint32_t n_ctx, uint32_t n_batch) {
  uint32_t all = st_blocks(n_ctx), window = st_layer_window(h, w, layer);
  if (h->recurrent[layer]) return 0;
  uint64_t most = (uint64_t)window + n_batch - 1; // in positions, which may begin anywhere in a page
  uint64_t blocks = (most + ST_CACHE_POSITIONS - 2) / ST_CACHE_POSITIONS + 1 + st_blocks(st_layer_sinks(h, w, layer));
  return window && blocks < all ? (uint32_t)blocks : all;
}

uint32_t st_windows_run(const st_windows *w, uint32_t position, uint32_t n) {
  if (!w->period) return n;
  const uint32_t ends[] = {w->sinks + w->window, w->period, 2 * w->period};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (position < ends[i] && n > ends[i] - position) n = ends[i] - position;
  }
  return n;
}
