// Checks the model that a written header describes against the source's.
#include "convert/conversion.h"

#include <math.h>
#include <string.h>

static setun_status differs(const char *what, double expected, double found, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: the source has %g, which the target's container cannot state (a reader would get %g)", what,
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
                 {"elements of a head that RoPE rotates", a->n_rot, b->n_rot},
                 {"norms after RoPE", a->norm_after_rope, b->norm_after_rope},
                 {"feed-forward length", a->n_ff, b->n_ff},
                 {"vocabulary size", a->n_vocab, b->n_vocab},
                 {"context length", a->n_ctx_train, b->n_ctx_train},
                 {"number of experts", a->n_expert, b->n_expert},
                 {"number of experts used", a->n_expert_used, b->n_expert_used},
                 {"feed-forward length of experts", a->n_expert ? a->n_ff_expert : 0, b->n_expert ? b->n_ff_expert : 0},
                 {"feed-forward length of the shared expert", a->n_ff_shared, b->n_ff_shared},
                 {"router", a->n_expert ? a->router : 0, b->n_expert ? b->router : 0},
                 {"router's normalization", a->n_expert && a->router_renormalize, b->n_expert && b->router_renormalize},
                 {"tied head", a->tied && !a->headless, b->tied && !a->headless},
                 {"absence of sub-norms", a->no_sub_norms, b->no_sub_norms},
                 {"norm epsilon", (double)a->norm_eps, (double)b->norm_eps},
                 {"activation function", a->fn, b->fn},
                 {"embedding factor", (double)a->embed_scale, (double)b->embed_scale},
                 {"residual factor", (double)a->residual_scale, (double)b->residual_scale},
                 {"attention factor", (double)a->attn_scale, (double)b->attn_scale},
                 {"clip_qkv", (double)a->clip_qkv, (double)b->clip_qkv},
                 {"final_logit_softcapping", (double)a->logit_softcap, (double)b->logit_softcap},
                 {"bidirectional attention", a->bidirectional, b->bidirectional},
                 {"pooling", a->embedding.pooling, b->embedding.pooling},
                 {"embeddings that are not divided by their length", a->embedding.unscaled, b->embedding.unscaled},
                 {"truncated length of embeddings", a->embedding.truncated, b->embedding.truncated},
                 {"dense matrices of embeddings", a->embedding.n_dense, b->embedding.n_dense},
                 {"key heads of recurrent layers", a->delta.n_key_heads, b->delta.n_key_heads},
                 {"value heads of recurrent layers", a->delta.n_value_heads, b->delta.n_value_heads},
                 {"key size of recurrent layers", a->delta.key_dim, b->delta.key_dim},
                 {"value size of recurrent layers", a->delta.value_dim, b->delta.value_dim},
                 {"taps of recurrent layers", a->delta.n_taps, b->delta.n_taps},
                 {"int8 activations", a->int8, b->int8}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (numbers[i].a != numbers[i].b) return differs(numbers[i].what, numbers[i].a, numbers[i].b, err);
  }
  // A factor that is stored as its reciprocal may lose its last bit.
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

static setun_status compare_rotation(const st_rotation *a, const st_rotation *b, setun_error *err) {
  if (!a != !b) return differs("rotated basis", a != NULL, b != NULL, err);
  if (!a) return SETUN_OK;
  if (a->block != b->block) return differs("block of the rotated basis", a->block, b->block, err);
  if (!a->embedding != !b->embedding || a->tied_output != b->tied_output || a->gdn_v_grouped != b->gdn_v_grouped ||
      a->n_widths != b->n_widths) {
    return differs("rotated basis", a->n_widths, b->n_widths, err);
  }
  for (uint32_t i = 0; i < a->n_widths; i++) {
    const float *signs = st_rotation_signs(b, a->widths[i]);
    if (!signs || memcmp(signs, st_rotation_signs(a, a->widths[i]), a->widths[i] * sizeof *signs)) {
      return differs("signs of inputs", a->widths[i], signs ? a->widths[i] : 0, err);
    }
  }
  return SETUN_OK;
}

setun_status st_verify_hparams(const st_conversion *p, const st_directory *written, setun_error *err) {
  const st_spec *spec = NULL;
  st_hparams h;
  if (!p->has_hparams) return SETUN_OK;
  setun_status s = st_hparams_read(written, NULL, &spec, &h, err);
  if (s == SETUN_ERROR_UNSUPPORTED) return st_fail_in(err, s, "%s: the target cannot state it", p->d->path);
  if (s != SETUN_OK) return s;
  s = compare_numbers(&p->h, &h, err);
  if (s == SETUN_OK) s = compare_rotation(p->o->unrotate ? NULL : p->rotation, h.rotation, err);
  if (s == SETUN_OK) s = compare_rope(&p->h.rope, &h.rope, err);
  if (s == SETUN_OK && h.has_rope_local) s = compare_rope(&p->h.rope_local, &h.rope_local, err);
  for (uint32_t i = 0; i < h.n_layer && s == SETUN_OK; i++) {
    bool a = p->h.sliding[i] && p->h.window, b = h.sliding[i] && h.window;
    if (a != b || (a && p->h.window != h.window))
      s = differs("sliding window", a * p->h.window, b * h.window, err);
    else if (p->h.no_rope[i] != h.no_rope[i])
      s = differs("layer without RoPE", p->h.no_rope[i], h.no_rope[i], err);
    else if (p->h.recurrent[i] != h.recurrent[i])
      s = differs("recurrent layer", p->h.recurrent[i], h.recurrent[i], err);
    else if (h.n_expert && p->h.sparse[i] != h.sparse[i])
      s = differs("layer with experts", p->h.sparse[i], h.sparse[i], err);
  }
  st_hparams_free(&h);
  return s;
}
