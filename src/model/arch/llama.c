// Llama 2 and 3, and what has their shape: SmolLM2, TriLM, Falcon3-1.58, Llama3-8B-1.58, and 1bitLLM's BitNet
// checkpoints, which call themselves llama and add sub-norms.
#include "model/arch.h"

static const char *const gguf_names[] = {"llama", NULL};
static const char *const model_types[] = {"llama", NULL};

// Mistral's GGUF files set a window here; it holds for all layers. Mixtral's have experts, whose chosen weights sum
// to 1.
static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)m, (void)architecture, (void)err;
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->sliding[i] = h->window != 0;
  return SETUN_OK;
}

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_json_bool(c, "attention_bias", &h->qkv_bias, err);
  h->o_bias = h->qkv_bias;
  return s == SETUN_OK ? st_json_bool(c, "mlp_bias", &h->mlp_bias, err) : s;
}

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,
    ST_BIND(ST_ROPE_FREQS),
    ST_BIND_ATTENTION,
    {.role = ST_ATTN_SUB_NORM, .hf = "model.layers.%u.self_attn.inner_attn_ln"},
    ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,
    {.role = ST_ROUTER, .hf = ST_NO_NAME},
    ST_BIND_EXPERTS(ST_NO_NAME, ST_NO_NAME, ST_NO_NAME),
    {.role = ST_FFN_SUB_NORM, .hf = "model.layers.%u.mlp.ffn_layernorm"},
    ST_BIND_END,
};

const st_spec st_spec_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .model_types = model_types,
    .defaults = {.n_layer = 32,
                 .n_embd = 4096,
                 .n_head = 32,
                 .n_ff = 11008,
                 .n_vocab = 32000,
                 .n_ctx_train = 2048,
                 .norm_eps = 1e-6f,
                 .fn = ST_FN_SILU,
                 .router_renormalize = true,
                 .rope = {.theta = 10000}},
    .gguf_interleaved = true,
    .bindings = bindings,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
};
