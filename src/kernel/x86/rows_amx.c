// AMX: products of trits with a scale a row with 16 and more int8 tokens, in tiles of 16 x 16 sums. Fewer tokens are
// AVX-512's, and so are the forms that matrices have.
//
// Operand A is a tile of activations, 16 tokens x 64 columns, as `prepare` keeps them a second time; operand B is a
// tile of weights, 16 quadruples of columns x 16 rows, which is what codes become when each has a byte.
//
// A pass is as many tokens as fit into half of a second-level cache of 2 MB, which two threads may share. It meets 128
// rows at a time, a piece of the columns after the other: two tiles of tokens and two groups of rows make four tiles of
// sums, which are in memory between pieces. While tiles multiply, vector units spread the codes of the next piece, or
// of the next rows, and turn the sums that are complete into floats: a few at each step of 64 columns.
#include "kernel/x86/amx.h"
#include "kernel/x86/fives.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

enum {
  PAIR = 2 * AMX_SIDE,   // tokens, and rows, of four tiles of sums
  ROW_PAIRS = 4,         // of a block of rows
  TOKEN_PAIRS = 8,       // of a pass, at most
  LEAST_TOKEN_PAIRS = 4, // although they take more of the cache: each pass spreads all codes
  CACHED = 1 << 20,      // bytes of activations
  PIECE = 512,           // columns, at most, so that two tiles of tokens and two groups fit into the first level
  FIVES_PIECE = 640      // and of five codes a byte: whole tiles and whole units
};

// What lies in st_input.scratch.
typedef struct {
  _Alignas(64) uint8_t weights[2][2 * ROW_PAIRS][FIVES_PIECE * ST_GROUP]; // of the piece in use, and of the next
  _Alignas(64) int32_t sums[ROW_PAIRS][TOKEN_PAIRS][4 * AMX_SUMS];        // [token tile 0, 1][group 0, 1]
} row_scratch;
_Static_assert(sizeof(row_scratch) <= AMX_SCRATCH, "what products by token need");

typedef struct {
  const st_matrix *w;
  st_view v;
  const int8_t *codes;   // of the input's second copy
  size_t tokens, padded; // columns of that copy
  size_t first, last;    // rows
  size_t pass, piece;    // tokens and columns, at most
  st_fives_tables tables;
  row_scratch *scratch;
  float *out;
  size_t stride;
} row_job;

// A piece of the columns of a block of rows, for the tokens of a pass.
typedef struct {
  size_t token, row, column;
} row_place;

static row_place place_after(const row_job *j, row_place p) {
  p.column += j->piece;
  if (p.column < j->padded) return p;
  p.column = 0, p.row += ROW_PAIRS * PAIR;
  if (p.row < j->last) return p;
  p.row = j->first, p.token += j->pass;
  return p;
}

static size_t parts_of(size_t n, size_t unit) {
  return (n + unit - 1) / unit;
}

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t steps_at(const row_job *j, row_place p) {
  return parts_of(least(j->piece, j->padded - p.column), AMX_DEPTH);
}
static size_t row_pairs_at(const row_job *j, row_place p) {
  return parts_of(least(ROW_PAIRS * PAIR, j->last - p.row), PAIR);
}
static size_t token_pairs_at(const row_job *j, row_place p) {
  return parts_of(least(j->pass, j->tokens - p.token), PAIR);
}

// Columns whose codes take 64 bytes of a group.
LANES_INLINE size_t unit_of(st_form form) {
  return st_form_is(form, ST_KIND_FIVES) ? ST_FIVE_COLUMNS : 16;
}

// What vector units do while tiles multiply, a part of it at each step.
typedef struct {
  const uint8_t *codes, *ahead; // of the group that is spread, and of the one that follows it
  const uint8_t *after;         // of the first group of the place after this one
  uint8_t *spread;
  size_t unit, units;  // of that group; 64 bytes of codes each
  size_t groups;       // left, with that one
  size_t units_a_step; // at most
  const int32_t *sums; // complete: of four tiles, of tokens from `token` on and rows from `row` on
  size_t token, row;
  size_t finished, tokens; // of them
} meanwhile;

LANES_INLINE const uint8_t *codes_at(st_form form, const row_job *j, row_place p) {
  return j->w->data + p.row / ST_GROUP * j->w->group_bytes + p.column / unit_of(form) * 64;
}

// Begins to spread the codes at a place, in `steps` steps. Columns of a last tile that a group does not have keep what
// they had, since their activations are zero.
LANES_INLINE void begin_codes(st_form form, const row_job *j, row_place p, size_t buffer, size_t steps, meanwhile *m) {
  m->groups = 0;
  if (p.token >= j->tokens) return;
  m->codes = codes_at(form, j, p);
  m->after = codes_at(form, j, place_after(j, p));
  m->spread = j->scratch->weights[buffer][0];
  m->groups = parts_of(least(ROW_PAIRS * PAIR, j->last - p.row), ST_GROUP);
  m->ahead = m->groups > 1 ? m->codes + j->w->group_bytes : m->after;
  m->unit = 0, m->units = parts_of(least(j->piece, j->w->columns - p.column), unit_of(form));
  m->units_a_step = parts_of(m->groups * m->units, steps);
}

LANES_INLINE void spread_unit(st_form form, const row_job *j, meanwhile *m) {
  const uint8_t *codes = m->codes + m->unit * 64;
  uint8_t *out = m->spread + m->unit * unit_of(form) * ST_GROUP;
  _mm_prefetch((const char *)m->ahead + m->unit * 64, _MM_HINT_T1);
  if (st_form_is(form, ST_KIND_FIVES)) {
    vb codes_of[5];
    st_fives_codes(&j->tables, codes, codes_of);
    for (size_t i = 0; i < 5; i++) _mm512_store_si512(out + 64 * i, codes_of[i]);
  } else {
    for (int i = 0; i < 4; i++) _mm512_store_si512(out + 64 * i, vb_codes(form, codes, i));
  }
  if (++m->unit < m->units) return;
  m->unit = 0, m->groups--;
  m->codes += j->w->group_bytes, m->spread += FIVES_PIECE * ST_GROUP;
  m->ahead = m->groups > 1 ? m->codes + j->w->group_bytes : m->after;
}

// The floats of one token and of up to 32 rows.
LANES_INLINE void finish_token(st_form form, const row_job *j, meanwhile *m) {
  size_t i = m->finished++, token = m->token + i;
  const int32_t *from = m->sums + (i / AMX_SIDE * 2 * AMX_SIDE + i % AMX_SIDE) * ST_GROUP;
  for (size_t row = m->row; row < m->row + PAIR && row < j->last; row += ST_GROUP, from += AMX_SUMS) {
    vi total = vi_sub(vi_load(from), vi_set(j->v.sum[token]));
    vf y = vf_div(vi_to_floats(total), vf_set(j->v.scale[token]));
    lanes_output(form, j->w, row, j->last, y, j->out + token * j->stride);
  }
}

// sums[token tile 0, 1][group 0, 1] += products of `steps` tiles of columns.
LANES_INLINE void multiply(st_form form, const row_job *j, const int8_t *const a[2], const uint8_t *const b[2],
                           size_t steps, bool fresh, int32_t *sums, meanwhile *m) {
  size_t tokens_a_step = parts_of(m->tokens - m->finished, steps);
  st_amx_load_sums(sums, fresh);
  for (size_t at = 0; at < steps * AMX_TILE; at += AMX_TILE) {
    _tile_loadd(4, a[0] + at, AMX_DEPTH);
    _tile_loadd(6, b[0] + at, AMX_DEPTH);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, b[1] + at, AMX_DEPTH);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, a[1] + at, AMX_DEPTH);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
    for (size_t i = 0; i < m->units_a_step && m->groups; i++) spread_unit(form, j, m);
    for (size_t i = 0; i < tokens_a_step && m->finished < m->tokens; i++) finish_token(form, j, m);
  }
  st_amx_store_sums(sums);
}

// Two groups of rows (where the second lies past the last row, the first is taken twice) with a pass.
LANES_INLINE void multiply_pair(st_form form, const row_job *j, row_place p, size_t buffer, size_t pair, meanwhile *m) {
  size_t steps = steps_at(j, p), row = p.row + pair * PAIR, end = least(p.token + j->pass, j->tokens);
  bool complete = p.column + j->piece >= j->padded;
  const uint8_t *b[2] = {j->scratch->weights[buffer][2 * pair], j->scratch->weights[buffer][2 * pair + 1]};
  if (row + ST_GROUP >= j->last) b[1] = b[0];
  for (size_t token = p.token; token < end; token += PAIR) {
    int32_t *sums = j->scratch->sums[pair][(token - p.token) / PAIR];
    const int8_t *a[2] = {j->codes + token * j->padded + p.column * AMX_SIDE};
    a[1] = token + AMX_SIDE < end ? a[0] + AMX_SIDE * j->padded : a[0];
    multiply(form, j, a, b, steps, !p.column, sums, m);
    if (!complete) continue;
    m->sums = sums, m->token = token, m->row = row;
    m->finished = 0, m->tokens = least(PAIR, end - token);
  }
}

LANES_INLINE void multiply_all(st_form form, const row_job *j) {
  row_place p = {0, j->first, 0};
  meanwhile m = {0};
  begin_codes(form, j, p, 0, 1, &m);
  while (m.groups) spread_unit(form, j, &m);
  for (size_t buffer = 0; p.token < j->tokens; buffer ^= 1) {
    size_t pairs = row_pairs_at(j, p);
    row_place next = place_after(j, p);
    begin_codes(form, j, next, buffer ^ 1, pairs * token_pairs_at(j, p) * steps_at(j, p), &m);
    for (size_t pair = 0; pair < pairs; pair++) multiply_pair(form, j, p, buffer, pair, &m);
    p = next;
  }
  while (m.finished < m.tokens) finish_token(form, j, &m);
}

LANES_INLINE void multiply_rows(st_form form, const st_matrix *w, const st_input *input, size_t first, size_t last,
                                float *out, size_t stride) {
  bool fives = st_form_is(form, ST_KIND_FIVES);
  if (!st_amx_takes(input->kind, input->tokens)) {
    (fives ? st_vbmi_matmul(form) : st_avx512_int8_matmul(form, ST_ACT_INT8_TOKEN))(w, input, first, last, out, stride);
    return;
  }
  if (first >= last) return;
  row_job j = {.w = w, .v = st_view_input(input), .first = first, .last = last, .out = out, .stride = stride};
  j.tokens = input->tokens, j.padded = st_round_up(input->columns, AMX_DEPTH);
  j.codes = st_amx_view_input(input).codes, j.scratch = input->scratch;
  size_t pairs = CACHED / (PAIR * j.padded);
  pairs = pairs < LEAST_TOKEN_PAIRS ? LEAST_TOKEN_PAIRS : least(pairs, TOKEN_PAIRS);
  j.pass = st_round_up(parts_of(j.tokens, parts_of(j.tokens, pairs * PAIR)), PAIR); // all about as many
  j.piece = fives ? FIVES_PIECE : PIECE;
  if (fives) j.tables = st_fives_load();
  st_amx_configure(AMX_SIDE, AMX_DEPTH);
  multiply_all(form, &j);
  _tile_release();
}

#define MATMUL(form)                                                                                                   \
  static void matmul_##form(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,          \
                            size_t stride) {                                                                           \
    multiply_rows(ST_FORM_##form, w, input, first, last, out, stride);                                                 \
  }
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_TOKEN_##kind##_##activations(MATMUL, id) ST_IF_FIVES_##kind(MATMUL, id)
#include "kernel/forms.def"

void st_amx_rows(st_kernels *k) {
#define FILL(id)                                                                                                       \
  if (!st_coding_of(ST_FORM_##id).by_block) k->matmul[ST_FORM_##id][ST_ACT_INT8_TOKEN] = matmul_##id;
#define FORM(id, name, kind, activations, ...) ST_IF_TOKEN_##kind##_##activations(FILL, id) ST_IF_FIVES_##kind(FILL, id)
#include "kernel/forms.def"
#undef FILL
}
