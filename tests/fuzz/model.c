// Fuzz target: reading a model from a directory. The first byte says what the rest is: a config.json, from
// which parameters are read; an adapter_config.json; an adapter's GGUF file or safetensors, applied to a golden model;
// a golden model's config.json or generation_config.json, with which it is loaded and run; a whole GGUF file likewise.
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
  st_json *config;
  st_json_parse(text, size, "config.json", &config, &err);
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
  st_json_free(config);
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

// Loads a model and, if that succeeds, computes with it.
static void load(const char *path) {
  setun_model_params p = setun_model_params_default();
  setun_session_params sp = {.size = sizeof sp, .n_ctx = 8, .threads = 1};
  setun_error err = {SETUN_OK, ""};
  setun_model *m = NULL;
  setun_session *s = NULL;
  p.threads = 1;
  if (setun_model_load(path, &p, &m, &err) != SETUN_OK) {
    if (!err.message[0] || strchr(err.message, '\n')) abort();
    return;
  }
  if (setun_session_new(m, &sp, &s, &err) == SETUN_OK) {
    setun_token ids[3] = {0, 1, 2};
    size_t n = 0;
    if (setun_session_eval(s, ids, 3, NULL, &err) == SETUN_OK && !setun_session_logits(s)) abort();
    setun_tokenize(m, "ab c", 4, SETUN_TOKENIZE_BOS, ids, 3, &n, &err);
  }
  setun_session_free(s);
  setun_model_free(m);
}

// A Hugging Face directory of a golden model's files, one of them replaced. Its weights are small enough for that.
static void load_directory(const char *model, const char *replaced, const uint8_t *data, size_t size) {
  static const char *const names[] = {"config.json", "generation_config.json", "tokenizer_config.json",
                                      "tokenizer.json", "model.safetensors"};
  char directory[128], path[192], golden[512];
  snprintf(directory, sizeof directory, "%s/directory", fuzz_folder());
  mkdir(directory, 0700);
  for (int i = 0; i < 5; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    snprintf(golden, sizeof golden, GOLDEN "%s/%s", model, names[i]);
    unlink(path);
    if (!strcmp(names[i], replaced))
      fuzz_write(path, data, size);
    else if (!access(golden, F_OK) && symlink(golden, path))
      abort();
  }
  load(directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[128];
  if (!size) return 0;
  switch (data[0] % 9) {
  case 0: read_config((const char *)data + 1, size - 1); break;
  case 1: apply_peft(true, data + 1, size - 1); break;
  case 2: apply_peft(false, data + 1, size - 1); break;
  case 3:
    snprintf(path, sizeof path, "%s/adapter.gguf", fuzz_folder());
    fuzz_write(path, data + 1, size - 1);
    apply(path);
    break;
  case 4: load_directory("hf/llama3", "config.json", data + 1, size - 1); break;
  case 5: load_directory("hf/llama3", "generation_config.json", data + 1, size - 1); break;
  case 6: load_directory("hf/bitnet-auto", "config.json", data + 1, size - 1); break;
  case 7: load_directory("hf/olmoe", "config.json", data + 1, size - 1); break;
  default:
    snprintf(path, sizeof path, "%s/model.gguf", fuzz_folder());
    fuzz_write(path, data + 1, size - 1);
    load(path);
  }
  return 0;
}
