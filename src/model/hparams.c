// Hyperparameters: the family of a file, its defaults, and the checks that both containers share.
#include "model/embedding.h"
#include "model/hparams_read.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const st_spec *const specs[] = {
#define ARCH(spec) &spec,
#include "model/arch/archs.def"
#undef ARCH
};

static bool listed(const char *const *names, const char *name, size_t length) {
  for (; *names; names++) {
    if (strlen(*names) == length && !memcmp(*names, name, length)) return true;
  }
  return false;
}

// "bitnet, llama, ...": the families that the container can name.
static void list_names(bool gguf, st_buffer *out) {
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    const char *const *names = gguf ? specs[i]->gguf_names : specs[i]->model_types;
    for (; *names; names++) st_buffer_format(out, "%s%s", out->length ? ", " : "", *names);
  }
}

// Families that resemble supported ones but need something that is missing here.
static const char *missing_for(const char *name, size_t length) {
  static const struct {
    const char *const names[6]; // NULL-terminated
    const char *missing;
  } relatives[] = {
      {{"gemma", "gemma2"}, "an MLP and norms of its own, and soft-capped logits"},
      {{"gemma3n"}, "per-layer embeddings and alternating updates"},
      {{"qwen2_vl", "qwen2_5_vl", "qwen2vl", "qwen3vl"}, "RoPE in three dimensions and a vision part"},
      {{"llama4", "llama4_text"}, "chunked attention and layers without RoPE"},
      {{"minicpm3", "deepseek_v2", "deepseek_v3", "deepseek2"}, "latent attention"},
      {{"phi", "phi2"}, "an MLP and norms of its own"},
      {{"olmo"}, "norms without weights"},
      {{"granitemoe", "cohere", "cohere2"}, "experts, factors or norms of its own"},
      {{"mistral3", "ministral"}, "settings of its own"},
      {{"mamba", "mamba2", "jamba", "falcon_h1", "falcon-h1"}, "state-space layers"},
      {{"t5", "bert", "gpt2", "falcon"}, "another block than the pre-norm one with RoPE and RMSNorm"},
  };
  for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++) {
    if (listed(relatives[i].names, name, length)) return relatives[i].missing;
  }
  return NULL;
}

const st_spec *st_spec_find(bool gguf, const char *key, const char *name, size_t length, setun_error *err) {
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    if (listed(gguf ? specs[i]->gguf_names : specs[i]->model_types, name, length)) return specs[i];
  }
  st_buffer known = {0};
  list_names(gguf, &known);
  const char *missing = missing_for(name, length);
  if (!length) {
    st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected one of %s, found none", key, known.data ? known.data : "-");
  } else {
    st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected one of %s, found \"%.*s\"%s%s", key,
            known.data ? known.data : "-", (int)(length < 64 ? length : 64), name, missing ? ", which needs " : "",
            missing ? missing : "");
  }
  st_buffer_free(&known);
  return NULL;
}

// GGUF has fewer names: families shaped like Llama use its name.
const st_spec *st_spec_counterpart(const st_spec *spec, bool to_gguf, const st_hparams *h, setun_error *err) {
  const char *own = to_gguf ? spec->gguf_names[0] : spec->model_types[0], *name = spec->name;
  if (own) name = own;
  if (!own && to_gguf && spec->gguf_as) name = spec->gguf_as;
  for (size_t i = 0; i < sizeof specs / sizeof *specs && !to_gguf; i++) {
    bool as = specs[i]->gguf_as && listed(spec->gguf_names, specs[i]->gguf_as, strlen(specs[i]->gguf_as));
    if (as && specs[i]->is_it(h)) name = specs[i]->model_types[0];
  }
  return st_spec_find(to_gguf, to_gguf ? "general.architecture" : "config.json: model_type", name, strlen(name), err);
}

setun_status st_hparams_fn(const char *key, const char *name, size_t length, st_activation_fn *fn, setun_error *err) {
  static const struct {
    const char *name;
    st_activation_fn fn;
  } known[] = {{"silu", ST_FN_SILU},
               {"swish", ST_FN_SILU},
               {"relu2", ST_FN_RELU2},
               {"relu_squared", ST_FN_RELU2},
               {"gelu_pytorch_tanh", ST_FN_GELU_TANH},
               {"gelu_tanh", ST_FN_GELU_TANH}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strlen(known[i].name) == length && !memcmp(known[i].name, name, length)) {
      *fn = known[i].fn;
      return SETUN_OK;
    }
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected silu, relu2 or gelu_pytorch_tanh, found \"%.*s\"", key,
                 (int)(length < 64 ? length : 64), name);
}

// Checked in both containers; messages use the container's own key.
typedef enum field {
  N_LAYER,
  N_EMBD,
  N_HEAD,
  N_HEAD_KV,
  HEAD_DIM,
  ROTATED,
  N_FF,
  N_VOCAB,
  N_CTX,
  EXPERTS,
  NORM_EPS,
  ROPE_BASE,
  ROPE_LOCAL_BASE,
  ROPE_FACTOR
} field;

// "llama.block_count" or "config.json: num_hidden_layers": the key as the container spells it.
static const char *key_of(const st_directory *d, field f, char out[160]) {
  static const struct {
    const char *gguf, *hf;
  } keys[] = {[N_LAYER] = {"block_count", "num_hidden_layers"},
              [N_EMBD] = {"embedding_length", "hidden_size"},
              [N_HEAD] = {"attention.head_count", "num_attention_heads"},
              [N_HEAD_KV] = {"attention.head_count_kv", "num_key_value_heads"},
              [HEAD_DIM] = {"attention.key_length", "head_dim"},
              [ROTATED] = {"rope.dimension_count", "partial_rotary_factor"},
              [N_FF] = {"feed_forward_length", "intermediate_size"},
              [N_VOCAB] = {"vocab_size", "vocab_size"},
              [N_CTX] = {"context_length", "max_position_embeddings"},
              [EXPERTS] = {"expert_used_count", "num_experts_per_tok"},
              [NORM_EPS] = {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
              [ROPE_BASE] = {"rope.freq_base", "rope_theta"},
              [ROPE_LOCAL_BASE] = {"rope.freq_base_swa", "rope_local_base_freq"},
              [ROPE_FACTOR] = {"rope.scaling.factor", "rope scaling: factor"}};
  st_text architecture = {0};
  if (d->container != ST_GGUF) {
    snprintf(out, 160, "config.json: %s", keys[f].hf);
  } else {
    st_metadata_text(&d->metadata, "general.architecture", &architecture, NULL);
    snprintf(out, 160, "%.*s.%s", (int)(architecture.length < 64 ? architecture.length : 64),
             architecture.data ? architecture.data : "", keys[f].gguf);
  }
  return out;
}

// Far beyond any model's values, and small enough that angles and norms stay within float32.
static setun_status in_range(const st_directory *d, field f, float value, float low, float high, setun_error *err) {
  char key[160];
  if (value >= low && value <= high) return SETUN_OK; // also rejects NaN
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a number from %g to %g, found %g", key_of(d, f, key),
                 (double)low, (double)high, (double)value);
}

static setun_status check_numbers(const st_directory *d, const st_hparams *h, setun_error *err) {
  const st_rope_params *r = &h->rope, *local = &h->rope_local;
  setun_status s = in_range(d, NORM_EPS, h->norm_eps, 0, 1, err);
  if (s == SETUN_OK) s = in_range(d, ROPE_BASE, r->theta, 1, 1e12f, err);
  if (s == SETUN_OK && r->scaling != ST_ROPE_PLAIN) s = in_range(d, ROPE_FACTOR, r->factor, 1e-6f, 1e6f, err);
  if (s != SETUN_OK || !h->has_rope_local) return s;
  s = in_range(d, ROPE_LOCAL_BASE, local->theta, 1, 1e12f, err);
  if (s == SETUN_OK && local->scaling != ST_ROPE_PLAIN) s = in_range(d, ROPE_FACTOR, local->factor, 1e-6f, 1e6f, err);
  return s;
}

static setun_status check_positive(const st_directory *d, const st_hparams *h, setun_error *err) {
  const struct {
    field field;
    uint32_t value;
  } numbers[] = {{N_LAYER, h->n_layer}, {N_EMBD, h->n_embd},   {N_HEAD, h->n_head},
                 {N_FF, h->n_ff},       {N_VOCAB, h->n_vocab}, {N_CTX, h->n_ctx_train}};
  char key[160];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (numbers[i].value) continue;
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a positive number, found 0",
                   key_of(d, numbers[i].field, key));
  }
  if (h->n_layer <= ST_MAX_LAYERS) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_LIMIT, "%s: expected at most %d, found %u", key_of(d, N_LAYER, key), ST_MAX_LAYERS,
                 h->n_layer);
}

setun_status st_hparams_check_layers(const st_directory *d, const st_hparams *h, setun_error *err) {
  char key[160];
  if (h->n_layer <= d->n_tensors) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected at most the number of tensors, %zu, found %u",
                 key_of(d, N_LAYER, key), d->n_tensors, h->n_layer);
}

// Checks that apply to both containers; derives the remaining fields.
static setun_status check(const st_directory *d, st_hparams *h, setun_error *err) {
  char key[160];
  setun_status s = check_positive(d, h, err);
  if (s != SETUN_OK) return s;
  if (!h->n_head_kv) h->n_head_kv = h->n_head;
  if (h->n_head % h->n_head_kv) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a divisor of %u heads, found %u", key_of(d, N_HEAD_KV, key),
                   h->n_head, h->n_head_kv);
  }
  if (h->n_expert > ST_MAX_EXPERTS || h->n_expert_used > h->n_expert || (h->n_expert && !h->n_expert_used)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected 1 to %u of at most %d experts, found %u of %u",
                   key_of(d, EXPERTS, key), h->n_expert, ST_MAX_EXPERTS, h->n_expert_used, h->n_expert);
  }
  if (!h->n_ff_expert) h->n_ff_expert = h->n_ff;
  if (!h->head_dim) {
    if (h->n_embd % h->n_head) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a multiple of %u heads, found %u", key_of(d, N_EMBD, key),
                     h->n_head, h->n_embd);
    }
    h->head_dim = h->n_embd / h->n_head;
  }
  if (h->head_dim % 2 || h->head_dim > 65536) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected an even head size up to 65536, found %u",
                   key_of(d, HEAD_DIM, key), h->head_dim);
  }
  if (!h->n_rot) h->n_rot = h->head_dim;
  if (h->n_rot % 2 || h->n_rot > h->head_dim) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected an even number of at most %u elements, found %u",
                   key_of(d, ROTATED, key), h->head_dim, h->n_rot);
  }
  if ((s = check_numbers(d, h, err)) != SETUN_OK) return s;
  // Longer than trained only as far as a RoPE scaling allows.
  double stretched = (double)h->rope.original_max_position_embeddings * h->rope.factor;
  bool stretches =
      h->rope.scaling == ST_ROPE_YARN || h->rope.scaling == ST_ROPE_LINEAR || h->rope.scaling == ST_ROPE_LONG;
  h->n_ctx_most = h->n_ctx_train;
  if (stretches && stretched > h->n_ctx_most) h->n_ctx_most = stretched < 1 << 30 ? (uint32_t)stretched : 1u << 30;
  if (h->attn_scale == 0) h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
  return SETUN_OK;
}

// BitNet's embedding models normalize the input of every matrix of their layers, with the model's epsilon, and these
// matrices are ternary. No key says so; the presence of the norms does. In GGUF files the layouts show what is ternary.
static void find_projection_norms(const st_directory *d, st_hparams *h) {
  static const char *const names[] = {"blk.0.attn_q_norm_in.weight", "layers.0.self_attn.q_proj.norm.weight",
                                      "model.layers.0.self_attn.q_proj.norm.weight"};
  for (size_t i = 0; i < sizeof names / sizeof *names && d->n_tensors; i++) {
    if (st_directory_find(d, names[i])) h->projection_norms = true;
  }
  if (!h->projection_norms) return;
  h->linear_norm = true;
  h->linear_norm_eps = h->norm_eps;
  if (d->container != ST_GGUF) h->int8 = true;
}

// Embedding models are published without a head, whatever config.json says about tying, and without the "model." prefix
// of names.
static void find_head(const st_directory *d, st_hparams *h) {
  if (d->container != ST_HUGGINGFACE || !d->n_tensors || h->tied) return;
  h->headless = st_directory_find(d, "embed_tokens.weight") && !st_directory_find(d, "lm_head.weight");
  if (h->headless) h->tied = true;
}

static void begin(const st_spec *spec, st_hparams *h) {
  *h = spec->defaults;
  h->embed_scale = h->residual_scale = h->logit_scale = 1;
  h->linear_norm_eps = 1e-6f;
  st_rope_params *tables[] = {&h->rope, &h->rope_local};
  for (int i = 0; i < 2; i++) {
    tables[i]->factor = 1;
    tables[i]->extrapolation = 1;
    tables[i]->beta_fast = 32;
    tables[i]->beta_slow = 1;
    tables[i]->truncate = true;
  }
}

setun_status st_hparams_read(const st_directory *d, const char *activation, const st_spec **spec, st_hparams *h,
                             setun_error *err) {
  const st_spec *found = NULL;
  setun_status s = d->container == ST_GGUF ? st_gguf_spec(d, &found, err) : st_hf_spec(d, &found, err);
  if (s != SETUN_OK) return s;
  if ((s = st_facts_check(d, found, err)) != SETUN_OK) return s;
  begin(found, h);
  s = d->container == ST_GGUF ? st_gguf_hparams(d, found, h, err) : st_hf_hparams(d, found, h, err);
  if (s == SETUN_OK) s = check(d, h, err);
  if (s == SETUN_OK) find_projection_norms(d, h);
  if (s == SETUN_OK) find_head(d, h);
  if (s == SETUN_OK) s = st_rotation_read(d, &h->rotation, err);
  if (s == SETUN_OK) s = st_embedding_read(d, h, err);
  if (s == SETUN_OK && activation) h->int8 = !strcmp(activation, "int8");
  if (s == SETUN_OK) {
    *spec = found;
  } else {
    st_hparams_free(h);
  }
  return s;
}

void st_hparams_free(st_hparams *h) {
  st_rope_params *tables[] = {&h->rope, &h->rope_local};
  for (int i = 0; i < 2; i++) {
    st_free(tables[i]->short_factor);
    st_free(tables[i]->long_factor);
    tables[i]->short_factor = tables[i]->long_factor = NULL;
  }
  st_rotation_free(h->rotation);
  h->rotation = NULL;
}
