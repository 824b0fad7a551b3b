#!/usr/bin/env python3
"""Writes seeds for the fuzz targets, a folder for each, out of the tests' own files.

usage: tests/fuzz/make_seeds.py FOLDER [COMMAND]

COMMAND is a setun command, which writes the seeds of session files; without it there are none of those. Only Python's
own modules are used. Where a target's first byte chooses what the rest is, see its source.
"""
import json
import os
import struct
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "e2e"))
import gguf  # noqa: E402

LARGEST = 16 << 10  # of a seed; larger ones only slow a fuzzer down


def read(*path):
    with open(os.path.join(TESTS, *path), "rb") as file:
        return file.read()


def seed(target, name, data):
    if len(data) <= LARGEST:
        os.makedirs(os.path.join(FOLDER, target), exist_ok=True)
        with open(os.path.join(FOLDER, target, name.replace("/", "_")), "wb") as file:
            file.write(data)


def bad_files():
    folder = os.path.join(TESTS, "badfiles", "files")
    kinds = {"config.json": 0, "generation_config.json": 1, "model.safetensors.index.json": 2}
    for here, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.join(here, name)
            data, label = read(path), os.path.relpath(path, folder)
            if name.endswith(".gguf"):
                seed("gguf", label, data)
            elif name.endswith(".safetensors"):
                seed("safetensors", label, data)
            elif name in kinds:
                seed("config", label, bytes([kinds[name]]) + data)
                seed("json", label, data)


def tokenizers():
    for name in sorted(os.listdir(os.path.join(TESTS, "tok"))):
        if name.endswith(".model"):
            seed("tokenizer", name, b"\1" + read("tok", name))
        elif name.endswith(".json") and not name.endswith(".ids.json") and name != "strings.json":
            data = json.loads(read("tok", name))
            seed("tokenizer", name, b"\0" + json.dumps(shortened(data), ensure_ascii=False).encode())
            seed("tokenizer", "special-" + name, b"\4" + json.dumps(shortened(data)).encode())
    seed("tokenizer", "charsmap", b"\10" + charsmap())
    seed("tokenizer", "merges", b"\2#version: 0.2\na b\nl l\nH e\nHe ll\n")
    seed("tokenizer", "config", b"\3" + json.dumps({
        "bos_token": "a", "eos_token": {"content": "b"}, "add_bos_token": True, "add_eos_token": False,
        "added_tokens_decoder": {"2": {"content": "ab", "special": True, "lstrip": True}}}).encode())


def charsmap():
    """SentencePiece's compiled map of "H" to "e", of "He" to "lo", and of U+00F6 to "o": a double array and its texts."""
    units = [0] * 1024
    leaf, value = 1 << 8, 1 << 31

    def unit(label, at, to, has_value):
        units[at] = (at ^ to) << 10 | (leaf if has_value else 0) | label

    units[0] = 256 << 10
    unit(ord("H"), 256 ^ ord("H"), 512, True)
    units[512] = value | 0
    unit(ord("e"), 512 ^ ord("e"), 700, True)
    units[700] = value | 2
    unit(0xC3, 256 ^ 0xC3, 768, False)
    unit(0xB6, 768 ^ 0xB6, 704, True)
    units[704] = value | 5
    return struct.pack("<1025I", 4 * len(units), *units) + b"e\0lo\0o\0"


def shortened(tokenizer, most=120):
    """A tokenizer with the first words of its vocabulary and the merges that only need those."""
    model = tokenizer.get("model", {})
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {word: i for word, i in vocab.items() if i < most}
        merges = [m.split(" ") if isinstance(m, str) else m for m in model.get("merges", [])]
        model["merges"] = [m for m in merges if all(x in model["vocab"] for x in (m[0], m[1], m[0] + m[1]))]
    elif isinstance(vocab, list):
        model["vocab"] = vocab[:most]
    return tokenizer


def schemas():
    cases = json.loads(read("constraint", "schemas.json"))
    for i, row in enumerate(cases["cases"] + cases["refused"]):
        seed("schema", f"case-{i}", json.dumps(row[0 if len(row) == 2 else 1]).encode())


def templates():
    cases = json.loads(read("chat", "cases.json"))["cases"]
    for i, case in enumerate(cases):
        text = case["template"].encode()
        seed("template", f"case-{i}", bytes([i % 3]) + text)


def texts():
    strings = json.loads(read("tok", "strings.json"))["strings"]
    kinds, chat, channels = 18, 18, 19
    for i, text in enumerate(strings):
        seed("text", f"string-{i}", bytes([i % kinds]) + text.encode("utf-8", "surrogatepass"))
        seed("text", f"said-{i}", bytes([chat]) + text.encode("utf-8", "surrogatepass"))
    seed("text", "said-marks", bytes([chat]) + b" <s>system\n</s> <unk><s >")
    answers = ["<think>\nHm.\n</think>\n\nYes.\n", "[THINK]a[/THINK]b", "<thinking>a</think></thinking>b", "\n <thi",
               "<seed:think>a</seed:think> b", "Plain <think>x</think>"]
    for i, text in enumerate(answers):
        for tail in range(4):
            seed("text", f"answer-{i}-{tail}", bytes([channels, tail]) + text.encode())
    # <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
    harmony = (b"\xfbanalysis\xfaHm.\xf9\xf8assistant\xfbcommentary to=functions.f \xfa{\"a\":1}\xfd"
               b"\xf8assistant\xfbfinal\xfa Yes.\n\xfc")
    seed("text", "harmony", bytes([channels, 0]) + harmony)
    seed("text", "harmony-begun", bytes([channels, 2]) + harmony)
    seed("text", "harmony-message", bytes([channels, 3]) + harmony[10:])
    seed("text", "header-of-text", bytes([channels, 2]) + b"x" * 4200)
    seed("text", "header-of-control", bytes([channels, 0]) + b"\xfb" * 500)


def constraints():
    gbnf = ['root ::= root "a" | [b-z]* "!"\n', 'root ::= ("- " item){1,3} # c\nitem ::= [^\\n]+ "\\n" | <[2]> | !<[3]>\n',
            'root ::= a "x"?\na ::= b "y" | "p"\nb ::= ws a "z"\nws ::= " "*\n']
    lark = ['start: sum\n?sum: A | sum "+" A -> add\nA: /[0-9]+/ & ~"7"\n%import common.WS\n%ignore WS\n',
            'start: "a"i [B] ("c".."e") ~ 2..3\nB: "b"{2}\n']
    for kind, list_ in enumerate((gbnf, lark, ["(a|b)*a(a|b){12}", "[a-z]{1,100}\\.(com|org)"],
                                  ["^(?=.*\\d)(?!x)\\w+$", "\\u00e9|^\\s*$", "^\\S+@\\S+$"])):
        for i, text in enumerate(list_):
            seed("constraint", f"{kind}-{i}", bytes([kind, i]) + text.encode())


def small_model(architecture, keys=(), tensors=()):
    """A GGUF model of one block, 32 wide, whose weights are zero except the embedding's."""
    ones, some = struct.pack("<32f", *[1] * 32), struct.pack("<32f", *[i / 32 - 0.5 for i in range(32)])
    matrix = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    all_tensors = [("token_embd.weight", (32, 4), 0, some * 4), ("output_norm.weight", (32,), 0, ones),
                   ("output.weight", (32, 4), 0, some * 4)]
    all_tensors += [(f"blk.0.{name}.weight", (32,), 0, ones) for name in ("attn_norm", "ffn_norm")]
    all_tensors += [(f"blk.0.{name}.weight", (32, 32), 8, bytes(32 * 34)) for name in matrix]
    a = architecture
    all_keys = [("general.architecture", a), (a + ".block_count", 1), (a + ".embedding_length", 32),
                (a + ".feed_forward_length", 32), (a + ".attention.head_count", 2), (a + ".context_length", 64),
                (a + ".attention.layer_norm_rms_epsilon", 1e-5), (a + ".rope.freq_base", 1e4),
                ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "llama-bpe"),
                ("tokenizer.ggml.tokens", ["<s>", "a", "b", "ab"]), ("tokenizer.ggml.token_type", [3, 1, 1, 1]),
                ("tokenizer.ggml.merges", ["a b"]), ("tokenizer.ggml.bos_token_id", 0)]
    return all_tensors + list(tensors), all_keys + list(keys)


def models():
    golden = os.path.join(TESTS, "golden")
    for folder in ("hf", "numpy"):
        for name in sorted(os.listdir(os.path.join(golden, folder))):
            path = os.path.join(golden, folder, name, "config.json")
            if os.path.exists(path):
                seed("model", f"parameters-{name}", b"\0" + read(path))
    adapter = ("golden", "numpy", "adapter-first")
    seed("model", "adapter-config", b"\1" + read(*adapter, "adapter_config.json"))
    for kind, model in ((4, "llama3"), (6, "bitnet-auto"), (7, "olmoe")):
        seed("model", f"config-{model}", bytes([kind]) + read("golden", "hf", model, "config.json"))
    seed("model", "generation", b"\5" + read("golden", "hf", "llama3", "generation_config.json"))
    scratch = os.path.join(FOLDER, "scratch.gguf")
    bias = [(f"blk.0.attn_{x}.bias", (32,), 0, bytes(128)) for x in "qkv"]
    for architecture, tensors in (("llama", ()), ("qwen2", bias), ("gemma3", ()), ("bitnet-b1.58", ())):
        gguf.write(scratch, *small_model(architecture, tensors=tensors))
        data = read(scratch)
        seed("model", f"gguf-{architecture}", b"\x08" + data)
        seed("gguf", f"model-{architecture}.gguf", data)
    rank = [("blk.0.attn_q.weight.lora_a", (64, 2), 0, bytes(512)),
            ("blk.0.attn_q.weight.lora_b", (2, 64), 0, bytes(512))]
    gguf.write(scratch, rank, [("general.type", "adapter"), ("general.architecture", "llama"),
                               ("adapter.type", "lora"), ("adapter.lora.alpha", 16.0)])
    seed("model", "adapter-gguf", b"\3" + read(scratch))
    os.remove(scratch)
    a, b = "base_model.model.model.layers.0.self_attn.q_proj.lora_", ".weight"
    header = json.dumps({a + "A" + b: {"dtype": "F32", "shape": [4, 64], "data_offsets": [0, 1024]},
                         a + "B" + b: {"dtype": "F32", "shape": [64, 4], "data_offsets": [1024, 2048]}}).encode()
    seed("model", "adapter-safetensors", b"\2" + struct.pack("<Q", len(header)) + header + bytes(2048))


def sessions(command):
    path = os.path.join(FOLDER, "scratch.session")
    for kv, kind in (("f16", 1), ("f32", 0)):
        for n, prompt in enumerate(("a", "ab c")):
            subprocess.run([command, "run", os.path.join(TESTS, "golden", "hf", "llama3"), "-p", prompt, "-n", str(n + 1),
                            "--kv", kv, "--ctx", "32", "--session", path], check=True, stdout=subprocess.DEVNULL)
            for mend in (0, 2):
                seed("session", f"{kv}-{n}-{mend}", bytes([kind | mend]) + read(path))
            os.remove(path)


def requests():
    said = [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Once"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "4"}, {"role": "user", "content": "upon"}]
    sampling = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "seed": 7,
                "dry_multiplier": 1, "dry_sequence_breakers": ["a", "\n"], "xtc_probability": 0.5, "mirostat": 0, "stop": ["b", "c d"],
                "logit_bias": {"5": 1.5, "text": -2}, "samplers": ["top_k", "temperature"], "n": 2, "dynatemp_range": 0.1,
                "return_progress": True, "timings_per_token": True, "ignore_eos": True, "cache_prompt": False, "t_max_predict_ms": 1000}
    blocks = [{"role": "user", "content": [{"type": "text", "text": "a"}]},
              {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}, {"type": "tool_use", "id": "i", "name": "f", "input": {}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "4"}]}]
    items = [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "4"}]}, {"type": "reasoning"}]
    bodies = {
        "/v1/chat/completions": [{"messages": said}, {"messages": said, "stream": True, "stream_options": {"include_usage": True}, **sampling},
                                 {"messages": said[:1], "logprobs": True, "top_logprobs": 3, "chat_template_kwargs": {"a": 1}},
                                 {"messages": said + [{"role": "assistant", "content": "on"}], "continue_final_message": True},
                                 {"messages": [{"role": "user", "content": "refuse me"}], "reasoning_effort": "low"}],
        "/v1/chat/completions/input_tokens": [{"messages": said}],
        "/v1/completions": [{"prompt": "a", "echo": True, "logprobs": 2, "max_tokens": 1}, {"prompt": [[1, 2], [3]], "stream": True},
                            {"prompt": ["a", 5, "b"], "best_of": 1, **sampling, "n": 1}, {"prompt": "word " * 100}],
        "/v1/embeddings": [{"input": ["a", "b"], "encoding_format": "base64"}, {"input": [1, 2], "dimensions": 4}],
        "/v1/responses": [{"input": "a", "instructions": "b"}, {"input": items, "stream": True, "reasoning": {"effort": "low"},
                                                                "text": {"format": {"type": "text"}}, "tools": [{"type": "web_search"}]}],
        "/v1/messages": [{"messages": blocks, "max_tokens": 2, "system": "s"}, {"messages": blocks[:1], "max_tokens": 1, "stream": True,
                                                                             "thinking": {"type": "enabled"}, "stop_sequences": ["x"]}],
        "/v1/messages/count_tokens": [{"messages": blocks}],
        "/completion": [{"prompt": "a", "n_predict": 2, "n_probs": 2, "response_fields": ["content", "timings/prompt_n"], "return_tokens": True},
                        {"prompt": {"prompt_string": "a"}, "stream": True, "post_sampling_probs": True, "n_probs": 3, **sampling}],
        "/embedding": [{"content": [{"content": [{"type": "text", "text": "a"}]}], "embd_normalize": -1}],
        "/infill": [{"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c", "filename": "d"}]}],
        "/tokenize": [{"content": "a \u00e9", "with_pieces": True, "add_special": True}],
        "/detokenize": [{"tokens": [1, 5, 300]}],
        "/apply-template": [{"messages": said}],
        "/api/show": [{"model": "tales"}],
    }
    for path, several in bodies.items():
        for i, body in enumerate(several):
            seed("request", f"{path}-{i}", f"POST {path}\n".encode() + json.dumps({"model": "tales", **body}).encode())
    for path in ("/v1/models/tales", "/health", "/props?other", "/slots", "/metrics", "/openapi.json", "/api/tags", "/tokenizer_info"):
        seed("request", "get-" + path, f"GET {path}\n".encode())


if not 2 <= len(sys.argv) <= 3:
    sys.exit(__doc__)
FOLDER = os.path.abspath(sys.argv[1])
os.makedirs(FOLDER, exist_ok=True)
bad_files()
tokenizers()
schemas()
templates()
constraints()
texts()
models()
requests()
if len(sys.argv) == 3:
    sessions(sys.argv[2])
