// Choosing a table: one row an instruction set, each built upon the row before it.
#include "kernel/kernel.h"

#include "kernel/ref/ref.h"

#include <string.h>

typedef struct {
  const char *name;
  void (*fill)(st_kernels *table);
} row;

static bool runs(const st_cpu *cpu, const char *name) {
  (void)cpu;
  return !strcmp(name, "scalar");
}

static const row rows[] = {{"scalar", st_ref_table}};
static const char all[] = "scalar";

const char *st_kernels_available(void) {
  return "scalar";
}

setun_status st_kernels_get(const char *isa, st_kernels *table, setun_error *err) {
  st_cpu cpu = st_cpu_detect();
  bool known = !isa;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool can = runs(&cpu, rows[i].name), wanted = isa && !strcmp(isa, rows[i].name);
    if (can) rows[i].fill(table);
    if (wanted && can) return SETUN_OK;
    known = known || wanted;
  }
  if (!known) return st_fail(err, SETUN_ERROR_ARGUMENT, "instruction set '%s': expected one of %s", isa, all);
  if (!isa) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "instruction set '%s': this processor runs only %s", isa,
                 st_kernels_available());
}
