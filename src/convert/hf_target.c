// A Hugging Face directory as the target: config.json, carried over or made from hyperparameters; the tokenizer's
// files; model.safetensors.
#include "convert/conversion.h"

#include "base/memory.h"
#include "format/builder.h"
#include "format/safetensors_writer.h"
#include "quant/fit.h"
#include "source/hf_quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COPIED_MOST = 512 << 20 };

// ---- config.json ---------------------------------------------------------------------------------------------------

// An object of the document that becomes config.json; the document keeps failures.
typedef struct {
  st_json *root, *object;
} members;

static void set(members *m, const char *key, st_json value) {
  st_json_set(m->root, m->object, key, value);
}

static void set_text(members *m, const char *key, const char *text) {
  set(m, key, st_json_make_text(m->root, text));
}

static void set_bool(members *m, const char *key, bool value) {
  set(m, key, st_json_make_bool(value));
}

static void set_u32(members *m, const char *key, uint32_t value) {
  set(m, key, st_json_make_integer(value));
}

static void set_f32(members *m, const char *key, float value) {
  set(m, key, st_json_make_real(m->root, (double)value));
}

// The module whose weight matrix an item is; false: it is not one.
static bool module_of(const st_item *item, char module[ST_USE_NAME]) {
  static const char end[] = ".weight";
  size_t n = strlen(item->name), m = sizeof end - 1;
  if (n <= m || n - m >= ST_USE_NAME || strcmp(item->name + n - m, end)) return false;
  if (item->n_dims < 2 || item->shape.rows < 2) return false;
  snprintf(module, ST_USE_NAME, "%.*s", (int)(n - m), item->name);
  return true;
}

static bool is_packed(const st_item *item) {
  return item->format && st_format_is_ternary(item->format);
}

// Whether a list of exempt modules names one that is now packed.
static bool names_packed(const st_conversion *p, const st_json *names) {
  const st_hf_quant all = {.method = ST_HF_BITNET}, some = {.method = ST_HF_BITNET, .exempt = names};
  char module[ST_USE_NAME];
  for (size_t i = 0; i < p->n_items; i++) {
    if (!is_packed(&p->items[i]) || !module_of(&p->items[i], module)) continue;
    if (st_hf_quant_is_latent(&all, module) && !st_hf_quant_is_latent(&some, module)) return true;
  }
  return false;
}

// The entries of the old list that still apply; another method's list is about other matrices.
static st_json kept_names(const st_conversion *p, const st_json *old, st_json *root) {
  const char *method = st_json_string(st_json_get(old, "quant_method"));
  const st_json *list = st_json_get(old, "modules_to_not_convert");
  st_json kept = st_json_make_array();
  for (size_t i = 0; method && !strcmp(method, ST_HF_PACKED_METHOD) && i < st_json_size(list); i++) {
    st_json name = *st_json_at(list, i), alone = {.type = ST_JSON_ARRAY, .count = 1, .as.items = &name};
    if (!names_packed(p, &alone)) st_json_push(root, &kept, name);
  }
  return kept;
}

// Whether the head is packed, or the list names it.
static bool has_head(const st_conversion *p, const st_json *names) {
  for (size_t i = 0; i < p->n_items; i++) {
    if (!strcmp(p->items[i].name, "lm_head.weight") && is_packed(&p->items[i])) return true;
  }
  for (size_t i = 0; i < st_json_size(names); i++) {
    const char *name = st_json_string(st_json_at(names, i));
    if (name && !strcmp(name, "lm_head")) return true;
  }
  return false;
}

// Names the float matrices that remain floats, where a reader would take them for latent weights. A list replaces
// transformers' default, which exempts the head, so it must name the head too.
static void set_exempt(const st_conversion *p, const st_json *old, members *q) {
  st_json names = kept_names(p, old, q->root);
  const st_hf_quant quant = {.method = ST_HF_BITNET, .exempt = &names};
  char module[ST_USE_NAME];
  for (size_t i = 0; i < p->n_items; i++) {
    if (is_packed(&p->items[i]) || !module_of(&p->items[i], module)) continue;
    if (st_hf_quant_is_latent(&quant, module)) st_json_push(q->root, &names, st_json_make_text(q->root, module));
  }
  if (!st_json_size(&names)) return;
  if (!has_head(p, &names)) st_json_insert(q->root, &names, 0, st_json_make_text(q->root, "lm_head"));
  set(q, "modules_to_not_convert", names);
}

// The written format of blocks in two tensors; NULL: none.
static const st_hf_blocks *blocks_of(const st_conversion *p) {
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    if (item->kind == ST_ITEM_STACK && !item->format) return item->pieces[0].weight.format->ops->hf_blocks;
  }
  return NULL;
}

// As in gpt-oss's own files.
static void set_blocks(const st_hf_blocks *blocks, members *m) {
  static const char *const kept[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                     "lm_head"};
  st_json made = st_json_make_object(), names = st_json_make_array();
  members q = {m->root, &made};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    st_json_push(m->root, &names, st_json_make_text(m->root, kept[i]));
  }
  set_text(&q, "quant_method", blocks->method);
  set(&q, "modules_to_not_convert", names);
  set(m, "quantization_config", made);
}

// As transformers and GPTQModel read it; the zero points are stored as they are.
static setun_status set_gptq(const st_conversion *p, members *m, setun_error *err) {
  const st_format *f = NULL;
  for (size_t i = 0; i < p->n_items; i++) {
    const st_item *item = &p->items[i];
    if (item->kind != ST_ITEM_GPTQ) continue;
    if (f && f != item->pieces[0].weight.format) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s, as in the matrices before it, found %s",
                     item->name, f->name, item->pieces[0].weight.format->name);
    }
    f = item->pieces[0].weight.format;
  }
  if (!f) return SETUN_OK;
  st_json made = st_json_make_object();
  members q = {m->root, &made};
  set_text(&q, "quant_method", "gptq");
  set_u32(&q, "bits", st_zp_bits(f));
  set_u32(&q, "group_size", f->block);
  set_bool(&q, "desc_act", false);
  set_bool(&q, "sym", false);
  set_text(&q, "checkpoint_format", "gptq_v2");
  set(m, "quantization_config", made);
  return SETUN_OK;
}

// Describes the ternary weights as written. Norms of single matrices (use_rms_norm) stay.
static void set_quantization(const st_conversion *p, members *m) {
  bool packed = st_format_is_ternary(p->o->to);
  static const char *const kept[] = {"use_rms_norm", "rms_norm_eps"};
  const st_json *found = st_json_find(m->object, "quantization_config");
  const st_json old = found ? *found : (st_json){0};
  st_json_delete(m->object, "quantization_config");
  st_json_delete(m->object, "quantization"); // MLX's
  st_json_delete(m->object, "weight_bits");  // 1bitLLM's marker of latent weights
  st_json_delete(m->object, "input_bits");
  st_json_delete(m->object, "setun_activation");
  if (packed) {
    st_json made = st_json_make_object();
    members q = {m->root, &made};
    set_text(&q, "quant_method", ST_HF_PACKED_METHOD);
    set_text(&q, "linear_class", p->o->divides ? "bitlinear" : "autobitlinear");
    set_text(&q, "quantization_mode", "offline");
    set_exempt(p, &old, &q);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
      const st_json *value = st_json_get(&old, kept[i]);
      if (value) set(&q, kept[i], *value);
    }
    set(m, "quantization_config", made);
  }
  if (!packed && blocks_of(p)) set_blocks(blocks_of(p), m);
  if (packed != p->int8) set_text(m, "setun_activation", p->int8 ? "int8" : "float");
}

// ---- from hyperparameters -----------------------------------------------------------------------------------------

static void set_names(const st_conversion *p, members *m) {
  const st_spec *spec = p->target_spec;
  if (spec->hf_class) {
    st_json classes = st_json_make_array();
    st_json_push(m->root, &classes, st_json_make_text(m->root, spec->hf_class));
    set(m, "architectures", classes);
  }
  set_text(m, "model_type", spec->model_types[0]);
}

static void set_list(members *m, const char *key, const float *values, uint32_t n) {
  st_json list = st_json_make_array();
  for (uint32_t i = 0; values && i < n; i++) {
    st_json_push(m->root, &list, st_json_make_real(m->root, (double)values[i]));
  }
  set(m, key, list);
}

static void set_rope(const st_hparams *h, members *m) {
  static const char *const types[] = {[ST_ROPE_PLAIN] = NULL,
                                      [ST_ROPE_LINEAR] = "linear",
                                      [ST_ROPE_LLAMA3] = "llama3",
                                      [ST_ROPE_YARN] = "yarn",
                                      [ST_ROPE_LONG] = "longrope"};
  const st_rope_params *r = &h->rope;
  set_f32(m, "rope_theta", r->theta);
  if (h->has_rope_local) set_f32(m, "rope_local_base_freq", h->rope_local.theta);
  if (h->n_rot != h->head_dim) set_f32(m, "partial_rotary_factor", (float)h->n_rot / (float)h->head_dim);
  if (!types[r->scaling]) return;
  st_json scaling = st_json_make_object();
  members s = {m->root, &scaling};
  set_text(&s, "rope_type", types[r->scaling]);
  set_f32(&s, "factor", r->factor);
  if (r->original_max_position_embeddings) {
    set_u32(&s, "original_max_position_embeddings", r->original_max_position_embeddings);
  }
  if (r->scaling == ST_ROPE_LLAMA3) {
    set_f32(&s, "low_freq_factor", r->low_freq_factor);
    set_f32(&s, "high_freq_factor", r->high_freq_factor);
  }
  if (r->scaling == ST_ROPE_YARN) {
    set_f32(&s, "beta_fast", r->beta_fast);
    set_f32(&s, "beta_slow", r->beta_slow);
    set_bool(&s, "truncate", r->truncate);
  }
  if (r->scaling == ST_ROPE_LONG) {
    set_list(&s, "short_factor", r->short_factor, h->n_rot / 2);
    set_list(&s, "long_factor", r->long_factor, h->n_rot / 2);
    if (r->original_max_position_embeddings) { // where the classes expect it
      set_u32(m, "original_max_position_embeddings", r->original_max_position_embeddings);
    }
  }
  if (r->attention_factor > 0) set_f32(&s, "attention_factor", r->attention_factor);
  set(m, "rope_scaling", scaling);
}

static void set_experts(const st_hparams *h, members *m) {
  if (!h->n_expert) return;
  set_u32(m, "num_experts", h->n_expert);
  set_u32(m, "num_local_experts", h->n_expert);
  set_u32(m, "num_experts_per_tok", h->n_expert_used);
  set_u32(m, "moe_intermediate_size", h->n_ff_expert);
  if (h->n_ff_shared) set_u32(m, "shared_expert_intermediate_size", h->n_ff_shared);
  set_bool(m, "norm_topk_prob", h->router_renormalize);
  st_json dense = st_json_make_array();
  for (uint32_t i = 0; i < h->n_layer; i++) {
    if (!h->sparse[i]) st_json_push(m->root, &dense, st_json_make_integer(i));
  }
  set(m, "mlp_only_layers", dense);
}

static void set_types(const st_hparams *h, members *m) {
  st_json types = st_json_make_array();
  for (uint32_t i = 0; i < h->n_layer; i++) {
    const char *type = h->recurrent[i] ? "linear_attention" : h->sliding[i] ? "sliding_attention" : "full_attention";
    st_json_push(m->root, &types, st_json_make_text(m->root, type));
  }
  set(m, "layer_types", types);
}

static void set_delta(const st_hparams *h, members *m) {
  const st_delta_params *d = &h->delta;
  if (!d->n_taps) return;
  set_u32(m, "linear_num_key_heads", d->n_key_heads);
  set_u32(m, "linear_num_value_heads", d->n_value_heads);
  set_u32(m, "linear_key_head_dim", d->key_dim);
  set_u32(m, "linear_value_head_dim", d->value_dim);
  set_u32(m, "linear_conv_kernel_dim", d->n_taps);
  set_types(h, m);
}

static void set_window(const st_conversion *p, members *m) {
  const st_hparams *h = &p->h;
  set(m, "sliding_window", h->window ? st_json_make_integer(h->window) : st_json_make_null());
  if (!h->window) return;
  if (p->target_spec->windows.with_switch) set_bool(m, "use_sliding_window", true);
  set_types(h, m);
}

// The family's own numbers.
static void set_factors(const st_conversion *p, members *m) {
  const st_hparams *h = &p->h;
  st_named_number own[ST_NAMED_NUMBERS];
  size_t n = p->target_spec->write_hf ? p->target_spec->write_hf(h, own) : 0;
  for (size_t i = 0; i < n; i++) set_f32(m, own[i].key, own[i].value);
  if (h->clip_qkv > 0) set_f32(m, "clip_qkv", h->clip_qkv);
  if (h->logit_softcap > 0) set_f32(m, "final_logit_softcapping", h->logit_softcap);
}

// Bias switches, and the parameters with one of them on.
static const struct {
  const char *key;
  st_hparams on;
} bias_keys[] = {{"attention_bias", {.qkv_bias = true, .o_bias = true}},
                 {"qkv_bias", {.qkv_bias = true}},
                 {"mlp_bias", {.mlp_bias = true}}};

// Whether the official class has a bias for the role, always or with the current switches.
static bool class_has_bias(const st_conversion *p, const st_hparams *h, st_role role) {
  bool has = st_role_needs_bias(h, role);
  for (const st_binding *row = p->target_spec->bindings; row->role != ST_ROLE_COUNT; row++) {
    has |= row->bias && row->role == role;
  }
  return has;
}

// Sets the switches for the biases that exist. The class would not read others, and requires its own.
static setun_status set_biases(const st_conversion *p, members *m, setun_error *err) {
  const st_bound *items = p->weights.items, *end = items + p->weights.n;
  const st_hparams *defaults = &p->target_spec->defaults;
  st_hparams h = {.qkv_bias = defaults->qkv_bias, .o_bias = defaults->o_bias, .mlp_bias = defaults->mlp_bias};
  for (size_t k = 0; k < sizeof bias_keys / sizeof *bias_keys; k++) {
    const char *key = bias_keys[k].key;
    const st_hparams *on = &bias_keys[k].on;
    const st_fact *fact = st_fact_find(p->target_spec, ST_HUGGINGFACE, key, strlen(key));
    bool found = false;
    for (const st_bound *b = items; b < end; b++) found |= b->bias && st_role_needs_bias(on, b->role);
    if (!found || !fact || fact->use != ST_FACT_USED) continue;
    set_bool(m, key, true);
    h.qkv_bias |= on->qkv_bias;
    h.o_bias |= on->o_bias;
    h.mlp_bias |= on->mlp_bias;
  }
  for (const st_bound *b = items; b < end; b++) {
    bool has = class_has_bias(p, &h, b->role);
    if (has == (b->bias != 0)) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s bias, since %s has %s there, found %s",
                   b->weight.name, has ? "a" : "no", p->target_spec->hf_class, has ? "one" : "none",
                   has ? "none" : "one");
  }
  return SETUN_OK;
}

static bool token_of(const st_conversion *p, const char *key, uint32_t *id) {
  if (!st_metadata_find(&p->d->metadata, key)) return false;
  return st_metadata_u32(&p->d->metadata, key, 0, INT32_MAX, id, NULL) == SETUN_OK;
}

// The tokens that end a text: a number or, as in the official classes, a list with the end of text first.
static void set_ends(const st_conversion *p, members *m) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  enum { MOST = sizeof keys / sizeof *keys };
  uint32_t ids[MOST];
  size_t n = 0;
  for (size_t i = 0; i < MOST; i++) {
    if (!token_of(p, keys[i], &ids[n])) continue;
    size_t same = 0;
    while (ids[same] != ids[n]) same++;
    n += same == n;
  }
  if (n == 1) set_u32(m, "eos_token_id", ids[0]);
  if (n < 2) return;
  st_json list = st_json_make_array();
  for (size_t i = 0; i < n; i++) st_json_push(m->root, &list, st_json_make_integer(ids[i]));
  set(m, "eos_token_id", list);
}

static setun_status set_hparams(const st_conversion *p, members *m, setun_error *err) {
  const st_hparams *h = &p->h;
  const char *fn = h->fn == ST_FN_RELU2 ? "relu2" : h->fn == ST_FN_GELU_TANH ? "gelu_pytorch_tanh" : "silu";
  set_names(p, m);
  set_text(m, p->target_spec->hf_activation ? p->target_spec->hf_activation : "hidden_act", fn);
  set_u32(m, "hidden_size", h->n_embd);
  set_u32(m, "intermediate_size", h->n_ff);
  set_u32(m, "num_hidden_layers", h->n_layer);
  set_u32(m, "num_attention_heads", h->n_head);
  set_u32(m, "num_key_value_heads", h->n_head_kv);
  set_u32(m, "head_dim", h->head_dim);
  set_u32(m, "max_position_embeddings", h->n_ctx_train);
  set_f32(m, "rms_norm_eps", h->norm_eps);
  set_u32(m, "vocab_size", h->n_vocab);
  set_bool(m, "tie_word_embeddings", h->tied);
  set_rope(h, m);
  set_experts(h, m);
  set_window(p, m);
  set_delta(h, m);
  set_factors(p, m);
  uint32_t bos = 0;
  if (token_of(p, "tokenizer.ggml.bos_token_id", &bos)) set_u32(m, "bos_token_id", bos);
  set_ends(p, m);
  return set_biases(p, m, err);
}

// A separate head in spite of a tied embedding is used: the output declares it as untied.
static void untie(const st_conversion *p, members *m) {
  static const char key[] = "tie_word_embeddings";
  st_json *text = st_json_edit(m->object, "text_config");
  members inner = {m->root, st_json_is_object(text) ? text : m->object};
  const st_json *said = st_json_find(inner.object, key);
  bool tied = said ? st_json_is(said, ST_JSON_TRUE) : p->spec->defaults.tied;
  if (p->h.tied) return;
  if (tied) set_bool(&inner, key, false);
  if (st_json_is(st_json_find(m->object, key), ST_JSON_TRUE)) set_bool(m, key, false);
}

// ---- both ---------------------------------------------------------------------------------------------------------

// The source's own file, with integers unchanged.
static setun_status load_own(const st_conversion *p, st_json **config, setun_error *err) {
  char *path = st_path_join(p->d->path, "config.json"), *text = NULL;
  size_t length = 0;
  if (!path) return st_fail_memory(err, "config.json");
  setun_status s = st_file_load(path, ST_CONFIG_MOST, &text, &length, err);
  if (s == SETUN_OK) s = st_json_parse_values(text, length, "config.json", config, err);
  for (size_t i = 0; i < p->d->n_ignored && s == SETUN_OK; i++) st_config_remove(*config, p->d->ignored[i]);
  st_free(path);
  st_free(text);
  return s;
}

static setun_status make_config(const st_conversion *p, st_buffer *out, setun_error *err) {
  if (p->has_hparams && p->h.linear_norm && !st_format_is_ternary(p->o->to)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "config.json: quantization_config.use_rms_norm cannot be stated for float weights; hf-u8 keeps it");
  }
  st_json *root = p->from_gguf ? st_json_new() : NULL;
  setun_status s = p->from_gguf ? SETUN_OK : load_own(p, &root, err);
  if (s != SETUN_OK) return s;
  if (!root) return st_fail_memory(err, "config.json");
  members m = {root, root};
  if (p->from_gguf)
    s = set_hparams(p, &m, err);
  else if (p->has_hparams)
    untie(p, &m);
  set_quantization(p, &m);
  if (s == SETUN_OK) s = set_gptq(p, &m, err);
  if (s == SETUN_OK) s = st_conversion_rotation_config(p, root, err);
  if (s == SETUN_OK && (st_json_failed(root) || !st_json_append_lines(root, out)))
    s = st_fail_memory(err, "config.json");
  st_json_free(root);
  return s;
}

// ---- the directory -------------------------------------------------------------------------------------------------

static setun_status write_file(const char *directory, const char *name, const void *bytes, size_t n, setun_error *err) {
  st_output out;
  char *path = st_path_join(directory, name);
  if (!path) return st_fail_memory(err, name);
  setun_status s = st_output_open(path, &out, err);
  st_free(path);
  if (s != SETUN_OK) return s;
  s = st_output_write(&out, bytes, n, err);
  if (s == SETUN_OK) return st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}

// The files of a directory that are not about weights.
static setun_status copy_files(const st_conversion *p, const char *directory, setun_error *err) {
  static const char *const names[] = {"tokenizer.json",
                                      "tokenizer.model",
                                      "tokenizer_config.json",
                                      "vocab.json",
                                      "merges.txt",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "generation_config.json",
                                      "chat_template.jinja",
                                      ST_SENTENCE_CONFIG,
                                      "sentence_bert_config.json",
                                      "chat_template.json",
                                      "preprocessor_config.json",
                                      "LICENSE"};
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && s == SETUN_OK; i++) {
    char *text = NULL;
    size_t length = 0;
    s = st_file_load_beside(p->d->path, names[i], COPIED_MOST, &text, &length, err);
    if (s == SETUN_OK && text) s = write_file(directory, names[i], text, length, err);
    st_free(text);
  }
  return s;
}

static setun_status write_tokenizer(const st_conversion *p, const char *directory, setun_error *err) {
  const st_buffer *made = p->o->tokenizer, *config = p->o->tokenizer_config;
  if (!p->from_gguf) return copy_files(p, directory, err);
  if (!made) return SETUN_OK;
  setun_status s = write_file(directory, p->o->tokenizer_name, made->data, made->length, err);
  if (s != SETUN_OK) return s;
  return write_file(directory, "tokenizer_config.json", config->data, config->length, err);
}

// Reads the output back: its hyperparameters must equal the source's. Needs a directory with the weights' header.
static setun_status verify(const st_conversion *p, const char *directory, setun_error *err) {
  st_directory *d = NULL;
  setun_status s = st_directory_open(directory, NULL, &d, err);
  if (s == SETUN_OK) s = st_verify_hparams(p, d, err);
  st_directory_free(d);
  return s;
}

static setun_status write_item(void *user, size_t index, st_output *out, setun_error *err) {
  st_conversion *p = user;
  return st_item_write(p, &p->items[index], out, err);
}

static setun_status write_weights(st_conversion *p, const char *directory, setun_error *err) {
  const st_output_source source = {.write = write_item, .user = p};
  char *path = st_path_join(directory, "model.safetensors");
  st_output_tensor *tensors = st_conversion_tensors(p);
  setun_status s = path && tensors ? SETUN_OK : st_fail_memory(err, "model.safetensors");
  // First without tensors: the directory's parameters are verified before any weight is written.
  if (s == SETUN_OK) s = st_safetensors_write(path, NULL, 0, NULL, err);
  if (s == SETUN_OK) s = verify(p, directory, err);
  if (s == SETUN_OK) s = write_tokenizer(p, directory, err);
  if (s == SETUN_OK) s = st_safetensors_write(path, tensors, p->n_items, &source, err);
  st_free(path);
  st_free(tensors);
  return s;
}

// A module of modules.json, in its own folder unless it is the model.
static void push_module(st_json *root, st_json *list, const char *path, const char *kind) {
  char number[24], type[64];
  size_t index = st_json_size(list);
  st_json made = st_json_make_object();
  members m = {root, &made};
  snprintf(number, sizeof number, "%zu", index);
  snprintf(type, sizeof type, "sentence_transformers.models.%s", kind);
  set(&m, "idx", st_json_make_integer((int64_t)index));
  set_text(&m, "name", number);
  set_text(&m, "path", path);
  set_text(&m, "type", type);
  st_json_push(root, list, made);
}

static setun_status write_json(const char *directory, const char *name, st_json *root, const st_json *value,
                               setun_error *err) {
  st_buffer text = {0};
  bool made = !st_json_failed(root) && st_json_append_lines(value, &text);
  setun_status s = made ? write_file(directory, name, text.data, text.length, err) : st_fail_memory(err, name);
  st_buffer_free(&text);
  return s;
}

// The files for sentence-transformers: the source's pooling.
static setun_status write_modules(const st_conversion *p, const char *directory, setun_error *err) {
  const st_embedding *e = &p->h.embedding;
  if (!p->has_hparams || e->pooling == SETUN_POOLING_MODEL || e->pooling == SETUN_POOLING_OFF) return SETUN_OK;
  if (e->n_dense) {
    return st_fail(
        err, SETUN_ERROR_UNSUPPORTED,
        "%s: expected a GGUF file as the target for a model with dense embedding matrices, found a directory",
        p->d->path);
  }
  char *folder = st_path_join(directory, "1_Pooling");
  st_json *root = st_json_new();
  setun_status s = folder && root ? st_output_folder(folder, err) : st_fail_memory(err, "modules.json");
  if (s == SETUN_OK) {
    st_json list = st_json_make_array(), pooling = st_json_make_object();
    members m = {root, &pooling};
    push_module(root, &list, "", "Transformer");
    push_module(root, &list, "1_Pooling", "Pooling");
    if (!e->unscaled) push_module(root, &list, "2_Normalize", "Normalize");
    set_u32(&m, "word_embedding_dimension", p->h.n_embd);
    set_bool(&m, "pooling_mode_cls_token", e->pooling == SETUN_POOLING_CLS);
    set_bool(&m, "pooling_mode_mean_tokens", e->pooling == SETUN_POOLING_MEAN);
    set_bool(&m, "pooling_mode_lasttoken", e->pooling == SETUN_POOLING_LAST);
    set_bool(&m, "include_prompt", !e->skips_prompt);
    s = write_json(folder, ST_OUTPUT_FOLDER_FILE, root, &pooling, err);
    if (s == SETUN_OK) s = write_json(directory, "modules.json", root, &list, err);
  }
  st_json_free(root);
  st_free(folder);
  return s;
}

static setun_status fill(st_conversion *p, const char *directory, setun_error *err) {
  st_buffer config = {0};
  setun_status s = make_config(p, &config, err);
  if (s == SETUN_OK) s = write_file(directory, "config.json", config.data, config.length, err);
  if (s == SETUN_OK) s = write_modules(p, directory, err);
  st_buffer_free(&config);
  return s == SETUN_OK ? write_weights(p, directory, err) : s;
}

setun_status st_write_huggingface(st_conversion *p, const char *path, setun_error *err) {
  st_output_directory out;
  setun_status s = st_output_directory_open(path, &out, err);
  if (s != SETUN_OK) return s;
  s = fill(p, out.temporary, err);
  if (s == SETUN_OK) return st_output_directory_commit(&out, err);
  st_output_directory_discard(&out);
  return s;
}
