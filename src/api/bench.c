// setun.h: benchmarks.
#include "api/api.h"

setun_status setun_measure_ceilings(const char *isa, int threads, uint64_t buffer_bytes, setun_ceilings *ceilings,
                                    setun_error *error) {
  if (threads < 0 || threads > 1024) {
    return st_fail(error, SETUN_ERROR_ARGUMENT, "threads: expected 0 to 1024, found %d", threads);
  }
  return st_backend_cpu.measure(isa, threads, buffer_bytes, ceilings, error);
}
