// Choosing a table: isas.def has a row for each instruction set, built upon the table of the row it names as its base.
#include "kernel/kernel.h"

#include "kernel/inits.h"

#include <pthread.h>
#include <string.h>

typedef struct {
  const char *name;
  int base; // index of a row; -1: none
  bool extension;
  bool (*runs)(const st_cpu *cpu);
  void (*init)(st_kernels *k); // NULL: not in builds for this architecture
} isa_row;

#define INIT_ANY(function) function
#if defined(__x86_64__)
#define INIT_X86(function) function
#else
#define INIT_X86(function) NULL
#endif
#if defined(__aarch64__)
#define INIT_ARM(function) function
#else
#define INIT_ARM(function) NULL
#endif

enum {
  ROW_none = -1,
#define ISA(name, ...) ROW_##name,
#define EXTENSION ISA
#include "kernel/isas.def"
  ROWS
};

#define ISA(name, base, architecture, test, ...)                                                                       \
  static bool runs_##name(const st_cpu *cpu) {                                                                         \
    return (void)cpu, test;                                                                                            \
  }
#define EXTENSION ISA
#include "kernel/isas.def"

static const isa_row rows[ROWS] = {
#define ROW(name, base, architecture, extension)                                                                       \
  {#name, ROW_##base, extension, runs_##name, INIT_##architecture(st_##name##_init)},
#define ISA(name, base, architecture, test, flags) ROW(name, base, architecture, false)
#define EXTENSION(name, base, architecture, test, flags) ROW(name, base, architecture, true)
#include "kernel/isas.def"
};

static bool runs(const st_cpu *cpu, int i) {
  for (; i != ROW_none; i = rows[i].base) {
    if (!rows[i].init || !rows[i].runs(cpu)) return false;
  }
  return true;
}

const char *st_isa_name(size_t index) {
  for (int i = 0; i < ROWS; i++) {
    if (!rows[i].extension && index-- == 0) return rows[i].name;
  }
  return NULL;
}

static int row_of(const char *name) {
  for (int i = 0; i < ROWS; i++) {
    if (!rows[i].extension && !strcmp(rows[i].name, name)) return i;
  }
  return ROW_none;
}

static char available[256];

static void list_available(void) {
  st_cpu cpu = st_cpu_detect();
  for (int i = 0; i < ROWS; i++) {
    if (rows[i].extension || !runs(&cpu, i)) continue;
    if (available[0]) strncat(available, " ", sizeof available - strlen(available) - 1);
    strncat(available, rows[i].name, sizeof available - strlen(available) - 1);
  }
}

const char *st_kernels_available(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, list_available);
  return available;
}

// The base's kernels, then the row's own, then those of its extensions that the processor has.
static void fill(const st_cpu *cpu, int i, st_kernels *table) {
  if (rows[i].base != ROW_none) fill(cpu, rows[i].base, table);
  rows[i].init(table);
  table->name = rows[i].name;
  for (int e = 0; e < ROWS; e++) {
    if (rows[e].extension && rows[e].base == i && runs(cpu, e)) rows[e].init(table);
  }
}

setun_status st_kernels_get(const char *isa, st_kernels *table, setun_error *err) {
  st_cpu cpu = st_cpu_detect();
  int i = isa ? row_of(isa) : ROWS - 1;
  while (!isa && (rows[i].extension || !runs(&cpu, i))) i--;
  if (i == ROW_none || !runs(&cpu, i)) {
    return st_fail(err, i == ROW_none ? SETUN_ERROR_ARGUMENT : SETUN_ERROR_UNSUPPORTED,
                   "instruction set '%s': this processor and build run %s", isa, st_kernels_available());
  }
  fill(&cpu, i, table);
  return SETUN_OK;
}
