// The choice of experts, and the sums of their outputs.
#include "backend/cpu/cpu.h"

#include <math.h>

// x becomes softmax(x); the maximum is subtracted first.
static void softmax(float *x, uint32_t n) {
  float most = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  for (uint32_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - most);
  for (uint32_t i = 0; i < n; i++) x[i] /= sum;
}

typedef struct {
  uint32_t expert;
  float weight;
} choice;

// The k largest, by ascending index. Chosen ones are set to -inf in `scores`; NaN counts as the smallest.
static void largest(float *scores, uint32_t n, uint32_t k, choice *chosen) {
  for (uint32_t i = 0; i < n; i++) {
    if (isnan(scores[i])) scores[i] = -INFINITY;
  }
  for (uint32_t j = 0; j < k; j++) {
    uint32_t best = n, at = j;
    for (uint32_t i = 0; i < n; i++) {
      bool taken = false;
      for (uint32_t t = 0; t < j && scores[i] == -INFINITY; t++) taken = taken || chosen[t].expert == i;
      if (!taken && (best == n || scores[i] > scores[best])) best = i;
    }
    while (at && chosen[at - 1].expert > best) {
      chosen[at] = chosen[at - 1];
      at--;
    }
    chosen[at] = (choice){best, scores[best]};
    scores[best] = -INFINITY;
  }
}

static void route_token(const st_route_args *a, const float *logits, float *out) {
  uint32_t n = a->n_expert, k = a->used;
  float scores[ST_MAX_EXPERTS];
  choice chosen[ST_MAX_EXPERTS];
  for (uint32_t i = 0; i < n; i++) scores[i] = logits[i];
  if (a->router == ST_ROUTER_ALL) softmax(scores, n);
  largest(scores, n, k, chosen);
  for (uint32_t i = 0; i < k; i++) scores[i] = chosen[i].weight;
  if (a->router == ST_ROUTER_CHOSEN) {
    softmax(scores, k);
  } else if (a->router == ST_ROUTER_SIGMOID) {
    for (uint32_t i = 0; i < k; i++) scores[i] = 1 / (1 + expf(-scores[i]));
  } else if (a->renormalize) {
    float sum = 0;
    for (uint32_t i = 0; i < k; i++) sum += scores[i];
    for (uint32_t i = 0; i < k; i++) scores[i] /= sum;
  }
  for (uint32_t i = 0; i < k; i++) {
    out[2 * i] = (float)chosen[i].expert;
    out[2 * i + 1] = scores[i];
  }
}

typedef struct {
  const st_array *logits;
  st_array *chosen;
  const st_route_args *args;
  uint32_t n;
} route_job;

static void route_part(void *context, int index, int threads) {
  const route_job *j = context;
  size_t first, last;
  st_pool_share(j->n, 1, index, threads, &first, &last);
  for (size_t t = first; t < last; t++) {
    route_token(j->args, j->logits->data + t * j->logits->width, j->chosen->data + t * j->chosen->width);
  }
}

void st_cpu_route(st_queue *q, const st_array *logits, uint32_t n, const st_route_args *args, st_array *chosen) {
  route_job j = {logits, chosen, args, n};
  if ((size_t)n * args->n_expert < ST_CPU_SMALL) {
    route_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, route_part, &j);
  }
}

typedef struct {
  const st_kernels *kernels;
  st_array *x;
  const st_array *chosen, *y;
  uint32_t n, used, width;
} add_job;

static void add_part(void *context, int index, int threads) {
  const add_job *j = context;
  size_t first, last;
  st_pool_share(j->n, 1, index, threads, &first, &last);
  for (size_t t = first; t < last; t++) {
    for (size_t i = 0; i < j->used; i++) {
      float weight = j->chosen->data[t * j->chosen->width + 2 * i + 1];
      const float *y = j->y->data + (t * j->used + i) * j->y->width;
      j->kernels->add(j->x->data + t * j->x->width, y, weight, j->width);
    }
  }
}

void st_cpu_add_chosen(st_queue *q, st_array *x, const st_array *chosen, uint32_t n, uint32_t used, uint32_t width,
                       const st_array *y) {
  add_job j = {q->kernels, x, chosen, y, n, used, width};
  if ((size_t)n * used * width < ST_CPU_SMALL) {
    add_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, add_part, &j);
  }
}

typedef struct {
  st_queue *q;
  st_array *x;
  const uint32_t *tokens; // [n] rows of x to add to
  const float *weights;   // [n]
  uint32_t n, width;
  const st_array *y;
} scatter_job;

// Threads split the columns, so that a token that occurs twice is still added to in order.
static void scatter_part(void *context, int index, int threads) {
  const scatter_job *j = context;
  size_t first, last;
  st_pool_share(j->width, 16, index, threads, &first, &last);
  for (uint32_t i = 0; i < j->n && first < last; i++) {
    j->q->kernels->add(j->x->data + j->tokens[i] * j->x->width + first, j->y->data + i * j->y->width + first,
                       j->weights[i], last - first);
  }
}

void st_cpu_scatter_add(st_queue *q, st_array *x, const uint32_t *tokens, const float *weights, uint32_t n,
                        uint32_t width, const st_array *y) {
  scatter_job j = {q, x, tokens, weights, n, width, y};
  if ((size_t)n * width < ST_CPU_SMALL) {
    scatter_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, scatter_part, &j);
  }
}
