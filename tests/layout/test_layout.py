#!/usr/bin/env python3
"""Proves that check_layout.py finds each fault it is there for, in small trees made on the fly, and no other."""
import os
import tempfile
import unittest

import check_layout
from check_layout import ARROWS, PUBLIC_HEADERS, REACHABLE, Tree

# A tree without faults, which each test spoils in one place.
CLEAN = {
    "include/setun.h": '#include "setun_model.h"\nint setun_version(void);\n',
    "include/setun_model.h": '#include "setun_types.h"\n',
    "include/setun_types.h": "#include <stdint.h>\n",
    "src/base/memory.h": "void *st_malloc(unsigned long n);\n",
    "src/base/memory.c": '#include "base/memory.h"\n#include <stdlib.h>\n'
                         'void *st_malloc(unsigned long n) { return malloc(n); }\n',
    "src/base/json.h": "int y;\n",
    "src/quant/quant.h": '#include "base/memory.h"\n',
    "src/kernel/kernel.h": '#include "quant/quant.h"\n',
    "src/kernel/x86/dot_avx2.c": '#include "kernel/kernel.h"\n#include <immintrin.h>\n',
    "src/backend/backend.h": '#include "setun.h"\n',
    "src/backend/list.c": '#include "backend/backend.h"\n#include "backend/cpu/cpu.h"\n',
    "src/backend/cpu/cpu.h": '#include "backend/backend.h"\n#include "kernel/kernel.h"\n',
    "src/format/format.h": '#include "quant/quant.h"\n',
    "src/source/source.h": '#include "format/format.h"\n',
    "src/tokenizer/bpe.h": '#include "base/memory.h"\n#include <pcre2.h>\n',
    "src/model/model.h": '#include "backend/backend.h"\n#include "source/source.h"\n',
    "src/model/model.c": '#include "model/model.h"\n// exit(1) and printf() only in a comment\n'
                         'static const char *text = "abort() free(x) // no";\nint transverse, unamxed;\n',
    "src/runtime/session.h": '#include "model/model.h"\n#include "tokenizer/bpe.h"\n',
    "src/api/api.c": '#include "runtime/session.h"\n#include "base/memory.h"\n#include <stdio.h>\n'
                     'int f(char *s) { return snprintf(s, 2, "a"); }\nstatic int exit_layer(void) { return 0; }\n'
                     'void *g(void) { return st_malloc(1); }\n',
    "apps/setun/main.c": '#include "options.h"\n#include "setun.h"\n#include <stdio.h>\n#include <sys/stat.h>\n'
                         'int main(void) { return printf("x"); }\n',
    "apps/setun/options.h": "int x;\n",
    "apps/setun/talk.c": '#include "base/json.h"\n#include "options.h"\n',
    "src/model/arch/llama.c": '#include "model/model.h"\n#include "model/arch/private.h"\n',
    "src/model/arch/llama.def": "ROW(llama)\n",
    "src/model/arch/private.h": "int y;\n",
    "tests/unit/memory.c": '#include "base/memory.h"\n#include <assert.h>\n#include <jansson.h>\n',
    "README.md": "a\n",
}
CLEAN_PUBLIC = {**{folder: () for folder in ARROWS}, "base": ("memory.h",), "quant": ("quant.h",), "kernel": ("kernel.h",),
                "backend": ("backend.h",), "format": ("format.h",), "source": ("source.h",), "tokenizer": ("bpe.h",),
                "model": ("model.h", "arch/llama.def"), "runtime": ("session.h",)}


class LayoutTest(unittest.TestCase):
    def faults(self, changes, public=CLEAN_PUBLIC):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            return Tree(root, public).check()

    def expect(self, rule, path, text, line=1):
        """The tree with this one file has exactly one fault: of this rule, there."""
        found = [fault[:3] for fault in self.faults({path: text})]
        self.assertEqual(found, [(rule, path, line)], text)

    def test_clean_tree_passes(self):
        self.assertEqual(self.faults({}), [])

    def test_includes_against_the_arrows(self):
        for path, header in [("src/base/a.c", "quant/quant.h"), ("src/quant/a.c", "kernel/kernel.h"),
                             ("src/kernel/ref/a.c", "backend/backend.h"), ("src/model/a.c", "backend/cpu/cpu.h"),
                             ("src/model/a.c", "kernel/kernel.h"), ("src/model/a.c", "runtime/session.h"),
                             ("src/model/a.c", "tokenizer/bpe.h"), ("src/tokenizer/a.c", "format/format.h"),
                             ("src/format/a.c", "source/source.h"), ("src/runtime/a.c", "kernel/kernel.h"),
                             ("src/backend/a.h", "backend/cpu/cpu.h"), ("src/backend/vulkan/a.c", "kernel/kernel.h"),
                             ("src/backend/vulkan/a.c", "backend/cpu/cpu.h"), ("src/backend/abacus/a.c", "kernel/kernel.h"),
                             ("src/chat/a.c", "tokenizer/bpe.h"), ("src/convert/a.c", "runtime/session.h"),
                             ("src/api/a.c", "backend/cpu/cpu.h")]:
            with self.subTest(path=path, header=header):
                self.expect("include", path, f'// why\n#include "{header}"\n', 2)

    def test_arrows_have_no_cycle(self):
        for folder in ARROWS:
            for other in REACHABLE[folder] - {folder}:
                self.assertNotIn(folder, REACHABLE[other], f"{folder} and {other} include each other")

    def test_private_headers(self):
        private = {"src/quant/rows.h": "int z;\n", "src/backend/cpu/queue.h": "int q;\n"}
        for path, header in [("src/kernel/ref/a.c", "quant/rows.h"), ("src/model/a.h", "quant/rows.h"),
                             ("src/api/a.c", "model/arch/private.h"), ("src/runtime/a.c", "model/arch/private.h"),
                             ("src/backend/a.c", "backend/cpu/queue.h")]:
            with self.subTest(path=path, header=header):
                found = [fault[:3] for fault in self.faults({**private, path: f'// why\n#include "{header}"\n'})]
                self.assertEqual(found, [("private header", path, 2)] if path != "src/backend/a.c" else [])
        inside = {"src/quant/a.c": '#include "quant/rows.h"\n', "tests/quant/a.c": '#include "quant/rows.h"\n',
                  "src/api/a.c": '#include "model/arch/llama.def"\n'}
        self.assertEqual(self.faults({**private, **inside}), [])

    def test_public_headers_exist(self):
        self.assertEqual(set(PUBLIC_HEADERS), set(ARROWS))
        found = self.faults({}, {**CLEAN_PUBLIC, "quant": ("quant.h", "lost.h"), "constraint": ("mask.h",)})
        self.assertEqual([fault[:3] for fault in found], [("private header", "src/quant/lost.h", 1)])

    def test_includes_that_are_not_written_from_src(self):
        self.expect("include", "src/model/a.c", '#include "model.h"\n')
        self.expect("include", "src/model/a.c", '#include "../base/memory.h"\n')

    def test_apps_see_only_the_public_header(self):
        for header in ('"base/memory.h"', '"../../src/base/memory.h"'):
            found = self.faults({"apps/setun/a.c": f"#include {header}\n"})
            self.assertTrue(found and all(f[0] == "include" and f[1] == "apps/setun/a.c" for f in found), header)
        self.expect("include", "apps/setun/a.c", "#include <curl/curl.h>\n")

    def test_parts_of_the_public_header(self):
        self.expect("include", "include/setun_lost.h", "int a;\n")
        self.expect("include", "include/setun_types.h", '#include "base/memory.h"\n')
        self.expect("include", "include/setun_types.h", '#include "setun.h"\n')
        self.expect("include", "include/setun_types.h", "#include <sys/types.h>\n")
        self.expect("include", "src/api/a.c", '#include "setun_model.h"\n')
        self.expect("include", "apps/setun/a.c", '#include "setun_model.h"\n')

    def test_other_libraries_have_one_entrance(self):
        self.expect("include", "src/model/a.c", "#include <jansson.h>\n")
        self.expect("include", "src/runtime/a.c", "#include <pcre2.h>\n")
        self.expect("include", "src/runtime/a.c", "#include <immintrin.h>\n")

    def test_files_outside_the_layout(self):
        for path in ("notes.txt", "src/a.c", "src/extra/a.c", "src/base/deep/a.c", "src/model/arch/deep/a.c", "src/kernel/riscv/a.c",
                     "src/base/a.txt", "apps/a.c", "apps/other/a.c", "tests/a.c", "tests/misc/a.c", "include/other.h",
                     "lib/a.c", ".ci/other"):
            with self.subTest(path=path):
                self.expect("place", path, "\n")

    def test_ending_the_process(self):
        for call in ("exit(1)", "_exit(1)", "abort()", "assert(x)", "quick_exit(1)", "raise(6)", "__builtin_trap()"):
            with self.subTest(call=call):
                self.expect("process", "src/model/a.c", f"/* two\nlines */ void f(int x) {{ {call}; }}\n", 2)

    def test_static_assertions_are_allowed(self):
        self.assertEqual(self.faults({"src/model/a.c": '_Static_assert(1, "");\nstatic_assert(1, "");\n'}), [])

    def test_printing(self):
        for call in ('printf("")', 'puts("")', 'perror("")', "putchar(10)"):
            with self.subTest(call=call):
                self.expect("print", "src/base/a.c", f"void f(void) {{ {call}; }}\n")
        self.expect("print", "src/base/a.c", "void f(void) { fflush(stdout); }\n")

    def test_the_environment(self):
        self.expect("environment", "src/runtime/a.c", 'char *f(void) { return getenv("A"); }\n')

    def test_memory(self):
        for call in ("malloc(1)", "calloc(1, 1)", "realloc(p, 1)", "free(p)", 'strdup("")', "aligned_alloc(64, 64)"):
            with self.subTest(call=call):
                self.expect("memory", "src/format/a.c", f"void f(void *p) {{ {call}; }}\n")
        self.assertEqual(self.faults({"src/format/a.c": "void f(st *p) { st_malloc(1); p->free(1); st_free(p); }\n"}), [])

    def test_length(self):
        self.assertEqual(self.faults({"src/base/a.c": "\n" * 800}), [])
        self.expect("length", "src/base/a.c", "\n" * 801, 801)

    def test_formats_outside_their_table(self):
        table = {"src/quant/formats.def": 'FORMAT(I2_S, "i2_s", 36, 128, 0, TENSOR, ops)\n',
                 "src/quant/a.c": "int a = ST_I2_S;\n"}
        for text, faults in (("int a = ST_I2_S;\n", 1), ('const char *a = "i2_s";\n', 1), ("int a; // ST_I2_S\n", 0),
                             ('const char *a = "i2_s and";\nint ST_I2_SX;\n', 0)):
            found = [fault[:3] for fault in self.faults({**table, "src/model/a.c": text})]
            self.assertEqual(found, [("format", "src/model/a.c", 1)] * faults, text)

    def test_names_outside_their_tables(self):
        tables = {"src/model/roles.def": "ROLE(ATTN_Q, ATTENTION)\n", "src/kernel/forms.def": 'FORM(T16, "t16")\n',
                  "src/kernel/isas.def": "ISA(avx2, scalar)\n", "src/model/arch/archs.def": "ARCH(st_spec_llama)\n",
                  "src/model/arch/llama.c": 'static const char *const gguf_names[] = {"llama", NULL};\n'
                                            'const st_spec st_spec_llama = {\n    .hf_class = "LlamaForCausalLM",\n};\n',
                  "src/kernel/x86/dot_avx2.c": "void st_avx2_init(void);\n",
                  "src/model/forward.c": "int a = ST_ATTN_Q;\n"}
        self.assertEqual(self.faults(tables), [])
        for path, text, rule in (("src/placement/a.c", "int a = ST_ATTN_Q;\n", "role"), ("src/api/a.c", "// ST_ATTN_Q\n", None),
                                 ("src/kernel/ref/a.c", "int a = ST_FORM_T16;\n", "form"),
                                 ("src/kernel/ref/a.c", "int a = ST_FORM_T16B;\n", None),
                                 ("tests/kernel/common/a.c", "int a = ST_FORM_T16;\n", "form"),
                                 ("tests/kernel/common/a.c", "int a = ST_ATTN_Q;\n", None),
                                 ("src/kernel/a.c", 'const char *a = "avx2";\n', "instruction set"),
                                 ("apps/setun/a.c", 'const char *a = "avx2";\n', "instruction set"),
                                 ("apps/setun/a.c", 'const char *a = "scalar";\n', "instruction set"),
                                 ("tests/unit/a.c", 'const char *a = "scalar";\n', None),
                                 ("src/api/a.c", "void *a = &st_spec_llama;\n", "family"),
                                 ("apps/setun/a.c", 'const char *a = "llama";\n', "family"),
                                 ("src/api/a.c", 'const char *a = "LlamaForCausalLM";\n', "family"),
                                 ("src/api/a.c", 'const char *a = "llama.cpp";\n', None)):
            with self.subTest(path=path, text=text):
                found = [fault[:3] for fault in self.faults({**tables, path: text})]
                self.assertEqual(found, [(rule, path, 1)] if rule else [])

    def test_functions_for_tests_alone(self):
        header = "// st_one(), st_two()\nint st_one(int a,\n           int b);\nstatic inline int st_two(void) {\n  return 0;\n}\n"
        source = "int st_one(int a,\n           int b) {\n  return a + b;\n}\n"
        trees = {"src/base/one.h": header, "src/base/one.c": source, "tests/unit/one.c": "int a = st_one(1, 2) + st_two();\n"}
        public = {**CLEAN_PUBLIC, "base": ("memory.h", "one.h")}
        found = [fault[:3] for fault in self.faults(trees, public)]
        self.assertEqual(found, [("unused", "src/base/one.h", 2), ("unused", "src/base/one.h", 4)])
        allowed = check_layout.UNUSED_ALLOWED
        check_layout.UNUSED_ALLOWED = {"src/base/one.h": "others call these"}
        self.assertEqual(self.faults(trees, public), [])
        check_layout.UNUSED_ALLOWED = allowed
        trees["src/api/a.c"] = "int b(void) {\n  return st_one(1, 2) + st_two();\n}\n"
        self.assertEqual(self.faults(trees, public), [])

    def test_functions_of_one_file(self):
        for path, name in (("src/base/one", "st_one"), ("apps/server/one", "one")):
            trees = {path + ".h": f"int {name}(int a);\n",
                     path + ".c": f"int {name}(int a) {{\n  return a;\n}}\nint f(void) {{\n  return {name}(1);\n}}\n"}
            self.assertEqual([fault[:3] for fault in self.faults(trees)], [("static", path + ".h", 1)])
            trees["tests/unit/one.c"] = f"int a = {name}(1);\n"
            self.assertEqual(self.faults(trees), [])

    def test_types_of_one_name(self):
        trees = {"src/base/one.h": "typedef struct st_one st_one;\nstruct st_one {\n  int a;\n};\n", "src/model/two.h": "typedef struct {\n  int a;\n} st_two;\n"}
        self.assertEqual(self.faults(trees), [])
        trees["src/source/two.c"] = "typedef enum st_two {\n  A\n} st_two;\n"
        self.assertEqual([fault[:3] for fault in self.faults(trees)], [("type", "src/source/two.c", 3)])

    def test_orders_of_tables(self):
        tables = {"src/model/roles.def": "ROLE(ATTN_Q, ATTENTION)\n", "src/kernel/forms.def": 'FORM(F16, "f16")\n',
                  "src/quant/formats.def": 'FORMAT(I2_S, "i2_s", 36, 128, 0, TENSOR, ops)\n'}
        for path, text, faults in (("src/model/forward.c", "int a = r < ST_ATTN_Q;\n", 1),
                                   ("src/kernel/kernel.h", "int a = ST_FORM_F16 <= f;\n", 1), ("src/quant/a.c", "int a = f>=ST_I2_S;\n", 1),
                                   ("src/quant/a.c", "int a = 1 << ST_I2_S, b = f < ST_FORMAT_COUNT, c = p->ST_I2_S;\n", 0)):
            found = [fault[0] for fault in self.faults({**tables, path: text}) if fault[0] == "order"]
            self.assertEqual(found, ["order"] * faults, text)

    def test_instruction_sets_in_the_model(self):
        for name in ("avx2", "AVX512_VNNI", "neon", "__m256i x = _mm256_setzero_si256()", "amx", "sse41"):
            with self.subTest(name=name):
                self.expect("instruction set", "src/model/a.c", f"// as fast as {name} is\n")


if __name__ == "__main__":
    unittest.main()
