// Whole models against the official implementation's numbers: tests/golden/hf and tests/golden/gguf.
#include "models.h"

#include <math.h>

typedef struct {
  const float *hidden, *logits; // golden: [L+1, T, hidden], [T, vocab]
  size_t tokens, width, vocab;
  double worst_hidden, worst_logits;
  const float *layer0; // [T, hidden] the official implementation's in bf16; NULL: none
  double layer0_error; // sum of distances from it
  float *last;         // [T][vocab] computed
} comparison;

static bool on_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  comparison *c = user;
  const float *want = c->hidden + ((size_t)layer * c->tokens + position) * c->width;
  for (size_t i = 0; i < (size_t)n * c->width; i++) {
    double d = fabs((double)hidden[i] - (double)want[i]);
    if (!(d <= c->worst_hidden)) c->worst_hidden = d;
    if (layer == 1 && c->layer0) {
      c->layer0_error += fabs((double)hidden[i] - (double)c->layer0[(size_t)position * c->width + i]);
    }
  }
  return true;
}

static bool on_logits(uint32_t position, const float *logits, void *user) {
  comparison *c = user;
  const float *want = c->logits + (size_t)position * c->vocab;
  for (size_t i = 0; i < c->vocab; i++) {
    double d = fabs((double)logits[i] - (double)want[i]);
    if (!(d <= c->worst_logits)) c->worst_logits = d;
  }
  return true;
}

// A session of a context of that length; 0: the model's own.
static setun_session *session_within(const setun_model *m, uint32_t n_ctx) {
  setun_session_params p = setun_session_params_default();
  setun_session *s = NULL;
  setun_error err = {SETUN_OK, ""};
  p.kv_keys = p.kv_values = SETUN_KV_F32;
  p.threads = 2;
  p.n_ctx = n_ctx;
  if (setun_session_new(m, &p, &s, &err) != SETUN_OK) fail_msg("%s", err.message);
  return s;
}

// LongRoPE: the last rows of a text that is longer than the original context.
static void compare_long(const setun_model *m, const golden *g, size_t vocab) {
  size_t n, count;
  setun_token *ids = golden_ids(g, "long_input_ids", &n);
  float *want = golden_read(g, "long_logits", "F32", &count, NULL);
  setun_session *s = session_within(m, 0);
  double worst = 0;
  for (size_t row = count / vocab; row > 0; row--) { // of the last rows
    size_t end = n - row + 1, at = setun_session_position(s);
    eval(s, ids + at, end - at, NULL);
    const float *logits = setun_session_logits(s);
    for (size_t i = 0; i < vocab; i++) {
      double d = fabs((double)logits[i] - (double)want[(count / vocab - row) * vocab + i]);
      if (!(d <= worst)) worst = d;
    }
  }
  print_message("%-24s logits %.1e\n", "  a long context", worst);
  assert_true(worst <= 1e-4);
  setun_session_free(s);
  st_free(want);
  st_free(ids);
}

// The share of steps, teacher-forced on the reference's ids, at which the likeliest token is the reference's.
static double greedy_share(const setun_model *m, const setun_token *ids, size_t n, const setun_token *greedy,
                           size_t steps, size_t vocab, uint32_t n_ctx) {
  setun_session *s = session_within(m, n_ctx);
  size_t same = 0;
  eval(s, ids, n, NULL);
  for (size_t i = 0; i < steps; i++) {
    same += likeliest(setun_session_logits(s), vocab) == greedy[i];
    if (i + 1 < steps) eval(s, greedy + i, 1, NULL);
  }
  setun_session_free(s);
  return (double)same / (double)steps;
}

// The official implementation's own mean distance between bf16 and float32, from golden.json.
static double own_error(const char *name) {
  char path[512];
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  snprintf(path, sizeof path, GOLDEN "hf/%s/golden.json", name);
  if (st_file_load(path, 1 << 20, &text, &length, &err) != SETUN_OK) fail_msg("%s", err.message);
  st_json *root;
  st_json_parse(text, length, path, &root, &err);
  if (!root) fail_msg("%s", err.message);
  double mean = st_json_number(st_json_find(st_json_find(root, "bf16_own_error"), "mean"));
  st_json_free(root);
  st_free(text);
  return mean;
}

static void compare(const char *path, const char *kind, const char *name, double hidden_bound, double logits_bound,
                    double greedy_bound) {
  char golden_path[512];
  snprintf(golden_path, sizeof golden_path, GOLDEN "%s/%s/golden.safetensors", kind, name);
  golden g = golden_open(golden_path);
  size_t n, steps, count;
  setun_token *ids = golden_ids(&g, "input_ids", &n), *greedy = golden_ids(&g, "greedy", &steps);
  comparison c = {.tokens = n};
  float *hidden = golden_read(&g, "hidden", "F32", &count, &c.width),
        *logits = golden_read(&g, "logits", "F32", &count, &c.vocab);
  c.hidden = hidden;
  float *layer0 =
      st_directory_find(g.directory, "layer0_bf16") ? golden_read(&g, "layer0_bf16", "F32", &count, NULL) : NULL;
  c.layer0 = layer0;
  c.logits = logits;
  setun_model *m = load(path, NULL);
  bool has_long = st_directory_find(g.directory, "long_logits") != NULL;
  uint32_t n_ctx = has_long ? (uint32_t)(n + steps) : 0; // the short factors hold
  setun_session *s = session_within(m, n_ctx);
  setun_eval_params p = {.size = sizeof p, .on_logits = on_logits, .on_hidden = on_hidden, .user = &c};
  eval(s, ids, n, &p);
  double same = greedy_share(m, ids, n, greedy, steps, c.vocab, n_ctx);
  if (has_long) compare_long(m, &g, c.vocab);
  print_message("%-24s hidden %.1e, logits %.1e, greedy %.3f\n", name, c.worst_hidden, c.worst_logits, same);
  assert_true(c.worst_hidden <= hidden_bound);
  assert_true(c.worst_logits <= logits_bound);
  assert_true(same >= greedy_bound);
  if (layer0) {
    double mean = c.layer0_error / (double)(n * c.width), own = own_error(name);
    print_message("%-24s layer 0 against bf16: mean %.2e, its own %.2e\n", name, mean, own);
    assert_true(own > 0 && mean <= 1.2 * own);
  }
  setun_session_free(s);
  setun_model_free(m);
  st_free(hidden);
  st_free(layer0);
  st_free(logits);
  st_free(ids);
  st_free(greedy);
  golden_close(&g);
}

static void compare_hf(const char *name, bool bitnet) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "hf/%s", name);
  // BitNet's int8 roundings flip on the last bit of a float: only logits and tokens are held to a bound.
  compare(path, "hf", name, bitnet ? INFINITY : 1e-4, bitnet ? 0.06 : 1e-4, bitnet ? 0.95 : 1);
}

static void compare_gguf(const char *name) {
  char path[512];
  bool bitnet = !strncmp(name, "bitnet", 6); // see compare_hf
  snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", name);
  compare(path, "hf", name, bitnet ? INFINITY : 1e-4, bitnet ? 0.06 : 1e-4, bitnet ? 0.95 : 1);
}

// Families without numbers of an official implementation: tools/make_model_references.py made these.
static void compare_numpy(const char *name) {
  char path[512];
  snprintf(path, sizeof path, GOLDEN "numpy/%s", name);
  compare(path, "numpy", name, 1e-4, 1e-4, 1);
}

static void numpy_mistral(void **state) {
  (void)state;
  compare_numpy("mistral");
}

static void numpy_olmo3(void **state) {
  (void)state;
  compare_numpy("olmo3");
}

static void numpy_minicpm(void **state) {
  (void)state;
  compare_numpy("minicpm");
}

// Ternary matrices that norm their input themselves (use_rms_norm).
static void numpy_bitnet_norms(void **state) {
  (void)state;
  compare(GOLDEN "numpy/bitnet-norms", "numpy", "bitnet-norms", INFINITY, 0.06, 0.95);
}

// A session no longer than the original context takes LongRoPE's short factors.
static void numpy_minicpm_short(void **state) {
  (void)state;
  golden g = golden_open(GOLDEN "numpy/minicpm/golden.safetensors");
  size_t n, count;
  setun_token *ids = golden_ids(&g, "input_ids", &n);
  comparison c = {.tokens = n};
  float *logits = golden_read(&g, "logits_short", "F32", &count, &c.vocab);
  c.logits = logits;
  setun_model *m = load(GOLDEN "numpy/minicpm", NULL);
  setun_session *s = session_within(m, 32);
  eval(s, ids, n, &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = on_logits, .user = &c});
  assert_true(c.worst_logits <= 1e-4);
  setun_session_free(s);
  setun_model_free(m);
  st_free(logits);
  st_free(ids);
  golden_close(&g);
}

#define HF(id, name)                                                                                                   \
  static void hf_##id(void **state) {                                                                                  \
    (void)state;                                                                                                       \
    compare_hf(name, false);                                                                                           \
  }
#define BITNET(id, name)                                                                                               \
  static void hf_##id(void **state) {                                                                                  \
    (void)state;                                                                                                       \
    compare_hf(name, true);                                                                                            \
  }
#define GGUF(id, name)                                                                                                 \
  static void gguf_##id(void **state) {                                                                                \
    (void)state;                                                                                                       \
    compare_gguf(name);                                                                                                \
  }
HF(llama3, "llama3")
HF(llama3_sharded, "llama3-tied-sharded")
HF(qwen2, "qwen2")
HF(qwen3, "qwen3")
HF(olmoe, "olmoe")
HF(olmoe_plain, "olmoe-plain")
HF(qwen2_moe, "qwen2-moe")
HF(qwen3_moe, "qwen3-moe")
HF(mixtral, "mixtral")
HF(gpt_oss, "gpt-oss")
HF(granite, "granite")
HF(hunyuan, "hunyuan")
HF(olmo2, "olmo2")
HF(phi3, "phi3")
HF(smollm3, "smollm3")
HF(gemma3, "gemma3")
HF(gemma3_plain, "gemma3-plain")
HF(gemma3_multimodal, "gemma3-multimodal")
BITNET(bitnet_auto, "bitnet-auto")
BITNET(bitnet_div, "bitnet-div")
BITNET(bitnet_latent, "bitnet-latent")
BITNET(bitnet_embed_qwen3, "bitnet-embed-qwen3-wide")
BITNET(bitnet_embed_gemma3, "bitnet-embed-gemma3")
GGUF(bitnet_embed_qwen3, "bitnet-embed-qwen3-wide")
GGUF(llama3, "llama3")
GGUF(llama3_sharded, "llama3-tied-sharded")
GGUF(qwen3, "qwen3")
GGUF(olmoe_plain, "olmoe-plain")
GGUF(qwen2_moe, "qwen2-moe")
GGUF(mixtral, "mixtral")
GGUF(gpt_oss, "gpt-oss")
GGUF(granite, "granite")
GGUF(hunyuan, "hunyuan")
GGUF(olmo2, "olmo2")
GGUF(phi3, "phi3")
GGUF(smollm3, "smollm3")
GGUF(gemma3_plain, "gemma3-plain")
GGUF(gemma3_multimodal, "gemma3-multimodal")
HF(qwen3_ternary, "qwen3-ternary-rot") // what the rotated files were made of

// Files in a rotated basis give what the model gives that was rotated.
static void rotated(void **state) {
  static const char *const files[][2] = {{"qwen3-rot", "qwen3"},
                                         {"qwen3-rot-tied", "qwen3"},
                                         {"qwen3-rot-identity", "qwen3"},
                                         {"qwen3-ternary-rot-pq2", "qwen3-ternary-rot"},
                                         {"qwen3-ternary-rot-ptq1", "qwen3-ternary-rot"}};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", files[i][0]);
    compare(path, "hf", files[i][1], 1e-4, 1e-4, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hf_llama3),
      cmocka_unit_test(hf_llama3_sharded),
      cmocka_unit_test(hf_qwen2),
      cmocka_unit_test(hf_qwen3),
      cmocka_unit_test(hf_gemma3),
      cmocka_unit_test(hf_gemma3_plain),
      cmocka_unit_test(hf_gemma3_multimodal),
      cmocka_unit_test(hf_bitnet_auto),
      cmocka_unit_test(hf_bitnet_div),
      cmocka_unit_test(hf_bitnet_latent),
      cmocka_unit_test(hf_bitnet_embed_qwen3),
      cmocka_unit_test(hf_bitnet_embed_gemma3),
      cmocka_unit_test(gguf_bitnet_embed_qwen3),
      cmocka_unit_test(hf_qwen3_ternary),
      cmocka_unit_test(rotated),
      cmocka_unit_test(gguf_llama3),
      cmocka_unit_test(gguf_llama3_sharded),
      cmocka_unit_test(gguf_qwen3),
      cmocka_unit_test(gguf_gemma3_plain),
      cmocka_unit_test(gguf_gemma3_multimodal),
      cmocka_unit_test(hf_olmoe),
      cmocka_unit_test(hf_olmoe_plain),
      cmocka_unit_test(hf_qwen2_moe),
      cmocka_unit_test(hf_qwen3_moe),
      cmocka_unit_test(hf_mixtral),
      cmocka_unit_test(hf_gpt_oss),
      cmocka_unit_test(hf_granite),
      cmocka_unit_test(hf_hunyuan),
      cmocka_unit_test(hf_olmo2),
      cmocka_unit_test(hf_phi3),
      cmocka_unit_test(hf_smollm3),
      cmocka_unit_test(gguf_olmoe_plain),
      cmocka_unit_test(gguf_qwen2_moe),
      cmocka_unit_test(gguf_mixtral),
      cmocka_unit_test(gguf_gpt_oss),
      cmocka_unit_test(gguf_granite),
      cmocka_unit_test(gguf_hunyuan),
      cmocka_unit_test(gguf_olmo2),
      cmocka_unit_test(gguf_phi3),
      cmocka_unit_test(gguf_smollm3),
      cmocka_unit_test(numpy_mistral),
      cmocka_unit_test(numpy_olmo3),
      cmocka_unit_test(numpy_minicpm),
      cmocka_unit_test(numpy_minicpm_short),
      cmocka_unit_test(numpy_bitnet_norms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
