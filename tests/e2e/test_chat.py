#!/usr/bin/env python3
"""chat: as a filter, and under a pseudo-terminal as a person would use it."""
import json
import os
import re
import signal
import stat
import unittest

from support import COMMAND, TALES, FolderCase, main, setun
from terminal import Terminal

# The model has no template: it tells stories. What users say, they say as sentences of one.
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}\n"
            "{% elif m.role == 'system' %}{{ m.content }} {% else %}{{ m.content }}{% endif %}{% endfor %}")
FIRST, SECOND = "Once upon a time there was a little", "One day the little cat"


class ChatCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.template = self.write("t.jinja", TEMPLATE)
        self.args = ["chat", TALES, "--template", self.template, "--temp", 0]

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)["messages"]


class FilterTest(ChatCase):
    def chat(self, text, *args, status=0):
        result = setun(*self.args, *args, stdin=text.encode())
        self.assertEqual(result.returncode, status, result.stderr.decode())
        return result.stdout.decode(), result.stderr.decode()

    def completion(self, messages, n):
        """The output of `run` for the conversation's text, without any cache."""
        context = self.write("c.json", json.dumps({"messages": messages, "add_generation_prompt": True}))
        text = self.good("render", TALES, "--template", self.template, "--context", context)
        return self.good("run", TALES, "--special", "--no-echo", "--temp", 0, "-n", n, stdin=text).decode().strip()

    def test_turns_are_what_run_makes_of_the_whole_text(self):
        out, notes = self.chat(f"{FIRST}\n{SECOND}\n", "-n", 12, "--verbose")
        first = self.completion([{"role": "user", "content": FIRST}], 12)
        messages = [{"role": "user", "content": FIRST}, {"role": "assistant", "content": first},
                    {"role": "user", "content": SECOND}]
        self.assertEqual(out.strip(), first + "\n" + self.completion(messages, 12))
        held = [int(n) for n in re.findall(r"tokens, (\d+) of them in the cache", notes)]
        self.assertEqual(held[0], 0)
        self.assertGreaterEqual(held[1], 10, notes) # the cache was used again

    def test_an_answer_of_thoughts_only_is_told(self):
        self.write("t.jinja", TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}")
        out, notes = self.chat(f"{FIRST}\n", "-n", 8)
        self.assertEqual(out, "")
        self.assertIn("setun: the answer has no text, only reasoning, and ends at the limit of -n\n", notes)
        self.write("t.jinja", TEMPLATE)
        self.assertNotIn("no text", self.chat(f"{FIRST}\n", "-n", 8)[1])

    def test_one_answer_for_a_line(self):
        out, _ = self.chat("A\nB\nC", "-n", 1)
        self.assertEqual(len(out.splitlines()), 3)

    def test_lines_are_messages_whatever_is_in_them(self):
        for line in ("/quit", '"""', "a\\", "<|end_of_text|>", ""):
            with self.subTest(line=line):
                out, _ = self.chat(f"{line}\n", "-n", 2)
                self.assertEqual(out.count("\n"), 1 if out else 0)

    def test_system(self):
        out, _ = self.chat(f"{FIRST}\n", "-n", 12, "--system", "Tom was sad.")
        messages = [{"role": "system", "content": "Tom was sad."}, {"role": "user", "content": FIRST}]
        self.assertEqual(out.strip(), self.completion(messages, 12))

    def test_template_variables(self):
        self.write("t.jinja", "{{ bos_token }}{{ word }}{% if flag %}!{% endif %}{{ raise_exception('seen ' ~ word ~ flag) }}")
        result = setun(*self.args, "--template-arg", 'word="x"', "--template-arg", "flag=true", stdin=b"A\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("seen xTrue", result.stderr.decode())
        self.fails(2, *self.args, "--template-arg", "word=x", mentions=["word", "JSON"])
        self.fails(2, *self.args, "--template-arg", "word", mentions=["KEY=JSON"])

    def test_full_context_stops(self):
        out, notes = self.chat(f"{FIRST}\n" * 9, "-n", 12, "--ctx", 64, status=1)
        self.assertRegex(notes, r"setun: error: the conversation has \d+ tokens, and the context holds 64 ")
        self.assertTrue(out)
        out, notes = self.chat("word " * 200, "--ctx", 64, status=1)
        self.assertRegex(notes, r"the conversation has \d\d\d tokens, and the context holds 64 ")
        self.assertEqual(out, "")

    def test_message_for_which_there_is_no_memory(self):
        args = ("--ctx", 64, "--batch-size", 8, "-t", 1, "--memory")
        budget = json.loads(self.good("plan", TALES, *args, "1G", "--json"))["least"]
        _, notes = self.chat("a " * (1 << 23), *args, budget, status=1)
        most = int(re.search(r"standard input: expected a message of at most (\d+) bytes", notes).group(1))
        self.assertLess(most, 65536 + budget // 16)
        # The process's own memory differs a little from run to run.
        _, notes = self.chat("a" * (most * 5 // 4), *args, budget, status=1)
        self.assertIn("the room left by --memory, found a longer one", notes)
        _, notes = self.chat("a" * (most * 3 // 4), *args, budget, status=1)
        self.assertIn("and the context holds 64", notes)

    def test_full_context_in_an_answer_stops(self):
        out, notes = self.chat(f"{FIRST}\n", "--ignore-eos", "--ctx", 32, status=1)
        self.assertRegex(notes, r"the conversation has 33 tokens, and the context holds 32 ")
        self.assertTrue(out.endswith("\n"))

    def test_full_context_drops_tokens(self):
        out, notes = self.chat(f"{FIRST}\n" * 9, "-n", 12, "--ctx", 64, "--overflow", "drop", "--system", "Tom was sad.")
        self.assertGreaterEqual(out.count("\n"), 9)
        out, notes = self.chat("word " * 200 + "\n", "-n", 12, "--ctx", 64, "--overflow", "drop")
        self.assertTrue(out)
        # The same as with the context's window and sinks named; until the context is full as in any.
        args = (f"{FIRST}\n{SECOND}\n" * 6, "-n", 40, "--ignore-eos", "--verbose")
        out, notes = self.chat(*args, "--ctx", 64, "--overflow", "drop")
        self.assertEqual(out, self.chat(*args, "--window", 48, "--kv-sinks", 16)[0])
        self.assertEqual(out, self.chat(*args, "--ctx", 64, "--kv-sinks", 16)[0])
        self.assertTrue(out.startswith(self.completion([{"role": "user", "content": FIRST}], 40).split("\n")[0]))
        held = [(int(n), int(m)) for n, m in re.findall(r"prompt: (\d+) tokens, (\d+) of them in the cache", notes)]
        self.assertEqual(len(held), 12, notes)
        self.assertGreater(held[-1][1], 64 * 4, notes) # it goes on with what it has, long after it was full
        for wrong in (("--overflow", "stop", "--kv-sinks", 4), ("--window", 32, "--ctx", 64)):
            self.assertIn("exclude each other", self.chat(FIRST, *wrong, status=2)[1])

    def test_no_template_is_an_error(self):
        self.fails(1, "chat", TALES, mentions=["chat template", "--template"])

    def test_text_that_is_not_utf8(self):
        result = setun(*self.args, stdin=b"a\xff\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not UTF-8", result.stderr.decode())

    def test_seeds(self):
        args = [*self.args[:-1], 1, "-n", 20]
        outs = [self.good(*args, "--seed", seed, stdin=f"{FIRST}\n".encode()) for seed in (1, 1, 2)]
        self.assertEqual(outs[0], outs[1])
        self.assertNotEqual(outs[0], outs[2])


class TerminalTest(ChatCase):
    def start(self, *args, temperature=0, **how):
        terminal = Terminal(COMMAND, *self.args[:-1], temperature, *args, **how)
        self.addCleanup(terminal.close)
        terminal.expect("/help lists the commands")
        terminal.expect("> ")
        return terminal

    def save(self, t, name="saved.json"):
        t.line(f"/save {os.path.join(self.folder, name)}")
        t.expect(r"(\d+) messages? saved in")
        t.expect("\n> ")
        return self.read(name)

    def say(self, t, text):
        t.line(text)
        t.expect("\n> ")

    def test_editing(self):
        t = self.start("-n", 3)
        # "bc", to the beginning, "a", to the end, "dX", one back; then the line again from the history, with an "e".
        self.say(t, "bc\x01a\x05dX\x7f")
        self.say(t, "\x1b[Ae")
        self.say(t, "äö漢\x1b[D\x1b[D-")
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], ["abcd", "abcde", "ä-ö漢"])

    @unittest.skipIf(os.environ.get("SETUN_SANITIZE"), "what sanitizers take differs from one start to the next")
    def test_what_there_is_no_memory_for(self):
        args = ("--ctx", 64, "--batch-size", 8, "-t", 1)
        budget = json.loads(self.good("plan", TALES, *args, "--memory", "1G", "--json"))["least"]
        t = self.start(*args, "--memory", budget, "-n", 3)
        self.write("long.json", json.dumps({"messages": [{"role": "user", "content": "a " * 4000000}]}))
        t.line(f"/load {os.path.join(self.folder, 'long.json')}")
        most = int(t.expect(r"long\.json: expected at most (\d+) bytes, as memory allows, found more\n").group(1))
        t.line('"""' + "a" * 3000)
        for _ in range(4 * (most + 1) // 3000): # a message may be four times as long
            t.expect(r"\.\.\. ")
            t.line("a" * 3000)
        t.expect(r"\.\.\. ")
        t.line('"""')
        t.expect(r"the message has more than \d+ bytes, too many for the memory: it is not sent")
        t.expect("\n> ")
        t.line(f"/save {os.path.join(self.folder, 'long.json')}")
        t.expect(r"long\.json: exists and has 80000\d\d bytes, more than the \d+ that can be read into memory")
        t.expect("> ")
        t.line("/load /dev/zero")
        t.expect(r"/dev/zero: expected at most \d+ bytes, as memory allows, found more\n")
        t.expect("> ")
        self.say(t, "b") # the terminal goes on
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], ["b"])

    def test_ends(self):
        t = self.start()
        before = t.modes()
        t.send("\x04")
        self.assertEqual(t.wait(), 0)
        t = self.start()
        t.line("/quit")
        self.assertEqual(t.wait(), 0)
        self.assertIsNotNone(before)

    def test_first_and_last_line(self):
        t = Terminal(COMMAND, *self.args, "-n", 5, "--ctx", 200)
        self.addCleanup(t.close)
        t.expect(r"setun: setun-tales-7m, a context of 200 tokens; Ctrl-C stops an answer, Ctrl-D ends, /help lists")
        t.expect("\n> ")
        t.line(FIRST)
        t.expect(r"\n\[5 tokens, \d+\.\d tokens/s; prompt: (\d+) of \1 tokens computed in \d+\.\d\d s\]\n> ")

    def test_history(self):
        state = os.path.join(self.folder, "state")
        t = self.start("-n", 3, state=state)
        self.say(t, "first")
        self.say(t, "zw\u00f6lf \u6f22")
        t.send("\x04")
        self.assertEqual(t.wait(), 0)
        path = os.path.join(state, "setun", "chat_history")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(os.listdir(os.path.dirname(path)), ["chat_history"])
        t = self.start("-n", 3, state=state)
        self.say(t, "\x1b[A!")
        self.say(t, "\x12fir\x05?")
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], ["zw\u00f6lf \u6f22!", "first?"])
        t.signal(signal.SIGTERM)
        self.assertEqual(t.wait(), 128 + signal.SIGTERM)
        with open(path, "rb") as file:
            kept = file.read()
        self.assertIn(b"first?", kept)
        t = self.start("-n", 3, "--no-history", state=state)
        self.say(t, "\x1b[Asecret") # there is nothing to go back to
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], ["secret"])
        t.send("\x04")
        self.assertEqual(t.wait(), 0)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), kept)

    def test_completion(self):
        os.mkdir(os.path.join(self.folder, "deep \u00e4"))
        self.write("deep \u00e4/only.json", json.dumps({"messages": [{"role": "user", "content": "found"}]}))
        t = self.start("-n", 3)
        t.send("/lo\t" + self.folder + "/de\ton\t\r")
        t.expect("1 message")
        t.expect("> ")
        t.send("/s\t")
        t.expect("save  *system")
        t.send("\x15a\tb\r") # in a message there is nothing to complete
        t.expect("\n> ")
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], ["found", "ab"])

    def test_colors(self):
        for args, color, want in (((), True, True), ((), False, False), (("--color", "always"), False, True),
                                  (("--color", "never"), True, False), (("--color", "auto"), True, True)):
            with self.subTest(args=args, color=color):
                t = self.start("-n", 3, *args, color=color)
                self.say(t, FIRST)
                self.assertEqual(b"\x1b[1;32m" in t.raw, want)
                self.assertEqual(b"\x1b[2m" in t.raw, want)
        self.fails(2, *self.args, "--color", "blue", mentions=["--color", "blue"])

    def test_keys_while_text_comes(self):
        t = self.start("--ignore-eos", "-n", 100, "--overflow", "drop")
        t.line(FIRST)
        t.expect(r"\n[^\n]*\w+ \w+")
        t.send("QQQ")
        answer = t.expect(r"(?s)(.*)computed in [0-9.]+ s\]\n> ").group(1)
        self.assertNotIn("Q", answer)
        t.expect("QQQ")
        self.say(t, "!")
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"], [FIRST, "QQQ!"])

    def test_several_lines(self):
        t = self.start("-n", 3)
        t.line("one\\")
        t.expect(r"\.\.\. ")
        self.say(t, "two")
        t.line('"""three')
        t.expect(r"\.\.\. ")
        t.line("/four")
        t.expect(r"\.\.\. ")
        self.say(t, 'five"""')
        self.say(t, "\x1b[200~six\n/seven\r\x1b[201~ eight")
        self.say(t, "//nine")
        self.assertEqual([m["content"] for m in self.save(t) if m["role"] == "user"],
                         ["one\ntwo", "three\n/four\nfive", "six\n/seven eight", "/nine"])

    def test_interrupting(self):
        t = self.start("--ignore-eos", "--ctx", 250)
        t.line(FIRST)
        t.expect(r"\n[^\n]*\w+ \w+ \w+")
        t.send("\x03")
        t.expect("setun: stopped\n> ")
        messages = self.save(t)
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertGreater(len(messages[1]["content"]), 5)
        # At the prompt nothing is stopped, and the line is discarded.
        t.send("half a line\x03")
        t.expect("Ctrl-D or /quit ends")
        t.expect("> ")
        self.say(t, "/tokens")
        t.send("\x04")
        self.assertEqual(t.wait(), 0)

    def test_termination(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            t = self.start()
            t.signal(number)
            self.assertEqual(t.wait(), 128 + number)

    def test_the_terminal_is_as_before_after_a_quit(self):
        """Ctrl-\\ at the prompt."""
        for begun in ("half a line", ""):
            t = Terminal(COMMAND, *self.args)
            self.addCleanup(t.close)
            before = t.modes()
            t.expect("> ")
            self.assertNotEqual(t.modes(), before)
            t.send(begun + "\x1c")
            self.assertEqual(t.wait(), 128 + signal.SIGQUIT)
            self.assertEqual(t.modes(), before)

    def test_regenerating_and_taking_back(self):
        t = self.start("-n", 20, "--seed", 5, temperature=1)
        t.line("/regen")
        t.expect("no message to answer")
        self.say(t, FIRST)
        first = self.save(t)
        self.say(t, "/regen")
        second = self.save(t)
        self.assertEqual(first[0], second[0])
        self.assertEqual(len(second), 2)
        self.assertNotEqual(first[1]["content"], second[1]["content"])
        self.say(t, SECOND)
        self.say(t, "/undo")
        self.assertEqual(self.save(t), second)
        self.say(t, "/undo")
        self.assertEqual(self.save(t), [])
        t.line("/undo")
        t.expect("no message to remove")

    def test_saving_and_loading(self):
        t = self.start("-n", 8, "--system", "Tom was sad.")
        self.say(t, FIRST)
        saved = self.save(t)
        self.assertEqual(saved[0], {"role": "system", "content": "Tom was sad."})
        self.say(t, "/clear")
        self.assertEqual(self.save(t, "cleared.json"), saved[:1])
        t.line("/load " + os.path.join(self.folder, "saved.json"))
        t.expect("3 messages loaded")
        t.expect("\n> ")
        self.assertEqual(self.save(t, "again.json"), saved)
        self.say(t, "/regen")
        self.assertEqual(self.save(t, "regenerated.json"), saved) # at temperature 0
        self.say(t, "/system Tom was happy.")
        self.assertEqual(self.save(t)[0]["content"], "Tom was happy.")

    def test_saving_keeps_permissions_and_links(self):
        t = self.start()
        link = os.path.join(self.folder, "link.json")
        os.mkdir(os.path.join(self.folder, "there"))
        os.symlink(os.path.join("there", "talk.json"), link)
        for mode in (0o600, 0o644, 0o664):
            target = self.write(os.path.join("there", "talk.json"), '{"messages": [{"role": "user", "content": "older"}]}')
            os.chmod(target, mode)
            self.assertEqual(self.save(t, "link.json"), [])
            self.assertEqual((os.readlink(link), stat.S_IMODE(os.stat(target).st_mode)),
                             (os.path.join("there", "talk.json"), mode))
            self.assertEqual(os.listdir(os.path.join(self.folder, "there")), ["talk.json"])
            os.remove(target)
        t.line("/save " + link)
        t.expect("whose target does not exist")

    def test_loading_what_is_not_a_conversation(self):
        t = self.start()
        image = {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                             {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
        rows = [([image], r"message 1: expected text, found an image"), ({"a": 1}, "expected an array of messages"),
                ([{"content": "x"}], "message 1: .*role"), ([{"role": "user", "content": 5}], "message 1: content"), ]
        for value, expected in rows:
            t.line("/load " + self.write("bad.json", json.dumps(value)))
            t.expect("setun: error: .*bad.json: " + expected)
            t.expect("\n> ")
        t.line("/load " + self.write("bad.json", "{"))
        t.expect("setun: error: .*bad.json: line 1")
        t.line("/load /absent/file")
        t.expect("setun: error: /absent/file")
        t.line("/save /absent/file")
        t.expect("setun: error: /absent/file")
        for text in ("older", "", "[1]", '{"a": []}', '["x"]'):
            t.line("/save " + self.write("other", text))
            t.expect("setun: error: .*other: exists and is not a conversation")
            t.expect("\n> ")
            with open(os.path.join(self.folder, "other"), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        t.line("/save " + self.folder)
        t.expect("setun: error: .*exists and is not a conversation")
        t.line("/image cat.png")
        t.expect("only text is supported")
        t.line("/frobnicate")
        t.expect("no command /frobnicate")
        t.line("/help")
        t.expect("/regen")
        t.line("/quit")
        self.assertEqual(t.wait(), 0)

    def test_tokens(self):
        t = self.start("-n", 5, "--ctx", 99)
        t.line("/tokens")
        t.expect("0 messages, 0 of 99 tokens; 0 in the cache")
        self.say(t, FIRST)
        t.line("/tokens")
        n = int(t.expect(r"2 messages, (\d+) of 99 tokens").group(1))
        self.assertGreater(n, 10)

    def test_full_context_is_asked_about(self):
        question = r"\n> |stop, or drop the oldest tokens\?"
        t = self.start("-n", 12, "--ctx", 64, "--system", "Tom was sad.")
        asked = 0
        for _ in range(9):
            t.line(FIRST)
            if t.expect(question).group().startswith("stop"):
                asked += 1
                t.line("drop")
                t.expect("\n> ")
        self.assertEqual(asked, 1) # then all that follows goes on
        messages = self.save(t)
        self.assertEqual(messages[0], {"role": "system", "content": "Tom was sad."})
        self.assertEqual(len(messages), 19)
        t = self.start("-n", 12, "--ctx", 64)
        for _ in range(9):
            t.line(FIRST)
            if t.expect(question).group().startswith("stop"):
                t.line("s")
                t.expect(r"stopped: the conversation has \d+ tokens, and the context holds 64")
                t.expect("\n> ")
                break
        else:
            self.fail("the context was never full")


class ThinkingTest(ChatCase):
    """The template opens a block of thoughts, and the model never closes it."""

    def test_thoughts(self):
        self.write("t.jinja", TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}")
        out = self.good(*self.args, "-n", 8, stdin=f"{FIRST}\n".encode())
        self.assertEqual(out.strip(), b"")
        for args, dimmed in (((), True), (("--hide-thinking",), False)):
            t = Terminal(COMMAND, *self.args, "-n", 8, *args)
            self.addCleanup(t.close)
            t.expect("> ")
            t.line(FIRST)
            t.expect("\n> ")
            self.assertEqual(bool(re.search(rb"\x1b\[2m(?!\[)", t.raw)), dimmed) # the last line is dim too
            path = os.path.join(self.folder, "saved.json")
            t.line("/save " + path)
            t.expect("messages saved")
            answer = self.read("saved.json")[1]
            self.assertEqual(answer["content"], "")
            self.assertTrue(answer["reasoning_content"])
            t.line("/quit")
            self.assertEqual(t.wait(), 0)


if __name__ == "__main__":
    main()
