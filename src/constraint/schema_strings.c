// Patterns and formats of strings, as terms over their texts.
#include "constraint/frontends.h"
#include "constraint/schema_shape.h"

#include <string.h>

// ---- parts of formats: RFC 3339, 5321 and 5322, 1123, 2673, 4291, 3986, 6901, 6570 ----

#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 "(?:" OCTET "\\.){3}" OCTET
#define GROUP "[0-9A-Fa-f]{1,4}"
#define LAST_GROUPS "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define IPV6                                                                                                           \
  "(?:(?:" GROUP ":){6}" LAST_GROUPS "|::(?:" GROUP ":){5}" LAST_GROUPS "|(?:" GROUP ")?::(?:" GROUP                   \
  ":){4}" LAST_GROUPS "|(?:(?:" GROUP ":){0,1}" GROUP ")?::(?:" GROUP ":){3}" LAST_GROUPS "|(?:(?:" GROUP              \
  ":){0,2}" GROUP ")?::(?:" GROUP ":){2}" LAST_GROUPS "|(?:(?:" GROUP ":){0,3}" GROUP ")?::" GROUP ":" LAST_GROUPS     \
  "|(?:(?:" GROUP ":){0,4}" GROUP ")?::" LAST_GROUPS "|(?:(?:" GROUP ":){0,5}" GROUP ")?::" GROUP "|(?:(?:" GROUP      \
  ":){0,6}" GROUP ")?::)"
#define LABEL "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
// Lengths: at most 64 characters before the last @, at most 253 of a name (RFC 5321, 1035).
#define MAILBOX "(?=[^]{1,64}@[^@]*$)"
#define DOMAIN "(?=[^]{1,253}$)"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
#define ATOM "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL_LOCAL "(?:" ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")"
#define BEYOND "\\u0080-\\u{10FFFF}"
#define IDN_ATOM "[0-9A-Za-z!#$%&'*+/=?^_`{|}~" BEYOND "-]+"
#define IDN_LOCAL "(?:" IDN_ATOM "(?:\\." IDN_ATOM ")*|\"(?:[ !#-\\[\\]-~" BEYOND "]|\\\\[ -~])*\")"
#define IDN_LABEL "[0-9A-Za-z" BEYOND "](?:[0-9A-Za-z" BEYOND "-]{0,61}[0-9A-Za-z" BEYOND "])?"
#define IDN_HOSTNAME IDN_LABEL "(?:\\." IDN_LABEL ")*"
#define DATE                                                                                                           \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"                \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define OFFSET "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
// Second 60 only where a leap second is possible: in the last minute of a day in UTC, spelled in this form.
#define TIME "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?" OFFSET "|23:59:60(?:\\.[0-9]+)?[Zz])"
#define TIME_PARTS "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DATE_PARTS "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define DURATION "P(?:[0-9]+W|" DATE_PARTS "(?:T" TIME_PARTS ")?|T" TIME_PARTS ")"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define ESCAPED "%[0-9A-Fa-f]{2}"
// Formats of URIs and, with the characters `more` beyond ASCII, of IRIs (RFC 3987).
#define IRI "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{EFFFD}"
#define URI_SCHEME "[A-Za-z][A-Za-z0-9+.-]*"
#define PLAIN(more) "(?:[0-9A-Za-z._~!$&'()*+,;=" more "-]|" ESCAPED ")"
#define PCHAR(more) PLAIN(":@" more)
#define REST(more) "(?:/" PCHAR(more) "*)*"
#define AUTHORITY(more)                                                                                                \
  "//(?:" PLAIN(":" more) "*@)?(?:\\[(?:" IPV6 "|[Vv][0-9A-Fa-f]+\\.[0-9A-Za-z._~!$&'()*+,;=:-]+)\\]|" PLAIN(          \
      more) "*)(?::[0-9]*)?" REST(more)
#define HIER(more) "(?:" AUTHORITY(more) "|/(?:" PCHAR(more) "+" REST(more) ")?|" PCHAR(more) "+" REST(more) "|)"
#define RELATIVE(more)                                                                                                 \
  "(?:" AUTHORITY(more) "|/(?:" PCHAR(more) "+" REST(more) ")?|" PLAIN("@" more) "+" REST(more) "|)"
#define TAIL(more) "(?:\\?(?:" PCHAR(more) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define REFERENCE(more) "(?:" URI_SCHEME ":" HIER(more) "|" RELATIVE(more) ")" TAIL(more)
#define VARIABLE "(?:[0-9A-Za-z_]|" ESCAPED ")(?:\\.?(?:[0-9A-Za-z_]|" ESCAPED "))*(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE_EXPRESSION "\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\}"
#define URI_TEMPLATE "(?:[^\\u0000-\\u0020\"'%<>\\\\^`{|}\\u007f]|" ESCAPED "|" TEMPLATE_EXPRESSION ")*"

static const struct {
  const char *name, *expression; // NULL: refused
} FORMATS[] = {
#define FORMAT(name, expression) {name, expression},
#define REFUSED(name) {name, NULL},
#include "constraint/schema_formats.def"
#undef FORMAT
#undef REFUSED
};

static bool compile(st_schema *s, uint32_t node, const char *keyword, const char *text, size_t length, bool search,
                    st_term *term) {
  setun_error err = {0};
  setun_status status = st_expression_term(st_grammar_terms(s->grammar), text, length, search, ST_JSON, term, &err);
  if (status) st_schema_fail(s, status, node, keyword, "%s", err.message);
  return !status;
}

st_term st_schema_pattern(st_schema *s, uint32_t node, const char *keyword, const char *text, size_t length) {
  st_term term = ST_TERM_EMPTY;
  compile(s, node, keyword, text, length, true, &term);
  return term;
}

bool st_schema_format(st_schema *s, uint32_t node, const char *name, st_term *term) {
  for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
    const char *expression = FORMATS[i].expression;
    if (strcmp(name, FORMATS[i].name)) continue;
    if (!expression) st_schema_fail(s, SETUN_ERROR_UNSUPPORTED, node, "format", "\"%s\" cannot be enforced", name);
    return expression && compile(s, node, "format", expression, strlen(expression), false, term);
  }
  return false;
}
