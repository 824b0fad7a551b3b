#!/usr/bin/env python3
"""Published quantized models to plain floats, into GGUF and directories and back: the same tokens and logits."""
import json
import os
import tempfile

from support import Case, main, read_safetensors, real_model, rows

MODELS = {"SmolLM2-135M-Instruct.Q4_1.gguf": "tokenizer.json", "gemma-3-270m-q4_k_m.gguf": "tokenizer.model"}
TEXT = """<start_of_turn><|im_start|>user
    The  capital of   France, na\u00efve \u65e5\u672c\u8a9e 10%:\tit's


\tdone.  """


class RealConvertTest(Case):
    def seen(self, model, folder):
        """The model's results for a text: its ids, with control tokens and without, and the logits after it."""
        ids = [self.good("tokenize", model, "--ids", "--bos", "-f", "-", *more, stdin=TEXT.encode())
               for more in ((), ("--special",))]
        path = os.path.join(folder, "logits.safetensors")
        self.good("logits", model, "--ids", json.dumps(json.loads(ids[0])[:6]), "--precise", "-o", path)
        return ids, rows(read_safetensors(path)["logits"])[-1]

    def same(self, found, want):
        self.assertEqual(found[0], want[0])
        self.assertLess(max(abs(a - b) for a, b in zip(found[1], want[1], strict=True)), 1e-3)

    def test_to_floats_and_back(self):
        for name, tokenizer in MODELS.items():
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                source = real_model(name)
                want = self.seen(source, folder)
                directory, again = os.path.join(folder, "floats"), os.path.join(folder, "again.gguf")
                self.good("convert", source, "--to", "f32", "-o", directory)
                self.assertEqual(sorted(os.listdir(directory)),
                                 sorted(["config.json", "model.safetensors", tokenizer, "tokenizer_config.json"]))
                self.same(self.seen(directory, folder), want)
                self.good("convert", directory, "--to", "f32", "-o", again)
                self.same(self.seen(again, folder), want)
                os.remove(again)
                self.fails(1, "convert", source, "--to", "bf16", "-o", again, mentions=["not exact in bf16; f32 holds it"])


if __name__ == "__main__":
    main()
