#!/usr/bin/env python3
"""Files that cannot be looked at or read are not absent, and outputs that cannot be written leave nothing behind."""
import errno
import os
import shutil
import sys
import tempfile
import unittest

from support import TALES, Case, failing, main

# What a directory may have, and a command that reads it.
OPTIONAL = {"chat_template.jinja": ("run", "-p", "a", "-n", 1), "generation_config.json": ("run", "-p", "a", "-n", 1),
            "tokenizer_config.json": ("tokenize", "-p", "a"), "special_tokens_map.json": ("tokenize", "-p", "a"),
            "added_tokens.json": ("convert",), "chat_template.json": ("run", "-p", "a", "-n", 1),
            "model.safetensors.index.json": ("inspect",), "additional_chat_templates": ("run", "-p", "a", "-n", 1)}


def arguments(command, model, output):
    name, *rest = command
    return (name, model, "--to", "hf-u8", "-o", output) if name == "convert" else (name, model, *rest)


class Folder(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("model")
        shutil.copytree(TALES, self.model)

    def path(self, *names):
        return os.path.join(self.folder, *names)


class Reading(Folder):
    def test_a_link_that_leads_nowhere(self):
        for name, command in OPTIONAL.items():
            with self.subTest(name=name):
                path = os.path.join(self.model, name)
                kept = path + ".kept"
                if os.path.exists(path):
                    os.rename(path, kept)
                os.symlink("../blobs/pruned", path)
                self.fails(1, *arguments(command, self.model, self.path("out")),
                           mentions=[path, "symbolic link", os.strerror(errno.ENOENT)])
                os.remove(path)
                if os.path.exists(kept):
                    os.rename(kept, path)
        self.assertFalse(os.path.exists(self.path("out")))

    @unittest.skipUnless(sys.platform == "linux", "no shim for this system")
    def test_errors_of_the_system(self):
        for name, command in OPTIONAL.items():
            path = os.path.join(self.model, name)
            call = "open" if os.path.exists(path) else "stat"
            for error in (errno.EIO, errno.EACCES):
                for calls in {"stat", call}:
                    if name == "additional_chat_templates":  # opendir: a folder is not opened by a name's status
                        continue
                    with self.subTest(name=name, error=error, call=calls):
                        self.fails(1, *arguments(command, self.model, self.path("out")),
                                   env=failing("/model/" + name, error, calls), mentions=[path, os.strerror(error)])
        self.assertFalse(os.path.exists(self.path("out")))

    def test_what_is_absent(self):
        for name in ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
            if os.path.exists(os.path.join(self.model, name)):
                os.remove(os.path.join(self.model, name))
        self.good("run", self.model, "-p", "a", "-n", 1)
        with open(os.path.join(self.model, "additional_chat_templates"), "wb"):
            pass
        self.fails(1, "run", self.model, "-p", "a", mentions=["additional_chat_templates", "expected a directory"])

    @unittest.skipUnless(sys.platform == "linux", "no shim for this system")
    def test_a_status_that_cannot_be_read(self):
        path = os.path.join(self.model, "config.json")
        text = self.fails(1, "inspect", self.model, env=failing(path, errno.EIO, "fstat"), mentions=[path, os.strerror(errno.EIO)])
        self.assertNotIn("regular file", text)


class Writing(Folder):
    @unittest.skipUnless(sys.platform == "linux", "no shim for this system")
    def test_failures_leave_the_target(self):
        os.mkdir(self.path("o"))
        path = self.path("o", "out.gguf")
        for command in (("convert", TALES, "--to", "t2"), ("logits", TALES, "-p", "a")):
            with open(path, "wb") as file:
                file.write(b"older")
            for call in ("pwrite", "fsync", "close", "rename"):
                end = "out.gguf" if call == "rename" else ".part"
                for error in (errno.ENOSPC, errno.EDQUOT):
                    with self.subTest(command=command[0], call=call, error=error):
                        self.fails(1, *command, "-o", path, env=failing(end, error, call),
                                   mentions=[path, os.strerror(error)])
                        self.assertEqual(os.listdir(self.path("o")), ["out.gguf"])
                        with open(path, "rb") as file:
                            self.assertEqual(file.read(), b"older")


if __name__ == "__main__":
    main()
