#!/usr/bin/env python3
"""JSON schemas as constraints, against others' test suites and an oracle.

usage: check_schemas.py PROGRAM TOKENIZER suite FOLDER [--optional] [--verbose]
       check_schemas.py PROGRAM TOKENIZER maskbench FOLDER [--every N] [--times] [--verbose]
       check_schemas.py PROGRAM TOKENIZER samples [FOLDER] [--every N] [--count N] [--seed N]

PROGRAM is bench_schemas (cmake --build --preset release --target bench_schemas). FOLDER is for `suite`
json/tests/draft2020-12 of the source archive of jsonschema (PyPI), for `maskbench` maskbench/data of
github.com/guidance-ai/jsonschemabench, and for `samples` the latter, or nothing: then tests/constraint/schemas.json.
`samples` needs jsonschema-rs (PyPI), which judges texts of tokens that were chosen at random among those allowed.
"""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys

CASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "constraint", "schemas.json")


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("\t", "\\t")


def spaced(value):
    return json.dumps(value, ensure_ascii=True, separators=(" , ", " : "))


def drive(args, mode, lines, *more):
    """The answers, one per line; None where one is missing."""
    done = subprocess.run([args.program, args.tokenizer, mode, *map(str, more)], input="\n".join(lines) + "\n",
                          capture_output=True, text=True, errors="replace")
    if done.stderr:
        print(done.stderr[:2000], file=sys.stderr)
    answers = done.stdout.split("\n")
    return [answers[i] if i < len(answers) else "" for i in range(len(lines))]


def percentile(sorted_values, p):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * p))]


def times(name, values, unit):
    values = sorted(values)
    mean = sum(values) / len(values)
    print(f"{name}: {len(values)}, mean {mean:.1f}, p50 {percentile(values, .5):.1f}, p99 {percentile(values, .99):.1f}, "
          f"p99.9 {percentile(values, .999):.1f}, max {values[-1]:.1f} {unit}")


def suite(args):
    pattern = "optional/**/*.json" if args.optional else "*.json"
    groups = []
    for path in sorted(glob.glob(os.path.join(args.folder, pattern), recursive=True)):
        with open(path, encoding="utf-8") as f:
            groups += [(os.path.relpath(path, args.folder)[:-5], group) for group in json.load(f)]
    lines = ["\t".join([compact(g["schema"])] + [w(t["data"]) for t in g["tests"] for w in (compact, spaced)])
             for _, g in groups]
    table = collections.defaultdict(lambda: [0, 0, 0, 0])
    for (keyword, group), answer in zip(groups, drive(args, "check", lines)):
        if "no value satisfies" in answer:
            answer = "ok " + "00" * len(group["tests"])
        for i, test in enumerate(group["tests"]):
            got = answer[3 + 2 * i:5 + 2 * i] if answer.startswith("ok") else "EE"
            kind = 1 if len(got) < 2 or "E" in got else 0 if got == "01"[test["valid"]] * 2 else 2 if test["valid"] else 3
            table[keyword][kind] += 1
            if kind and args.verbose:
                print(("", "REFUSED", "REJECTED", "ACCEPTED")[kind], keyword, "|", group["description"], "|",
                      test["description"], got, "" if answer.startswith("ok") else answer, compact(group["schema"])[:200],
                      compact(test["data"])[:80])
    print(f"{'keyword':30} right refused wrongly-rejected wrongly-accepted")
    for keyword, row in table.items():
        print(f"{keyword:30}", *row)
    print(f"{'all':30}", *(sum(row[i] for row in table.values()) for i in range(4)))


def maskbench_rows(args):
    rows = []
    for path in sorted(glob.glob(os.path.join(args.folder, "*.json")))[::args.every]:
        with open(path, encoding="utf-8") as f:
            rows.append((os.path.basename(path), json.load(f)))
    return rows


def maskbench(args):
    rows = maskbench_rows(args)
    lines = ["\t".join([compact(row["schema"])] + [compact(t["data"]) for t in row["tests"]]) for _, row in rows]
    counts, why, compiles, masks = [0, 0, 0, 0], collections.Counter(), [], []
    for (name, row), answer in zip(rows, drive(args, "masks" if args.times else "check", lines)):
        parts = answer.split(" ")
        if parts[0] != "ok":
            why[re.sub(r"#\S*/", ".../", answer)[:140]] += 1
            if args.verbose:
                print("REFUSED", name, answer[:300])
            continue
        verdicts = parts[1] if len(parts) > 1 else ""
        for i, test in enumerate(row["tests"]):
            got = verdicts[i:i + 1]
            kind = 1 if got not in ("0", "1") else 0 if (got == "1") == test["valid"] else 2 if test["valid"] else 3
            counts[kind] += 1
            if kind and args.verbose:
                print(("", "LIMIT", "REJECTED", "ACCEPTED")[kind], name, i, test["description"][:80])
        if args.times:
            compiles.append(float(parts[2]) / 1000)
            here = [float(x) for x in parts[3:] if x != "forbidden"]
            masks += here
            if args.verbose and (compiles[-1] > 10 or max(here, default=0) > 2000):
                print(f"SLOW {name}: compile {compiles[-1]:.1f} ms, slowest mask {max(here, default=0):.0f} us")
            if "forbidden" in parts:
                print("FORBIDDEN", name)
    print(f"{len(rows)} schemas, refused {sum(why.values())}; instances right {counts[0]}, beyond a limit {counts[1]}, "
          f"wrongly rejected {counts[2]}, wrongly accepted {counts[3]}")
    for reason, n in why.most_common(20):
        print(f"{n:6} {reason}")
    if args.times:
        times("compile", compiles, "ms")
        times("mask", masks, "us")


def sampled_schemas(args):
    if args.folder:
        return [row["schema"] for _, row in maskbench_rows(args)]
    with open(CASES, encoding="utf-8") as f:
        return [row[1] for row in json.load(f)["cases"]]


def samples(args):
    import jsonschema_rs
    schemas = sampled_schemas(args)
    answers = drive(args, "sample", [compact(s) for s in schemas], args.seed, args.count)
    fine = unfinished = refused = unjudged = wrong = 0
    errors = collections.Counter()
    for schema, answer in zip(schemas, answers):
        if not answer.startswith("ok"):
            refused += 1
            if args.verbose:
                print("REFUSED", compact(schema)[:200], answer[-300:])
            continue
        try:
            validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        except ValueError:  # the oracle refuses the schema
            unjudged += 1
            continue
        for text in answer.split("\t")[1:]:
            if text.endswith("\x1a"):
                unfinished += 1
                continue
            if "\x18" in text:
                errors[text.rpartition("\x18")[2]] += 1
                continue
            try:
                good = validator.is_valid(json.loads(text))
            except ValueError as e:
                good = False
                print(e)
            fine += good
            wrong += not good
            if not good:
                print("WRONG", compact(schema)[:600], text[:400])
    print(f"{len(schemas)} schemas, refused or without a token {refused}; texts valid {fine}, invalid {wrong}, "
          f"unfinished {unfinished}, schemas that the oracle refuses {unjudged}, interrupted by an error {errors.total()}")
    for error, n in errors.most_common():
        print(f"{n:6} {error}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("what", choices=("suite", "maskbench", "samples"))
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--optional", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return {"suite": suite, "maskbench": maskbench, "samples": samples}[args.what](args)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
