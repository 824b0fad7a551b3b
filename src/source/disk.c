// Measures sequential reading with a stream whose units are the file's consecutive parts.
#include "source/disk.h"
#include "base/clock.h"
#include "base/memory.h"
#include "source/stream_private.h"

enum { UNIT_LEAST = 1 << 20, UNITS_MOST = 1 << 16 };

// Takes the ring's first filling untimed, and then `n` units.
static setun_status time_units(st_stream *s, size_t n_units, size_t slots, size_t n, double *seconds,
                               setun_error *err) {
  double begin = 0;
  setun_status status = SETUN_OK;
  st_stream_start(s, false, 1);
  for (size_t i = 0; i < slots + n && status == SETUN_OK; i++) {
    const uint8_t *bytes;
    size_t unit = i % n_units;
    status = st_stream_acquire(s, unit, &bytes, err);
    if (i + 1 == slots) begin = st_clock_seconds();
    if (status == SETUN_OK && i < n) st_stream_release(s, unit); // the last ones need no successor
  }
  *seconds = st_clock_seconds() - begin;
  return status;
}

setun_status st_disk_measure(const st_file *file, uint64_t ring_bytes, uint64_t total_bytes,
                             const st_stream_options *options, double *bytes_per_s, setun_error *err) {
  if (!file->size)
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: the disk's speed cannot be measured with an empty file", file->path);
  size_t slots = options->slots > 0 ? (size_t)options->slots : 1;
  uint64_t unit = ring_bytes / slots & ~(uint64_t)(UNIT_LEAST - 1);
  if (unit < UNIT_LEAST) unit = UNIT_LEAST;
  if (unit > file->size) unit = file->size;
  size_t n_units = file->size / unit < UNITS_MOST ? (size_t)(file->size / unit) : UNITS_MOST;
  size_t n = total_bytes / unit < UNITS_MOST ? (size_t)(total_bytes / unit) : UNITS_MOST;
  if (!n) n = 1;
  st_stream_range *ranges = st_calloc(n_units, sizeof *ranges);
  st_stream_unit *units = st_calloc(n_units, sizeof *units);
  st_stream *s = NULL;
  double seconds = 0;
  setun_status status = SETUN_OK;
  if (!ranges || !units) status = st_fail_memory(err, "measuring the disk");
  for (size_t i = 0; i < n_units && status == SETUN_OK; i++) {
    ranges[i] = (st_stream_range){file, i * unit, unit};
    units[i] = (st_stream_unit){&ranges[i], 1};
  }
  if (status == SETUN_OK) status = st_stream_new(units, n_units, options, &s, err);
  if (status == SETUN_OK) status = time_units(s, n_units, slots, n, &seconds, err);
  if (status == SETUN_OK) *bytes_per_s = (double)n * (double)unit / (seconds > 1e-9 ? seconds : 1e-9);
  st_stream_free(s);
  st_free(ranges);
  st_free(units);
  return status;
}
