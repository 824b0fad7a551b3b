// Shapes and formats of models that are made up: what the library knows, as choices of options.
#ifndef SETUN_APP_SYNTHETIC_H
#define SETUN_APP_SYNTHETIC_H

#define SHAPES "tiny|tiny-moe|1b|2b4t|3b|7b|8b|70b|7b-a1b|30b-a3b"
#define FORMATS                                                                                                        \
  "i2_s|i2_s-arm|i2_s-x4|tq1_0|tq2_0|q2_0|q2_0-128|pq2_0|ptq1_0|iq1_bn|iq2_bn|t2|t5|t16|f32|f16|bf16|q8_0|q6_k|q5_0|"  \
  "q5_1|q4_0|q4_1"

#endif
