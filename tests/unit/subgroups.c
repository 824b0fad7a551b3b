// A scalar model of how the shaders of src/backend/vulkan split their work, for subgroups of 4 to 128 invocations:
// those that no driver at hand has. A comment at each function says what it models; the shaders themselves run in
// model/device_operations, in subgroups of 4, 8 and 16.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { INVOCATIONS = 128, REDUCED = 32, ROWS = 8, COLUMNS = 700 };

// A workgroup: whole subgroups, st_vk_local of pipelines.c.
typedef struct {
  uint32_t size, subgroup, subgroups;
} group;

static group group_of(uint32_t wanted, uint32_t subgroup) {
  uint32_t size = wanted > subgroup ? wanted : subgroup;
  return (group){size, subgroup, size / subgroup};
}

// workgroup_sum and workgroup_max of reduce.glsl: all invocations come to a barrier, so each step is a loop over them.
static float reduce(const group *g, const float *x, bool largest) {
  float reduced[REDUCED] = {0};
  assert_in_range(g->subgroups, 1, REDUCED);
  for (uint32_t s = 0; s < g->subgroups; s++) {
    float all = x[s * g->subgroup];
    for (uint32_t i = 1; i < g->subgroup; i++) {
      float v = x[s * g->subgroup + i];
      all = largest ? fmaxf(all, v) : all + v;
    }
    reduced[s] = all; // by the invocation that subgroupElect chooses
  }
  float all = reduced[0];
  for (uint32_t s = 1; s < g->subgroups; s++) all = largest ? fmaxf(all, reduced[s]) : all + reduced[s];
  return all;
}

static void reductions(void **state) {
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) {
    for (uint32_t wanted = 64; wanted <= INVOCATIONS; wanted *= 2) {
      const group g = group_of(wanted, subgroup);
      float x[INVOCATIONS], most = 0;
      double sum = 0;
      assert_in_range(g.size, wanted, INVOCATIONS);
      assert_int_equal(g.subgroups * g.subgroup, g.size);
      for (uint32_t i = 0; i < g.size; i++) {
        x[i] = (float)(i * 37 % 101); // integers: sums are exact in any order
        sum += (double)x[i];
        most = fmaxf(most, x[i]);
      }
      assert_true((double)reduce(&g, x, false) == sum);
      assert_true(reduce(&g, x, true) == most);
    }
  }
}

// The rows of a workgroup and the words of a row, main of linear_int8.comp: each once.
static void rows_and_words(void **state) {
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) {
    const group g = group_of(64, subgroup);
    for (uint32_t rows = 1; rows <= 3 * ROWS; rows++) {
      uint8_t taken[3 * ROWS] = {0};
      for (uint32_t first = 0; first < rows; first += ROWS) {
        uint32_t end = first + ROWS < rows ? first + ROWS : rows;
        for (uint32_t s = 0; s < g.subgroups; s++) {
          for (uint32_t row = first + s; row < end; row += g.subgroups) taken[row]++;
        }
      }
      for (uint32_t row = 0; row < rows; row++) assert_int_equal(taken[row], 1);
    }
    for (uint32_t words = 1; words <= COLUMNS / 16; words++) {
      uint8_t taken[COLUMNS / 16] = {0};
      for (uint32_t i = 0; i < subgroup; i++) {
        for (uint32_t k = i; k < words; k += subgroup) taken[k]++;
      }
      for (uint32_t k = 0; k < words; k++) assert_int_equal(taken[k], 1);
    }
  }
}

// The mean square of rms.glsl is the work of the first 16 invocations, whatever subgroups they are in: lanes of the
// CPU's order, each there in every workgroup, and summed by one.
static void lanes(void **state) {
  enum { LANES = 16 };
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) {
    const group g = group_of(128, subgroup);
    uint8_t taken[COLUMNS] = {0};
    for (uint32_t lane = 0; lane < g.size; lane++) {
      for (uint32_t i = lane; lane < LANES && i < COLUMNS; i += LANES) taken[i]++;
    }
    for (uint32_t i = 0; i < COLUMNS; i++) assert_int_equal(taken[i], 1);
  }
}

// A page of 64 keys, add_page of attend.comp: a key an invocation, so that workgroups must have 64.
static void pages(void **state) {
  enum { POSITIONS = 64 };
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) assert_true(group_of(64, subgroup).size >= POSITIONS);
}

enum { EXPERTS = 1024 };

// sum_before of experts.comp: a subgroup's sums before each invocation, then those of the subgroups before it.
static void sums_before(const group *g, const uint32_t *x, uint32_t *before, uint32_t *all) {
  uint32_t sums[REDUCED] = {0};
  for (uint32_t i = 0; i < g->size; i++) {
    before[i] = i % g->subgroup ? before[i - 1] + x[i - 1] : 0; // subgroupExclusiveAdd
    sums[i / g->subgroup] += x[i];
  }
  *all = 0;
  for (uint32_t s = 0; s < g->subgroups; s++) *all += sums[s];
  for (uint32_t i = 0; i < g->size; i++) {
    for (uint32_t s = 0; s < i / g->subgroup; s++) before[i] += sums[s];
  }
}

// The first row of each expert, main of experts.comp: an invocation has consecutive experts.
static void rows_of_experts(void **state) {
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) {
    const group g = group_of(128, subgroup);
    for (uint32_t experts = 1; experts <= EXPERTS; experts += experts < 140 ? 1 : 221) {
      uint32_t count[EXPERTS], start[EXPERTS], mine[INVOCATIONS] = {0}, before[INVOCATIONS], all, row = 0;
      uint32_t each = (experts + g.size - 1) / g.size;
      for (uint32_t e = 0; e < experts; e++) count[e] = e * 7 % 5, start[e] = UINT32_MAX;
      for (uint32_t i = 0; i < g.size; i++) {
        for (uint32_t e = i * each; e < (i + 1) * each && e < experts; e++) mine[i] += count[e];
      }
      sums_before(&g, mine, before, &all);
      for (uint32_t i = 0; i < g.size; i++) {
        for (uint32_t e = i * each; e < (i + 1) * each && e < experts; e++) start[e] = before[i], before[i] += count[e];
      }
      for (uint32_t e = 0; e < experts; row += count[e++]) assert_int_equal(start[e], row);
      assert_int_equal(all, row);
    }
  }
}

// The choice of route.comp: each invocation offers the first of its largest, and the first of equal offers is taken by
// the one that made it.
static void choices(void **state) {
  enum { USED = 9, NONE = UINT32_MAX };
  (void)state;
  for (uint32_t subgroup = 4; subgroup <= 128; subgroup *= 2) {
    const group g = group_of(128, subgroup);
    for (uint32_t experts = USED; experts <= EXPERTS; experts += 73) {
      uint32_t keys[EXPERTS], left[EXPERTS];
      for (uint32_t e = 0; e < experts; e++) keys[e] = left[e] = 1 + e * 37 % 11;
      for (int turn = 0; turn < USED; turn++) {
        uint32_t offer[INVOCATIONS], at[INVOCATIONS], most = 0, first = NONE, best = 0;
        for (uint32_t i = 0; i < g.size; i++) {
          offer[i] = 0, at[i] = NONE;
          for (uint32_t e = i; e < experts; e += g.size) {
            if (keys[e] > offer[i]) offer[i] = keys[e], at[i] = e;
          }
          if (offer[i] > most) most = offer[i];
        }
        for (uint32_t i = 0; i < g.size; i++) {
          if (offer[i] == most && at[i] < first) first = at[i];
        }
        for (uint32_t i = 0; i < g.size; i++) {
          if (at[i] == first) keys[at[i]] = 0;
        }
        for (uint32_t e = 0; e < experts; e++) best = left[e] > left[best] ? e : best;
        left[best] = 0;
        assert_int_equal(first, best);
      }
      assert_memory_equal(keys, left, experts * sizeof *keys);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reductions),      cmocka_unit_test(rows_and_words),
                                     cmocka_unit_test(lanes),           cmocka_unit_test(pages),
                                     cmocka_unit_test(rows_of_experts), cmocka_unit_test(choices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
