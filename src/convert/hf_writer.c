// Writing a Hugging Face directory.
#include "convert/plan.h"
setun_status st_write_huggingface(st_plan *p, const char *path, setun_error *err) {
  (void)p, (void)path;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "not yet");
}
