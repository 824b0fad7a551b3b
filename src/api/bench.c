// setun.h: benchmarks.
#include "api/api.h"

#include "base/float_modes.h"
#include "source/disk.h"

static setun_status measure(const char *isa, int threads, uint64_t buffer_bytes, bool reading_only,
                            setun_ceilings *found, setun_error *error) {
  if (threads < 0 || threads > 1024) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "threads: expected 0 to 1024, found %d", threads);
  }
  return st_backend_find(NULL)->measure(isa, threads, buffer_bytes, reading_only, found, error);
}

setun_status setun_measure_ceilings(const char *isa, int threads, uint64_t buffer_bytes, setun_ceilings *ceilings,
                                    setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_ceilings found = {0};
  setun_status s = st_check_struct(ceilings, sizeof found, "ceilings", error);
  if (s == SETUN_OK) s = measure(isa, threads, buffer_bytes, false, &found, error);
  return s == SETUN_OK ? ST_FILL(ceilings, &found) : s;
}

setun_status setun_measure_read(const char *isa, int threads, uint64_t buffer_bytes, double *bytes_per_s,
                                setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_ceilings found = {0};
  ST_NEED(bytes_per_s);
  setun_status s = measure(isa, threads, buffer_bytes, true, &found, error);
  if (s == SETUN_OK) *bytes_per_s = found.read_bytes_per_s;
  return s;
}

setun_status setun_measure_disk(const char *path, uint64_t ring_bytes, uint64_t total_bytes, double *bytes_per_s,
                                setun_error *error) {
  const st_open_options open = {0};
  const st_stream_options options = {.slots = 2, .direct = true, .uring = true};
  st_directory *d = NULL;
  ST_NEED(path);
  ST_NEED(bytes_per_s);
  setun_status s = st_directory_open(path, &open, &d, error);
  if (s != SETUN_OK) return s;
  uint32_t largest = 0;
  for (uint32_t i = 1; i < d->n_parts; i++) {
    if (d->parts[i].size > d->parts[largest].size) largest = i;
  }
  s = st_disk_measure(&d->parts[largest], ring_bytes, total_bytes, &options, bytes_per_s, error);
  st_directory_free(d);
  return s;
}
