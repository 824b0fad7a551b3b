// Loading the system's LAPACK.
#include "quantize/lapack.h"

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

setun_status st_lapack_load(st_lapack *l, setun_error *err) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    if (find(library, "ssyrk_", &l->ssyrk) && find(library, "spotrf_", &l->spotrf) &&
        find(library, "spotri_", &l->spotri)) {
      return SETUN_OK;
    }
    dlclose(library);
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "calibration needs LAPACK: expected libopenblas.so.0 or liblapack.so.3, found neither (Debian: "
                 "libopenblas0)");
}

#else
setun_status st_lapack_load(st_lapack *l, setun_error *err) {
  (void)l;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "calibration needs LAPACK, which is not looked for on this system");
}
#endif
