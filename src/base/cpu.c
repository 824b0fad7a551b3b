// Detection of instruction sets: CPUID with the operating system's saved state on x86, hwcaps on ARM.
#define _GNU_SOURCE
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint64_t saved_state(void) {
  uint32_t low, high;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static bool ask_for_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
  enum { REQUEST_STATE_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_STATE_PERMISSION, TILE_DATA) == 0;
#else
  return false;
#endif
}

st_cpu st_cpu_detect(void) {
  st_cpu cpu = {0};
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return cpu;
  uint64_t state = saved_state();
  bool fma = c & bit_FMA, f16c = c & bit_F16C, avx = (c & bit_AVX) && (state & 6) == 6;
  uint32_t leaf[2][4] = {0};
  for (unsigned sub = 0; sub < 2; sub++) {
    uint32_t *r = leaf[sub];
    if (!avx || !__get_cpuid_count(7, sub, &r[ST_EAX], &r[ST_EBX], &r[ST_ECX], &r[ST_EDX])) break;
  }
  const uint32_t b7 = leaf[0][ST_EBX], c7 = leaf[0][ST_ECX], d7 = leaf[0][ST_EDX];
  cpu.avx2 = fma && f16c && (b7 & 1u << 5) && (b7 & 1u << 8);
  if (!cpu.avx2) return cpu;
  memcpy(cpu.leaf7, leaf, sizeof leaf);
  if ((state & 0xE6) != 0xE6) return cpu;
  const unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
  cpu.avx512 = (b7 & f) && (b7 & dq) && (b7 & bw) && (b7 & vl) && (c7 & 1u << 11);
  bool tiles = cpu.avx512 && (d7 & 1u << 24) && (state & 3u << 17) == 3u << 17;
  cpu.amx = tiles && (d7 & 1u << 25) && ask_for_tiles();
  return cpu;
}

#elif defined(__aarch64__)
#ifdef __linux__
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

st_cpu st_cpu_detect(void) {
  st_cpu cpu = {.neon = true};
#ifdef __linux__
  cpu.dotprod = getauxval(AT_HWCAP) & 1ul << 20;
  cpu.i8mm = getauxval(AT_HWCAP2) & 1ul << 13;
#elif defined(__APPLE__)
  int there = 0;
  size_t size = sizeof there;
  cpu.dotprod = true; // all Apple processors with a 64-bit macOS
  cpu.i8mm = !sysctlbyname("hw.optional.arm.FEAT_I8MM", &there, &size, NULL, 0) && there;
#endif
  return cpu;
}

#else
st_cpu st_cpu_detect(void) {
  return (st_cpu){0};
}
#endif
