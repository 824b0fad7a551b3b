#!/usr/bin/env python3
"""`--lora`: adapters on the command line, against logits of merged weights from an independent NumPy model."""
import os
import shutil
import tempfile

from support import GOLDEN, Case, main, read_safetensors, rows

NUMPY = os.path.join(GOLDEN, "numpy")
MODEL = os.path.join(GOLDEN, "hf", "llama3")
FIRST, SECOND = os.path.join(NUMPY, "adapter-first"), os.path.join(NUMPY, "adapter-second")


class LoraTest(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.golden = read_safetensors(os.path.join(NUMPY, "adapters.safetensors"))
        cls.ids = ",".join(map(str, cls.golden["llama3.input_ids"][1]))

    def worst(self, name, *args):
        """The largest difference from the golden logits of that name."""
        path = os.path.join(self.folder, "logits.safetensors")
        self.good("logits", MODEL, "--ids", self.ids, "-o", path, "--precise", *args)
        want = rows(self.golden["llama3." + name])
        return max(abs(a - b) for got, row in zip(rows(read_safetensors(path)["logits"]), want) for a, b in zip(got, row))

    def test_one_and_two(self):
        self.assertLess(self.worst("logits_first", "--lora", FIRST + ":0.75"), 1e-4)
        self.assertLess(self.worst("logits_first", f"--lora={FIRST}.gguf:0.75"), 1e-4)
        both = ("--lora", FIRST + ":0.75", "--lora", SECOND + ":-0.5")
        self.assertLess(self.worst("logits_both", *both), 1e-4)
        for other in ((), ("--lora", FIRST), ("--lora", FIRST + ":0.5")):
            self.assertGreater(self.worst("logits_first", *other), 1e-3)

    def test_a_name_with_colons(self):
        path = os.path.join(self.folder, "name:0:x")
        shutil.copytree(FIRST, path)
        self.assertLess(self.worst("logits_first", "--lora", path + ":0.75"), 1e-4)
        self.assertGreater(self.worst("logits_first", "--lora", path), 1e-3)

    def test_what_is_no_adapter(self):
        self.fails(1, "run", MODEL, "-p", "a", "-n", 1, "--lora", "no-such-adapter", mentions=[f"{MODEL}: no-such-adapter: cannot open"])
        self.fails(1, "run", MODEL, "-p", "a", "-n", 1, "--lora", FIRST + "/none", mentions=[f"{MODEL}: {FIRST}/none: cannot open"])
        self.fails(2, "run", MODEL, "-p", "a", "--lora", "", mentions=["--lora expects FILE[:SCALE]"])
        self.fails(1, "run", MODEL, "-p", "a", "-n", 1, "--lora", MODEL, mentions=["adapter_config.json"])
        self.fails(2, "run", MODEL, "-p", "a", *["--lora=" + FIRST] * 17, mentions=["--lora", 16])

    def test_sessions_belong_to_a_model_with_its_adapters(self):
        path = os.path.join(self.folder, "text.session")
        run = ("run", MODEL, "-p", "a", "-n", 2, "--session", path)
        self.good(*run, "--lora", FIRST)
        self.good(*run, "--lora", FIRST)
        self.fails(1, *run, mentions=["different model"])
        self.fails(1, *run, "--lora", FIRST + ":0.5", mentions=["different model"])


if __name__ == "__main__":
    main()
