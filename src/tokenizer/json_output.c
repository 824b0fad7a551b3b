// tokenizer.json: post-processors (which say whether texts begin with BOS and end with EOS) and decoders.
#include "tokenizer/json.h"

#include <string.h>

enum { MAX_NESTING = 8 };

// ---- post-processors ----

// The id of a template's special token: its entry in special_tokens lists one.
static setun_status template_id(const st_tokenizer *t, const st_json *processor, const st_json *item, int32_t *id,
                                setun_error *err) {
  const st_json *name = st_json_get(item, "id");
  const st_json *entry =
      st_json_is_string(name) ? st_json_find(st_json_get(processor, "special_tokens"), st_json_string(name)) : NULL;
  const st_json *ids = st_json_get(entry, "ids");
  uint32_t value;
  if (!st_json_is_array(ids)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "post_processor TemplateProcessing: a special token has no ids");
  }
  if (st_json_size(ids) != 1) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "post_processor TemplateProcessing: a special token of %zu ids is not supported", st_json_size(ids));
  }
  setun_status s = st_json_id(st_json_at(ids, 0), "post_processor TemplateProcessing", t->size, &value, err);
  if (!s) *id = (int32_t)value;
  return s;
}

static setun_status read_template(st_tokenizer *t, const st_json *value, setun_error *err) {
  const st_json *single = st_json_get(value, "single");
  bool seen = false;
  if (!st_json_is_array(single)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "post_processor TemplateProcessing: \"single\" is not an array");
  }
  for (size_t i = 0; i < st_json_size(single); i++) {
    const st_json *item = st_json_at(single, i), *special = st_json_get(item, "SpecialToken");
    if (!special) {
      seen = true;
      continue;
    }
    int32_t id = -1;
    setun_status s = template_id(t, value, special, &id, err);
    if (s) return s;
    if (seen ? t->add_eos : t->add_bos) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                     "post_processor TemplateProcessing: several tokens %s the text are not supported",
                     seen ? "after" : "before");
    }
    if (seen) {
      t->eos = id;
      t->suffix = id + 1;
      t->add_eos = true;
    } else {
      t->bos = id;
      t->add_bos = true;
    }
  }
  return SETUN_OK;
}

static setun_status read_postprocessor(st_tokenizer *t, const st_json *value, int depth, setun_error *err) {
  const char *type;
  setun_status s = st_json_type(value, "post_processor", &type, err);
  if (s) return s;
  if (!strcmp(type, "ByteLevel")) return SETUN_OK; // concerns offsets only
  if (!strcmp(type, "TemplateProcessing")) return read_template(t, value, err);
  if (!strcmp(type, "Sequence") && depth < MAX_NESTING) {
    const st_json *list = st_json_get(value, "processors");
    if (!st_json_is_array(list)) {
      return st_fail(err, SETUN_ERROR_FORMAT, "post_processor Sequence: \"processors\" is not an array");
    }
    for (size_t i = 0; !s && i < st_json_size(list); i++) {
      s = read_postprocessor(t, st_json_at(list, i), depth + 1, err);
    }
    return s;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "post_processor \"%.40s\" is not supported", type);
}

setun_status st_json_read_postprocessor(st_tokenizer *t, const st_json *value, setun_error *err) {
  return value ? read_postprocessor(t, value, 0, err) : SETUN_OK;
}

// ---- decoders ----

typedef struct {
  st_tokenizer *t;
  bool fused; // the steps from here on see the whole text and not each token
} reader;

static setun_status add_decoder(st_tokenizer *t, st_decode_step step, setun_error *err) {
  if (t->n_decoders == ST_MAX_STEPS) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a decoder of more than %d steps", ST_MAX_STEPS);
  }
  t->decoders[t->n_decoders++] = step;
  return SETUN_OK;
}

static setun_status strip_start(st_tokenizer *t, st_bytes mark, uint32_t count, setun_error *err) {
  if (!mark.length || mark.length >= sizeof t->strip || t->strip_count) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "decoder Strip: its \"content\" is not one character, or there are two");
  }
  memcpy(t->strip, mark.data, mark.length);
  t->strip[mark.length] = '\0';
  t->strip_count = count;
  return SETUN_OK;
}

static setun_status read_decode_strip(reader *r, const st_json *value, setun_error *err) {
  st_decode_step step = {.kind = ST_DECODE_STRIP_TOKEN};
  setun_status s = st_json_copy(r->t, value, "content", "decoder Strip", &step.from, err);
  if (!s) s = st_json_u32(value, "start", 0, 1 << 20, &step.count, err);
  if (!s) s = st_json_u32(value, "stop", 0, 1 << 20, &step.stop, err);
  if (s) return s;
  if (!r->fused) return add_decoder(r->t, step, err);
  if (step.stop) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "decoder Strip: \"stop\" after Fuse is not supported");
  return step.count ? strip_start(r->t, step.from, step.count, err) : SETUN_OK;
}

static setun_status read_decode_replace(reader *r, const st_json *value, setun_error *err) {
  st_decode_step step = {.kind = ST_DECODE_REPLACE};
  const st_json *pattern = st_json_get(value, "pattern");
  if (!st_json_is_string(st_json_get(pattern, "String"))) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "decoder Replace: a \"pattern\" that is not a String is not supported");
  }
  setun_status s = st_json_copy(r->t, pattern, "String", "decoder Replace", &step.from, err);
  if (!s && !step.from.length) s = st_fail(err, SETUN_ERROR_FORMAT, "decoder Replace: the pattern is empty");
  if (!s) s = st_json_copy(r->t, value, "content", "decoder Replace", &step.text, err);
  if (!s && r->fused) s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "decoder Replace after Fuse is not supported");
  return s ? s : add_decoder(r->t, step, err);
}

// U+2581 to a space, except at a text's beginning where it was added.
static setun_status read_decode_metaspace(reader *r, const st_json *value, setun_error *err) {
  st_decode_step step = {.kind = ST_DECODE_REPLACE, .text = {" ", 1}};
  const char *scheme = NULL;
  bool add = true;
  setun_status s = st_json_copy(r->t, value, "replacement", "decoder Metaspace", &step.from, err);
  if (!s && !step.from.length) s = st_fail(err, SETUN_ERROR_FORMAT, "decoder Metaspace: \"replacement\" is empty");
  if (!s) s = st_json_bool(value, "add_prefix_space", &add, err);
  if (!s) s = st_json_text(value, "prepend_scheme", &scheme, err);
  if (!s) s = add_decoder(r->t, step, err);
  if (s) return s;
  bool never = scheme ? !strcmp(scheme, "never") : !add;
  r->t->strip_marked = !never;
  r->t->mark = step.from;
  return never ? SETUN_OK : strip_start(r->t, step.text, 1, err);
}

static setun_status read_decoder(reader *r, const st_json *value, int depth, setun_error *err) {
  const char *type;
  setun_status s = st_json_type(value, "decoder", &type, err);
  if (s) return s;
  if (!strcmp(type, "Sequence") && depth < MAX_NESTING) {
    const st_json *list = st_json_get(value, "decoders");
    if (!st_json_is_array(list))
      return st_fail(err, SETUN_ERROR_FORMAT, "decoder Sequence: \"decoders\" is not an array");
    for (size_t i = 0; !s && i < st_json_size(list); i++) s = read_decoder(r, st_json_at(list, i), depth + 1, err);
    return s;
  }
  if (!strcmp(type, "Strip")) return read_decode_strip(r, value, err);
  if (!strcmp(type, "Fuse")) {
    r->fused = true;
    return SETUN_OK;
  }
  if (!strcmp(type, "Replace")) return read_decode_replace(r, value, err);
  if (r->fused) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "decoder \"%.40s\" after Fuse is not supported", type);
  if (!strcmp(type, "ByteLevel")) {
    r->t->plain_added = true;
    return add_decoder(r->t, (st_decode_step){.kind = ST_DECODE_BYTE_LEVEL}, err);
  }
  if (!strcmp(type, "ByteFallback")) return add_decoder(r->t, (st_decode_step){.kind = ST_DECODE_BYTE_FALLBACK}, err);
  if (!strcmp(type, "Metaspace")) return read_decode_metaspace(r, value, err);
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "decoder \"%.40s\" is not supported", type);
}

setun_status st_json_read_decoder(st_tokenizer *t, const st_json *value, setun_error *err) {
  reader r = {.t = t};
  if (value) return read_decoder(&r, value, 0, err);
  if (!t->byte_level) return SETUN_OK;
  t->plain_added = true;
  return add_decoder(t, (st_decode_step){.kind = ST_DECODE_BYTE_LEVEL}, err);
}
