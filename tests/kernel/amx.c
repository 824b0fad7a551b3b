// The AMX products with their tile instructions emulated: the same source, on any processor with AVX-512, against the
// scalar table. It shows the arithmetic and the addressing; kernels.c runs the instructions where they exist.
#include "base/cpu.h"
#include "checks.h"

#if defined(__x86_64__)
static int check_emulated(void);
#endif

// Before the pragma below, so that a processor without AVX-512 gets here.
int main(void) {
  table_name = "amx (emulated)";
  st_random_seed(&random_state, 1);
#if defined(__x86_64__)
  if (st_cpu_detect().avx512) return check_emulated();
#endif
  printf("amx (emulated) skipped: this processor has no AVX-512\n");
  return 77;
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#include <immintrin.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#define _tile_loadconfig(c) tile_configure(c)
#define _tile_release() (void)0
#define _tile_zero(t) memset(tile_data[t], 0, sizeof tile_data[t])
#define _tile_loadd(t, p, s) tile_load(t, p, s)
#define _tile_stored(t, p, s) tile_store(t, p, s)
#define _tile_dpbsud(c, a, b) tile_multiply(c, a, b)

static uint8_t tile_data[8][16][64];

static void tile_configure(const void *config) {
  const uint8_t *bytes = config;
  for (int i = 0; i < 8; i++) {
    if (bytes[0] != 1 || bytes[16 + 2 * i] != 64 || bytes[17 + 2 * i] != 0 || bytes[48 + i] != 16) {
      FAIL("tile %d is configured otherwise than 16 rows of 64 bytes", i);
    }
  }
}
static void tile_load(int t, const void *p, size_t stride) {
  for (size_t r = 0; r < 16; r++) memcpy(tile_data[t][r], (const uint8_t *)p + r * stride, 64);
}
static void tile_store(int t, void *p, size_t stride) {
  for (size_t r = 0; r < 16; r++) memcpy((uint8_t *)p + r * stride, tile_data[t][r], 64);
}
// TDPBSUD: row m, column n of c += sum over k and j of signed a[m][4k + j] times unsigned b[k][4n + j].
static void tile_multiply(int c, int a, int b) {
  for (int m = 0; m < 16; m++) {
    for (int n = 0; n < 16; n++) {
      int32_t sum;
      memcpy(&sum, &tile_data[c][m][4 * n], 4);
      for (int k = 0; k < 64; k++) sum += (int8_t)tile_data[a][m][k] * tile_data[b][k / 4][4 * n + k % 4];
      memcpy(&tile_data[c][m][4 * n], &sum, 4);
    }
  }
}

#include "kernel/x86/int8_amx.c"
#pragma GCC pop_options

static int check_emulated(void) {
  static const size_t shapes[][3] = {// rows, columns, tokens
                                     {16, 32, 16},   {16, 64, 17},   {50, 96, 33},  {33, 1, 16},    {100, 1024, 32},
                                     {48, 1056, 48}, {40, 2560, 40}, {17, 67, 100}, {32, 160, 530}, {20, 320, 15}};
  st_kernels k, reference;
  setun_error err;
  if (st_kernels_get("avx512", &k, &err) != SETUN_OK || st_kernels_get("scalar", &reference, &err) != SETUN_OK)
    return 1;
  st_amx_int8(&k);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (int how = 0; how < MODES; how++) {
      matrix w = make_matrix(ST_FORM_T16, shapes[i][0], shapes[i][1], 0, (mode)how);
      check_product(&k, &reference, &w, ST_ACT_INT8_TOKEN, (mode)how, shapes[i][2]);
      free_matrix(&w);
    }
  }
  printf("amx (emulated) %s: %d comparisons\n", failures ? "FAILED" : "ok", comparisons);
  return failures != 0;
}
#endif
