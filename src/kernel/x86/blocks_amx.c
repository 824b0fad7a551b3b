// AMX: products of 16 and more tokens whose integer sums end every 16, 32 or more columns, because scales change there:
// of all forms with int8 activations by block, and by token of trits with a scale a block.
//
// Operand A is 16 tokens x 32 columns (16 where a form has two scales in 32), the left or the right part of a tile of
// the input's second copy; operand B is 8 (4) quadruples of columns x 16 rows, signed. A piece of a group of rows is
// unpacked once for all tokens of a pass. The float32 sums of 16 tokens stay in registers, one a token, during a piece:
// the tiles' integers pass through memory, four tiles ahead of the additions, so that neither waits for the other. The
// second planes' A is 16 entries of a block's list, whose sums are in memory.
#include "kernel/x86/amx.h"
#include "kernel/x86/fives.h"
#include "kernel/x86/x86.h"

#include "kernel/lanes/place.h"

#include <string.h>

enum {
  BLOCKS = AMX_PIECE / ST_STEP, // of a piece
  QUAD = 4                      // tiles of sums that are computed before the first is needed
};

// A part of a group of rows, unpacked. d is for each 32 columns or, where a form has two, 16.
typedef struct {
  _Alignas(64) int8_t codes[AMX_PIECE * ST_GROUP];
  _Alignas(64) float d[2 * BLOCKS][ST_GROUP];
} piece;

// The integers of four tiles, twice: while one half is added the other is computed.
typedef struct {
  _Alignas(64) int32_t totals[2][QUAD * AMX_SUMS];
} waiting;

// The sums of one group of rows, 16 a token of a pass.
typedef struct {
  _Alignas(64) float first[AMX_PASS * ST_GROUP];
  _Alignas(64) float rest[AMX_PASS * ST_GROUP];
} group_sums;

// What lies in st_input.scratch.
typedef struct {
  piece p;
  group_sums g;
} block_scratch;
_Static_assert(sizeof(block_scratch) <= AMX_SCRATCH, "what products by block need");

// A product: the group of rows and the tokens come one after the other.
typedef struct {
  const st_matrix *w;
  const st_input *input;
  st_view v;
  st_amx_view tiles;
  size_t padded; // columns of the copy
  void (*unpack)(lanes_stream *s, size_t blocks, piece *p);
  float *out;
  size_t stride;
} job;

// Unpacks `blocks` times 32 columns and moves on. Zeros fill the last tile.
LANES_INLINE void unpack_blocks(st_form form, lanes_stream *s, size_t blocks, piece *p) {
  const st_coding c = st_coding_of(form);
  int8_t *out = p->codes;
  for (size_t b = 0; b < blocks; b++) {
    lanes_prefetch_step(form, s->codes);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++, out += 64) {
      vb v = vb_codes(form, s->codes, i);
      _mm512_storeu_si512(out, _mm512_sub_epi8(v, _mm512_set1_epi8((char)vb_offset(form))));
    }
    for (int sub = 0; sub < c.subs; sub++) {
      vf d, m;
      lanes_scales(form, s, sub, &d, &m);
      vf_store(p->d[c.subs * b + (size_t)sub], d);
    }
    lanes_advance(form, s);
  }
  if (blocks % 2) memset(out, 0, ST_STEP * ST_GROUP);
  // The tile instructions do not tell the compiler that they read memory: earlier writes must be complete.
  __asm__ volatile("" ::"r"(p) : "memory");
}

// `columns` of five codes a byte, less their offset.
LANES_INLINE int8_t *unpack_pieces(const st_fives_tables *tables, const uint8_t *pieces, size_t columns, int8_t *out) {
  const vb one = _mm512_set1_epi8(1);
  for (size_t k = 0; k < columns; k += ST_FIVE_COLUMNS, pieces += 64) {
    vb parts[5];
    lanes_prefetch(pieces);
    st_fives_codes(tables, pieces, parts);
    for (size_t i = 0; i < 5 && k + 4 * i < columns; i++, out += 64)
      _mm512_storeu_si512(out, _mm512_sub_epi8(parts[i], one));
  }
  return out;
}

// Whole blocks of five codes a byte, with a scale each.
static void unpack_fives(lanes_stream *s, size_t blocks, piece *p) {
  const st_fives_tables tables = st_fives_load();
  int8_t *out = p->codes;
  for (size_t b = 0; b < blocks; b += s->each) {
    size_t n = blocks - b < s->each ? blocks - b : s->each;
    out = unpack_pieces(&tables, s->scales + ST_SCALES, n * ST_STEP, out);
    vf d = vf_half(s->scales);
    for (size_t i = 0; i < n; i++) vf_store(p->d[b + i], d);
    s->scales += ST_SCALES + 64 * st_five_pieces(s->each * ST_STEP);
  }
  if (blocks % 2) memset(out, 0, ST_STEP * ST_GROUP);
  __asm__ volatile("" ::"r"(p) : "memory"); // as above
}

#define UNPACK(form)                                                                                                   \
  static void unpack_##form(lanes_stream *s, size_t blocks, piece *p) {                                                \
    unpack_blocks(ST_FORM_##form, s, blocks, p);                                                                       \
  }
#define FORM(id, name, kind, activations, ...) ST_IF_BLOCK_##activations(UNPACK, id)
#include "kernel/forms.def"

// The integers of one tile of A with one of B, in a macro since tiles are parts of instructions' names.
#define DOT_TILE(c, a, b, left, stride, right, sums)                                                                   \
  do {                                                                                                                 \
    _tile_zero(c);                                                                                                     \
    _tile_loadd(a, left, stride);                                                                                      \
    _tile_loadd(b, right, 64);                                                                                         \
    _tile_dpbssd(c, a, b);                                                                                             \
    _tile_stored(c, sums, 64);                                                                                         \
  } while (0)

// Of each 32 of 128 columns, or of what is left of them.
LANES_INLINE void dot_32s(const int8_t *a, const int8_t *b, size_t blocks, int32_t *totals) {
  DOT_TILE(0, 4, 6, a, AMX_DEPTH, b, totals);
  DOT_TILE(1, 5, 7, a + 32, AMX_DEPTH, b + 32 * ST_GROUP, totals + AMX_SUMS);
  if (blocks <= 2) return;
  DOT_TILE(2, 4, 6, a + AMX_TILE, AMX_DEPTH, b + 64 * ST_GROUP, totals + 2 * AMX_SUMS);
  DOT_TILE(3, 5, 7, a + AMX_TILE + 32, AMX_DEPTH, b + 96 * ST_GROUP, totals + 3 * AMX_SUMS);
}

// Of each 16 of 64 columns.
LANES_INLINE void dot_16s(const int8_t *a, const int8_t *b, int32_t *totals) {
  DOT_TILE(0, 4, 6, a, AMX_DEPTH, b, totals);
  DOT_TILE(1, 5, 7, a + 16, AMX_DEPTH, b + 16 * ST_GROUP, totals + AMX_SUMS);
  DOT_TILE(2, 4, 6, a + 32, AMX_DEPTH, b + 32 * ST_GROUP, totals + 2 * AMX_SUMS);
  DOT_TILE(3, 5, 7, a + 48, AMX_DEPTH, b + 48 * ST_GROUP, totals + 3 * AMX_SUMS);
}

// Of four sub-blocks, or of what is left of them, from block `first` of the piece's `blocks` on.
LANES_INLINE void dot_quad(size_t subs, const int8_t *a, const piece *p, size_t first, size_t blocks, int32_t *totals) {
  const int8_t *left = a + first / 2 * AMX_TILE, *right = p->codes + first / 2 * AMX_TILE;
  if (subs == 1)
    dot_32s(left, right, blocks - first, totals);
  else
    dot_16s(left, right, totals);
}

// Of all columns of some tiles.
static void dot_tiles(const int8_t *a, const int8_t *b, size_t tiles, int32_t *totals) {
  _tile_zero(0);
  for (; tiles; tiles--, a += AMX_TILE, b += AMX_TILE) {
    _tile_loadd(4, a, AMX_DEPTH);
    _tile_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
  }
  _tile_stored(0, totals, 64);
}

LANES_INLINE void load_sums(bool fresh, const float *from, vf *sums) {
#pragma GCC unroll 16
  for (size_t t = 0; t < AMX_SIDE; t++) sums[t] = fresh ? vf_set(0) : vf_load(from + t * ST_GROUP);
}

LANES_INLINE void store_sums(const vf *sums, float *to) {
#pragma GCC unroll 16
  for (size_t t = 0; t < AMX_SIDE; t++) vf_store(to + t * ST_GROUP, sums[t]);
}

// For each of `count` sub-blocks, `subs` for each 32 columns: sums += (d * dx) * integers.
LANES_INLINE void add_totals(size_t subs, size_t count, const float (*d)[ST_GROUP], const float *scales,
                             const int32_t *totals, vf *sums) {
#pragma GCC unroll 1
  for (size_t i = 0; i < count; i++, totals += AMX_SUMS) {
    vf scale = vf_load(d[i]);
#pragma GCC unroll 16
    for (size_t t = 0; t < AMX_SIDE; t++) {
      vf integers = vi_to_floats(vi_load(totals + t * ST_GROUP));
      sums[t] = vf_fma(vf_mul(scale, vf_set(scales[t])), integers, sums[t]);
    }
    if (subs == 1 || i % 2) scales += AMX_SIDE;
  }
}

// 16 tokens, whose codes and scales of the piece's `blocks` begin at a and `scales`.
LANES_INLINE void add_piece(size_t subs, const piece *p, size_t blocks, const int8_t *a, const float *scales,
                            bool fresh, float *out) {
  const size_t step = QUAD / subs; // blocks
  vf sums[AMX_SIDE];
  waiting at;
  load_sums(fresh, out, sums);
  dot_quad(subs, a, p, 0, blocks, at.totals[0]);
  for (size_t b = 0, place = 0; b < blocks; b += step, place ^= 1) {
    size_t next = b + step, count = next < blocks ? step : blocks - b;
    if (next < blocks) dot_quad(subs, a, p, next, blocks, at.totals[place ^ 1]);
    add_totals(subs, count * subs, p->d + b * subs, scales + b * AMX_SIDE, at.totals[place], sums);
  }
  store_sums(sums, out);
}

static void add_piece_32(const piece *p, size_t blocks, const int8_t *a, const float *scales, bool fresh, float *out) {
  add_piece(1, p, blocks, a, scales, fresh, out);
}

static void add_piece_16(const piece *p, size_t blocks, const int8_t *a, const float *scales, bool fresh, float *out) {
  add_piece(2, p, blocks, a, scales, fresh, out);
}

// By token: sums += d * integers, of blocks of `each` times 64 columns.
static void add_piece_token(const piece *p, size_t blocks, const int8_t *a, size_t each, bool fresh, float *out) {
  vf sums[AMX_SIDE];
  waiting at;
  size_t tiles = (blocks + 1) / 2;
  load_sums(fresh, out, sums);
  dot_tiles(a, p->codes, tiles < each ? tiles : each, at.totals[0]);
  for (size_t i = 0, place = 0; i < tiles; i += each, place ^= 1) {
    size_t next = i + each, left = next < tiles ? tiles - next : 0;
    if (left) {
      dot_tiles(a + next * AMX_TILE, p->codes + next * AMX_TILE, left < each ? left : each, at.totals[place ^ 1]);
    }
    vf d = vf_load(p->d[2 * i]);
#pragma GCC unroll 16
    for (size_t t = 0; t < AMX_SIDE; t++) {
      sums[t] = vf_fma(d, vi_to_floats(vi_load(at.totals[place] + t * ST_GROUP)), sums[t]);
    }
  }
  store_sums(sums, out);
}

// 16 tokens from `token` on with the piece of `blocks` that begins at block `first` of the columns.
static void add_tokens(const job *j, const piece *p, size_t token, size_t first, size_t blocks, float *sums) {
  const st_coding c = st_coding_of(j->w->form);
  const int8_t *a = j->tiles.codes + token * j->padded + first * ST_STEP * AMX_SIDE;
  size_t at = token * j->v.blocks + first * AMX_SIDE;
  if (j->input->kind == ST_ACT_INT8_TOKEN) {
    add_piece_token(p, blocks, a, j->w->block / AMX_DEPTH, !first, sums);
    return;
  }
  if (c.subs == 1)
    add_piece_32(p, blocks, a, j->tiles.block_scale + at, !first, sums);
  else
    add_piece_16(p, blocks, a, j->tiles.block_scale + at, !first, sums);
}

// Up to 16 entries of a block's list whose integers are waiting.
typedef struct {
  const float (*d)[ST_GROUP];
  const float *scales;
  const uint32_t *tokens;
  size_t count;
} entries;

LANES_INLINE void add_entries(size_t subs, entries e, const int32_t *totals, float *rest) {
  if (!e.count) return;
  for (size_t sub = 0; sub < subs; sub++, totals += AMX_SUMS) {
    vf d = vf_load(e.d[sub]);
    for (size_t i = 0; i < e.count; i++) {
      vf integers = vi_to_floats(vi_load(totals + i * ST_GROUP));
      float *sum = rest + e.tokens[i] * ST_GROUP;
      vf_store(sum, vf_fma(vf_mul(d, vf_set(e.scales[i])), integers, vf_load(sum)));
    }
  }
}

// The second planes of a chunk's `count` tokens from `token` on, with the piece of `blocks` that begins at block
// `first` of the columns.
LANES_INLINE void add_lists(size_t subs, const job *j, const piece *p, size_t token, size_t count, size_t first,
                            size_t blocks, float *rest) {
  st_rest_list list = st_rest_list_of(&j->v, j->input->tokens, LANES_TILE, token, first);
  size_t room = st_round_up(count, list.width), place = 0;
  entries last = {0};
  waiting w;
  for (size_t b = 0; b < blocks; b++, list.at += room) {
    const int8_t *codes = p->codes + b * ST_STEP * ST_GROUP;
    size_t n = j->v.rest_count[list.count_at + b];
    for (size_t i = 0; i < n; i += AMX_SIDE) {
      const int8_t *a = j->tiles.rest + ST_STEP * (list.at + i);
      place ^= 1;
      DOT_TILE(0, 4, 6, a, ST_STEP, codes, w.totals[place]);
      if (subs == 2) DOT_TILE(1, 5, 7, a + 16, ST_STEP, codes + 16 * ST_GROUP, w.totals[place] + AMX_SUMS);
      add_entries(subs, last, w.totals[place ^ 1], rest);
      last = (entries){.d = p->d + b * subs, .scales = j->v.rest_scale + list.at + i};
      last.tokens = j->v.rest_place + list.at + i;
      last.count = n - i < AMX_SIDE ? n - i : AMX_SIDE;
    }
  }
  add_entries(subs, last, w.totals[place], rest);
}

// The same of all chunks of a pass, tokens [first, end).
static void add_rest(const job *j, const piece *p, size_t first, size_t end, size_t block, size_t blocks, float *rest) {
  size_t chunk = st_chunk_tokens(j->input->tokens, LANES_TILE);
  if (!block) memset(rest, 0, (end - first) * ST_GROUP * sizeof *rest);
  for (size_t t = first; t < end; t += chunk, rest += chunk * ST_GROUP) {
    size_t count = end - t < chunk ? end - t : chunk;
    if (st_coding_of(j->w->form).subs == 1)
      add_lists(1, j, p, t, count, block, blocks, rest);
    else
      add_lists(2, j, p, t, count, block, blocks, rest);
  }
}

// The floats of tokens [first, end) and of 16 rows.
static void finish_group(const job *j, size_t row, size_t last, size_t first, size_t end, const group_sums *g) {
  for (size_t t = first, at = 0; t < end; t++, at += ST_GROUP) {
    vf y = vf_load(g->first + at);
    if (j->input->kind == ST_ACT_INT8_TOKEN)
      y = vf_div(y, vf_set(j->v.scale[t]));
    else
      y = vf_add(y, vf_load(g->rest + at));
    lanes_output(j->w->form, j->w, row, last, y, j->out + t * j->stride);
  }
}

// One group of rows with the tokens [first, end) of a pass.
static void one_group(const job *j, size_t row, size_t last, size_t first, size_t end) {
  block_scratch *scratch = j->input->scratch;
  piece *p = &scratch->p;
  group_sums *g = &scratch->g;
  lanes_stream s = lanes_stream_of(j->w, row);
  for (size_t b = 0; b < j->v.blocks; b += BLOCKS) {
    size_t blocks = j->v.blocks - b < BLOCKS ? j->v.blocks - b : BLOCKS;
    j->unpack(&s, blocks, p);
    for (size_t t = first; t < end; t += AMX_SIDE) {
      size_t at = (t - first) * ST_GROUP;
      add_tokens(j, p, t, b, blocks, g->first + at);
    }
    if (j->input->kind == ST_ACT_INT8_BLOCK) add_rest(j, p, first, end, b, blocks, g->rest);
  }
  finish_group(j, row, last, first, end, g);
}

static void multiply_groups(job *j, size_t first, size_t last) {
  static void (*const unpacks[ST_FORM_COUNT])(lanes_stream *, size_t, piece *) = {
#define UNPACKS(form) [ST_FORM_##form] = unpack_##form,
#define UNPACKS_FIVES(form) [ST_FORM_##form] = unpack_fives,
#define FORM(id, name, kind, activations, ...)                                                                         \
  ST_IF_BLOCK_##activations(UNPACKS, id) ST_IF_FIVES_##kind(UNPACKS_FIVES, id)
#include "kernel/forms.def"
#undef UNPACKS
#undef UNPACKS_FIVES
  };
  // A pass is whole chunks and whole tiles.
  size_t tokens = j->input->tokens, unit = 2 * st_chunk_tokens(tokens, LANES_TILE);
  size_t pass = lanes_token_block(j->input, unit), most = AMX_PASS / unit * unit;
  if (pass > most) pass = most;
  j->unpack = unpacks[j->w->form];
  for (size_t t = 0; t < tokens; t += pass) {
    size_t end = tokens - t < pass ? tokens : t + pass;
    for (size_t row = first; row < last; row += ST_GROUP) one_group(j, row, last, t, end);
  }
}

// Columns between which the integers by token end, where tiles and pieces end there too.
static bool token_tiles(const st_matrix *w) {
  return w->block >= AMX_DEPTH && AMX_PIECE % w->block == 0;
}

static void amx_blocks_matmul(const st_matrix *w, const st_input *input, size_t first, size_t last, float *out,
                              size_t stride) {
  bool by_token = input->kind == ST_ACT_INT8_TOKEN;
  if (!st_amx_takes(input->kind, input->tokens) || (by_token && !token_tiles(w))) {
    bool fives = st_form_is(w->form, ST_KIND_FIVES);
    (fives ? st_vbmi_matmul(w->form) : st_avx512_int8_matmul(w->form, input->kind))(w, input, first, last, out, stride);
    return;
  }
  job j = {.w = w, .input = input, .v = st_view_input(input), .out = out, .stride = stride};
  j.tiles = st_amx_view_input(input);
  j.padded = st_round_up(input->columns, AMX_DEPTH);
  st_amx_configure(AMX_SIDE, by_token ? AMX_DEPTH : ST_STEP / st_coding_of(w->form).subs);
  multiply_groups(&j, first, last);
  _tile_release();
}

// Forms with minimums stay with AVX-512: in tiles, with their sums of minimums apart, SmolLM2's prompts (Q4_1) took 8
// to 18% longer.
void st_amx_blocks(st_kernels *k) {
#define FILL(form)                                                                                                     \
  if (!st_coding_of(ST_FORM_##form).minimums) k->matmul[ST_FORM_##form][ST_ACT_INT8_BLOCK] = amx_blocks_matmul;
#define FORM(id, name, kind, activations, ...) ST_IF_BLOCK_##activations(FILL, id)
#include "kernel/forms.def"
#undef FILL
  for (int form = 0; form < ST_FORM_COUNT; form++) { // of trits with scales by block, whose integers end as blocks do
    bool patterns = st_form_is((st_form)form, ST_KIND_PATTERNS);
    bool by_block = st_coding_of((st_form)form).by_block && !patterns;
    if (by_block && st_form_takes((st_form)form, ST_ACT_INT8_TOKEN)) {
      k->matmul[form][ST_ACT_INT8_TOKEN] = amx_blocks_matmul;
    }
  }
}
