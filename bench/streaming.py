#!/usr/bin/env python3
"""Runs a model under several memory budgets, and prints a Markdown table and a plot of what `setun bench` reports.

usage: bench/streaming.py SETUN MODEL BUDGET... [--cgroup] [--processor] [-- BENCH_OPTION...]

A budget is a size such as 1300M, or "mmap:1300M": the same limit with --no-stream. With --cgroup each run is put into a
memory cgroup (version 1 or 2) with that limit, so that the kernel enforces it; this needs root. Without it the peak of
resident memory is what is checked. Which of the two it was is printed.

With --processor the table is another: the processor's time for each token, in the program and in the system, as the
difference between two runs, one of which decodes twice as many tokens (-n, 6 by default).
"""

import json
import os
import subprocess
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def make_cgroup(limit):
    """A new memory cgroup with the limit; its folder, or None where there can be none."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = f"{root}/setun-bench-{os.getpid()}"
        try:
            os.mkdir(folder)
            with open(f"{folder}/{name}", "w", encoding="ascii") as f:
                f.write(str(limit))
            return folder
        except OSError:
            if os.path.isdir(folder):
                os.rmdir(folder)
    return None


def run(setun, model, budget, use_cgroup, options):
    mapped = budget.startswith("mmap:")
    text = budget.removeprefix("mmap:")
    folder = make_cgroup(size(text)) if use_cgroup else None
    command = [setun, "bench", model, "--memory", text, "--buffer", "64M", "--json", *options]
    if mapped:
        command.append("--no-stream")

    def enter():
        if folder:
            with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))

    with open(model, "rb") as f:  # pages cached for somebody else would not count against the limit
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=enter, check=False)
    after = os.times()
    if folder:
        os.rmdir(folder)
    used = (after.children_user - before.children_user, after.children_system - before.children_system)
    return done, used, folder is not None


def parse():
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    flags = {a for a in arguments if a in ("--cgroup", "--processor")}
    arguments = [a for a in arguments if a not in flags]
    if len(arguments) < 3:
        sys.exit(__doc__)
    return arguments[0], arguments[1], arguments[2:], flags, options


def failed(budget, done):
    print(f"| {budget} | failed ({done.returncode}): {done.stderr.strip()[-120:]} |", flush=True)


def speeds(setun, model, budgets, flags, options):
    enforced, points = None, []
    print("| budget | decode tokens/s | prefill tokens/s | streamed a pass | read GB/s | disk GB/s | tokens/s of disk / bytes "
          "| overlap | prefill overlap | peak |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for budget in budgets:
        done, _, enforced = run(setun, model, budget, "--cgroup" in flags, options)
        if done.returncode:
            failed(budget, done)
            continue
        r = json.loads(done.stdout)
        streamed, disk = r["streamed_bytes_per_pass"], (r.get("disk_read_gbs") or 0) * 1e9
        share = f"{r['decode_tokens_per_s'] * streamed / disk:.2f}" if disk else ""
        print(
            f"| {budget} | {r['decode_tokens_per_s']:.2f} | {r['prefill_tokens_per_s']:.1f} "
            f"| {streamed / 1e9:.2f} GB | {r.get('stream_read_gbs') or 0:.2f} | {disk / 1e9:.2f} | {share} "
            f"| {r.get('stream_overlap') or 0:.2f} | {r.get('prefill_stream_overlap') or 0:.2f} "
            f"| {r['memory_peak'] / 2**20:.0f} MiB |",
            flush=True,
        )
        points.append((budget, r["decode_tokens_per_s"]))
    most = max((speed for _, speed in points), default=1)
    print("\nDecode, tokens/s:\n")
    for budget, speed in points:
        mark = "." if budget.startswith("mmap:") else "#"
        print(f"    {budget:>10}  {mark * max(1, round(speed / most * 60))} {speed:.2f}")
    print("\nlimit enforced by a memory cgroup" if enforced else "\nlimit not enforced: peak of resident memory as reported")


def processor(setun, model, budgets, flags, options):
    tokens = int(options[options.index("-n") + 1]) if "-n" in options else 6
    print("| budget | in the program, ms a token | in the system, ms a token |")
    print("|---|---|---|")
    for budget in budgets:
        times = []
        for n in (tokens, 2 * tokens):
            done, used, _ = run(setun, model, budget, "--cgroup" in flags, [*options, "-n", str(n)])
            times.append(used)
            if done.returncode:
                failed(budget, done)
        user, system = ((b - a) * 1000 / tokens for a, b in zip(*times))
        print(f"| {budget} | {user:.0f} | {system:.0f} |", flush=True)


def main():
    setun, model, budgets, flags, options = parse()
    (processor if "--processor" in flags else speeds)(setun, model, budgets, flags, options)


if __name__ == "__main__":
    main()
