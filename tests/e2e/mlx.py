"""MLX's directories of golden checkpoints, with their twins of plain floats. Written from MLX's published layout (words of
codes, scales and biases; experts stacked under switch_mlp; convolutions channel last and norms with their 1 added) and not
by the code under test; Python's standard library only. tools/make_affine_vectors.py compares the layout with MLX's own."""
import array
import json
import os
import re
import struct

import edit

NORMS = (".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight",
         ".k_norm.weight")
EXPERT = re.compile(r"(.*\.)experts\.(\d+)\.(\w+)\.weight")
MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def to_floats(dtype, content):
    if dtype == "F32":
        return array.array("f", content)
    if dtype == "BF16":
        return array.array("f", b"".join(b"\0\0" + content[i:i + 2] for i in range(0, len(content), 2)))
    return array.array("f", struct.unpack(f"<{len(content) // 2}e", content))


def number(x, dtype):
    """A number's bytes, rounded (bfloat16: cut), and its value."""
    data = struct.pack("<e", x) if dtype == "F16" else struct.pack("<f", x)[2:]
    return data, to_floats(dtype, data)[0]


def quantize(values, bits, group, dtype):
    """Words, scales and biases as bytes, and what they mean as float32."""
    words, scales, biases, meaning = bytearray(), bytearray(), bytearray(), array.array("f")
    for at in range(0, len(values), group):
        part = values[at:at + group]
        low, high = min(part), max(part)
        scale, s = number((high - low) / (2 ** bits - 1), dtype)
        bias, m = number(low, dtype)
        codes = [min(2 ** bits - 1, max(0, round((x - m) / s) if s else 0)) for x in part]
        words += sum(code << bits * i for i, code in enumerate(codes)).to_bytes(group * bits // 8, "little")
        scales += scale
        biases += bias
        meaning.extend(code * s + m for code in codes)
    return bytes(words), bytes(scales), bytes(biases), meaning


def names_of(tensors):
    """The checkpoint's tensors under MLX's names: those of experts joined."""
    out, stacks = {}, {}
    for name, (dtype, shape, content) in tensors.items():
        found = EXPERT.fullmatch(name)
        if found:
            module = MIXTRAL.get(found[3], found[3])
            stacks.setdefault(f"{found[1]}switch_mlp.{module}.weight", {})[int(found[2])] = (dtype, shape, content)
        else:
            out[name] = (dtype, shape, content)
    for name, experts in stacks.items():
        dtype, shape, _ = experts[0]
        out[name] = (dtype, [len(experts)] + shape, b"".join(experts[e][2] for e in range(len(experts))))
    return out


def as_hybrid(name, tensor):
    """Qwen 3.5's and Qwen3-Next's tensors as MLX keeps them."""
    dtype, shape, content = tensor
    if name.endswith("conv1d.weight"):
        return dtype, [shape[0], shape[2], 1], content
    if name.endswith(NORMS):
        return "F32", shape, array.array("f", (x + 1 for x in to_floats(dtype, content))).tobytes()
    return tensor


def is_quantized(name, shape, group):
    return len(shape) > 1 and name.endswith(".weight") and not name.endswith("conv1d.weight") and shape[-1] % group == 0


def make(source, folder, bits, group, dtype, own=None, hybrid=False, more=None):
    """Writes folder/mlx and folder/plain. `own`: bits and group of single modules. Returns both paths."""
    own = own or {}
    tensors = edit.safetensors(os.path.join(source, "model.safetensors"))
    packed, plain = {}, {}
    for name, tensor in names_of(tensors).items():
        kind, shape, content = tensor
        module = name[:-len(".weight")]
        settings = own.get(module, {"bits": bits, "group_size": group})
        packed[name] = as_hybrid(name, tensor) if hybrid else tensor
        if not settings or not is_quantized(name, shape, settings["group_size"]):
            continue
        each, columns = settings["group_size"], shape[-1]
        words, scales, biases, meaning = quantize(to_floats(kind, content), settings["bits"], each, dtype)
        packed[name] = ("U32", shape[:-1] + [columns * settings["bits"] // 32], words)
        packed[module + ".scales"] = (dtype, shape[:-1] + [columns // each], scales)
        packed[module + ".biases"] = (dtype, shape[:-1] + [columns // each], biases)
        plain[name] = ("F32", shape, meaning.tobytes())
    settings = {"bits": bits, "group_size": group, **own, **(more or {})}
    change = {"quantization": settings, "quantization_config": settings}
    names = set(tensors)
    mlx = edit.checkpoint(source, os.path.join(folder, "mlx"), config=change, drop=lambda name: name in names, put=packed)
    return mlx, edit.checkpoint(source, os.path.join(folder, "plain"), put=unstack(tensors, plain))


def unstack(tensors, plain):
    """The float32 meaning under the checkpoint's own names."""
    out, back = {}, {value: key for key, value in MIXTRAL.items()}
    for name, (dtype, shape, content) in plain.items():
        if ".switch_mlp." not in name:
            out[name] = (dtype, shape, content)
            continue
        size = len(content) // shape[0]
        prefix, rest = name.split("switch_mlp.")
        module = rest[:-len(".weight")]
        for e in range(shape[0]):
            one = f"{prefix}experts.{e}.{module}.weight"
            if one not in tensors:
                one = f"{prefix}experts.{e}.{back[module]}.weight"
            out[one] = (dtype, shape[1:], content[e * size:(e + 1) * size])
    return out


def edit_config(path, change):
    with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    change(config)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
