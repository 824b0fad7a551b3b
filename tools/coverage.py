#!/usr/bin/env python3
"""Prints how many lines of src/ the tests of a coverage build reached, with the files and the lines that they reached least.

usage: tools/coverage.py BUILD [--lines FILE...]

BUILD was made by `cmake --preset coverage` and its tests have run. --lines prints the lines of these files that were
not reached. A line of a header counts as reached when it was in any file that includes it.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def counts(build):
    """For each path: {line: whether it was reached}."""
    objects = os.path.join(build, "CMakeFiles", "setun_objects.dir", "src")
    reached = {}
    notes = [os.path.join(here, name) for here, _, names in os.walk(objects) for name in names if name.endswith(".gcno")]
    if not notes:
        sys.exit(f"{build}: not a coverage build")
    for note in sorted(notes):
        out = subprocess.run(["gcov", "--json-format", "--stdout", note], capture_output=True, check=True).stdout
        for line in out.splitlines():
            for file in json.loads(line)["files"]:
                path = os.path.relpath(os.path.join(build, file["file"]), ROOT)
                if path.startswith("src" + os.sep):
                    lines = reached.setdefault(path, {})
                    for entry in file["lines"]:
                        lines[entry["line_number"]] = lines.get(entry["line_number"], False) or entry["count"] > 0
    return reached


def ranges(lines):
    out = []
    for line in sorted(lines):
        if out and line == out[-1][1] + 1:
            out[-1][1] = line
        else:
            out.append([line, line])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)


def main():
    parser = argparse.ArgumentParser(description="Line coverage of src/.")
    parser.add_argument("build")
    parser.add_argument("--lines", nargs="+", default=[])
    options = parser.parse_args()
    reached = counts(os.path.abspath(options.build))
    for path in options.lines:
        print(f"{path}: {ranges(line for line, yes in reached[path].items() if not yes)}")
    if options.lines:
        return
    total = sum(map(len, reached.values()))
    hit = sum(sum(lines.values()) for lines in reached.values())
    print(f"line coverage of src/: {100 * hit / total:.1f} % ({hit} of {total} lines in {len(reached)} files); least:")
    worst = sorted(reached.items(), key=lambda item: sum(item[1].values()) - len(item[1]))
    for path, lines in worst[:12]:
        print(f"  {sum(lines.values()):5} of {len(lines):5}  {100 * sum(lines.values()) / len(lines):5.1f} %  {path}")


main()
