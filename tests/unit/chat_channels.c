// Channels of answers, cut into pieces in every way: what comes out must not depend on how the text arrived.
#include "chat/channels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// "C:", "R:", "M:", "T:" or "N:" and the text, a part for each change of channel.
typedef struct parts {
  char text[1024];
  int last;
  int most; // parts that are taken; 0: all
  int count;
} parts;

static bool take(setun_channel channel, const char *text, size_t length, void *user) {
  static const char *const names[] = {"|C:", "|R:", "|M:", "|T:", "|N:"};
  parts *p = user;
  if (p->most && p->count++ == p->most) return false;
  if (p->last != (int)channel + 1) strcat(p->text, names[channel]);
  p->last = (int)channel + 1;
  strncat(p->text, text, length);
  return true;
}

// In the input, "{x}" is the control token x.
static void feed(st_channels *c, const char *input, size_t step, parts *p) {
  setun_error err;
  for (const char *s = input; *s;) {
    const char *end = *s == '{' ? strchr(s, '}') : s + strcspn(s, "{");
    if (*s == '{') {
      assert_int_equal(st_channels_control(c, s + 1, (size_t)(end - s - 1), take, p, &err), SETUN_OK);
      s = end + 1;
      continue;
    }
    while (s < end) {
      size_t n = (size_t)(end - s) < step ? (size_t)(end - s) : step;
      assert_int_equal(st_channels_text(c, s, n, take, p, &err), SETUN_OK);
      s += n;
    }
  }
  assert_int_equal(st_channels_finish(c, take, p, &err), SETUN_OK);
}

static void check(const char *tail, const char *input, const char *expected) {
  for (size_t step = 1; step < 40; step++) {
    st_channels c;
    parts p = {0};
    st_channels_begin(&c, tail, strlen(tail));
    feed(&c, input, step, &p);
    if (strcmp(p.text, expected)) fail_msg("'%s' by %zu: expected '%s', found '%s'", input, step, expected, p.text);
    st_channels_free(&c);
  }
}

static void blocks(void **state) {
  (void)state;
  check("", "Plain.", "|C:Plain.");
  check("", " \nPlain.\n", "|C: \nPlain.\n");
  check("", "", "");
  check("", "  ", "|C:  ");
  check("", "<think>\nHm, so.\n</think>\n\nYes.\n", "|R:Hm, so.|C:Yes.\n");
  check("", "\n<think>a\n\nb</think>c", "|R:a\n\nb|C:c");
  check("", "<think>\n\n</think>\n\nYes", "|C:Yes");
  check("", "<think>never ends", "|R:never ends");
  check("", "<think>never ends </thi", "|R:never ends </thi");
  check("", "<think>", "");
  check("", "<thin ice", "|C:<thin ice");
  check("", "<thi", "|C:<thi");
  check("", "<think>a < b </ think></think>c", "|R:a < b </ think>|C:c");
  check("", "[THINK]a[/THINK]b", "|R:a|C:b");
  check("", "<seed:think>a</seed:think>b", "|R:a|C:b");
  check("", "<thinking>a</think></thinking>b", "|R:a</think>|C:b");
}

static void only_at_the_beginning(void **state) {
  (void)state;
  check("", "Write <think>x</think>.", "|C:Write <think>x</think>.");
  check("", "<think>a</think>b<think>c</think>", "|R:a|C:b<think>c</think>");
  check("", "a </think> b", "|C:a </think> b");
}

static void opened_by_the_template(void **state) {
  (void)state;
  check("<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\nYes.", "|R:Hm.|C:Yes.");
  check("<think>\n\n</think>\n\n", "Yes.", "|C:Yes.");
  check("<think>\n", "</think>Yes.", "|C:Yes.");
}

static void control_tokens(void **state) {
  (void)state;
  check("", "{<think>}\nHm.\n{</think>}\n\nYes.", "|R:Hm.|C:Yes.");
  check("", "{[THINK]}Hm.{[/THINK]}Yes.", "|R:Hm.|C:Yes.");
  check("", "{<|START_THINKING|>}Hm.{<|END_THINKING|>}{<|START_RESPONSE|>}Yes.{<|END_RESPONSE|>}", "|R:Hm.|C:Yes.");
  check("", "a{<|eot_id|>}b", "|C:ab"); // an end token that was ignored is not text
  check("", "a{<think>}b", "|C:ab");
  check("", "<thi{<|x|>}nk>", "|C:<think>");
  check("", "{<|channel>}thought\nHm.\n{<channel|>}Yes.", "|R:Hm.|C:Yes."); // Gemma 4
}

static void harmony(void **state) {
  (void)state;
  check("<|start|>assistant",
        "{<|channel|>}analysis{<|message|>}Hm.{<|end|>}{<|start|>}assistant{<|channel|>}final"
        "{<|message|>}Yes <think>.{<|return|>}",
        "|R:Hm.|C:Yes <think>.");
  check("<|start|>assistant",
        "{<|channel|>}commentary{<|message|>}I will look.{<|end|>}{<|start|>}assistant"
        "{<|channel|>}commentary to=functions.look{<|constrain|>}json{<|message|>}{<|x|>}42{<|call|>}",
        "|M:I will look.|N:look|T:42");
  check("<|start|>assistant", " to=functions.look{<|channel|>}commentary{<|message|>}1{<|call|>}", "|N:look|T:1");
  check("<|start|>assistant", "{<|message|>}Yes.", "|C:Yes.");
  check("", "{<|channel|>}analysis{<|message|>}Hm.{<|end|>} {<|start|>}assistant{<|channel|>}final{<|message|>}Yes.",
        "|R:Hm.|C:Yes.");
  check("<|start|>assistant", "{<|channel|>}fin", "");
}

static void bytes_of_zero(void **state) {
  (void)state;
  static const char text[] = "<think>a\0b</think>c";
  st_channels c = {0};
  parts p = {0};
  setun_error err;
  assert_int_equal(st_channels_text(&c, text, sizeof text - 1, take, &p, &err), SETUN_OK);
  assert_int_equal(st_channels_finish(&c, take, &p, &err), SETUN_OK);
  assert_string_equal(p.text, "|R:a|C:c"); // strncat ends at the 0 byte; the block's end is found after it
  st_channels_free(&c);
}

static void stopping(void **state) {
  (void)state;
  st_channels c = {0};
  parts p = {.most = 1};
  setun_error err;
  assert_int_equal(st_channels_text(&c, "one", 3, take, &p, &err), SETUN_OK);
  assert_int_equal(st_channels_text(&c, "two", 3, take, &p, &err), SETUN_ERROR_CANCELED);
  st_channels_free(&c);
}

static void long_headers(void **state) {
  (void)state;
  st_channels c;
  parts p = {0};
  setun_error err;
  setun_status s = SETUN_OK;
  st_channels_begin(&c, "<|start|>assistant", 18);
  for (int i = 0; i < 5000 && s == SETUN_OK; i++) s = st_channels_text(&c, "x", 1, take, &p, &err);
  assert_int_equal(s, SETUN_ERROR_LIMIT);
  st_channels_free(&c);
}

// Control tokens belong to a header too, and a model may repeat them forever.
static void long_headers_of_control_tokens(void **state) {
  (void)state;
  static const char *const tokens[] = {"<|start|>", "<|channel|>"};
  for (size_t i = 0; i < 2; i++) {
    st_channels c;
    parts p = {0};
    setun_error err;
    setun_status s = SETUN_OK;
    size_t count = 0;
    st_channels_begin(&c, "", 0);
    for (; s == SETUN_OK && count < 1000; count++) {
      s = st_channels_control(&c, tokens[i], strlen(tokens[i]), take, &p, &err);
    }
    assert_int_equal(s, SETUN_ERROR_LIMIT);
    assert_int_equal(count, 4096 / strlen(tokens[i]) + 1);
    assert_true(c.pending.length <= 4096);
    assert_int_equal(st_channels_finish(&c, take, &p, &err), SETUN_OK);
    assert_string_equal(p.text, "");
    st_channels_free(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks),
      cmocka_unit_test(only_at_the_beginning),
      cmocka_unit_test(opened_by_the_template),
      cmocka_unit_test(control_tokens),
      cmocka_unit_test(harmony),
      cmocka_unit_test(bytes_of_zero),
      cmocka_unit_test(stopping),
      cmocka_unit_test(long_headers),
      cmocka_unit_test(long_headers_of_control_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
