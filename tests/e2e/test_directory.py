#!/usr/bin/env python3
"""Hugging Face directories with leftover files."""
import json
import os
import shutil
import tempfile

from support import GOLDEN, Case, main

SHARDED = os.path.join(GOLDEN, "hf", "llama3-tied-sharded")
OTHER = os.path.join(GOLDEN, "hf", "llama3")


class DirectoryTest(Case):
    def test_the_index_decides(self):
        """A model.safetensors beside an index that does not name it is not read."""
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(SHARDED):
                shutil.copy(os.path.join(SHARDED, name), folder)
            shutil.copy(os.path.join(OTHER, "model.safetensors"), folder)
            both, alone = (json.loads(self.good("inspect", path, "--json")) for path in (folder, SHARDED))
            self.assertEqual(both["tensors"], alone["tensors"])
            ids = ["--temp", "0", "-n", "8", "--ids", "-p", "hello"]
            self.assertEqual(self.good("run", folder, *ids), self.good("run", SHARDED, *ids))


if __name__ == "__main__":
    main()
