// BitNet b1.58: Llama's shape with norms inside the attention and the MLP, int8 activations and ternary matrices. The
// first reproduction (1bitLLM, `bitnet` in GGUF) uses SiLU; the 2B-4T model (`bitnet-b1.58`, `bitnet-25`) squared ReLU.
#include "model/arch.h"

static const char *const silu_gguf_names[] = {"bitnet", NULL};
static const char *const relu2_gguf_names[] = {"bitnet-b1.58", "bitnet-25", NULL};
static const char *const model_types[] = {"bitnet", NULL};
static const char *const no_types[] = {NULL};
static const char *const chat_templates[] = {"BitNet b1.58 2B4T", NULL};

// BitNetConfig's use_sub_norms (transformers pull request 47955): if false, the modules do not exist.
static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  bool sub_norms = true;
  setun_status s = st_json_bool(c, "use_sub_norms", &sub_norms, err);
  h->no_sub_norms = !sub_norms;
  return s;
}

static const st_fact facts[] = {
    {NULL, "use_sub_norms", ST_FACT_USED, "", ""},
    {0},
};

static const st_binding bindings[] = {
    ST_BIND_GLOBAL,       ST_BIND_ATTENTION, {.role = ST_ATTN_SUB_NORM, .need = ST_REQUIRED},
    ST_BIND(ST_FFN_NORM), ST_BIND_MLP,       {.role = ST_FFN_SUB_NORM, .need = ST_REQUIRED},
    ST_BIND_END,
};

const st_spec st_spec_bitnet = {
    .name = "bitnet",
    .gguf_names = silu_gguf_names,
    .model_types = no_types,
    .defaults = {.norm_eps = 1e-5f, .fn = ST_FN_SILU, .rope = {.theta = 10000}},
    .gguf_int8 = true,
    .bindings = bindings,
    .chat_templates = chat_templates,
};

const st_spec st_spec_bitnet_b158 = {
    .name = "bitnet-b1.58",
    .gguf_names = relu2_gguf_names,
    .model_types = model_types,
    .hf_class = "BitNetForCausalLM",
    .facts = facts,
    .defaults = {.n_layer = 30,
                 .n_embd = 2560,
                 .n_head = 20,
                 .n_head_kv = 5,
                 .n_ff = 6912,
                 .n_vocab = 128256,
                 .n_ctx_train = 2048,
                 .norm_eps = 1e-5f,
                 .fn = ST_FN_RELU2,
                 .rope = {.theta = 500000}},
    .gguf_defaults = true,
    .gguf_pre = "llama-bpe", // the official file has no key for it
    .gguf_int8 = true,
    .bindings = bindings,
    .chat_templates = chat_templates,
    .read_hf = read_hf,
};
