#!/usr/bin/env python3
"""The command line itself: usage errors, help, version, manual pages and completions."""
import json
import os
import re
import shutil
import subprocess
import tempfile

import gguf
from support import COMMAND, TALES, Case, main, setun

COMMANDS = ["run", "chat", "render", "inspect", "convert", "quantize", "tokenize", "detokenize", "logits", "perplexity", "embed", "plan", "bench", "devices", "serve",
            "pull", "list", "remove", "help", "version"]


def long_options(name):
    """The long options that --help lists."""
    text = setun(name, "--help").stdout.decode()
    return set(re.findall(r"^  (?:-\w, |    )--([\w-]+)", text, re.MULTILINE))


class UsageTest(Case):
    def test_without_arguments_prints_the_overview_on_stderr(self):
        result = setun()
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(b"usage: setun COMMAND", result.stderr)

    def test_unknown_words(self):
        self.fails(2, "sing", mentions=["'sing'", "setun help"])
        self.fails(2, "--sing", mentions=["'--sing'"])
        self.fails(2, "help", "sing", mentions=["'sing'"])
        self.fails(2, "run", TALES, "-p", "a", "--sing", mentions=["'--sing'", "setun run --help"])
        self.fails(2, "run", TALES, "-p", "a", "-x", mentions=["'-x'"])
        self.fails(2, "run", TALES, "another", "-p", "a", mentions=["'another'"])

    def test_missing_arguments_and_values(self):
        for name in ("run", "inspect", "tokenize", "detokenize", "logits", "perplexity", "plan", "bench"):
            with self.subTest(command=name):
                self.fails(2, name, mentions=["MODEL"])
        self.fails(2, "run", TALES, "-p", mentions=["--prompt"])
        self.fails(2, "logits", TALES, "--ids", "1", mentions=["-o"])
        self.fails(2, "inspect", TALES, "--tensor", "a", mentions=["--tensor", "-o"])
        self.fails(2, "run", TALES, "-p", "a", "-f", "b", mentions=["--prompt", "--file"])
        self.fails(2, "logits", TALES, "-p", "a", "--ids", "1", "-o", "x", mentions=["--ids"])
        self.fails(2, "perplexity", TALES, "-p", "a", "--ids", "x", mentions=["--ids"])

    def test_values_out_of_range(self):
        for option, value in [("-n", "-2"), ("-n", "x"), ("-n", "1.5"), ("--ctx", "0"), ("-t", "0"), ("--temp", "-0.1"),
                              ("--temp", "nan"), ("--temp", "warm"), ("--top-p", "1.01"), ("--min-p", "-1"),
                              ("--top-k", "-1"), ("--seed", "-2"), ("--seed", "99999999999999999999"), ("--kv", "f8"), ("--kv", "f16,"), ("--kv", "q8,q4,q4"),
                              ("--isa", "mmx"), ("--activation", "int4"), ("--batch-size", "0")]:
            with self.subTest(option=option, value=value):
                self.fails(2, "run", TALES, "-p", "a", option, value, mentions=[f"'{value}'"])
        self.fails(2, "run", TALES, "-p", "a", "--ids=3", mentions=["--ids"])
        for number in ("99999999999999999999", "-99999999999999999999", "2147483648"):
            self.fails(2, "run", TALES, "-p", "a", "-n", number, mentions=["-n", "-1 to 2147483647", f"'{number}'"])
        self.fails(2, "run", TALES, "-p", "a", "--seed", 1 << 64, mentions=["0 to 18446744073709551615"])

    def test_other_programs_spellings(self):
        want = self.good("run", TALES, "-p", "a b", "-n", 9, "--seed", 3, "--temp", 0.7, "-c", 64, "--no-echo")
        for args in (["-m", TALES, "-p", "a b", "--n-predict", 9, "-s", 3, "--temperature", 0.7, "--ctx-size", 64],
                     ["-p", "a b", "--predict=9", "-s3", "--temperature=0.7", "--ctx-size=64", f"--model={TALES}"],
                     ["-p", "a b", "--max-tokens", 9, "-s", 3, "--temperature", 0.7, "-c", 64, f"-m{TALES}", "-ngl", 0,
                      "--device", "none", "-no-cnv", "--no-mmap", "-ub", 64, "-fa", "auto"]):
            with self.subTest(args=args):
                self.assertEqual(self.good("run", *args, "--no-display-prompt"), want)
        self.assertEqual(self.good("tokenize", "--ids", "-p", "a", "-m", TALES), self.good("tokenize", TALES, "--ids", "-p", "a"))
        self.assertEqual(self.good("detokenize", 5, 6, "-m", TALES), self.good("detokenize", TALES, 5, 6))
        self.fails(2, "run", "-m", TALES, TALES, "-p", "a", mentions=["unexpected"])
        self.fails(2, "run", "-m", TALES, "-m", TALES, "-p", "a", mentions=["twice"])
        self.fails(2, "run", "-p", "a", "-m", mentions=["-m"])
        self.fails(2, "run", TALES, "-p", "a", "--jinja=x", mentions=["--jinja", "no value"])

    def test_a_seed_of_minus_one_is_another_each_time(self):
        seeds = {re.search(rb"seed (\d+)", setun("run", TALES, "-p", "a", "-n", 1, "--verbose", "--seed", -1).stderr)[1]
                 for _ in range(3)}
        self.assertGreater(len(seeds), 1)

    def test_what_there_is_instead(self):
        for option, value, said in (("-ngl", 99, "CPU"), ("--n-gpu-layers", 1, "CPU"),
                                    ("--gpu-layers", "x", "use 0"), ("-sm", "row", "CPU"), ("-ctk", "q8_0", "--kv"),
                                    ("-fa", "on", "matrix of scores"), ("-tb", 4, "-t"), ("--mlock", "", "--memory"), ("-cnv", "", "chat"),
                                    ("--keep", 4, "--kv-sinks"), ("--grammar-file", "x", "--grammar FILE"), ("-st", "", "pipe")):
            with self.subTest(option=option):
                self.fails(2, "run", TALES, "-p", "a", option, value, mentions=[option, said])
        self.fails(2, "chat", TALES, "-p", "a", mentions=["-p", "'setun run'", "pipe"])
        self.fails(2, "tokenize", TALES, "-p", "a", "-ngl", 9, mentions=["unknown option '-ngl'"])  # computes nothing

    def test_did_you_mean(self):
        for word, meant in (("--tmep", "--temp"), ("--ctx-siz", "--ctx-size"), ("--thread", "--threads"), ("--seeed=4", "--seed"),
                            ("--repeat-penlaty", "--repeat-penalty")):
            self.fails(2, "run", TALES, "-p", "a", word, mentions=[f"'{word}'", f"did you mean {meant}?"])
        for word in ("--sing", "-x", "--" + "temp" * 20):
            self.assertNotIn("did you mean", self.fails(2, "run", TALES, "-p", "a", word, mentions=[word]))
        self.fails(2, "serve", TALES, "-p", 8080, mentions=["'-p'", "did you mean --port?"])
        for word, meant in (("chta", "chat"), ("rum", "run"), ("inspcet", "inspect"), ("tok", "tokenize"),
                            ("ls", "list"), ("rm", "remove"), ("models", "list"), ("info", "inspect")):
            self.fails(2, word, TALES, mentions=[f"'{word}'", f"did you mean {meant}?"])
            self.fails(2, "help", word, mentions=[f"did you mean {meant}?"])
        for path in (TALES, os.path.join(TALES, "config.json"), "model.gguf", "no/such"):
            self.fails(2, path, mentions=[f"'setun run {path}'"])
        self.fails(2, "-m", TALES, mentions=["-m", "a command comes first"])

    def test_seeds_have_64_bits(self):
        for seed in (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            result = setun("run", TALES, "-p", "a", "-n", 1, "--verbose", "--seed", seed)
            self.assertEqual(result.returncode, 0)
            self.assertIn(f"seed {seed}\n", result.stderr.decode())

    def test_nothing_where_something_is_needed(self):
        for name in ("run", "tokenize", "inspect", "bench", "detokenize"):
            self.assertNotIn("error: :", self.fails(2, name, "", mentions=["empty", name]))
        self.fails(2, "run", TALES, "-f", "", mentions=["--file", "''"])
        self.fails(2, "logits", TALES, "-p", "a", "-o", "", mentions=["--output", "''"])
        for ids in ("", " ", "[]"):
            self.fails(2, "logits", TALES, "--ids", ids, "-o", "x", mentions=["no ids"])

    def test_words_that_are_no_choice(self):
        for name in ("run", "inspect", "chat"):
            for word in ("foo", "f32", ""):  # the type of f32 has one meaning
                self.fails(2, name, TALES, "--assume", word, mentions=["--assume", "|i2_s-arm|", f"'{word}'"])
        self.fails(2, "convert", TALES, "-o", "x.gguf", "--to", "t2", "--assume", "t2", mentions=["--assume", "'t2'"])
        for word in ("mxfp4", "t5", "t5-zpm", "i2_s", "i2_s-arm", "i2_s-x4", "q2_0", "q2_0-128", "pq2_0", "ptq1_0"):
            self.good("inspect", TALES, "--assume", word)
        for word in ("x", "=1", "x={", "x=word"):
            self.fails(2, "chat", TALES, "--template-arg", word, mentions=["--template-arg", word.lstrip("x=") or word])

    def test_required_options_are_in_the_usage_line(self):
        self.assertIn(b"usage: setun convert SRC -o DST --to LAYOUT [options]\n", self.good("convert", "--help"))
        self.assertIn(b"usage: setun logits MODEL -o FILE [options]\n", self.good("logits", "--help"))
        self.fails(2, "convert", mentions=["error: SRC is missing"])

    def test_a_context_beyond_the_model_names_the_model(self):
        for args in (("run", "-c", 257), ("perplexity", "-c", 257), ("logits", "-o", "x")):
            text = "a " * 300 if args[0] == "logits" else "a"
            self.fails(1, args[0], TALES, *args[1:], "-p", text, mentions=[f"{TALES}: context: expected at most the 256"])

    def test_numbers_need_a_file(self):
        self.fails(2, "logits", TALES, "-p", "a", "-o", "-", mentions=["-o", "file"])
        self.fails(2, "inspect", TALES, "--tensor", "model.norm.weight", "-o", "-", mentions=["-o", "file"])
        self.assertFalse(os.path.exists("-"))
        self.fails(2, "perplexity", TALES, "-p", "a", "--ctx", 8, "--stride", 8, mentions=["--stride"])
        for size in ("4Q", "G", "-1M", "1", "99999999T", "0x100M", "1e9", "1.5.5G"):
            with self.subTest(size=size):
                self.fails(2, "bench", TALES, "--buffer", size, mentions=[f"'{size}'"])

    def test_values_joined_or_apart(self):
        want = self.good("tokenize", TALES, "--ids", "--prompt", "a b")
        for args in (["--prompt=a b"], ["-p", "a b"], ["-pa b"]):
            with self.subTest(args=args):
                self.assertEqual(self.good("tokenize", TALES, "--ids", *args), want)
                self.assertEqual(self.good("tokenize", *args, "--ids", "--", TALES), want)
        self.assertEqual(self.good("tokenize", TALES, "--ids", "-p", ""), b"[]\n")

    def test_a_model_that_is_not_there(self):
        for name in ("run", "tokenize", "perplexity"):
            with self.subTest(command=name):
                self.fails(1, name, "no-such-model", "-p", "a", mentions=["no-such-model"])
        self.fails(1, "inspect", "no-such-model", mentions=["no-such-model"])
        self.fails(1, "bench", "no-such-model", mentions=["no-such-model"])
        self.fails(1, "run", TALES, "-f", "no-such-file", mentions=["no-such-file"])

    def test_a_text_that_is_not_utf8_is_named(self):
        with tempfile.NamedTemporaryFile(suffix=".txt") as file:
            file.write(b"abc\xff")
            file.flush()
            self.fails(1, "tokenize", TALES, "-f", file.name, mentions=[f"{file.name}: the text is not UTF-8 at byte 3"])
        self.fails(1, "run", TALES, stdin=b"\xc3", mentions=["standard input: the text is not UTF-8 at byte 0"])


class HelpTest(Case):
    def test_overview_lists_every_command(self):
        text = self.good("help").decode()
        self.assertEqual(re.findall(r"^  ([a-z]+) {2,}", text, re.MULTILINE), COMMANDS)
        for option in ("-h", "--help"):
            self.assertEqual(self.good(option).decode(), text)

    def test_each_command_has_help(self):
        for name in COMMANDS:
            with self.subTest(command=name):
                text = self.good(name, "--help")
                self.assertIn(b"usage: setun " + name.encode(), text)
                self.assertEqual(self.good(name, "-h"), text)
                self.assertEqual(self.good("help", name), text)

    def test_every_command_that_opens_a_model_takes_the_options_of_models(self):
        for name in COMMANDS[:11]:
            if name in ("convert", "quantize"):  # these compute nothing
                continue
            with self.subTest(command=name):
                self.assertLessEqual({"isa", "assume", "activation"}, long_options(name))

    def test_version(self):
        text = self.good("version").decode()
        self.assertRegex(text, r"\Asetun \d+\.\d+\.\d+\nbuild: .+\ninstruction sets: scalar.*\n\Z")
        self.assertEqual(self.good("--version").decode(), text)
        values = json.loads(self.good("version", "--json"))
        self.assertEqual(values["isa"][0], "scalar")

    def test_help_into_a_full_disk(self):
        with open("/dev/full", "wb") as full:
            self.fails(1, "help", stdout=full, mentions=["standard output"])


class ManualTest(Case):
    def test_manual_pages_name_every_option_of_help(self):
        for name in COMMANDS:
            with self.subTest(command=name):
                page = self.good("help", "--man", name).decode().replace("\\-", "-")
                for option in long_options(name):
                    self.assertIn(f"--{option}", page)

    def test_manual_pages_have_no_faults(self):
        if not shutil.which("groff"):
            self.skipTest("there is no groff")
        for name in [None, *COMMANDS]:
            page = self.good("help", "--man", *([name] if name else []))
            checked = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True)
            self.assertEqual((checked.returncode, checked.stderr), (0, b""), name)

    def complete(self, *words):
        """Bash's completions of the last word."""
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _setun; printf "%s\\n" "${COMPREPLY[@]}"'
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "setun.bash")
            with open(path, "wb") as file:
                file.write(self.good("help", "--completion", "bash"))
            result = subprocess.run(["bash", "-c", script, "bash", path, "setun", *words], capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completion(self):
        if not shutil.which("bash"):
            self.skipTest("there is no bash")
        self.assertEqual(self.complete(""), COMMANDS)
        self.assertEqual(self.complete("tok"), ["tokenize"])
        self.assertEqual(self.complete("help", "pe"), ["perplexity"])
        self.assertEqual(self.complete("run", "m", "--kv", ""), ["f16", "f32", "q8", "q4"])
        for name in COMMANDS:
            offered = {word[2:] for word in self.complete(name, "--")}
            self.assertEqual(offered, long_options(name), name)

    def test_other_shells_complete_every_option(self):
        for shell, form in (("zsh", r"'\*?--{}[\[=]"), ("fish", " -l {} ")):
            text = self.good("help", "--completion", shell).decode()
            for name in COMMANDS:
                for option in long_options(name) - {"help"}:
                    self.assertTrue(re.search(form.format(option), text), (shell, name, option))
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n", "/dev/stdin"], input=text.encode(), capture_output=True)
                self.assertEqual((checked.returncode, checked.stderr), (0, b""), shell)


class StreamsTest(Case):
    def test_closed_standard_streams(self):
        for stream in ("<&-", ">&-", "2>&-"):
            with self.subTest(stream=stream):
                result = subprocess.run(["sh", "-c", f'exec "$0" version {stream}', COMMAND], capture_output=True)
                self.assertEqual(result.returncode, 1 if stream == ">&-" else 0, result.stderr)


class FamilyTest(Case):
    def test_an_unknown_family_is_named_before_its_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.gguf")
            gguf.write(path, [("token_embd.weight", [4, 4], gguf.F32_TYPE, bytes(64))],
                       [("general.architecture", "mamba2")])
            for command in (("run", "-p", "a"), ("plan",), ("chat",)):
                self.fails(1, command[0], path, *command[1:], mentions=["general.architecture", "mamba2"])
            model = os.path.join(folder, "model")
            os.mkdir(model)
            shutil.copy(os.path.join(TALES, "model.safetensors"), model)
            with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"model_type": "mamba2"}, file)
            self.fails(1, "run", model, "-p", "a", mentions=["model_type", "mamba2"])


if __name__ == "__main__":
    main()
