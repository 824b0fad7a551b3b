// LoRA adapters against merged weights computed by tools/make_model_references.py, and adapters that must be refused.
#define _DEFAULT_SOURCE // mkdtemp
#include "models.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#define NUMPY GOLDEN "numpy/"

typedef struct {
  const float *want;
  size_t vocab;
  double worst;
} comparison;

static bool on_logits(uint32_t position, const float *logits, void *user) {
  comparison *c = user;
  for (size_t i = 0; i < c->vocab; i++) {
    double d = fabs((double)logits[i] - (double)c->want[position * c->vocab + i]);
    if (!(d <= c->worst)) c->worst = d;
  }
  return true;
}

static setun_status try_load(const char *model, const setun_adapter *adapters, size_t n, setun_model **m,
                             setun_error *err) {
  setun_model_params p = setun_model_params_default();
  p.precise = true;
  p.adapters = adapters;
  p.n_adapters = n;
  return setun_model_load(model, &p, m, err);
}

static void check(const char *model, const setun_adapter *adapters, size_t n, const char *base, const char *logits,
                  uint32_t n_batch, double bound) {
  golden g = golden_open(NUMPY "adapters.safetensors");
  char name[128];
  size_t n_ids, count;
  comparison c = {0};
  snprintf(name, sizeof name, "%s.input_ids", base);
  setun_token *ids = golden_ids(&g, name, &n_ids);
  snprintf(name, sizeof name, "%s.%s", base, logits);
  float *want = golden_read(&g, name, "F32", &count, &c.vocab);
  c.want = want;
  setun_model *m = NULL;
  setun_error err = {SETUN_OK, ""};
  if (try_load(model, adapters, n, &m, &err) != SETUN_OK) fail_msg("%s", err.message);
  setun_session *s = session(m, n_batch, 2);
  eval(s, ids, n_ids, &(setun_eval_params){.size = sizeof(setun_eval_params), .on_logits = on_logits, .user = &c});
  print_message("%s, %zu adapters: logits %.1e\n", model + sizeof GOLDEN - 1, n, c.worst);
  assert_true(c.worst <= bound);
  setun_session_free(s);
  setun_model_free(m);
  st_free(want);
  st_free(ids);
  golden_close(&g);
}

// Either container's adapter on either container's model.
static void one(void **state) {
  (void)state;
  const char *models[] = {GOLDEN "hf/llama3", GOLDEN "gguf/llama3.gguf"};
  const char *adapters[] = {NUMPY "adapter-first", NUMPY "adapter-first.gguf"};
  for (int i = 0; i < 4; i++) {
    check(models[i / 2], &(setun_adapter){adapters[i % 2], 0.75f}, 1, "llama3", "logits_first", i % 2, 1e-4);
  }
}

static void several(void **state) {
  (void)state;
  const setun_adapter both[] = {{NUMPY "adapter-first", 0.75f}, {NUMPY "adapter-second", -0.5f}};
  check(GOLDEN "hf/llama3", both, 2, "llama3", "logits_both", 0, 1e-4);
  check(GOLDEN "hf/llama3", both, 2, "llama3", "logits_both", 1, 1e-4);
  const setun_adapter other[] = {
      {NUMPY "adapter-second", -0.5f}, {NUMPY "adapter-first.gguf", 0.5f}, {NUMPY "adapter-first", 0.25f}};
  check(GOLDEN "gguf/llama3.gguf", other, 3, "llama3", "logits_both", 0, 1e-4);
}

// The ternary product keeps its int8 activations; the adapter computes in floats in addition. The bound is that of
// BitNet models whose activations are rounded.
static void ternary(void **state) {
  (void)state;
  check(GOLDEN "hf/bitnet-auto", &(setun_adapter){NUMPY "adapter-bitnet", 0.75f}, 1, "bitnet-auto", "logits_first", 0,
        0.06);
}

static void refused(const char *model, const char *adapter, float scale, const char *message) {
  setun_model *m = NULL;
  setun_error err = {SETUN_OK, ""};
  assert_int_not_equal(try_load(model, &(setun_adapter){adapter, scale}, 1, &m, &err), SETUN_OK);
  assert_null(m);
  if (!strstr(err.message, message)) fail_msg("expected \"%s\" in \"%s\"", message, err.message);
}

static void wrong_base(void **state) {
  (void)state;
  refused(GOLDEN "hf/mixtral", NUMPY "adapter-first", 1, "no matrix for it");
  refused(GOLDEN "hf/bitnet-auto", NUMPY "adapter-first.gguf", 1, "general.architecture: expected an adapter for");
  refused(NUMPY "mistral", NUMPY "adapter-first", 1, "expected factors [r, 36] and [36, r], found [3, 64] and [64, 3]");
  refused(GOLDEN "hf/llama3", GOLDEN "gguf/llama3.gguf", 1, "expected a LoRA adapter");
  refused(GOLDEN "hf/llama3", NUMPY "adapters.safetensors", 1, "expected a PEFT directory or a GGUF adapter");
  refused(GOLDEN "hf/llama3", GOLDEN "hf/llama3", 1, "adapter_config.json");
  refused(GOLDEN "hf/llama3", NUMPY "adapter-first", NAN, "expected a finite scale");
  refused(GOLDEN "hf/llama3", NUMPY "none", 1, "none");
}

// The first adapter with one setting of its config changed.
static void refused_config(const char *key, json_t *value, const char *message) {
  char directory[] = "/tmp/setun-adapter-XXXXXX", path[128], target[512];
  assert_non_null(mkdtemp(directory));
  char *text = NULL;
  size_t length;
  setun_error err = {SETUN_OK, ""};
  if (st_file_load(NUMPY "adapter-first/adapter_config.json", 1 << 16, &text, &length, &err))
    fail_msg("%s", err.message);
  json_t *config = json_loads(text, 0, NULL);
  json_object_set_new(config, key, value);
  snprintf(path, sizeof path, "%s/adapter_config.json", directory);
  assert_int_equal(json_dump_file(config, path, 0), 0);
  snprintf(target, sizeof target, "%s/adapter_model.safetensors", directory);
  assert_int_equal(symlink(NUMPY "adapter-first/adapter_model.safetensors", target), 0);
  refused(GOLDEN "hf/llama3", directory, 1, message);
  unlink(target);
  unlink(path);
  rmdir(directory);
  json_decref(config);
  st_free(text);
}

static void bad_config(void **state) {
  (void)state;
  refused_config("r", json_integer(4), "expected rank 4, found 3");
  refused_config("r", json_integer(0), "r:");
  refused_config("use_dora", json_true(), "use_dora");
  refused_config("bias", json_string("all"), "bias");
  refused_config("peft_type", json_string("IA3"), "peft_type");
  refused_config("modules_to_save", json_pack("[s]", "lm_head"), "modules_to_save");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one),        cmocka_unit_test(several),    cmocka_unit_test(ternary),
      cmocka_unit_test(wrong_base), cmocka_unit_test(bad_config),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
