// The names of GGUF's tensor types, and messages for those that are not supported: formats of forks, withdrawn formats,
// and formats that no published ternary model needs. From the public headers of ggml and ik_llama.cpp.
#include "quant/gguf_rivals.h"

#include "base/memory.h"

static const char *const again_gguf =
    "not read; convert the original checkpoint, or requantize to a type that is (Q8_0, Q6_K, Q4_K, TQ2_0, ...)";
static const char *const again_interleaved =
    "rows interleaved for one processor by ik_llama.cpp, not read; use the file it was repacked from";
static const char *const again_arm =
    "rows interleaved for one processor, withdrawn from GGUF; use the file in the plain type it was repacked from";
static const char *const again_ik = "a type of ik_llama.cpp, not read; use a file in one of the common types";
static const char *const internal = "a type for activations within ggml, which no file should hold";
static const char *const again_tl1 =
    "IQ4_NL_8_8, withdrawn from GGUF, or TL1 of BitNet forks, which is arranged for one matrix shape and processor; "
    "convert the original checkpoint, or use a file in i2_s";
static const char *const again_i8_s =
    "IQ4_NL_4_8, withdrawn from GGUF, or I8_S of BitNet forks; use a file in one of the common types";
static const char *const integers = "integers, which cannot be weights";

typedef struct type_name {
  uint32_t type;
  const char *name;
  const char *const *hint;
} type_name;

static const type_name names[] = {
    {4, "Q4_2", &again_gguf},
    {5, "Q4_3", &again_gguf},
    {9, "Q8_1", &internal},
    {15, "Q8_K", &internal},
    {16, "IQ2_XXS", &again_gguf},
    {17, "IQ2_XS", &again_gguf},
    {18, "IQ3_XXS", &again_gguf},
    {19, "IQ1_S", &again_gguf},
    {21, "IQ3_S", &again_gguf},
    {22, "IQ2_S", &again_gguf},
    {24, "I8", &integers},
    {25, "I16", &integers},
    {26, "I32", &integers},
    {27, "I64", &integers},
    {28, "F64", &again_gguf},
    {29, "IQ1_M", &again_gguf},
    {31, "Q4_0_4_4", &again_arm},
    {32, "Q4_0_4_8", &again_arm},
    {33, "Q4_0_8_8", &again_arm},
    {37, "I8_S", &again_i8_s},
    {38, "TL1", &again_tl1},
    {97, "Q8_0_X4", &internal},
    {98, "Q8_1_X4", &internal},
    {99, "Q8_2_X4", &internal},
    {133, "Q6_0", &again_ik},
    {136, "Q8_K64", &internal},
    {137, "IQ2_K", &again_ik},
    {138, "IQ3_K", &again_ik},
    {139, "IQ4_K", &again_ik},
    {140, "IQ5_K", &again_ik},
    {141, "IQ6_K", &again_ik},
    {144, "IQ4_KS", &again_ik},
    {145, "IQ2_KS", &again_ik},
    {146, "IQ4_KSS", &again_ik},
    {147, "Q8_K16", &internal},
    {148, "Q8_K32", &internal},
    {149, "Q8_KR8", &internal},
    {150, "Q8_K128", &internal},
    {151, "Q8_KV", &again_ik},
    {152, "IQ5_KS", &again_ik},
    {153, "IQ2_KT", &again_ik},
    {154, "IQ3_KT", &again_ik},
    {155, "IQ4_KT", &again_ik},
    {156, "IQ3_KS", &again_ik},
    {157, "IQ2_KL", &again_ik},
    {158, "IQ1_KT", &again_ik},
    {202, "Q4_0_R8", &again_interleaved},
    {206, "Q5_0_R4", &again_interleaved},
    {208, "Q8_0_R8", &again_interleaved},
    {210, "Q2_K_R4", &again_interleaved},
    {211, "Q3_K_R4", &again_interleaved},
    {212, "Q4_K_R4", &again_interleaved},
    {213, "Q5_K_R4", &again_interleaved},
    {214, "Q6_K_R4", &again_interleaved},
    {216, "IQ2_XXS_R4", &again_interleaved},
    {217, "IQ2_XS_R4", &again_interleaved},
    {218, "IQ3_XXS_R4", &again_interleaved},
    {219, "IQ1_S_R4", &again_interleaved},
    {220, "IQ4_NL_R4", &again_interleaved},
    {221, "IQ3_S_R4", &again_interleaved},
    {222, "IQ2_S_R4", &again_interleaved},
    {223, "IQ4_XS_R8", &again_interleaved},
    {229, "IQ1_M_R4", &again_interleaved},
    {230, "BF16_R16", &again_interleaved},
    {233, "Q6_0_R4", &again_interleaved},
    {335, "IQ2_BN_R4", &again_interleaved},
    {337, "IQ2_K_R4", &again_interleaved},
    {338, "IQ3_K_R4", &again_interleaved},
    {339, "IQ4_K_R4", &again_interleaved},
    {340, "IQ5_K_R4", &again_interleaved},
    {344, "IQ4_KS_R4", &again_interleaved},
    {352, "IQ5_KS_R4", &again_interleaved},
    {353, "MXFP4_R8", &again_interleaved},
    {397, "Q8_K_R16", &again_interleaved},
    {398, "Q8_KV_R8", &again_interleaved},
    {399, "Q8_K_R8", &again_interleaved},
};

#define NOT_READ_TL2                                                                                                   \
  "arranged for one matrix shape and processor: convert the original checkpoint, or use a file in i2_s"

// Rivals of one type are adjacent.
static const st_gguf_rival rivals[] = {
    {36, "IQ4_NL_4_4", "withdrawn from GGUF: use a file in IQ4_NL", 0, 32, 18, {NULL}},
    {39, "TL2 of BitNet forks", NOT_READ_TL2, 0, 0, 0, {NULL}},
    {40, "Q1_0 of 32 weights (older PrismML forks)", "use a file in Q1_0, type 41", 0, 32, 6, {"*"}},
    {41, "Q1_0 of 32 weights (older PrismML forks)", "use a file of 18 bytes for 128 weights", 0, 32, 6, {"*"}},
    {42, "TL2 of BitNet forks", NOT_READ_TL2, 0, 0, 0, {NULL}},
    {43, "a type of another fork or a newer ggml", "use a file in another type", 0, 0, 0, {NULL}},
    {142,
     "IQ2_TN of older ik_llama.cpp",
     "requantize there to IQ2_BN, or use a file in TQ2_0",
     4,
     256,
     64,
     {"bitnet", "llama"}},
    {143,
     "IQ1_TN of older ik_llama.cpp",
     "requantize there to IQ1_BN, or use a file in TQ1_0",
     2,
     256,
     52,
     {"bitnet", "llama"}},
};

const st_gguf_rival *st_gguf_rivals(uint32_t type, size_t *n) {
  const size_t count = sizeof rivals / sizeof *rivals;
  size_t first = 0;
  while (first < count && rivals[first].type != type) first++;
  for (*n = 0; first + *n < count && rivals[first + *n].type == type;) ++*n;
  return *n ? &rivals[first] : NULL;
}

const char *st_gguf_type_rivals(uint32_t type) {
  size_t n;
  const st_gguf_rival *first = st_gguf_rivals(type, &n);
  return first ? first->name : NULL;
}

bool st_gguf_rival_size(const st_gguf_rival *r, st_shape shape, uint64_t *bytes) {
  if (!r->block || shape.columns % r->block) return false;
  uint64_t row = shape.columns / r->block;
  return st_mul_u64(row, r->block_bytes, &row) && st_add_u64(row, r->head, &row) && st_mul_u64(row, shape.rows, bytes);
}

static const type_name *find(uint32_t type) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].type == type) return &names[i];
  return NULL;
}

const char *st_gguf_type_name(uint32_t type) {
  const st_format *format = st_format_by_gguf_type(type);
  if (format) return format->name;
  const type_name *known = find(type);
  return known ? known->name : NULL;
}

const char *st_gguf_type_hint(uint32_t type) {
  if (st_format_by_gguf_type(type)) return "read";
  const type_name *known = find(type);
  if (known) return *known->hint;
  if (type >> 16 == 0x5354) return "one of Setun's own layouts, unknown to this version; use a newer version";
  return "an unknown type; the file may come from a fork of ggml, or from a newer one";
}
