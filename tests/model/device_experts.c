// Mixtures of experts on devices other than the CPU: the router's choice, and the products of the experts that it
// chooses, against the CPU's scalar table, which is called for each of them.
//
//   model_device_experts [--seed N|random] [--seconds S]
#include "device_pair.h"

enum { MOST_EXPERTS = 300, MOST_USED = 6, MOST_TOKENS = 24, MOST_WIDTH = 512 };

// A mixture and some tokens.
typedef struct {
  st_matrix_desc inner, outer; // of gates and factors; of the last matrices
  uint32_t experts, used, tokens;
  st_route_args route;
  bool biased;
} mixture;

// ---- the choice ---------------------------------------------------------------------------------------------------

// Random logits, often equal, some of them no numbers.
static void make_logits(st_random *r, float *logits, size_t n) {
  bool equal = below(r, 2), junk = below(r, 4) == 0;
  for (size_t i = 0; i < n; i++) {
    logits[i] = equal ? (float)below(r, 5) - 2 : 6 * unit(r);
    if (junk && below(r, 5) == 0) logits[i] = below(r, 2) ? -INFINITY : NAN;
  }
}

static void expect_choices(const pair *p, st_array *chosen[2], const mixture *m) {
  static float found[2][2 * MOST_TOKENS * MOST_USED];
  setun_error err;
  size_t n = (size_t)m->tokens * m->used;
  for (int i = 0; i < 2; i++) need(p->b[i]->read(p->queue[i], chosen[i], 0, 2 * n, found[i], &err), &err);
  for (size_t i = 0; i < n; i++) {
    float got = found[0][2 * i + 1], want = found[1][2 * i + 1];
    bool same = got == want || (isnan(got) && isnan(want)) || fabsf(got - want) <= 1e-5f * fabsf(want) + 1e-30f;
    if (!same || found[0][2 * i] != found[1][2 * i]) {
      fail_msg("choice %zu, %u of %u, router %d: expected %g by %.9g, found %g by %.9g (seed %llu, round %llu)", i,
               m->used, m->experts, (int)m->route.router, (double)found[1][2 * i], (double)want,
               (double)found[0][2 * i], (double)got, (unsigned long long)rounds.seed, (unsigned long long)rounds.round);
    }
  }
}

static mixture random_mixture(st_random *r) {
  mixture m = {.tokens = below(r, 3) ? 1 + below(r, MOST_TOKENS) : 1, .biased = below(r, 2)};
  m.experts = 1 + below(r, below(r, 4) ? 12 : MOST_EXPERTS);
  m.used = 1 + below(r, m.experts < MOST_USED ? m.experts : MOST_USED);
  m.route = (st_route_args){m.experts, m.used, (st_router)below(r, 3), below(r, 2)};
  return m;
}

// Choices, and a sum of outputs that they weigh.
static void check_choices(st_random *r) {
  static float logits[MOST_TOKENS * MOST_EXPERTS], numbers[MOST_TOKENS * MOST_USED * 40 + 2];
  mixture m = random_mixture(r);
  pair p;
  st_array *from[2], *chosen[2], *x[2], *y[2], *sum[2];
  uint32_t width = 1 + below(r, 40);
  make_logits(r, logits, (size_t)m.tokens * m.experts);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = unit(r);
  open_devices(&p);
  open_queues(&p);
  new_array(&p, from, m.tokens, m.experts, logits);
  new_array(&p, chosen, m.tokens, (size_t)2 * m.used, numbers);
  for (int i = 0; i < 2; i++) p.b[i]->route(p.queue[i], from[i], m.tokens, &m.route, chosen[i]);
  expect_choices(&p, chosen, &m);
  for (uint32_t t = 0; t < m.tokens * m.used; t++) logits[2 * t] = (float)(t % m.used), logits[2 * t + 1] = unit(r);
  setun_error err;
  for (int i = 0; i < 2; i++)
    need(p.b[i]->write(p.queue[i], chosen[i], 0, (size_t)2 * m.tokens * m.used, logits, &err), &err);
  new_array(&p, x, m.tokens, width, numbers);
  new_array(&p, y, (size_t)m.tokens * m.used, width, numbers + 1);
  new_array(&p, sum, m.tokens, width, numbers + 2);
  for (int i = 0; i < 2; i++) {
    p.b[i]->add_chosen(p.queue[i], x[i], chosen[i], m.tokens, m.used, width, y[i]);
    p.b[i]->add(p.queue[i], sum[i], x[i], m.tokens, width, 0.7f);
    p.b[i]->add(p.queue[i], y[i], x[i], m.tokens, width, 0.3f);
  }
  expect_near(&p, x, (size_t)m.tokens * width, 1e-6, "add_chosen");
  expect_near(&p, sum, (size_t)m.tokens * width, 1e-6, "add_chosen, added");
  expect_near(&p, y, (size_t)m.tokens * width, 1e-6, "add_chosen, added twice");
  free_array(&p, from);
  free_array(&p, chosen);
  free_array(&p, x);
  free_array(&p, y);
  free_array(&p, sum);
  close_pair(&p);
}

// ---- products -----------------------------------------------------------------------------------------------------

// Each expert of each token, by the CPU.
static void compute(const pair *p, const mixture *m, st_dmatrix *(*matrix)[ST_EXPERT_MATRICES][2],
                    st_dvector *bias[ST_EXPERT_MATRICES][2], const st_experts_args *a) {
  const st_backend *b = p->b[1];
  st_queue *q = p->queue[1];
  static float choices[2 * MOST_TOKENS * MOST_USED];
  setun_error err;
  need(b->read(q, a->chosen, 0, (size_t)2 * m->tokens * m->used, choices, &err), &err);
  b->clear(q, a->dst, m->tokens, (uint32_t)m->outer.shape.rows);
  for (uint32_t i = 0; i < m->tokens * m->used; i++) {
    const uint32_t token = i / m->used, expert = (uint32_t)choices[2 * i];
    st_dmatrix *(*own)[2] = matrix[expert];
    const st_linear_out inner[] = {
        {.matrix = own[ST_MATRIX_GATE][1], .bias = m->biased ? bias[ST_MATRIX_GATE][1] : NULL, .dst = a->gate},
        {.matrix = own[ST_MATRIX_UP][1], .bias = m->biased ? bias[ST_MATRIX_UP][1] : NULL, .dst = a->up}};
    const st_linear_out outer = {
        .matrix = own[ST_MATRIX_DOWN][1], .bias = m->biased ? bias[ST_MATRIX_DOWN][1] : NULL, .dst = a->out};
    b->linear(q, a->x, token, 1, NULL, 0, inner, 2);
    b->glu(q, a->fn, a->gate, a->up, 1, (uint32_t)m->inner.shape.rows, a->gate);
    b->linear(q, a->gate, 0, 1, NULL, 0, &outer, 1);
    b->scatter_add(q, a->dst, &token, &choices[2 * i + 1], 1, (uint32_t)m->outer.shape.rows, a->out);
  }
}

static st_dmatrix *matrices[MOST_EXPERTS][ST_EXPERT_MATRICES][2];

static void list_weights(const mixture *m, st_dvector *bias[ST_EXPERT_MATRICES][2], st_expert_weights *list) {
  for (uint32_t i = 0; i < m->experts; i++) {
    for (int k = 0; k < ST_EXPERT_MATRICES; k++) {
      list[i].matrix[k] = matrices[i][k][0];
      list[i].bias[k] = m->biased ? bias[k][0] : NULL;
    }
  }
}

static void run_both(const pair *p, const mixture *m, st_dvector *bias[ST_EXPERT_MATRICES][2], st_experts_args a[2],
                     const char *name, double allowed) {
  static st_expert_weights list[MOST_EXPERTS];
  st_dexperts *experts = NULL;
  st_array *dst[2] = {a[0].dst, a[1].dst};
  setun_error err;
  list_weights(m, bias, list);
  need(gpu->experts_new(p->device[0], list, m->experts, &experts, &err), &err);
  assert_non_null(experts);
  a[0].experts = experts;
  gpu->experts(p->queue[0], &a[0]);
  compute(p, m, matrices, bias, &a[1]);
  expect_near(p, dst, (size_t)m->tokens * m->outer.shape.rows, allowed, name);
  gpu->experts_free(experts);
  if (m->experts == 1) return;
  list[1].matrix[ST_MATRIX_UP] = matrices[0][ST_MATRIX_DOWN][0]; // of another shape, unless it is square
  need(gpu->experts_new(p->device[0], list, m->experts, &experts, &err), &err);
  assert_true(!experts == (m->inner.shape.rows != m->inner.shape.columns));
  if (experts) gpu->experts_free(experts);
}

static void check_experts(st_random *r, const st_format *f, bool int8) {
  mixture m = random_mixture(r);
  if (m.experts > 40) m.experts = 40, m.route.n_expert = 40;
  uint32_t block = f->block > 1 ? f->block : 1, most = MOST_WIDTH / block;
  if (most > 130) most = 130;
  uint32_t columns = block * (1 + below(r, most)), inner = block * (1 + below(r, most)), rows_of_scratch;
  const st_precision precision = int8 ? ST_PRECISION_INT8 : ST_PRECISION_FLOAT;
  m.inner = (st_matrix_desc){.format = f, .shape = {inner, columns}, .precision = precision};
  m.outer = (st_matrix_desc){.format = f, .shape = {columns, inner}, .precision = precision};
  rows_of_scratch = m.used * (1 + below(r, MOST_TOKENS));
  static float numbers[MOST_TOKENS * MOST_USED * MOST_WIDTH], logits[MOST_TOKENS * MOST_EXPERTS];
  for (size_t i = 0; i < MOST_TOKENS * MOST_WIDTH; i++) numbers[i] = unit(r);
  for (size_t i = 0; i < (size_t)m.tokens * m.experts; i++) logits[i] = 3 * unit(r);
  pair p;
  st_array *x[2], *chosen[2], *from[2], *part[2], *gate[2], *up[2], *out[2], *dst[2];
  st_dvector *bias[ST_EXPERT_MATRICES][2];
  open_devices(&p);
  for (uint32_t e = 0; e < m.experts; e++) {
    for (int k = 0; k < ST_EXPERT_MATRICES; k++)
      fill(&p, r, &(product){.desc = k == ST_MATRIX_DOWN ? m.outer : m.inner}, matrices[e][k], NULL);
  }
  open_queues(&p);
  for (int k = 0; k < ST_EXPERT_MATRICES; k++) new_vector(&p, bias[k], numbers + 3 * k, MOST_WIDTH);
  new_array(&p, from, m.tokens, m.experts, logits);
  new_array(&p, x, m.tokens, columns, numbers);
  new_array(&p, chosen, m.tokens, (size_t)2 * m.used, numbers);
  new_array(&p, part, rows_of_scratch, columns, numbers);
  new_array(&p, gate, rows_of_scratch, inner, numbers);
  new_array(&p, up, rows_of_scratch, inner, numbers);
  new_array(&p, out, rows_of_scratch, columns, numbers);
  new_array(&p, dst, m.tokens, columns, numbers);
  for (int i = 0; i < 2; i++) p.b[i]->route(p.queue[i], from[i], m.tokens, &m.route, chosen[i]);
  expect_choices(&p, chosen, &m);
  st_experts_args args[2];
  for (int i = 0; i < 2; i++) {
    args[i] = (st_experts_args){.x = x[i],
                                .chosen = chosen[i],
                                .n = m.tokens,
                                .used = m.used,
                                .fn = (st_activation_fn)(m.experts % (ST_FN_SILU_CLAMPED + 1)),
                                .part = part[i],
                                .gate = gate[i],
                                .up = up[i],
                                .out = out[i],
                                .rows = rows_of_scratch,
                                .dst = dst[i]};
  }
  // a number that the two compute a little differently may get another code
  run_both(&p, &m, bias, args, f->name, int8 ? 2e-2 : 1e-4);
  for (uint32_t e = 0; e < m.experts; e++) {
    for (int k = 0; k < 2 * ST_EXPERT_MATRICES; k++) p.b[k % 2]->matrix_free(matrices[e][k / 2][k % 2]);
  }
  for (int k = 0; k < ST_EXPERT_MATRICES; k++) free_vector(&p, bias[k]);
  st_array **all[] = {from, x, chosen, part, gate, up, out, dst};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_array(&p, all[i]);
  close_pair(&p);
}

// ---- rounds -------------------------------------------------------------------------------------------------------

// One of each shader of products.
static const struct {
  st_format_id id;
  bool int8;
} kinds[] = {{ST_F16, false}, {ST_Q8_0, false}, {ST_T5, false}, {ST_T5, true}, {ST_TQ2_0, true}};

static void all(void **state) {
  (void)state;
  st_random r;
  for (rounds.round = 0; rounds_go_on(&rounds); rounds.round++) {
    uint64_t class = 0;
    for (int i = 0; i < 4; i++) {
      st_random_seed(&r, rounds_seed(&rounds, class ++));
      if (rounds_go_on(&rounds)) check_choices(&r);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
      st_random_seed(&r, rounds_seed(&rounds, class ++));
      if (rounds_go_on(&rounds)) check_experts(&r, st_format_get(kinds[i].id), kinds[i].int8);
    }
  }
}

// What a device's check does where its experts are wrong: the host calls each.
static void wrong_results(void **state) {
  (void)state;
  const st_log log = {log_line, NULL};
  const st_device_options options = {.isa = "scalar", .log = &log, .distrusted = "experts"};
  const st_matrix_desc desc = {.format = st_format_get(ST_F32), .shape = {8, 8}};
  st_device *d;
  st_dmatrix *m;
  st_dexperts *experts = NULL;
  setun_error err;
  need(gpu->device_new(&options, &d, &err), &err);
  need(gpu->matrix_new(d, &desc, &m, &err), &err);
  const st_expert_weights list[] = {{.matrix = {m, m, m}}, {.matrix = {m, m, m}}};
  need(gpu->experts_new(d, list, 2, &experts, &err), &err);
  assert_null(experts);
  assert_non_null(strstr(logged, "products of experts that it chooses are wrong; the host calls them"));
  gpu->matrix_free(m);
  gpu->device_free(d);
}

int main(int argc, char **argv) {
  rounds = rounds_of_arguments(argc, argv);
  if (!find_gpu()) return 77;
  const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_results), cmocka_unit_test(all)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  rounds_print(&rounds);
  return failed;
}
