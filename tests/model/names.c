// The maps of names of three published models against lists made from the published naming schemes, and what their
// config.json's say, with keys left out, null, or wrong.
#include "golden.h"

#include "base/json.h"
#include "model/hparams_read.h"
#include "placement/binding.h"

#include <math.h>

#define NAMES GOLDEN "names/"

static st_json *read_json(const char *path) {
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_json *root;
  st_json_parse(text, length, path, &root, &err);
  if (!root) fail_msg("%s", err.message);
  st_free(text);
  return root;
}

static setun_status read_config(st_json *config, const st_spec **spec, st_hparams *h, setun_error *err) {
  st_directory d = {.container = ST_HUGGINGFACE, .path = (char *)"test", .config = config, .by_name = st_map_new(1)};
  setun_status s = st_hparams_read(&d, NULL, spec, h, err);
  st_map_free(d.by_name);
  return s;
}

// The lines "HF\tGGUF" of a list, as one map each way; *n is their number.
static char *read_list(const char *path, st_map *hf, st_map *gguf, size_t *n) {
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  *n = 0;
  for (char *p = text; *p; (*n)++) {
    size_t left = strcspn(p, "\t"), right = strcspn(p + left + 1, "\n");
    int64_t before = -1;
    assert_true(st_map_add(hf, p, left, (int64_t)*n, &before) && before < 0);
    assert_true(st_map_add(gguf, p + left + 1, right, (int64_t)*n, &before) && before < 0);
    p += left + right + 2;
  }
  return text;
}

// The line of the list that holds a binding's name.
static int64_t line_of(const st_directory *d, const st_spec *spec, const st_binding *b, uint32_t layer,
                       const st_map *map) {
  char name[ST_NAME_SIZE + 8], module[ST_NAME_SIZE];
  assert_non_null(st_bound_name(d, spec, b, layer, 0, module));
  snprintf(name, sizeof name, "%s.weight", module);
  int64_t line = st_map_get(map, name, strlen(name));
  if (line < 0) fail_msg("%s is not in the list", name);
  return line;
}

static void check_map(const char *model, size_t expected) {
  static st_hparams h; // large
  char path[512];
  setun_error err = {SETUN_OK, ""};
  const st_spec *spec = NULL;
  snprintf(path, sizeof path, NAMES "%s.json", model);
  st_json *config = read_json(path);
  if (read_config(config, &spec, &h, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_map *hf = st_map_new(512), *gguf = st_map_new(512);
  size_t n, bound = 0;
  snprintf(path, sizeof path, NAMES "%s.tsv", model);
  char *text = read_list(path, hf, gguf, &n);
  assert_int_equal(n, expected);
  bool *seen = st_calloc(n, 1);
  st_directory as_hf = {.container = ST_HUGGINGFACE, .by_name = st_map_new(1)}, as_gguf = {.container = ST_GGUF};
  for (const st_binding *b = spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *name = st_binding_pattern(b, false);
    if (st_binding_need(b) == ST_OPTIONAL || !name || strstr(name, "%e")) continue;
    for (uint32_t i = 0; i < (st_role_in_layer(b->role) ? h.n_layer : 1); i++) {
      if (!st_role_applies(&h, b->role, i)) continue;
      int64_t line = line_of(&as_hf, spec, b, i, hf);
      assert_int_equal(line, line_of(&as_gguf, spec, b, i, gguf)); // the same role in both
      assert_false(seen[line]);
      seen[line] = true;
      bound++;
    }
  }
  assert_int_equal(bound, expected); // no line is left over
  st_map_free(as_hf.by_name);
  st_map_free(hf);
  st_map_free(gguf);
  st_free(seen);
  st_free(text);
  st_hparams_free(&h);
  st_json_free(config);
}

static void maps(void **state) {
  (void)state;
  check_map("llama-3.2-1b", 147);
  check_map("qwen3-1.7b", 311);
  check_map("gemma-3-1b", 341);
}

// A config.json of one line.
static st_hparams *parsed(const char *text, const st_spec **spec) {
  static st_hparams h;
  setun_error err = {SETUN_OK, ""};
  st_json *config;
  st_json_parse(text, strlen(text), "config.json", &config, &err);
  if (!config || read_config(config, spec, &h, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_json_free(config);
  return &h;
}

static void defaults(void **state) {
  (void)state;
  const st_spec *spec;
  st_hparams *h = parsed("{\"model_type\":\"qwen3\",\"num_key_value_heads\":8}", &spec);
  assert_int_equal(h->head_dim, 128);
  assert_int_equal(h->n_layer, 32);
  assert_false(h->tied);
  h = parsed("{\"model_type\":\"llama\",\"num_key_value_heads\":null,\"head_dim\":null,\"unknown\":[1]}", &spec);
  assert_int_equal(h->n_head_kv, 32);
  assert_int_equal(h->head_dim, 128);
  h = parsed("{\"model_type\":\"mistral\"}", &spec);
  assert_int_equal(h->window, 4096);
  assert_true(h->sliding[0] && h->sliding[31]);
  h = parsed("{\"model_type\":\"mistral\",\"sliding_window\":null}", &spec);
  assert_int_equal(h->window, 0);
  assert_false(h->sliding[0]);
  h = parsed("{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560}}",
             &spec);
  assert_int_equal(h->n_embd, 2560);
  assert_int_equal(h->n_vocab, 262208);
  assert_int_equal(h->n_head_kv, 4);
  assert_int_equal(h->window, 4096);
  assert_true(h->tied && h->sliding[4] && !h->sliding[5]);
  assert_true(h->rope.theta == 1e6f && h->rope_local.theta == 1e4f && h->attn_scale == 0.0625f);
  h = parsed("{\"model_type\":\"gpt_oss\"}", &spec);
  assert_int_equal(h->rope.scaling, ST_ROPE_YARN);
  assert_true(h->sliding[0] && !h->sliding[1] && h->sparse[35] && !h->rope.truncate);
  h = parsed("{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,99]}", &spec);
  assert_true(!h->sparse[0] && h->sparse[1] && !h->sparse[3] && h->sparse[5]);
  assert_int_equal(h->n_expert, 128);
  h = parsed("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":30}", &spec);
  assert_true(!h->sliding[29] && h->sliding[30] && h->sliding[31]);
}

// A context beyond the trained length needs a scaling that says so.
static void contexts(void **state) {
  (void)state;
  const st_spec *spec;
  assert_int_equal(parsed("{\"model_type\":\"qwen3\"}", &spec)->n_ctx_most, 32768);
  st_hparams *h =
      parsed("{\"model_type\":\"qwen3\",\"max_position_embeddings\":40960,\"rope_scaling\":{\"rope_type\":\"yarn\","
             "\"factor\":4.0,\"original_max_position_embeddings\":32768}}",
             &spec);
  assert_int_equal(h->n_ctx_train, 40960);
  assert_int_equal(h->n_ctx_most, 131072);
}

static void refused(const char *text, const char *words) {
  static st_hparams h;
  const st_spec *spec;
  setun_error err = {SETUN_OK, ""};
  st_json *config;
  st_json_parse(text, strlen(text), "config.json", &config, &err);
  assert_non_null(config);
  assert_int_not_equal(read_config(config, &spec, &h, &err), SETUN_OK);
  if (!strstr(err.message, words)) fail_msg("expected \"%s\" in \"%s\"", words, err.message);
  st_json_free(config);
}

static void bad_configs(void **state) {
  (void)state;
  refused("{}", "expected one of llama, bitnet, gemma3_text");
  refused("{\"model_type\":\"nobody\"}", "found \"nobody\"");
  refused("{\"model_type\":\"gemma2\"}", "soft-capped logits");
  refused("{\"model_type\":7}", "model_type");
  refused("{\"model_type\":\"llama\",\"hidden_size\":100,\"num_attention_heads\":7}", "expected a multiple of 7 heads");
  refused("{\"model_type\":\"llama\",\"num_key_value_heads\":5}", "expected a divisor of 32 heads, found 5");
  refused("{\"model_type\":\"llama\",\"num_hidden_layers\":0}", "num_hidden_layers");
  refused("{\"model_type\":\"llama\",\"num_hidden_layers\":5000}", "at most 1024");
  refused("{\"model_type\":\"llama\",\"hidden_size\":4294967296}", "hidden_size");
  refused("{\"model_type\":\"llama\",\"hidden_size\":\"4096\"}", "hidden_size");
  refused("{\"model_type\":\"llama\",\"head_dim\":3}", "an even head size");
  refused("{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "found \"gelu\"");
  refused("{\"model_type\":\"llama\",\"rope_theta\":0}", "rope_theta");
  refused("{\"model_type\":\"llama\",\"rope_theta\":1e-300}", "found 1e-300");
  refused("{\"model_type\":\"llama\",\"rms_norm_eps\":2}", "rms_norm_eps: expected a number from 0 to 1");
  refused("{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"dynamic\"}}", "found \"dynamic\"");
  refused("{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}}",
          "factor: expected a positive number");
  refused("{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor");
  refused("{\"model_type\":\"minicpm\",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}}", "short_factor");
  refused("{\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\"]}", "layer_types");
  refused("{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":50}", "attn_logit_softcapping");
  refused("{\"model_type\":\"llama\",\"final_logit_softcapping\":30}", "final_logit_softcapping");
  refused("{\"model_type\":\"llama\",\"is_causal\":false}", "is_causal: expected true, found false");
  refused("{\"model_type\":\"llama\",\"rms_norm_eps\":null}", "rms_norm_eps: expected a value, found null");
  refused("{\"model_type\":\"qwen3\",\"head_dim\":null}", "head_dim: expected a value, found null");
  refused("{\"model_type\":\"llama\",\"logits_scaling\":2}", "logits_scaling: expected 1, found 2");
  refused("{\"model_type\":\"qwen2\",\"use_mrope\":true}", "use_mrope");
  refused("{\"model_type\":\"mistral\",\"use_sliding_window\":false}", "use_sliding_window: expected true");
  refused("{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"alpha\":2}}", "alpha");
  refused("{\"model_type\":\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":5}", "experts");
  refused("{\"model_type\":\"olmoe\",\"num_experts\":100000}", "experts");
  refused("{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":1}", "mlp_only_layers");
  refused("{\"model_type\":\"gpt_oss\",\"swiglu_limit\":5}", "swiglu_limit");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(maps), cmocka_unit_test(defaults), cmocka_unit_test(contexts),
                                     cmocka_unit_test(bad_configs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
