"""A small GGUF reader and writer, independent of the library, for tests of conversions."""
import struct

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
F32_TYPE, T2_TYPE, T5_TYPE, Q2_0_TYPE = 0, 0x53540002, 0x53540005, 42


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value):
    """The type and the bytes of a text, an integer (u32), a number (f32), a flag, or a list of such (integers: i32; of
    another type as a pair of its code and the list); bytes are those of such a value already."""
    if isinstance(value, bytes):
        return value
    codes, forms = {str: STRING, bool: BOOL, int: U32, float: F32}, {U32: "I", I32: "i", F32: "f", BOOL: "?"}
    if isinstance(value, (str, bool, int, float)):
        kind = codes[type(value)]
        return struct.pack("<I", kind) + (text(value) if kind == STRING else struct.pack("<" + forms[kind], value))
    element, value = value if isinstance(value, tuple) else (None, value)
    if element is None:
        element = I32 if type(value[0]) is int else codes[type(value[0])]
    items = [text(item) if element == STRING else struct.pack("<" + forms[element], item) for item in value]
    return struct.pack("<IIQ", ARRAY, element, len(value)) + b"".join(items)


def write(path, tensors, keys=(), alignment=32):
    """tensors: (name, dims fastest first, type, bytes); keys: (name, value), see value_bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys:
        head += text(name) + value_bytes(value)
    data = b""
    for name, dims, kind, content in tensors:
        head += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % alignment)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % alignment) + data)


def read(path):
    """Keys with their values (arrays as None), and name: (dims, type, offset in the file) in the file's order."""
    with open(path, "rb") as file:
        data = file.read()
    at = 24
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def take_text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    keys = {}
    for _ in range(n_keys):
        name, kind = take_text(), take("I")
        if kind == STRING:
            keys[name] = take_text()
        elif kind == ARRAY:
            element, count = take("I"), take("Q")
            if element == STRING:
                for _ in range(count):
                    take_text()
            else:
                at += count * SIZES[element]
            keys[name] = None
        else:
            keys[name] = take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q",
                               12: "d"}[kind])
    tensors = {}
    for _ in range(n_tensors):
        name = take_text()
        dims = [take("Q") for _ in range(take("I"))]
        tensors[name] = [dims, take("I"), take("Q")]
    alignment = keys.get("general.alignment", 32)
    start = (at + alignment - 1) // alignment * alignment
    for tensor in tensors.values():
        tensor[2] += start
    return keys, tensors, data


def read_array(path, name):
    """The elements of an array of texts or numbers in a file's keys; None where there is no such key."""
    with open(path, "rb") as file:
        data = file.read()
    at, want = 24, name.encode()

    def take_text():
        nonlocal at
        n = struct.unpack_from("<Q", data, at)[0]
        at += 8 + n
        return data[at - n:at]

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key, kind = take_text(), struct.unpack_from("<I", data, at)[0]
        at += 4
        if kind == STRING:
            take_text()
        elif kind != ARRAY:
            at += SIZES[kind]
        else:
            element, count = struct.unpack_from("<IQ", data, at)
            at += 12
            if element == STRING:
                values = [take_text() for _ in range(count)]
            else:
                values = struct.unpack_from(f"<{count}" + {0: "B", 1: "b", U32: "I", I32: "i", F32: "f", BOOL: "?"}[element],
                                            data, at) if key == want else ()
                at += count * SIZES[element]
            if key == want:
                return list(values)
    return None


def write_ternary(path, rows=8192, columns=8192):
    """One matrix, large enough to take a while to convert."""
    packed = bytes([0x64, 0x55, 0x91, 0x46] * (columns // 16)) * rows
    write(path, [("m.weight", [columns, rows], T2_TYPE, packed), ("m.scale", [1], F32_TYPE, struct.pack("<f", 1))])


def pairs(data):
    """Name, and where it begins and ends, of each key with its value."""
    at = 24

    def skip(kind, at):
        if kind == STRING:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != ARRAY:
            return at + SIZES[kind]
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if element != STRING:
            return at + count * SIZES[element]
        for _ in range(count):
            at = skip(STRING, at)
        return at

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        begin = at
        at = skip(STRING, at)
        name = data[begin + 8:at].decode()
        kind = struct.unpack_from("<I", data, at)[0]
        at = skip(kind, at + 4)
        yield name, begin, at


def raw_pairs(path, prefix):
    """The keys with this prefix, with the bytes of their values, as `write` takes them."""
    with open(path, "rb") as file:
        data = file.read()
    return [(name, data[begin + 8 + len(name.encode()):end]) for name, begin, end in pairs(data) if name.startswith(prefix)]


def edit(source, target, changes):
    """Copies a GGUF file of one part with keys set, or, to None, removed."""
    with open(source, "rb") as file:
        data = file.read()
    at = 24
    n_tensors = struct.unpack_from("<Q", data, 8)[0]
    kept, alignment = [], 32
    for name, begin, at in pairs(data):
        if name == "general.alignment":
            alignment = struct.unpack_from("<I", data, at - 4)[0]
        if name not in changes:
            kept.append(data[begin:at])
    infos = at
    for _ in range(n_tensors):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    start = (at + alignment - 1) // alignment * alignment
    kept += [text(name) + value_bytes(value) for name, value in changes.items() if value is not None]
    head = data[:8] + struct.pack("<QQ", n_tensors, len(kept)) + b"".join(kept) + data[infos:at]
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % alignment) + data[start:])
