// OLMo 2: branches are normalized after, not before, and q and k over their full width. OLMo 3: the same with three
// sliding layers for each full one, and RoPE scaling only in the full ones. Its GGUF files are named olmo2.
#include "model/arch.h"

static const char *const names[] = {"olmo2", NULL};
static const char *const no_names[] = {NULL};
static const char *const olmo3_types[] = {"olmo3", NULL};

static bool is_olmo3(const st_hparams *h) {
  return h->window > 0;
}

// Sliding layers use the same base, without scaling.
static void plain_rope_where_sliding(st_hparams *h) {
  h->has_rope_local = true;
  h->rope_local.theta = h->rope.theta;
}

static setun_status read_olmo3(const st_json *c, st_hparams *h, setun_error *err) {
  (void)err;
  const st_json *own = st_json_get(st_json_get(c, "rope_parameters"), "sliding_attention");
  if (!own && !st_json_get(c, "rope_local_base_freq")) plain_rope_where_sliding(h);
  return SETUN_OK;
}

static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)m, (void)architecture, (void)err;
  if (is_olmo3(h)) plain_rope_where_sliding(h);
  return SETUN_OK;
}

static const st_fact olmo3_facts[] = {
    {NULL, "sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "rope_local_base_freq", ST_FACT_USED, "", "for sliding layers, as conversion writes it"},
    {NULL, "rope:full_attention rope:sliding_attention", ST_FACT_USED, "null", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,     ST_BIND(ST_ATTN_Q),         ST_BIND(ST_ATTN_K), ST_BIND(ST_ATTN_V),        ST_BIND_QK_NORMS,
    ST_BIND(ST_ATTN_O), ST_BIND(ST_ATTN_POST_NORM), ST_BIND_MLP,        ST_BIND(ST_FFN_POST_NORM), ST_BIND_END,
};

const st_spec st_spec_olmo2 = {
    .name = "olmo2",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "Olmo2ForCausalLM",
    .windows = {.period = 4, .gguf = true}, // of OLMo 3
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 50304, .norm_eps = 1e-5f, .rope = {.theta = 10000}},
    .wide_norms = true,
    .bindings = bindings,
    .read_gguf = read_gguf,
};

const st_spec st_spec_olmo3 = {
    .name = "olmo3",
    .gguf_names = no_names,
    .model_types = olmo3_types,
    .hf_class = "Olmo3ForCausalLM",
    .gguf_as = "olmo2",
    .is_it = is_olmo3,
    .facts = olmo3_facts,
    .windows = {.period = 4, .config = true, .config_lists = true},
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 50304, .norm_eps = 1e-5f, .window = 4096, .rope = {.theta = 500000},
                 .rope_local = {.theta = 500000}, .has_rope_local = true},
    .wide_norms = true,
    .bindings = bindings,
    .read_hf = read_olmo3,
};
