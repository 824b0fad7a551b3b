#!/usr/bin/env python3
"""Compares a model's speed under constraints with its speed without any.

usage: SETUN_LIBRARY=build/libsetun.so PYTHONPATH=python bench/constrained.py MODEL [ROUNDS]

Each round writes four texts in turn, so that a slow moment of the machine meets all of them: a free text, a regular
expression of words (as many choices as a free text has), a JSON array of objects (about half of its text is forced), and
the free one again. Prints tokens a second, their medians, and the medians of the ratios to the round's free texts."""
import statistics
import sys
import time

import setun

N = 96
ROW = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{3,9}$"}, "inhabitants": {"type": "integer"},
                                        "is_capital_city": {"type": "boolean"}},
       "required": ["name", "inhabitants", "is_capital_city"], "additionalProperties": False}


def speed(model, constraint):
    session = model.session(n_ctx=512)
    session.eval(model.tokenize("The cities of the country, one after another:\n", bos=True))
    before, start = session.position, time.perf_counter()
    for _ in session.generate(max_tokens=N, temperature=0.8, seed=3, constraint=constraint):
        pass
    return (session.position - before) / (time.perf_counter() - start)


def main():
    model = setun.Model(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    words = setun.Constraint(model, expression="[A-Za-z][a-z]*([ ,.\\n]+[A-Za-z][a-z]*){400}")
    rows = setun.Constraint(model, json_schema={"type": "array", "items": ROW, "minItems": 40}, ordered=True)
    kinds = {"free": None, "words": words, "JSON": rows}
    for constraint in kinds.values():
        speed(model, constraint)
    found = {name: [] for name in kinds}
    ratios = {name: [] for name in kinds}
    for _ in range(rounds):
        times = {name: speed(model, constraint) for name, constraint in kinds.items()}
        free = (times["free"] + speed(model, None)) / 2
        for name, value in times.items():
            found[name].append(value)
            ratios[name].append(value / free)
    for name in kinds:
        print(f"{name}: {statistics.median(found[name]):.0f} tokens/s, {statistics.median(ratios[name]):.3f} of free "
              f"({min(ratios[name]):.3f} to {max(ratios[name]):.3f})")


if __name__ == "__main__":
    main()
