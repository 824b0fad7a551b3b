#!/usr/bin/env python3
"""Grammars (GBNF) against an independent recognizer: texts of random tokens, and the same with random changes, are
judged by both; masks are compared with each token tried by itself. Texts of grammars named json* are read by Python's
json, too.

usage: check_grammars.py FOLDER VOCABULARY... [--program build/tests/constraint_grammars] [--count N] [--seed N]
Each *.gbnf of FOLDER is used with each VOCABULARY, a GGUF file or a model's directory.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

import earley

LONGEST = 400  # characters that are judged


def changed(r, text, alphabet):
    """The text with one to three characters replaced, left out, doubled or exchanged."""
    out = list(text)
    for _ in range(r.randint(1, 3)):
        i = r.randrange(len(out) + 1)
        kind = r.randrange(4)
        if kind == 0:
            out.insert(i, r.choice(alphabet))
        elif i < len(out):
            if kind == 1:
                del out[i]
            elif kind == 2:
                out[i] = r.choice(alphabet)
            else:
                out.insert(i, out[i])
    return "".join(out)


def run(args, *words, texts=None):
    done = subprocess.run([args.program, *map(str, words)], input=texts, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words[-1]}: {done.stderr.strip()}")
    return done.stdout.split("\n")[:-1]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def check(args, path, vocabulary):
    """The number of faults."""
    oracle, r = earley.Grammar(path.read_text(encoding="utf-8")), random.Random(args.seed)
    lines = run(args, vocabulary, "samples", args.count, args.seed, path)
    made = [json.loads(line) for line in lines if line != "unfinished"]
    made = [text for text in made if len(text) <= LONGEST]
    alphabet = sorted(set("".join(made)) | set("{}[]()\"\n aZ0"))
    texts = made + [changed(r, text, alphabet) for text in made for _ in range(3)]
    verdicts = run(args, vocabulary, "verdicts", path, texts="".join(json.dumps(text) + "\n" for text in texts))
    faults = accepted = 0
    for i, (text, verdict) in enumerate(zip(texts, verdicts, strict=True)):
        right = oracle.accepts(text)
        accepted += right
        if (verdict == "1") != right or (i < len(made) and not right):
            faults += 1
            print(f"{path.name}: {text!r}: expected {right}, found {verdict}")
        if right and path.name.startswith("json") and not is_json(text):
            faults += 1
            print(f"{path.name}: {text!r} is not JSON")
    masks, wrong = map(int, run(args, vocabulary, "masks", 6, args.seed, path)[0].split(" "))
    print(f"{path.name:18} {len(made)} of {len(lines)} texts judged, {len(texts) - len(made)} changed ones "
          f"({accepted - len(made)} of them in the language); {masks} masks, {wrong} bits differ; {faults} faults",
          flush=True)
    return faults + wrong + (not made) + (not masks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("vocabulary", nargs="+")
    parser.add_argument("--program", default="build/tests/constraint_grammars")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    paths = sorted(args.folder.glob("*.gbnf"))
    if not paths:
        sys.exit(f"no *.gbnf in {args.folder}")
    faults = sum(check(args, path, vocabulary) for vocabulary in args.vocabulary for path in paths)
    print(f"{len(paths)} grammars, {len(args.vocabulary)} vocabularies, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
