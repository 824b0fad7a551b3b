#!/usr/bin/env python3
"""Compares chat templates and tokenizers with published ones: every template that ships with llama.cpp, rendered by Jinja2
and by Setun, and every vocabulary there that comes with texts and their ids. Nothing of that package is kept in the project.

usage: check_published.py BUILD CACHE
BUILD holds setun and tests/chat_render. The PyPI source archive of llama-cpp-python 0.3.36 is fetched into CACHE, and Jinja2
into a virtual environment there, once. Exit status 1 when anything differs, 77 when the archive cannot be had.
"""
import json
import os
import subprocess
import sys
import tarfile
import venv

PACKAGE = "llama-cpp-python==0.3.36"
INSIDE = "/vendor/llama.cpp/models/"
SEPARATOR = b"\n__ggml_vocab_test__\n"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def fetch(cache, python):
    """The folder with the published files."""
    folder = os.path.join(cache, "published")
    if os.path.isdir(folder):
        return folder
    subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", cache, PACKAGE], check=True)
    archive = next(name for name in os.listdir(cache) if name.startswith("llama_cpp_python") and name.endswith(".tar.gz"))
    part = folder + ".part"
    with tarfile.open(os.path.join(cache, archive)) as tar:
        for member in tar.getmembers():
            if INSIDE in member.name and member.isfile():
                path = os.path.join(part, member.name.split(INSIDE, 1)[1])
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


def check_vocabulary(setun, path):
    """Differing texts, or None where the vocabulary is of a kind that is refused."""
    with open(path + ".inp", "rb") as file:
        texts = file.read().split(SEPARATOR)
    with open(path + ".out", encoding="utf-8") as file:
        wanted = [[int(word) for word in line.split()] for line in file.read().split("\n")]
    differ = 0
    for text, ids in zip(texts, wanted):
        result = subprocess.run([setun, "tokenize", path, "--ids"], input=text, capture_output=True)
        if result.returncode:
            print(f"{os.path.basename(path)}: refused: {result.stderr.decode(errors='replace').strip()[-120:]}")
            return None
        differ += json.loads(result.stdout) != ids
    print(f"{os.path.basename(path)}: {differ} of {len(texts)} texts differ")
    return differ


def main():
    build, cache = (os.path.abspath(path) for path in sys.argv[1:3])
    os.makedirs(cache, exist_ok=True)
    try:
        python = environment(cache)
        folder = fetch(cache, python)
    except (subprocess.CalledProcessError, OSError, StopIteration) as error:
        print(f"skipped: {PACKAGE} cannot be had: {error}")
        return 77
    compare = os.path.join(ROOT, "tests", "chat", "compare_published.py")
    program = os.path.join(build, "tests", "chat_render")
    bad = subprocess.run([python, "-B", compare, os.path.join(folder, "templates"), "--program", program]).returncode != 0
    for name in sorted(os.listdir(folder)):
        if name.endswith(".gguf.inp"):
            bad |= bool(check_vocabulary(os.path.join(build, "setun"), os.path.join(folder, name[:-4])))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
