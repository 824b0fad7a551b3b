// What the system says of memory. Linux: /proc and the cgroup files; other systems: the peak only.
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE // struct rusage's fields beside the times
#include "base/system_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LINE_SIZE = 4096 };

// The number behind `key` in a file of lines "key value", or "key: value kB"; false when there is none.
static bool read_key(const char *path, const char *key, uint64_t *value) {
  char line[LINE_SIZE];
  size_t n = strlen(key);
  bool found = false;
  FILE *f = fopen(path, "re");
  while (f && !found && fgets(line, sizeof line, f)) {
    if (strncmp(line, key, n) || (line[n] != ' ' && line[n] != ':' && line[n] != '\t')) continue;
    found = sscanf(line + n, "%*[: \t]%" SCNu64, value) == 1;
    if (found && strstr(line, " kB")) *value *= 1024;
  }
  if (f) fclose(f);
  return found;
}

// A file of one number; "max" and absent files are no limit.
static bool read_number(const char *path, uint64_t *value) {
  FILE *f = fopen(path, "re");
  bool found = f && fscanf(f, "%" SCNu64, value) == 1;
  if (f) fclose(f);
  return found;
}

// Where the two versions of cgroups keep things.
typedef struct cgroup_files {
  const char *root, *limit, *usage;
  const char *cached[2]; // keys of memory.stat whose pages can be dropped
} cgroup_files;

static const cgroup_files unified = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};
static const cgroup_files legacy = {"/sys/fs/cgroup/memory",
                                    "memory.limit_in_bytes",
                                    "memory.usage_in_bytes",
                                    {"total_inactive_file", "total_active_file"}};

// What one group leaves; UINT64_MAX without a limit.
static uint64_t group_leaves(const cgroup_files *files, const char *group) {
  char path[LINE_SIZE + 256];
  uint64_t limit, usage, cached;
  snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->limit);
  if (!read_number(path, &limit) || limit >= (uint64_t)1 << 60) return UINT64_MAX;
  snprintf(path, sizeof path, "%s%s/%s", files->root, group, files->usage);
  if (!read_number(path, &usage)) return UINT64_MAX;
  snprintf(path, sizeof path, "%s%s/memory.stat", files->root, group);
  for (int i = 0; i < 2; i++) {
    if (read_key(path, files->cached[i], &cached)) usage -= cached < usage ? cached : usage;
  }
  return usage < limit ? limit - usage : 0;
}

// The least that a group and those around it leave. Inside a container the path may not exist: its own group is then
// the root of what is mounted.
static uint64_t groups_leave(const cgroup_files *files, char *group) {
  uint64_t least = group_leaves(files, "");
  for (size_t n = strlen(group); n; n = strlen(group)) {
    uint64_t left = group_leaves(files, group);
    if (left < least) least = left;
    char *slash = strrchr(group, '/');
    if (!slash) break;
    *slash = 0;
  }
  return least;
}

// Lines of /proc/self/cgroup: "0::/path" of the unified hierarchy, "N:memory:/path" of the legacy one.
static uint64_t cgroups_leave(void) {
  char line[LINE_SIZE];
  uint64_t least = UINT64_MAX;
  FILE *f = fopen("/proc/self/cgroup", "re");
  while (f && fgets(line, sizeof line, f)) {
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    controllers++;
    group[strcspn(group, "\n")] = 0;
    if (strcmp(controllers, "memory") && *controllers) continue;
    uint64_t left = groups_leave(*controllers ? &legacy : &unified, group);
    if (left < least) least = left;
  }
  if (f) fclose(f);
  return least;
}

uint64_t st_memory_available(void) {
  uint64_t available;
  if (!read_key("/proc/meminfo", "MemAvailable", &available)) return 0;
  uint64_t left = cgroups_leave();
  return left < available ? left : available;
}

uint64_t st_memory_resident(void) {
  uint64_t bytes;
  return read_key("/proc/self/status", "VmRSS", &bytes) ? bytes : 0;
}

uint64_t st_memory_peak(void) {
  uint64_t bytes;
  struct rusage usage;
  if (read_key("/proc/self/status", "VmHWM", &bytes)) return bytes;
  if (getrusage(RUSAGE_SELF, &usage)) return 0;
#ifdef __APPLE__
  return (uint64_t)usage.ru_maxrss;
#else
  return (uint64_t)usage.ru_maxrss * 1024;
#endif
}
