#!/usr/bin/env python3
"""Out of memory everywhere: the n-th allocation of the whole process fails, those of every library included, or all from
it on do. The command then gives what it gives undisturbed, or ends with status 1 and one line that says so; it leaves
nothing behind, and what was there as it was. See tests/support/faults.c.

$SETUN_TEST_SECONDS is how long that is tried for (with many it ends when all was), $SETUN_TEST_SEED what the order of what
is tried begins with."""
import concurrent.futures
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
import unittest

from support import GOLDEN, MODELS, ROOT, SEED, TALES, TEST_SECONDS, Case, failing_allocation, main, real_model, setun

MESSAGE = {"messages": [{"role": "user", "content": "Please transfer 100 euros to Alice"}],
           "tools": [{"type": "function", "function": {"name": "transfer"}}], "add_generation_prompt": True}
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}"
            "{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
TEXT = ("-p", "Once upon a time", "-n", 4, "--temp", 0, "-t", 2)
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
OUT_OF_MEMORY = re.compile(rb"\Asetun: error: [^\n]*out of memory[^\n]*\n\Z")


class Job:
    """A command, with "{}" for the folder that it works in, the files that are there before, and its status."""

    def __init__(self, *args, files=None, stdin=b"", status=0):
        self.args, self.files, self.stdin, self.status = args, files or {}, stdin, status
        self.expected = self.left = self.warnings = self.count = None

    def run(self, folder, **more):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, data in self.files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        return setun(*(str(a).replace("{}", folder) for a in self.args), stdin=self.stdin, **more)


def contents(folder):
    """Path: bytes of all files in the folder."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                found[os.path.relpath(os.path.join(path, name), folder)] = file.read()
    return found


def warnings_of(result):
    return {line for line in result.stderr.split(b"\n") if line.startswith(b"setun: warning")}


class AllocationTest(Case):
    def setUp(self):
        if os.environ.get("SETUN_SANITIZE"):
            self.skipTest("sanitizers have allocators of their own")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.local, self.lock = threading.local(), threading.Lock()
        self.workers = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def own_folder(self):
        """A folder of this thread's own."""
        if not hasattr(self.local, "folder"):
            with self.lock:
                self.workers += 1
                self.local.folder = self.path(f"worker-{self.workers}")
        return self.local.folder

    def jobs(self):
        gguf, session = self.path("tales.gguf"), self.path("tales.session")
        context, template = json.dumps(MESSAGE).encode(), TEMPLATE.encode()
        talk = {"t.jinja": template, "c.json": context}
        self.good("convert", TALES, "--to", "t2", "-o", gguf)
        self.good("run", TALES, *TEXT, "--session", session)
        older = {"out": self.read("tales.session")}
        with open(os.path.join(ROOT, "tests", "tok", "sp_bpe.model"), "rb") as file:
            pieces = file.read()
        own = {}
        for name in os.listdir(TALES):
            with open(os.path.join(TALES, name), "rb") as file:
                own["model/" + name] = file.read()
        return {
            "render": Job("render", "--template", "{}/t.jinja", "--context", "{}/c.json", files=talk),
            "render with ids": Job("render", TALES, "--template", "{}/t.jinja", "--context", "{}/c.json", "--ids", files=talk),
            "tokenize": Job("tokenize", TALES, "-p", "The quick brown fox, 12 dogs."),
            "tokenize with a GGUF file": Job("tokenize", gguf, "-p", "The quick brown fox, 12 dogs."),
            "tokenize with scores": Job("tokenize", os.path.join(GOLDEN, "gguf", "gemma3-plain.gguf"), "-p", "A quick fox."),
            "tokenize with tokenizer.model": Job("tokenize", "{}", "-p", "A quick fox.", files={"tokenizer.model": pieces}),
            "logits of shards": Job("logits", os.path.join(GOLDEN, "hf", "llama3-tied-sharded"), "--ids", "1,2,3", "-t", 2,
                                    "-o", "{}/out"),
            "detokenize": Job("detokenize", TALES, 1, 2, 300),
            "inspect": Job("inspect", TALES, "--json"),
            "run": Job("run", TALES, *TEXT),
            "run with a GGUF file": Job("run", gguf, *TEXT),
            "chat": Job("chat", TALES, "--template", "{}/t.jinja", "-n", 3, "--temp", 0, "-t", 2, files=talk,
                        stdin=b"Hello there\nAnd then?\n"),
            "session saved": Job("run", TALES, *TEXT, "--session", "{}/out"),
            "session loaded": Job("run", TALES, *TEXT, "--session", "{}/out", files=older),
            "convert": Job("convert", TALES, "--to", "t2", "-o", "{}/out.gguf", files={"out.gguf": b"older"}),
            "convert to a directory": Job("convert", gguf, "--to", "hf-u8", "-o", "{}/out"),
            "logits onto an own file": Job("logits", "{}/model", "-p", "a", "-o", "{}/model/config.json", files=own, status=2),
            "logits": Job("logits", TALES, "-p", "Once", "-o", "{}/out"),
            "perplexity": Job("perplexity", TALES, "-p", "Once upon a time there was a", "-t", 2),
            "adapters": Job("logits", os.path.join(GOLDEN, "hf", "llama3"), "--ids", "1,2,3", "-t", 2, "-o", "{}/out",
                            "--lora", os.path.join(GOLDEN, "numpy", "adapter-first") + ":0.75",
                            "--lora", os.path.join(GOLDEN, "numpy", "adapter-first.gguf")),
            **self.streaming(),
        }

    def streaming(self):
        """A run whose weights are read again for each token, if a large enough model is available."""
        if not os.path.exists(os.path.join(MODELS, SMOL)):
            return {}
        args = (real_model(SMOL), "--ctx", 64, "--batch-size", 8, "-t", 2)
        least = json.loads(self.good("plan", *args, "--json"))["least"]
        return {"streaming": Job("run", *args, "-p", "Once upon", "-n", 2, "--temp", 0, "--memory", least + (2 << 20))}

    def prepare(self, jobs):
        """Runs each without faults; its allocations are counted."""
        count = self.path("count")
        for name, job in jobs.items():
            folder = self.own_folder()
            result = job.run(folder, env=failing_allocation(count=count))
            self.assertEqual(result.returncode, job.status, result.stderr.decode(errors="replace"))
            if not os.path.exists(count):
                self.skipTest("the allocations of this system's C library are not counted")
            job.expected, job.left, job.warnings = result.stdout, contents(folder), warnings_of(result)
            job.count = int(self.read("count"))
            self.assertGreater(job.count, 0, name)

    def wrong(self, job, which):
        """The fault in the command's end while these allocations fail; None: there is none."""
        folder = self.own_folder()
        result = job.run(folder, env=failing_allocation(which))
        found = contents(folder)
        text = f"status {result.returncode}, {result.stdout[-300:]} {result.stderr[-300:]}"
        if result.returncode == job.status:
            same = (result.stdout, found, warnings_of(result)) == (job.expected, job.left, job.warnings)
            return None if same else "another result: " + text
        if result.returncode != 1 or not OUT_OF_MEMORY.match(result.stderr):
            return text
        if not job.expected.startswith(result.stdout.rstrip(b"\n")):  # an open line is ended
            return "another text before the error: " + text
        return None if found == job.files else f"files {sorted(found)} are left, or changed: " + text

    def test_each_fails(self):
        jobs = self.jobs()
        self.prepare(jobs)
        trials = [(name, f"{n}{rest}") for name, job in jobs.items() for n in range(1, job.count + 1) for rest in ("", "+")]
        random.Random(SEED).shuffle(trials)
        trials.sort(key=lambda trial: trial[0] != "render")  # these first, and all of them
        end, done, faults = time.monotonic() + TEST_SECONDS, 0, []

        def attempt(trial):
            if time.monotonic() > end and trial[0] != "render":
                return None
            return trial, self.wrong(jobs[trial[0]], trial[1])

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for outcome in pool.map(attempt, trials):
                done += outcome is not None
                if outcome and outcome[1]:
                    faults.append(outcome)
        print(f"seed {SEED}: {done} of {len(trials)} failures of allocations tried", flush=True)
        for (name, which), text in sorted(faults):
            print(f"{name}, allocation {which}: {text}", flush=True)
        self.assertFalse(faults)


if __name__ == "__main__":
    main()
