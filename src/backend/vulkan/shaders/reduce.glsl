// Sums and maxima over a workgroup, the same in all of its invocations. Each use is a barrier.
shared float reduced[32]; // a subgroup each: at most 128 invocations in subgroups of 4

float workgroup_max(float x) {
  x = subgroupMax(x);
  barrier();
  if (subgroupElect()) reduced[gl_SubgroupID] = x;
  barrier();
  x = reduced[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) x = max(x, reduced[i]);
  return x;
}

float workgroup_sum(float x) {
  x = subgroupAdd(x);
  barrier();
  if (subgroupElect()) reduced[gl_SubgroupID] = x;
  barrier();
  x = reduced[0];
  for (uint i = 1; i < gl_NumSubgroups; i++) x += reduced[i];
  return x;
}
