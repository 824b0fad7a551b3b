#!/usr/bin/env python3
"""JSON schemas as constraints: Setun compared with llguidance and xgrammar, processor time of one thread.

usage: compare_constraints.py PROGRAM TOKENIZER masks FOLDER [--every N] [--engines LIST] [--limit SECONDS]
       compare_constraints.py PROGRAM TOKENIZER suite FOLDER [--engines LIST]

PROGRAM, TOKENIZER and FOLDER are those of check_schemas.py, whose masks and verdicts these are for Setun (engine
"setun"; the others are "llguidance" and "xgrammar", packages of PyPI; xgrammar needs apache-tvm-ffi and pydantic, but
not torch). All engines get the same vocabulary, the same schemas, and the same tokens of the same valid texts. A schema
is compiled and its masks are made in a process of its own, which is ended after --limit seconds.
"""
import argparse
import collections
import glob
import json
import os
import select
import signal
import subprocess
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check_schemas import compact, maskbench_rows, percentile, spaced  # noqa: E402


def drive(args, mode, lines):
    done = subprocess.run([args.program, args.tokenizer, mode], input="".join(line + "\n" for line in lines),
                          capture_output=True, text=True, errors="replace", check=True)
    return done.stdout.split("\n")


class Vocabulary:
    def __init__(self, args):
        rows = [line.split(" ") for line in drive(args, "vocabulary", []) if line]
        self.tokens = [bytes.fromhex(row[1]) if len(row) > 1 else b"" for row in rows]
        self.special = [i for i, row in enumerate(rows) if len(row) < 2 or not row[1]]
        self.end = next(i for i, row in enumerate(rows) if row[0] == "end")


class Llguidance:
    def __init__(self, vocabulary):
        import llguidance
        import llguidance.numpy
        import numpy
        self.module, self.fill = llguidance, llguidance.numpy.fill_next_token_bitmask
        longest = {token: i for i, token in enumerate(vocabulary.tokens) if token}

        class Tokenizer:  # as the package requires it; only forced text would need its splitting
            eos_token_id, bos_token_id = vocabulary.end, None
            special_token_ids = vocabulary.special
            tokens = [token or b"\xff<%d>" % i for i, token in enumerate(vocabulary.tokens)]

            def __call__(self, text):
                return [longest[bytes([byte])] for byte in (text if isinstance(text, bytes) else text.encode())]
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
        self.mask = numpy.full((1, (len(vocabulary.tokens) + 31) // 32), 0, dtype=numpy.int32)

    def compile(self, schema):
        grammar = self.module.LLMatcher.grammar_from_json_schema(schema)
        matcher = self.module.LLMatcher(self.tokenizer, grammar, log_level=0)
        return None if matcher.is_error() else matcher

    def reset(self, matcher):
        matcher.reset()

    def make_mask(self, matcher):
        self.fill(matcher, self.mask)

    def accept(self, matcher, token):
        return matcher.consume_token(token)

    def may_end(self, matcher):
        return matcher.is_accepting()


class Xgrammar:
    def __init__(self, vocabulary):
        import numpy
        import tvm_ffi  # noqa: F401  before torch is replaced

        class Absent(types.ModuleType):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return type(name, (), {})
        torch = sys.modules["torch"] = Absent("torch")
        torch.tensor = lambda *_, **__: None
        sys.modules["transformers"] = Absent("transformers")
        import xgrammar
        self.module, self.end = xgrammar, vocabulary.end
        info = xgrammar.TokenizerInfo(vocabulary.tokens, xgrammar.VocabType.RAW, stop_token_ids=[vocabulary.end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = numpy.full((1, (len(vocabulary.tokens) + 31) // 32), -1, dtype=numpy.int32)

    def compile(self, schema):
        try:
            return self.module.GrammarMatcher(self.compiler.compile_json_schema(schema, strict_mode=False))
        except RuntimeError:
            return None

    def reset(self, matcher):
        matcher.reset()

    def make_mask(self, matcher):
        matcher.fill_next_token_bitmask(self.mask)

    def accept(self, matcher, token):
        return matcher.accept_token(token)

    def may_end(self, matcher):
        return matcher.accept_token(self.end)


ENGINES = {"llguidance": Llguidance, "xgrammar": Xgrammar}


def apart(work, limit):
    """work()'s result, computed by a forked process; None if that fails or takes too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(writer)
    deadline, text = time.monotonic() + limit, b""
    while select.select([reader], [], [], max(0, deadline - time.monotonic()))[0]:
        more = os.read(reader, 1 << 16)
        text += more
        if not more:
            break
    else:
        os.kill(child, signal.SIGKILL)
        text = b""
    os.close(reader)
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def texts_as_tokens(args, schema_texts):
    """The tokens of each text, for each schema's list of texts."""
    answers = drive(args, "encode", ["\t".join(["{}"] + texts) for texts in schema_texts])
    return [[[int(i) for i in text.split(" ")] for text in answer.split("\t") if text]
            for answer in answers[:len(schema_texts)]]


def measure(engine, schema, token_lists):
    start = time.process_time_ns()
    matcher = engine.compile(schema)
    took, masks, wrong = (time.process_time_ns() - start) / 1e6, [], 0
    for tokens in token_lists if matcher else []:
        engine.reset(matcher)
        for token in tokens:
            start = time.process_time_ns()
            engine.make_mask(matcher)
            masks.append((time.process_time_ns() - start) / 1e3)
            if not engine.accept(matcher, token):
                wrong += 1
                break
    return matcher is not None, took, masks, wrong


def summary(name, schemas, refused, late, compiles, masks, wrong):
    compiles, masks = sorted(compiles) or [0], sorted(masks) or [0]
    print(f"{name}: {schemas} schemas, refused {refused}, over the limit of time {late}; compile ms p50 "
          f"{percentile(compiles, .5):.2f}, max {compiles[-1]:.0f}; {len(masks)} masks, us: mean "
          f"{sum(masks) / len(masks):.1f}, p50 {percentile(masks, .5):.1f}, p99 {percentile(masks, .99):.0f}, p99.9 "
          f"{percentile(masks, .999):.0f}, max {masks[-1]:.0f}; valid texts refused on the way {wrong}", flush=True)


def setun_masks(args, rows):
    lines = ["\t".join([compact(row["schema"])] + [compact(t["data"]) for t in row["tests"] if t["valid"]])
             for _, row in rows]
    compiles, masks, refused, wrong = [], [], 0, 0
    for answer in drive(args, "masks", lines)[:len(lines)]:
        parts = answer.split(" ")
        if parts[0] != "ok":
            refused += 1
            continue
        wrong += parts[1].count("0")
        numbers = parts[2:]
        compiles.append(float(numbers[0]) / 1000)
        masks += [float(x) for x in numbers[1:] if x != "forbidden"]
    summary("setun", len(rows), refused, 0, compiles, masks, wrong)


def compare_masks(args):
    rows = maskbench_rows(args)
    schema_texts = [[compact(t["data"]) for t in row["tests"] if t["valid"]] for _, row in rows]
    token_lists = texts_as_tokens(args, schema_texts)
    for name in args.engines.split(","):
        if name == "setun":
            setun_masks(args, rows)
            continue
        engine = ENGINES[name](Vocabulary(args))
        refused, late, compiles, masks, wrong = 0, 0, [], [], 0
        for (_, row), tokens in zip(rows, token_lists):
            done = apart(lambda: measure(engine, compact(row["schema"]), tokens), args.limit)
            if done is None:
                late += 1
            elif not done[0]:
                refused += 1
            else:
                compiles.append(done[1])
                masks += done[2]
                wrong += done[3]
        summary(name, len(rows), refused, late, compiles, masks, wrong)


def verdicts(engine, schema, token_lists):
    matcher = engine.compile(schema)
    if not matcher:
        return "E" * len(token_lists)
    out = ""
    for tokens in token_lists:
        engine.reset(matcher)
        out += str(int(all(engine.accept(matcher, token) for token in tokens) and engine.may_end(matcher)))
        if hasattr(matcher, "is_error") and matcher.is_error():
            matcher = engine.compile(schema)
    return out


def compare_suite(args):
    groups = []
    for path in sorted(glob.glob(os.path.join(args.folder, "*.json"))):
        with open(path, encoding="utf-8") as f:
            groups += json.load(f)
    texts = [[write(t["data"]) for t in g["tests"] for write in (compact, spaced)] for g in groups]
    token_lists = texts_as_tokens(args, texts)
    for name in args.engines.split(","):
        kinds = collections.Counter()
        if name == "setun":
            answers = drive(args, "check", ["\t".join([compact(g["schema"])] + t) for g, t in zip(groups, texts)])
            answers = ["0" * len(t) if "no value satisfies" in a else a[3:] if a.startswith("ok") else "E" * len(t)
                       for a, t in zip(answers, texts)]
        else:
            engine = ENGINES[name](Vocabulary(args))
            answers = [apart(lambda: verdicts(engine, compact(g["schema"]), t), args.limit) or "E" * len(t)
                       for g, t in zip(groups, token_lists)]
        for group, answer in zip(groups, answers):
            for i, test in enumerate(group["tests"]):
                got = answer[2 * i:2 * i + 2]
                right = got == "01"[test["valid"]] * 2
                kinds["refused" if "E" in got else "right" if right else
                      "wrongly rejected" if test["valid"] else "wrongly accepted"] += 1
        print(f"{name}:", ", ".join(f"{kind} {kinds[kind]}" for kind in
                                    ("right", "refused", "wrongly rejected", "wrongly accepted")), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("what", choices=("masks", "suite"))
    parser.add_argument("folder")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--engines", default="setun,llguidance,xgrammar")
    parser.add_argument("--limit", type=int, default=30)
    args = parser.parse_args()
    {"masks": compare_masks, "suite": compare_suite}[args.what](args)


if __name__ == "__main__":
    main()
