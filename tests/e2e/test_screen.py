#!/usr/bin/env python3
"""What chat shows on the screen, in tmux at three widths: wrapped lines, Ctrl-C, Ctrl-R, Ctrl-Z, other sizes."""
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

from support import COMMAND, TALES, Case, main

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
WORDS = " ".join(f"word{i}" for i in range(30))


class Screen:
    def __init__(self, folder, width):
        self.command = ["tmux", "-S", os.path.join(folder, "socket"), "-f", "/dev/null"]
        self.run("new-session", "-d", "-x", width, "-y", 24, "PS1='$ ' HOME=/nonexistent bash --norc --noprofile")

    def run(self, *args):
        return subprocess.run([*self.command, *map(str, args)], check=True, stdout=subprocess.PIPE).stdout.decode()

    def keys(self, *keys):
        self.run("send-keys", *keys)

    def text(self):
        """The rows up to the last that is not empty; rows that continue in the next are joined."""
        return self.run("capture-pane", "-p", "-J").rstrip()

    def expect(self, condition):
        end = time.monotonic() + 60
        while True:
            text = self.text()
            if condition(text):
                return text
            if time.monotonic() > end:
                raise AssertionError(f"not on the screen:\n{text}")
            time.sleep(0.1)

    def ends(self, words):
        return self.expect(lambda text: text.endswith(words))


@unittest.skipUnless(shutil.which("tmux"), "there is no tmux")
class ScreenTest(Case):
    def start(self, width):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        template = os.path.join(folder.name, "t.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(TEMPLATE)
        screen = Screen(folder.name, width)
        self.addCleanup(screen.run, "kill-server")
        screen.ends("$")
        command = [COMMAND, "chat", TALES, "--template", template, "--no-history", "-n", "3", "--temp", "0"]
        screen.keys("-l", shlex.join(command))
        screen.keys("Enter")
        screen.expect(lambda text: "lists the commands" in text and text.endswith("\n>"))
        return screen

    def at_each_width(self):
        for width in 40, 80, 132:
            with self.subTest(width=width):
                yield self.start(width)

    def test_interrupt_at_the_start_of_a_wrapped_line(self):
        for screen in self.at_each_width():
            screen.keys("-l", WORDS)
            screen.ends("word29")
            screen.keys("Home", "C-c")
            text = screen.expect(lambda text: "Ctrl-C stops an answer\n>" in text.split("word29")[-1])
            after = text.split("lists the commands\n")[1]
            self.assertEqual(" ".join(after.split("setun:")[0].split()), "> " + WORDS)
            self.assertEqual(after.split("setun:")[1].strip(), "Ctrl-D or /quit ends; Ctrl-C stops an answer\n>")

    def test_search_stop_and_sizes(self):
        for screen in self.at_each_width():
            screen.keys("The dog", "Enter")
            screen.expect(lambda text: "computed in" in text and text.endswith("\n>"))
            screen.keys("C-r")
            screen.keys("-l", "dog")
            screen.ends("> The dog\nbck:dog")
            screen.keys("C-e")
            screen.ends("> The dog")
            screen.keys("C-z")
            screen.expect(lambda text: text.endswith("$") and "Stopped" in text)
            screen.keys("fg", "Enter")
            screen.ends("\n> The dog")
            screen.run("resize-window", "-x", 60, "-y", 20)
            screen.keys("-l", " barks")
            screen.ends("\n> The dog barks")


if __name__ == "__main__":
    main()
