#!/usr/bin/env python3
"""Compares Setun's ids with the reference's on many random strings, for the tokenizers of tests/tok and any others.

usage: compare_tokenizers.py PROGRAM [COUNT [FILE ...]]

PROGRAM is build/tests/unit_tokenizer_reference; COUNT defaults to 10000 strings; FILEs (tokenizer.json or .model) to
all of tests/tok. Needs the PyPI packages tokenizers and sentencepiece. Exit status 1 when anything differs. Left out are
strings with "<unk>" for Unigram models of tokenizer.json (see make_tokenizer_fixtures.py).
"""
import glob, json, os, subprocess, sys, tempfile
import make_tokenizer_fixtures as fixtures


def ours(program, path, texts):
    with tempfile.NamedTemporaryFile('w', suffix='.json', encoding='utf8') as f:
        json.dump({'strings': texts}, f)
        f.flush()
        return json.loads(subprocess.run([program, path, f.name], capture_output=True, check=True).stdout)


def differences(program, path, texts):
    folder, file = os.path.split(path)
    name, kind = os.path.splitext(file)
    if kind == '.json' and json.load(open(path))['model']['type'] == 'Unigram': texts = [t for t in texts if '<unk>' not in t]
    fixtures.OUT = folder
    if kind == '.model': fixtures.SENTENCEPIECE.setdefault(name, None)
    want, got = fixtures.reference(name, texts), ours(program, path, texts)
    bad = [(t, g[0], w) for t, g, w in zip(texts, got, want['ids']) if g[0] != w]
    if kind == '.json': bad += [(t, g[1], w) for t, g, w in zip(texts, got, want['special']) if g[1] != w]
    return len(texts), bad


def main():
    program = os.path.abspath(sys.argv[1])
    texts = fixtures.strings(int(sys.argv[2]) if len(sys.argv) > 2 else 10000, 23)
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'tok')
    files = sys.argv[3:] or sorted(f for f in glob.glob(here + '/*') if not f.endswith(('.ids.json', 'strings.json')))
    failed = 0
    for path in files:
        count, bad = differences(program, os.path.abspath(path), texts)
        failed += bool(bad)
        print(f'{os.path.basename(path):24s} {count} strings, {len(bad)} differ', *(repr(b) for b in bad[:2]), flush=True)
    return failed > 0


if __name__ == '__main__': sys.exit(main())
