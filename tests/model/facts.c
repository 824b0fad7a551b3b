// Every published name of a hyperparameter has a row for every family, and each row says what it must.
#include "golden.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "chat/choose.h"
#include "model/hparams_read.h"
#include "source/hf_quant.h"

#include <string.h>

static const st_spec *const specs[] = {
#define ARCH(spec) &spec,
#include "model/arch/archs.def"
#undef ARCH
};
enum { SPECS = sizeof specs / sizeof *specs };

// Calls `each` for the lines of a list of names; gives their number.
static size_t for_each(const char *path, st_container container,
                       void (*each)(const st_spec *, st_container, const char *, size_t)) {
  char *text = NULL;
  size_t length, n = 0;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  for (const char *p = text; *p; n++) {
    size_t line = strcspn(p, "\n");
    for (size_t i = 0; i < SPECS; i++) each(specs[i], container, p, line);
    p += line + (p[line] == '\n');
  }
  st_free(text);
  return n;
}

static void is_classified(const st_spec *spec, st_container container, const char *name, size_t length) {
  const st_fact *f = st_fact_find(spec, container, name, length);
  if (!f) fail_msg("%s: no row for %.*s", spec->name, (int)length, name);
  assert_true(f->use == ST_FACT_USED || f->use == ST_FACT_AT || f->use == ST_FACT_NEUTRAL);
  if (f->use == ST_FACT_NEUTRAL && !*f->source) fail_msg("%s: %.*s: no source", spec->name, (int)length, name);
}

// The lists: all ARCH.* keys of the PyPI package gguf and of llama.cpp; the fields of transformers' configuration
// classes of models that generate text.
static void all_names(void **state) {
  (void)state;
  assert_true(for_each(GOLDEN "names/gguf-keys.txt", ST_GGUF, is_classified) >= 125);
  assert_true(for_each(GOLDEN "names/config-fields.txt", ST_HUGGINGFACE, is_classified) >= 650);
}

// A family's own rows name a key, and say why it is neutral.
static void own_rows(void **state) {
  (void)state;
  for (size_t i = 0; i < SPECS; i++) {
    for (const st_fact *f = specs[i]->facts; f && f->use != ST_FACT_NONE; f++) {
      assert_true(f->gguf || f->config);
      if (f->use == ST_FACT_NEUTRAL) assert_true(*f->source);
    }
  }
}

static void unknown_names(void **state) {
  (void)state;
  for (size_t i = 0; i < SPECS; i++) {
    assert_null(st_fact_find(specs[i], ST_GGUF, "no_such_key", 11));
    assert_null(st_fact_find(specs[i], ST_HUGGINGFACE, "no_such_name", 12));
    assert_null(st_fact_find(specs[i], ST_GGUF, "", 0));
    assert_null(st_fact_find(specs[i], ST_GGUF, "block", 5)); // a part of a name is not a name
  }
}

// What published config.json files of the families hold (from the repositories' model cards and files), values aside
// that only the sizes differ in: none is refused.
static void published_configs(void **state) {
  (void)state;
  static const char *const configs[] = {
      // SmolLM2
      "{\"model_type\":\"llama\",\"attention_bias\":false,\"is_llama_config\":true,\"rope_interleaved\":false,"
      "\"pretraining_tp\":1,\"rope_scaling\":null,\"tie_word_embeddings\":true,\"transformers.js_config\":{\"a\":1}}",
      // Llama 3.x
      "{\"model_type\":\"llama\",\"eos_token_id\":[128001,128008,128009],\"mlp_bias\":false,\"rope_scaling\":{"
      "\"factor\":"
      "8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":"
      "\"llama3\"},\"torch_dtype\":\"bfloat16\",\"use_cache\":true}",
      // 1bitLLM
      "{\"model_type\":\"llama\",\"weight_bits\":1,\"input_bits\":8,\"pretraining_tp\":1,\"rope_scaling\":null}",
      // Qwen 2.5, and DeepSeek's distillations into it
      "{\"model_type\":\"qwen2\",\"max_window_layers\":21,\"sliding_window\":32768,\"use_sliding_window\":false,"
      "\"use_mrope\":false,\"rms_norm_eps\":1e-06}",
      // Qwen 3 MoE
      "{\"model_type\":\"qwen3_moe\",\"attention_bias\":false,\"decoder_sparse_step\":1,\"max_window_layers\":48,"
      "\"mlp_only_layers\":[],\"norm_topk_prob\":true,\"output_router_logits\":false,\"rope_scaling\":null,"
      "\"router_aux_loss_coef\":0.001,\"sliding_window\":null,\"use_sliding_window\":false}",
      // Gemma 3
      "{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":null,\"cache_implementation\":\"hybrid\","
      "\"final_logit_softcapping\":null,\"query_pre_attn_scalar\":256,\"rope_local_base_freq\":10000,"
      "\"rope_scaling\":null,\"sliding_window\":512,\"sliding_window_pattern\":6,\"use_bidirectional_attention\":"
      "false}",
      "{\"model_type\":\"gemma3\",\"boi_token_index\":255999,\"eoi_token_index\":256000,\"image_token_index\":262144,"
      "\"mm_tokens_per_image\":256,\"initializer_range\":0.02,\"text_config\":{\"model_type\":\"gemma3_text\","
      "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},\"vision_config\":{"
      "\"model_type\":\"siglip_vision_model\",\"vision_use_head\":false}}",
      // gpt-oss
      "{\"model_type\":\"gpt_oss\",\"attention_bias\":true,\"experts_per_token\":4,\"initial_context_length\":4096,"
      "\"hidden_act\":\"silu\",\"swiglu_limit\":7.0,\"rope_scaling\":{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":"
      "32.0,\"original_max_position_embeddings\":4096,\"rope_type\":\"yarn\",\"truncate\":false}}",
      // Mistral, Mixtral
      "{\"model_type\":\"mistral\",\"sliding_window\":null,\"head_dim\":null,\"rope_theta\":1000000.0}",
      "{\"model_type\":\"mixtral\",\"sliding_window\":null,\"router_jitter_noise\":0.0,\"num_local_experts\":8}",
      // OLMoE
      "{\"model_type\":\"olmoe\",\"clip_qkv\":null,\"norm_topk_prob\":false,\"rope_scaling\":null,"
      "\"router_aux_loss_coef\":0.01}",
      // MiniCPM 4
      "{\"model_type\":\"minicpm\",\"scale_emb\":12,\"dim_model_base\":256,\"scale_depth\":1.4,\"mup_denominator\":32,"
      "\"pretraining_tp\":1,\"num_key_value_heads\":2,\"auto_map\":{\"a\":\"b\"}}",
      // Maple
      "{\"model_type\":\"maple\",\"layer_types\":null,\"nope_on_global_attention\":true,\"num_shared_experts\":0,"
      "\"partial_rotary_factor\":0.5,\"rope_scaling\":null,\"router_dtype\":\"fp32\",\"use_qk_norm\":true,"
      "\"moe_router_enable_expert_bias\":false,\"quantize\":true,\"preaffine\":false,\"num_hidden_layers\":4}",
      // BitNet b1.58 2B4T
      "{\"model_type\":\"bitnet\",\"auto_map\":{\"a\":\"b\"},\"quantization_config\":{\"quant_method\":\"bitnet\","
      "\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"offline\"}}",
  };
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    static st_hparams h;
    const st_spec *spec;
    setun_error err = {SETUN_OK, ""};
    st_json *config = NULL;
    st_json_parse(configs[i], strlen(configs[i]), "config.json", &config, &err);
    st_directory d = {.container = ST_HUGGINGFACE, .path = (char *)"test", .config = config, .by_name = st_map_new(0)};
    if (!config || st_hparams_read(&d, NULL, &spec, &h, &err) != SETUN_OK) fail_msg("%zu: %s", i, err.message);
    st_hparams_free(&h);
    st_map_free(d.by_name);
    st_json_free(config);
  }
}

static bool has_any(const void *user, const char *text) {
  (void)user, (void)text;
  return true;
}

// Falcon3-1.58bit and Falcon-E are Llama with packed ternary weights, whose scales divide: int8 activations, no
// sub-norms.
static void falcon(void **state) {
  (void)state;
  static const char *const configs[] = {
      "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"head_dim\":256,\"hidden_size\":3072,"
      "\"intermediate_size\":23040,\"num_attention_heads\":12,\"num_hidden_layers\":28,\"num_key_value_heads\":4,"
      "\"rope_theta\":1000042,\"quantization_config\":{\"modules_to_not_convert\":null,\"quant_method\":\"bitnet\"}}",
      "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"head_dim\":128,\"hidden_size\":2048,"
      "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"quantization_config\":{\"quant_method\":\"bitnet\","
      "\"linear_class\":\"bitlinear\",\"quantization_mode\":\"offline\"}}"};
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    static st_hparams h;
    const st_spec *spec;
    st_hf_quant quant;
    setun_error err = {SETUN_OK, ""};
    st_json *config = NULL;
    st_json_parse(configs[i], strlen(configs[i]), "config.json", &config, &err);
    st_directory d = {.container = ST_HUGGINGFACE, .path = (char *)"test", .config = config, .by_name = st_map_new(0)};
    if (!config || st_hparams_read(&d, NULL, &spec, &h, &err) != SETUN_OK) fail_msg("%zu: %s", i, err.message);
    assert_string_equal(spec->name, "llama");
    assert_true(h.int8 && h.head_dim == (i ? 128 : 256) && !h.linear_norm);
    assert_int_equal(st_hf_quant_read(config, &quant, &err), SETUN_OK);
    assert_true(quant.method == ST_HF_BITNET && !quant.scale_multiplies);
    st_hparams_free(&h);
    st_map_free(d.by_name);
    st_json_free(config);
  }
}

// The templates that families name exist in src/chat.
static void chat_templates(void **state) {
  (void)state;
  for (size_t i = 0; i < SPECS; i++) {
    for (const char *const *name = specs[i]->chat_templates; name && *name; name++) {
      const char *const alone[] = {*name, NULL};
      st_chat_model m = {.architecture = specs[i]->name, .templates = alone, .has_control = has_any};
      st_templates none = {0};
      st_log log = {0};
      st_chosen_template chosen = {0};
      setun_error err = {SETUN_OK, ""};
      if (st_choose_template(&none, &m, NULL, false, &log, &chosen, &err) != SETUN_OK) fail_msg("%s", err.message);
      assert_string_equal(chosen.origin, *name);
    }
  }
}

// The name of a family in the other container leads back to it: from each directory's family to GGUF and back.
static void counterparts(void **state) {
  (void)state;
  for (size_t i = 0; i < SPECS; i++) {
    const st_spec *s = specs[i];
    setun_error err = {SETUN_OK, ""};
    if (!s->model_types[0]) continue;
    assert_true(s->hf_class != NULL);
    assert_true((s->gguf_names[0] != NULL) != (s->gguf_as && s->is_it));
    const st_spec *gguf = st_spec_counterpart(s, true, &s->defaults, &err);
    if (!gguf) fail_msg("%s: %s", s->name, err.message);
    assert_ptr_equal(st_spec_counterpart(gguf, false, &s->defaults, &err), s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_names),     cmocka_unit_test(own_rows),
                                     cmocka_unit_test(unknown_names), cmocka_unit_test(published_configs),
                                     cmocka_unit_test(falcon),        cmocka_unit_test(chat_templates),
                                     cmocka_unit_test(counterparts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
