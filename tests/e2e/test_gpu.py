#!/usr/bin/env python3
"""Devices: what `setun devices` lists, --device, and the same text on each device that can be used here."""
import json
import os
import re
import unittest

from support import TALES, Case, FolderCase, main, setun

NO_DRIVER = dict(os.environ, VK_ICD_FILENAMES="/nonexistent", VK_DRIVER_FILES="/nonexistent")
SANITIZED = bool(os.environ.get("SETUN_SANITIZE"))  # drivers are not made for sanitizers
PROMPT = ("-p", "Once upon a time there was a little", "--temp", 0)


class WithoutDriverTest(Case):
    """Where no driver is installed."""

    def test_the_cpu_is_listed(self):
        devices = json.loads(self.good("devices", "--json", env=NO_DRIVER))
        self.assertEqual([d["name"] for d in devices], ["cpu"])
        self.assertIn("scalar", devices[0]["description"])
        self.assertGreater(devices[0]["memory"], 0)
        self.assertTrue(self.good("devices", env=NO_DRIVER).startswith(b"cpu "))

    def test_errors(self):
        for name in ("abacus", "CUDA0", "cpu:x", "cpu:", "cpu,abacus", "", ","):
            with self.subTest(device=name):
                self.fails(1, "run", TALES, *PROMPT, "--device", name, env=NO_DRIVER, mentions=["device"])
        self.fails(1, "run", TALES, *PROMPT, "--device", "cpu:1", env=NO_DRIVER, mentions=["cpu:1", "setun devices"])

    def test_the_cpu_only_when_asked(self):
        known = b"vulkan" in setun("run", TALES, *PROMPT, "--device", "abacus", env=NO_DRIVER).stderr
        if not known:
            self.skipTest("this build has no Vulkan")
        self.fails(1, "run", TALES, *PROMPT, "--device", "vulkan", env=NO_DRIVER, mentions=["vulkan:0"])
        text = self.good("run", TALES, *PROMPT, "-n", 8, "--device", "vulkan,cpu", env=NO_DRIVER)
        self.assertEqual(text, self.good("run", TALES, *PROMPT, "-n", 8, env=NO_DRIVER))


class DeviceTest(FolderCase):
    @classmethod
    def setUpClass(cls):
        if SANITIZED:
            raise unittest.SkipTest("drivers of GPUs are not made for sanitizers")
        devices = json.loads(setun("devices", "--json").stdout)
        cls.names = [d["name"] for d in devices if "problem" not in d and d["name"] != "cpu"]
        if not cls.names:
            raise unittest.SkipTest("no driver of a GPU is installed, not even lavapipe")

    def test_the_same_text(self):
        """A prompt in passes of several tokens, then token by token."""
        for name in self.names:
            for kv in ("f16", "q8"):
                with self.subTest(device=name, kv=kv):
                    options = (*PROMPT, "-n", 40, "--ids", "-b", 5, "--kv", kv)
                    self.assertEqual(self.good("run", TALES, *options, "--device", name),
                                     self.good("run", TALES, *options))

    def test_drawn_from_few_logits(self):
        """With --logprobs all logits leave the device; the same tokens are drawn from the largest alone."""
        for options in (("--temp", 0), ("--temp", 0.8, "--top-k", 127, "--top-p", 0.95, "--seed", 7)):
            with self.subTest(options=options):
                command = ("run", TALES, "-p", "One day", "-n", 20, "--json", "--device", self.names[0], *options)
                few, all_of_them = (json.loads(self.good(*command, *more)) for more in ((), ("--logprobs", 1)))
                self.assertEqual(few["ids"], all_of_them["ids"])

    def test_less_device_memory(self):
        """The least is named, suffices, and streams weights; the text is the same."""
        command = ("run", TALES, *PROMPT, "-n", 12, "--ids", "-c", 256, "-b", 16)
        limited = (*command, "--device", self.names[0], "--device-memory")
        message = self.fails(1, *limited, "1M", mentions=["device's memory", "found 1.0M"])
        least = re.search(r"at least (\d+)M", message)[1] + "M"
        self.assertEqual(self.good(*limited, least), self.good(*command))
        counted = json.loads(self.good("bench", TALES, "-b", 16, "--count", "--json", "--depth", 5, "--device",
                                       self.names[0], "--device-memory", least))
        self.assertGreater(counted["bytes_streamed"], 1 << 20)
        self.assertEqual(counted["buffers_made"], 0)
        self.fails(1, *command, "--device-memory", "64M", mentions=["device_memory", "cpu"])

    def test_plan_of_a_device(self):
        """The plan's limits are those that loading keeps to; a draft model has its share of the one limit."""
        context = ("-c", 256, "-b", 16, "--device", self.names[0])
        plan = json.loads(self.good("plan", TALES, *context, "--json"))
        parts = ("resident", "vectors", "cache", "device_rounding", "device_buffers", "device_work")
        self.assertEqual(plan["device_total"], sum(plan[p] for p in parts))
        self.assertEqual(plan["device_whole"], plan["device_total"])
        self.assertLess(plan["device_least"], plan["device_whole"])
        self.assertIsNone(plan["read_bandwidth_gbs"])
        least, whole = (str((plan[p] + (1 << 20) - 1) >> 20) + "M" for p in ("device_least", "device_whole"))
        self.assertEqual(json.loads(self.good("plan", TALES, *context, "--device-memory", whole, "--json"))["device_buffers"], 0)
        table = self.good("plan", TALES, *context, "--device-memory", least).decode()
        for row in ("of the device's memory", "for weights that are copied for each pass", "limit", "for all weights"):
            self.assertIn(row, table)
        draft = (*context, "--draft", TALES, "--device-memory")
        both = str((2 * plan["device_whole"] + (1 << 20) - 1) >> 20) + "M"
        run = ("run", TALES, *PROMPT, "-n", 8, "--ids", "-c", 256, "-b", 16)
        self.assertEqual(self.good(*run, "--device", self.names[0], "--draft", TALES, "--device-memory", both),
                         self.good(*run))
        self.fails(1, "plan", TALES, *draft, whole, mentions=["of the device's memory are for --draft", "at least"])
        self.assertRegex(self.good("plan", TALES, *draft, both).decode(), r"\nlimit .* less [0-9.]+ MiB for --draft\n")
        needs = f"all of it takes {plan['device_whole'] / (1 << 20):.1f} MiB of the device's memory, found {least[:-1]}.0 MiB"
        self.fails(1, *run[:-4], *draft, least, mentions=["--draft", "would be read for each pass", needs])

    def test_a_device_that_is_not_there(self):
        self.fails(1, "run", TALES, *PROMPT, "--device", "vulkan:99", mentions=["vulkan:99", "setun devices"])

    def test_work_of_a_token(self):
        """What docs/gpu.md promises of a BitNet block: seven dispatches, one submission, 4 bytes back."""
        counted = json.loads(self.good("bench", TALES, "--device", self.names[0], "--count", "--json", "--depth", 5))
        self.assertEqual(counted["dispatches_per_layer"], 7)
        self.assertEqual(counted["submissions"], 1)
        self.assertEqual(counted["recordings"], 0)  # that of the token before is submitted again
        self.assertEqual(counted["buffers_made"], 0)
        self.assertEqual(counted["bytes_back"], 4)
        self.assertEqual(sum(o["read"] for o in counted["operations"]), counted["total"]["read"])
        self.assertGreaterEqual(counted["total"]["read"], counted["least_bytes"])
        self.assertLess(counted["above_least"], 0.15)  # of so small a model activations are a larger part
        self.fails(1, "bench", TALES, "--count", mentions=["--count", "GPU"])

    def test_speed(self):
        """Of a device no ceilings are measured."""
        bench = ("bench", TALES, "-p", 8, "-n", 4, "-r", 1, "--device", self.names[0])
        found = json.loads(self.good(*bench, "--json"))
        self.assertGreater(found["decode_tokens_per_s"], 0)
        for key in ("prefill_peak_share", "decode_bandwidth_share", "read_bandwidth_gbs", "int8_peak_gmacs"):
            self.assertIsNone(found[key], key)
        self.assertIn("is not measured", self.good(*bench).decode())
        self.fails(1, *bench, "--buffer", "1M", mentions=["--buffer", "--device"])

    def test_work_of_a_token_with_value_formats(self):
        """A gate is a part of the products before it, and the commands are those of the token before."""
        for form in ("q4_k", "f16"):
            with self.subTest(format=form):
                counted = json.loads(self.good("bench", "--synthetic", "tiny", "--format", form, "--head", form, "--device",
                                               self.names[0], "--count", "--json"))
                operations = {o["name"]: o["dispatches"] for o in counted["operations"]}
                self.assertNotIn("EACH", operations)
                self.assertEqual(counted["recordings"], 0)

    def test_a_mixture(self):
        """The device chooses the experts, in one submission a token; the host does where they do not fit. The least bytes
        are those of the experts that a token uses."""
        path, name = self.path("mixture.gguf"), self.names[0]
        counted = json.loads(self.good("bench", "--synthetic", "small-moe", "--format", "q8_0", "--save", path, "--device", name,
                                       "--count", "--json"))
        self.assertEqual(counted["submissions"], 1)
        self.assertEqual(counted["recordings"], 0)
        self.assertEqual(counted["buffers_made"], 0)
        self.assertEqual(counted["bytes_back"], 4)
        self.assertLess(counted["above_least"], 0.03)
        command = ("run", path, *PROMPT, "-n", 8, "--ids", "--precise", "-c", 256, "-b", 16)
        streamed = setun(*command, "--device", name, "--device-memory", "20M", "--verbose")
        self.assertEqual(streamed.returncode, 0, streamed.stderr)
        self.assertIn(b"of 64 experts fit into the cache", streamed.stderr)
        self.assertEqual(streamed.stdout, self.good(*command))

    def test_compiled_shaders_are_kept(self):
        environment = dict(os.environ, XDG_CACHE_HOME=self.folder)
        run = ("run", TALES, *PROMPT, "-n", 4, "--device", self.names[0])
        first = setun(*run, env=environment)
        files = os.listdir(self.path("setun"))
        self.assertEqual(len(files), 1, files)
        path = self.path("setun", files[0])
        with open(path, "rb") as file:
            kept = file.read()
        self.assertTrue(kept.startswith(b"setun shaders 1\0"))
        with open(path, "wb") as file:
            file.write(kept[:64] + bytes(b ^ 1 for b in kept[64:]))
        self.assertEqual(setun(*run, env=environment).stdout, first.stdout)
        with open(path, "rb") as file:
            self.assertEqual(file.read(len(kept) - 1), kept[:-1], "a damaged file is not written again")
        nowhere = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
        self.assertEqual(setun(*run, env={**nowhere, "HOME": self.path("none")}).stdout, first.stdout)
        self.assertFalse(os.path.exists(self.path("none")), "a home that is not there is not made")


if __name__ == "__main__":
    main()
