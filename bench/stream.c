// The speed of each way to stream a large file, alternated so that the disk's variations affect all equally: medians
// and bests in GB/s (1e9 bytes), processor time of the whole process, and the share of the best median. usage:
// bench_stream FILE [GB read each time] [MiB of ring] [rounds] Read the file once before: the first read of a file may
// be slower.
#define _GNU_SOURCE
#include "source/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { SLOTS = 3, ROUNDS_MOST = 64 };

typedef struct {
  bool direct, uring, registered;
  double speed[ROUNDS_MOST], cpu[ROUNDS_MOST];
  char how[64];
} way;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_time(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static int refuse(void *user, st_stream_step step) {
  return step == ST_STREAM_REGISTER && !((way *)user)->registered ? ENOMEM : 0;
}

static void check(setun_status status, const setun_error *err) {
  if (status == SETUN_OK) return;
  fprintf(stderr, "bench_stream: %s\n", err->message);
  exit(1);
}

// Reads n units after a first filling of the ring, which is not timed.
static void measure(way *w, int round, const st_stream_unit *units, size_t n_units, size_t n) {
  st_stream_faults hooks = {w, refuse, NULL};
  st_stream *s;
  setun_error err;
  const uint8_t *at;
  double begin = 0, cpu = 0;
  check(st_stream_new(units, n_units, &(st_stream_options){SLOTS, w->direct, w->uring, NULL, &hooks}, &s, &err), &err);
  st_stream_start(s);
  for (size_t i = 0; i < n + SLOTS; i++) {
    check(st_stream_acquire(s, i % n_units, &at, &err), &err);
    if (i + 1 == SLOTS) begin = now(), cpu = cpu_time();
    if (i < n) st_stream_release(s, i % n_units);
  }
  double bytes = (double)n * (double)units->ranges->bytes;
  w->speed[round] = bytes / (now() - begin) / 1e9;
  w->cpu[round] = (cpu_time() - cpu) * 1e3 / (bytes / 1e9);
  snprintf(w->how, sizeof w->how, "%s", st_stream_get_stats(s).how);
  st_stream_free(s);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, compare);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

int main(int argc, char **argv) {
  double gb = argc > 2 ? atof(argv[2]) : 2, mib = argc > 3 ? atof(argv[3]) : 96, best = 0;
  int rounds = argc > 4 ? atoi(argv[4]) : 5;
  st_file file;
  setun_error err;
  if (argc < 2 || gb <= 0 || mib < SLOTS || rounds < 1 || rounds > ROUNDS_MOST) {
    fprintf(stderr, "usage: bench_stream FILE [GB read each time] [MiB of ring] [rounds, at most %d]\n", ROUNDS_MOST);
    return 2;
  }
  check(st_file_open(argv[1], &file, &err), &err);
  uint64_t unit = (uint64_t)(mib * 1048576 / SLOTS) & ~(uint64_t)4095;
  size_t n_units = (size_t)(file.size / unit), n = (size_t)(gb * 1e9 / (double)unit) + 1;
  st_stream_range *ranges = calloc(n_units + 1, sizeof *ranges);
  st_stream_unit *units = calloc(n_units + 1, sizeof *units);
  if (!n_units || !ranges || !units) {
    fprintf(stderr, "bench_stream: %s: smaller than a third of the ring\n", argv[1]);
    return 1;
  }
  for (size_t i = 0; i < n_units; i++) {
    ranges[i] = (st_stream_range){&file, i * unit, unit};
    units[i] = (st_stream_unit){&ranges[i], 1};
  }
  static way ways[] = {{.direct = true, .uring = true, .registered = true},
                       {.direct = true, .uring = true},
                       {.direct = true},
                       {.direct = false}};
  enum { WAYS = sizeof ways / sizeof *ways };
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < WAYS; i++) measure(&ways[i], r, units, n_units, n);
  }
  printf("%s: %.2f GB, %d rounds of %.2f GB, ring of %.0f MiB in %d parts\n", argv[1], (double)file.size / 1e9, rounds,
         (double)n * (double)unit / 1e9, mib, SLOTS);
  for (int i = 0; i < WAYS; i++) best = median(ways[i].speed, rounds) > best ? median(ways[i].speed, rounds) : best;
  for (int i = 0; i < WAYS; i++) {
    double middle = median(ways[i].speed, rounds);
    printf("%-40s median %5.2f GB/s (%3.0f%%), best %5.2f; %5.1f ms of processor time a GB\n", ways[i].how, middle,
           100 * middle / best, ways[i].speed[rounds - 1], median(ways[i].cpu, rounds));
  }
  free(ranges);
  free(units);
  st_file_close(&file);
  return 0;
}
