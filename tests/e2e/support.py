"""What the end-to-end tests share: the command, the models, reading its files. Python's standard library only."""
import array
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = os.environ.get("SETUN_COMMAND") or os.path.join(ROOT, "build", "setun")
BUILD = os.environ.get("SETUN_BUILD") or os.path.join(ROOT, "build")
GOLDEN = os.path.join(ROOT, "tests", "golden")
TALES = os.path.join(ROOT, "models", "setun-tales-7m")
MODELS = os.environ.get("SETUN_MODELS") or os.path.join(ROOT, "build-models")
SECONDS = 300
TEST_SECONDS = float(os.environ.get("SETUN_TEST_SECONDS") or 30)  # duration of randomized checks
SEED = os.environ.get("SETUN_TEST_SEED") or "1"                   # their seed
if SEED == "random":
    SEED = str(time.time_ns())


def setun(*args, stdin=b"", **more):
    """Runs the command and returns its result; the caller checks the status."""
    if isinstance(stdin, bytes):
        more["input"] = stdin
    else:
        more["stdin"] = stdin
    more.setdefault("timeout", SECONDS)
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([COMMAND, *map(str, args)], stderr=subprocess.PIPE, **more)


def with_faults(**variables):
    """The environment in which tests/support/faults.c is loaded, with its settings."""
    shim = os.environ.get("SETUN_FAULTS") or os.path.join(BUILD, "tests", "libsetun_faults.so")
    if not os.path.exists(shim):
        raise unittest.SkipTest(f"{shim} is not there")
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return dict(os.environ, LD_PRELOAD=shim, ASAN_OPTIONS=sanitizer.lstrip(":"), **variables)


def failing(path, error, *calls):
    """The environment in which these calls fail with this error for paths with this end."""
    return with_faults(FAULT_PATH=path, FAULT_ERRNO=str(error), FAULT_CALLS=",".join(calls))


def failing_allocation(which=None, count=None):
    """The environment in which this allocation of the process fails ("17": once, "17+": from there on), and in which their
    number is written to the file `count`."""
    told = {"FAULT_ALLOCATION": which, "FAULT_COUNT": count}
    return with_faults(**{name: value for name, value in told.items() if value})


def real_model(name):
    """The path of a model that tools/fetch_test_models.py fetches; without it the test is skipped, with the reason."""
    path = os.path.join(MODELS, name)
    if os.path.exists(path):
        return path
    reason = f"{name} is not in {MODELS} (tools/fetch_test_models.py fetches it)"
    if os.path.exists(path + ".reason"):
        with open(path + ".reason", encoding="utf-8") as file:
            reason = file.read().strip()
    raise unittest.SkipTest(reason)


def golden(*path):
    with open(os.path.join(GOLDEN, *path), encoding="utf-8") as file:
        return json.load(file)


def public_header(folder):
    """The text of setun.h and its parts in a folder, without comments."""
    texts = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts.append(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL))
    return "\n".join(texts)


def read_safetensors(path):
    """Name: (shape, values) for tensors of F32, I32, I64, I8 and U8, and F16 as its bits."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        values = array.array({"F32": "f", "I32": "i", "I64": "q", "U8": "B", "I8": "b", "F16": "H"}[entry["dtype"]])
        begin, end = entry["data_offsets"]
        values.frombytes(data[8 + length + begin:8 + length + end])
        assert len(values) == math.prod(entry["shape"]), name
        tensors[name] = (entry["shape"], values)
    return tensors


def rows(tensor):
    """The rows of a two-dimensional tensor."""
    (count, width), values = tensor
    return [values[i * width:(i + 1) * width] for i in range(count)]


def negative_log_likelihood(row, target):
    most = max(row)
    return most + math.log(math.fsum(math.exp(v - most) for v in row)) - row[target]


def argmax(row):
    return max(range(len(row)), key=row.__getitem__)


class Case(unittest.TestCase):
    def good(self, *args, **more):
        """The command's output; it must succeed."""
        result = setun(*args, **more)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout

    def fails(self, status, *args, mentions=(), **more):
        """The command must end with this status, print one line on stderr that mentions each of these, and nothing on stdout."""
        result = setun(*args, **more)
        text = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, status, text)
        self.assertRegex(text, r"\Asetun: error: [^\n]+\n\Z")
        for word in mentions:
            self.assertIn(str(word), text)
        if result.stdout is not None:
            self.assertEqual(result.stdout, b"")
        return text


class FolderCase(Case):
    """With a folder of its own for each test, `folder`, which is removed after it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)


class CountingResult(unittest.TextTestResult):
    """Counts the tests that ran to their end: a class that is skipped entirely adds one skip and no test."""
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    """Runs the module's tests. Exit status 77, after the reasons, when all were skipped."""
    runner = unittest.TextTestRunner(resultclass=CountingResult, verbosity=2)
    result = unittest.main(module="__main__", exit=False, testRunner=runner).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.passed or result.expectedFailures:
        sys.exit(0)
    if not result.skipped:
        sys.exit("there are no tests")
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    sys.exit(77)
