// Control groups, with which Linux limits what a container or a service may take: of memory, and of processors' time.
// Both versions of them, and all groups around the process's own. Elsewhere there is no limit.
#ifndef SETUN_BASE_CGROUP_H
#define SETUN_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

// Where they are found.
typedef struct st_cgroup_root {
  const char *membership; // the file that says in which groups this process is
  const char *mount;      // the folder under which the groups are
} st_cgroup_root;

extern const st_cgroup_root st_cgroups; // the system's

// Bytes that the groups leave to this process, pages of cached files counted as free; UINT64_MAX without a limit.
uint64_t st_cgroup_memory_left(const st_cgroup_root *root);

// How many processors' time the groups allow, rounded up, at least 1; INT32_MAX without a limit.
int32_t st_cgroup_processors(const st_cgroup_root *root);

// The number behind `key` in a file of lines "key value", or "key: value kB"; false when there is none.
bool st_read_key(const char *path, const char *key, uint64_t *value);

#endif
