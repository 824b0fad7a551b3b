#!/usr/bin/env python3
"""Checks the source tree against the rules of its layout; see test_layout.py for the proof that it finds each fault.

usage: check_layout.py ROOT

Rules: where files may lie; which folder may include which (an arrow goes one way only), and which of its headers; what
library code never does (end the process, print, read the environment, allocate without base); instruction sets stay out
of src/model; what has a table (formats, roles, forms, instruction sets, families) is not named elsewhere, and the order
of its rows is not compared; no function is there for tests alone, and what one file alone calls is static; no two types of
the library have one name; no file beyond 800 lines. Exit status 1, and one line a fault, when a rule is broken.
"""
import collections
import os
import re
import subprocess
import sys

LINES_MOST = 800
INSTALLED_HEADERS = ("setun.h", "setun_types.h")  # that the library includes: the other parts come with setun.h
PUBLIC_HEADER = re.compile(r"include/(setun(?:_[a-z]+)?\.h)")

TOP_FILES = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CMakeLists.txt", "CMakePresets.json", "demo.sh", "check.sh", ".clang-format",
             ".gitignore", ".gitattributes", ".ci/run"}
# Folders for what is neither library nor command, where anything of the project may lie.
FREE_FOLDERS = ("bench", "cmake", "docs", "examples", "models", "python", "tools")
TEST_FOLDERS = ("unit", "kernel", "model", "quant", "sampler", "tok", "chat",
                "golden", "badfiles", "fuzz", "e2e", "layout", "support", "constraint")
APPS = ("setun", "server")

# What each folder of src/ may include beside itself; what that one may include comes with it. "backend" means the
# headers that lie directly in src/backend.
ARROWS = {
    "api": ("runtime", "convert", "quantize", "synthetic"),
    "runtime": ("placement", "tokenizer", "constraint", "chat"),
    "convert": ("format", "quant", "placement"),
    "quantize": ("convert",),
    "synthetic": ("model", "format", "quant"),
    "placement": ("model", "source"),
    "model": ("backend", "source", "format"),
    "format": ("quant",),
    "source": ("format", "base"),
    "backend": ("quant",),
    "backend/cpu": ("backend", "kernel"),
    "backend/*": ("backend", "quant"),  # every other backend, whatever its folder is called
    "kernel": ("quant",),
    "quant": ("base",),
    "tokenizer": ("base",),
    "constraint": ("tokenizer",),
    "chat": ("jinja",),
    "jinja": ("base",),
    "base": (),
}
# What each folder shows to the others. Its other headers are private: only its own files include them (and tests, which
# may look into everything).
PUBLIC_HEADERS = {
    "api": (),
    "runtime": ("answer_grammar.h", "context.h", "logprobs.h", "prompts.h", "sampler.h", "sampler_defaults.h", "session.h", "stops.h", "templates.h", "vocabulary.h"),
    "convert": ("convert.h",),
    "quantize": ("calibrate.h", "quantize.h"),
    "synthetic": ("presets.h", "synthesis.h"),
    "placement": ("binding.h", "placement.h"),
    "model": ("arch.h", "arch/archs.def", "embedding.h", "forward.h", "hparams.h", "hparams_read.h", "hparams_write.h", "model.h", "roles.h", "rotation.h",
              "rope.h", "states.h", "supply.h"),
    "format": ("builder.h", "directory.h", "gguf_keys.h", "gguf_writer.h", "metadata.h", "notices.h", "output_tensor.h",
               "safetensors_writer.h"),
    "source": ("disk.h", "expert_deltas.h", "hf_quant.h", "stream.h", "weight.h"),
    "backend": ("backend.h", "host.h"),
    "backend/cpu": (),
    "backend/*": (),
    "kernel": ("kernel.h", "cache.h", "attend.h", "recurrent.h"),
    "quant": ("canonical.h", "fit.h", "gguf_rivals.h", "quant.h", "s24.h", "trit_delta.h"),
    "tokenizer": ("export.h", "tokenizer.h"),
    "constraint": ("constraint.h", "frontends.h", "grammar.h", "schema.h", "terms.h"),
    "chat": ("channels.h", "choose.h", "tool_calls.h", "tool_formats.h", "tool_history.h"),
    "jinja": ("template.h",),
    "base": ("buffer.h", "bytes.h", "clock.h", "cpu.h", "error.h", "file.h", "float16.h", "float_modes.h", "hash.h", "hex.h",
             "json.h", "log.h", "memory.h", "output.h", "pool.h", "process.h", "random.h", "suffix.h", "system_error.h",
             "system_memory.h", "thread.h", "utf8.h"),
}
SHADER_FOLDERS = ("shaders",)  # of a backend
SUBFOLDERS = {"kernel": ("ref", "lanes", "x86", "arm"), "model": ("arch",), "backend": None}  # None: any

# Other libraries' headers, and who alone may name them (tests apart, which may look into everything).
LIBRARY_HEADERS = {
    "jansson.h": (),  # an oracle in tests
    "histedit.h": ("apps/setun/editor.c",),
    "microhttpd.h": ("apps/server/",),
    "curl.h": ("apps/setun/transfer.c",),
    "sha1.h": ("apps/setun/digest.",),
    "sha2.h": ("apps/setun/digest.",),
    "version.h": ("apps/setun/digest.c",),  # of Nettle
    "pcre2.h": ("src/tokenizer/",),
    "utf8proc.h": ("src/tokenizer/", "src/jinja/"),
    "liburing.h": ("src/source/",),
    "vulkan.h": ("src/backend/vulkan/",),
    "immintrin.h": ("src/kernel/", "src/base/"),
    "arm_neon.h": ("src/kernel/", "src/base/"),
}
# Of C11 and POSIX: all that the command may use beside setun.h.
STANDARD_HEADERS = {
    "assert.h", "complex.h", "ctype.h", "dirent.h", "errno.h", "fcntl.h", "fenv.h", "float.h", "inttypes.h", "iso646.h",
    "limits.h", "locale.h", "math.h", "netdb.h", "poll.h", "pthread.h", "pwd.h", "setjmp.h", "signal.h", "stdalign.h",
    "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "stdnoreturn.h", "string.h",
    "strings.h", "termios.h", "tgmath.h", "threads.h", "time.h", "uchar.h", "unistd.h", "wchar.h", "wctype.h",
}

# What has a table is named only there, in the files that define what a row means (`own` below). *_HOMONYMS are words that name
# something else there, such as a publisher or a kind of tokenizer: (path, name), or (path, None) for any name.
FORMAT_HOMONYMS = {
    ("src/format/metadata.c", "f32"): "a type of GGUF's values",
    ("src/model/hparams.c", "t5"): "an architecture",
    ("src/tokenizer/vocabulary.c", "t5"): "a kind of tokenizer",
}
ISA_HOMONYMS = {
    ("src/base/float_modes.c", None): "MXCSR belongs to the baseline of x86-64",
    ("tests/kernel/common/tiles.h", None): "what the compiler is told, as in a pragma",
}
# Headers whose functions the library need not call.
UNUSED_ALLOWED = {
    "src/constraint/constraint.h": "sizes, and bytes to accept, which bench/ measures constraints by",
    "src/backend/host.h": "what a backend calls that leaves operations to the host; the CPU, which is the host, leaves none",
}
FAMILY_HOMONYMS = {
    ("src/source/hf_quant.h", "bitnet"): "a quantization method of config.json",
    ("src/quant/gguf_types.c", "bitnet"): "a publisher of type numbers",
    ("src/quant/gguf_types.c", "llama"): "a publisher of type numbers",
    ("src/tokenizer/export.c", "llama"): "a kind of tokenizer",
    ("src/tokenizer/vocabulary.c", "llama"): "a kind of tokenizer",
    ("src/tokenizer/patterns.c", "qwen2"): "a pre-tokenizer",
    ("src/tokenizer/patterns.c", "qwen35"): "a pre-tokenizer",
    ("src/tokenizer/patterns.c", "hunyuan-dense"): "a pre-tokenizer",
}
# Of roles: what a role means is defined by its row, by the member of st_model that holds its weight (model.c), and by the
# forward pass, which computes with it (forward.c, moe.c, delta.c). Everything else asks the row. Of families: their files,
# and the table of presets, in which a published shape names its family.
TABLES = {
    "format": (r'^FORMAT\((\w+), "([^"]+)"', ("src/quant/formats.def",), r"ST_({ids})", ("src/quant/", "src/kernel/"),
               FORMAT_HOMONYMS, "a format's properties are in its row and its file in src/quant"),
    "role": (r"^ROLE\((\w+)()", ("src/model/roles.def",), r"ST_({ids})",
             ("src/model/roles.", "src/model/arch", "src/model/model.c", "src/model/forward.c", "src/model/moe.c",
              "src/model/delta.c"), {}, "ask the role's row (model/roles.h)"),
    "form": (r"^FORM\((\w+)()", ("src/kernel/forms.def",), r"ST_FORM_({ids})", ("src/kernel/forms.def",),
             {}, "ask the form's row (forms.def)"),
    "instruction set": (r"^(?:ISA|EXTENSION)\((\w+)()", ("src/kernel/isas.def",), None,
                        ("src/kernel/isas.def", "src/kernel/x86/", "src/kernel/arm/", "src/base/cpu."),
                        ISA_HOMONYMS, "ask the set's row (isas.def)"),
    "family": (r'^ARCH\((\w+)()|^(?:static const char \*const \w*(?:gguf_names|model_types)\[\] = |    \.(?:name|hf_class) = )(.*)$',
               ("src/model/arch/",), r"({ids})", ("src/model/arch", "src/synthetic/presets.c"), FAMILY_HOMONYMS,
               "a family's facts are in its file in src/model/arch"),
}

# Of the library's internals, all that programs share: one reader of JSON is enough, and one of UTF-8 and of digits.
SHARED_HEADERS = ("base/hex.h", "base/json.h", "base/suffix.h", "base/utf8.h")
# What one program shows to the other: the command sees this one header of the server.
PROGRAM_HEADERS = {"apps/setun": ("server/server.h",)}

ENDS_PROCESS = re.compile(r"(?<![\w.>])(exit|_exit|_Exit|quick_exit|abort|assert|__builtin_trap|raise)\s*\(")
PRINTS = re.compile(r"(?<![\w.>])(printf|vprintf|fprintf|vfprintf|dprintf|puts|putchar|fputs|perror|psignal)\s*\(|"
                    r"(?<![\w.>])(stdout|stderr)\b")
ALLOCATES = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|posix_memalign|asprintf|"
                       r"vasprintf|getline)\s*\(")
ENVIRONMENT = re.compile(r"(?<![\w.>])(getenv|secure_getenv|setenv|putenv)\s*\(|\benviron\b")
INSTRUCTION_SET = re.compile(r"(?<![a-z])(avx\w*|sse\d\w*|neon(?![a-z])|amx\w*|sve2?(?![a-z])|vnni\w*|dotprod|i8mm|"
                             r"_mm\d*_\w+)|(\"scalar\")", re.IGNORECASE)  # the set that tests compare all others with
WORD = re.compile(r"\b[a-z]\w*")
# The end of a type's definition, or the declaration of an opaque one.
TYPE = re.compile(r"^\} (st_\w+);|^typedef (?:struct|union|enum) (\w+) \2;", re.MULTILINE)
# A declaration or a definition of a function.
DECLARED = re.compile(r"^(?:static inline )?(?:const )?(?:unsigned )?(?!return|else|typedef)\w+ \**([a-z]\w*)\((?=[^{};]*[;{])", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# A comment, a string or a character constant, whichever begins first.
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def project_files(root):
    """Paths relative to the root: those that git knows or would take, or where there is no git, all but build folders."""
    if os.path.isdir(os.path.join(root, ".git")) or os.path.isfile(os.path.join(root, ".git")):
        try:
            listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                    capture_output=True)
        except FileNotFoundError:  # a copy on a machine without git
            listed = None
        if listed and listed.returncode == 0:
            names = listed.stdout.decode(errors="surrogateescape").split("\0")
            return sorted(name for name in set(names) if name and os.path.isfile(os.path.join(root, name)))
    found = []
    for folder, folders, files in os.walk(root):
        here = os.path.relpath(folder, root)
        if here == ".":
            folders[:] = [name for name in folders if not name.startswith("build") and name not in (".git", ".cache")]
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.normpath(os.path.join(here, name)) for name in files]
    return sorted(found)


def strip_comments(text):
    """The code with comments, strings and character constants blanked; line numbers stay."""
    return SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def source_folder(path):
    """The node of ARROWS that a file in src/ belongs to, or None."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "src" or parts[1] not in ARROWS:
        return None
    inner = parts[2:-1]
    if not inner:
        return parts[1]
    known = SUBFOLDERS.get(parts[1], ())
    if parts[1] == "backend" and len(inner) == 2 and inner[1] in SHADER_FOLDERS:
        inner = inner[:1]
    if len(inner) > 1 or (known is not None and inner[0] not in known):
        return None
    if parts[1] == "backend":
        own = "backend/" + inner[0]
        return own if own in ARROWS else "backend/*"
    return parts[1]


def reachable(folder):
    seen, pending = set(), [folder]
    while pending:
        here = pending.pop()
        if here not in seen:
            seen.add(here)
            pending += ARROWS[here]
    return seen


REACHABLE = {folder: reachable(folder) for folder in ARROWS}


def in_layout(path):
    parts = path.split("/")
    if path in TOP_FILES or PUBLIC_HEADER.fullmatch(path) or (parts[0] in FREE_FOLDERS and len(parts) > 1):
        return True
    if parts[0] == "src":
        return source_folder(path) is not None and path.endswith((".c", ".h", ".def", ".comp", ".glsl", ".cu"))
    if parts[0] == "apps":
        return len(parts) >= 3 and parts[1] in APPS
    if parts[0] == "tests":
        return (len(parts) > 2 and parts[1] in TEST_FOLDERS) or path == "tests/CMakeLists.txt" or \
               (len(parts) == 2 and path.endswith(".h"))
    return False


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


class Tree:
    """The faults of one source tree: (rule, path, line, message)."""

    def __init__(self, root, public_headers=None):
        self.root = root
        self.public_headers = PUBLIC_HEADERS if public_headers is None else public_headers
        self.files = project_files(root)
        self.known = set(self.files)
        self.faults = []
        self.named = {kind: self.names_of(*table[:3]) for kind, table in TABLES.items()}
        ids = "|".join(pattern.pattern.split('|"')[0] for kind, pattern in self.named.items()
                       if pattern and kind in ("format", "role", "form"))
        self.compared = ids and re.compile(rf"(?<![<>-])[<>]=?\s*(?:{ids})|(?:{ids})\s*[<>]=?(?![<>=])")

    def names_of(self, row, tables, identifier):
        """A pattern for the names of a table's rows, as identifiers and as strings; None: that table does not exist."""
        ids, words = set(), set()
        for path in (path for path in self.files if path.startswith(tables)):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                for match in re.finditer(row, file.read(), re.MULTILINE):
                    found = match.groups(default="")
                    ids.add(found[0])
                    words |= {found[1], *re.findall(r'"([^"]+)"', "".join(found[2:]))}
        ids, words = ids - {""}, words - {""}
        if not ids:
            return None
        if not identifier:
            return INSTRUCTION_SET
        patterns = [r"\b" + identifier.format(ids="|".join(sorted(ids))) + r"\b"]
        if words:
            patterns.append('"(' + "|".join(re.escape(word) for word in sorted(words)) + ')"')
        return re.compile("|".join(patterns))

    def check_names(self, path, text):
        """What has a table is named in it and in its own files."""
        code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
        for kind, (_, _, _, own, allowed, message) in TABLES.items():
            tested = path.startswith("tests/") and kind not in ("form", "instruction set")
            if not self.named[kind] or path.startswith(own) or tested:
                continue
            for match in self.named[kind].finditer(code):
                name = next(group for group in match.groups() if group)
                if name == '"scalar"' and path.startswith("tests/"):
                    continue
                if (path, name) not in allowed and (path, None) not in allowed:
                    self.fault(kind, path, line_of(text, match.start()), f"{name}: {message}")
        for match in self.compared.finditer(code) if self.compared else ():
            self.fault("order", path, line_of(text, match.start()), f"{match.group()}: the order of a table's rows is not compared")

    def fault(self, rule, path, line, message):
        self.faults.append((rule, path, line, message))

    def check_calls(self):
        """What a header declares is called by the library or a program: functions for tests alone belong to tests. And it
        is named in more than one file: functions for one file alone are static there (tests count as other files)."""
        codes = {}
        for path in self.files:
            if path.startswith(("src/", "apps/", "tests/", "bench/")) and path.endswith((".c", ".h", ".def")):
                with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                    codes[path] = strip_comments(file.read())
        inside = [path for path in codes if path.startswith(("src/", "apps/"))]
        self.check_types({path: codes[path] for path in inside})
        uses = collections.Counter(name for path in inside for name in WORD.findall(codes[path]))
        uses.subtract(match.group(1) for path in inside for match in DECLARED.finditer(codes[path]))
        files, defined = collections.defaultdict(set), collections.defaultdict(set)
        for path, code in codes.items():
            for name in WORD.findall(code):
                files[name].add(path)
            for match in DECLARED.finditer(code):
                defined[match.group(1)].add(path)
        for path in (path for path in inside if path.endswith(".h") and path not in UNUSED_ALLOWED):
            for match in DECLARED.finditer(codes[path]):
                name, line = match.group(1), line_of(codes[path], match.start())
                if not uses[name]:
                    self.fault("unused", path, line, f"{name}: only tests call it")
                elif "inline" not in match.group() and files[name] == defined[name] and len(files[name]) == 2 and \
                        WORD.findall(codes[path]).count(name) == 1:
                    self.fault("static", path, line, f"{name}: only one file calls it, where it can be static")

    def check_types(self, codes):
        """No two types of the library have one name; a type may be declared before it is defined."""
        first = {}
        for path, code in sorted(codes.items()):
            for match in TYPE.finditer(code):
                name, defines = match.group(1) or match.group(2), bool(match.group(1))
                known = first.setdefault((name, defines), path)
                if defines and known != path:
                    self.fault("type", path, line_of(code, match.start()), f"{name}: {known} has a type with this name")

    def check(self):
        for path in self.files:
            if not in_layout(path):
                self.fault("place", path, 1, "no folder of the layout is for this file")
            if path.endswith((".c", ".h", ".def", ".py", ".sh", ".cu", ".comp", ".glsl")):
                with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                    self.check_text(path, file.read())
        self.check_public_headers()
        self.check_installed_headers()
        self.check_calls()
        return self.faults

    def check_public_headers(self):
        """A folder that has files has every header that it is said to show."""
        for folder in sorted({source_folder(path) for path in self.files} - {None}):
            for name in self.public_headers[folder]:
                path = f"src/{folder}/{name}"
                if path not in self.known:
                    self.fault("private header", path, 1, "PUBLIC_HEADERS lists this file, which does not exist")

    def check_installed_headers(self):
        """Programs include setun.h alone, so that it includes each of its parts; a part includes parts and C's headers."""
        parts = {}
        for path in filter(PUBLIC_HEADER.fullmatch, self.files):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                parts[os.path.basename(path)] = INCLUDE.findall(file.read())
        for name, included in parts.items():
            for quoted, angled in included:
                if quoted and quoted not in parts.keys() - {"setun.h"} or angled and angled not in STANDARD_HEADERS:
                    self.fault("include", "include/" + name, 1, f"{quoted or angled} is neither a part of setun.h nor of C")
        seen, pending = set(), ["setun.h"]
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += [quoted for quoted, _ in parts.get(name, ()) if quoted]
        for name in parts.keys() - seen:
            self.fault("include", "include/" + name, 1, "setun.h does not include it")

    def check_text(self, path, text):
        lines = text.count("\n")
        if lines > LINES_MOST:
            self.fault("length", path, lines, f"{lines} lines, at most {LINES_MOST} are allowed")
        if not path.endswith((".c", ".h", ".def")):
            return
        for match in INCLUDE.finditer(text):
            quoted, angled = match.groups()
            self.check_include(path, line_of(text, match.start(1 if quoted else 2)), quoted, angled)
        if path.startswith(("src/", "apps/", "tests/kernel/common/")):
            self.check_names(path, text)
        if path.startswith("src/"):
            self.check_library_code(path, text)

    def check_include(self, path, line, quoted, angled):
        owners = LIBRARY_HEADERS.get(os.path.basename(quoted or angled))
        if owners is not None and not path.startswith((*owners, "tests/")):
            self.fault("include", path, line, f"{quoted or angled} belongs to {' and '.join(owners) or 'tests'} alone")
        if path.startswith("src/"):
            if quoted and quoted not in INSTALLED_HEADERS:
                self.check_source_include(path, line, quoted)
        elif path.startswith("apps/"):
            self.check_app_include(path, line, quoted, angled)

    def check_source_include(self, path, line, quoted):
        here, target = source_folder(path), "src/" + quoted
        there = source_folder(target)
        if target not in self.known:
            self.fault("include", path, line, f'"{quoted}" is not a file of src/ (includes are written from there)')
        elif here == there == "backend/*" and os.path.dirname(path) != os.path.dirname(target):
            self.fault("include", path, line, f"{os.path.dirname(path)} may not include another backend's {quoted}")
        elif here and there not in REACHABLE[here]:
            # who lists the backends must see each of them; who uses them must not
            if not (here == "backend" and path.endswith(".c") and there.startswith("backend/")):
                self.fault("include", path, line, f"{here} may not include {there}")
        elif here and here != there and quoted not in [there + "/" + name for name in self.public_headers[there]]:
            self.fault("private header", path, line, f'"{quoted}" is private to {there}; its public headers are '
                       f"{', '.join(self.public_headers[there]) or 'none'}")

    def check_app_include(self, path, line, quoted, angled):
        folder = os.path.dirname(path)
        shared = (*SHARED_HEADERS, *PROGRAM_HEADERS.get(folder, ()))
        if quoted and quoted not in ("setun.h", *shared) and os.path.normpath(os.path.join(folder, quoted)) not in self.known:
            self.fault("include", path, line, f'"{quoted}" is neither setun.h nor a header of {folder}')
        if quoted and "/" in quoted and quoted not in shared:
            self.fault("include", path, line, f'"{quoted}" leaves {folder}; of the library, only setun.h is seen')
        standard = angled and (angled in STANDARD_HEADERS or os.path.basename(angled) in LIBRARY_HEADERS or
                               angled.startswith(("sys/", "net/", "netinet/", "arpa/")))
        if angled and not standard:
            self.fault("include", path, line, f"<{angled}> is neither of C nor of POSIX nor a library's that its file may name")

    def check_library_code(self, path, text):
        code = strip_comments(text)
        rules = [("process", ENDS_PROCESS, "library code never ends the process"),
                 ("print", PRINTS, "library code never prints"),
                 ("environment", ENVIRONMENT, "library code never reads the environment")]
        if not path.startswith("src/base/"):
            rules.append(("memory", ALLOCATES, "library code allocates through base/memory.h"))
        for rule, pattern, message in rules:
            for match in pattern.finditer(code):
                self.fault(rule, path, line_of(code, match.start()), f"{match.group().strip(' (')}: {message}")
        if path.startswith("src/model/"):
            for match in INSTRUCTION_SET.finditer(text):
                self.fault("instruction set", path, line_of(text, match.start()),
                           f"{match.group()}: the model names no instruction set")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_layout.py ROOT")
    faults = Tree(sys.argv[1]).check()
    for rule, path, line, message in faults:
        print(f"{path}:{line}: {rule}: {message}")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
