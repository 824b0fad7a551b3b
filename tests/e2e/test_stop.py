#!/usr/bin/env python3
"""--stop of `run` and `chat`: held back until it is certain, and never shown."""
import json
import os
import tempfile

from support import TALES, Case, main

PROMPT = "Once upon a time"
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}"


class StopTest(Case):
    def new(self, *args):
        return self.good("run", TALES, "-p", PROMPT, "-n", 40, "--temp", 0, "--no-echo", *args).decode()

    def test_every_part_of_the_text(self):
        whole = self.new()[:-1]
        for at in range(2, 60, 7):
            stop = whole[at : at + 6]
            want = whole[: whole.index(stop)]
            self.assertEqual(self.new("--stop", stop), want + "\n" if want and want[-1] != "\n" else want)

    def test_several_and_the_short_spelling(self):
        whole = self.new()[:-1]
        words = [" " + word for word in whole.split()]
        first = min(whole.index(words[4]), whole.index(words[9]))
        self.assertEqual(self.new("-r", words[9], "--stop", words[4]), whole[:first] + "\n")

    def test_a_beginning_alone_is_shown(self):
        whole = self.new()
        self.assertEqual(self.new("--stop", whole.split()[3] + "#"), whole)
        self.assertEqual(self.new("--stop", whole[-5:-1] + "#"), whole)  # held back until the end

    def test_escapes(self):
        text = self.good("run", TALES, "-p", "a b", "-n", 20, "--temp", 0, "--no-echo").decode()
        stop = text[4:7]
        escaped = "".join(f"\\x{byte:02x}" for byte in stop.encode())
        got = self.good("run", TALES, "-p", "a b", "-n", 20, "--temp", 0, "--no-echo", "-e", "--stop", escaped).decode()
        self.assertEqual(got, text[: text.index(stop)] + "\n")
        self.fails(1, "run", TALES, "-p", "a", "-e", "--stop", "a\\x00b", mentions=["--stop", "zero"])

    def test_ids_end_with_the_token_that_completes_it(self):
        args = ["run", TALES, "-p", PROMPT, "-n", 40, "--temp", 0, "--ids"]
        all_ids = json.loads(self.good(*args))
        text = self.new()[:-1]
        ids = json.loads(self.good(*args, "--stop", text[20:26]))
        self.assertEqual(ids, all_ids[: len(ids)])
        self.assertLess(len(ids), len(all_ids))
        shown = self.good("detokenize", TALES, stdin=json.dumps(ids).encode()).decode()
        before = self.good("detokenize", TALES, stdin=json.dumps(ids[:-1]).encode()).decode()
        self.assertIn(text[20:26], shown)
        self.assertNotIn(text[20:26], before)

    def test_the_session_ends_before_it(self):
        whole = self.new()[:-1]
        stop = " " + whole.split()[8]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            self.assertEqual(self.new("--session", path, "--stop", stop), whole[: whole.index(stop)] + "\n")
            got = self.good("run", TALES, "--session", path, "-p", "", "-n", 40, "--temp", 0, "--no-echo").decode()
            want = whole[whole.index(stop) :]
            self.assertTrue(got.startswith(want[:40]), (got, want))

    def test_refused(self):
        self.fails(2, "run", TALES, "-p", "a", "--stop", "")
        self.fails(1, "run", TALES, "-p", "a", "--stop", os.fsdecode(b"\xff"), mentions=["--stop", "UTF-8"])

    def test_chat(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(TEMPLATE)
            file.flush()
            args = ["chat", TALES, "--template", file.name, "-n", 30, "--temp", 0]
            whole = self.good(*args, stdin=b"Once upon a time\n").decode()[:-1]
            stop = " " + whole.split()[5]
            got = self.good(*args, "--stop", stop, stdin=b"Once upon a time\nOnce upon a time\n").decode()
            want = whole[: whole.index(stop)] + "\n"
            self.assertTrue(got.startswith(want), (got, want))
            self.assertNotIn(stop, got[: len(want)])


if __name__ == "__main__":
    main()
