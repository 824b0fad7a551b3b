// AMX's tile instructions, emulated: included before the sources that use them, in place of the compiler's. What a
// processor refuses is a failure.
#ifndef SETUN_TESTS_KERNEL_TILES_H
#define SETUN_TESTS_KERNEL_TILES_H

#include "common/harness.h"

#if defined(__x86_64__)
#include <immintrin.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig(c) tile_configure(c)
#define _tile_release() tiles_release()
#define _tile_zero(t) tile_clear(t)
#define _tile_loadd(t, p, s) tile_load(t, p, s)
#define _tile_stored(t, p, s) tile_store(t, p, s)
#define _tile_dpbsud(c, a, b) tile_multiply(c, a, b, 255, 0)
#define _tile_dpbssd(c, a, b) tile_multiply(c, a, b, 127, 128)
#define _tile_dpbf16ps(c, a, b) tile_multiply_bf16(c, a, b)

// Between the two, functions may use AVX-512, so that those outside run on any processor.
#define TILES_SET "avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi"
#define TILES_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define TILES_PUSH(set) TILES_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define TILES_END _Pragma("clang attribute pop")
#else
#define TILES_PUSH(set) _Pragma("GCC push_options") TILES_PRAGMA(GCC target(set))
#define TILES_END _Pragma("GCC pop_options")
#endif
#define TILES_BEGIN TILES_PUSH(TILES_SET)
#endif

extern size_t tile_products, tile_loads, tile_stores; // instructions so far

void tile_configure(const void *config);
void tiles_release(void);
bool tiles_configured(void);
void tile_clear(int t);
void tile_load(int t, const void *p, size_t stride);
void tile_store(int t, void *p, size_t stride);
// Signed bytes times bytes whose values above `largest` mean 2 * bias less; and BF16.
void tile_multiply(int c, int a, int b, int largest, int bias);
void tile_multiply_bf16(int c, int a, int b);

#endif
