// Which chat template is chosen, and what families' own ones render: the expected texts are those that the families'
// published documents show.
#include "chat/choose.h"
#include "jinja/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static st_text text_of(const char *s) {
  return (st_text){s, strlen(s)};
}

// The vocabulary: a list of control tokens, each followed by a space.
static bool has_control(const void *user, const char *token) {
  const char *found = strstr(user, token);
  return found && found[strlen(token)] == ' ';
}

static const char *const of_llama[] = {"Llama 3", "ChatML", NULL};
static const char *const of_bitnet[] = {"BitNet b1.58 2B4T", NULL};
static const char *const of_gemma[] = {"Gemma", NULL};
static const char *const of_qwen[] = {"ChatML", NULL};

static st_chat_model model(const char *const *templates, const char *tokens) {
  return (st_chat_model){"a-family", templates, has_control, tokens};
}

static const char llama3[] = "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> ";

typedef struct heard {
  char text[512];
  int warnings;
} heard;

static void hear(setun_log_level level, const char *message, void *user) {
  heard *h = user;
  h->warnings += level == SETUN_LOG_WARNING;
  snprintf(h->text, sizeof h->text, "%s", message);
}

static void own_template_is_taken(void **state) {
  (void)state;
  st_templates t = {0};
  st_chosen_template chosen;
  heard h = {0};
  st_log log = {hear, &h};
  st_chat_model m = model(of_llama, llama3);
  setun_error err;
  assert_true(st_templates_add(&t, text_of("tool_use"), text_of("T"), "tools.jinja"));
  assert_true(st_templates_add(&t, text_of("default"), text_of("D"), "default.jinja"));
  assert_true(st_templates_add(&t, text_of("default"), text_of("second"), "other"));
  assert_int_equal(st_choose_template(&t, &m, NULL, false, &log, &chosen, &err), SETUN_OK);
  assert_string_equal(chosen.text, "D");
  assert_string_equal(chosen.origin, "default.jinja");
  assert_int_equal(st_choose_template(&t, &m, NULL, true, &log, &chosen, &err), SETUN_OK);
  assert_string_equal(chosen.text, "T");
  assert_int_equal(st_choose_template(&t, &m, "tool_use", false, &log, &chosen, &err), SETUN_OK);
  assert_string_equal(chosen.text, "T");
  assert_int_equal(st_choose_template(&t, &m, "rag", false, &log, &chosen, &err), SETUN_ERROR_STATE);
  assert_non_null(strstr(err.message, "rag"));
  assert_non_null(strstr(err.message, "tool_use, default"));
  assert_int_equal(h.warnings, 0);
  st_templates_free(&t);
}

static void no_template_and_no_family_is_an_error(void **state) {
  (void)state;
  st_templates none = {0}, named = {0};
  st_chosen_template chosen;
  setun_error err;
  st_log log = {0};
  st_chat_model m = model(of_llama, "<s> </s> "), unknown = model(NULL, llama3);
  assert_int_equal(st_choose_template(&none, &m, NULL, false, &log, &chosen, &err), SETUN_ERROR_STATE);
  assert_non_null(strstr(err.message, "a template may be given"));
  assert_int_equal(st_choose_template(&none, &unknown, NULL, false, &log, &chosen, &err), SETUN_ERROR_STATE);
  assert_true(st_templates_add(&named, text_of("rag"), text_of("R"), "rag.jinja"));
  m = model(of_llama, llama3);
  assert_int_equal(st_choose_template(&named, &m, NULL, false, &log, &chosen, &err), SETUN_ERROR_STATE);
  assert_non_null(strstr(err.message, "rag"));
  assert_non_null(strstr(err.message, "a template may be given"));
  st_templates_free(&named);
}

static void check_family(const char *const *known, const char *tokens, const st_templates *templates,
                         const char *expected) {
  static const char context[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
                                "{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": "
                                "\"Hello\"}, {\"role\": \"user\", \"content\": \"Bye\"}], "
                                "\"bos_token\": \"<BOS>\", \"add_generation_prompt\": true}";
  heard h = {0};
  st_log log = {hear, &h};
  st_chat_model m = model(known, tokens);
  st_chosen_template chosen;
  st_template *compiled = NULL;
  st_buffer out = {0};
  setun_error err = {0};
  st_json *variables;
  st_json_parse_values(context, strlen(context), "context", &variables, &err);
  assert_non_null(variables);
  assert_int_equal(st_choose_template(templates, &m, NULL, false, &log, &chosen, &err), SETUN_OK);
  assert_int_equal(h.warnings, 1);
  assert_non_null(strstr(h.text, chosen.origin));
  assert_int_equal(st_template_compile(chosen.text, chosen.length, "family", &compiled, &err), SETUN_OK);
  assert_int_equal(st_template_render(compiled, variables, NULL, &out, NULL, &err), SETUN_OK);
  assert_string_equal(out.data, expected);
  st_template_free(compiled);
  st_buffer_free(&out);
  st_json_free(variables);
}

static const char bitnet_turns[] =
    "<BOS>System: Be brief.<|eot_id|>User: Hi<|eot_id|>Assistant: Hello<|eot_id|>User: Bye<|eot_id|>Assistant: ";

static void families_stand_in(void **state) {
  (void)state;
  st_templates none = {0};
  check_family(of_bitnet, llama3, &none, bitnet_turns);
  check_family(of_llama, llama3, &none,
               "<BOS><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
               "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n");
  check_family(of_qwen, "<|im_start|> <|im_end|> ", &none,
               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
               "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n");
  check_family(of_gemma, "<start_of_turn> <end_of_turn> ", &none,
               "<BOS><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
               "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
}

// The template in the published GGUF file of BitNet b1.58 2B4T writes turns that the model never saw.
static void known_wrong_template_is_replaced(void **state) {
  (void)state;
  st_templates t = {0};
  st_chat_model m = model(of_bitnet, llama3);
  st_chosen_template chosen;
  heard h = {0};
  st_log log = {hear, &h};
  setun_error err;
  assert_true(st_templates_add(&t, text_of("default"), text_of("Human: {{ messages[0].content }}BITNETAssistant: "),
                               "tokenizer.chat_template"));
  check_family(of_bitnet, llama3, &t, bitnet_turns);
  assert_int_equal(st_choose_template(&t, &m, NULL, false, &log, &chosen, &err), SETUN_OK);
  assert_non_null(strstr(h.text, "tokenizer.chat_template"));
  st_templates_free(&t);
  // The directory's template of the same model is right.
  assert_true(st_templates_add(&t, text_of("default"), text_of("{{ 'x<|eot_id|>' }}"), "tokenizer_config.json"));
  h.warnings = 0;
  assert_int_equal(st_choose_template(&t, &m, NULL, false, &log, &chosen, &err), SETUN_OK);
  assert_string_equal(chosen.origin, "tokenizer_config.json");
  assert_int_equal(h.warnings, 0);
  st_templates_free(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_template_is_taken),
      cmocka_unit_test(no_template_and_no_family_is_an_error),
      cmocka_unit_test(families_stand_in),
      cmocka_unit_test(known_wrong_template_is_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
