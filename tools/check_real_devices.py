#!/usr/bin/env python3
"""Greedy ids of published models on every device that can be used here, beside those of transformers in tests/golden/real.

usage: check_real_devices.py BUILD [NAME ...]

The models are those of tools/fetch_test_models.py, in $SETUN_MODELS or build-models/; NAME chooses some of the table below. The
prompts and what is generated are short: Mesa's lavapipe computes on the CPU. Exit status: 0, 1 where ids differ, 77 where there
is no device or no model.
"""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = os.environ.get("SETUN_MODELS") or os.path.join(ROOT, "build-models")
# File, golden file, tokens of each of the first prompts.
ROWS = [("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1.json", (16, 8)),
        ("gemma-3-270m-q4_k_m.gguf", "gemma-3-270m-q4_k_m.json", (8, 4))]


def run(setun, *args):
    result = subprocess.run([setun, *map(str, args)], stdout=subprocess.PIPE)
    if result.returncode:
        sys.exit(1)
    return json.loads(result.stdout)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    setun, chosen, done, wrong = os.path.join(sys.argv[1], "setun"), sys.argv[2:], 0, 0
    devices = [d["name"] for d in run(setun, "devices", "--json") if "problem" not in d and d["name"] != "cpu"]
    if not devices:
        print("skipped: no device other than the CPU can be used here")
    for file, reference, counts in ROWS:
        path = os.path.join(MODELS, file)
        if chosen and file not in chosen:
            continue
        if not os.path.exists(path):
            print(f"skipped: {file} is not in {MODELS} (tools/fetch_test_models.py fetches it)")
            continue
        with open(os.path.join(ROOT, "tests", "golden", "real", reference), encoding="utf-8") as golden:
            prompts = json.load(golden)["prompts"]
        for device in devices:
            for prompt, n in zip(prompts, counts):
                found = run(setun, "run", path, "-p", prompt["text"], "-n", n, "--temp", 0, "--precise", "--ids",
                            "--ignore-eos", "--special", "-c", 64, "-b", 16, "--device", device)
                same = found == prompt["greedy"][:n]
                done, wrong = done + 1, wrong + (not same)
                print(f"{device}, {file}, {prompt['text']!r}: {n} ids {'as' if same else 'not'} of transformers"
                      + ("" if same else f": expected {prompt['greedy'][:n]}, found {found}"), flush=True)
    return 1 if wrong else 0 if done else 77


if __name__ == "__main__":
    sys.exit(main())
