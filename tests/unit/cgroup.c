// Limits of control groups, of both versions, in folders made here: of memory and of processors, of a group and of
// those around it.
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cgroup.h"

static char folder[] = "/tmp/setun-cgroup-XXXXXX", membership[64], mount[64];
static st_cgroup_root root = {membership, mount};

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(membership, sizeof membership, "%s/membership", folder);
  snprintf(mount, sizeof mount, "%s/mount", folder);
  return mkdir(mount, 0700);
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
  (void)s, (void)kind, (void)at;
  return remove(path);
}

static int remove_folder(void **state) {
  (void)state;
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

// Writes a file, with the folders that it is in.
static void put(const char *path, const char *text) {
  char full[256];
  snprintf(full, sizeof full, "%s/%s", folder, path);
  for (char *slash = full + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(full, 0700);
    *slash = '/';
  }
  FILE *f = fopen(full, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void no_limit(void **state) {
  (void)state;
  assert_true(st_cgroup_memory_left(&root) == UINT64_MAX); // nothing there at all
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  put("membership", "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/a/b\nrubbish\n0::/c/d\n");
  assert_true(st_cgroup_memory_left(&root) == UINT64_MAX);
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  put("mount/c/d/cpu.max", "max 100000\n");
  put("mount/c/d/memory.max", "max\n");
  put("mount/c/d/memory.current", "5\n");
  put("mount/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  put("mount/cpu/a/b/cpu.cfs_period_us", "100000\n");
  put("mount/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  put("mount/memory/a/b/memory.usage_in_bytes", "4096\n");
  assert_true(st_cgroup_memory_left(&root) == UINT64_MAX);
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
}

static void of_memory(void **state) {
  (void)state;
  put("mount/memory/a/b/memory.limit_in_bytes", "1000000\n");
  put("mount/memory/a/b/memory.usage_in_bytes", "400000\n");
  assert_int_equal(st_cgroup_memory_left(&root), 600000);
  put("mount/memory/a/b/memory.stat", "cache 9\ninactive_file 7\ntotal_inactive_file 1000\ntotal_active_file 24\n");
  assert_int_equal(st_cgroup_memory_left(&root), 601024);
  put("mount/memory/a/memory.limit_in_bytes", "500000\n"); // the group around it
  put("mount/memory/a/memory.usage_in_bytes", "500001\n");
  assert_int_equal(st_cgroup_memory_left(&root), 0);
  put("mount/memory/a/memory.limit_in_bytes", "2000000\n");
  put("mount/c/memory.max", "300000\n"); // the unified ones
  put("mount/c/memory.current", "200000\n");
  put("mount/c/memory.stat", "inactive_file 11\nactive_file 22\n");
  assert_int_equal(st_cgroup_memory_left(&root), 100033);
}

static void of_processors(void **state) {
  (void)state;
  put("mount/c/d/cpu.max", "250000 100000\n");
  assert_int_equal(st_cgroup_processors(&root), 3);
  put("mount/c/cpu.max", "200000 100000\n");
  assert_int_equal(st_cgroup_processors(&root), 2);
  put("mount/cpu/a/b/cpu.cfs_quota_us", "5000\n");
  assert_int_equal(st_cgroup_processors(&root), 1);
  put("mount/cpu/a/b/cpu.cfs_period_us", "0\n"); // no period: the limit is unknown
  assert_int_equal(st_cgroup_processors(&root), 2);
  put("mount/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  put("mount/c/d/cpu.max", "100000\n");
  put("mount/c/cpu.max", "max 100000\n");
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  put("mount/cpu.max", "400000 100000\n"); // a container sees its own group as the root
  assert_int_equal(st_cgroup_processors(&root), 4);
}

// Paths that lead out of what is mounted, lines that are too long, and texts that are not numbers.
static void odd(void **state) {
  (void)state;
  static char text[6000];
  put("mount/cpu.max", "max 100000\n");
  put("cpu.max", "100000 100000\n"); // beside the mount
  put("membership", "0::/..\n");
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  put("mount/evil/cpu.max", "100000 100000\n");
  memset(text, 'a', sizeof text);
  memcpy(text, "0::/", 4);
  memcpy(text + 4095, "0::/evil", 9); // where the buffer for a line ends
  put("membership", text);
  assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  put("membership", "::\n:\n\n0::/evil"); // no end of line
  assert_int_equal(st_cgroup_processors(&root), 1);
  static const char *const numbers[] = {"100000 -1", "100000 18446744073709551615", "0 100000", "-1 100000", "1e5", ""};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    put("mount/evil/cpu.max", numbers[i]);
    assert_int_equal(st_cgroup_processors(&root), INT32_MAX);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_limit), cmocka_unit_test(of_memory),
                                     cmocka_unit_test(of_processors), cmocka_unit_test(odd)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
