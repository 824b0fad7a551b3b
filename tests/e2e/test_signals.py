#!/usr/bin/env python3
"""Signals while a command loads or writes: it ends with 128 and the signal's number, and leaves nothing behind."""
import os
import resource
import signal
import subprocess
import time
import unittest

import gguf
from support import COMMAND, TALES, FolderCase, main

SECONDS = 120
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGXCPU, signal.SIGPIPE, signal.SIGALRM,
          signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM, signal.SIGPROF)


def watches(process, number):
    """True once the process has a handler for the signal."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return int(line.split()[1], 16) >> (number - 1) & 1
    return False


class Signals(FolderCase):
    def stop(self, number, ready, *args, times=1):
        """Runs the command, sends the signal once ready(process), and returns its stderr."""
        process = subprocess.Popen([COMMAND, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        end = time.monotonic() + SECONDS
        while process.poll() is None and not ready(process) and time.monotonic() < end:
            time.sleep(0.0002)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.002)
        _, errors = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 128 + number, errors)
        self.assertNotIn(b"error", errors)

    def large(self):
        path = self.path("large.gguf")
        gguf.write_ternary(path)
        return path

    def part(self, _):
        return any(name.endswith(".part") for name in os.listdir(self.folder))

    def test_convert(self):
        source = self.large()
        for number in ENDING:
            with self.subTest(number=number):
                self.stop(number, self.part, "convert", source, "-o", self.path("out.gguf"), "--to", "f32")
                self.assertEqual(os.listdir(self.folder), ["large.gguf"])

    def test_a_terminal_that_goes_away_tells_twice(self):
        """The system and the shell both send SIGHUP; under nohup neither ends anything."""
        self.stop(signal.SIGHUP, self.part, "convert", self.large(), "-o", self.path("out.gguf"), "--to", "f32", times=2)
        self.assertEqual(os.listdir(self.folder), ["large.gguf"])
        self.good("convert", TALES, "--to", "t2", "-o", self.path("out.gguf"),
                  preexec_fn=lambda: (signal.signal(signal.SIGHUP, signal.SIG_IGN), os.kill(os.getpid(), signal.SIGHUP)))

    def test_inspect(self):
        source = self.large()
        self.stop(signal.SIGINT, self.part, "inspect", source, "--tensor", "m.weight", "-o", self.path("out"))
        self.assertEqual(os.listdir(self.folder), ["large.gguf"])

    @unittest.skipUnless(os.path.exists("/proc/self/status"), "no /proc to see handlers in")
    def test_loading(self):
        # So slow that no command ends before it is stopped, however busy the machine.
        text = ("-p", "Once upon a time there was a little cat. " * 20, "-t", 1, "--isa", "scalar")
        for number in ENDING:
            for args in (("run", TALES, *text, "--ignore-eos"), ("logits", TALES, *text, "-o", self.path("out")),
                         ("perplexity", TALES, *text), ("bench", TALES, "-t", 1),
                         ("convert", TALES, "--to", "hf-u8", "-o", self.path("directory"))):
                with self.subTest(number=number, command=args[0]):
                    self.stop(number, lambda process: watches(process, number), *args)
                    self.assertEqual(os.listdir(self.folder), [])

    def test_a_file_that_may_not_grow(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for args in (("convert", TALES, "--to", "t2"), ("logits", TALES, "-p", "a b c d e f g h i j k l m n o p")):
            with self.subTest(command=args[0]):
                self.fails(1, *args, "-o", self.path("out.gguf"), preexec_fn=limit, mentions=[self.path("out.gguf")])
                self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    main()
