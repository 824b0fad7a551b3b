#!/usr/bin/env python3
"""Files that cannot be looked at or read are not absent, outputs that cannot be written leave nothing behind, and what the
system denies a confined process changes no result."""
import ctypes
import errno
import json
import os
import resource
import shutil
import sys
import tempfile
import unittest

from support import GOLDEN, TALES, Case, FolderCase, failing, main, real_model, setun

SMALL = os.path.join(GOLDEN, "gguf", "llama3.gguf")

# Optional files of a directory, and a command that reads each.
OPTIONAL = {"chat_template.jinja": ("run", "-p", "a", "-n", 1), "generation_config.json": ("run", "-p", "a", "-n", 1),
            "tokenizer_config.json": ("tokenize", "-p", "a"), "special_tokens_map.json": ("tokenize", "-p", "a"),
            "added_tokens.json": ("convert",), "chat_template.json": ("run", "-p", "a", "-n", 1),
            "model.safetensors.index.json": ("inspect",), "additional_chat_templates": ("run", "-p", "a", "-n", 1)}


def arguments(command, model, output):
    name, *rest = command
    return (name, model, "--to", "hf-u8", "-o", output) if name == "convert" else (name, model, *rest)


class Folder(FolderCase):
    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        shutil.copytree(TALES, self.model)


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
        for command in (("convert", TALES, "--to", "t2"), ("quantize", SMALL, "--scheme", "q8_0"), ("logits", TALES, "-p", "a")):
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


def without_io_uring():
    """A seccomp filter under which io_uring_setup, _enter and _register (425 to 427 on every processor) are refused."""
    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]

    lines = [(0x20, 0, 0, 0), (0x35, 0, 2, 425), (0x35, 1, 0, 428), (0x06, 0, 0, 0x50000 | errno.EPERM),
             (0x06, 0, 0, 0x7fff0000)]
    filters = (Filter * len(lines))(*[Filter(*line) for line in lines])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(len(lines), filters)), 0, 0):
        os._exit(99)


def without_proc():
    """An empty folder where /proc is, in name spaces of the process's own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000 | (0 if os.getuid() == 0 else 0x10000000)) or \
            libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"none", b"/proc", b"tmpfs", 0, None):
        os._exit(99)


SANITIZED = "sanitizers read /proc themselves, and reserve more address space than these limits leave"


@unittest.skipUnless(sys.platform == "linux", "name spaces and filters of Linux")
@unittest.skipIf(os.environ.get("SETUN_SANITIZE"), SANITIZED)
class Confined(FolderCase):
    """What the system denies costs speed at most: the text is the same."""
    TEXT = ("-p", "Once upon a time", "-n", 6, "--temp", 0, "-t", 2)

    def confined(self, confine, *args):
        result = setun(*args, preexec_fn=confine)
        if result.returncode == 99:
            self.skipTest(f"the system does not allow it: {confine.__name__}")
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result

    def setUp(self):
        super().setUp()
        self.model = self.path("tales.gguf")
        self.good("convert", TALES, "--to", "f32", "-o", self.model)

    def test_streaming(self):
        size, model = ("--ctx", 64, "--batch-size", 8), real_model("SmolLM2-135M-Instruct.Q4_1.gguf")
        args = ("run", model, *self.TEXT, *size)
        text = self.good(*args)
        plan = json.loads(self.good("plan", model, *size, "-t", 2, "--json"))
        memory = ("--memory", f"{plan['least'] // 2**20 + 1}M", "--verbose")
        self.assertIn(b"streamed at", setun(*args, *memory).stderr)
        for confine in (without_io_uring, without_proc):
            with self.subTest(confine=confine.__name__):
                self.assertEqual(self.confined(confine, *args).stdout, text)
                result = self.confined(confine, *args, *memory)
                self.assertEqual(result.stdout, text)
                self.assertIn(b"streamed at", result.stderr)
                if confine == without_io_uring and b"bypass the page cache" not in result.stderr:
                    self.assertIn(b"io_uring is not available", result.stderr)

    def test_converting(self):
        with tempfile.TemporaryDirectory() as folder:
            for confine in (without_io_uring, without_proc):
                path = os.path.join(folder, confine.__name__ + ".gguf")
                self.confined(confine, "convert", TALES, "--to", "f32", "-o", path)
                with open(path, "rb") as made, open(self.model, "rb") as expected:
                    self.assertEqual(made.read(), expected.read())

    def test_little_address_space(self):
        """As under vm.overcommit_memory = 2: what cannot be allocated is an error that says so, or is not needed."""
        for mib in (24, 48, 96, 192):
            with self.subTest(mib=mib):
                def limit(bytes=mib << 20):
                    resource.setrlimit(resource.RLIMIT_DATA, (bytes, bytes))
                result = setun("run", TALES, *self.TEXT, preexec_fn=limit)
                if result.returncode:
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertRegex(result.stderr.decode(), r"\Asetun: error: [^\n]*(memory|thread)[^\n]*\n\Z")


if __name__ == "__main__":
    main()
