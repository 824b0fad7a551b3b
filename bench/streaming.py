#!/usr/bin/env python3
"""Runs a model under several memory budgets, and prints a Markdown table and a plot of what `setun bench` reports.

usage: bench/streaming.py SETUN MODEL BUDGET... [--cgroup] [-- BENCH_OPTION...]

A budget is a size such as 1300M, or "mmap:1300M": the same limit with --no-stream. With --cgroup each run is put into a
memory cgroup (version 1 or 2) with that limit, so that the kernel enforces it; this needs root. Without it the peak of
resident memory is what is checked. Which of the two it was is printed.

The processor's time is that of all threads for one token of decoding, in the program and in the system.
"""

import json
import os
import subprocess
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def make_cgroup(limit):
    """A new memory cgroup with the limit; its folder, or None where none can be made."""
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

    with open(model, "rb") as f:  # pages cached by other processes would not count against the limit
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=enter, check=False)
    if folder:
        os.rmdir(folder)
    return done, folder is not None


def parse():
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    use_cgroup = "--cgroup" in arguments
    arguments = [a for a in arguments if a != "--cgroup"]
    if len(arguments) < 3:
        sys.exit(__doc__)
    return arguments[0], arguments[1], arguments[2:], use_cgroup, options


def main():
    setun, model, budgets, use_cgroup, options = parse()
    enforced, points = None, []
    print("| budget | decode tokens/s | prefill tokens/s | streamed a pass | read GB/s | disk GB/s | tokens/s of disk / bytes "
          "| overlap | prefill overlap | processor ms: program, system | planned, peak |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for budget in budgets:
        done, enforced = run(setun, model, budget, use_cgroup, options)
        if done.returncode:
            print(f"| {budget} | failed ({done.returncode}): {done.stderr.strip()[-120:]} |", flush=True)
            continue
        r = json.loads(done.stdout)
        streamed, disk = r["streamed_bytes_per_pass"], (r.get("disk_read_gbs") or 0) * 1e9
        share = f"{r['decode_tokens_per_s'] * streamed / disk:.2f}" if disk else ""
        print(
            f"| {budget} | {r['decode_tokens_per_s']:.2f} | {r['prefill_tokens_per_s']:.1f} "
            f"| {streamed / 1e9:.2f} GB | {r.get('stream_read_gbs') or 0:.2f} | {disk / 1e9:.2f} | {share} "
            f"| {r.get('stream_overlap') or 0:.2f} | {r.get('prefill_stream_overlap') or 0:.2f} "
            f"| {r['decode_program_s_per_token'] * 1000:.0f}, {r['decode_system_s_per_token'] * 1000:.0f} "
            f"| {r['memory_planned'] / 2**20:.0f}, {r['memory_peak'] / 2**20:.0f} MiB |",
            flush=True,
        )
        points.append((budget, r["decode_tokens_per_s"]))
    most = max((speed for _, speed in points), default=1)
    print("\nDecode, tokens/s:\n")
    for budget, speed in points:
        mark = "." if budget.startswith("mmap:") else "#"
        print(f"    {budget:>10}  {mark * max(1, round(speed / most * 60))} {speed:.2f}")
    print("\nlimit enforced by a memory cgroup" if enforced else "\nlimit not enforced: peak of resident memory as reported")


if __name__ == "__main__":
    main()
