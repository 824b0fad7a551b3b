// setun.h: names of enumerators.
#include "setun.h"

#define NAME_OF(names, index) ((size_t)(index) < sizeof(names) / sizeof *(names) ? (names)[index] : NULL)

const char *setun_status_name(setun_status status) {
  static const char *const names[] = {[SETUN_OK] = "ok",
                                      [SETUN_ERROR_MEMORY] = "memory",
                                      [SETUN_ERROR_IO] = "io",
                                      [SETUN_ERROR_FORMAT] = "format",
                                      [SETUN_ERROR_UNSUPPORTED] = "unsupported",
                                      [SETUN_ERROR_ARGUMENT] = "argument",
                                      [SETUN_ERROR_LIMIT] = "limit",
                                      [SETUN_ERROR_CANCELED] = "canceled",
                                      [SETUN_ERROR_STATE] = "state"};
  return NAME_OF(names, status);
}

const char *setun_token_kind_name(setun_token_kind kind) {
  static const char *const names[] = {
      [SETUN_TOKEN_NORMAL] = "normal", [SETUN_TOKEN_CONTROL] = "control", [SETUN_TOKEN_USER_DEFINED] = "user-defined",
      [SETUN_TOKEN_BYTE] = "byte",     [SETUN_TOKEN_UNKNOWN] = "unknown", [SETUN_TOKEN_UNUSED] = "unused"};
  return NAME_OF(names, kind);
}

const char *setun_channel_name(setun_channel channel) {
  static const char *const names[] = {[SETUN_CHANNEL_CONTENT] = "content",
                                      [SETUN_CHANNEL_REASONING] = "reasoning",
                                      [SETUN_CHANNEL_COMMENTARY] = "commentary",
                                      [SETUN_CHANNEL_CALL] = "call",
                                      [SETUN_CHANNEL_CALL_NAME] = "call_name"};
  return NAME_OF(names, channel);
}

const char *setun_grammar_name(setun_grammar grammar) {
  static const char *const names[] = {[SETUN_GRAMMAR_JSON_SCHEMA] = "json_schema",
                                      [SETUN_GRAMMAR_EXPRESSION] = "expression",
                                      [SETUN_GRAMMAR_GBNF] = "gbnf",
                                      [SETUN_GRAMMAR_LARK] = "lark"};
  return NAME_OF(names, grammar);
}

const char *setun_end_name(setun_end end) {
  static const char *const names[] = {[SETUN_END_TOKEN] = "token",
                                      [SETUN_END_STOP] = "stop",
                                      [SETUN_END_LENGTH] = "length",
                                      [SETUN_END_CONTEXT] = "context",
                                      [SETUN_END_CALLER] = "caller"};
  return NAME_OF(names, end);
}
