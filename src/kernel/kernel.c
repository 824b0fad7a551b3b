// Choosing a table: one row an instruction set, each built upon the row before it, past those that stand apart.
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
  bool apart;      // nothing is built upon it
  size_t may_need; // and what a part of these processors has
  void (*may_fill)(st_kernels *table);
} row;

#define NEEDS(flag) offsetof(st_cpu, flag)

static const row rows[] = {
#if defined(__x86_64__)
    {"avx2", NEEDS(avx2), {st_avx2_float, st_avx2_int8}, false, 0, NULL},
    {"avxvnni", NEEDS(avx_vnni), {st_avxvnni_int8}, true, 0, NULL},
    {"avx512", NEEDS(avx512), {st_avx512_float, st_avx512_int8}, false, NEEDS(avx512_vbmi), st_vbmi_trits},
    {"amx", NEEDS(amx), {st_amx_int8}, false, NEEDS(amx_bf16), st_amx_bf16},
#elif defined(__aarch64__)
    {"neon", NEEDS(neon), {st_neon_float, st_neon_int8}, false, 0, NULL},
    {"dotprod", NEEDS(dotprod), {st_dotprod_int8}, false, 0, NULL},
#endif
};
enum { ROWS = sizeof rows / sizeof *rows };

static bool has(const st_cpu *cpu, size_t flag) {
  bool value;
  memcpy(&value, (const char *)cpu + flag, sizeof value);
  return value;
}

// Whether row i is among those that row `last` is built of.
static bool is_part(size_t i, size_t last) {
  return i == last || (i < last && !rows[i].apart);
}

static bool runs(const st_cpu *cpu, size_t last) {
  for (size_t i = 0; i <= last; i++) {
    if (is_part(i, last) && !has(cpu, rows[i].needs)) return false;
  }
  return true;
}

const char *st_kernels_available(void) {
  st_cpu cpu = st_cpu_detect();
#if defined(__aarch64__)
  return cpu.dotprod ? "scalar neon dotprod" : "scalar neon";
#else
  static const char *const texts[2][4] = {
      {"scalar", "scalar avx2", "scalar avx2 avx512", "scalar avx2 avx512 amx"},
      {"scalar", "scalar avx2 avxvnni", "scalar avx2 avxvnni avx512", "scalar avx2 avxvnni avx512 amx"}};
  return texts[cpu.avx_vnni][cpu.avx2 + cpu.avx512 + cpu.amx];
#endif
}

// The number of rows up to the named one, or to the best: 0 is the scalar table. Beyond all rows: there is none, or
// this processor does not run it.
static size_t rows_up_to(const st_cpu *cpu, const char *isa) {
  size_t n = ROWS;
  if (isa && !strcmp(isa, "scalar")) return 0;
  while (n && !(isa ? !strcmp(isa, rows[n - 1].name) : runs(cpu, n - 1))) n--;
  return isa && !(n && runs(cpu, n - 1)) ? ROWS + 1 : n;
}

static bool is_name(const char *isa) {
  for (size_t i = 0; i < ROWS; i++) {
    if (!strcmp(isa, rows[i].name)) return true;
  }
  return false;
}

setun_status st_kernels_get(const char *isa, st_kernels *table, setun_error *err) {
  st_cpu cpu = st_cpu_detect();
  size_t n = rows_up_to(&cpu, isa);
  if (n > ROWS) {
    return st_fail(err, is_name(isa) ? SETUN_ERROR_UNSUPPORTED : SETUN_ERROR_ARGUMENT,
                   "instruction set '%s': this processor and build run %s", isa, st_kernels_available());
  }
  st_ref_table(table);
  for (size_t i = 0; i < n; i++) {
    if (!is_part(i, n - 1)) continue;
    table->name = rows[i].name;
    for (size_t f = 0; f < sizeof rows->fill / sizeof *rows->fill && rows[i].fill[f]; f++) rows[i].fill[f](table);
    if (rows[i].may_fill && has(&cpu, rows[i].may_need)) rows[i].may_fill(table);
  }
  return SETUN_OK;
}
