// Keys of GGUF files: carried over, or made from hyperparameters.
#include "convert/gguf_keys.h"

#include "convert/gguf_writer.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Keys that describe the file that was read and not the one that is written.
static bool is_dropped(const char *key) {
  static const char *const dropped[] = {"general.alignment", "general.file_type",   "split.no",
                                        "split.count",       "split.tensors.count", "setun.layout",
                                        "setun.activation",  "setun.t5.digits",     NULL};
  for (const char *const *d = dropped; *d; d++) {
    if (!strcmp(*d, key)) return true;
  }
  return false;
}

// ---- hyperparameters ----------------------------------------------------------------------------------------------

typedef struct {
  st_keys *keys;
  const char *architecture;
} writer;

static void put_u32(const writer *w, const char *name, uint32_t value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_u32(w->keys, key, value);
}

static void put_f32(const writer *w, const char *name, float value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_f32(w->keys, key, value);
}

static void put_text(const writer *w, const char *name, const char *value) {
  char key[128];
  snprintf(key, sizeof key, "%s.%s", w->architecture, name);
  st_keys_text(w->keys, key, value);
}

static void put_rope(const writer *w, const st_hparams *h) {
  static const char *const types[] = {[ST_ROPE_PLAIN] = NULL,
                                      [ST_ROPE_LINEAR] = "linear",
                                      [ST_ROPE_LLAMA3] = NULL,
                                      [ST_ROPE_YARN] = "yarn",
                                      [ST_ROPE_LONG] = "longrope"};
  const st_rope_params *r = &h->rope;
  put_u32(w, "rope.dimension_count", h->head_dim);
  put_f32(w, "rope.freq_base", r->theta);
  if (h->has_rope_local) put_f32(w, "rope.freq_base_swa", h->rope_local.theta);
  if (!types[r->scaling]) return;
  put_text(w, "rope.scaling.type", types[r->scaling]);
  put_f32(w, "rope.scaling.factor", r->factor);
  if (r->original_max_position_embeddings) {
    put_u32(w, "rope.scaling.original_context_length", r->original_max_position_embeddings);
  }
  if (r->scaling == ST_ROPE_YARN) {
    put_f32(w, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_f32(w, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->attention_factor > 0) put_f32(w, "rope.scaling.yarn_attn_factor", r->attention_factor);
  } else if (r->scaling == ST_ROPE_LONG && r->attention_factor > 0) {
    put_f32(w, "rope.scaling.attn_factor", r->attention_factor);
  }
}

// Which layers slide: a period where they have one, a flag a layer otherwise.
static void put_windows(const writer *w, const st_hparams *h) {
  char key[128];
  uint32_t period = 0;
  bool periodic = true;
  if (!h->window) return;
  put_u32(w, "attention.sliding_window", h->window);
  while (period < h->n_layer && h->sliding[period]) period++;
  period = period < h->n_layer ? period + 1 : 0;
  for (uint32_t i = 0; i < h->n_layer; i++) periodic = periodic && h->sliding[i] == (!period || (i + 1) % period != 0);
  snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", w->architecture);
  if (periodic)
    st_keys_u32(w->keys, key, period);
  else
    st_keys_bools(w->keys, key, h->sliding, h->n_layer);
}

static void put_experts(const writer *w, const st_hparams *h) {
  char key[128];
  if (!h->n_expert) return;
  put_u32(w, "expert_count", h->n_expert);
  put_u32(w, "expert_used_count", h->n_expert_used);
  put_u32(w, "expert_feed_forward_length", h->n_ff_expert);
  if (h->n_ff_shared) put_u32(w, "expert_shared_feed_forward_length", h->n_ff_shared);
  snprintf(key, sizeof key, "%s.expert_weights_norm", w->architecture);
  st_keys_bool(w->keys, key, h->router_renormalize);
}

static const char *fn_name(st_activation_fn fn) {
  return fn == ST_FN_SILU ? "silu" : fn == ST_FN_RELU2 ? "relu2" : fn == ST_FN_GELU_TANH ? "gelu_pytorch_tanh" : NULL;
}

static void put_factors(const writer *w, const st_spec *spec, const st_hparams *h) {
  if (spec->gguf_factors) {
    put_f32(w, "embedding_scale", h->embed_scale);
    put_f32(w, "residual_scale", h->residual_scale);
    put_f32(w, "logit_scale", 1 / h->logit_scale);
  }
  if (h->logit_softcap > 0) put_f32(w, "final_logit_softcapping", h->logit_softcap);
  if (h->clip_qkv > 0) put_f32(w, "attention.clamp_kqv", h->clip_qkv);
  if (h->fn != spec->defaults.fn && fn_name(h->fn)) put_text(w, "hidden_activation", fn_name(h->fn));
}

void st_gguf_hparams_keys(const st_spec *spec, const st_hparams *h, st_keys *keys) {
  writer w = {keys, spec->gguf_names[0]};
  st_keys_text(keys, "general.architecture", w.architecture);
  st_keys_text(keys, "general.type", "model");
  put_u32(&w, "block_count", h->n_layer);
  put_u32(&w, "context_length", h->n_ctx_train);
  put_u32(&w, "embedding_length", h->n_embd);
  put_u32(&w, "feed_forward_length", h->n_ff);
  put_u32(&w, "attention.head_count", h->n_head);
  put_u32(&w, "attention.head_count_kv", h->n_head_kv);
  put_u32(&w, "attention.key_length", h->head_dim);
  put_u32(&w, "attention.value_length", h->head_dim);
  put_f32(&w, "attention.layer_norm_rms_epsilon", h->norm_eps);
  put_u32(&w, "vocab_size", h->n_vocab);
  put_windows(&w, h);
  put_rope(&w, h);
  put_experts(&w, h);
  put_factors(&w, spec, h);
}

// ---- all keys -----------------------------------------------------------------------------------------------------

static bool writes(const st_conversion *p, st_format_id id) {
  for (size_t i = 0; i < p->n_items; i++) {
    if (p->items[i].format && p->items[i].format->id == id) return true;
  }
  return false;
}

// Weights whose scales divide, with the numbers by which they do.
static setun_status put_divisors(const st_conversion *p, st_keys *keys, setun_error *err) {
  st_text *names = st_malloc(p->n_items, sizeof *names);
  float *divisors = st_malloc(p->n_items, sizeof *divisors);
  size_t n = 0;
  setun_status s = names && divisors ? SETUN_OK : st_fail_memory(err, "the keys");
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    const st_item *item = &p->items[i];
    const st_weight *w = item->n_pieces == 1 ? &item->pieces[0].weight : NULL;
    if (!w || !w->scale_divides || w->n_scales != 1) continue;
    st_weight scale = {.name = w->scale->name,
                       .format = w->scale->format,
                       .shape = {1, 1},
                       .stored = {1, 1},
                       .row_step = 1,
                       .data = w->scale};
    st_row_reader r;
    s = st_row_reader_open(p->d, &scale, &r, err);
    if (s != SETUN_OK) break;
    s = st_read_floats(&r, 0, 1, &divisors[n], err);
    st_row_reader_close(&r);
    names[n++] = (st_text){item->name, strlen(item->name)};
  }
  if (s == SETUN_OK && n) {
    st_keys_texts(keys, "setun.divisors.tensors", names, n);
    st_keys_f32s(keys, "setun.divisors.values", divisors, n);
  }
  st_free(names);
  st_free(divisors);
  return s;
}

setun_status st_gguf_keys(const st_conversion *p, st_keys *keys, setun_error *err) {
  const st_metadata *m = &p->d->metadata;
  setun_status s = SETUN_OK;
  if (!p->from_gguf) st_gguf_hparams_keys(p->target_spec, &p->h, keys);
  for (size_t i = 0; p->from_gguf && i < m->count; i++) {
    if (!is_dropped(m->items[i].key) && !m->items[i].ignored) st_keys_meta(keys, &m->items[i]);
  }
  if (!p->from_gguf && p->o->tokenizer_keys) st_keys_append(keys, p->o->tokenizer_keys);
  if (p->alignment != ST_GGUF_USUAL) st_keys_u32(keys, "general.alignment", (uint32_t)p->alignment);
  st_keys_text(keys, "setun.layout", p->o->to->name);
  st_keys_text(keys, "setun.activation", p->int8 ? "int8" : "float");
  if (writes(p, ST_T5)) st_keys_text(keys, "setun.t5.digits", "minus-zero-plus");
  if (!p->from_gguf) s = put_divisors(p, keys, err);
  return s == SETUN_OK && keys->failed ? st_fail_memory(err, "the keys") : s;
}

// ---- verification -------------------------------------------------------------------------------------------------

static setun_status differs(const char *what, double expected, double found, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: the source says %g, and the target's container cannot say it (a reader would take %g)", what,
                 expected, found);
}

static setun_status compare_numbers(const st_hparams *a, const st_hparams *b, setun_error *err) {
  const struct {
    const char *what;
    double a, b;
  } numbers[] = {{"number of layers", a->n_layer, b->n_layer},
                 {"embedding length", a->n_embd, b->n_embd},
                 {"number of heads", a->n_head, b->n_head},
                 {"number of KV heads", a->n_head_kv, b->n_head_kv},
                 {"head size", a->head_dim, b->head_dim},
                 {"feed-forward length", a->n_ff, b->n_ff},
                 {"vocabulary size", a->n_vocab, b->n_vocab},
                 {"context length", a->n_ctx_train, b->n_ctx_train},
                 {"number of experts", a->n_expert, b->n_expert},
                 {"number of experts used", a->n_expert_used, b->n_expert_used},
                 {"feed-forward length of experts", a->n_expert ? a->n_ff_expert : 0, b->n_expert ? b->n_ff_expert : 0},
                 {"feed-forward length of the shared expert", a->n_ff_shared, b->n_ff_shared},
                 {"router", a->n_expert ? a->router : 0, b->n_expert ? b->router : 0},
                 {"router's normalization", a->n_expert && a->router_renormalize, b->n_expert && b->router_renormalize},
                 {"tied head", a->tied, b->tied},
                 {"absence of sub-norms", a->no_sub_norms, b->no_sub_norms},
                 {"norm epsilon", (double)a->norm_eps, (double)b->norm_eps},
                 {"activation function", a->fn, b->fn},
                 {"embedding factor", (double)a->embed_scale, (double)b->embed_scale},
                 {"residual factor", (double)a->residual_scale, (double)b->residual_scale},
                 {"attention factor", (double)a->attn_scale, (double)b->attn_scale},
                 {"clip_qkv", (double)a->clip_qkv, (double)b->clip_qkv},
                 {"final_logit_softcapping", (double)a->logit_softcap, (double)b->logit_softcap},
                 {"int8 activations", a->int8, b->int8}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (numbers[i].a != numbers[i].b) return differs(numbers[i].what, numbers[i].a, numbers[i].b, err);
  }
  // A factor that is stored as its inverse may lose its last bit.
  double ratio = (double)a->logit_scale / (double)b->logit_scale;
  return fabs(ratio - 1) < 1e-6 ? SETUN_OK
                                : differs("logit factor", (double)a->logit_scale, (double)b->logit_scale, err);
}

static setun_status compare_rope(const st_rope_params *a, const st_rope_params *b, setun_error *err) {
  // Llama 3's scaling is a tensor of divisors in GGUF.
  bool tensor = a->scaling == ST_ROPE_LLAMA3 && b->scaling == ST_ROPE_PLAIN;
  if (a->theta != b->theta) return differs("RoPE base", (double)a->theta, (double)b->theta, err);
  if (tensor) return SETUN_OK;
  if (a->scaling != b->scaling) return differs("RoPE scaling", a->scaling, b->scaling, err);
  if (a->scaling == ST_ROPE_PLAIN) return SETUN_OK;
  if (a->factor != b->factor) return differs("RoPE scaling factor", (double)a->factor, (double)b->factor, err);
  if (a->scaling == ST_ROPE_YARN && a->truncate != b->truncate)
    return differs("YaRN truncate", a->truncate, b->truncate, err);
  if (a->extrapolation != b->extrapolation) {
    return differs("YaRN extrapolation", (double)a->extrapolation, (double)b->extrapolation, err);
  }
  return SETUN_OK;
}

setun_status st_verify_hparams(const st_conversion *p, const st_directory *written, setun_error *err) {
  const st_spec *spec = NULL;
  st_hparams h;
  if (!p->has_hparams) return SETUN_OK;
  setun_status s = st_hparams_read(written, NULL, &spec, &h, err);
  if (s != SETUN_OK) return s;
  s = compare_numbers(&p->h, &h, err);
  if (s == SETUN_OK) s = compare_rope(&p->h.rope, &h.rope, err);
  if (s == SETUN_OK && h.has_rope_local) s = compare_rope(&p->h.rope_local, &h.rope_local, err);
  for (uint32_t i = 0; i < h.n_layer && s == SETUN_OK; i++) {
    bool a = p->h.sliding[i] && p->h.window, b = h.sliding[i] && h.window;
    if (a != b || (a && p->h.window != h.window))
      s = differs("sliding window", a * p->h.window, b * h.window, err);
    else if (h.n_expert && p->h.sparse[i] != h.sparse[i])
      s = differs("layer with experts", p->h.sparse[i], h.sparse[i], err);
  }
  st_hparams_free(&h);
  return s;
}
