// Every row of the tables of formats, forms and instruction sets is known wherever it has to be: nothing is listed
// here, so that a row that was only half added fails.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "form_names.h"
#include "kernel/kernel.h"
#include "kernel/layout.h"
#include "quant/rows.h"
#include "setun.h"

#include <stdio.h>

// A file of the source tree as text; zeros in it become spaces.
static char *read_text(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", SETUN_SOURCE_DIR, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s is missing", path);
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  rewind(f);
  char *text = malloc(n + 1);
  assert_int_equal(fread(text, 1, n, f), n);
  fclose(f);
  for (size_t i = 0; i < n; i++) {
    if (!text[i]) text[i] = ' ';
  }
  text[n] = 0;
  return text;
}

static bool offers(setun_choice choice, const char *name) {
  const char *found;
  for (size_t i = 0; (found = setun_choice_name(choice, i)); i++) {
    if (!strcmp(found, name)) return true;
  }
  return false;
}

// Whether one of the files of reference vectors has a tensor "NAME...." of the format.
static bool has_vectors(const char *const files[4], const char *name) {
  char key[64], of_encoders[64];
  snprintf(key, sizeof key, "\"%s.", name);
  snprintf(of_encoders, sizeof of_encoders, "\"encode.%s\"", name);
  for (int i = 0; i < 4; i++) {
    if (strcasestr(files[i], key) || strcasestr(files[i], of_encoders)) return true;
  }
  return false;
}

static void formats(void **state) {
  (void)state;
  char *docs = read_text("docs/formats.md");
  char *vectors[] = {read_text("tests/quant/ternary.safetensors"), read_text("tests/quant/gguf-blocks.safetensors"),
                     read_text("tests/quant/values.safetensors"), read_text("tests/quant/affine.safetensors")};
  st_kernels scalar;
  assert_int_equal(st_kernels_get("scalar", &scalar, NULL), SETUN_OK);
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (st_format_by_name(f->name) != f) fail_msg("two formats are called %s", f->name);
    if (f->gguf_type >= 0 && !st_gguf_type_name((uint32_t)f->gguf_type)) fail_msg("%s: its type has no name", f->name);
    bool ternary = st_format_is_ternary(f);
    if (ternary ? !f->ops->unpack || !f->ops->check || !f->ops->dot : !f->ops->decode)
      fail_msg("%s cannot be read", f->name);
    st_form form = st_form_of(f);
    if ((st_form_rows_taken(form) == ST_FORM_TRITS) != ternary)
      fail_msg("%s becomes %s, which takes other rows", f->name, form_name(form));
    if (!scalar.matmul[form][ST_ACT_F32] || !scalar.row[form]) fail_msg("%s: no product in float32", f->name);
    if (offers(SETUN_CHOICE_LAYOUT, f->name) != (f->ops->pack || st_format_is_number(f)) ||
        offers(SETUN_CHOICE_ASSUME, f->name) != st_format_is_ambiguous(f) ||
        offers(SETUN_CHOICE_SYNTHETIC, f->name) != st_format_is_written(f))
      fail_msg("%s is offered where it does not fit, or is not where it does", f->name);
    if (!strcasestr(docs, f->name)) fail_msg("docs/formats.md does not have %s", f->name);
    if (id && !has_vectors((const char *const *)vectors, f->name)) fail_msg("%s has no reference vectors", f->name);
  }
  for (int i = 0; i < 4; i++) free(vectors[i]);
  free(docs);
}

static bool becomes(st_form form) {
  for (int id = 0; id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (st_form_of(f) == form || st_form_is_denser(form, f)) return true;
  }
  return false;
}

// What the kernels assume of a row's coding, and of the blocks of the format that becomes it.
static void check_coding(st_form form, const char *name) {
  st_coding c = st_coding_of(form);
  if (c.kind != ST_KIND_CODES) return;
  bool planes = c.low && c.low <= 4 && !(8 % c.low) && c.high <= 2 && c.low + c.high <= 6;
  if (!planes && (c.low != 8 || c.high)) fail_msg("%s: there are no planes of %d and %d bits", name, c.low, c.high);
  if (c.subs != 1 && c.subs != 2) fail_msg("%s: subs is %d, expected 1 or 2", name, c.subs);
  if (c.head && c.front) fail_msg("%s has scales at the head and in front", name);
  for (int i = 0; c.values && i < 1 << (c.low + c.high); i++) {
    if (abs(c.values[i]) > c.offset) fail_msg("%s: value %d is outside -offset..offset", name, c.values[i]);
  }
  for (int id = 0; st_form_rows_taken(form) == ST_FORM_BLOCKS && id < ST_FORMAT_COUNT; id++) {
    const st_format *f = st_format_get((st_format_id)id);
    if (st_form_of(f) != form || f->ops->row_head) continue; // a whole row is a block then
    if (!f->ops->value || (!f->ops->value->parts && !f->ops->parts))
      fail_msg("%s becomes %s and has no `parts`", f->name, name);
    uint32_t expected = c.head && !c.by_block ? ST_SUPER : c.head ? f->block / ST_STEP * ST_STEP : ST_STEP;
    if (f->block != expected)
      fail_msg("%s: blocks of %u columns, %s has them of %u", f->name, f->block, name, expected);
  }
}

static void forms(void **state) {
  (void)state;
  char *docs = read_text("docs/kernels.md");
  st_kernels scalar;
  assert_int_equal(st_kernels_get("scalar", &scalar, NULL), SETUN_OK);
  for (int i = 0; i < ST_FORM_COUNT; i++) {
    st_form form = (st_form)i;
    const char *name = form_name(form);
    for (int other = 0; other < i; other++) assert_string_not_equal(name, form_name((st_form)other));
    if (!becomes(form)) fail_msg("no format becomes %s", name);
    check_coding(form, name);
    bool any = false;
    for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
      bool takes = st_form_takes(form, (st_activation)kind);
      any |= takes;
      if (takes != (scalar.matmul[form][kind] != NULL)) fail_msg("%s, activation %d: no scalar product", name, kind);
    }
    if (!any || !scalar.row[form]) fail_msg("%s is of no use", name);
    if (!st_form_group_bytes(form, 512, 256)) fail_msg("%s takes no memory", name);
    if (!strcasestr(docs, name)) fail_msg("docs/kernels.md does not have %s", name);
  }
  free(docs);
}

// Each part of synthetic models has one default.
static void synthetic_defaults(void **state) {
  (void)state;
  for (int part = ST_SYNTHETIC_MATRICES; part <= ST_SYNTHETIC_HEAD; part++) {
    int rows = 0;
    for (int i = 0; i < ST_FORMAT_COUNT; i++) rows += st_format_get((st_format_id)i)->ops->synthetic == part;
    assert_int_equal(rows, 1);
  }
}

static void instruction_sets(void **state) {
  (void)state;
  char *docs = read_text("docs/kernels.md"), available[256], word[64];
  snprintf(available, sizeof available, " %s ", setun_isa_available());
  const char *name, *best = NULL;
  for (size_t i = 0; (name = st_isa_name(i)); i++) {
    st_kernels k;
    setun_error err = {.code = SETUN_OK};
    setun_status s = st_kernels_get(name, &k, &err);
    snprintf(word, sizeof word, " %s ", name);
    assert_int_equal(s, strstr(available, word) ? SETUN_OK : SETUN_ERROR_UNSUPPORTED);
    if (s == SETUN_OK) assert_string_equal(k.name, name);
    if (s == SETUN_OK) best = name;
    if (!offers(SETUN_CHOICE_ISA, name)) fail_msg("%s is not offered", name);
    if (!strcasestr(docs, name)) fail_msg("docs/kernels.md does not have %s", name);
    for (int form = 0; s == SETUN_OK && form < ST_FORM_COUNT; form++) {
      for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
        bool dense = st_form_is((st_form)form, ST_KIND_FIVES) || st_form_is((st_form)form, ST_KIND_PATTERNS);
        if (dense) continue; // some tables have no products of it, and use the other form
        if (st_form_takes((st_form)form, (st_activation)kind) && !k.matmul[form][kind])
          fail_msg("%s: no product of %s with activation %d", name, form_name((st_form)form), kind);
      }
    }
  }
  st_kernels k;
  setun_error err;
  assert_int_equal(st_kernels_get(NULL, &k, &err), SETUN_OK);
  assert_string_equal(k.name, best);
  assert_int_equal(st_kernels_get("none", &k, &err), SETUN_ERROR_ARGUMENT);
  free(docs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(forms),
                                     cmocka_unit_test(synthetic_defaults), cmocka_unit_test(instruction_sets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
