#!/usr/bin/env python3
"""Compares chat templates, tokenizers and grammars with published ones: every template that ships with llama.cpp,
rendered by Jinja2 and by Setun, and the calls of tools that it writes, read back; every vocabulary there that comes
with texts and their ids; and every grammar there, by tests/constraint/check_grammars.py. Of every vocabulary, plain
text must not give a control token, be it the tokens' own spelling, nor where the file does not say which its unknown
token is. Nothing of that package is kept in the project.

usage: check_published.py BUILD CACHE
BUILD holds setun, tests/chat_render, tests/chat_calls and tests/constraint_grammars. The PyPI source archive of
llama-cpp-python 0.3.36 is fetched into CACHE, and Jinja2 into a virtual environment there, once. Exit status 1 when
anything differs, 77 when the archive cannot be had.
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv

PACKAGE = "llama-cpp-python==0.3.36"
INSIDE = "/vendor/llama.cpp/"
KEPT = ("models/", "grammars/")
SEPARATOR = b"\n__ggml_vocab_test__\n"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import gguf  # noqa: E402

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6  # of tokenizer.ggml.token_type
TEXTS = ["Hello world", "caf\u00e9 \u65e5\u672c\u8a9e \U0001f642 \u0378\ufffd", "a\tb\r\n\n  c", "\u0000\u0001\u007f",
         "<s>a</s>[CLS]"]


def fetch(cache, python):
    """The folder with the published files."""
    folder = os.path.join(cache, "llama.cpp")
    if os.path.isdir(folder):
        return folder
    subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", cache, PACKAGE],
                   check=True)
    archive = next(name for name in os.listdir(cache)
                   if name.startswith("llama_cpp_python") and name.endswith(".tar.gz"))
    part = folder + ".part"
    with tarfile.open(os.path.join(cache, archive)) as tar:
        for member in tar.getmembers():
            name = member.name.partition(INSIDE)[2]
            if name.startswith(KEPT) and member.isfile():
                path = os.path.join(part, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(tar.extractfile(member).read())
    os.rename(part, folder)
    return folder


def environment(cache):
    """A Python that has Jinja2."""
    folder = os.path.join(cache, "venv")
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "jinja2"], check=True)
    return python


def ids_of(setun, path, text):
    """The ids of a plain text, or the last line of the error message."""
    result = subprocess.run([setun, "tokenize", path, "--ids"], input=text, capture_output=True)
    return result.stderr.decode(errors="replace").strip()[-160:] if result.returncode else json.loads(result.stdout)


def refused(path):
    """Whether the vocabulary's kind is one that Setun refuses by name."""
    model = gguf.read(path)[0]["tokenizer.ggml.model"]
    if model in ("gpt2", "gemma4", "llama", "t5"):
        return False
    print(f"{os.path.basename(path)}: skipped: tokenizer.ggml.model is {model}")
    return True


def texts_of(path):
    """The texts published with a vocabulary, and their ids."""
    if not os.path.exists(path + ".inp"):
        return [], []
    with open(path + ".inp", "rb") as file:
        texts = file.read().split(SEPARATOR)
    with open(path + ".out", encoding="utf-8") as file:
        wanted = [[int(word) for word in line.split()] for line in file.read().split("\n")]
    return texts, wanted[:len(texts)]


def check_vocabulary(setun, path, title):
    """The number of texts that differ, fail, or become control tokens."""
    tokens, types = (gguf.read_array(path, "tokenizer.ggml." + name) for name in ("tokens", "token_type"))
    control = {id for id, kind in enumerate(types) if kind == CONTROL}
    texts, wanted = texts_of(path)
    own = [text.encode() for text in TEXTS] + [b" ".join(tokens[id] for id in sorted(control))]
    differ, wrong = 0, 0
    for i, text in enumerate(texts + own):
        ids = ids_of(setun, path, text)
        if isinstance(ids, str):
            print(f"{title}: {ids}")
        differ += i < len(texts) and ids != wanted[i]
        wrong += isinstance(ids, str) or bool(control & set(ids))
    compared = f"{differ} of {len(texts)} texts differ; " if texts else ""
    print(f"{title}: {compared}{wrong} of {len(texts + own)} texts fail or give one of {len(control)} control tokens")
    return differ + wrong


def check_unknown(setun, path, title, folder):
    """The same for the vocabulary without byte tokens, and with an unknown token that is not the first and that only
    token_type tells of."""
    if gguf.read(path)[0]["tokenizer.ggml.model"] == "gpt2":
        return 0  # text never becomes an unknown token there
    types = gguf.read_array(path, "tokenizer.ggml.token_type")
    last = max(id for id, kind in enumerate(types) if kind == NORMAL)
    types = [{UNKNOWN: CONTROL, BYTE: UNUSED}.get(kind, kind) for kind in types]
    types[0], types[last] = CONTROL, UNKNOWN
    edited = os.path.join(folder, "edited.gguf")
    gguf.edit(path, edited, {"tokenizer.ggml.unknown_token_id": None, "tokenizer.ggml.token_type": types})
    return check_vocabulary(setun, edited, title + ", another unknown token")


def main():
    build, cache = (os.path.abspath(path) for path in sys.argv[1:3])
    os.makedirs(cache, exist_ok=True)
    try:
        python = environment(cache)
        folder = fetch(cache, python)
    except (subprocess.CalledProcessError, OSError, StopIteration) as error:
        print(f"skipped: {PACKAGE} cannot be downloaded: {error}")
        return 77
    models, tests = os.path.join(folder, "models"), os.path.join(ROOT, "tests")
    bad = 0
    for script, program, *inputs in (
            ("chat/compare_published.py", "chat_render", os.path.join(models, "templates")),
            ("chat/compare_calls.py", "chat_calls", os.path.join(models, "templates")),
            ("constraint/check_grammars.py", "constraint_grammars", os.path.join(folder, "grammars"),
             os.path.join(models, "ggml-vocab-llama-bpe.gguf"), os.path.join(ROOT, "models", "setun-tales-7m"))):
        bad |= subprocess.run([python, "-B", os.path.join(tests, script), *inputs,
                               "--program", os.path.join(build, "tests", program)]).returncode != 0
    setun = os.path.join(build, "setun")
    with tempfile.TemporaryDirectory() as scratch:
        for name in sorted(name for name in os.listdir(models) if name.endswith(".gguf")):
            path = os.path.join(models, name)
            if not refused(path):
                bad |= check_vocabulary(setun, path, name) != 0
                bad |= check_unknown(setun, path, name, scratch) != 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
