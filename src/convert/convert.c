// The way of a conversion: plan, then write.
#include "convert/conversion.h"

#include <string.h>

static bool is_gguf_name(const char *path) {
  size_t n = strlen(path), m = strlen(".gguf");
  return n > m && !strcmp(path + n - m, ".gguf");
}

static setun_status check_target(const st_directory *d, bool to_gguf, const st_convert_options *o, setun_error *err) {
  const char *name = o->divides ? "hf-u8-div" : o->to->name;
  bool values = !st_format_is_ternary(o->to);
  if (d->container == ST_SAFETENSORS) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected a GGUF file or a model's directory, found tensors alone",
                   d->path);
  }
  if (to_gguf && o->to->gguf_type < 0) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s is a layout of Hugging Face directories; for a GGUF file choose t2, i2_s, tq2_0 or another",
                   name);
  }
  if (!to_gguf && !values && o->to->id != ST_HF_U8) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s is a layout of GGUF files, and the target does not end in .gguf; a directory holds hf-u8, "
                   "hf-u8-div, f32, f16 or bf16",
                   name);
  }
  return SETUN_OK;
}

setun_status st_convert(const st_directory *source, const char *target, const st_convert_options *options,
                        setun_error *err) {
  bool to_gguf = is_gguf_name(target);
  st_conversion plan = {0};
  setun_status s = check_target(source, to_gguf, options, err);
  if (s == SETUN_OK) s = st_conversion_make(source, to_gguf, options, &plan, err);
  if (s == SETUN_OK) s = to_gguf ? st_write_gguf(&plan, target, err) : st_write_huggingface(&plan, target, err);
  st_conversion_free(&plan);
  return s;
}
