// Fuzz target: the JSON files of a Hugging Face directory. The first byte says which one the rest is: config.json,
// generation_config.json or the index; the others are valid.
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

static const char config[] = "{\"model_type\":\"bitnet\",\"quantization_config\":{\"quant_method\":\"bitnet\"}}";
static const char index_text[] = "{\"weight_map\":{\"layers.0.m.weight\":\"a.safetensors\"}}";
static const char tensors[] = "{\"layers.0.m.weight\":{\"dtype\":\"U8\",\"shape\":[1,4],\"data_offsets\":[0,4]},"
                              "\"layers.0.m.weight_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                              "\"layers.0.n.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}}";

static void write_model(const char *path) {
  uint8_t bytes[8 + sizeof tensors - 1 + 16] = {sizeof tensors - 1 & 0xFF, (sizeof tensors - 1) >> 8};
  memcpy(bytes + 8, tensors, sizeof tensors - 1);
  static const uint8_t data[16] = {0x64, 0x64, 0x64, 0x64, 0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x40};
  memcpy(bytes + 8 + sizeof tensors - 1, data, sizeof data);
  fuzz_write(path, bytes, sizeof bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json"};
  static const char *const good[] = {config, "{}", index_text};
  if (!size) return 0;
  char path[128];
  unsigned which = data[0] % 3;
  for (unsigned i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), names[i]);
    if (i == which)
      fuzz_write(path, data + 1, size - 1);
    else
      fuzz_write(path, good[i], strlen(good[i]));
  }
  snprintf(path, sizeof path, "%s/a.safetensors", fuzz_folder());
  write_model(path);
  fuzz_open(fuzz_folder());
  return 0;
}
