#!/usr/bin/env python3
"""`setun run` on the small model of the repository."""
import json
import os
import pty
import re
import signal
import subprocess
import tempfile

from support import COMMAND, TALES, Case, main, setun

PROMPT = "Once upon a time"
CONTEXT = 256  # tokens that the model was trained on


def prompt_ids(text):
    """Ids with BOS."""
    return json.loads(setun("tokenize", TALES, "--ids", "--bos", "-p", text).stdout)


class RunTest(Case):
    def ids(self, *args, **more):
        return json.loads(self.good("run", TALES, "--ids", *args, **more))

    def text(self, *args, **more):
        return self.good("run", TALES, *args, **more).decode()

    def test_errors_are_text(self):
        """For any bytes in a name: no control characters (C1 ones have two bytes), and valid UTF-8."""
        error = self.fails(1, "run", os.fsdecode(b"a\x1bb\xc2\x9bc\xedd\xc3\xa9"), "-p", "a")
        self.assertIn("a b??c?d\u00e9: ", error)

    def test_echo_then_new_text(self):
        whole = self.text("-p", PROMPT, "-n", 20, "--temp", 0)
        new = self.text("-p", PROMPT, "-n", 20, "--temp", 0, "--no-echo")
        self.assertEqual(whole, PROMPT + new)
        self.assertTrue(whole.endswith("\n"))
        self.assertFalse(whole.endswith("\n\n"))

    def test_ids_decode_to_the_text(self):
        ids = self.ids("-p", PROMPT, "-n", 20, "--temp", 0)
        self.assertEqual(len(ids), 20)
        text = self.good("detokenize", TALES, stdin=json.dumps(ids).encode()).decode()
        self.assertEqual(self.text("-p", PROMPT, "-n", 20, "--temp", 0, "--no-echo"), text + "\n")

    def test_the_ways_to_give_a_prompt(self):
        want = self.ids("-p", PROMPT, "-n", 8, "--temp", 0)
        with tempfile.NamedTemporaryFile() as file:
            file.write(PROMPT.encode())
            file.flush()
            self.assertEqual(self.ids("-f", file.name, "-n", 8, "--temp", 0), want)
        self.assertEqual(self.ids("-f", "-", "-n", 8, "--temp", 0, stdin=PROMPT.encode()), want)
        self.assertEqual(self.ids("-n", 8, "--temp", 0, stdin=PROMPT.encode()), want)

    def test_no_prompt_at_a_terminal_is_wrong_usage(self):
        leader, follower = pty.openpty()
        try:
            self.fails(2, "run", TALES, stdin=follower, mentions=["-p", "-f"])
        finally:
            os.close(leader)
            os.close(follower)

    def test_zero_new_tokens(self):
        self.assertEqual(self.ids("-p", PROMPT, "-n", 0), [])
        self.assertEqual(self.text("-p", PROMPT, "-n", 0), PROMPT + "\n")

    def test_empty_prompt_begins_from_bos(self):
        self.assertEqual(len(self.ids("-p", "", "-n", 5, "--temp", 0, "--ignore-eos")), 5)

    def test_seeds(self):
        first = self.ids("-p", PROMPT, "-n", 24, "--seed", 5, "--ignore-eos")
        self.assertEqual(self.ids("-p", PROMPT, "-n", 24, "--seed", 5, "--ignore-eos"), first)
        others = [self.ids("-p", PROMPT, "-n", 24, "--seed", seed, "--ignore-eos") for seed in (6, 7, 8)]
        self.assertTrue(any(other != first for other in others))
        # without a seed, one is chosen and shown, and gives the same text again
        result = setun("run", TALES, "--ids", "-p", PROMPT, "-n", 24, "--ignore-eos", "--verbose")
        seed = result.stderr.decode().split("seed ")[1].split()[0]
        self.assertEqual(self.ids("-p", PROMPT, "-n", 24, "--ignore-eos", "--seed", seed), json.loads(result.stdout))

    def test_off_values_and_one_candidate(self):
        greedy = self.ids("-p", PROMPT, "-n", 16, "--temp", 0, "--ignore-eos")
        self.assertEqual(self.ids("-p", PROMPT, "-n", 16, "--top-k", 1, "--ignore-eos"), greedy)
        self.assertEqual(self.ids("-p", PROMPT, "-n", 16, "--min-p", 1, "--ignore-eos"), greedy)

    def test_threads_and_batches_give_the_same_text(self):
        prompt = "The little dragon wanted to fly over the mountain, but it was afraid of the wind. " * 3
        want = self.ids("-p", prompt, "-n", 40, "--temp", 0, "--ignore-eos", "-t", 1)
        self.assertEqual(self.ids("-p", prompt, "-n", 40, "--temp", 0, "--ignore-eos", "-t", 2), want)
        for batch in (1, 7, 512):
            with self.subTest(batch=batch):
                got = self.ids("-p", prompt, "-n", 40, "--temp", 0, "--ignore-eos", "--batch-size", batch)
                self.assertEqual(got, want)

    def test_kv_formats(self):
        for kv in ("f16", "f32", "q8", "q4", "q8,q4", "f32,f16"):
            self.assertEqual(len(self.ids("-p", PROMPT, "-n", 8, "--kv", kv, "--ignore-eos")), 8)

    def test_prompt_longer_than_the_context(self):
        count = len(prompt_ids(PROMPT))
        self.fails(1, "run", TALES, "-p", PROMPT, "--ctx", count - 1, mentions=[f"{count} tokens", f"holds {count - 1}"])

    def test_reaching_the_end_of_the_context(self):
        count = len(prompt_ids(PROMPT))
        result = setun("run", TALES, "-p", PROMPT, "--ctx", count + 4, "--temp", 0, "--ids", "--ignore-eos")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(json.loads(result.stdout)), 4)
        self.assertRegex(result.stderr.decode(), rf"context of {count + 4} tokens is full \({count} of the prompt, 4 new")
        result = setun("run", TALES, "-p", PROMPT, "--ctx", count, "--ids")
        self.assertEqual((result.returncode, result.stdout), (0, b"[]\n"))
        self.assertRegex(result.stderr.decode(), rf"context of {count} tokens is full \({count} of the prompt, 0 new")
        result = setun("run", TALES, "-p", PROMPT, "-n", 4, "--ctx", count + 4, "--temp", 0, "--ids", "--ignore-eos")
        self.assertEqual((len(json.loads(result.stdout)), result.stderr), (4, b""))
        result = setun("run", TALES, "-p", "", "--ctx", 1, "--ids")
        self.assertIn(b"context of 1 token is full (1 of the prompt, 0 new", result.stderr)
        result = setun("run", TALES, "-p", PROMPT, "--ids", "--ignore-eos", "--temp", 0)
        self.assertEqual(len(json.loads(result.stdout)), CONTEXT - count)

    def test_end_token_stops_unless_ignored(self):
        prompt = "And they were the best of friends. The end."
        for seed in range(40):
            ids = self.ids("-p", prompt, "--seed", seed, "-n", 60)
            if 1 in ids:
                break
        self.assertEqual(ids.index(1), len(ids) - 1, "nothing follows the end token")
        more = self.ids("-p", prompt, "--seed", seed, "-n", len(ids) + 3, "--ignore-eos")
        self.assertEqual(more[:len(ids)], ids)
        self.assertEqual(len(more), len(ids) + 3)

    def test_control_tokens_only_when_asked(self):
        text = "<|begin_of_text|>A"
        plain = self.ids("-p", text, "-n", 3, "--temp", 0)
        self.assertEqual(self.ids("-p", text, "-n", 3, "--temp", 0), plain)
        # with --special the text begins with BOS, which is then added only once
        self.assertEqual(self.ids("-p", text, "-n", 12, "--temp", 0, "--special"),
                         self.ids("-p", "A", "-n", 12, "--temp", 0))

    def test_verbose_timings(self):
        result = setun("run", TALES, "-p", PROMPT, "-n", 10, "--verbose", "--ignore-eos", "--seed", 1)
        text = result.stderr.decode()
        for what, tokens in (("prompt", len(prompt_ids(PROMPT))), ("decode", 9)):
            self.assertRegex(text, rf"(?m)^{what} +{tokens} tokens in +[\d.]+ s +[\d.]+ tokens/s\b")
        self.assertRegex(text, r"(?m)^decode .* [\d.]+ GB/s of weights$")
        self.assertRegex(text, r"(?m)^load +[\d.]+ .iB in +[\d.]+ s +[\d.]+ GB/s$")
        self.assertEqual(setun("run", TALES, "-p", PROMPT, "-n", 4, "--ignore-eos").stderr, b"")

    def test_refused_formats_of_the_cache_name_what_is_allowed(self):
        for value in "q5", "q8,q5", "q8,q4,q4":
            self.fails(2, "run", TALES, "--kv", value, mentions=["f16|f32|q8|q4, or two with a comma between", value])

    def test_instruction_sets_that_the_machine_has(self):
        available = json.loads(self.good("version", "--json"))["isa"]
        want = self.ids("-p", PROMPT, "-n", 8, "--temp", 0, "--isa", "scalar")
        self.assertEqual(len(want), 8)
        known = re.search(r"expects one of ([\w|]+)", self.fails(2, "run", TALES, "--isa", "none")).group(1).split("|")
        self.assertLessEqual(set(available), set(known))
        for isa in known[1:]:
            with self.subTest(isa=isa):
                if isa in available:
                    self.assertEqual(len(self.ids("-p", PROMPT, "-n", 8, "--temp", 0, "--isa", isa)), 8)
                else:
                    self.fails(1, "run", TALES, "-p", PROMPT, "-n", 8, "--isa", isa, mentions=[isa])


class EndsTest(Case):
    """Interrupting a run."""

    def start(self, *args, **more):
        return subprocess.Popen([COMMAND, "run", TALES, "-p", PROMPT, "--ignore-eos", "--isa", "scalar", "-t", "1", *args],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def stop(self, number, status, *args):
        process = self.start(*args)
        process.stdout.read(len(PROMPT) + 1)  # the prompt, and the first new text
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, errors)
        self.assertRegex(errors.decode(), r"(?m)^decode .* tokens/s ")
        self.assertNotIn("error", errors.decode())
        return out

    def test_ctrl_c(self):
        self.assertTrue(self.stop(signal.SIGINT, 130).endswith(b"\n"))

    def test_terminate(self):
        self.stop(signal.SIGTERM, 143)

    def test_reader_that_goes_away(self):
        process = self.start()
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(timeout=60), errors), (-signal.SIGPIPE, b""))

    def test_reader_that_goes_away_when_sigpipe_is_ignored(self):
        previous = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            process = self.start(restore_signals=False)
        finally:
            signal.signal(signal.SIGPIPE, previous)
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(timeout=60), errors), (-signal.SIGPIPE, b""))

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            self.fails(1, "run", TALES, "-p", PROMPT, "-n", 3, stdout=full, mentions=["standard output"])

    def test_closed_stdout(self):
        result = subprocess.run(["sh", "-c", 'exec "$0" run "$1" -p a -n 2 >&-', COMMAND, TALES], capture_output=True)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr.decode(), r"\Asetun: error: standard output: .+\n\Z")

    def test_text_arrives_as_it_is_made(self):
        process = self.start()
        first = os.read(process.stdout.fileno(), 1 << 16)
        self.assertLess(len(first), len(PROMPT) + 64)
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
