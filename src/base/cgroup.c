// Reading the files of control groups.
#define _POSIX_C_SOURCE 200809L
#include "base/cgroup.h"

#include "base/system_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SIZE = 4096 };

const st_cgroup_root st_cgroups = {"/proc/self/cgroup", "/sys/fs/cgroup"};

// The number after `key` in a file of lines "key value", or "key: value kB"; false if absent.
bool st_read_key(const char *path, const char *key, uint64_t *value) {
  char line[LINE_SIZE];
  size_t n = strlen(key);
  bool found = false;
  st_system_file f;
  st_system_file_open(&f, path);
  while (!found && st_system_file_line(&f, line, sizeof line)) {
    if (strncmp(line, key, n) || (line[n] != ' ' && line[n] != ':' && line[n] != '\t')) continue;
    found = sscanf(line + n, "%*[: \t]%" SCNu64, value) == 1;
    if (found && strstr(line, " kB")) *value *= 1024;
  }
  st_system_file_close(&f);
  return found;
}

// The first `n` numbers in a file of one line; false if there are fewer, as with "max", or if one is too large to be a
// limit, like -1.
static bool read_numbers(const char *folder, const char *name, int n, uint64_t *values) {
  char path[2 * LINE_SIZE], line[128], *at = line, *end;
  int found = 0;
  st_system_file f;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  st_system_file_open(&f, path);
  if (!st_system_file_line(&f, line, sizeof line)) *line = 0;
  st_system_file_close(&f);
  for (; found < n; at = end, found++) {
    values[found] = strtoull(at, &end, 10);
    if (end == at || values[found] >= (uint64_t)1 << 60) break;
  }
  return found == n;
}

// A group's limit of the requested kind; UINT64_MAX: no limit.
typedef uint64_t (*group_limit)(const char *folder, bool unified);

static uint64_t memory_left(const char *folder, bool unified) {
  static const char *const keys[2][2] = {{"total_inactive_file", "total_active_file"},
                                         {"inactive_file", "active_file"}}; // droppable pages
  char path[2 * LINE_SIZE];
  uint64_t limit, usage, cached;
  if (!read_numbers(folder, unified ? "memory.max" : "memory.limit_in_bytes", 1, &limit)) return UINT64_MAX;
  if (!read_numbers(folder, unified ? "memory.current" : "memory.usage_in_bytes", 1, &usage)) return UINT64_MAX;
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  for (int i = 0; i < 2; i++) {
    if (st_read_key(path, keys[unified][i], &cached)) usage -= cached < usage ? cached : usage;
  }
  return usage < limit ? limit - usage : 0;
}

static uint64_t processors(const char *folder, bool unified) {
  uint64_t time[2]; // quota and period in microseconds
  bool limited = unified ? read_numbers(folder, "cpu.max", 2, time)
                         : read_numbers(folder, "cpu.cfs_quota_us", 1, time) &&
                               read_numbers(folder, "cpu.cfs_period_us", 1, time + 1);
  if (!limited || !time[0] || !time[1]) return UINT64_MAX;
  return time[0] / time[1] + (time[0] % time[1] != 0);
}

// The smallest limit of a group and its ancestors. Inside a container the path may not exist: the group is then the
// root of what is mounted. A path with ".." is outside that root.
static uint64_t least_of(const char *mount, char *group, bool unified, group_limit limit) {
  char folder[LINE_SIZE]; // the system's path limit
  uint64_t least = limit(mount, unified);
  if (strstr(group, "/..")) return least;
  for (size_t n = strlen(group); n; n = strlen(group)) {
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    uint64_t allowed = length < (int)sizeof folder ? limit(folder, unified) : UINT64_MAX;
    if (allowed < least) least = allowed;
    char *slash = strrchr(group, '/');
    if (!slash) break;
    *slash = 0;
  }
  return least;
}

// Whether `name` is in a list "a,b,c".
static bool is_listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (; list; list = strchr(list, ',')) {
    list += *list == ',';
    if (!strncmp(list, name, n) && (!list[n] || list[n] == ',')) return true;
  }
  return false;
}

// Lines of the membership: "0::/path" of the unified hierarchy, "N:cpu,cpuacct:/path" of a legacy one.
static uint64_t least_of_all(const st_cgroup_root *root, const char *controller, group_limit limit) {
  char line[LINE_SIZE], mount[LINE_SIZE];
  uint64_t least = UINT64_MAX;
  st_system_file f;
  st_system_file_open(&f, root->membership);
  while (st_system_file_line(&f, line, sizeof line)) {
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    controllers++;
    bool unified = !*controllers;
    if (!unified && !is_listed(controllers, controller)) continue;
    snprintf(mount, sizeof mount, "%s%s%s", root->mount, unified ? "" : "/", unified ? "" : controller);
    uint64_t allowed = least_of(mount, group, unified, limit);
    if (allowed < least) least = allowed;
  }
  st_system_file_close(&f);
  return least;
}

uint64_t st_cgroup_memory_left(const st_cgroup_root *root) {
  return least_of_all(root, "memory", memory_left);
}

int32_t st_cgroup_processors(const st_cgroup_root *root) {
  uint64_t n = least_of_all(root, "cpu", processors);
  return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}
