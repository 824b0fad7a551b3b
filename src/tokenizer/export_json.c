// From a tokenizer to the text of a tokenizer.json.
#include "tokenizer/export.h"

setun_status st_tokenizer_export_json(const st_tokenizer *t, st_buffer *out, setun_error *err) {
  (void)t, (void)out;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "not yet");
}
