#!/usr/bin/env python3
"""Runs Setun on published models, if you have their files, and prints one Markdown table to paste into an issue: what
was found, with the published figures.

usage: check_real.py [--setun COMMAND] [--text WIKI_TEST_RAW] [--memory SIZE] [NAME=]PATH ...

PATH is a GGUF file, a Hugging Face directory, or a folder that holds such (each is taken, however deep). NAME is one of the
table FACTS below; without it, a model is recognized by the last two parts of its path, as published files are named. --text
is the test set of wikitext-2 (raw); without it the figures that need it are left open. Exit status: 0 when all is as
published, 1 when anything differs or fails, 2 for wrong usage.

Each model is inspected, all of its bytes are checked, its perplexity is computed where a figure is known for it, and a
sentence goes on, which is for reading only.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests", "golden")
PROMPT, N_RUN = "The capital of France is", 8
CONFIG = "the published config.json"

# A shape is (hidden size, layers, feed-forward size). A perplexity comes with its text (wikitext-2, or a file of
# tests/golden), the options of `setun perplexity`, and the relative difference up to which it counts as the same.
Perplexity = collections.namedtuple("Perplexity", "value text options within source")
# For one GGUF file: its size in bytes and its number of tensors.
File = collections.namedtuple("File", "bytes tensors source")
Fact = collections.namedtuple("Fact", "name pattern architectures shape perplexity file", defaults=(None, None))


def golden(*path):
    """A text with its perplexity by an independent implementation: tests/golden."""
    with open(os.path.join(GOLDEN, *path), encoding="utf-8") as file:
        value = json.load(file)["texts"][0]["perplexity"]
    return Perplexity(value, os.path.join(*path), (), 0.005, "transformers, float32: tests/golden/" + "/".join(path))


# The publisher does not say how the text was divided for this figure. The usual programs score the second halves of windows of 512 tokens: with
# a stride of half a window each token has as much before it. The wrong activation function gives 99.8.
WIKITEXT_2B4T = Perplexity(17.109, "wikitext-2", ("--ctx", 512, "--stride", 256), 0.02, "reported for the right model, its windows not stated")
BITNET = ("bitnet", "bitnet-b1.58", "bitnet-25")
LLAMA, QWEN3, GEMMA3 = ("llama",), ("qwen3",), ("gemma3", "gemma3_text")

FACTS = [
    # A directory has no `file`: publishers split shards differently.
    Fact("bitnet-2b-4t", r"bitnet.*2b.*4t", BITNET, (2560, 30, 6912), WIKITEXT_2B4T,
         File(1187801280, 332, "the published ggml-model-i2_s.gguf")),
    Fact("falcon3-1.58-1b", r"falcon3-1b.*1\.58", LLAMA, (2048, 18, 8192)),
    Fact("falcon3-1.58-3b", r"falcon3-3b.*1\.58", LLAMA, (3072, 22, 9216)),
    Fact("falcon3-1.58-7b", r"falcon3-7b.*1\.58", LLAMA, (3072, 28, 23040)),
    Fact("falcon3-1.58-10b", r"falcon3-10b.*1\.58", LLAMA, (3072, 40, 23040)),
    Fact("falcon-e", r"falcon-?e-", LLAMA, None),
    Fact("trilm-3.9b", r"trilm.*3\.9b", LLAMA, (3072, 30, 9216)),
    Fact("trilm", r"trilm", LLAMA, None),
    Fact("bonsai-1.7b", r"bonsai-1\.7b", QWEN3, (2048, 28, 6144)),
    Fact("bonsai-4b", r"bonsai-4b", QWEN3, (2560, 36, 9728)),
    Fact("bonsai-8b", r"bonsai-8b", QWEN3, (4096, 36, 12288)),
    Fact("llama-3.2-1b", r"llama-3\.2-1b", LLAMA, (2048, 16, 8192)),
    Fact("llama-3.2-3b", r"llama-3\.2-3b", LLAMA, (3072, 28, 8192)),
    Fact("qwen3-0.6b", r"qwen3-0\.6b", QWEN3, (1024, 28, 3072)),
    Fact("qwen3-1.7b", r"qwen3-1\.7b", QWEN3, (2048, 28, 6144)),
    Fact("qwen3-4b", r"qwen3-4b", QWEN3, (2560, 36, 9728)),
    Fact("qwen3-8b", r"qwen3-8b", QWEN3, (4096, 36, 12288)),
    Fact("gemma-3-270m-q4_k_m", r"gemma-3-270m-q4_k_m", GEMMA3, (640, 18, 2048), golden("real", "gemma-3-270m-q4_k_m.json")),
    Fact("gemma-3-1b", r"gemma-3-1b", GEMMA3, (1152, 26, 6912)),
    Fact("gemma-3-4b", r"gemma-3-4b", GEMMA3, (2560, 34, 10240)),
    Fact("gemma-3-12b", r"gemma-3-12b", GEMMA3, (3840, 48, 15360)),
    Fact("smollm2-135m-q4_1", r"smollm2-135m-instruct.q4_1", LLAMA, (576, 30, 1536),
         golden("real", "smollm2-135m-instruct-q4_1.json")),
    Fact("setun-tales-7m", r"setun-tales-7m", BITNET, (256, 8, 768), golden("tales", "golden.json")),
]
COLUMNS = ("model", "file", "container", "formats", "shape", "inspect --check", "perplexity", "published", "goes on",
           "result", "sources")


class Failed(Exception):
    """The last line of the command's error message."""


def setun(options, command, path, *args, stdin=b"", json_too=True):
    more = ("--memory", options.memory) if options.memory and command != "inspect" else ()
    line = [options.setun, command, path, *map(str, args), *more, *(["--json"] if json_too else [])]
    result = subprocess.run(line, input=stdin, capture_output=True)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        raise Failed(lines[-1].replace("setun: error: ", "") if lines else f"exit status {result.returncode}")
    return json.loads(result.stdout) if json_too else result.stdout.decode(errors="replace")


def is_model(path):
    if os.path.isdir(path):
        return os.path.exists(os.path.join(path, "config.json"))
    part = re.search(r"-(\d{5})-of-\d{5}\.gguf$", path)
    return path.endswith(".gguf") and (not part or int(part.group(1)) == 1)


def models_in(path):
    """The paths of the models at a path: itself, or those in a folder."""
    if is_model(path) or not os.path.isdir(path):
        return [path]
    found = []
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        if os.path.isdir(inner) or is_model(inner):
            found += models_in(inner)
    return found


def recognize(path):
    """The row of a file or directory that has its publisher's name; None: there is no row."""
    tail = "/".join(os.path.abspath(path).split(os.sep)[-2:]).lower()
    return next((fact for fact in FACTS if re.search(fact.pattern, tail)), None)


def shape_of(metadata):
    """(hidden size, layers, feed-forward size) from either container; None for what the file does not state."""
    if "general.architecture" in metadata:
        prefix = metadata["general.architecture"]
        keys = [f"{prefix}.{key}" for key in ("embedding_length", "block_count", "feed_forward_length")]
    else:
        metadata = {**metadata.get("text_config", {}), **metadata}
        keys = ["hidden_size", "num_hidden_layers", "intermediate_size"]
    return tuple(int(metadata[key]) if str(metadata.get(key, "")).isdigit() else None for key in keys)


def compare_files(fact, path, found, shape, row, differs):
    """Compares architecture, shape, bytes and tensors with the table."""
    if found["architecture"] not in fact.architectures:
        differs.append(f"architecture {found['architecture']}, published {' or '.join(fact.architectures)}")
    if fact.shape:
        row["sources"].append("shape: " + CONFIG)
        if shape != fact.shape:
            differs.append(f"shape {spelled(shape)}, published {spelled(fact.shape)}")
    if fact.file and any("i2_s" in f["format"] for f in found["formats"]) and os.path.isfile(path):
        row["sources"].append("bytes: " + fact.file.source)
        for what, ours, theirs in (("bytes", os.path.getsize(path), fact.file.bytes),
                                   ("tensors", found["tensors"], fact.file.tensors)):
            if ours != theirs:
                differs.append(f"{ours} {what}, published {theirs}")


def spelled(shape):
    return " x ".join("?" if n is None else str(n) for n in shape)


def compare_perplexity(options, figure, path, row, differs):
    if figure.text == "wikitext-2":
        row["published"] = f"{figure.value} on wikitext-2"
        if not options.text:
            row["perplexity"] = "(no --text)"
            return
        found = setun(options, "perplexity", path, "-f", options.text, *figure.options)
    else:
        row["published"] = f"{figure.value:.4f}"
        with open(os.path.join(GOLDEN, figure.text), encoding="utf-8") as file:
            ids = json.load(file)["texts"][0]["ids"]
        found = setun(options, "perplexity", path, "--ids", "-", "--ctx", len(ids), stdin=json.dumps(ids).encode())
    row["sources"].append("perplexity: " + figure.source)
    row["perplexity"] = f"{found['perplexity']:.4f}"
    off = found["perplexity"] / figure.value - 1
    if not abs(off) <= figure.within:
        differs.append(f"perplexity off by {100 * off:+.1f}%, at most {100 * figure.within:g}% is expected")


def examine(options, fact, path):
    """The model's row of the printed table, and whether everything is as published."""
    row = dict.fromkeys(COLUMNS, "")
    row.update(model=fact.name if fact else "(no row)", file=os.path.basename(os.path.abspath(path)), published="none known",
               sources=[])
    differs = []
    try:
        found = setun(options, "inspect", path)
        shape = shape_of(found["metadata"])
        row.update(container=found["container"], formats=", ".join(f["format"] for f in found["formats"]), shape=spelled(shape))
        row["inspect --check"] = setun(options, "inspect", path, "--check", json_too=False).strip().splitlines()[-1]
        if fact:
            compare_files(fact, path, found, shape, row, differs)
        if fact and fact.perplexity:
            compare_perplexity(options, fact.perplexity, path, row, differs)
        row["goes on"] = setun(options, "run", path, "-p", PROMPT, "-n", N_RUN, "--temp", 0, json_too=False).strip()
    except Failed as e:
        differs.append(f"failed: {e}")
    row["result"] = "; ".join(f"**{text}**" for text in differs) or ("as published" if fact else "runs")
    row["sources"] = "; ".join(row["sources"])
    return row, not differs


def cells(row):
    return "| " + " | ".join(re.sub(r"\s+", " ", str(row[c])).replace("|", "\\|") for c in COLUMNS) + " |"


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setun", default=os.path.join(ROOT, "build", "setun"))
    parser.add_argument("--text")
    parser.add_argument("--memory")
    parser.add_argument("models", nargs="+", metavar="[NAME=]PATH")
    options = parser.parse_args(args)
    known = {fact.name: fact for fact in FACTS}
    given = []
    for word in options.models:
        name, equals, path = word.partition("=")
        if equals and not os.path.exists(word) and name not in known:
            parser.error(f"{name}: expected one of {', '.join(known)}")
        named = known[name] if equals and name in known else None
        for found in models_in(path if named else word):
            given.append((named or recognize(found), found))
    if not given:
        parser.error("no models there")
    version = subprocess.run([options.setun, "--version"], capture_output=True, text=True).stdout.strip()
    print(f"{'; '.join(version.splitlines())}; prompt \"{PROMPT}\"\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    good = True
    for fact, path in given:
        row, same = examine(options, fact, path)
        print(cells(row), flush=True)
        good &= same
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
