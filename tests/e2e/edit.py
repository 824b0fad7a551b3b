"""Models edited tensor by tensor and key by key: for tests of files with missing, superfluous or unusual contents."""
import json
import os
import shutil
import struct

import gguf


def safetensors(path):
    """Name: (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + length])
    head.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], data[8 + length:][slice(*e["data_offsets"])]) for name, e in head.items()}


def checkpoint(source, target, config=(), drop=(), put=()):
    """Copies a Hugging Face directory of one file. Config's members change (None removes one), tensors are dropped where
    `drop(name)` says so and replaced or added from `put`: name: (dtype, shape, bytes)."""
    os.mkdir(target)
    for name in os.listdir(source):
        if name not in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(source, name), target)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        members = json.load(file)
    for key, value in dict(config).items():
        members.pop(key, None)
        if value is not None:
            members[key] = value
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as file:
        json.dump(members, file)
    tensors = safetensors(os.path.join(source, "model.safetensors"))
    if drop:
        before = len(tensors)
        tensors = {name: tensor for name, tensor in tensors.items() if not drop(name)}
        assert len(tensors) < before, "nothing was dropped"
    tensors.update(dict(put))
    head, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return target


def file(source, target, drop=(), put=(), drop_key=()):
    """Copies a GGUF file of one part, likewise; `put` replaces the bytes of tensors, `drop_key(name)` selects the keys that
    are left out. (The keys' bytes are kept as they are, so that any type of value passes.)"""
    tensors, data = gguf.read(source)[1:3]
    n_keys = struct.unpack_from("<Q", data, 16)[0]
    keys, at = [], 24
    for _ in range(n_keys):
        begin = at
        length = struct.unpack_from("<Q", data, at)[0]
        name = data[at + 8:at + 8 + length].decode()
        at += 8 + length
        at = after_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
        if not (drop_key and drop_key(name)):
            keys.append(data[begin:at])
    kept = {name: tensor for name, tensor in tensors.items() if not (drop and drop(name))}
    assert not drop or len(kept) < len(tensors), "nothing was dropped"
    offsets = sorted(tensor[2] for tensor in tensors.values()) + [len(data)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(kept), len(keys)) + b"".join(keys)
    body = b""
    for name, (dims, kind, offset) in kept.items():
        head += gguf.text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind, len(body))
        content = data[offset:offsets[offsets.index(offset) + 1]]
        new = dict(put).get(name)
        content = content if new is None else new + content[len(new):]
        body += content + bytes(-len(content) % 32)
    with open(target, "wb") as out:
        out.write(head + bytes(-len(head) % 32) + body)
    return target


def after_value(data, at, kind):
    """Where a value of a GGUF key ends that begins at `at`."""
    if kind == gguf.STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != gguf.ARRAY:
        return at + gguf.SIZES[kind]
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if element != gguf.STRING:
        return at + count * gguf.SIZES[element]
    for _ in range(count):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    return at
