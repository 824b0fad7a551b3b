#!/usr/bin/env python3
"""Judges the calls that build/tests/unit_answer_calls reads out of random answers, by Python's json and jsonschema-rs.

usage: check_calls.py PROGRAM [--answers N] [--model FILE]

PROGRAM is unit_answer_calls; N answers for each format and tool. Needs jsonschema-rs (PyPI).
"""
import argparse
import collections
import json
import subprocess
import sys

import jsonschema_rs


def no_duplicates(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError(f"a key comes twice: {pairs}")
    return dict(pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--answers", type=int, default=20)
    parser.add_argument("--model")
    args = parser.parse_args()
    command = [args.program, "--print", str(args.answers)] + ([args.model] if args.model else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    first, *lines = [line for line in done.stdout.decode().split("\n") if line.startswith(("[{", "{"))]
    functions = [tool["function"] for tool in json.loads(first)]
    schemas = {f["name"]: f.get("parameters", {"type": "object"}) for f in functions}
    validators = {name: jsonschema_rs.validator_for(schema, validate_formats=True) for name, schema in schemas.items()}
    counts, wrong = collections.Counter(), 0
    for line in lines:
        call = json.loads(line)
        counts[call["format"]] += 1
        try:
            good = validators[call["name"]].is_valid(json.loads(call["arguments"], object_pairs_hook=no_duplicates))
        except (KeyError, ValueError) as why:
            print(why)
            good = False
        if not good:
            wrong += 1
            print("WRONG", line)
    for name, count in counts.items():
        print(f"{name:16} {count} calls")
    print(f"{len(counts)} formats, {sum(counts.values())} calls, {wrong} wrong, the program's status {done.returncode}")
    return 1 if wrong or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
