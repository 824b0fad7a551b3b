// Fuzz target: what stands between a directory and a model. The first byte says what the rest is: a config.json, from
// which parameters are read; an adapter_config.json; an adapter's GGUF file or safetensors, applied to a golden model.
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include "model/hparams_read.h"
#include "setun.h"

#include <sys/stat.h>

#define GOLDEN SETUN_TEST_DATA "/golden/"

static void read_config(const char *text, size_t size) {
  static st_hparams h; // large
  const st_spec *spec = NULL;
  setun_error err = {SETUN_OK, ""};
  json_t *config = st_json_parse(text, size, "config.json", &err);
  if (!config) return;
  st_directory d = {.container = ST_HUGGINGFACE, .path = (char *)"fuzz", .config = config};
  if (st_hparams_read(&d, NULL, &spec, &h, &err) == SETUN_OK) {
    if (!h.n_layer || h.n_layer > ST_MAX_LAYERS || !h.n_head_kv || h.n_head % h.n_head_kv || !h.head_dim ||
        h.n_expert_used > h.n_expert) {
      abort();
    }
    st_hparams_free(&h);
  } else if (!err.message[0] || strchr(err.message, '\n')) {
    abort();
  }
  json_decref(config);
}

static void apply(const char *adapter) {
  setun_model_params p = setun_model_params_default();
  setun_adapter a = {adapter, 0.5f};
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  p.threads = 1;
  p.adapters = &a;
  p.n_adapters = 1;
  if (setun_model_load(GOLDEN "hf/llama3", &p, &m, &err) != SETUN_OK && !err.message[0]) abort();
  setun_model_free(m);
}

// A PEFT directory of the golden adapter's two files, one of them replaced.
static void apply_peft(bool config, const uint8_t *data, size_t size) {
  static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
  char directory[128], path[192];
  snprintf(directory, sizeof directory, "%s/adapter", fuzz_folder());
  mkdir(directory, 0700);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    unlink(path);
    if (config == (i == 0)) {
      fuzz_write(path, data, size);
    } else {
      char golden[512];
      snprintf(golden, sizeof golden, GOLDEN "numpy/adapter-first/%s", names[i]);
      if (symlink(golden, path)) abort();
    }
  }
  apply(directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[128];
  if (!size) return 0;
  switch (data[0] % 4) {
  case 0: read_config((const char *)data + 1, size - 1); break;
  case 1: apply_peft(true, data + 1, size - 1); break;
  case 2: apply_peft(false, data + 1, size - 1); break;
  default:
    snprintf(path, sizeof path, "%s/adapter.gguf", fuzz_folder());
    fuzz_write(path, data + 1, size - 1);
    apply(path);
  }
  return 0;
}
