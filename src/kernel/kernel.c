// Choosing a table: one row an instruction set, each built upon the row before it.
#include "kernel/kernel.h"

#include "kernel/ref/ref.h"
#if defined(__x86_64__)
#include "kernel/x86/x86.h"
#elif defined(__aarch64__)
#include "kernel/arm/arm.h"
#endif

#include <string.h>

typedef struct {
  const char *name;
  size_t needs; // where in st_cpu the flag stands
  void (*fill[2])(st_kernels *table);
  size_t may_need; // and what a part of these processors has
  void (*may_fill)(st_kernels *table);
} row;

#define NEEDS(flag) offsetof(st_cpu, flag)

static const row rows[] = {
#if defined(__x86_64__)
    {"avx2", NEEDS(avx2), {st_avx2_float, st_avx2_int8}, 0, NULL},
    {"avx512", NEEDS(avx512), {st_avx512_float, st_avx512_int8}, NEEDS(avx512_vbmi), st_vbmi_trits},
    {"amx", NEEDS(amx), {st_amx_int8}, 0, NULL},
#elif defined(__aarch64__)
    {"neon", NEEDS(neon), {st_neon_float, st_neon_int8}, 0, NULL},
    {"dotprod", NEEDS(dotprod), {st_dotprod_int8}, 0, NULL},
#endif
};
enum { ROWS = sizeof rows / sizeof *rows };

static bool has(const st_cpu *cpu, size_t flag) {
  bool value;
  memcpy(&value, (const char *)cpu + flag, sizeof value);
  return value;
}

// Rows that this processor runs: one cannot run where the one before it does not.
static size_t runnable(void) {
  st_cpu cpu = st_cpu_detect();
  size_t n = 0;
  while (n < ROWS && has(&cpu, rows[n].needs)) n++;
  return n;
}

const char *st_kernels_available(void) {
#if defined(__aarch64__)
  static const char *const texts[] = {"scalar", "scalar neon", "scalar neon dotprod"};
#else
  static const char *const texts[] = {"scalar", "scalar avx2", "scalar avx2 avx512", "scalar avx2 avx512 amx"};
#endif
  return texts[runnable()];
}

setun_status st_kernels_get(const char *isa, st_kernels *table, setun_error *err) {
  size_t can = runnable(), wanted = can;
  if (isa && !strcmp(isa, "scalar"))
    wanted = 0;
  else if (isa) {
    for (wanted = 1; wanted <= ROWS && strcmp(isa, rows[wanted - 1].name);) wanted++;
  }
  if (wanted > can) {
    return st_fail(err, wanted > ROWS ? SETUN_ERROR_ARGUMENT : SETUN_ERROR_UNSUPPORTED,
                   "instruction set '%s': this processor and build run %s", isa, st_kernels_available());
  }
  st_cpu cpu = st_cpu_detect();
  st_ref_table(table);
  for (size_t i = 0; i < wanted; i++) {
    table->name = rows[i].name;
    for (size_t f = 0; f < sizeof rows->fill / sizeof *rows->fill && rows[i].fill[f]; f++) rows[i].fill[f](table);
    if (rows[i].may_fill && has(&cpu, rows[i].may_need)) rows[i].may_fill(table);
  }
  return SETUN_OK;
}
