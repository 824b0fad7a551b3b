// Granite: Llama with factors on the embeddings, the scores, the residual branches and the logits.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const names[] = {"granite", NULL};

// GraniteConfig's defaults are 1, also for attention_multiplier (not head_dim^-0.5).
static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  float divisor = 1;
  h->attn_scale = 1;
  setun_status s = st_json_bool(c, "mlp_bias", &h->mlp_bias, err);
  if (s == SETUN_OK) s = st_hf_positive(c, "embedding_multiplier", &h->embed_scale, err);
  if (s == SETUN_OK) s = st_hf_positive(c, "attention_multiplier", &h->attn_scale, err);
  if (s == SETUN_OK) s = st_hf_positive(c, "residual_multiplier", &h->residual_scale, err);
  if (s == SETUN_OK) s = st_hf_positive(c, "logits_scaling", &divisor, err);
  h->logit_scale = 1 / divisor;
  return s;
}

static size_t write_hf(const st_hparams *h, st_named_number out[ST_NAMED_NUMBERS]) {
  out[0] = (st_named_number){"embedding_multiplier", h->embed_scale};
  out[1] = (st_named_number){"attention_multiplier", h->attn_scale};
  out[2] = (st_named_number){"residual_multiplier", h->residual_scale};
  out[3] = (st_named_number){"logits_scaling", 1 / h->logit_scale};
  return 4;
}

static const st_fact facts[] = {
    {NULL, "embedding_multiplier attention_multiplier residual_multiplier logits_scaling mlp_bias", ST_FACT_USED, "",
     ""},
    {0},
};

static const st_binding bindings[] = {ST_BIND_LLAMA, ST_BIND_END};

const st_spec st_spec_granite = {
    .name = "granite",
    .gguf_names = names,
    .model_types = names,
    .hf_class = "GraniteForCausalLM",
    .facts = facts,
    .gguf_factors = true,
    .defaults = {ST_LLAMA_CONFIG, .n_vocab = 32000, .norm_eps = 1e-6f, .rope = {.theta = 10000}},
    .gguf_interleaved = true,
    .bindings = bindings,
    .read_hf = read_hf,
    .write_hf = write_hf,
};
