// System memory. Linux: /proc and control groups; other systems: only the peak.
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE // struct rusage's fields other than the times
#include "base/system_memory.h"

#include "base/cgroup.h"

#include <sys/resource.h>

uint64_t st_memory_available(void) {
  uint64_t available;
  if (!st_read_key("/proc/meminfo", "MemAvailable", &available)) return UINT64_MAX;
  uint64_t left = st_cgroup_memory_left(&st_cgroups);
  return left < available ? left : available;
}

uint64_t st_memory_resident(void) {
  uint64_t bytes;
  return st_read_key("/proc/self/status", "VmRSS", &bytes) ? bytes : 0;
}

uint64_t st_memory_peak(void) {
  uint64_t bytes;
  struct rusage usage;
  if (st_read_key("/proc/self/status", "VmHWM", &bytes)) return bytes;
  if (getrusage(RUSAGE_SELF, &usage)) return 0;
#ifdef __APPLE__
  return (uint64_t)usage.ru_maxrss;
#else
  return (uint64_t)usage.ru_maxrss * 1024;
#endif
}
