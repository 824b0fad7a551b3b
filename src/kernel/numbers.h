// The constants of the exponential and of the gates: one copy for all tables, since their results must be the same.
#ifndef SETUN_KERNEL_NUMBERS_H
#define SETUN_KERNEL_NUMBERS_H

// Adding it to a float below 2^22 in size makes the float's last bits the nearest integer.
#define ST_ROUNDER 0x1.8p23f
enum { ST_ROUNDER_BITS = 0x4B400000 };

// e^x: see st_ref_exp. Beyond these arguments it is 0 or infinite.
#define ST_EXP_LOWEST -104.0f
#define ST_EXP_HIGHEST 89.0f
#define ST_LOG2_E 0x1.715476p0f
#define ST_LN2_HIGH 0x1.62e4p-1f
#define ST_LN2_LOW 0x1.7f7d1cp-20f
#define ST_EXP_7 0x1.a01a02p-13f // 1/7!, and so on
#define ST_EXP_6 0x1.6c16c2p-10f
#define ST_EXP_5 0x1.111112p-7f
#define ST_EXP_4 0x1.555556p-5f
#define ST_EXP_3 0x1.555556p-3f

// Tanh-GELU: x / (1 + e^u), u = x (a + b x^2), a = -2 sqrt(2 / pi), b = 0.044715 a.
#define ST_GELU_A -1.5957691f
#define ST_GELU_B -0.071354814f
#define ST_GPT_OSS_ALPHA -1.702f
#define ST_GPT_OSS_LIMIT 7.0f

// Int8 activations: the smallest absolute maximum of a token that is divided by, and the one of a block below
// which 127 / maximum comes near the largest float, so that the block counts as zero.
#define ST_TOKEN_LEAST 1e-5f

// The scale of a token's int8 codes: 127 times the reciprocal, not the quotient, since that is how the official
// implementation rounds it; the two differ in the last bit.
static inline float st_token_scale(float maximum) {
  return 127.0f * (1.0f / (maximum > ST_TOKEN_LEAST ? maximum : ST_TOKEN_LEAST));
}
#define ST_BLOCK_LEAST 1e-36f

// A block gets a second plane of codes when its largest value is more than this many times the mean of what the largest
// values of all of the token's blocks are: rounding these to the first plane's steps would err most.
#define ST_REST_ABOVE 1.1f
#define ST_REST_STEPS 254.0f // steps of the second plane in one of the first

#endif
