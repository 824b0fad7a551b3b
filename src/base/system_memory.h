// What the system says of memory: how much this process may still take, and how much it has.
#ifndef SETUN_BASE_SYSTEM_MEMORY_H
#define SETUN_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

// Bytes that this process may still take before something else suffers: the least of what the system has available and
// of what the memory cgroups that it is in leave, pages of cached files counted as free. UINT64_MAX: the system does
// not say.
uint64_t st_memory_available(void);

// Bytes resident now, and at most since the process began; mapped files count. 0: the system does not say.
uint64_t st_memory_resident(void);
uint64_t st_memory_peak(void);

#endif
