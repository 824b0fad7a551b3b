// Models that must be refused, with a message that names what is wrong: golden ones with one thing broken.
#define _DEFAULT_SOURCE // mkdtemp
#include "models.h"

#include <jansson.h>
#include <unistd.h>

// One change to a model; NULL: none of that kind.
typedef struct {
  const char *base;               // of tests/golden/hf
  const char *key, *value;        // of config.json, as JSON
  const char *drop, *rename, *to; // a tensor left out; one under another name
  const char *shorten;            // a tensor without its last row (or element)
  const char *poison;             // a tensor whose first bytes become all ones: NaN in every float type
  const char *huge;               // a tensor of float32 or bfloat16 whose numbers become the largest ones
  const char *added[2];           // entries for the end of tokenizer.json's added_tokens
  const char *words[2];           // in the message
} broken;

static void write_config(const broken *b, const char *directory) {
  char path[512];
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, GOLDEN "hf/%s/config.json", b->base);
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  json_t *config = json_loads(text, 0, NULL);
  assert_non_null(config);
  if (b->key) json_object_set_new(config, b->key, json_loads(b->value, JSON_DECODE_ANY, NULL));
  snprintf(path, sizeof path, "%s/config.json", directory);
  assert_int_equal(json_dump_file(config, path, 0), 0);
  json_decref(config);
  st_free(text);
}

// One tensor's entry changed, and its data appended where it now belongs.
static void copy_tensor(const broken *b, const char *name, json_t *entry, const char *data, json_t *header,
                        st_buffer *out) {
  json_t *offsets = json_object_get(entry, "data_offsets"), *shape = json_object_get(entry, "shape");
  size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
  size_t bytes = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin, at = out->length;
  if (b->drop && !strcmp(b->drop, name)) return;
  json_int_t rows = json_integer_value(json_array_get(shape, 0));
  if (b->shorten && !strcmp(b->shorten, name)) {
    bytes = bytes / (size_t)rows * (size_t)(rows - 1);
    json_array_set_new(shape, 0, json_integer(rows - 1));
  }
  assert_true(st_buffer_append(out, data + begin, bytes));
  if (b->poison && !strcmp(b->poison, name)) memset(out->data + at, 0xFF, bytes < 4 ? bytes : 4);
  if (b->huge && !strcmp(b->huge, name)) memset(out->data + at, 0x7F, bytes);
  json_object_set_new(entry, "data_offsets", json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + bytes)));
  json_object_set(header, b->rename && !strcmp(b->rename, name) ? b->to : name, entry);
}

static void write_tensors(const broken *b, const char *directory) {
  char path[512];
  char *file = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, GOLDEN "hf/%s/model.safetensors", b->base);
  if (st_file_load(path, 1 << 24, &file, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  uint64_t n;
  memcpy(&n, file, sizeof n);
  json_t *old = json_loadb(file + 8, (size_t)n, 0, NULL), *header = json_object(), *entry;
  const char *name;
  st_buffer data = {0};
  json_object_foreach(old, name, entry) {
    if (strcmp(name, "__metadata__")) copy_tensor(b, name, entry, file + 8 + n, header, &data);
  }
  char *text = json_dumps(header, JSON_COMPACT);
  n = strlen(text);
  snprintf(path, sizeof path, "%s/model.safetensors", directory);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_true(fwrite(&n, 8, 1, f) == 1 && fwrite(text, n, 1, f) == 1 && fwrite(data.data, data.length, 1, f) == 1);
  assert_int_equal(fclose(f), 0);
  free(text);
  json_decref(old);
  json_decref(header);
  st_buffer_free(&data);
  st_free(file);
}

static void write_tokenizer(const broken *b, const char *directory) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s/tokenizer.json", b->base);
  json_t *tokenizer = json_load_file(path, 0, NULL);
  assert_non_null(tokenizer);
  json_t *added = json_object_get(tokenizer, "added_tokens");
  for (int i = 0; i < 2 && b->added[i]; i++) {
    assert_int_equal(json_array_append_new(added, json_loads(b->added[i], 0, NULL)), 0);
  }
  snprintf(path, sizeof path, "%s/tokenizer.json", directory);
  assert_int_equal(json_dump_file(tokenizer, path, 0), 0);
  json_decref(tokenizer);
}

static bool count_rows(uint32_t position, const float *logits, void *user) {
  (void)position, (void)logits;
  ++*(int *)user;
  return true;
}

// Logits that cannot be computed are not returned: neither the last ones nor those of each token.
static setun_status run(const setun_model *m, setun_error *err) {
  const setun_token ids[] = {1, 5, 9};
  int rows = 0;
  setun_session *s = session(m, 8, 1);
  assert_int_equal(setun_session_eval(
                       s, ids, 3,
                       &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = count_rows, .user = &rows},
                       err),
                   SETUN_ERROR_FORMAT);
  assert_int_equal(rows, 0);
  assert_non_null(strstr(err->message, "position 0"));
  setun_status status = setun_session_eval(s, ids, 3, NULL, err);
  assert_null(setun_session_logits(s));
  assert_int_equal(setun_session_position(s), 0);
  setun_session_free(s);
  return status;
}

static void check(const broken *b) {
  char directory[] = "/tmp/setun-model-XXXXXX", path[128];
  assert_non_null(mkdtemp(directory));
  write_config(b, directory);
  write_tensors(b, directory);
  write_tokenizer(b, directory);
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  setun_status s = setun_model_load(directory, NULL, &m, &err);
  if (s == SETUN_OK && b->huge) s = run(m, &err);
  for (int i = 0; i < 2 && b->words[i]; i++) {
    if (s == SETUN_OK) fail_msg("%s: expected an error with \"%s\"", b->base, b->words[i]);
    if (!strstr(err.message, b->words[i])) fail_msg("expected \"%s\" in \"%s\"", b->words[i], err.message);
  }
  if (!b->words[0] && s != SETUN_OK) fail_msg("%s", err.message);
  setun_model_free(m);
  const char *files[] = {"config.json", "model.safetensors", "tokenizer.json"};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, files[i]);
    unlink(path);
  }
  rmdir(directory);
}

#define L0 "model.layers.0."
#define L1 "model.layers.1."

static void unchanged(void **state) {
  (void)state;
  const char *names[] = {"llama3", "qwen3-moe", "gpt-oss", "bitnet-auto"};
  for (int i = 0; i < 4; i++) check(&(broken){.base = names[i]});
}

static void tensors(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "llama3", .drop = L1 "mlp.up_proj.weight", .words = {L1 "mlp.up_proj.weight", "found none"}},
      {.base = "llama3", .drop = "model.norm.weight", .words = {"model.norm.weight", "found none"}},
      {.base = "llama3", .drop = "lm_head.weight", .words = {"lm_head.weight", "found none"}},
      {.base = "llama3",
       .rename = L1 "mlp.up_proj.weight",
       .to = L1 "mlp.other.weight",
       .words = {L1 "mlp.up_proj.weight", "found none"}},
      {.base = "llama3", .shorten = L0 "mlp.gate_proj.weight", .words = {L0 "mlp.gate_proj.weight", "found [159, 64]"}},
      {.base = "llama3", .shorten = L0 "input_layernorm.weight", .words = {L0 "input_layernorm.weight", "found [63]"}},
      {.base = "llama3", .shorten = "model.embed_tokens.weight", .words = {"model.embed_tokens.weight", "[320, 64]"}},
      {.base = "llama3", .poison = L0 "mlp.gate_proj.weight", .words = {L0 "mlp.gate_proj.weight", "nan"}},
      {.base = "llama3", .poison = L0 "input_layernorm.weight", .words = {L0 "input_layernorm.weight", "nan"}},
      {.base = "qwen2", .drop = L0 "self_attn.q_proj.weight", .words = {L0 "self_attn.q_proj.weight", NULL}},
      {.base = "qwen2", .shorten = L0 "self_attn.q_proj.bias", .words = {L0 "self_attn.q_proj.bias", "[63]"}},
      {.base = "qwen2", .drop = L1 "self_attn.k_proj.bias", .words = {L1 "self_attn.k_proj.bias", "found none"}},
      {.base = "llama3", .key = "attention_bias", .value = "true", .words = {L0 "self_attn.q_proj.bias", "found none"}},
      {.base = "llama3", .key = "mlp_bias", .value = "true", .words = {L0 "mlp.gate_proj.bias", "found none"}},
      {.base = "qwen3", .shorten = L0 "self_attn.q_norm.weight", .words = {L0 "self_attn.q_norm.weight", NULL}},
      {.base = "gemma3", .drop = L0 "pre_feedforward_layernorm.weight", .words = {"pre_feedforward_layernorm", NULL}},
      {.base = "bitnet-auto", .poison = L0 "mlp.up_proj.weight_scale", .words = {L0 "mlp.up_proj.weight_scale", "nan"}},
      {.base = "bitnet-auto",
       .drop = L0 "mlp.up_proj.weight_scale",
       .words = {L0 "mlp.up_proj.weight", "weight_scale"}},
      {.base = "bitnet-auto", .shorten = L0 "mlp.up_proj.weight", .words = {L0 "mlp.up_proj.weight", "[39, 64]"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void results(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "llama3", .huge = "model.norm.weight", .words = {"model.norm.weight", "float32"}},
      {.base = "llama3", .huge = L1 "input_layernorm.weight", .words = {L1 "input_layernorm.weight", "float32"}},
      {.base = "gemma3", .huge = L0 "self_attn.q_norm.weight", .words = {L0 "self_attn.q_norm.weight", "float32"}},
      {.base = "llama3", .huge = "model.embed_tokens.weight", .words = {"the embedding", "float32"}},
      {.base = "llama3", .huge = L0 "mlp.down_proj.weight", .words = {"layer 0: ", "float32"}},
      {.base = "llama3", .huge = L1 "self_attn.o_proj.weight", .words = {"layer 1: ", "float32"}},
      {.base = "llama3", .huge = L1 "self_attn.v_proj.weight", .words = {"layer 1: ", "float32"}},
      {.base = "llama3", .huge = "lm_head.weight", .words = {"after position 2", "expected a finite number"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void experts(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "qwen3-moe", .drop = L0 "mlp.gate.weight", .words = {L0 "mlp.gate.weight", "found none"}},
      {.base = "qwen3-moe", .shorten = L0 "mlp.gate.weight", .words = {L0 "mlp.gate.weight", "[7, 64]"}},
      {.base = "qwen3-moe",
       .drop = L0 "mlp.experts.5.up_proj.weight",
       .words = {L0 "mlp.experts.5.up_proj.weight", NULL}},
      {.base = "qwen3-moe",
       .shorten = L0 "mlp.experts.5.up_proj.weight",
       .words = {L0 "mlp.experts.5.up_proj.weight", "[47, 64]"}},
      {.base = "qwen3-moe",
       .key = "num_local_experts",
       .value = "7",
       .words = {"mlp.gate.weight", "expected the shape [7, 64]"}},
      {.base = "qwen3-moe", .key = "mlp_only_layers", .value = "[]", .words = {"model.layers.2.mlp.gate.weight", NULL}},
      {.base = "qwen3-moe", .key = "mlp_only_layers", .value = "[0,2]", .words = {L0 "mlp.gate_proj.weight", NULL}},
      {.base = "qwen2-moe",
       .drop = L0 "mlp.shared_expert_gate.weight",
       .words = {"mlp.shared_expert_gate.weight", NULL}},
      {.base = "qwen2-moe",
       .key = "shared_expert_intermediate_size",
       .value = "64",
       .words = {"shared_expert", "[80, 64]"}},
      {.base = "gpt-oss",
       .drop = L0 "mlp.experts.down_proj_scales",
       .words = {L0 "mlp.experts.down_proj_scales", "found none"}},
      {.base = "gpt-oss",
       .drop = L0 "mlp.experts.down_proj_blocks",
       .words = {L0 "mlp.experts.down_proj", "found none"}},
      {.base = "gpt-oss",
       .shorten = L0 "mlp.experts.gate_up_proj_blocks",
       .words = {L0 "mlp.experts.gate_up_proj_blocks", "[3, 128, 2, 16]"}},
      {.base = "gpt-oss",
       .shorten = L0 "mlp.experts.gate_up_proj_scales",
       .words = {L0 "mlp.experts.gate_up_proj_scales", "[3, 128, 2]"}},
      {.base = "gpt-oss",
       .shorten = L0 "mlp.experts.gate_up_proj_bias",
       .words = {L0 "mlp.experts.gate_up_proj_bias", "[3, 128]"}},
      {.base = "gpt-oss", .drop = L0 "self_attn.sinks", .words = {L0 "self_attn.sinks", "found none"}},
      {.base = "gpt-oss", .poison = L0 "mlp.experts.gate_up_proj_bias", .words = {"gate_up_proj_bias", "nan"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

#define ADDED(id, text, special) "{\"id\":" #id ",\"content\":\"" text "\",\"special\":" #special "}"

static void added_tokens(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "llama3", .added = {ADDED(320, "<image>", true)}},
      {.base = "llama3",
       .added = {ADDED(320, "<image>", false)},
       .words = {"at most the 320 tokens", "found 321, such as token 320, \"<image>\""}},
      {.base = "llama3",
       .added = {ADDED(320, "<image>", true), ADDED(321, "<image>", true)},
       .words = {"token 321 has the text of token 320", NULL}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void shapes(void **state) {
  (void)state;
  const broken cases[] = {
      {.base = "llama3", .key = "model_type", .value = "\"nobody\"", .words = {"model_type", "found \"nobody\""}},
      {.base = "llama3", .key = "model_type", .value = "null", .words = {"model_type", "found none"}},
      {.base = "llama3", .key = "model_type", .value = "\"qwen3\"", .words = {"q_norm", "found none"}},
      {.base = "qwen3", .key = "model_type", .value = "\"llama\"", .words = {"k_norm", "do not have"}},
      {.base = "llama3", .key = "num_attention_heads", .value = "3", .words = {"num_key_value_heads", "3 heads"}},
      {.base = "llama3", .key = "num_key_value_heads", .value = "4", .words = {"k_proj.weight", "found [32, 64]"}},
      {.base = "llama3", .key = "hidden_size", .value = "80", .words = {"embed_tokens.weight", "found [320, 64]"}},
      {.base = "llama3",
       .key = "intermediate_size",
       .value = "1",
       .words = {"gate_proj.weight: expected the shape [64] or [1, 64]", "found [160, 64]"}},
      {.base = "llama3", .key = "num_hidden_layers", .value = "2", .words = {"model.layers.2.", "do not have"}},
      {.base = "llama3", .key = "num_hidden_layers", .value = "4", .words = {"model.layers.3.", "found none"}},
      {.base = "llama3", .key = "num_hidden_layers", .value = "1000", .words = {"num_hidden_layers", "at most the"}},
      {.base = "llama3", .key = "pad_token_id", .value = "-1"},
      {.base = "llama3", .key = "pad_token_id", .value = "\"x\"", .words = {"pad_token_id", "a string"}},
      {.base = "llama3", .key = "pad_token_id", .value = "100000", .words = {"pad_token_id", "found 100000"}},
      {.base = "llama3", .key = "bos_token_id", .value = "\"x\"", .words = {"bos_token_id", "a string"}},
      {.base = "llama3", .key = "eos_token_id", .value = "-5", .words = {"config.json: eos_token_id", "found -5"}},
      {.base = "bitnet-auto",
       .key = "quantization_config",
       .value = "{\"quant_method\":\"awq\"}",
       .words = {"quant_method", "\"awq\" is not read"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unchanged), cmocka_unit_test(tensors),      cmocka_unit_test(results),
      cmocka_unit_test(experts),   cmocka_unit_test(added_tokens), cmocka_unit_test(shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
