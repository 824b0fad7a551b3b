// System memory: how much this process may still take, and how much it has.
#ifndef SETUN_BASE_SYSTEM_MEMORY_H
#define SETUN_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

// Bytes that this process may still take without harm to others: the minimum of what the system has available and what
// the process's memory cgroups leave, counting cached file pages as free. UINT64_MAX: unknown.
uint64_t st_memory_available(void);

// Resident bytes now, and the peak since the process began, including mapped files. 0: unknown.
uint64_t st_memory_resident(void);
uint64_t st_memory_peak(void);

#endif
