#!/usr/bin/env python3
"""Writes C code that calls every function of setun.h with NULL and nonsense for each of its arguments.

make_api_calls.py OUTPUT HEADER...

A call has one wrong argument, and the others as below, which tests/model/api_arguments.c provides. A function with an
argument of an unknown kind is an error here, so that a new function cannot be left out. Output parameters are filled
with a pattern before the call, which a function that fails must leave; callers' buffers may hold anything then.
"""
import re
import sys

# The value that is passed for an argument, by its type and name.
VALUES = {
    ("const char *", "path"): "model_path", ("const char *", "source"): "model_path",
    ("const char *", "target"): "target_path", ("const char *", "text"): '"a b"', ("const char *", "name"): '"no-tensor"',
    ("const char *", "context"): "conversation", ("const char *", "piece"): '"a b"', ("const char *", "isa"): '"scalar"',
    ("size_t", "n"): "2", ("size_t", "length"): "length_of_text", ("size_t", "piece_length"): "3",
    ("size_t", "capacity"): "capacity", ("size_t", "size"): "4", ("size_t", "index"): "0",
    ("uint32_t", "n"): "1", ("uint32_t", "tokens"): "4", ("uint32_t", "layer"): "0", ("int", "threads"): "1", ("int", "flags"): "0",
    ("uint64_t", "total_bytes"): "4096", ("uint64_t", "buffer_bytes"): "1 << 20", ("uint64_t", "ring_bytes"): "1 << 16",
    ("uint64_t", "offset"): "0", ("setun_token", "id"): "5", ("float", "bias"): "1", ("void *", "user"): "NULL",
    ("const float *", "logits"): "logits", ("const setun_token *", "ids"): "ids", ("const void *", "bytes"): "buffer",
    ("void *", "bytes"): "buffer", ("char *", "text"): "(char *)buffer", ("float *", "data"): "NULL",
    ("const char * const *", "texts"): "stop_texts", ("int", "sequence"): "0", ("size_t", "entry"): "0",
    ("size_t", "i"): "0", ("const setun_adapter *", "list"): "list", ("float", "scale"): "1", ("const setun_batch_entry *", "entries"): "entries",
    ("const setun_embedding_input *", "texts"): "texts", ("float *", "embeddings"): "(float *)buffer",
    ("float *", "embedding"): "(float *)buffer", ("uint32_t *", "bits"): "(uint32_t *)buffer",
}
# Opaque objects: the one to use. Arguments "X **" take a new one, freed with the function beside it.
HANDLES = {"model": "setun_model_free", "adapters": "setun_adapters_free", "session": "setun_session_free", "context": "setun_context_free", "sampler": "setun_sampler_free",
           "decoder": "setun_decoder_free", "stops": "setun_stops_free", "chat": "setun_chat_free",
           "rendering": "setun_rendering_free", "reply": "setun_reply_free", "constraint": "setun_constraint_free", "matcher": "setun_matcher_free", "file": "setun_file_close",
           "output": "setun_output_discard"}
ENDS = set(HANDLES.values()) | {"setun_output_commit"}  # these end the object, so that only NULL can be passed
WRITERS = {"setun_model_save_experts", "setun_session_save", "setun_context_save", "setun_synthesize", "setun_output_open"}
STRUCTS = ["model_info", "plan", "stream_stats", "file_info", "tensor_info", "tensor_zeros", "ceilings",
           "generate_result", "context_info", "draft_stats", "embedding_info", "constraint_info", "device_info", "device_work"]
PARAMS = ["model", "session", "context", "eval", "sampler", "generate", "chat", "file", "convert", "quantize", "synthesis", "embedding", "constraint", "answer"]
ENUMS = ["sampler_step", "status", "kv_type", "token_kind", "channel", "end", "choice", "log_level", "pooling", "grammar"]
OUTS = ["double", "bool", "int", "size_t", "int64_t", "uint32_t", "uint64_t", "setun_token", "setun_token_kind", "setun_candidate", "setun_sampler_order",
        "const char *"]
# NULL has a meaning of its own here.
OPTIONAL = {"error", "adapters", "params", "model_params", "result", "isa", "now", "data", "user", "allowed", "conversation"}
NONSENSE = {"int": ["-1", "1 << 20"], "setun_token": ["-1", "INT32_MAX"], "float": ["NAN", "INFINITY"],
            "index": ["SIZE_MAX"], "uint32_t": ["UINT32_MAX"], "uint64_t": ["0", "UINT64_MAX"]}


def functions(header):
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    text = re.sub(r"SETUN_PARAMS\((\w+)\)", r"SETUN_API void \1_init(\1 *params, size_t size);", text)
    found = []
    for line in re.findall(r"SETUN_API\s+([^;{]*?);", text):
        line = " ".join(line.split())
        match = re.fullmatch(r"(.*?[ *])(setun_\w+)\((.*)\)", line)
        if not match:
            sys.exit("setun.h: not a function: " + line)
        arguments = []
        for argument in ([] if match[3] == "void" else match[3].split(", ")):
            parts = re.fullmatch(r"(.*?)(\w+)(\[\d+\])?", argument)
            kind = parts[1].strip() + (" *" if parts[3] else "")
            arguments.append((" ".join(re.sub(r"\*", " * ", kind).split()), parts[2]))
        found.append((match[1].strip(), match[2], arguments))
    if not found:
        sys.exit("setun.h: no functions")
    return found


def value(function, kind, name, setup):
    """The expression for a right argument; `setup` gets declarations."""
    if name == "path" and function in WRITERS:
        return "target_path"
    if (kind, name) in VALUES:
        return VALUES[kind, name]
    bare = kind.replace("const ", "")
    match = re.fullmatch(r"setun_(\w+)( \*)*", bare)
    base = match[1] if match else None
    if base == "error":
        return "&error"
    if base in HANDLES and bare.endswith("* *"):
        setup.append(f"setun_{base} *made; FILL(made);")
        return "&made"
    if base in HANDLES:
        return base
    if base and base.endswith("_params") and base[:-7] in PARAMS:
        setup.append(f"setun_{base} {name} = make_{base}();")
        return "&" + name
    if base in STRUCTS:
        setup.append(f"setun_{base} {name}; FILL({name}); {name}.size = sizeof {name};")
        return "&" + name
    if base in ENUMS and not bare.endswith("*"):
        return f"(setun_{base})0"
    if base == "clock":
        return "&moment"
    if base == "reply_fn":
        return "on_reply"
    if kind == "uint64_t *" and name == "dims":
        setup.append("uint64_t dims[4] = {0};")
        return name
    if (kind, name) == ("setun_token *", "ids"):
        return "out_ids"
    if (kind, name) == ("setun_candidate *", "candidates"):
        return "candidates"
    if (kind, name) == ("setun_logprob *", "top"):
        return "logprobs"
    for out in OUTS:
        if kind == out + " *":
            setup.append(f"{out} {name}_; FILL({name}_);")
            return f"&{name}_"
    sys.exit(f"{function}: how is {kind} {name} called? Teach {sys.argv[0]}")


def wrong(kind, name):
    """Pairs of a wrong argument and whether it must be refused."""
    bare = kind.replace("const ", "")
    if kind.endswith("*") or kind == "setun_reply_fn":
        yield "NULL", name not in OPTIONAL
    match = re.fullmatch(r"setun_(\w+) \*", bare)
    if match and (match[1] in STRUCTS or match[1][:-7] in PARAMS and match[1].endswith("_params")):
        for size in ("0", "7", "(size_t)-1"):
            yield f"&(setun_{match[1]}){{.size = {size}}}", True
    if bare == "setun_clock *":
        yield "&(setun_clock){0}", True
    enum = re.fullmatch(r"setun_(\w+)", bare)
    if enum and enum[1] in ENUMS:
        yield f"(setun_{enum[1]})99", False
        yield f"(setun_{enum[1]})-1", False
    if name == "buffer_bytes":
        return  # any number has a meaning, and a large one takes many seconds to measure with
    if name == "index" or kind in NONSENSE:
        for text in NONSENSE["index" if name == "index" else kind]:
            yield text, False
    if kind == "size_t" and name != "index":
        yield "0", False


def calls(result, function, arguments):
    for i, (kind, name) in enumerate(arguments):
        for text, refused in wrong(kind, name):
            if function in ENDS and (i or text != "NULL"):
                continue
            if function.endswith("_params_init") and name == "params" and text != "NULL":
                continue
            setup, given = [], []
            for k, (other_kind, other) in enumerate(arguments):
                expression = value(function, other_kind, other, [] if k == i else setup)
                given.append(text if k == i else expression)
            frees = [HANDLES[re.search(r"setun_(\w+)", k)[1]] for k, _ in arguments if k.endswith("* *")
                     and k.startswith("setun_")]
            yield setup, given, text, refused, frees, name


def main():
    headers = []
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as f:
            headers.append(f.read())
    found = functions("\n".join(headers))
    out = ["// Made by tests/support/make_api_calls.py."]
    names = []
    for result, function, arguments in found:
        names.append(function)
        body = []
        for setup, given, text, refused, frees, name in calls(result, function, arguments):
            call = f"{function}({', '.join(given)})"
            what = f'"{function}({name}: {text})"'.replace("&(", "(")
            body.append("  {")
            body.append("    setun_error error = {SETUN_OK, \"\"};")
            body += ["    " + line for line in setup]
            length = "length_of_text = strlen(conversation);" if function == "setun_chat_render" else "length_of_text = 3;"
            body.append("    " + length)
            body.append("    (void)error;")
            if result == "setun_status":
                seen = "NULL" if name == "error" else "&error"
                body.append(f"    setun_status status = {call};")
                body.append(f"    check(status, {seen}, {'true' if refused else 'false'}, {what});")
                for filled in re.findall(r"FILL\((\w+)\)", " ".join(setup)):
                    start = f"sizeof {filled}.size" if any(f"{filled}.size =" in line for line in setup) else "0"
                    body.append(f"    if (status != SETUN_OK) check_filled(&{filled}, {start}, sizeof {filled}, {what});")
            else:
                body.append(f"    (void){call};" if result != "void" else f"    {call};")
            for free in frees:
                if "&made" in given:
                    body.append(f"    if (status == SETUN_OK) {free}(made);")
            body.append("  }")
        out.append(f"static void call_{function}(void) {{")
        out += body
        out.append("}")
    out.append("static const struct {\n  const char *name;\n  void (*call)(void);\n} api_calls[] = {")
    out += [f'    {{"{name}", call_{name}}},' for name in names]
    out.append("};")
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
