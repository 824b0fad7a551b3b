#!/usr/bin/env python3
"""Devices: what `setun devices` lists, --device, and the same text on each device that can be used here."""
import json
import os
import unittest

from support import TALES, Case, main, setun

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


class DeviceTest(Case):
    @classmethod
    def setUpClass(cls):
        if SANITIZED:
            raise unittest.SkipTest("drivers of GPUs are not made for sanitizers")
        devices = json.loads(setun("devices", "--json").stdout)
        cls.names = [d["name"] for d in devices if "problem" not in d and d["name"] != "cpu"]
        if not cls.names:
            raise unittest.SkipTest("no driver of a GPU is installed, not even lavapipe")

    def test_the_same_text(self):
        """A prompt in passes of several tokens, then token by token, with both formats of the cache."""
        for name in self.names:
            for kv in ("f16", "f32"):
                with self.subTest(device=name, kv=kv):
                    options = (*PROMPT, "-n", 40, "--ids", "-b", 5, "--kv", kv)
                    self.assertEqual(self.good("run", TALES, *options, "--device", name),
                                     self.good("run", TALES, *options))

    def test_a_device_that_is_not_there(self):
        self.fails(1, "run", TALES, *PROMPT, "--device", "vulkan:99", mentions=["vulkan:99", "setun devices"])

    def test_formats_that_it_lacks(self):
        self.fails(1, "run", TALES, *PROMPT, "--device", self.names[0], "--kv", "q8", mentions=["kv_keys"])


if __name__ == "__main__":
    main()
