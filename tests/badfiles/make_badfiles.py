#!/usr/bin/env python3
"""Writes the malformed files of the folder `files`, and expected.json: for each the status and the words that the error must
contain. Python's standard library only. Run it here; the results are committed.

A case is a file, or a folder where it takes several files. Entries of expected.json:
  "path":   relative to `files`
  "status": "ok" for the good counterparts, else the name of the setun_status without SETUN_ERROR_
  "words":  what must occur in the message, each of them
  "read":   {"module", "rows", "columns"}: the file opens; the error comes when that weight is found or read
  "assume": what to pass as st_open_options.assume
  "notice": what must occur in one of the directory's notices
"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
cases = []


def case(path, status, *words, data=None, files=None, **extra):
    """`data`: the file's bytes. `files`: {name: bytes} of a folder that is named by the path's first component."""
    cases.append(dict(path=path, status=status, words=list(words), **extra))
    for name, content in ({path: data} if files is None else
                          {os.path.join(path.split("/")[0], k): v for k, v in files.items()}).items():
        full = os.path.join(HERE, "files", name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(content)


# ---- GGUF -----------------------------------------------------------------------------------------------------------

def u32(x): return struct.pack("<I", x)
def u64(x): return struct.pack("<Q", x % 2**64)
def text(s): return u64(len(s)) + s


def pair(key, kind, payload):
    key = key if isinstance(key, bytes) else key.encode()
    return text(key) + u32(kind) + payload


def info(name, dims, kind, offset, n_dims=None):
    name = name if isinstance(name, bytes) else name.encode()
    return (text(name) + u32(len(dims) if n_dims is None else n_dims) + b"".join(u64(d) for d in dims) + u32(kind) +
            u64(offset))


ARCH = pair("general.architecture", STRING, text(b"llama"))


def gguf(pairs=(), infos=(), data=b"", version=3, n_pairs=None, n_tensors=None, alignment=32, magic=b"GGUF"):
    pairs, infos = [ARCH] + list(pairs), list(infos)
    out = magic + u32(version)
    out += u64(len(infos) if n_tensors is None else n_tensors) + u64(len(pairs) if n_pairs is None else n_pairs)
    out += b"".join(pairs) + b"".join(infos)
    return out + b"\0" * (-len(out) % alignment) + data if infos else out


def floats(*x): return struct.pack("<%df" % len(x), *x)
def pad(b, n=32): return b + b"\0" * (-len(b) % n)


A = floats(1, 2, 3, 4)
AB = [info("a", [4], 0, 0), info("b", [4, 2], 0, 32)]
AB_DATA = pad(A) + pad(floats(*range(8)))
GOOD = gguf([pair("general.alignment", U32, u32(32)),
             pair("a.u8", U8, b"\xff"), pair("a.i8", I8, b"\xff"), pair("a.u16", U16, b"\xff\xff"),
             pair("a.i16", I16, b"\xfe\xff"), pair("a.i32", I32, struct.pack("<i", -3)), pair("a.f32", F32, floats(1.5)),
             pair("a.bool", BOOL, b"\1"), pair("a.u64", U64, u64(2**63)), pair("a.i64", I64, u64(-4)),
             pair("a.f64", F64, struct.pack("<d", 2.5)),
             pair("a.numbers", ARRAY, u32(I16) + u64(3) + struct.pack("<3h", -1, 0, 1)),
             pair("a.texts", ARRAY, u32(STRING) + u64(2) + text(b"one") + text(b"")),
             pair("a.empty", ARRAY, u32(F32) + u64(0))], AB, AB_DATA)
case("good.gguf", "ok", data=GOOD)
case("good-v2.gguf", "ok", data=gguf(infos=AB, data=AB_DATA, version=2))
case("good-alignment-1.gguf", "ok", data=gguf([pair("general.alignment", U32, u32(1))],
                                              [info("a", [1], 24, 0), info("b", [1], 0, 1)], b"\1" + floats(1), alignment=1))
case("good-no-tensors.gguf", "ok", data=gguf())
case("good-nothing.gguf", "ok", data=b"GGUF" + u32(3) + u64(0) + u64(0))
case("empty.gguf", "FORMAT", "an empty file", data=b"")
case("four-bytes.gguf", "FORMAT", "version", "end", data=b"GGUF")
case("three-bytes.gguf", "FORMAT", "3 bytes", data=b"GGU")
case("magic.gguf", "FORMAT", "47 47 55 58", data=b"GGUX" + GOOD[4:])
case("big-endian.gguf", "UNSUPPORTED", "big-endian", data=b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
for v in (0, 1, 4):
    case("version-%d.gguf" % v, "UNSUPPORTED", "version 2 or 3", "found %d" % v, data=gguf(version=v))

for label, n in (("2-63", 2**63), ("2-64", 2**64 - 1), ("million", 10**6)):
    case("pairs-%s.gguf" % label, "FORMAT", "%d key-value pairs" % n, "bytes more", data=gguf(n_pairs=n))
    case("tensors-%s.gguf" % label, "FORMAT", "tensors: %d" % n, "bytes more",
         data=gguf(infos=AB, data=AB_DATA, n_tensors=n))
case("pairs-one-more.gguf", "FORMAT", "key 1", "found 0", data=gguf(n_pairs=2) + b"\0" * 13)

case("key-length.gguf", "FORMAT", "key 1", "18446744073709551615", data=gguf([u64(2**64 - 1) + b"k" * 40]))
case("key-empty.gguf", "FORMAT", "key 1", "found 0", data=gguf([pair(b"", U8, b"\1")]))
case("key-empty-alone.gguf", "FORMAT", "key 0", "found 0",
     data=b"GGUF" + u32(3) + u64(0) + u64(1) + pair(b"", U8, b"\1"))
case("key-long.gguf", "FORMAT", "key 1", "found 257", data=gguf([pair(b"k" * 257, U8, b"\1")]))
case("key-utf8.gguf", "FORMAT", "key 1", "UTF-8", data=gguf([pair(b"k\xff", U8, b"\1")]))
case("key-newline.gguf", "FORMAT", "key 1", "0x0A", data=gguf([pair(b"k\n", U8, b"\1")]))
case("key-twice.gguf", "FORMAT", "general.architecture", "twice", data=gguf([ARCH]))
case("value-type.gguf", "FORMAT", "some.key", "found 13", data=gguf([pair("some.key", 13, b"\0" * 8)]))
case("bool.gguf", "FORMAT", "some.key", "found 2", data=gguf([pair("some.key", BOOL, b"\2")]))
for label, n in (("2-64", 2**64 - 1), ("2-63", 2**63), ("100", 100)):
    case("string-%s.gguf" % label, "FORMAT", "some.key", "%d bytes" % n, data=gguf([pair("some.key", STRING, u64(n) + b"x")]))
for kind in (U8, F64, STRING):
    case("array-%d-count.gguf" % kind, "FORMAT", "some.key", "18446744073709551615",
         data=gguf([pair("some.key", ARRAY, u32(kind) + u64(2**64 - 1) + b"\0" * 16)]))
case("array-count-overflow.gguf", "FORMAT", "some.key", str(2**61),
     data=gguf([pair("some.key", ARRAY, u32(F64) + u64(2**61) + b"\0" * 16)]))
case("array-string-length.gguf", "FORMAT", "some.key", str(2**64 - 8),
     data=gguf([pair("some.key", ARRAY, u32(STRING) + u64(1) + u64(-8) + b"x")]))
case("array-type.gguf", "FORMAT", "some.key", "found 77", data=gguf([pair("some.key", ARRAY, u32(77) + u64(1) + b"\0" * 8)]))
case("array-nested.gguf", "UNSUPPORTED", "some.key", "array of arrays",
     data=gguf([pair("some.key", ARRAY, u32(ARRAY) + u64(1) + u32(U8) + u64(1) + b"\0")]))

for label, n in (("0", 0), ("48", 48), ("2-31", 2**31)):
    case("alignment-%s.gguf" % label, "FORMAT", "general.alignment", "power of two", "found %d" % n,
         data=gguf([pair("general.alignment", U32, u32(n))], AB, AB_DATA))
case("alignment-u64.gguf", "FORMAT", "general.alignment", "expected u32", "found u64",
     data=gguf([pair("general.alignment", U64, u64(32))], AB, AB_DATA))
case("alignment-string.gguf", "FORMAT", "general.alignment", "expected u32", "found string",
     data=gguf([pair("general.alignment", STRING, text(b"32"))], AB, AB_DATA))


def one(*a, data=AB_DATA, **k): return gguf(infos=[info(*a, **k)], data=data)


case("dims-none.gguf", "FORMAT", "a:", "1 to 4 dimensions", "found 0", data=one("a", [], 0, 0))
case("dims-5.gguf", "FORMAT", "a:", "1 to 4 dimensions", "found 5", data=one("a", [1, 1, 1, 1, 1], 0, 0))
case("dims-2-32.gguf", "FORMAT", "a:", "found 4294967295", data=one("a", [4], 0, 0, n_dims=2**32 - 1))
case("dim-zero.gguf", "FORMAT", "a:", "at least 1", "found 0", data=one("a", [4, 0], 0, 0))
case("dim-2-64.gguf", "FORMAT", "a:", "below 2^63", "found 18446744073709551612", data=one("a", [-4], 0, 0))
case("dims-overflow.gguf", "FORMAT", "a:", "multiply", data=one("a", [2**32, 2**32], 0, 0))
case("dims-wrap.gguf", "FORMAT", "a:", "multiply", data=one("a", [2**62, 2**62, 16, 1], 0, 0))
case("size-overflow.gguf", "FORMAT", "a:", data=one("a", [2**62], 0, 0))
case("size-overflow-i64.gguf", "FORMAT", "a:", "overflow", data=one("a", [2**62], 27, 0))
case("size-claim.gguf", "FORMAT", "a:", str(2**42), "end of the file", data=one("a", [2**40], 0, 0))
case("name-length.gguf", "FORMAT", "tensor 0", data=gguf(infos=[u64(2**64 - 1) + b"x" * 40], data=AB_DATA))
case("name-empty.gguf", "FORMAT", "tensor 0", "found 0", data=one("", [4], 0, 0))
case("name-newline.gguf", "FORMAT", "tensor 0", "0x0A", data=one("a\nb", [4], 0, 0))
case("name-zero.gguf", "FORMAT", "tensor 0", "0x00", data=one("a\0b", [4], 0, 0))
case("name-twice.gguf", "FORMAT", "a:", "twice", data=gguf(infos=[AB[0], info("a", [4, 2], 0, 32)], data=AB_DATA))
case("type-unknown.gguf", "UNSUPPORTED", "a:", "type 9999", "unknown type", data=one("a", [4], 9999, 0))
case("type-unread.gguf", "UNSUPPORTED", "a:", "type 16 (IQ2_XXS)", data=one("a", [256], 16, 0))
case("type-fork.gguf", "UNSUPPORTED", "a:", "type 335 (IQ2_BN_R4)", data=one("a", [256], 335, 0))
case("block.gguf", "FORMAT", "a:", "q4_0", "multiple of 32", "48", data=one("a", [48], 2, 0))
case("offset-unaligned.gguf", "FORMAT", "a:", "multiple of 32", "found 16", data=one("a", [4], 0, 16))
case("offset-beyond.gguf", "FORMAT", "a:", "offset 4096", data=one("a", [4], 0, 4096))
case("offset-2-64.gguf", "FORMAT", "a:", str(2**64 - 32), data=one("a", [4], 0, 2**64 - 32))
case("offset-same.gguf", "FORMAT", "a and b", "offset 0", data=gguf(infos=[AB[0], info("b", [4], 0, 0)], data=AB_DATA))
case("overlap.gguf", "FORMAT", "b:", "overlap",
     data=gguf(infos=[info("a", [8], 0, 64), info("b", [17], 0, 0)], data=b"\0" * 96))
case("gap.gguf", "FORMAT", "a:", "f16 of [4]", "takes 8 bytes", "found 64", "the next tensor",
     data=gguf(infos=[info("a", [4], 1, 0), info("b", [4], 0, 64)], data=b"\0" * 96))
case("gap-end.gguf", "FORMAT", "a:", "takes 16 bytes", "found 64", "the end of the file",
     data=gguf(infos=AB[:1], data=b"\0" * 64))
case("gap-less.gguf", "ok", data=gguf(infos=AB[:1], data=b"\0" * 63))
case("split-no-alone.gguf", "FORMAT", "split.count", "split.no, 1, found none",
     data=gguf([pair("split.no", U16, b"\1\0")], AB, AB_DATA))
case("type-42-gap.gguf", "UNSUPPORTED", "a:", "type 42", "one is assumed", data=one("a", [256, 4], 42, 0, data=b"\0" * 384))
case("type-42-gap-assumed.gguf", "ok", data=one("a", [256, 4], 42, 0, data=b"\0" * 384), assume="q2_0")
case("sum-overflow.gguf", "FORMAT", "b:",
     data=gguf(infos=[info("a", [2**60], 24, 0), info("b", [2**60], 24, 2**60)], data=AB_DATA))
case("data-short.gguf", "FORMAT", "b:", "32 bytes", "end of the file", data=gguf(infos=AB, data=AB_DATA[:-1]))
case("data-none.gguf", "FORMAT", "a:", "0 bytes", data=gguf(infos=AB[:1]))

# Type ids of several projects. 42: rows of 18 bytes for 64 weights, or of 34 for 128.
for assume, words in ((None, ("q2_0, q2_0-128", "which one to assume")), ("q2_0", ()), ("q2_0-128", ())):
    case("type-42-even%s.gguf" % ("-" + assume if assume else ""), "UNSUPPORTED" if words else "ok", *words,
         data=one("a", [256, 4], 42, 0, data=b"\0" * 288), **(dict(assume=assume) if assume else {}))
case("type-42-64.gguf", "ok", data=gguf(infos=[info("a", [128, 16], 42, 0), info("b", [4], 0, 576)],
                                        data=b"\0" * 576 + pad(A)), notice="read as q2_0:")
case("type-42-128.gguf", "ok", data=gguf(infos=[info("a", [256, 4], 42, 0), info("b", [128, 16], 42, 288)],
                                         data=b"\0" * (288 + 544)), notice="read as q2_0-128:")
case("type-42-neither.gguf", "UNSUPPORTED", "a:", "type 42", "TL2", data=one("a", [256, 4], 42, 0, data=b"\0" * 224))
case("type-36-rival.gguf", "UNSUPPORTED", "a:", "type 36", "IQ4_NL", data=one("a", [128, 4], 36, 0, data=b"\0" * 288))
case("type-36.gguf", "ok", data=one("a", [128, 4], 36, 0, data=b"\0" * 160), notice="read as i2_s, the usual order")
case("type-36-arm.gguf", "ok", data=one("a", [128, 4], 36, 0, data=b"\0" * 160), assume="i2_s-arm",
     notice="read as i2_s-arm, as asked")
case("type-142-even.gguf", "UNSUPPORTED", "a:", "pq2_0, IQ2_TN", data=one("a", [256, 4], 142, 0, data=b"\0" * 288))
case("type-142-rival.gguf", "UNSUPPORTED", "a:", "type 142", "IQ2_TN",
     data=one("a", [512, 2], 142, 0, data=b"\0" * 264 + b"\0" * 24)[:-24])
# Sizes that alignment hides are refused, and decided by whoever knows; those that it shows are told by name.
for kind, dims, room, read, rivals in ((40, [512, 1], 512, "nvfp4", ("q2_0c", "Q1_0")), (41, [256, 1], 256, "q1_0", ("Q1_0 of 32",)),
                                       (42, [256, 1], 256, "q2_0", ("stq1_0-42",))):
    hidden = gguf([pair("general.alignment", U32, u32(room))], [info("a", dims, kind, 0)], b"\0" * room, alignment=room)
    case(f"type-{kind}-hidden.gguf", "UNSUPPORTED", "a:", f"type {kind}", read, "which one to assume", *rivals, data=hidden)
    case(f"type-{kind}-assumed.gguf", "ok", data=hidden, assume=read, notice=f"read as {read}, as asked")
for kind, dims, size, *words in ((40, [64, 4], 48, "Q1_0 of 32"), (41, [256, 4], 192, "Q1_0 of 32")):
    case(f"type-{kind}-{size}-rival.gguf", "UNSUPPORTED", "a:", f"type {kind}", "another layout", *words,
         data=one("a", dims, kind, 0, data=b"\0" * size))
for kind, dims, size, read in ((40, [512, 4], 1152, "nvfp4"), (40, [512, 4], 520, "q2_0c"), (41, [256, 4], 144, "q1_0"),
                               (42, [256, 4], 168, "stq1_0-42"), (43, [256, 4], 168, "stq1_0")):
    case(f"type-{kind}-{read}.gguf", "ok", data=one("a", dims, kind, 0, data=b"\0" * size), notice=f"read as {read}:")
case("type-43-neither.gguf", "UNSUPPORTED", "a:", "type 43", "stq1_0", "newer ggml", data=one("a", [256, 4], 43, 0, data=b"\0" * 288))
case("type-t5-digits.gguf", "ok", data=gguf([pair("setun.t5.digits", STRING, text(b"zero-plus-minus"))],
                                            [info("a", [5], 0x53540005, 0)], data=b"\0"), notice="read as t5-zpm, by the key")


def part(no, count, infos, data, total=None):
    keys = [pair("split.no", U16, struct.pack("<H", no)), pair("split.count", U16, struct.pack("<H", count))]
    return gguf(keys + ([] if total is None else [pair("split.tensors.count", I32, struct.pack("<i", total))]), infos, data)


def split(name, status, *words, first=None, second=None, second_name="m-00002-of-00002.gguf", open="m-00001-of-00002.gguf"):
    files = {"m-00001-of-00002.gguf": first or part(0, 2, AB[:1], pad(A), 2)}
    if second_name:
        files[second_name] = second or part(1, 2, [info("b", [4], 0, 0)], pad(A))
    case(name + "/" + open, status, *words, files=files)


split("good-split", "ok")
split("split-missing", "IO", "m-00002-of-00002.gguf", "missing", "2 parts", second_name=None)
split("split-second", "ARGUMENT", "part 2", "first", open="m-00002-of-00002.gguf")
split("split-number", "FORMAT", "expected part 2 of 2", "found part 1", second=part(0, 2, AB[:1], pad(A)))
split("split-no-keys", "FORMAT", "split.no", "found none", second=gguf(infos=[info("b", [4], 0, 0)], data=pad(A)))
split("split-count", "FORMAT", "expected part 2 of 2", "of 3", second=part(1, 3, [info("b", [4], 0, 0)], pad(A)))
split("split-total", "FORMAT", "split.tensors.count", "expected 3", "found 2", first=part(0, 2, AB[:1], pad(A), 3))
split("split-twice", "FORMAT", "a:", "twice", second=part(1, 2, AB[:1], pad(A)))
split("split-many", "FORMAT", "65535 parts", "-of-65535.gguf", first=part(0, 65535, AB[:1], pad(A)))
case("split-name.gguf", "FORMAT", "3 parts", "-00001-of-00003.gguf", data=part(0, 3, AB[:1], pad(A)))

# ---- safetensors ----------------------------------------------------------------------------------------------------


def safetensors(header, data=b"", length=None):
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return u64(len(header) if length is None else length) + header + data


def entry(dtype="F32", shape=(4,), begin=0, end=16): return dict(dtype=dtype, shape=list(shape), data_offsets=[begin, end])


def st(name, status, *words, data=A, header=None, length=None, **entries):
    case(name + ".safetensors", status, *words,
         data=safetensors(header if header is not None else entries, data, length))


st("good", "ok", header={"__metadata__": {"format": "pt"}, "a": entry(), "scalar": entry("I64", (), 16, 24)},
   data=A + b"\0" * 8)
st("good-unordered", "ok", b=entry(begin=16, end=32), a=entry(), data=A + A)
st("good-dtypes", "ok", data=b"\0" * 49, **{d: entry(d, (1,), o, o + n) for d, o, n in (
    ("F64", 0, 8), ("F32", 8, 4), ("F16", 12, 2), ("BF16", 14, 2), ("F8_E4M3", 16, 1), ("F8_E5M2", 17, 1), ("I64", 18, 8),
    ("I32", 26, 4), ("I16", 30, 2), ("I8", 32, 1), ("U64", 33, 8), ("U32", 41, 4), ("U16", 45, 2), ("U8", 47, 1),
    ("BOOL", 48, 1))})
case("four-bytes.safetensors", "FORMAT", "8 bytes", "found 4", data=b"\x10\0\0\0")
st("header-2-64", "FORMAT", "header", str(2**64 - 1), a=entry(), length=2**64 - 1)
st("header-101-mb", "FORMAT", "header", "100000000", "101000000", a=entry(), length=101000000)
st("header-beyond", "FORMAT", "header", "length of 1000", "only", a=entry(), length=1000)
st("header-cut", "FORMAT", "header", "line 1", header='{"a":{"dtype":"F32","sha')
st("header-empty", "FORMAT", "header", header="")
st("header-array", "FORMAT", "header", "object", header="[1]", data=b"")
st("header-deep", "FORMAT", "header", "depth", header='{"a":' + "[" * 2100 + "]" * 2100 + "}")
st("header-utf8", "FORMAT", "header", "byte 0xff", header=b'{"a\xff":1}')
st("header-behind", "FORMAT", "header", header=json.dumps({"a": entry()}) + "x")
st("name-twice", "FORMAT", "header", "duplicate", header='{"a":%s,"a":%s}' % (json.dumps(entry()), json.dumps(entry())))
st("name-empty", "FORMAT", "a tensor", "found 0", header={"": entry()})
st("name-control", "FORMAT", "a tensor", "0x01", header={"a\x01": entry()})
st("name-zero", "FORMAT", "header", header='{"a\\u0000b":%s}' % json.dumps(entry()))
st("name-long", "FORMAT", "a tensor", "found 300", header={"n" * 300: entry()})
st("info-number", "FORMAT", "a:", "an object", "found a number", a=1)
st("dtype-absent", "FORMAT", "a:", "dtype", "found null", a={"shape": [4], "data_offsets": [0, 16]})
st("dtype-number", "FORMAT", "a:", "dtype", "found a number", a=dict(entry(), dtype=32))
st("dtype-unknown", "UNSUPPORTED", "a:", "dtype", "F4", a=entry("F4"))
st("shape-absent", "FORMAT", "a:", "shape", "found null", a={"dtype": "F32", "data_offsets": [0, 16]})
st("shape-negative", "FORMAT", "a:", "shape", "-4", a=entry(shape=(-4,)))
st("shape-fraction", "FORMAT", "a:", "shape", "4.5", a=entry(shape=(4.5,)))
st("shape-string", "FORMAT", "a:", "shape", "found a string", a=entry(shape=("4",)))
st("shape-zero", "FORMAT", "a:", "at least 1", "found 0", a=entry(shape=(4, 0)))
st("shape-9", "FORMAT", "a:", "at most 8 dimensions", "found 9", a=entry(shape=(1, 1, 1, 1, 1, 1, 1, 2, 2)))
st("shape-5-wrap", "FORMAT", "a:", "multiply", a=entry(shape=(2**40, 2**40, 1, 1, 1)))
st("shape-overflow", "FORMAT", "a:", "multiply", a=entry(shape=(2**40, 2**40)))
st("shape-2-60", "FORMAT", "a:", "shape", a=entry(shape=(2**60,)))
st("shape-wrap", "FORMAT", "a:", "size", a=entry(shape=(2**31, 2**31)))
st("offsets-absent", "FORMAT", "a:", "data_offsets", a={"dtype": "F32", "shape": [4]})
st("offsets-three", "FORMAT", "a:", "data_offsets", a=dict(entry(), data_offsets=[0, 16, 16]))
st("offsets-negative", "FORMAT", "a:", "data_offsets", a=entry(begin=-16, end=0))
st("offsets-reversed", "FORMAT", "a:", "data_offsets", "found 16 to 0", a=entry(begin=16, end=0))
st("offsets-beyond", "FORMAT", "a:", "16 bytes of data", "found 16 to 32", a=entry(begin=16, end=32))
st("offsets-huge", "FORMAT", "header", "overflow", header='{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,1e400]}}')
st("offsets-size", "FORMAT", "a:", "not the size of F32 [3]", a=entry(shape=(3,)))
st("overlap", "FORMAT", "b:", "overlaps a", a=entry(), b=entry(begin=8, end=24), data=A + A[:8])
st("same", "FORMAT", "overlaps", a=entry(), b=entry())
st("hole", "FORMAT", "b:", "hole", "expected to begin at 16", a=entry(), b=entry(begin=32, end=48), data=A * 3)
st("hole-first", "FORMAT", "a:", "hole", "expected to begin at 0", a=entry(begin=16, end=32), data=A * 2)
st("data-behind", "FORMAT", "expected 16 bytes after the header", "found 20", a=entry(), data=A + b"\0" * 4)
st("data-short", "FORMAT", "a:", "12 bytes of data", a=entry(), data=A[:12])
st("data-none", "FORMAT", "a:", "0 bytes of data", a=entry(), data=b"")

# ---- Hugging Face directories ---------------------------------------------------------------------------------------

MODEL = safetensors({"a": entry()}, A)
CONFIG = b'{"model_type": "llama"}'
SHARD = "model-%05d-of-00002.safetensors"


def hf(name, status, *words, config=CONFIG, index=None, **extra):
    files = dict(extra.pop("files", {"model.safetensors": MODEL} if index is None else
                           {SHARD % 1: MODEL, SHARD % 2: safetensors({"b": entry()}, A)}))
    if config is not None:
        files["config.json"] = config if isinstance(config, bytes) else json.dumps(config).encode()
    if index is not None:
        files["model.safetensors.index.json"] = index if isinstance(index, bytes) else json.dumps(index).encode()
    case(name, status, *words, files=files, **extra)


MAP = {"a": SHARD % 1, "b": SHARD % 2}
hf("good-hf", "ok")
hf("good-sharded", "ok", index={"metadata": {"total_size": 10**30}, "weight_map": MAP})
hf("good-sharded-chosen", "ok", index={"weight_map": MAP},
   files={SHARD % 1: MODEL, SHARD % 2: safetensors({"a": entry(), "b": entry(begin=16, end=32)}, A + A),
          "model-other.safetensors": b"not read"})
hf("no-config", "IO", "config.json", "found none", config=None)
hf("no-config-gguf", "ARGUMENT", "m.gguf", "path", config=None, files={"m.gguf": GOOD})
hf("config-array", "FORMAT", "config.json", "an array", config=b"[]")
hf("config-cut", "FORMAT", "config.json", "line 1", config=b'{"model_type": "lla')
hf("config-twice", "FORMAT", "config.json", "duplicate", config=b'{"hidden_size": 1, "hidden_size": 2}')
hf("config-deep", "FORMAT", "config.json", "depth", config=b'{"a":' + b"[" * 2100 + b"]" * 2100 + b"}")
hf("config-utf8", "FORMAT", "config.json", "byte 0xc0", config=b'{"model_type": "\xc0\x80"}')
hf("config-escape", "FORMAT", "config.json", "escape", config=b'{"a": "a\\u\n00"}')
hf("config-empty", "FORMAT", "config.json", config=b"")
hf("generation-cut", "FORMAT", "generation_config.json", files={"model.safetensors": MODEL, "generation_config.json": b"{"})
hf("no-weights", "IO", "model.safetensors", "found none", files={})
hf("pickled", "UNSUPPORTED", "pytorch_model.bin", "pickle", "safetensors", files={"pytorch_model.bin": b"PK\3\4"})
hf("pickled-sharded", "UNSUPPORTED", "pytorch_model", "pickle",
   files={"pytorch_model-00001-of-00002.bin": b"PK\3\4", "pytorch_model.bin.index.json": b"{}"})
case("pickled.bin", "UNSUPPORTED", "pickle", "safetensors", data=b"PK\3\4" + b"\0" * 28)
hf("index-no-map", "FORMAT", "weight_map", "found null", index={"metadata": {}})
hf("index-map-array", "FORMAT", "weight_map", "found an array", index={"weight_map": [1]})
hf("index-empty", "FORMAT", "weight_map", "found none", index={"weight_map": {}})
hf("index-number", "FORMAT", "weight_map", "a:", "found a number", index={"weight_map": {"a": 1}})
hf("index-twice", "FORMAT", "index.json", "duplicate", index=b'{"weight_map":{"a":"x","a":"y"}}')
for label, path in (("up", "../good.safetensors"), ("root", "/etc/passwd"), ("dots", ".."), ("none", ""), ("zero", "a\0b")):
    hf("index-path-" + label, "FORMAT", "weight_map", "a:", "name of a file", index={"weight_map": {"a": path}})
hf("index-missing", "IO", SHARD % 2, "missing", "names 2 files", "of which 1", index={"weight_map": MAP}, files={SHARD % 1: MODEL})
hf("index-tensor", "FORMAT", "c:", SHARD % 2, "does not have it", index={"weight_map": dict(MAP, c=SHARD % 2)})
hf("shard-cut", "FORMAT", SHARD % 2, "header", index={"weight_map": MAP},
   files={SHARD % 1: MODEL, SHARD % 2: MODEL[:20]})

# ---- weights: what is found only when one is looked up or read ------------------------------------------------------


def weight(name, status, *words, tensors, data, module="m", rows=4, columns=4, quantization=None, config=None, layer=False):
    c = dict(config or {"model_type": "llama"})
    if quantization:
        c["quantization_config"] = quantization
    hf(name, status, *words, config=c, files={"model.safetensors": safetensors(tensors, data)},
       read=dict(module=module, rows=rows, columns=columns))


BITNET = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
PACKED = {"m.weight": entry("U8", (1, 4), 0, 4), "m.weight_scale": entry("F32", (1,), 4, 8)}
CODES = bytes([0x64] * 4)
FOUR = floats(*range(16))
SQUARE = {"m.weight": entry("F32", (4, 4), 0, 64)}
weight("good-packed", "ok", tensors=PACKED, data=CODES + floats(2), quantization=BITNET)
weight("packed-rows", "FORMAT", "m.weight", "[2, 4]", "[1, 4]", tensors=PACKED, data=CODES + floats(2),
       quantization=BITNET, rows=5)
weight("packed-columns", "FORMAT", "m.weight", "[1, 5]", "[1, 4]", tensors=PACKED, data=CODES + floats(2),
       quantization=BITNET, columns=5)
weight("packed-no-scale", "FORMAT", "m.weight", "m.weight_scale", tensors={"m.weight": entry("U8", (1, 4), 0, 4)},
       data=CODES, quantization=BITNET)
weight("packed-no-config", "FORMAT", "m.weight", "quantization_config", tensors=PACKED, data=CODES + floats(2))
weight("packed-scales", "FORMAT", "m.weight_scale", "1 or 4", "found 2", quantization=BITNET,
       tensors=dict(PACKED, **{"m.weight_scale": entry("F32", (2,), 4, 12)}), data=CODES + floats(1, 2))
weight("packed-scale-dtype", "FORMAT", "m.weight_scale", "I32", quantization=BITNET,
       tensors=dict(PACKED, **{"m.weight_scale": entry("I32", (1,), 4, 8)}), data=CODES + floats(1))
for label, x in (("nan", float("nan")), ("inf", float("inf"))):
    weight("packed-scale-" + label, "FORMAT", "m.weight_scale", "finite", label, tensors=PACKED, data=CODES + floats(x),
           quantization=BITNET)
weight("packed-scale-zero", "FORMAT", "m.weight_scale", "nonzero", tensors=PACKED, data=CODES + floats(0),
       quantization={"quant_method": "bitnet"})
weight("shape-rows", "FORMAT", "m.weight", "[5, 4]", "[4, 4]", tensors=SQUARE, data=FOUR, rows=5)
weight("shape-columns", "FORMAT", "m.weight", "[4, 5]", "[4, 4]", tensors=SQUARE, data=FOUR, columns=5)
weight("shape-vector", "FORMAT", "m.weight", "[16]", "[4, 4]", tensors=SQUARE, data=FOUR, rows=1, columns=16)
weight("dtype-integers", "FORMAT", "m.weight", "I32", tensors={"m.weight": entry("I32", (4, 4), 0, 64)}, data=FOUR)
weight("norm-nan", "FORMAT", "n.weight", "nan", tensors={"n.weight": entry()}, data=floats(1, 2, float("nan"), 4),
       module="n", rows=1)
weight("norm-inf", "FORMAT", "n.weight", "-inf", tensors={"n.weight": entry()}, data=floats(1, 2, 3, float("-inf")),
       module="n", rows=1)
LATENT = {"layers.0.m.weight": entry("F32", (4, 4), 0, 64)}
weight("good-latent", "ok", tensors=LATENT, data=FOUR, quantization=BITNET, module="layers.0.m")
weight("latent-nan", "FORMAT", "layers.0.m.weight", "nan", tensors=LATENT, data=FOUR[:60] + floats(float("nan")),
       quantization=BITNET, module="layers.0.m")
for method in ("awq", "fp8", "bitsandbytes"):
    weight("method-" + method, "UNSUPPORTED", "quant_method", method, tensors=SQUARE, data=FOUR,
           quantization={"quant_method": method})
weight("method-none", "FORMAT", "quant_method", "found none", tensors=SQUARE, data=FOUR, quantization={"bits": 4})
weight("method-number", "FORMAT", "quant_method", "found a number", tensors=SQUARE, data=FOUR, quantization={"quant_method": 4})
weight("linear-class", "UNSUPPORTED", "linear_class", "otherlinear", tensors=SQUARE, data=FOUR,
       quantization=dict(BITNET, linear_class="otherlinear"))
weight("exempt-string", "FORMAT", "modules_to_not_convert", "found a string", tensors=SQUARE, data=FOUR,
       quantization=dict(BITNET, modules_to_not_convert="m"))
weight("weight-bits", "UNSUPPORTED", "weight_bits", "found 2 and 8", tensors=SQUARE, data=FOUR,
       config={"model_type": "llama", "weight_bits": 2, "input_bits": 8})


def gguf_weight(name, status, *words, infos, data, rows, columns, module="m"):
    case(name, status, *words, data=gguf(infos=infos, data=data), read=dict(module=module, rows=rows, columns=columns))


NAN16 = b"\x00\x7e"
gguf_weight("scale-block-nan.gguf", "FORMAT", "m.weight", "finite", infos=[info("m.weight", [256], 35, 0)],
            data=b"\x55" * 64 + NAN16, rows=1, columns=256)
gguf_weight("scale-q8_0-nan.gguf", "FORMAT", "m.weight", "finite", infos=[info("m.weight", [32], 8, 0)],
            data=NAN16 + b"\1" * 32, rows=1, columns=32)
gguf_weight("scale-i2_s-inf.gguf", "FORMAT", "m.weight", "finite scale", infos=[info("m.weight", [128], 36, 0)],
            data=b"\x55" * 32 + floats(float("inf")) + b"\0" * 28, rows=1, columns=128)
T2 = [info("m.weight", [4, 2], 0x53540002, 0)]
gguf_weight("good-scale.gguf", "ok", infos=T2 + [info("m.scale", [2], 0, 32)], data=pad(b"\x64\x64") + floats(1, 2), rows=2,
            columns=4)
gguf_weight("scale-missing.gguf", "FORMAT", "m.weight", "m.scale", infos=T2, data=b"\x64\x64", rows=2, columns=4)
gguf_weight("scale-count.gguf", "FORMAT", "m.scale", "1 or 2", "found 3", infos=T2 + [info("m.scale", [3], 0, 32)],
            data=pad(b"\x64\x64") + floats(1, 2, 3), rows=2, columns=4)
gguf_weight("scale-nan.gguf", "FORMAT", "m.scale", "finite", infos=T2 + [info("m.scale", [2], 0, 32)],
            data=pad(b"\x64\x64") + floats(1, float("nan")), rows=2, columns=4)

STACK = [info("m.weight", [2, 2, 3], 0, 0)]
for label, scales in (("expert", (1, 2, 3)), ("row", (1, 2, 3, 4, 5, 6)), ("one", (2,))):
    case("good-scale-%s.gguf" % label, "ok", data=gguf(infos=STACK + [info("m.scale", [len(scales)], 0, 64)],
                                                       data=pad(floats(*range(12)), 64) + floats(*scales)))

with open(os.path.join(HERE, "expected.json"), "w") as f:
    f.write("[\n" + ",\n".join("  " + json.dumps(c) for c in cases) + "\n]\n")
print(len(cases), "cases")
