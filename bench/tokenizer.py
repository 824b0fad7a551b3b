#!/usr/bin/env python3
"""The speed of tokenizers on mixed text and on megabytes of one kind, which must reach a third of the former.

usage: bench/tokenizer.py PROGRAM TOKENIZER...

PROGRAM is build/tests/tokenizer_speed. Mixed text: 10 MB of this repository's documents and sources and the strings of
tests/tok, in many scripts. Prints for each tokenizer a Markdown row: seconds to load, MB/s of mixed text, and how many
times slower the slowest megabyte of one character is, and the slowest of random characters, with their names. The mixed
text repeats its lines in another order, which suits the cache of words: the ratios would be smaller for a text without
repetitions. With the PyPI package tokenizers and a tokenizer.json its MB/s on the same text comes last.
"""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEGABYTE = 1_000_000


def mixed():
    with open(os.path.join(ROOT, "tests", "tok", "strings.json"), encoding="utf-8") as f:
        found = json.load(f)
    strings = [s for s in (found if isinstance(found, list) else list(found.values())) if isinstance(s, str)]
    parts = [" ".join(strings)]
    for pattern in ("docs/*.md", "src/*/*.c", "tests/e2e/*.py", "include/*.h"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            with open(path, encoding="utf-8") as f:
                parts.append(f.read())
    text, out = "\n".join(parts), ""
    random.seed(1)
    lines = text.split("\n")
    while len(out.encode()) < 10 * MEGABYTE:
        random.shuffle(lines)
        out += "\n".join(lines)
    return out.encode()[: 10 * MEGABYTE].decode(errors="ignore")


def megabytes():
    random.seed(2)
    one = {"letter": "a", "capital": "A", "space": " ", "newline": "\n", "digit": "7", "emoji": "\U0001f600",
           "combining": "\u0301", "cjk": "\u6f22", "exclamation": "!", "apostrophe": "'", "tab": "\t", "nul": "\x00"}
    texts = {name: c * (MEGABYTE // len(c.encode())) for name, c in one.items()}
    for name, alphabet in (("letters", "abcdefghijklmnopqrstuvwxyz"), ("digits", "0123456789"), ("mixed case", "aBcDeF"),
                           ("punctuation", "!?.,;:-")):
        texts["random " + name] = "".join(random.choice(alphabet) for _ in range(MEGABYTE))
    return texts


def reference(path, text):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    t = Tokenizer.from_file(path)
    start = time.process_time()
    t.encode(text, add_special_tokens=False)
    return len(text.encode()) / (time.process_time() - start) / 1e6


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = {"mixed": mixed(), **megabytes()}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, text in enumerate(texts.values()):
            files.append(os.path.join(folder, f"{i}.txt"))
            with open(files[-1], "w", encoding="utf-8", newline="") as f:
                f.write(text)
        print("| tokenizer | load s | mixed MB/s | one character, times slower | random, times slower | tokenizers MB/s |\n|---|---|---|---|---|---|")
        for path in sys.argv[2:]:
            done = subprocess.run([sys.argv[1], path, "2", *files], capture_output=True, text=True, check=False)
            lines = done.stdout.splitlines()
            if done.returncode or len(lines) != len(files) + 1:
                print(f"| {os.path.basename(path)} | failed: {done.stderr.strip()[-100:]} |")
                continue
            load = float(lines[0].split()[1] if not lines[0].split()[0][0].isdigit() else lines[0].split()[0])
            speeds = dict(zip(texts, (next(float(w) for w in line.split()[1:] if w[0].isdigit()) for line in lines[1:])))
            ratios = []
            for random_ones in (False, True):
                names = [n for n in speeds if n != "mixed" and n.startswith("random") == random_ones]
                slowest = min(names, key=speeds.get)
                ratios.append(f"{speeds['mixed'] / speeds[slowest]:.2f} ({slowest})")
            theirs = reference(path, texts["mixed"][:2_000_000]) if path.endswith("tokenizer.json") else None
            print(f"| {os.path.basename(path)} | {load:.3f} | {speeds['mixed']:.1f} | {ratios[0]} | {ratios[1]} "
                  f"| {f'{theirs:.2f}' if theirs else ''} |", flush=True)


if __name__ == "__main__":
    main()
