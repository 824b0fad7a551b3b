#!/usr/bin/env python3
"""MLX's directories: packed words with scales and biases give the same model as the floats that they encode."""
import os
import re
import tempfile

import edit
import mlx
from support import GOLDEN, Case, main, read_safetensors

IDS = ",".join(str(i) for i in range(3, 27))


def hf(name):
    return os.path.join(GOLDEN, "hf", name)


class MlxTest(Case):
    def logits(self, model, *options):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits")
            self.good("logits", model, "--ids", IDS, "--precise", *options, "-o", out)
            return read_safetensors(out)["logits"][1]

    def compare(self, a, b, bound=1e-4, options=()):
        x, y = self.logits(a, *options), self.logits(b)
        self.assertEqual(len(x), len(y))
        self.assertLess(max(abs(p - q) for p, q in zip(x, y)), bound)

    def twins(self, name, *settings, **more):
        with tempfile.TemporaryDirectory() as folder:
            self.compare(*mlx.make(hf(name), folder, *settings, **more))

    def test_bits(self):
        """All numbers of bits, both kinds of numbers, embeddings and tied heads too."""
        for bits, group, dtype in ((2, 32, "F16"), (3, 64, "BF16"), (4, 64, "F16"), (4, 32, "BF16"), (5, 32, "F16"),
                                   (6, 64, "BF16"), (8, 32, "BF16"), (8, 64, "F16")):
            with self.subTest(bits=bits, group=group, dtype=dtype):
                self.twins("qwen3", bits, group, dtype)

    def test_families(self):
        """Experts of a layer in one tensor; q, k and v in one; modules with settings of their own, or none."""
        self.twins("mixtral", 4, 32, "F16")
        self.twins("olmoe", 8, 64, "BF16")
        self.twins("phi3", 4, 32, "BF16")
        router = "model.layers.0.mlp.gate"
        self.twins("qwen3-moe", 4, 64, "BF16", own={router: {"bits": 8, "group_size": 32}, "lm_head": False})

    def test_hybrids(self):
        """Convolutions channel last and norms with their 1 added."""
        self.twins("qwen35", 4, 32, "BF16", hybrid=True)
        self.twins("qwen3-next", 4, 32, "F16", hybrid=True)

    def test_one_tap(self):
        """A convolution of one tap has the same shape in both orders: its norms are the official class's."""
        put, zeros = {}, {}
        for name, (dtype, shape, content) in edit.safetensors(os.path.join(hf("qwen35"), "model.safetensors")).items():
            if name.endswith("conv1d.weight"):
                size = len(content) // shape[0] // shape[2]
                last = [content[i:i + size] for i in range((shape[2] - 1) * size, len(content), shape[2] * size)]
                put[name] = (dtype, [shape[0], 1, 1], b"".join(last))
                zeros[name] = (dtype, shape, b"".join(bytes((shape[2] - 1) * size) + tap for tap in last))
        with tempfile.TemporaryDirectory() as folder:
            one, four = os.path.join(folder, "one"), os.path.join(folder, "four")
            edit.checkpoint(hf("qwen35"), one, config={"linear_conv_kernel_dim": 1}, put=put)
            edit.checkpoint(hf("qwen35"), four, put=zeros)
            self.compare(one, four)

    def test_mxfp4(self):
        """gpt-oss's blocks under MLX's names: gate and up separate."""
        config = {"quantization_config": None, "quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}
        tensors, put = edit.safetensors(os.path.join(hf("gpt-oss"), "model.safetensors")), {}
        old = [name for name in tensors if ".experts." in name]
        for name in old:
            dtype, shape, content = tensors[name]
            module, kind = name.rsplit("_", 1)
            parts = [(module, content, shape)]
            if module.endswith("gate_up_proj"):
                size = len(content) // (shape[0] * shape[1])
                rows = [content[i:i + size] for i in range(0, len(content), size)]
                half = [shape[0], shape[1] // 2] + shape[2:]
                parts = [(module.replace("gate_up", part), b"".join(rows[i::2]), half)
                         for i, part in enumerate(("gate", "up"))]
            for module, content, shape in parts:
                if kind == "blocks":
                    put[module + ".weight"] = ("U32", shape[:2] + [shape[2] * 4], content)
                else:
                    put[f"{module}.{kind}"] = (dtype, shape, content)
        with tempfile.TemporaryDirectory() as folder:
            made = edit.checkpoint(hf("gpt-oss"), os.path.join(folder, "mlx"), config=config,
                                   drop=lambda name: name in old, put=put)
            self.assertEqual(self.logits(made), self.logits(hf("gpt-oss")))

    def test_convert(self):
        """To GGUF and to a directory of floats: the same numbers, without MLX's mark."""
        for name, hybrid in (("qwen3", False), ("mixtral", False), ("qwen35", True)):
            with tempfile.TemporaryDirectory() as folder:
                packed, plain = mlx.make(hf(name), folder, 4, 32, "BF16", hybrid=hybrid)
                want = self.logits(plain)
                for target in ("floats.gguf", "floats"):
                    with self.subTest(name=name, target=target):
                        path = os.path.join(folder, target)
                        self.good("convert", packed, "--to", "f32", "-o", path)
                        found = self.logits(path)  # GGUF files hold the rows of some matrices in another order
                        bound = 2e-5 if target.endswith("gguf") else 0
                        self.assertLessEqual(max(abs(a - b) for a, b in zip(found, want)), bound)
                self.good("inspect", "--check", packed)
                text = self.good("inspect", packed).decode()
                self.assertIn("affine4-32-bf16", text)
                count = re.compile(r"weights +(\d+)")
                self.assertEqual(count.search(text)[1], count.search(self.good("inspect", plain).decode())[1])

    def test_experts_apart(self):
        """A directory with all experts of a layer in one tensor as one with a tensor each."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "floats")
            self.good("convert", hf("qwen35-moe"), "--to", "f32", "-o", path)
            self.assertEqual(self.logits(path), self.logits(hf("qwen35-moe")))

    def test_refused(self):
        """Unsupported and inconsistent settings are refused by name."""
        with tempfile.TemporaryDirectory() as folder:
            packed, _ = mlx.make(hf("qwen3"), folder, 4, 32, "F16")
            module = "model.layers.0.self_attn.q_proj"
            settings = {"bits": 4, "group_size": 32}
            cases = (({"bits": 7, "group_size": 32}, ("bits", "7")), ({"bits": 4, "group_size": 16}, ("group_size", "16")),
                     ({**settings, "mode": "mxfp8"}, ("mode", "mxfp8")), ({**settings, "zero_point": 1}, ("zero_point",)),
                     ({**settings, module: False}, (module, "false")), ({**settings, module: {"bit": 4}}, (module, "bit")),
                     ({**settings, "bits": 8}, ("U32", "embed_tokens")), ([], ("quantization", "array")))
            for i, (quantization, mentions) in enumerate(cases):
                with self.subTest(quantization=quantization):
                    change = {"quantization": quantization}
                    path = edit.checkpoint(packed, os.path.join(folder, f"case{i}"), config=change)
                    self.fails(1, "logits", path, "--ids", "3", "-o", os.path.join(folder, "x"), mentions=mentions)
            both = edit.checkpoint(packed, os.path.join(folder, "both"), config={"quantization_config": {"quant_method": "x"}})
            self.fails(1, "logits", both, "--ids", "3", "-o", os.path.join(folder, "x"), mentions=("quant_method", "both"))
            tensors = edit.safetensors(os.path.join(packed, "model.safetensors"))
            dtype, shape, content = tensors[module + ".scales"]
            for i, (put, drop, mentions) in enumerate((
                    ({}, module + ".biases", (module + ".biases",)),
                    ({module + ".scales": (dtype, shape, b"\0\x7c" + content[2:])}, (), (module, "finite")),
                    ({module + ".scales": ("F32", shape, content * 2)}, (), (module + ".scales", "F16 or BF16", "F32")),
                    ({module + ".scales": (dtype, [shape[0], 1], content[:2 * shape[0]])}, (), (module + ".scales",)))):
                with self.subTest(mentions=mentions):
                    path = edit.checkpoint(packed, os.path.join(folder, f"tensor{i}"), put=put,
                                           drop=(lambda name, gone=drop: name == gone) if drop else ())
                    self.fails(1, "logits", path, "--ids", "3", "-o", os.path.join(folder, "x"), mentions=mentions)


if __name__ == "__main__":
    main()
