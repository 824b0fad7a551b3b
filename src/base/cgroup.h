// Linux control groups, which limit a container's or service's memory and processor time: both versions, including
// ancestor groups. On other systems there is no limit.
#ifndef SETUN_BASE_CGROUP_H
#define SETUN_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

// Their locations.
typedef struct st_cgroup_root {
  const char *membership; // the file with this process's groups
  const char *mount;      // the root folder of the groups
} st_cgroup_root;

extern const st_cgroup_root st_cgroups; // the system's

// Bytes that the groups leave to this process, counting cached file pages as free; UINT64_MAX: no limit.
uint64_t st_cgroup_memory_left(const st_cgroup_root *root);

// The number of processors that the groups allow, rounded up, at least 1; INT32_MAX: no limit.
int32_t st_cgroup_processors(const st_cgroup_root *root);

// The number after `key` in a file of lines "key value", or "key: value kB"; false if absent.
bool st_read_key(const char *path, const char *key, uint64_t *value);

#endif
