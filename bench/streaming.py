#!/usr/bin/env python3
"""Runs a model under several memory budgets, and prints a Markdown table and a plot of what `setun bench` reports.

usage: bench/streaming.py SETUN MODEL BUDGET... [--cgroup] [--svg FILE] [-- BENCH_OPTION...]

A budget is a size such as 1300M, or "mmap:1300M": the same limit with --no-stream. With --cgroup each run is put into a
memory cgroup (version 1 or 2) with that limit, so that the kernel enforces it; this needs root. Without it the peak of
resident memory is what is checked. Which of the two it was is printed.

Of a model whose experts are cached, the table has the part of those wanted in decode that the cache had, and the decode
speed relative to 1 / (bytes read per token / disk speed + seconds per token with all experts resident), where a budget with
which everything is resident comes first. --svg draws speed and hits over the part of the experts that is cached.

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


def runs_of(options):
    """The number of decode runs: -r, 3 by default."""
    return int(options[options.index("-r") + 1]) if "-r" in options else 3


def draw(path, points):
    """Two curves over the fraction of experts that is cached: hits in percent, and tokens/s."""
    left, top, width, height = 50, 24, 480, 280
    most = max(speed for _, _, speed in points) * 1.1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{top + height + 46}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for tick in range(0, 101, 20):
        x, y = left + width * tick / 100, top + height * (1 - tick / 100)
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="#1f77b4">{tick}</text>')
        out.append(f'<text x="{left + width + 6}" y="{y + 4}" fill="#d62728">{most * tick / 100:.0f}</text>')
        out.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">{tick}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">experts in the cache, %</text>')
    out.append(f'<text x="{left - 30}" y="{top - 8}" fill="#1f77b4">hits, %</text>')
    out.append(f'<text x="{left + width + 50}" y="{top - 8}" text-anchor="end" fill="#d62728">tokens/s</text>')
    for color, value in (("#1f77b4", lambda p: p[1]), ("#d62728", lambda p: p[2] / most)):
        places = [(left + width * p[0], top + height * (1 - value(p))) for p in points]
        out.append('<polyline points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + f'" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    out.append("</svg>\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def parse():
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    svg = None
    if "--svg" in arguments:
        at = arguments.index("--svg")
        svg = arguments[at + 1]
        del arguments[at:at + 2]
    use_cgroup = "--cgroup" in arguments
    arguments = [a for a in arguments if a != "--cgroup"]
    if len(arguments) < 3:
        sys.exit(__doc__)
    return arguments[0], arguments[1], arguments[2:], use_cgroup, svg, options


def main():
    setun, model, budgets, use_cgroup, svg, options = parse()
    enforced, points, cached, resident = None, [], [], None
    print("| budget | decode tokens/s | prefill tokens/s | streamed a pass | read GB/s | disk GB/s | tokens/s of disk / bytes "
          "| overlap | prefill overlap | processor ms: program, system | planned, peak | experts cached, hits, of the bound |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for budget in budgets:
        done, enforced = run(setun, model, budget, use_cgroup, options)
        if done.returncode:
            print(f"| {budget} | failed ({done.returncode}): {done.stderr.strip()[-120:]} |", flush=True)
            continue
        r = json.loads(done.stdout)
        streamed, disk = r["streamed_bytes_per_pass"], (r.get("disk_read_gbs") or 0) * 1e9
        share = f"{r['decode_tokens_per_s'] * streamed / disk:.2f}" if disk else ""
        mapped = budget.startswith("mmap:")
        if not streamed and not mapped and not resident:
            resident = 1 / r["decode_tokens_per_s"]
        experts, wanted = "", r.get("expert_hits", 0) + r.get("expert_misses", 0)
        if wanted:
            part, hits = r["experts_cached"] / r["experts"], r["expert_hits"] / wanted
            # `streamed_bytes` are those of the decode runs
            read = r["streamed_bytes"] / r["decode_tokens"] / runs_of(options)
            bound = 1 / (read / disk + resident) if resident and disk else 0
            experts = f"{100 * part:.0f}%, {100 * hits:.1f}%" + (f", {r['decode_tokens_per_s'] / bound:.2f}" if bound else "")
            cached.append((part, hits, r["decode_tokens_per_s"]))
        elif resident and not mapped:
            cached.append((1, 1, r["decode_tokens_per_s"]))
        print(
            f"| {budget} | {r['decode_tokens_per_s']:.2f} | {r['prefill_tokens_per_s']:.1f} "
            f"| {streamed / 1e9:.2f} GB | {r.get('stream_read_gbs') or 0:.2f} | {disk / 1e9:.2f} | {share} "
            f"| {r.get('stream_overlap') or 0:.2f} | {r.get('prefill_stream_overlap') or 0:.2f} "
            f"| {r['decode_program_s_per_token'] * 1000:.0f}, {r['decode_system_s_per_token'] * 1000:.0f} "
            f"| {r['memory_planned'] / 2**20:.0f}, {r['memory_peak'] / 2**20:.0f} MiB | {experts} |",
            flush=True,
        )
        points.append((budget, r["decode_tokens_per_s"]))
    if svg and cached:
        draw(svg, sorted(cached))
    most = max((speed for _, speed in points), default=1)
    print("\nDecode, tokens/s:\n")
    for budget, speed in points:
        mark = "." if budget.startswith("mmap:") else "#"
        print(f"    {budget:>10}  {mark * max(1, round(speed / most * 60))} {speed:.2f}")
    print("\nlimit enforced by a memory cgroup" if enforced else "\nlimit not enforced: peak of resident memory as reported")


if __name__ == "__main__":
    main()
