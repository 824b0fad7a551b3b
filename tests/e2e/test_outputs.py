#!/usr/bin/env python3
"""Files that commands write over: permissions and symbolic links stay, and a model's own files are safe."""
import os
import shutil
import stat
import tempfile

from support import TALES, Case, main, read_safetensors

TENSOR = "model.norm.weight"


class Outputs(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def old(self, *names, mode=0o644):
        path = self.path(*names)
        with open(path, "wb") as file:
            file.write(b"older")
        os.chmod(path, mode)
        return path

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

    def test_a_tensor_does_not_replace_its_model(self):
        model = self.path("model")
        shutil.copytree(TALES, model)
        file = self.path("file.gguf")
        self.good("convert", TALES, "--to", "t2", "-o", file)
        os.symlink(file, self.path("link"))
        os.link(file, self.path("hard"))
        before = os.path.getsize(file)
        for source, name, outputs in ((model, TENSOR, [os.path.join(model, n) for n in os.listdir(model)]),
                                      (file, "output_norm.weight", [file, self.path("link"), self.path("hard")])):
            for output in outputs:
                with self.subTest(output=output):
                    self.fails(2, "inspect", source, "--tensor", name, "-o", output, mentions=["own files", output])
        self.assertEqual(os.path.getsize(file), before)
        self.good("inspect", file, "--tensor", "output_norm.weight", "-o", self.path("out"))
        self.assertIn("output_norm.weight", read_safetensors(self.path("out")))


if __name__ == "__main__":
    main()
