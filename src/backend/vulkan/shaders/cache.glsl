// The cache: a page has, for each KV head, the keys of 64 positions and then the values. Keys are stored column by
// column, so that the invocations of 64 positions read neighbours; values position by position. In half precision a word
// is two columns.
const uint POSITIONS = 64;

layout(constant_id = 1) const uint KEY_PAIRS = 1;   // keys are half precision
layout(constant_id = 2) const uint VALUE_PAIRS = 1; // values are

uint key_columns(uint head_dim) { // words of a position
  return KEY_PAIRS != 0 ? (head_dim + 1) / 2 : head_dim;
}
uint value_columns(uint head_dim) {
  return VALUE_PAIRS != 0 ? (head_dim + 1) / 2 : head_dim;
}
