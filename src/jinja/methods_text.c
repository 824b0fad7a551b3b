// Methods of strings.
#include "jinja/run.h"

#include <string.h>

static bool wants_string(st_jinja_run *run, const char *method, st_jinja_value v) {
  return v.kind == JINJA_STRING ||
         st_jinja_fail_format(run, "%s expects a string, found %s", method, st_jinja_type_name(v));
}

static bool optional_int(st_jinja_run *run, const char *method, st_jinja_value v, int64_t *out) {
  if (v.kind == JINJA_MISSING || st_jinja_as_int(v, out)) return true;
  return st_jinja_fail_format(run, "%s expects an integer, found %s", method, st_jinja_type_name(v));
}

// The code points [from, to) that start and end name, as a slice; false in *inside when start lies beyond the end.
static bool window(st_jinja_run *run, const char *method, st_jinja_string *s, const st_jinja_value bounds[2],
                   st_jinja_value *part, size_t *from, bool *inside) {
  int64_t n = (int64_t)st_jinja_count_characters(s), at[2] = {0, n};
  for (int i = 0; i < 2; i++) {
    if (bounds[i].kind == JINJA_NONE) continue;
    if (!optional_int(run, method, bounds[i], &at[i])) return false;
    if (at[i] < 0) at[i] = at[i] < -n ? 0 : at[i] + n;
  }
  *inside = at[0] <= n;
  if (at[1] > n) at[1] = n;
  if (at[0] > at[1]) {
    *inside = false;
    at[0] = at[1];
  }
  *from = (size_t)at[0];
  return st_jinja_substring(run, s, st_jinja_character_offset(s, (size_t)at[0]),
                            st_jinja_character_offset(s, (size_t)at[1]), part);
}

static bool affix(const st_jinja_string *s, const st_jinja_string *with, bool at_end) {
  if (with->length > s->length) return false;
  return !with->length || !memcmp(s->data + (at_end ? s->length - with->length : 0), with->data, with->length);
}

static bool starts_or_ends(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                           st_jinja_value *out) {
  st_jinja_value a[3], part;
  size_t from;
  bool inside, at_end = name[0] == 'e';
  if (!st_jinja_bind_arguments(run, name, args, "prefix,start,end", 1, a)) return false;
  if (!window(run, name, s, a + 1, &part, &from, &inside)) return false;
  *out = st_jinja_from_bool(false);
  if (a[0].kind == JINJA_TUPLE) {
    for (size_t i = 0; i < a[0].l->n; i++) {
      if (!st_jinja_charge(run, 1) || !wants_string(run, name, a[0].l->items[i])) return false;
      if (inside && affix(part.s, a[0].l->items[i].s, at_end)) *out = st_jinja_from_bool(true);
    }
    return true;
  }
  if (!wants_string(run, name, a[0])) return false;
  *out = st_jinja_from_bool(inside && affix(part.s, a[0].s, at_end));
  return true;
}

static size_t find_last(st_jinja_run *run, const st_jinja_string *s, const st_jinja_string *needle) {
  size_t found = SIZE_MAX;
  if (needle->length > s->length) return SIZE_MAX;
  for (size_t at = s->length - needle->length + 1; at-- > 0 && found == SIZE_MAX;) {
    if (!st_jinja_charge(run, 1)) return SIZE_MAX;
    if (!needle->length || !memcmp(s->data + at, needle->data, needle->length)) found = at;
  }
  return found;
}

// find, rfind, index, rindex and count.
static bool search(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                   st_jinja_value *out) {
  st_jinja_value a[3], part;
  size_t from;
  bool inside;
  if (!st_jinja_bind_arguments(run, name, args, "sub,start,end", 1, a) || !wants_string(run, name, a[0])) return false;
  if (!window(run, name, s, a + 1, &part, &from, &inside)) return false;
  st_jinja_string *in = part.s, *sub = a[0].s;
  if (!strcmp(name, "count")) {
    int64_t n = 0;
    if (inside && !sub->length) n = (int64_t)st_jinja_count_characters(in) + 1;
    for (size_t at = 0; inside && sub->length && (at = st_jinja_find_text(run, in, sub, at)) != SIZE_MAX;
         at += sub->length)
      n++;
    *out = st_jinja_from_int(n);
    return run->status == SETUN_OK;
  }
  size_t at = !inside ? SIZE_MAX : name[0] == 'r' ? find_last(run, in, sub) : st_jinja_find_text(run, in, sub, 0);
  if (run->status != SETUN_OK) return false;
  if (at == SIZE_MAX && strstr(name, "index"))
    return st_jinja_fail_format(run, "%s: the text is not in the string", name);
  st_jinja_string before = {.data = in->data, .length = at == SIZE_MAX ? 0 : at, .chars = SIZE_MAX};
  *out = st_jinja_from_int(at == SIZE_MAX ? -1 : (int64_t)(from + st_jinja_count_characters(&before)));
  return true;
}

static bool strip(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                  st_jinja_value *out) {
  st_jinja_value a[1];
  int sides = name[0] == 'l'   ? JINJA_STRIP_LEFT
              : name[0] == 'r' ? JINJA_STRIP_RIGHT
                               : JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT;
  if (!st_jinja_bind_arguments(run, name, args, "chars", 0, a)) return false;
  bool given = a[0].kind != JINJA_MISSING && a[0].kind != JINJA_NONE;
  if (given && !wants_string(run, name, a[0])) return false;
  return st_jinja_strip_text(run, s, given ? a[0].s : NULL, sides, out);
}

static bool split(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                  st_jinja_value *out) {
  st_jinja_value a[2];
  int64_t most = -1;
  if (!st_jinja_bind_arguments(run, name, args, "sep,maxsplit", 0, a) || !optional_int(run, name, a[1], &most))
    return false;
  bool given = a[0].kind != JINJA_MISSING && a[0].kind != JINJA_NONE;
  if (given && !wants_string(run, name, a[0])) return false;
  return st_jinja_split_text(run, s, given ? a[0].s : NULL, most < 0 ? -1 : most, name[0] == 'r', out);
}

static bool partition(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                      st_jinja_value *out) {
  st_jinja_value a[1], parts[3];
  if (!st_jinja_bind_arguments(run, name, args, "sep", 1, a) || !wants_string(run, name, a[0])) return false;
  if (!a[0].s->length) return st_jinja_fail_format(run, "%s with an empty separator", name);
  bool right = name[0] == 'r';
  size_t at = right ? find_last(run, s, a[0].s) : st_jinja_find_text(run, s, a[0].s, 0);
  if (run->status != SETUN_OK) return false;
  size_t cut[4] = {0, at, at + a[0].s->length, s->length};
  if (at == SIZE_MAX) cut[1] = cut[2] = right ? 0 : s->length;
  if (!st_jinja_new_list(run, JINJA_TUPLE, 3, out)) return false;
  for (int i = 0; i < 3; i++) {
    if (!st_jinja_substring(run, s, cut[i], cut[i + 1], &parts[i]) || !st_jinja_list_append(run, out->l, parts[i]))
      return false;
  }
  return true;
}

static bool replace(st_jinja_run *run, st_jinja_string *s, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[3];
  int64_t count = -1;
  if (!st_jinja_bind_arguments(run, "replace", args, "old,new,count", 2, a) || !wants_string(run, "replace", a[0]) ||
      !wants_string(run, "replace", a[1]) || !optional_int(run, "replace", a[2], &count))
    return false;
  if (s->safe && !st_jinja_escape_html(run, a[1], &a[1])) return false;
  if (!st_jinja_replace_text(run, s, a[0].s, a[1].s, count, out)) return false;
  out->s->safe = s->safe;
  return true;
}

static bool justify(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                    st_jinja_value *out) {
  st_jinja_value a[2];
  int64_t width;
  uint32_t fill = ' ';
  if (!st_jinja_bind_arguments(run, name, args, "width,fillchar", 1, a)) return false;
  if (!st_jinja_as_int(a[0], &width))
    return st_jinja_fail_format(run, "%s expects an integer, found %s", name, st_jinja_type_name(a[0]));
  if (a[1].kind != JINJA_MISSING) {
    if (!wants_string(run, name, a[1])) return false;
    if (s->safe && !st_jinja_escape_html(run, a[1], &a[1])) return false;
    if (st_jinja_count_characters(a[1].s) != 1)
      return st_jinja_fail_format(run, "%s: the fill must be one character", name);
    fill = 0;
    for (size_t i = 0; i < a[1].s->length; i++) {
      unsigned char c = (unsigned char)a[1].s->data[i];
      fill = i ? fill << 6 | (c & 0x3Fu) : c < 0x80 ? c : c & (0xFFu >> (a[1].s->length + 1));
    }
  }
  st_jinja_builder b = {0};
  // str.center puts the odd one left when the width is odd, unlike format's '^'.
  char align = name[0] == 'l' ? '<' : name[0] == 'r' ? '>' : 'c';
  return st_jinja_put_padded(run, &b, s, width, fill, align) && st_jinja_finish(run, &b, s->safe, out);
}

static bool zfill(st_jinja_run *run, st_jinja_string *s, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  int64_t width;
  if (!st_jinja_bind_arguments(run, "zfill", args, "width", 1, a)) return false;
  if (!st_jinja_as_int(a[0], &width))
    return st_jinja_fail_format(run, "zfill expects an integer, found %s", st_jinja_type_name(a[0]));
  st_jinja_builder b = {0};
  size_t sign = s->length && (s->data[0] == '+' || s->data[0] == '-');
  if (!st_jinja_put_part(run, &b, s, 0, sign)) return false;
  for (int64_t n = (int64_t)st_jinja_count_characters(s); n < width; n++) {
    if (!st_jinja_charge(run, 1) || !st_jinja_put_text(run, &b, "0")) return false;
  }
  return st_jinja_put_part(run, &b, s, sign, s->length) && st_jinja_finish(run, &b, s->safe, out);
}

static bool remove_affix(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                         st_jinja_value *out) {
  st_jinja_value a[1];
  bool suffix = !strcmp(name, "removesuffix");
  if (!st_jinja_bind_arguments(run, name, args, "affix", 1, a) || !wants_string(run, name, a[0])) return false;
  size_t n = affix(s, a[0].s, suffix) ? a[0].s->length : 0;
  return st_jinja_substring(run, s, suffix ? 0 : n, suffix ? s->length - n : s->length, out);
}

static bool splitlines(st_jinja_run *run, st_jinja_string *s, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  int64_t keep = 0;
  if (!st_jinja_bind_arguments(run, "splitlines", args, "keepends", 0, a) ||
      !optional_int(run, "splitlines", a[0], &keep))
    return false;
  return st_jinja_splitlines(run, s, keep != 0, out);
}

static bool join(st_jinja_run *run, st_jinja_string *s, const st_jinja_arguments *args, st_jinja_value *out) {
  st_jinja_value a[1];
  return st_jinja_bind_arguments(run, "join", args, "items", 1, a) && st_jinja_join_items(run, s, a[0], true, out);
}

static bool change_case(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                        bool *known, st_jinja_value *out) {
  static const struct {
    const char *name;
    st_jinja_letter_case to;
  } table[] = {{"lower", JINJA_LOWER},           {"upper", JINJA_UPPER},       {"title", JINJA_TITLE},
               {"capitalize", JINJA_CAPITALIZE}, {"swapcase", JINJA_SWAPCASE}, {"casefold", JINJA_CASEFOLD}};
  *known = false;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(name, table[i].name)) continue;
    *known = true;
    return st_jinja_bind_arguments(run, name, args, "", 0, NULL) && st_jinja_change_case(run, s, table[i].to, out);
  }
  return true;
}

bool st_jinja_string_method(st_jinja_run *run, const char *name, st_jinja_string *s, const st_jinja_arguments *args,
                            st_jinja_value *out) {
  bool known;
  if (!strcmp(name, "format")) return st_jinja_format_text(run, s, args, out);
  if (!strcmp(name, "split") || !strcmp(name, "rsplit")) return split(run, name, s, args, out);
  if (!strcmp(name, "splitlines")) return splitlines(run, s, args, out);
  if (args->n_keywords) return st_jinja_fail_format(run, "%s takes no keyword arguments", name);
  if (strstr(name, "strip")) return strip(run, name, s, args, out);
  if (!strcmp(name, "startswith") || !strcmp(name, "endswith")) return starts_or_ends(run, name, s, args, out);
  if (strstr(name, "find") || strstr(name, "index") || !strcmp(name, "count")) return search(run, name, s, args, out);
  if (!strcmp(name, "replace")) return replace(run, s, args, out);
  if (!strcmp(name, "join")) return join(run, s, args, out);
  if (strstr(name, "partition")) return partition(run, name, s, args, out);
  if (strstr(name, "just") || !strcmp(name, "center")) return justify(run, name, s, args, out);
  if (!strcmp(name, "zfill")) return zfill(run, s, args, out);
  if (!strncmp(name, "remove", 6)) return remove_affix(run, name, s, args, out);
  if (!change_case(run, name, s, args, &known, out)) return false;
  if (known) return true;
  if (!strncmp(name, "is", 2)) {
    if (!st_jinja_bind_arguments(run, name, args, "", 0, NULL) || !st_jinja_charge(run, s->length / 8)) return false;
    *out = st_jinja_from_bool(st_jinja_is_class(s, name));
    return true;
  }
  return st_jinja_fail_unsupported(run, "the method '%s' of a string", name);
}
