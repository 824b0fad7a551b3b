// Loading the system's LAPACK.
#include "quantize/lapack.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>

static const char *const names[] = {"libopenblas.so.0", "liblapack.so.3", "libopenblas.dylib"};

// A function's address, copied since C has no conversion from void * to a function pointer.
static int find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

// OpenBLAS takes a buffer for each of its threads at the first call, and asks for it again and again where there is
// none.
static setun_status check_room(void *library, setun_error *err) {
  enum { BUFFERS_MOST = 256 };
  const size_t bytes = (size_t)129 << 20;
  int (*threads)(void) = NULL;
  void *buffers[BUFFERS_MOST];
  int n = find(library, "openblas_get_num_threads", &threads) ? threads() + 1 : 0, taken = 0;
  if (n > BUFFERS_MOST) n = BUFFERS_MOST;
  while (taken < n && (buffers[taken] = st_malloc(bytes, 1))) taken++;
  for (int i = 0; i < taken; i++) st_free(buffers[i]);
  if (taken == n) return SETUN_OK;
  return st_fail(
      err, SETUN_ERROR_MEMORY,
      "calibration: expected %d MiB of address space for OpenBLAS's buffers, found less (OPENBLAS_NUM_THREADS=1 "
      "takes less)",
      n * (int)(bytes >> 20));
}

setun_status st_lapack_load(st_lapack *l, setun_error *err) {
  char reason[160] = "";
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library && !i) snprintf(reason, sizeof reason, "%s", dlerror());
    if (!library) continue;
    if (find(library, "ssyrk_", &l->ssyrk) && find(library, "spotrf_", &l->spotrf) &&
        find(library, "spotri_", &l->spotri)) {
      return check_room(library, err);
    }
    dlclose(library);
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "calibration needs LAPACK: expected libopenblas.so.0 or liblapack.so.3, found neither (%s; Debian: "
                 "libopenblas0)",
                 reason);
}

#else
setun_status st_lapack_load(st_lapack *l, setun_error *err) {
  (void)l;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "calibration needs LAPACK, which is not looked for on this system");
}
#endif
