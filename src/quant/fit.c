// The search for scales: tries candidates near the obvious one, each refined by least squares for its codes.
#include "quant/fit.h"

#include "base/float16.h"

#include <math.h>

static float importance(const float *w, int i) {
  return w ? w[i] : 1;
}

static int nearest(float x, int low, int high) {
  if (!(x > (float)low)) return low;
  return x >= (float)high ? high : (int)rintf(x);
}

static int is_finite(uint16_t half) {
  return (half & 0x7C00) != 0x7C00;
}

// ---- one scale ----------------------------------------------------------------------------------------------------

float st_fit_codes(const float *x, const float *w, int n, float d, int low, int high, int8_t *q) {
  float inverse = d != 0 ? 1 / d : 0, lost = 0;
  for (int i = 0; i < n; i++) {
    int code = nearest(x[i] * inverse, low, high);
    float miss = x[i] - d * (float)code;
    if (q) q[i] = (int8_t)code;
    lost += importance(w, i) * miss * miss;
  }
  return lost;
}

// The least-squares scale for the codes that result from 1 / inverse.
static float refine(const float *x, const float *w, int n, float inverse, int low, int high) {
  float xq = 0, qq = 0;
  for (int i = 0; i < n; i++) {
    float code = (float)nearest(x[i] * inverse, low, high), weight = importance(w, i);
    xq += weight * x[i] * code;
    qq += weight * code * code;
  }
  return qq > 0 ? xq / qq : 0;
}

float st_fit_scale(const float *x, const float *w, int n, int low, int high) {
  enum { STEPS = 6 };
  float extreme = 0, best = 0, least = INFINITY;
  for (int i = 0; i < n; i++) {
    if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
  }
  if (extreme == 0) return 0;
  for (int step = -STEPS; step <= STEPS; step++) {
    float d = extreme / ((float)low * (1 + 0.04f * (float)step));
    for (int turn = 0; turn < 3; turn++) {
      float half = st_f32_from_f16(st_f16_from_f32(d)), lost = st_fit_codes(x, w, n, half, low, high, NULL);
      if (lost < least && isfinite(half)) least = lost, best = half;
      if (d == 0) break;
      d = refine(x, w, n, 1 / d, low, high);
    }
  }
  return best;
}

// ---- a scale and a minimum ----------------------------------------------------------------------------------------

float st_fit_affine_codes(const float *x, const float *w, int n, st_affine a, int most, uint8_t *q) {
  float inverse = a.d != 0 ? 1 / a.d : 0, lost = 0;
  for (int i = 0; i < n; i++) {
    int code = nearest((x[i] - a.m) * inverse, 0, most);
    float miss = x[i] - (a.d * (float)code + a.m);
    if (q) q[i] = (uint8_t)code;
    lost += importance(w, i) * miss * miss;
  }
  return lost;
}

// The least-squares solution for the codes that result from `a`; d is at least 0.
static st_affine refine_affine(const float *x, const float *w, int n, st_affine a, int most, int negative) {
  double s = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
  float inverse = a.d > 0 ? 1 / a.d : 0;
  for (int i = 0; i < n; i++) {
    double code = nearest((x[i] - a.m) * inverse, 0, most), weight = (double)importance(w, i), v = (double)x[i];
    s += weight, sq += weight * code, sqq += weight * code * code, sx += weight * v, sxq += weight * v * code;
  }
  double det = s * sqq - sq * sq;
  if (!(det > 0)) return a;
  st_affine b = {(float)((s * sxq - sq * sx) / det), (float)((sqq * sx - sq * sxq) / det)};
  if (negative && b.m > 0) b = (st_affine){sqq > 0 ? (float)(sxq / sqq) : 0, 0};
  return b.d > 0 ? b : a;
}

st_affine st_fit_affine(const float *x, const float *w, int n, int most, int negative) {
  enum { STEPS = 10 };
  float low = x[0], high = x[0], least = INFINITY;
  for (int i = 1; i < n; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
  }
  if (negative && low > 0) low = 0;
  if (high <= low) return (st_affine){0, low};
  st_affine best = {0, low};
  for (int step = 0; step <= STEPS; step++) {
    st_affine a = {(high - low) / ((float)most - 1 + 0.2f * (float)step), low};
    for (int turn = 0; turn < 3; turn++) {
      float lost = st_fit_affine_codes(x, w, n, a, most, NULL);
      if (lost < least) least = lost, best = a;
      a = refine_affine(x, w, n, a, most, negative);
    }
  }
  return best;
}

// ---- scales of scales ---------------------------------------------------------------------------------------------

typedef struct {
  const float *x, *w;
  int subs, n, most, integers;
} super_block;

static st_affine sub_scales(const st_super *o, int j) {
  return (st_affine){st_f32_from_f16(o->d) * (float)o->s[j], -st_f32_from_f16(o->dmin) * (float)o->m[j]};
}

static float fit_sub(const super_block *b, st_super *o, int j) {
  return st_fit_affine_codes(b->x + j * b->n, b->w ? b->w + j * b->n : NULL, b->n, sub_scales(o, j), b->most,
                             o->q + j * b->n);
}

// The integers of a sub-block with the smallest error, near the present ones.
static float improve_sub(const super_block *b, st_super *o, int j) {
  uint8_t s = o->s[j], m = o->m[j], best_s = s, best_m = m;
  float least = fit_sub(b, o, j);
  for (int ds = -1; ds <= 1; ds++) {
    for (int dm = -1; dm <= 1; dm++) {
      int ts = s + ds, tm = m + dm;
      if (ts < 0 || tm < 0 || ts > b->integers || tm > b->integers) continue;
      o->s[j] = (uint8_t)ts, o->m[j] = (uint8_t)tm;
      float lost = fit_sub(b, o, j);
      if (lost < least) least = lost, best_s = (uint8_t)ts, best_m = (uint8_t)tm;
    }
  }
  o->s[j] = best_s, o->m[j] = best_m;
  return fit_sub(b, o, j);
}

// The least-squares d and dmin for the present integers and codes.
static void refine_super(const super_block *b, st_super *o) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (int j = 0; j < b->subs; j++) {
    for (int i = j * b->n; i < (j + 1) * b->n; i++) {
      double weight = (double)importance(b->w, i), p = (double)o->s[j] * o->q[i], q = -(double)o->m[j];
      aa += weight * p * p, ab += weight * p * q, bb += weight * q * q;
      ax += weight * p * (double)b->x[i], bx += weight * q * (double)b->x[i];
    }
  }
  double det = aa * bb - ab * ab;
  if (!(det > 1e-6 * aa * bb)) {
    if (aa > 0 && !(bb > 0)) o->d = st_f16_from_f32((float)(ax / aa));
    return;
  }
  double d = (ax * bb - bx * ab) / det, m = (bx * aa - ax * ab) / det;
  if (d > 0) o->d = st_f16_from_f32((float)d);
  if (d > 0 && m >= 0) o->dmin = st_f16_from_f32((float)m);
}

static float fit_all(const super_block *b, st_super *o) {
  float lost = 0;
  for (int j = 0; j < b->subs; j++) lost += improve_sub(b, o, j);
  return lost;
}

// From the scales of sub-blocks, the largest of which becomes the largest integer times `stretch`.
static float begin_super(const super_block *b, const st_affine *subs, float stretch, st_super *o) {
  float d = 0, m = 0;
  for (int j = 0; j < b->subs; j++) {
    if (subs[j].d > d) d = subs[j].d;
    if (-subs[j].m > m) m = -subs[j].m;
  }
  o->d = st_f16_from_f32(d / (float)b->integers * stretch);
  o->dmin = st_f16_from_f32(m / (float)b->integers * stretch);
  float full_d = st_f32_from_f16(o->d), full_m = st_f32_from_f16(o->dmin);
  for (int j = 0; j < b->subs; j++) {
    o->s[j] = (uint8_t)(full_d > 0 ? nearest(subs[j].d / full_d, 0, b->integers) : 0);
    o->m[j] = (uint8_t)(full_m > 0 ? nearest(-subs[j].m / full_m, 0, b->integers) : 0);
  }
  return fit_all(b, o);
}

void st_fit_super(const float *x, const float *w, int subs, int n, int most, int integers, st_super *out) {
  static const float stretches[] = {1, 0.9f, 1.1f};
  const super_block b = {x, w, subs, n, most, integers};
  st_affine fits[ST_FIT_SUBS];
  float least = INFINITY;
  for (int j = 0; j < subs; j++) fits[j] = st_fit_affine(x + j * n, w ? w + j * n : NULL, n, most, 1);
  for (int i = 0; i < 3; i++) {
    st_super o = {0};
    float lost = begin_super(&b, fits, stretches[i], &o);
    for (int turn = 0; turn < 3; turn++) {
      if (lost < least && is_finite(o.d) && is_finite(o.dmin)) least = lost, *out = o;
      refine_super(&b, &o);
      lost = fit_all(&b, &o);
    }
    if (lost < least && is_finite(o.d) && is_finite(o.dmin)) least = lost, *out = o;
  }
}

// ---- a scale and an integer zero point ----------------------------------------------------------------------------

static float fit_zero(const float *x, const float *w, int n, float d, int zero, int most, float *refined) {
  float inverse = d > 0 ? 1 / d : 0, lost = 0;
  double xq = 0, qq = 0;
  for (int i = 0; i < n; i++) {
    int code = nearest(x[i] * inverse, -zero, most - zero);
    float miss = x[i] - d * (float)code;
    lost += importance(w, i) * miss * miss;
    xq += (double)(importance(w, i) * x[i]) * code, qq += (double)importance(w, i) * code * code;
  }
  *refined = qq > 0 ? (float)(xq / qq) : d;
  return lost;
}

uint16_t st_fit_zero_point(const float *x, const float *w, int n, int most, int symmetric, int *zero) {
  enum { STEPS = 24 };
  float low = 0, high = 0, least = INFINITY, full;
  for (int i = 0; i < n; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
  }
  uint16_t best = 0;
  *zero = (most + 1) / 2;
  if (symmetric) low = -high > low ? low : -high, high = -low;
  for (int step = 0; step <= STEPS; step++) {
    float shrink = 1 - 0.025f * (float)step, d = (high - low) * shrink / (float)most;
    int z = symmetric || d <= 0 ? (most + 1) / 2 : nearest(-low * shrink / d, 0, most);
    for (int turn = 0; turn < 3; turn++) {
      uint16_t half = st_f16_from_f32(d);
      float lost = fit_zero(x, w, n, st_f32_from_f16(half), z, most, &full);
      if (lost < least && is_finite(half)) least = lost, best = half, *zero = z;
      d = full;
    }
  }
  return best;
}
