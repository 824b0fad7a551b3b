#!/usr/bin/env python3
"""Writes src/jinja/case_table.h: the characters whose full case mapping (Unicode's SpecialCasing, as Python's str.upper,
str.lower, str.title and str.casefold apply it) differs from the simple one that utf8proc knows.

usage: make_case_table.py > src/jinja/case_table.h
"""
import ctypes
import ctypes.util
import unicodedata

lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
simple = {"UPPER": lib.utf8proc_toupper, "LOWER": lib.utf8proc_tolower, "TITLE": lib.utf8proc_totitle,
          "CASEFOLD": lib.utf8proc_tolower}
full = {"UPPER": str.upper, "LOWER": str.lower, "TITLE": str.title, "CASEFOLD": str.casefold}

print("// Made by tools/make_case_table.py: full case mappings that are not utf8proc's simple ones, sorted. Unicode",
      unicodedata.unidata_version + ".")
print("#ifndef SETUN_CHAT_CASE_TABLE_H\n#define SETUN_CHAT_CASE_TABLE_H\n\n#include <stdint.h>\n")
print("typedef struct {\n  uint32_t from, to[3]; // ended by 0\n} st_jinja_case_entry;\n")
for name in full:
    print(f"static const st_jinja_case_entry JINJA_TABLE_{name}[] = {{")
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000 or unicodedata.category(chr(code)) == "Cn":
            continue
        mapped = full[name](chr(code))
        if mapped == chr(simple[name](code)):
            continue
        print(f"    {{0x{code:X}, {{{', '.join(f'0x{ord(c):X}' for c in mapped)}}}}},")
    print("};\n")
print("#endif")
