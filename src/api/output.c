// setun.h: output files.
#include "api/api.h"

#include "base/memory.h"
#include "base/output.h"

struct setun_output {
  st_output file;
};

setun_status setun_output_open(const char *path, setun_output **output, setun_error *error) {
  ST_NEED(path);
  ST_NEED(output);
  setun_output *o = st_calloc(1, sizeof *o);
  if (!o) return st_fail_memory(error, path);
  setun_status s = st_output_open(path, &o->file, error);
  if (s == SETUN_OK) {
    *output = o;
  } else {
    st_free(o);
  }
  return s;
}

setun_status setun_output_write(setun_output *output, uint64_t offset, const void *bytes, size_t size,
                                setun_error *error) {
  ST_NEED(output);
  ST_NEED_ARRAY(bytes, size);
  if (offset > INT64_MAX || size > INT64_MAX - offset) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "%s: expected a file of at most 2^63 - 1 bytes", output->file.path);
  }
  return st_output_write_at(&output->file, offset, bytes, size, error);
}

setun_status setun_output_commit(setun_output *output, setun_error *error) {
  ST_NEED(output);
  setun_status s = st_output_commit(&output->file, error);
  st_free(output);
  return s;
}

void setun_output_discard(setun_output *output) {
  if (!output) return;
  st_output_discard(&output->file);
  st_free(output);
}
