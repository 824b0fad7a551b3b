// Qwen3-Next and Qwen 3.5: three gated DeltaNet layers for each attention layer, whose output is gated and whose RoPE
// rotates part of each head; directories store norms minus one; some have experts. Of multimodal checkpoints only the
// language part is used; multi-token prediction blocks (MTP) are not used.
#include "model/arch.h"
#include "model/hparams_read.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum { INTERVAL = 4, DIM_MOST = 65536, HEADS_MOST = 65536, TAPS_MOST = 16 };

static const char *const qwen35_gguf[] = {"qwen35", NULL};
static const char *const qwen35_types[] = {"qwen3_5_text", "qwen3_5", NULL};
static const char *const qwen35_moe_gguf[] = {"qwen35moe", NULL};
static const char *const qwen35_moe_types[] = {"qwen3_5_moe_text", "qwen3_5_moe", NULL};
static const char *const next_gguf[] = {"qwen3next", NULL};
static const char *const next_types[] = {"qwen3_next", NULL};
static const char *const chat_templates[] = {"ChatML", NULL};
static const char *const ignored[] = {"model.visual.", "visual.", "mtp.", NULL};

static void by_interval(st_hparams *h, uint32_t interval) {
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->recurrent[i] = (i + 1) % interval != 0;
}

// Checks that both containers share.
static setun_status check(const st_hparams *h, setun_error *err) {
  const st_delta_params *d = &h->delta;
  const uint32_t sizes[] = {d->n_key_heads, d->n_value_heads, d->key_dim, d->value_dim, d->n_taps};
  const uint32_t most[] = {HEADS_MOST, HEADS_MOST, DIM_MOST, DIM_MOST, TAPS_MOST};
  for (int i = 0; i < 5; i++) {
    if (sizes[i] && sizes[i] <= most[i]) continue;
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "linear attention: expected heads, their sizes and taps from 1 to %d (taps: to %d), found %u and %u "
                   "heads of %u and %u, and %u taps",
                   DIM_MOST, TAPS_MOST, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]);
  }
  if (d->n_value_heads % d->n_key_heads == 0 && (uint64_t)d->n_key_heads * d->key_dim <= 1u << 24 &&
      (uint64_t)d->n_value_heads * d->value_dim <= 1u << 24) {
    return SETUN_OK;
  }
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "linear attention: expected a multiple of %u key heads of %u, of at most 2^24 columns together, found "
                 "%u value heads of %u",
                 d->n_key_heads, d->key_dim, d->n_value_heads, d->value_dim);
}

// ---- config.json --------------------------------------------------------------------------------------------------

static setun_status read_types(const st_json *list, st_hparams *h, setun_error *err) {
  if (!st_json_is_array(list) || st_json_size(list) != h->n_layer) {
    return st_fail(err, SETUN_ERROR_FORMAT, "layer_types: expected an array of %u strings, found %s of %zu", h->n_layer,
                   st_json_kind(list), st_json_size(list));
  }
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) {
    const char *type = st_json_string(st_json_at(list, i));
    h->recurrent[i] = type && !strcmp(type, "linear_attention");
    if (h->recurrent[i] || (type && !strcmp(type, "full_attention"))) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "layer_types: expected linear_attention or full_attention, found \"%.64s\" at index %u",
                   type ? type : st_json_kind(st_json_at(list, i)), i);
  }
  return SETUN_OK;
}

static setun_status read_hf(const st_json *c, st_hparams *h, setun_error *err) {
  st_delta_params *d = &h->delta;
  const struct {
    const char *key;
    uint32_t *out;
  } numbers[] = {{"linear_num_key_heads", &d->n_key_heads},
                 {"linear_num_value_heads", &d->n_value_heads},
                 {"linear_key_head_dim", &d->key_dim},
                 {"linear_value_head_dim", &d->value_dim},
                 {"linear_conv_kernel_dim", &d->n_taps}};
  uint32_t interval = INTERVAL;
  setun_status s = st_json_u32(c, "full_attention_interval", 1, 1u << 20, &interval, err);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && s == SETUN_OK; i++) {
    s = st_json_u32(c, numbers[i].key, 1, 1u << 20, numbers[i].out, err);
  }
  d->log_rate = true;
  by_interval(h, interval);
  const st_json *list = st_json_get(c, "layer_types");
  if (s == SETUN_OK && list) s = read_types(list, h, err);
  if (!h->n_rot) h->n_rot = h->head_dim / 4; // the default of the classes
  return s == SETUN_OK ? check(h, err) : s;
}

static setun_status read_hf_moe(const st_json *c, st_hparams *h, setun_error *err) {
  setun_status s = st_hf_experts(c, h, err);
  return s == SETUN_OK ? read_hf(c, h, err) : s;
}

static setun_status read_hf_next(const st_json *c, st_hparams *h, setun_error *err) {
  h->delta.joined_mixed = h->delta.joined_switches = true;
  return read_hf_moe(c, h, err);
}

// ---- GGUF ---------------------------------------------------------------------------------------------------------

typedef struct {
  const st_metadata *m;
  const char *architecture;
  setun_error *err;
} keys;

static const st_meta *find(const keys *k, const char *name, char key[128]) {
  snprintf(key, 128, "%s.%s", k->architecture, name);
  return st_metadata_find(k->m, key);
}

static setun_status need_u32(const keys *k, const char *name, uint32_t *out) {
  char key[128];
  if (find(k, name, key)) return st_metadata_u32(k->m, key, 0, 1u << 30, out, k->err);
  return st_fail(k->err, SETUN_ERROR_FORMAT, "%s: expected a positive integer, found none", key);
}

// Which layers are recurrent: a list (newer files), or an interval. Both include the MTP layers after the last one.
static setun_status read_layers(const keys *k, st_hparams *h) {
  char key[128];
  uint32_t interval = INTERVAL;
  setun_status s = SETUN_OK;
  if (find(k, "full_attention_interval", key)) s = st_metadata_u32(k->m, key, 1, 1u << 20, &interval, k->err);
  by_interval(h, interval);
  const st_meta *list = find(k, "attention.recurrent_layers", key);
  if (s != SETUN_OK || !list) return s;
  if (list->type != ST_META_ARRAY || list->element != ST_META_BOOL || list->count < h->n_layer) {
    return st_fail(k->err, SETUN_ERROR_FORMAT, "%s: expected %u flags, one a layer", key, h->n_layer);
  }
  for (uint32_t i = 0; i < h->n_layer && i < ST_MAX_LAYERS; i++) h->recurrent[i] = st_meta_number(list, i) != 0;
  return SETUN_OK;
}

// For text, all components of a position are equal; pairs that no section covers are not rotated.
static setun_status check_sections(const keys *k, const st_hparams *h) {
  char key[128];
  const st_meta *list = find(k, "rope.dimension_sections", key);
  double pairs = 0, wanted = (h->n_rot ? h->n_rot : h->head_dim) / 2;
  if (!list) return SETUN_OK;
  bool numbers = list->type == ST_META_ARRAY && st_meta_is_integer(list->element) && list->count <= 4;
  for (uint64_t i = 0; numbers && i < list->count; i++) pairs += st_meta_number(list, i);
  if (numbers && pairs >= wanted) return SETUN_OK;
  return st_fail(k->err, SETUN_ERROR_UNSUPPORTED,
                 "%s: expected up to 4 integers with a sum of at least %g pairs, found %g", key, wanted, pairs);
}

static setun_status read_gguf(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  const keys k = {m, architecture, err};
  st_delta_params *d = &h->delta;
  char key[128];
  uint32_t inner = 0, all = h->n_layer;
  setun_status s = SETUN_OK;
  if (find(&k, "nextn_predict_layers", key)) s = st_metadata_u32(m, key, 0, 1u << 20, &h->n_layer_next, err);
  if (s == SETUN_OK && h->n_layer_next >= all) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected fewer than the %u blocks, found %u", key, all, h->n_layer_next);
  }
  if (s == SETUN_OK) h->n_layer -= h->n_layer_next;
  if (s == SETUN_OK) s = need_u32(&k, "ssm.conv_kernel", &d->n_taps);
  if (s == SETUN_OK) s = need_u32(&k, "ssm.state_size", &d->key_dim);
  if (s == SETUN_OK) s = need_u32(&k, "ssm.group_count", &d->n_key_heads);
  if (s == SETUN_OK) s = need_u32(&k, "ssm.time_step_rank", &d->n_value_heads);
  if (s == SETUN_OK) s = need_u32(&k, "ssm.inner_size", &inner);
  if (s == SETUN_OK && (!d->n_value_heads || inner % d->n_value_heads)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s.ssm.inner_size: expected a multiple of %u heads, found %u", architecture,
                d->n_value_heads, inner);
  }
  if (s != SETUN_OK) return s;
  d->value_dim = inner / d->n_value_heads;
  s = read_layers(&k, h);
  if (s == SETUN_OK) s = check_sections(&k, h);
  // The chosen experts' weights are divided by their sum in all models, though no file says so.
  if (!find(&k, "expert_weights_norm", key)) h->router_renormalize = true;
  return s == SETUN_OK ? check(h, err) : s;
}

static setun_status read_gguf_next(const st_metadata *m, const char *architecture, st_hparams *h, setun_error *err) {
  h->delta.joined_switches = true;
  return read_gguf(m, architecture, h, err);
}

// ---- what files say -----------------------------------------------------------------------------------------------

#define FACTS                                                                                                          \
  {"ssm.conv_kernel", "linear_conv_kernel_dim", ST_FACT_USED, "", ""},                                                 \
      {"ssm.state_size", "linear_key_head_dim", ST_FACT_USED, "", ""},                                                 \
      {"ssm.group_count", "linear_num_key_heads", ST_FACT_USED, "", ""},                                               \
      {"ssm.time_step_rank", "linear_num_value_heads", ST_FACT_USED, "", ""},                                          \
      {"ssm.inner_size", "linear_value_head_dim", ST_FACT_USED, "", ""},                                               \
      {"attention.recurrent_layers", "layer_types", ST_FACT_USED, "null", ""},                                         \
      {"full_attention_interval", "full_attention_interval", ST_FACT_USED, "null", ""},                                \
      {"rope.dimension_sections", NULL, ST_FACT_USED, "", "for text all components of a position are equal"},          \
      {NULL, "rope:mrope_section rope:mrope_interleaved", ST_FACT_NEUTRAL, "", "likewise"},                            \
      {"nextn_predict_layers", NULL, ST_FACT_USED, "", "about blocks that are not used"},                              \
      {NULL, "mtp_num_hidden_layers mtp_use_dedicated_embeddings", ST_FACT_NEUTRAL, "",                                \
       "multi-token prediction blocks are not used"},                                                                  \
      {NULL, "attn_output_gate", ST_FACT_AT, "true", "the official classes always have it"},                           \
      {NULL, "mamba_ssm_dtype", ST_FACT_AT, "float32", "of states"},                                                   \
      {"hidden_activation", "hidden_act", ST_FACT_AT, "silu", "it is the convolution's too in the official classes"},  \
  {                                                                                                                    \
    NULL, "head_dim", ST_FACT_USED, "", "the official classes have only a number here"                                 \
  }

static const st_fact qwen35_facts[] = {FACTS, {0}};
static const st_fact moe_facts[] = {
    FACTS,
    ST_FACTS_EXPERTS,
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", ST_FACT_USED, "", ""},
    {"expert_shared_count", NULL, ST_FACT_AT, "0|1", "every layer with experts has one"},
    {0},
};

// ---- names --------------------------------------------------------------------------------------------------------

#define BIND_MIXERS                                                                                                    \
  ST_BIND_GLOBAL, ST_BIND_ATTENTION, ST_BIND(ST_ATTN_Q_NORM), ST_BIND(ST_ATTN_K_NORM), ST_BIND(ST_DELTA_TAPS),         \
      ST_BIND(ST_DELTA_RATE), ST_BIND(ST_DELTA_BIAS), ST_BIND(ST_DELTA_NORM), ST_BIND(ST_DELTA_OUT), {                 \
    .role = ST_FFN_NORM, .gguf = "blk.%u.post_attention_norm"                                                          \
  }
#define BIND_PROJECTIONS ST_BIND(ST_DELTA_QKV), ST_BIND(ST_DELTA_Z), ST_BIND(ST_DELTA_ALPHA), ST_BIND(ST_DELTA_BETA)
#define BIND_SHARED ST_BIND(ST_SHARED_ROUTER), ST_BIND(ST_SHARED_GATE), ST_BIND(ST_SHARED_UP), ST_BIND(ST_SHARED_DOWN)

static const st_binding qwen35_bindings[] = {BIND_MIXERS, BIND_PROJECTIONS, ST_BIND_MLP, ST_BIND_END};

// Experts one by one or, as published, in two tensors.
static const st_binding qwen35_moe_bindings[] = {
    BIND_MIXERS,
    BIND_PROJECTIONS,
    ST_BIND_MLP_EXPERTS,
    ST_BIND(ST_EXPERT_GATE_THEN_UP),
    {.role = ST_EXPERT_DOWN, .gguf = ST_NO_NAME, .hf = "model.layers.%u.mlp.experts.down_proj"},
    BIND_SHARED,
    ST_BIND_END,
};

// For q, k, v and z, GGUF files have two matrices; older files, and those written here, have the single one of
// directories.
static const st_binding next_bindings[] = {
    BIND_MIXERS,
    {.role = ST_DELTA_QKV, .hf = ST_NO_NAME},
    {.role = ST_DELTA_Z, .hf = ST_NO_NAME},
    ST_BIND(ST_DELTA_QKVZ),
    ST_BIND(ST_DELTA_SWITCHES),
    ST_BIND_MLP,
    ST_BIND_MLP_EXPERTS,
    BIND_SHARED,
    ST_BIND_END,
};

// ---- families -----------------------------------------------------------------------------------------------------

#define DEFAULTS                                                                                                       \
  .n_head = 16, .head_dim = 256, .n_ctx_train = 32768, .norm_eps = 1e-6f, .fn = ST_FN_SILU, .norm_plus_one = true,     \
  .gated_attention = true, .rope = {.theta = 10000},                                                                   \
  .delta = {.n_key_heads = 16, .n_value_heads = 32, .key_dim = 128, .value_dim = 128, .n_taps = 4}

const st_spec st_spec_qwen35 = {
    .name = "qwen35",
    .gguf_names = qwen35_gguf,
    .model_types = qwen35_types,
    .hf_class = "Qwen3_5ForCausalLM",
    .facts = qwen35_facts,
    .defaults = {DEFAULTS, .n_layer = 32, .n_embd = 4096, .n_head_kv = 4, .n_ff = 12288, .n_vocab = 248320},
    .partial_rope = true,
    .gguf_tiled = true,
    .gguf_sections = true,
    .hf_pre = "qwen35",
    .bindings = qwen35_bindings,
    .ignored = ignored,
    .hf_prefix = "language_model.",
    .chat_templates = chat_templates,
    .read_hf = read_hf,
    .read_gguf = read_gguf,
};

// No layer is dense: the dense width is set to an expert's, which takes no memory.
const st_spec st_spec_qwen35_moe = {
    .name = "qwen35moe",
    .gguf_names = qwen35_moe_gguf,
    .model_types = qwen35_moe_types,
    .hf_class = "Qwen3_5MoeForCausalLM",
    .facts = moe_facts,
    .defaults = {DEFAULTS, .n_layer = 40, .n_embd = 2048, .n_head_kv = 2, .n_ff = 512, .n_vocab = 248320,
                 .n_expert = 256, .n_expert_used = 8, .n_ff_expert = 512, .n_ff_shared = 512,
                 .router_renormalize = true},
    .partial_rope = true,
    .gguf_tiled = true,
    .gguf_sections = true,
    .hf_pre = "qwen35",
    .bindings = qwen35_moe_bindings,
    .ignored = ignored,
    .hf_prefix = "language_model.",
    .chat_templates = chat_templates,
    .read_hf = read_hf_moe,
    .read_gguf = read_gguf,
};

const st_spec st_spec_qwen3_next = {
    .name = "qwen3next",
    .gguf_names = next_gguf,
    .model_types = next_types,
    .hf_class = "Qwen3NextForCausalLM",
    .facts = moe_facts,
    .defaults = {DEFAULTS, .n_layer = 48, .n_embd = 2048, .n_head_kv = 2, .n_ff = 5632, .n_vocab = 151936,
                 .n_expert = 512, .n_expert_used = 10, .n_ff_expert = 512, .n_ff_shared = 512,
                 .router_renormalize = true},
    .partial_rope = true,
    .hf_pre = "qwen2",
    .bindings = next_bindings,
    .ignored = ignored,
    .chat_templates = chat_templates,
    .read_hf = read_hf_next,
    .read_gguf = read_gguf_next,
};
