// Hyperparameters: which family a file is of, what holds by default, and the checks that all containers share.
#include "model/hparams_read.h"

#include "base/memory.h"

#include <math.h>
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

// Families that look like supported ones and are not, by what they would need.
static const char *missing_for(const char *name, size_t length) {
  static const struct {
    const char *const names[6]; // ended with NULL
    const char *missing;
  } relatives[] = {
      {{"gemma", "gemma2"}, "an MLP and norms of its own, and soft-capped logits"},
      {{"gemma3n"}, "per-layer embeddings and alternating updates"},
      {{"qwen3_next", "qwen3next", "qwen3_5", "qwen35", "qwen35moe"}, "linear attention in some layers (a hybrid)"},
      {{"qwen2_vl", "qwen2_5_vl", "qwen2vl", "qwen3vl"}, "RoPE in three dimensions and a vision part"},
      {{"llama4", "llama4_text"}, "chunked attention and layers without RoPE"},
      {{"minicpm3", "deepseek_v2", "deepseek_v3", "deepseek2"}, "latent attention"},
      {{"phi", "phi2", "phi3"}, "fused q/k/v and gate/up matrices"},
      {{"olmo", "olmo2"}, "norms without weights or after the branches"},
      {{"granite", "granitemoe", "cohere", "cohere2"}, "factors or norms of its own"},
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

static setun_status positive(const char *what, uint32_t value, setun_error *err) {
  return value ? SETUN_OK : st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a positive number, found 0", what);
}

static setun_status check_rope(const st_rope_params *r, setun_error *err) {
  if (!(r->theta > 0) || !isfinite(r->theta)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "RoPE base: expected a positive number, found %g", (double)r->theta);
  }
  if (r->scaling != ST_ROPE_PLAIN && (!(r->factor > 0) || !isfinite(r->factor))) {
    return st_fail(err, SETUN_ERROR_FORMAT, "RoPE scaling factor: expected a positive number, found %g",
                   (double)r->factor);
  }
  return SETUN_OK;
}

// What both containers must satisfy; fills in what follows from the rest.
static setun_status check(st_hparams *h, setun_error *err) {
  setun_status s = positive("number of layers", h->n_layer, err);
  if (s == SETUN_OK) s = positive("embedding length", h->n_embd, err);
  if (s == SETUN_OK) s = positive("number of heads", h->n_head, err);
  if (s == SETUN_OK) s = positive("feed-forward length", h->n_ff, err);
  if (s == SETUN_OK) s = positive("vocabulary size", h->n_vocab, err);
  if (s == SETUN_OK) s = positive("context length", h->n_ctx_train, err);
  if (s != SETUN_OK) return s;
  if (h->n_layer > ST_MAX_LAYERS) {
    return st_fail(err, SETUN_ERROR_LIMIT, "number of layers: expected at most %d, found %u", ST_MAX_LAYERS,
                   h->n_layer);
  }
  if (!h->n_head_kv) h->n_head_kv = h->n_head;
  if (h->n_head % h->n_head_kv) {
    return st_fail(err, SETUN_ERROR_FORMAT, "number of KV heads: expected a divisor of %u heads, found %u", h->n_head,
                   h->n_head_kv);
  }
  if (h->n_expert > ST_MAX_EXPERTS || h->n_expert_used > h->n_expert || (h->n_expert && !h->n_expert_used)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "experts: expected 1 to %u of at most %d used for a token, found %u of %u",
                   h->n_expert, ST_MAX_EXPERTS, h->n_expert_used, h->n_expert);
  }
  if (!h->n_ff_expert) h->n_ff_expert = h->n_ff;
  if (!h->head_dim) {
    if (h->n_embd % h->n_head) {
      return st_fail(err, SETUN_ERROR_FORMAT, "embedding length: expected a multiple of %u heads, found %u", h->n_head,
                     h->n_embd);
    }
    h->head_dim = h->n_embd / h->n_head;
  }
  if (h->head_dim % 2 || h->head_dim > 65536) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "head size: expected an even number up to 65536, found %u",
                   h->head_dim);
  }
  if (!(h->norm_eps >= 0) || !isfinite(h->norm_eps)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "norm epsilon: expected a number >= 0, found %g", (double)h->norm_eps);
  }
  setun_status r = check_rope(&h->rope, err);
  if (r == SETUN_OK && h->has_rope_local) r = check_rope(&h->rope_local, err);
  if (r != SETUN_OK) return r;
  // Beyond the trained length only as far as a scaling says that it stretches.
  double stretched = (double)h->rope.original_max_position_embeddings * h->rope.factor;
  bool stretches =
      h->rope.scaling == ST_ROPE_YARN || h->rope.scaling == ST_ROPE_LINEAR || h->rope.scaling == ST_ROPE_LONG;
  h->n_ctx_most = h->n_ctx_train;
  if (stretches && stretched > h->n_ctx_most) h->n_ctx_most = stretched < 1 << 30 ? (uint32_t)stretched : 1u << 30;
  if (h->attn_scale == 0) h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
  return SETUN_OK;
}

static void begin(const st_spec *spec, st_hparams *h) {
  *h = spec->defaults;
  h->embed_scale = h->residual_scale = h->logit_scale = 1;
  h->linear_norm_eps = 1e-6f;
  st_rope_params *tables[] = {&h->rope, &h->rope_local};
  for (int i = 0; i < 2; i++) {
    tables[i]->factor = 1;
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
  begin(found, h);
  s = d->container == ST_GGUF ? st_gguf_hparams(d, found, h, err) : st_hf_hparams(d, found, h, err);
  if (s == SETUN_OK) s = check(h, err);
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
}
