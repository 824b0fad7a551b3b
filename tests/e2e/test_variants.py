#!/usr/bin/env python3
"""BitNet checkpoints of different makers: the same weights under each one's names and keys are the same model."""
import json
import os
import shutil
import struct
import tempfile

import gguf
from support import GOLDEN, Case, main, read_safetensors

LATENT = os.path.join(GOLDEN, "hf", "bitnet-latent")
IDS = ",".join(str(i) for i in range(3, 35))


def rename(source, target, names):
    """Copies a safetensors file, with parts of its tensors' names replaced."""
    with open(source, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        for old, new in names.items():
            name = name.replace(old, new)
        header[name] = entry
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data[8 + length:])


class VariantTest(Case):
    def checkpoint(self, folder, name, change, names):
        """bitnet-latent with its config.json changed and its tensors renamed; a change to None removes a key."""
        path = os.path.join(folder, name)
        os.mkdir(path)
        with open(os.path.join(LATENT, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for key, value in change.items():
            config.pop(key, None)
            if value is not None:
                config[key] = value
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(LATENT, file), path)
        rename(os.path.join(LATENT, "model.safetensors"), os.path.join(path, "model.safetensors"), names)
        return path

    def logits(self, folder, model):
        out = os.path.join(folder, "logits")
        self.good("logits", model, "--ids", IDS, "--precise", "-o", out)
        return list(read_safetensors(out)["logits"][1])

    def test_1bitllm(self):
        """model_type llama, weight_bits and input_bits, other names of the sub-norms, SiLU, latent floats."""
        with tempfile.TemporaryDirectory() as folder:
            plain = self.checkpoint(folder, "plain", {"hidden_act": "silu"}, {})
            renamed = self.checkpoint(
                folder, "1bitllm", {"model_type": "llama", "architectures": ["BitnetForCausalLM"], "hidden_act": "silu",
                                    "quantization_config": None, "weight_bits": 1, "input_bits": 8},
                {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm"})
            expected = self.logits(folder, plain)
            self.assertNotEqual(expected, self.logits(folder, LATENT))  # squared ReLU there
            self.assertTrue(self.logits(folder, renamed) == expected)
            # Converted, it is ternary and still the same model, except for the order in which Llama's GGUF files turn pairs.
            target = os.path.join(folder, "1bitllm.gguf")
            self.good("convert", renamed, "--to", "t2", "-o", target)
            self.assertLess(max(abs(a - b) for a, b in zip(self.logits(folder, target), expected)), 1e-3)

    def test_without_quantization_floats_stay_floats(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = self.checkpoint(folder, "floats", {"quantization_config": None}, {})
            self.assertNotEqual(self.logits(folder, plain), self.logits(folder, LATENT))


def with_arrays(source, target, arrays):
    """Copies a GGUF file with integers (u32) turned into arrays; its name is lengthened so that its data stay aligned."""
    with open(source, "rb") as file:
        data = file.read()

    def place(key):
        return data.index(len(key).to_bytes(8, "little") + key.encode()) + 8 + len(key)

    size = len(data)
    for key, values in arrays.items():
        at = place(key)
        assert data[at:at + 4] == struct.pack("<I", gguf.U32)
        data = data[:at] + gguf.value_bytes(values) + data[at + 8:]
    at = place("general.name") + 4
    length = int.from_bytes(data[at:at + 8], "little")
    more = (size - len(data)) % 32
    data = data[:at] + (length + more).to_bytes(8, "little") + b" " * more + data[at + 8:]
    with open(target, "wb") as file:
        file.write(data)


class LayersTest(Case):
    """Numbers that a GGUF file may give for each layer."""

    SOURCE = os.path.join(GOLDEN, "gguf", "llama3.gguf")

    def test_equal_numbers_are_one(self):
        keys = json.loads(self.good("inspect", self.SOURCE, "--json"))["metadata"]
        layers = int(keys["llama.block_count"])
        names = ("llama.attention.head_count", "llama.attention.head_count_kv", "llama.feed_forward_length")
        with tempfile.TemporaryDirectory() as folder:
            path, out = os.path.join(folder, "arrays.gguf"), os.path.join(folder, "logits")
            with_arrays(self.SOURCE, path, {name: [int(keys[name])] * layers for name in names})
            self.good("logits", self.SOURCE, "--ids", IDS, "--precise", "-o", out)
            expected = read_safetensors(out)["logits"][1]
            self.good("logits", path, "--ids", IDS, "--precise", "-o", out)
            self.assertEqual(list(read_safetensors(out)["logits"][1]), list(expected))
            for name in names:
                value = int(keys[name])
                for values, word in (([value] * (layers - 1) + [value + 1], "the same number"), ([value] * (layers + 1), f"{layers} integers"),
                                     ([-1] * layers, "found")):
                    with self.subTest(name=name, values=values):
                        with_arrays(self.SOURCE, path, {name: values})
                        self.fails(1, "logits", path, "--ids", IDS, "-o", out, mentions=[name, word])


if __name__ == "__main__":
    main()
