#!/usr/bin/env python3
"""`setun serve` under load on a real model: see test_serve_load.py."""
from load import CLIENTS, LoadCase
from serving import skip_without_server
from support import main, real_model

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


class LoadTest(LoadCase):
    options = ("--parallel", 8, "--queue", CLIENTS, "--ctx", 512)
    prompts = ["The " + word + " is" for word in "cat moon river king weather engine law book".split()]
    longest = 24

    @classmethod
    def setUpClass(cls):
        cls.model = real_model(MODEL)
        super().setUpClass()

    def test_many_clients(self):
        self.check_load(self.model)


if __name__ == "__main__":
    skip_without_server()
    main()
