#!/usr/bin/env python3
"""Runs synthetic models of some hundred megabytes under many memory budgets, mapped, and resident, and compares.

usage: tools/check_streaming.py BUILD FOLDER

BUILD holds the command `setun`; the models are made in FOLDER once. Every budget from the least that the plan names up to
the whole model must give the same token ids, with every number of threads, and its peak of resident memory must stay below
it. Status 77: skipped, for the reason that is printed.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
SPACE = 3 << 30
# The embedding, which is also the head, and two matrices.
MODELS = {"2b4t": ("--synthetic", "2b4t", "--format", "t16", "--head", "q6_k"),
          "1b": ("--synthetic", "1b", "--format", "t16", "--head", "q8_0")}
PROMPT = " ".join(f"the {word} of number {i}" for i, word in enumerate(["weight", "row", "layer", "head", "token"] * 5))
COMMON = ("--ctx", "1024")
SHARES = (0, 0.1, 0.25, 0.5, 0.75, 0.97)


def run(command):
    """The output, and the peak of resident memory in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(command)}: {process.returncode}: {err.read().decode()}")
        return out.read().decode(), usage.ru_maxrss * 1024


def ids(setun, model, *options):
    text, peak = run([setun, "run", model, *COMMON, "-p", PROMPT, "-n", "6", "--temp", "0", "--ids", *map(str, options)])
    return json.loads(text), peak


def check(setun, name, model):
    plan = json.loads(run([setun, "plan", model, *COMMON, "--memory", "64G", "--json"])[0])
    least, total = plan["least"] + 4 * MIB, plan["total"] + 20 * MIB
    expected, peak = ids(setun, model)
    failed = 0
    print(f"{name}: {plan['weights'] / MIB:.0f} MiB of weights, least {least / MIB:.0f} MiB, peak {peak / MIB:.0f} MiB")
    for i, share in enumerate(SHARES):
        budget = least + int(share * (total - least))
        threads = 1 + i % 3
        found, peak = ids(setun, model, "--memory", budget, "-t", threads)
        wrong = "" if found == expected else "  OTHER IDS"
        over = "" if peak <= budget else "  ABOVE THE BUDGET"
        failed += bool(wrong or over)
        print(f"  budget {budget / MIB:6.0f} MiB, {threads} threads: peak {peak / MIB:6.0f} MiB{wrong}{over}", flush=True)
    found, _ = ids(setun, model, "--no-stream")
    failed += found != expected
    print(f"  mapped: {'the same ids' if found == expected else 'OTHER IDS'}")
    return failed


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    setun, folder = os.path.join(sys.argv[1], "setun"), sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name, options in MODELS.items():
        model = os.path.join(folder, f"streaming-{name}.gguf")
        if not os.path.exists(model):
            if shutil.disk_usage(folder).free < SPACE:
                print(f"check_streaming.py: skipped: less than {SPACE >> 30} GiB free in {folder}")
                sys.exit(77)
            run([setun, "bench", *options, "--save", model, "-p", "1", "-n", "1", "-r", "1", "--buffer", "1M"])
        failed += check(setun, name, model)
    sys.exit(f"check_streaming.py: {failed} of the runs failed" if failed else 0)


if __name__ == "__main__":
    main()
