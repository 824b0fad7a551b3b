#!/usr/bin/env python3
"""`setun plan`, and the budget that the other commands keep to."""
import json
import os
import re
import subprocess
import tempfile

from support import COMMAND, TALES, Case, main, real_model, setun

MIB = 1 << 20
SMALL = ("--ctx", "64", "--batch-size", "8", "-t", "1")


def peak_of(*args):
    """Bytes that the command had in memory at most."""
    process = subprocess.Popen([COMMAND, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss * 1024


class PlanTest(Case):
    def plan(self, *args):
        return json.loads(self.good("plan", *args, "--json"))

    def test_endless_text_is_not_read_to_its_end(self):
        for args in (("run", TALES, "-f"), ("perplexity", TALES, "-f"), ("perplexity", TALES, "--ids"), ("chat", TALES, "--template")):
            with self.subTest(args=args):
                self.fails(1, *args, "/dev/zero", "--memory", "60M",
                           mentions=["/dev/zero: expected at most 15728640 bytes, as memory allows, found more"])

    def test_total_is_the_sum_of_its_parts(self):
        p = self.plan(TALES, *SMALL, "--isa", "scalar")  # two bits a ternary weight, whatever the machine
        parts = ("held", "rounding", "vectors", "ring", "packed", "cache", "work", "process")
        self.assertEqual(p["total"], sum(p[part] for part in parts))
        self.assertEqual((p["context"], p["batch"], p["streamed_bytes_per_pass"]), (64, 8, 0))
        self.assertEqual(p["held"], p["weights"])
        self.assertEqual(p["reserve"], 16 * MIB)
        self.assertEqual(p["least"] % MIB, 0)
        self.assertLess(p["least"], p["total"] + p["reserve"] + 3 * MIB)  # with room for another start
        self.assertRegex(self.good("plan", TALES, *SMALL).decode(), r"\nin all .*\nleft to the system +16\.0 MiB  .*\nbudget ")

    def test_arithmetic_of_known_shapes(self):
        self.fails(1, "plan", "--shape", "7b", "--ctx", "1000000", mentions=["--ctx", "at most the 4096 tokens", "1000000"])
        # 32 layers of 4 x 4096 x 4096 and 3 x 4096 x 11008 weights at two bits, and two float16 matrices of 32000 x 4096.
        p = self.plan("--shape", "7b", "--ctx", "4096", "-t", "1")
        layers = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
        self.assertEqual(p["weights"], layers // 4 + 2 * 2 * 32000 * 4096)
        # Keys and values of 4096 tokens, 4096 wide, in float16 take 2 GiB; attention's scratch is little beside them.
        self.assertGreaterEqual(p["cache"], 2 << 30)
        self.assertLess(p["cache"], (2 << 30) + 32 * MIB)
        f32 = self.plan("--shape", "7b", "--ctx", "4096", "--kv", "f32", "-t", "1")
        self.assertEqual(f32["cache"] - p["cache"], 2 << 30)
        # Codes of 10 and 8 bits, of 6 and 4, and a half-precision scale for 128 of them.
        numbers, scratch = 2 * 32 * 4096 * 4096, p["cache"] - (2 << 30)
        for kv, keys, values in (("q8", 10.125, 8.125), ("q4", 6.125, 4.125), ("q8,q4", 10.125, 4.125), ("f16,q4", 16, 4.125)):
            cache = self.plan("--shape", "7b", "--ctx", "4096", "--kv", kv, "-t", "1")["cache"]
            self.assertGreaterEqual(cache, numbers / 2 * (keys + values) / 8)
            pages = self.plan("--shape", "7b", "--ctx", "4096", "--kv", kv, "-t", "1")["cache_pages"]
            self.assertEqual(pages, numbers / 2 * (keys + values) / 8)
            self.assertLess(cache, numbers / 2 * (keys + values) / 8 + scratch + 4 * MIB)

    def test_what_does_not_fit_streams(self):
        args = ("--shape", "8b", "--head", "q8_0", "--ctx", "512", "-t", "1", "--isa", "scalar", "--memory")
        whole = self.plan(*args, "16G")
        self.assertEqual(whole["streamed_bytes_per_pass"], 0)
        before = whole["weights"]
        for budget in (270, 370, 670, 970, 1370, 1770, 1970, 2370):
            budget = budget * MIB + whole["process"]  # more under a sanitizer
            p = self.plan(*args, str(budget))
            self.assertLessEqual(p["total"], budget)
            self.assertGreater(p["ring"], 0)
            self.assertLess(p["streamed_bytes_per_pass"], before)
            before = p["streamed_bytes_per_pass"]
        # Only rows of an embedding that is not the head are read: it is the last to become resident.
        p = self.plan(*args, str(2670 * MIB + whole["process"]))
        self.assertEqual((p["streamed_bytes_per_pass"], p["ring"]), (0, 0))
        self.assertLess(p["held"], p["weights"])

    def test_what_streams_is_a_part_of_what_is_stored(self):
        """Counted alike, down to the least, where everything streams."""
        for shape, form in (("8b", "t16"), ("7b-a1b", "i2_s"), ("tiny", "t16")):
            with self.subTest(shape=shape):
                args = ("--shape", shape, "--format", form, "--ctx", "64", "-b", "8", "-t", "1", "--isa", "scalar")
                p = self.plan(*args)
                matrices = 8e9 / 4 if shape == "8b" else 0
                self.assertGreater(p["stored"], matrices * 0.8)
                p = self.plan(*args, "--memory", str(p["least"]))
                self.assertLessEqual(p["streamed_bytes_per_pass"], p["stored"])
                self.assertLessEqual(p["total"] + p["reserve"], p["budget"])
        # The sizes of stored matrices are their own: 210 bytes for 256 weights of Q6_K, whatever the kernels have.
        p = self.plan("--shape", "8b", "--format", "t16", "--head", "q6_k", "--ctx", "64", "-t", "1")
        q = self.plan("--shape", "8b", "--format", "q4_0", "--head", "q6_k", "--ctx", "64", "-t", "1")
        self.assertGreater(q["stored"], 1.9 * p["stored"] - 2 * 430e6)

    def test_least_is_a_tenth(self):
        p = self.plan("--shape", "8b", "--head", "q6_k", "--ctx", "512", "-t", "1", "--memory", "16G")
        self.assertLess(p["least"] - p["process"], 0.1 * p["weights"])

    def test_batch_fits_the_budget(self):
        args = ("--shape", "8b", "--head", "q8_0", "--ctx", "512", "-t", "1", "--memory")
        process = self.plan(*args, "16G")["process"]  # more under a sanitizer
        small, large = str(262 * MIB + process), str(372 * MIB + process)
        self.assertEqual(self.plan(*args, large)["batch"], 512)
        self.assertIn(self.plan(*args, small)["batch"], (64, 128, 256))
        self.fails(1, "plan", *args, small, "-b", "512", mentions=["at least"])
        self.assertEqual(self.plan(*args, large, "-b", "100")["batch"], 100)
        self.assertIn(b"no more fit", self.good("plan", *args, small))

    def own_memory_is_steady(self):
        if os.environ.get("SETUN_SANITIZE") == "thread":
            self.skipTest("what the thread sanitizer has by itself differs by tens of MiB from start to start")

    def test_least_is_named_and_does(self):
        self.own_memory_is_steady()
        args = ("plan", "--shape", "8b", "--head", "q8_0", "--ctx", "512", "-t", "1", "--memory")
        error = self.fails(1, *args, "200M", mentions=["at least"])
        least = re.search(r"at least (\d+M) of memory", error)[1]
        for _ in range(5):  # the process's own memory differs from start to start
            self.good(*args, least)

    def test_a_budget_is_refused_before_memory_is_taken(self):
        """The vocabulary alone would take 20 MiB and more."""
        self.own_memory_is_steady()
        for model in (None, "gemma-3-270m-q4_k_m.gguf"):
            with self.subTest(model=model):
                args = [real_model(model)] if model else ["--shape", "2b4t"]
                if not os.environ.get("SETUN_SANITIZE"):
                    self.assertLess(peak_of("plan", *args, "--memory", "1M"), 30 * MIB)
                error = self.fails(1, "plan", *args, "--memory", "1M", "-t", "1", mentions=["at least"])
                least = re.search(r"at least (\d+)M of memory", error)[1]
                self.good("plan", *args, "-t", "1", "--memory", least + "M")
                self.fails(1, "plan", *args, "-t", "1", "--memory", str(int(least) - 24) + "M", mentions=["at least"])

    def test_what_is_rearranged_in_each_pass(self):
        args = ("--shape", "8b", "--head", "t16", "--ctx", "512", "-t", "1", "--isa", "scalar", "--memory", "500M")
        p = self.plan(*args)
        self.assertEqual((p["rearranged_bytes_per_pass"], p["streamed_bytes_per_pass"] > 0), (0, True))
        p = self.plan(*args, "--format", "i2_s")
        self.assertGreater(p["rearranged_bytes_per_pass"], 0.9 * p["streamed_bytes_per_pass"])
        self.assertIn(b"converted in each pass", self.good("plan", *args, "--format", "i2_s"))

    def test_a_long_text_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            path, out = os.path.join(folder, "long.txt"), os.path.join(folder, "out")
            with open(path, "w") as f:
                f.write("Once upon a time. " * 250000)
            # Enough for a short one.
            least = self.plan(TALES, "--ctx", "1", "--batch-size", "1")["least"] + (2 << 20)
            for command in (["perplexity", TALES], ["logits", TALES, "-o", out]):
                self.fails(1, *command, "-f", path, "--memory", str(least), mentions=["4500000 bytes", "--memory"])
            # More under a sanitizer: the whole model, and room for less than the text's ids.
            plan = json.loads(self.good("plan", TALES, "--memory", "16G", "--json"))
            budget = plan["total"] + plan["reserve"] + (32 << 20)
            self.fails(1, "run", TALES, "-f", path, "--memory", budget, "-n", "1", mentions=["4500000 bytes", "--memory"])

    def test_commands_keep_to_the_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tales.gguf")
            self.good("convert", TALES, "--to", "t16", "-o", path)
            for command in (["run", path, "-p", "Once", "-n", "4", *SMALL], ["bench", path, "-p", "8", "-n", "2", "-r", "1"]):
                self.fails(1, *command, "--memory", "2M", mentions=["at least"])
            text = self.good("run", path, "-p", "Once upon", "-n", "20", "--temp", "0", *SMALL)
            mapped = self.good("run", path, "-p", "Once upon", "-n", "20", "--temp", "0", *SMALL, "--no-stream")
            self.assertEqual(mapped, text)

    def test_measuring_keeps_to_the_budget(self):
        """Reading of memory is measured with no more than the budget leaves."""
        bench = ("bench", TALES, "-p", "8", "-n", "2", "-r", "1", "-t", "1")
        process = self.plan(TALES, *SMALL)["process"]  # more under a sanitizer
        budget = process + 56 * MIB
        for command in (("plan", TALES, *SMALL), bench):
            with self.subTest(command=command[0]):
                if os.environ.get("SETUN_SANITIZE") != "thread":  # whose notes take several times the buffer
                    self.assertLess(peak_of(*command, "--memory", str(budget)), budget)
                self.assertIn("this may measure a cache", setun(*command, "--memory", str(budget)).stderr.decode())
        self.fails(1, *bench, "--memory", str(budget), "--buffer", "400M", mentions=["--buffer", "400.0 MiB"])

    def test_hints_name_options_that_there_are(self):
        for command, options in (("run", "--ctx and --batch-size"), ("logits", "--batch-size"), ("bench", "--batch-size")):
            args = (command, TALES) if command == "bench" else (command, TALES, "-p", "a")
            self.fails(1, *args, *(("-o", os.devnull) if command == "logits" else ()), "--memory", "2M",
                       mentions=[f"(see {options})"])

    def test_wrong_usage(self):
        self.fails(2, "plan", mentions=["MODEL"])
        self.fails(2, "plan", TALES, "--shape", "7b", mentions=["--shape"])
        self.fails(2, "plan", "--shape", "9b", mentions=["'9b'"])
        self.fails(2, "plan", "--shape", "7b", "--format", "q17", mentions=["'q17'"])
        self.fails(2, "plan", "--shape", "7b", "--head", "q17", mentions=["'q17'"])
        self.fails(1, "plan", TALES, "--ctx", "1000000", mentions=["1000000"])


if __name__ == "__main__":
    main()
