// The table of presets.
#include "synthetic/presets.h"

#include <string.h>

typedef struct {
  const char *name;
  const st_spec *spec;
  uint32_t n_vocab, n_embd, n_layer, n_head, n_head_kv, head_dim, n_ff, n_ctx;
  float theta;
  bool tied;
  uint32_t n_expert, n_expert_used, n_ff_expert;
  bool renormalizes;
  // For models with recurrent layers: every period-th layer has attention instead; value heads (the rest is the
  // family's); elements of a head that RoPE rotates.
  uint32_t period, n_value_heads, n_rot;
} preset;

static const preset presets[] = {
    // Small enough for tests: every block format takes its rows.
    {"tiny", &st_spec_bitnet_b158, 512, 512, 2, 8, 4, 64, 1024, 4096, 500000, true, 0, 0, 0, false, 0, 0, 0},
    {"tiny-moe", &st_spec_qwen3_moe, 512, 256, 2, 4, 2, 64, 512, 4096, 1000000, false, 8, 2, 256, true, 0, 0, 0},
    {"small-moe", &st_spec_qwen3_moe, 512, 512, 4, 8, 4, 64, 1024, 4096, 1000000, false, 16, 4, 512, true, 0, 0, 0},
    {"1b", &st_spec_llama, 128256, 2048, 16, 32, 8, 64, 8192, 8192, 500000, true, 0, 0, 0, false, 0, 0,
     0}, // Llama 3.2 1B
    {"2b4t", &st_spec_bitnet_b158, 128256, 2560, 30, 20, 5, 128, 6912, 4096, 500000, true, 0, 0, 0, false, 0, 0,
     0}, // BitNet b1.58 2B-4T
    {"3b", &st_spec_llama, 128256, 3072, 28, 24, 8, 128, 8192, 8192, 500000, true, 0, 0, 0, false, 0, 0,
     0}, // Llama 3.2 3B
    {"7b", &st_spec_llama, 32000, 4096, 32, 32, 32, 128, 11008, 4096, 10000, false, 0, 0, 0, false, 0, 0,
     0}, // Llama 2 7B
    {"8b", &st_spec_llama, 128256, 4096, 32, 32, 8, 128, 14336, 8192, 500000, false, 0, 0, 0, false, 0, 0,
     0}, // Llama 3 8B
    {"70b", &st_spec_llama, 128256, 8192, 80, 64, 8, 128, 28672, 8192, 500000, false, 0, 0, 0, false, 0, 0,
     0}, // Llama 3 70B
    {"7b-a1b", &st_spec_olmoe, 50304, 2048, 16, 16, 16, 128, 1024, 4096, 10000, false, 64, 8, 1024, false, 0, 0,
     0}, // OLMoE
    {"30b-a3b", &st_spec_qwen3_moe, 151936, 2048, 48, 32, 4, 128, 6144, 32768, 1000000, false, 128, 8, 768, true, 0, 0,
     0}, // Qwen 3
    {"27b-hybrid", &st_spec_qwen35, 248320, 5120, 64, 24, 4, 256, 17408, 32768, 10000000, false, 0, 0, 0, false, 4, 48,
     64}, // Qwen 3.5 27B
    {"tiny-hybrid", &st_spec_qwen35, 512, 256, 4, 4, 2, 64, 512, 4096, 10000000, false, 0, 0, 0, false, 4, 32, 16},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *st_preset_name(size_t index) {
  return index < N_PRESETS ? presets[index].name : NULL;
}

static void fill(const preset *p, st_hparams *h) {
  *h = p->spec->defaults;
  h->n_vocab = p->n_vocab;
  h->n_embd = p->n_embd;
  h->n_layer = p->n_layer;
  h->n_head = p->n_head;
  h->n_head_kv = p->n_head_kv;
  h->head_dim = p->head_dim;
  h->n_rot = p->n_rot ? p->n_rot : p->head_dim;
  h->n_ff = p->n_ff;
  h->n_ctx_train = p->n_ctx;
  h->rope.theta = p->theta;
  h->tied = p->tied;
  h->n_expert = p->n_expert;
  h->n_expert_used = p->n_expert_used;
  h->n_ff_expert = p->n_ff_expert;
  h->router_renormalize = p->renormalizes;
  for (uint32_t i = 0; i < h->n_layer; i++) h->sparse[i] = p->n_expert != 0;
  for (uint32_t i = 0; i < h->n_layer && p->period; i++) h->recurrent[i] = (i + 1) % p->period != 0;
  if (p->n_value_heads) h->delta.n_value_heads = p->n_value_heads;
}

setun_status st_preset_find(const char *name, const st_spec **spec, st_hparams *hparams, setun_error *err) {
  char known[256] = "";
  size_t n = 0;
  for (size_t i = 0; i < N_PRESETS; i++) {
    if (name && !strcmp(presets[i].name, name)) {
      *spec = presets[i].spec;
      fill(&presets[i], hparams);
      return SETUN_OK;
    }
    size_t length = strlen(presets[i].name);
    if (n + length + 3 > sizeof known) continue;
    if (n) memcpy(known + n, ", ", 2), n += 2;
    memcpy(known + n, presets[i].name, length + 1);
    n += length;
  }
  return st_fail(err, SETUN_ERROR_ARGUMENT, "shape: expected one of %s, found %s%.40s%s", known, name ? "\"" : "",
                 name ? name : "none", name ? "\"" : "");
}
