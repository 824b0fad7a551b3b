// Qwen 2 and Qwen 3 with experts: the attention of the dense models, some layers possibly dense, and in Qwen 2 a shared
// expert, weighted by the sigmoid of its own router.
#include "model/arch.h"
#include "model/hparams_read.h"

static const char *const qwen2_gguf[] = {"qwen2moe", NULL};
static const char *const qwen2_types[] = {"qwen2_moe", NULL};
static const char *const qwen3_gguf[] = {"qwen3moe", NULL};
static const char *const qwen3_types[] = {"qwen3_moe", NULL};

// What Qwen2MoeConfig and Qwen3MoeConfig have in common.
#define CONFIG                                                                                                         \
  .n_layer = 24, .n_embd = 2048, .n_vocab = 151936, .n_ctx_train = 32768, .norm_eps = 1e-6f, .fn = ST_FN_SILU

static setun_status read_qwen2(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_json_bool(c, "qkv_bias", &h->qkv_bias, err);
  return s == SETUN_OK ? st_hf_experts(c, h, err) : s;
}

static const st_fact qwen2_facts[] = {
    ST_FACTS_EXPERTS,
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ST_FACT_USED, "", ""},
    {"expert_shared_count", NULL, ST_FACT_AT, "0|1", "every layer with experts has one"},
    {NULL, "qkv_bias use_sliding_window", ST_FACT_USED, "", ""},
    {NULL, "sliding_window max_window_layers layer_types", ST_FACT_USED, "null", ""},
    {NULL, "attention_bias", ST_FACT_NEUTRAL, "", "Qwen2MoeConfig has qkv_bias instead"},
    {0},
};

static const st_fact qwen3_facts[] = {
    ST_FACTS_EXPERTS,
    {NULL, "use_sliding_window", ST_FACT_USED, "", ""},
    {NULL, "sliding_window layer_types", ST_FACT_USED, "null", ""},
    {NULL, "max_window_layers", ST_FACT_NEUTRAL, "", "Qwen3MoeConfig does not read it: a window applies to all layers"},
    {NULL, "head_dim", ST_FACT_USED, "null", ""},
    {0},
};

static const st_binding qwen2_bindings[] = {
    ST_BIND_GLOBAL,          ST_BIND_ATTENTION,
    ST_BIND(ST_FFN_NORM),    ST_BIND_MLP,
    ST_BIND_MLP_EXPERTS,     ST_BIND(ST_SHARED_ROUTER),
    ST_BIND(ST_SHARED_GATE), ST_BIND(ST_SHARED_UP),
    ST_BIND(ST_SHARED_DOWN), ST_BIND_END,
};

static const st_binding qwen3_bindings[] = {
    ST_BIND_GLOBAL, ST_BIND_ATTENTION,   ST_BIND_QK_NORMS, ST_BIND(ST_FFN_NORM),
    ST_BIND_MLP,    ST_BIND_MLP_EXPERTS, ST_BIND_END,
};

const st_spec st_spec_qwen2_moe = {
    .name = "qwen2moe",
    .gguf_names = qwen2_gguf,
    .model_types = qwen2_types,
    .hf_class = "Qwen2MoeForCausalLM",
    .facts = qwen2_facts,
    // Unlike that of the dense model, the official class lets every second one of the first max_window_layers layers
    // slide.
    .windows = {.period = 2,
                .layers = ST_WINDOW_BELOW,
                .config = true,
                .with_switch = true,
                .config_window = 4096,
                .config_lists = true},
    .defaults = {CONFIG, .n_head = 16, .n_head_kv = 16, .n_ff = 5632, .qkv_bias = true, .n_expert = 60,
                 .n_expert_used = 4, .n_ff_expert = 1408, .n_ff_shared = 5632, .rope = {.theta = 10000}},
    .hf_pre = "qwen2",
    .bindings = qwen2_bindings,
    .read_hf = read_qwen2,
};

// The chosen weights are divided by their sum in all published models, though GGUF files do not say so.
static setun_status read_gguf_qwen3(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  (void)architecture, (void)err;
  if (!st_metadata_find(m, "qwen3moe.expert_weights_norm")) h->router_renormalize = true;
  return SETUN_OK;
}

const st_spec st_spec_qwen3_moe = {
    .name = "qwen3moe",
    .gguf_names = qwen3_gguf,
    .model_types = qwen3_types,
    .hf_class = "Qwen3MoeForCausalLM",
    .facts = qwen3_facts,
    .windows = {.config = true, .with_switch = true, .config_window = 4096},
    .defaults = {CONFIG, .n_head = 32, .n_head_kv = 4, .n_ff = 6144, .n_expert = 128, .n_expert_used = 8,
                 .n_ff_expert = 768, .rope = {.theta = 10000}},
    .hf_pre = "qwen2",
    .bindings = qwen3_bindings,
    .read_hf = st_hf_experts,
    .read_gguf = read_gguf_qwen3,
};
