// What the shaders of recurrent layers share: the runs of tokens, with their states before and after.
struct Run {
  Floats from; // the layer's part of a slot; unused where the state is new
  Floats to;
  uint first, n, fresh; // tokens
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Runs {
  Run r[];
};
