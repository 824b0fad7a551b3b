#!/usr/bin/env python3
"""Files that commands write over: permissions and symbolic links stay, and a model's own files are safe."""
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import time

import gguf
from support import COMMAND, GOLDEN, TALES, FolderCase, main, read_safetensors

TENSOR = "model.norm.weight"


class Outputs(FolderCase):
    def old(self, *names, mode=0o644):
        path = self.path(*names)
        with open(path, "wb") as file:
            file.write(b"older")
        os.chmod(path, mode)
        return path

    def contents(self, path):
        with open(path, "rb") as file:
            return file.read()

    def writers(self):
        """Commands that write a file at the path that follows: by the library, and by the command itself."""
        return (("convert", TALES, "--to", "t2", "-o"), ("inspect", TALES, "--tensor", TENSOR, "-o"),
                ("logits", TALES, "-p", "a", "-o"))

    def test_permissions_stay(self):
        for command in self.writers():
            for mode in (0o600, 0o640, 0o666, 0o755):
                with self.subTest(command=command[0], mode=mode):
                    path = self.old("out.gguf", mode=mode)
                    self.good(*command, path)
                    self.assertGreater(os.path.getsize(path), 5)
                    self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), mode)
                    os.remove(path)

    def test_links_are_followed(self):
        os.mkdir(self.path("there"))
        for command in self.writers():
            with self.subTest(command=command[0]):
                target, link = self.old("there", "real.gguf", mode=0o600), self.path("link.gguf")
                os.symlink(os.path.join("there", "real.gguf"), link)
                self.good(*command, link)
                self.assertEqual(os.readlink(link), os.path.join("there", "real.gguf"))
                self.assertGreater(os.path.getsize(target), 5)
                self.assertEqual(stat.S_IMODE(os.stat(target).st_mode), 0o600)
                os.remove(target)
                self.fails(1, *command, link, mentions=[link])
                self.assertEqual((os.listdir(self.path("there")), sorted(os.listdir(self.folder))),
                                 ([], ["link.gguf", "there"]))
                os.remove(link)

    def test_sessions(self):
        target, link = self.path("real.session"), self.path("link.session")
        self.good("run", TALES, "-p", "a", "-n", 1, "--session", target)
        os.chmod(target, 0o600)
        os.symlink("real.session", link)
        before = self.contents(target)
        self.good("run", TALES, "-p", "b", "-n", 1, "--session", link)
        self.assertNotEqual(self.contents(target), before)
        self.assertEqual((os.readlink(link), stat.S_IMODE(os.stat(target).st_mode)), ("real.session", 0o600))
        os.remove(target)
        self.fails(1, "run", TALES, "-p", "b", "-n", 1, "--session", link, mentions=[link, os.strerror(errno.ENOENT)])

    def test_what_killed_processes_left(self):
        """Beside the target, under its name, and not in use: it is removed. A file in use, or with another name, stays."""
        others = ["out.gguf.part", "out.gguf.12-x.part", "another.gguf.7-0.part", "out.gguf.7-0.part.gguf"]
        for command, name in ((("convert", TALES, "--to", "t2", "-o"), "out.gguf"),
                              (("logits", TALES, "-p", "a", "-o"), "out.gguf"),
                              (("run", TALES, "-p", "a", "-n", 1, "--session"), "out.gguf"),
                              (("convert", TALES, "--to", "hf-u8", "-o"), "model")):
            with self.subTest(command=command[0], name=name):
                for other in others:
                    self.old(other)
                self.old(name + ".1-0.part")
                os.mkdir(self.path(name + ".2-0.part"))
                self.old(name + ".2-0.part", "model.safetensors")
                used = self.old(name + ".3-0.part")
                with open(used, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    self.good(*command, self.path(name))
                self.assertEqual(sorted(os.listdir(self.folder)), sorted([name, name + ".3-0.part", *others]))
                shutil.rmtree(self.path(name), ignore_errors=True)
                for left in os.listdir(self.folder):
                    os.remove(self.path(left))

    def test_a_killed_process(self):
        """The next run removes what this one left."""
        source = self.path("large.gguf")
        gguf.write_ternary(source)
        process = subprocess.Popen([COMMAND, "convert", source, "--to", "f32", "-o", self.path("out.gguf")],
                                   stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(n.endswith(".part") for n in os.listdir(self.folder)):
            time.sleep(0.001)
        process.kill()
        process.wait()
        self.assertEqual(len(os.listdir(self.folder)), 2)
        self.good("logits", TALES, "-p", "a", "-o", self.path("out.gguf"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["large.gguf", "out.gguf"])

    def test_a_directory_behind_a_link(self):
        os.mkdir(self.path("there"))
        os.symlink("there", self.path("link"))
        self.good("convert", TALES, "--to", "hf-u8", "-o", self.path("link"))
        self.assertEqual(os.readlink(self.path("link")), "there")
        self.assertIn("config.json", os.listdir(self.path("there")))

    def test_nothing_replaces_its_model(self):
        model = self.path("model")
        shutil.copytree(TALES, model)
        file = self.path("file.gguf")
        self.good("convert", TALES, "--to", "t2", "-o", file)
        os.symlink(file, self.path("link"))
        os.link(file, self.path("hard"))
        before = self.contents(file)
        for source, name, outputs in ((model, TENSOR, [os.path.join(model, n) for n in os.listdir(model)]),
                                      (file, "output_norm.weight", [file, self.path("link"), self.path("hard")])):
            for output in outputs:
                with self.subTest(output=output):
                    words = {"mentions": ["own files", output]}
                    self.fails(2, "inspect", source, "--tensor", name, "-o", output, **words)
                    self.fails(2, "logits", source, "-p", "a", "-o", output, **words)
                    # A session may be saved beside a model, but a file that is not a session stays.
                    self.fails(1, "run", source, "-p", "a", "-n", 1, "--session", output, mentions=[output])
                    if source == model:  # a GGUF file itself may be replaced
                        self.fails(2, "convert", source, "--to", "t16", "-o", output, **words)
        self.assertEqual(self.contents(file), before)
        self.good("inspect", file, "--tensor", "output_norm.weight", "-o", self.path("out"))
        self.assertIn("output_norm.weight", read_safetensors(self.path("out")))

    def test_other_files_beside_it_may_be_replaced(self):
        """Of a split file the other parts are the model's own, whatever else lies beside them."""
        file = self.path("a-00001-of-00002.gguf")
        self.good("convert", TALES, "--to", "t2", "-o", file)
        own = self.old("a-00002-of-00002.gguf")
        self.fails(2, "logits", file, "-p", "a", "-o", own, mentions=["own files", own])
        self.fails(2, "convert", file, "--to", "t16", "-o", own, mentions=["own files", own])
        self.assertEqual(self.contents(own), b"older")
        for name in ("b-00002-of-00002.gguf", "a-00002-of-00003.gguf", "a.gguf"):
            self.good("logits", file, "-p", "a", "-o", self.old(name))
            self.assertIn("logits", read_safetensors(self.path(name)))

    def test_an_adapter_is_not_replaced(self):
        model, adapter = os.path.join(GOLDEN, "hf", "llama3"), self.path("adapter.gguf")
        shutil.copyfile(os.path.join(GOLDEN, "numpy", "adapter-first.gguf"), adapter)
        before = self.contents(adapter)
        for lora in (adapter, adapter + ":0.5"):
            self.fails(2, "logits", model, "--ids", "1", "--lora", lora, "-o", adapter, mentions=["adapter's files", adapter])
        self.assertEqual(self.contents(adapter), before)

    def test_a_trace_replaces_no_model(self):
        model, draft = self.path("olmoe.gguf"), self.path("draft.gguf")
        for path in (model, draft):
            shutil.copyfile(os.path.join(GOLDEN, "gguf", "olmoe-plain.gguf"), path)
        os.symlink(model, self.path("link"))
        before = self.contents(model)
        for trace in (model, self.path("link"), draft):
            self.fails(2, "run", model, "-p", "a", "-n", 1, "--draft", draft, "--trace", trace,
                       mentions=["--trace", "own files", trace])
        self.assertEqual((self.contents(model), self.contents(draft)), (before, before))

    def test_no_file_is_written_twice_or_over_what_is_read(self):
        model, text, new = os.path.join(GOLDEN, "gguf", "olmoe-plain.gguf"), self.old("text"), self.path("new")
        os.symlink(text, self.path("link"))
        names = (("--session", "--trace"), ("--experts-state", "--trace"), ("--session", "--experts-state"))
        for first, second in names:
            for other in (new, os.path.join(self.folder, ".", "new")):
                self.fails(2, "run", model, "-p", "a", "-n", 1, first, new, second, other, mentions=[first, second, other])
        self.assertFalse(os.path.exists(new))
        for option in ("-f", "--grammar", "--json-schema"):
            for trace in (text, self.path("link")):
                prompt = () if option == "-f" else ("-p", "a")
                self.fails(2, "run", model, *prompt, "-n", 1, option, text, "--trace", trace, mentions=["--trace", trace])
        for output in (text, self.path("link")):
            self.fails(2, "logits", TALES, "-f", text, "-o", output, mentions=["--file", "-o", output])
            self.fails(2, "embed", TALES, "-f", text, "-o", output, mentions=["--file", "-o", output])
            self.fails(2, "quantize", TALES, "--scheme", "gptq", "--calibration", text, "-o", output,
                       mentions=["--calibration", "-o", output])
            self.fails(2, "quantize", TALES, "--scheme", text, "-o", output, mentions=["--scheme", "-o", output])
        self.good("quantize", TALES, "--scheme", "zp4-64", "-o", "zp4-64", cwd=self.folder)  # a scheme's name is not a file
        self.assertEqual(self.contents(text), b"older")
        self.good("run", model, "-p", "a", "-n", 1, "--session", new, "--trace", self.path("trace"))


if __name__ == "__main__":
    main()
