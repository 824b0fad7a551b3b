// setun.h: benchmarks.
#include "api/api.h"

setun_status setun_measure_ceilings(const char *isa, int threads, uint64_t buffer_bytes, setun_ceilings *ceilings,
                                    setun_error *error) {
  return st_backend_cpu.measure(isa, threads, buffer_bytes, ceilings, error);
}
