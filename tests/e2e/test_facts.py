#!/usr/bin/env python3
"""What files say about a model is used, refused by name, or known to be neutral: every family, both containers."""
import json
import math
import os
import shutil
import tempfile

import containers
import gguf
from support import GOLDEN, Case, main, read_safetensors, rows, setun

IDS = ",".join(str(i) for i in range(3, 35))
MOVES, SAME, REFUSED = "moves", "same", "refused"

# Family: a directory and a GGUF file of the golden ones, or the architecture that containers.py makes one of; None: the
# family has no directories.
FAMILIES = {
    "llama": ("hf/llama3", "gguf/llama3.gguf"),
    "mixtral": ("hf/mixtral", "gguf/mixtral.gguf"),
    "mistral": ("numpy/mistral", "llama"),
    "minicpm": ("numpy/minicpm", "minicpm"),
    "bitnet-b1.58": ("hf/bitnet-auto", "bitnet-b1.58"),
    "bitnet": (None, "bitnet"),  # the same weights; SiLU in place of the squared ReLU
    "gemma3": ("hf/gemma3-plain", "gguf/gemma3-plain.gguf"),
    "granite": ("hf/granite", "gguf/granite.gguf"),
    "hunyuan-dense": ("hf/hunyuan", "gguf/hunyuan.gguf"),
    "olmo3": ("numpy/olmo3", "olmo2"),
    "olmo2": ("hf/olmo2", "gguf/olmo2.gguf"),
    "phi3": ("hf/phi3", "gguf/phi3.gguf"),
    "smollm3": ("hf/smollm3", "gguf/smollm3.gguf"),
    "gpt-oss": ("hf/gpt-oss", "gguf/gpt-oss.gguf"),
    "olmoe": ("hf/olmoe-plain", "gguf/olmoe-plain.gguf"),
    "maple": ("numpy/maple", "maple"),
    "qwen2": ("hf/qwen2", "qwen2"),
    "qwen2moe": ("hf/qwen2-moe", "gguf/qwen2-moe.gguf"),
    "qwen3": ("hf/qwen3", "gguf/qwen3.gguf"),
    "qwen3moe": ("hf/qwen3-moe", "qwen3moe"),
    "qwen35": ("hf/qwen35", "gguf/qwen35.gguf"),
    "qwen35moe": ("hf/qwen35-moe", "gguf/qwen35-moe.gguf"),
    "qwen3next": ("hf/qwen3-next", "gguf/qwen3-next.gguf"),
}
FOREIGN = ("general", "split", "tokenizer", "prism", "other", "alone", "mradermacher", "quantize")
EXPERTS = ("mixtral", "gpt-oss", "olmoe", "maple", "qwen2moe", "qwen3moe", "qwen35moe", "qwen3next")
HYBRID = ("qwen35", "qwen35moe", "qwen3next")  # recurrent layers among others

# Key of GGUF: value, what becomes of it, and in which families something else does.
GGUF = [
    ("attention.causal", False, REFUSED, {}),
    ("attention.causal", True, SAME, {}),
    ("pooling_type", 1, SAME, {}),  # facts.def: logits do not depend on it
    ("pooling_type", 4, REFUSED, {}),
    ("logit_scale", 2.0, MOVES, {}),
    ("residual_scale", 0.5, MOVES, {}),
    ("embedding_scale", 3.0, MOVES, {"gemma3": REFUSED}),
    ("attention.scale", 0.7, MOVES, {}),
    ("attn_logit_softcapping", 50.0, REFUSED, {}),
    ("attn_logit_softcapping", 0.0, SAME, {}),
    ("final_logit_softcapping", 5.0, MOVES, {}),
    ("attention.clamp_kqv", 0.01, REFUSED, {"llama": MOVES, "mixtral": MOVES, "mistral": MOVES, "olmoe": MOVES}),
    ("attention.max_alibi_bias", 8.0, REFUSED, {}),
    ("use_parallel_residual", True, REFUSED, {}),
    ("rope.dimension_sections", [1, 1, 1, 0], REFUSED, {}),
    ("attention.temperature_length", 8192, REFUSED, {}),
    ("attention.output_scale", 0.5, REFUSED, {}),
    ("swiglu_clamp_exp", [1.0, 1.0], REFUSED, {}),
    ("swiglu_clamp_exp", [7.0, 7.0], REFUSED, {"gpt-oss": SAME, "maple": SAME}),
    ("attention.key_length_mla", 64, REFUSED, {}),
    ("nextn_predict_layers", 1, REFUSED, dict.fromkeys(HYBRID, MOVES)),  # a block less
    ("leading_dense_block_count", 1, REFUSED, {}),
    ("expert_group_count", 2, REFUSED, {}),
    ("expert_group_count", 1, SAME, {}),
    ("expert_shared_count", 2, REFUSED, {}),
    ("moe_every_n_layers", 2, REFUSED, {}),
    ("rope.scaling.yarn_log_multiplier", 0.1, REFUSED, {}),
    ("rope.scaling.yarn_ext_factor", 0.5, REFUSED, {"gpt-oss": MOVES, "olmo3": MOVES}),
    ("rope.scaling.attn_factor", 2.0, REFUSED, {"gpt-oss": MOVES, "olmo3": MOVES, "minicpm": MOVES, "phi3": MOVES}),
    ("rope.scaling.yarn_attn_factor", 2.0, REFUSED, {"gpt-oss": MOVES, "olmo3": MOVES, "minicpm": MOVES, "phi3": MOVES}),
    ("rope.scaling.yarn_beta_fast", -1.0, REFUSED, {}),
    ("rope.scaling.factor", -2.0, REFUSED, {}),
    ("rope.scale_linear", -2.0, REFUSED, {}),
    ("rope.freq_base_swa", 123.0, REFUSED, {"gemma3": MOVES}),
    ("rope.scaling.finetuned", True, SAME, {}),
    ("attention.layer_norm_epsilon", 1e-5, REFUSED, {}),
    ("no_such_hyperparameter", 1, REFUSED, {}),
    ("attention.sliding_window_pattern", [True], REFUSED, {}),
    # Of recurrent layers it would be the convolution's too.
    ("hidden_activation", "gelu_pytorch_tanh", MOVES, {"gemma3": SAME, "maple": REFUSED, **dict.fromkeys(HYBRID, REFUSED)}),
]

# Name in config.json, likewise.
CONFIG = [
    ("is_causal", False, REFUSED, {}),
    ("rms_norm_eps", None, REFUSED, {}),
    ("num_key_value_heads", "absent", None, {}),  # another model: only that it does not crash
    ("logit_scale", 2.0, REFUSED, {}),
    ("logits_scaling", 2.0, REFUSED, {"granite": MOVES}),
    ("residual_multiplier", 0.5, REFUSED, {"granite": MOVES}),
    ("embedding_multiplier", 3.0, REFUSED, {"granite": MOVES}),
    ("attention_multiplier", 0.7, REFUSED, {"granite": MOVES}),
    ("attn_logit_softcapping", 50.0, REFUSED, {}),
    ("attn_logit_softcapping", None, SAME, {}),
    ("final_logit_softcapping", 5.0, REFUSED, {"gemma3": MOVES}),
    ("final_logit_softcapping", None, SAME, {}),
    ("final_logit_softcapping", -5.0, REFUSED, {}),
    ("clip_qkv", 0.01, REFUSED, {"olmoe": MOVES}),
    ("clip_qkv", -1.0, REFUSED, {}),
    ("clip_qkv", 0.0, SAME, {"olmoe": REFUSED}),  # OlmoeAttention would clip everything to zero
    ("text_config", 5, REFUSED, {}),
    ("mlp_only_layers", ["1"], REFUSED, dict.fromkeys(("mixtral", "gpt-oss", "olmoe"))),
    ("use_bidirectional_attention", True, REFUSED, {}),
    ("use_parallel_residual", True, REFUSED, {}),
    ("swiglu_limit", 5.0, REFUSED, {}),
    ("n_group", 2, REFUSED, {}),
    ("n_shared_experts", 1, REFUSED, {}),
    ("routed_scaling_factor", 2.5, REFUSED, {}),
    ("first_k_dense_replace", 1, REFUSED, {}),
    ("num_nextn_predict_layers", 1, REFUSED, {}),
    ("kv_lora_rank", 64, REFUSED, {}),
    ("num_experts", 4, REFUSED, dict.fromkeys(EXPERTS)),
    ("sliding_window", 4, REFUSED, {"mistral": MOVES, "mixtral": MOVES, "olmo3": MOVES, "gemma3": MOVES, "gpt-oss": MOVES, "phi3": MOVES,
                                    "maple": MOVES,
                                    # counts with use_sliding_window only
                                    "qwen2": SAME, "qwen2moe": SAME, "qwen3": SAME, "qwen3moe": SAME, "smollm3": SAME}),
    ("no_rope_layers", [1] * 9, REFUSED, {"smollm3": MOVES}),
    ("no_rope_layers", [], SAME, {"smollm3": REFUSED}),
    ("no_rope_layers", [1, 2, 1, 1, 1], REFUSED, {}),
    ("use_qk_norm", False, SAME, {"hunyuan-dense": REFUSED, "maple": REFUSED}),
    ("mup_denominator", 32, SAME, {}),
    ("attention_dropout", 0.5, SAME, {}),
    ("of_no_published_class", {"a": [1]}, SAME, {}),
    ("hidden_act", "gelu_pytorch_tanh", MOVES, {"gemma3": SAME, "gpt-oss": SAME, "maple": REFUSED, **dict.fromkeys(HYBRID, REFUSED)}),
    # Other classes take what is beside such members.
    ("rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "full_attention": {"rope_type": "default", "rope_theta": 77.0}},
     REFUSED, {"gemma3": MOVES, "olmo3": MOVES}),
]

# What published GGUF files say in addition to a model's shape, as the logs in public reports list it (llama.cpp's "Dumping metadata
# keys/values"): of every family, and of one.
PUBLISHED = {
    "general.type": "model", "general.name": "Qwen3 30B A3B Instruct 2507", "general.version": "2507",
    "general.finetune": "Instruct", "general.basename": "Qwen3", "general.quantized_by": "Unsloth",
    "general.organization": "Qwen", "general.author": "Qwen", "general.size_label": "30B-A3B", "general.license": "apache-2.0",
    "general.license.name": "llama3.2", "general.license.link": "https://example.org/LICENSE", "general.description": "a model",
    "general.url": "https://example.org", "general.repo_url": "https://example.org/unsloth", "general.source.url": "https://example.org",
    "general.base_model.count": 1, "general.base_model.0.name": "Qwen3 30B A3B", "general.base_model.0.version": "2507",
    "general.base_model.0.organization": "Qwen", "general.base_model.0.repo_url": "https://example.org/Qwen",
    "general.dataset.count": 1, "general.dataset.0.name": "Ultrachat", "general.dataset.0.organization": "An Organization",
    "general.tags": ["unsloth", "text-generation"], "general.languages": ["en", "de"], "general.datasets": ["one"],
    "general.file_type": 15, "general.quantization_version": 2, "general.sampling.top_k": 20,
    "general.sampling.top_p": 0.95, "general.sampling.temp": 1.0, "quantize.imatrix.file": "imatrix.dat",
    "quantize.imatrix.dataset": "calibration_datav3.txt", "quantize.imatrix.entries_count": 128, "quantize.imatrix.chunks_count": 125,
    "mradermacher.quantize_version": "2", "mradermacher.quantized_by": "mradermacher", "mradermacher.convert_type": "hf",
    "tokenizer.ggml.add_space_prefix": False, "split.no": 0, "split.count": 0, "split.tensors.count": 0,
}
PUBLISHED_OF = {
    "qwen3moe": {"expert_shared_feed_forward_length": 0},  # files of pruned experts
    "gemma3": {"rope.scaling.type": "none"},
    "llama": {"rope.scaling.type": "none"},
}

# What published config.json files say in addition, by family.
PUBLISHED_CONFIG = {
    "qwen35": {"attention_dropout": 0.0, "attn_output_gate": True, "dtype": "bfloat16", "eos_token_id": 5,
               "initializer_range": 0.02, "mamba_ssm_dtype": "float32", "mlp_only_layers": [], "mtp_num_hidden_layers": 1,
               "mtp_use_dedicated_embeddings": False, "use_cache": True, "image_token_id": 1, "video_token_id": 2,
               "vision_start_token_id": 3, "vision_end_token_id": 4, "transformers_version": "5.2.0"},
    "qwen35moe": {"router_aux_loss_coef": 0.001, "output_router_logits": False, "mtp_num_hidden_layers": 1,
                  "attn_output_gate": True, "mamba_ssm_dtype": "float32"},
    "qwen3next": {"attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_scaling": None,
                  "output_router_logits": False, "router_aux_loss_coef": 0.001},
    "hunyuan-dense": {"add_classification_head": False, "anyres_pooling_size": 2, "anyres_vit_max_image_size": None,
                      "anyres_vit_two_views": False, "attention_head_dim": 32, "cla_share_factor": 2, "class_num": 0,
                      "dense_list": [64, 0], "eod_token_id": 3, "im_end_id": 5, "im_newline_id": 11, "im_start_id": 4,
                      "image_token_id": 9, "kv_lora_rank": None, "mask_init_id": 12, "mlp_bias": False, "norm_type": "rms",
                      "num_experts": 1, "num_media_embeds": 257, "org_vocab_size": 320, "pad_id": 0, "pool_type": "last",
                      "position_embedding_xdrope": False, "pretraining_tp": 1, "q_lora_rank": None, "qk_nope_head_dim": None,
                      "qk_rope_head_dim": None, "sep_token_id": 4, "skip_cls_token": False, "text_end_id": 7,
                      "text_start_id": 6, "use_cla": False, "use_mixed_mlp_moe": False, "use_qk_norm": True,
                      "use_rotary_pos_emb": True, "v_head_dim": None, "video_end_id": 10, "video_start_id": 9,
                      "vit_input_resolution": 224, "vit_mapping_type": "resampler", "vit_norm_type": "fused", "vit_patch": 1,
                      "vit_path": None, "vit_token": 64, "vit_type": None, "xdrope_section": None},
    "smollm3": {"max_window_layers": 28, "pretraining_tp": 2, "sliding_window": None, "use_sliding_window": False,
                "mlp_bias": False},
    "phi3": {"auto_map": {"AutoConfig": "x"}, "embd_pdrop": 0.0, "full_attn_mod": 1, "interpolate_factor": 1,
             "lm_head_bias": False, "mlp_bias": False, "resid_pdrop": 0.0},
    "granite": {"attention_dropout": 0.1, "mlp_bias": False, "rope_scaling": None},
    "olmo2": {"attention_dropout": 0.0, "rope_scaling": None},
    "olmo3": {"attention_dropout": 0.0, "use_cache": True},
    "qwen3": {"max_window_layers": 28, "sliding_window": None, "use_sliding_window": False, "rope_scaling": None},
    "gemma3": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "cache_implementation": "hybrid",
               "use_bidirectional_attention": False},
    "maple": {"attention_bias": False, "attention_dropout": 0.0, "output_router_logits": False},
    "bitnet-b1.58": {"attention_dropout": 0.0, "rope_scaling": None, "auto_map": {"AutoConfig": "x"}},
}


class FactsTest(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = {}
        vocabulary = os.path.join(GOLDEN, "gguf", "llama3.gguf")
        for name, (directory, file) in FAMILIES.items():
            directory = directory and os.path.join(GOLDEN, directory)
            path = os.path.join(GOLDEN, file)
            if not file.endswith(".gguf"):
                path = os.path.join(cls.folder.name, name + ".gguf")
                containers.write(directory or os.path.join(GOLDEN, "hf", "bitnet-auto"), path, file, vocabulary)
            cls.models[name] = (directory, path)
        cls.plain = {}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def logits(self, model, *more):
        """The logits, or the message of an error."""
        out = os.path.join(self.folder.name, "logits")
        result = setun("logits", model, "--ids", IDS, "--precise", "-o", out, *more)
        text = result.stderr.decode()
        if result.returncode:
            self.assertEqual(result.returncode, 1, text)
            self.assertRegex(text.splitlines()[-1], r"\Asetun: error: ")
            return text
        return list(read_safetensors(out)["logits"][1])

    def plain_logits(self, model):
        if model not in self.plain:
            self.plain[model] = self.logits(model)
            self.assertIsInstance(self.plain[model], list, self.plain[model])
        return self.plain[model]

    def notices(self, path):
        return json.loads(self.good("inspect", path, "--json"))["notices"]

    def edited(self, model, changes):
        """A copy with keys changed: of a GGUF file names behind the architecture's, of a directory those of config.json."""
        if not os.path.isdir(model):
            path = os.path.join(self.folder.name, "edited.gguf")
            architecture = gguf.read(model)[0]["general.architecture"]
            own = {k if k.split(".")[0].rstrip("0123456789") in FOREIGN else f"{architecture}.{k}": v
                   for k, v in changes.items()}
            gguf.edit(model, path, own)
            return path
        path = os.path.join(self.folder.name, "edited")
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        for file in os.listdir(model):
            if file != "config.json":
                os.symlink(os.path.abspath(os.path.join(model, file)), os.path.join(path, file))
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for key, value in changes.items():
            config.pop(key, None)
            if value != "absent":
                config[key] = value
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return path

    def check(self, model, key, value, expected):
        plain = self.plain_logits(model)
        found = self.logits(self.edited(model, {key: value}))
        if expected == REFUSED:
            self.assertIsInstance(found, str, f"{key} is not refused")
            self.assertIn(key, found)
        elif expected:
            self.assertIsInstance(found, list, found)
            self.assertEqual(found == plain, expected == SAME, key)

    def check_table(self, table, models):
        """Each key in each family; under sanitizers a quarter of the pairs, with every key and every family among them."""
        step = 4 if os.environ.get("SETUN_SANITIZE") else 1
        for i, (name, path) in enumerate(models.items()):
            for key, value, expected, other in table[i % step::step]:
                with self.subTest(family=name, key=key, value=value):
                    self.check(path, key, value, other.get(name, expected))

    def test_gguf(self):
        self.check_table(GGUF, {name: path for name, (_, path) in self.models.items()})

    def test_config(self):
        self.check_table(CONFIG, {name: path for name, (path, _) in self.models.items() if path})

    def test_published_metadata(self):
        """The other keys of ordinary files change nothing, and no file is refused for them."""
        for name, (_, path) in self.models.items():
            with self.subTest(family=name):
                known = gguf.read(path)[0]
                arch = known["general.architecture"] + "."
                changes = {key: value for key, value in PUBLISHED.items() if key not in known}
                changes.update((key, value) for key, value in PUBLISHED_OF.get(name, {}).items() if arch + key not in known)
                found = self.logits(self.edited(path, changes))
                self.assertIsInstance(found, list, found)
                self.assertEqual(found, self.plain_logits(path))

    def test_published_config(self):
        """Likewise for config.json of the published checkpoints."""
        for name, keys in PUBLISHED_CONFIG.items():
            with self.subTest(family=name):
                directory = self.models[name][0]
                with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
                    known = json.load(file)
                found = self.logits(self.edited(directory, {key: v for key, v in keys.items() if key not in known}))
                self.assertIsInstance(found, list, found)
                self.assertEqual(found, self.plain_logits(directory))
                edited = self.edited(directory, {key: v for key, v in keys.items() if key not in known})
                self.assertEqual([n for n in self.notices(edited) if "not read" in n], [])

    def test_what_nobody_knows_is_named(self):
        directory, file = self.models["hunyuan-dense"]
        edited = self.edited(directory, {f"new_member{i}": i for i in range(9)})
        self.assertTrue(any("config.json" in n and "new_member0, new_member1" in n and n.endswith("new_member7 and others")
                            for n in self.notices(edited)))
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as config:
            rope = dict(json.load(config)["rope_scaling"], twist=2)
        self.assertTrue(any(n.endswith("not read: rope_scaling.twist") for n in self.notices(self.edited(directory, {"rope_scaling": rope}))))
        self.assertIn("use_cla: expected", self.logits(self.edited(directory, {"use_cla": True})))
        edited = self.edited(file, {"tokenizer.ggml.new_rule": True})
        self.assertTrue(any(n.endswith("not read: tokenizer.ggml.new_rule") for n in self.notices(edited)))

    def test_the_factor_of_a_scaling(self):
        """scale_linear is another name of the factor, whatever the type; two that differ are refused."""
        path = self.models["llama"][1]
        expected = self.logits(self.edited(path, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}))
        self.assertNotEqual(expected, self.plain_logits(path))
        for changes in ({"rope.scaling.type": "linear", "rope.scale_linear": 4.0}, {"rope.scale_linear": 4.0},
                        {"rope.scaling.factor": 4.0}, {"rope.scaling.factor": 4.0, "rope.scale_linear": 4.0}):
            with self.subTest(changes=changes):
                self.assertEqual(self.logits(self.edited(path, changes)), expected)
        found = self.logits(self.edited(path, {"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0}))
        self.assertIn("llama.rope.scale_linear: expected rope.scaling.factor, 4, found 2", found)

    def test_members_of_a_scaling(self):
        """Keys that transformers' classes require are present, numbers are positive, and none is unused."""
        directory = self.models["qwen2"][0]
        llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        for scaling, key in (({"rope_type": "linear"}, "factor"), ({"type": "yarn"}, "factor"),
                             ({"rope_type": "linear", "factor": None}, "factor"),
                             ({"rope_type": "linear", "factor": -2.0}, "factor"),
                             ({"rope_type": "linear", "factor": 2.0, "attention_factor": 2.0}, "attention_factor"),
                             ({"rope_type": "default", "attention_factor": 2.0}, "attention_factor"),
                             ({"rope_type": "yarn", "factor": 2.0, "attention_factor": 0}, "attention_factor"),
                             ({"rope_type": "yarn", "factor": 2.0, "beta_fast": -1}, "beta_fast"),
                             ({**llama3, "low_freq_factor": None}, "low_freq_factor"),
                             ({**llama3, "high_freq_factor": 0}, "high_freq_factor")):
            with self.subTest(scaling=scaling):
                self.assertIn(f"rope scaling: {key}: ",
                              self.logits(self.edited(directory, {"rope_parameters": "absent", "rope_scaling": scaling})))
        model = self.edited(self.models["minicpm"][0], {})
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            scaling = json.load(file)["rope_scaling"]
        self.assertIn("rope scaling: factor: ", self.logits(self.edited(self.models["minicpm"][0],
                                                                        {"rope_scaling": {**scaling, "factor": 3.5}})))

    def test_layers_without_rope(self):
        """SmolLM3's list, and the default without one; GGUF files cannot state another."""
        directory, path = self.models["smollm3"]
        expected = self.plain_logits(directory)
        self.assertEqual(self.logits(self.edited(directory, {"no_rope_layers": None})), expected)
        self.assertEqual(self.logits(self.edited(directory, {"no_rope_layers": None, "no_rope_layer_interval": "absent"})), expected)
        second = self.logits(self.edited(directory, {"no_rope_layers": None, "no_rope_layer_interval": 2}))
        self.assertNotEqual(second, expected)
        self.assertEqual(self.logits(self.edited(directory, {"no_rope_layers": [1, 0, 1, 0, 1]})), second)
        target = os.path.join(self.folder.name, "refused.gguf")
        result = setun("convert", self.edited(directory, {"no_rope_layers": [1, 0, 1, 0, 1]}), "--to", "f32", "-o", target)
        self.assertEqual(result.returncode, 1)
        self.assertIn("layer without RoPE", result.stderr.decode())
        # A window applies, where no list says otherwise, to the layers without RoPE.
        changes = {"use_sliding_window": True, "sliding_window": 8}
        some = self.logits(self.edited(directory, {**changes, "layer_types": None}))
        self.assertEqual(self.logits(self.edited(directory, {**changes, "layer_types": ["full_attention"] * 3 + ["sliding_attention", "full_attention"]})), some)
        self.assertNotEqual(some, expected)

    def test_the_alpha_of_a_base(self):
        """Hunyuan's base is theta alpha^(d / (d - 2)); other members are ignored with alpha; without it the type is refused."""
        directory = self.models["hunyuan-dense"][0]
        plain = {"rope_scaling": None, "rope_theta": 10000 * 1000 ** (32 / 30)}
        self.assertEqual(self.logits(self.edited(directory, plain)), self.plain_logits(directory))
        more = {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 8.0}}
        self.assertEqual(self.logits(self.edited(directory, more)), self.plain_logits(directory))
        self.assertIn("dynamic", self.logits(self.edited(directory, {"rope_scaling": {"type": "dynamic", "factor": 2.0}})))
        self.assertIn("alpha", self.logits(self.edited(directory, {"rope_scaling": {"type": "dynamic", "alpha": -1.0}})))
        self.assertIn("alpha", self.logits(self.edited(self.models["qwen2"][0], {"rope_parameters": "absent", **more})))

    def test_what_a_target_cannot_state(self):
        """The class of Llama's directories has no softcap: the message names the key and the family."""
        source, target = self.edited(self.models["llama"][1], {"final_logit_softcapping": 5.0}), os.path.join(self.folder.name, "target")
        result = setun("convert", source, "--to", "f32", "-o", target)
        self.assertEqual(result.returncode, 1)
        self.assertIn(source + ": the target cannot state it: config.json: final_logit_softcapping", result.stderr.decode())
        self.assertFalse(os.path.exists(target))

    def test_long_factors_of_another_scaling(self):
        """MiniCPM's divisors of LongRoPE together with another scaling: nothing says which of the two is meant."""
        path = self.models["minicpm"][1]
        for changes in ({"rope.scaling.type": "none"}, {"rope.scaling.type": None},
                        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": None}):
            with self.subTest(changes=changes):
                self.assertIn("rope_factors_short", self.logits(self.edited(path, changes)))

    def test_experts_of_dense_files(self):
        for name in self.models.keys() - set(EXPERTS):
            with self.subTest(family=name):
                found = self.logits(self.edited(self.models[name][1], {"expert_count": 4, "expert_used_count": 2}))
                self.assertIn("expert_count", found)

    def test_factors_are_exact(self):
        """Logits over two; c tanh(logits / c) to float32's rounding; in both containers of Gemma 3."""
        for name, (directory, path) in self.models.items():
            plain = self.plain_logits(path)
            cap = [5 * math.tanh(x / 5) for x in plain]
            with self.subTest(family=name):
                keys = gguf.read(path)[0]
                stated = keys.get(keys["general.architecture"] + ".logit_scale", 1.0)
                halves = self.logits(self.edited(path, {"logit_scale": 2 * stated}))
                self.assertLess(max(abs(a - b / 2) for a, b in zip(halves, plain)), 1e-6)
                found = self.logits(self.edited(path, {"final_logit_softcapping": 5.0}))
                self.assertLess(max(abs(a - b) for a, b in zip(found, cap)), 2e-6)
        directory = self.models["gemma3"][0]
        cap = [5 * math.tanh(x / 5) for x in self.plain_logits(directory)]
        edited = self.edited(directory, {"final_logit_softcapping": 5.0})
        self.assertLess(max(abs(a - b) for a, b in zip(self.logits(edited), cap)), 2e-6)
        converted = os.path.join(self.folder.name, "capped.gguf")
        self.good("convert", edited, "--to", "f32", "-o", converted)
        self.assertLess(max(abs(a - b) for a, b in zip(self.logits(converted), cap)), 1e-4)

    def test_granite_by_name_of_llama(self):
        """The four factors against the official Granite, whose block is Llama's: its file with the architecture renamed."""
        source = os.path.join(GOLDEN, "facts", "granite.gguf")
        golden = read_safetensors(os.path.join(GOLDEN, "facts", "granite.safetensors"))
        changes = {"general.architecture": "llama"}
        for key, value in gguf.read(source)[0].items():
            if key.startswith("granite."):
                changes[key], changes["llama" + key[7:]] = None, value
        path, out = os.path.join(self.folder.name, "granite.gguf"), os.path.join(self.folder.name, "logits")
        gguf.edit(source, path, changes)
        self.good("logits", path, "--ids", ",".join(map(str, golden["input_ids"][1])), "--precise", "-o", out)
        found = read_safetensors(out)["logits"][1]
        self.assertLess(max(abs(a - b) for a, b in zip(found, golden["logits"][1])), 1e-4)


    def test_made_containers(self):
        """The GGUF files made here give the numbers of the directories: the official ones, or NumPy's for MiniCPM and Mistral."""
        out = os.path.join(self.folder.name, "logits")
        for name, bound in (("mistral", 1e-4), ("minicpm", 1e-4), ("olmo3", 1e-4), ("bitnet-b1.58", 0.06), ("qwen2", 1e-4), ("qwen3moe", 1e-4), ("maple", 1e-4)):
            directory, path = self.models[name]
            with self.subTest(family=name):
                golden = read_safetensors(os.path.join(directory, "golden.safetensors"))
                self.good("logits", path, "--ids", ",".join(map(str, golden["input_ids"][1])), "--precise", "-o", out)
                expected = golden.get("logits_short", golden["logits"])[1]  # `logits` has no room beyond its ids
                self.assertLess(max(abs(a - b) for a, b in zip(read_safetensors(out)["logits"][1], expected)), bound)

    def check_reference(self, path, changes, case):
        """Logits of an edited file against the independent ones of tools/make_model_references.py."""
        golden = read_safetensors(os.path.join(GOLDEN, "numpy", "facts.safetensors"))
        out, edited = os.path.join(self.folder.name, "logits"), self.edited(path, changes)
        self.good("logits", edited, "--ids", ",".join(map(str, golden["input_ids"][1])), "--precise", "-o", out)
        expected = rows(golden[case])
        found = rows(read_safetensors(out)["logits"])[-len(expected):]
        return max(abs(a - b) for x, y in zip(found, expected) for a, b in zip(x, y))

    def test_yarn(self):
        """ext_factor: of gpt-oss, which has YaRN, and of a file of Llama's kind with YaRN added."""
        yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16}
        for name, changes, values in (("gpt-oss", {}, (0.5, 0)), ("mistral", dict(yarn, **{"attention.sliding_window": None}), (1, 0.5, 0))):
            path = self.models[name][1]
            for value in values:
                changes["rope.scaling.yarn_ext_factor"] = float(value)
                with self.subTest(family=name, value=value):
                    self.assertLess(self.check_reference(path, changes, f"{name}.ext_{value}"), 1e-4)
            # which distinguishes the factors: their logits differ by far more
            changes["rope.scaling.yarn_ext_factor"] = 0.9
            self.assertGreater(self.check_reference(path, changes, f"{name}.ext_0.5"), 1e-2)

    def test_clamp(self):
        path = self.models["llama"][1]
        self.assertLess(self.check_reference(path, {"attention.clamp_kqv": 0.25}, "llama3.clamp_kqv"), 1e-4)
        self.assertGreater(self.check_reference(path, {"attention.clamp_kqv": 0.3}, "llama3.clamp_kqv"), 1e-2)


class WindowsTest(FactsTest):
    """Windows by layer: a period, or an array of flags or numbers, one a layer; one reader for all families."""

    test_gguf = test_config = test_experts_of_dense_files = test_factors_are_exact = test_published_metadata = None
    test_what_a_target_cannot_state = test_long_factors_of_another_scaling = None
    test_layers_without_rope = test_the_alpha_of_a_base = None
    test_granite_by_name_of_llama = test_made_containers = test_yarn = test_clamp = None
    test_the_factor_of_a_scaling = test_members_of_a_scaling = None

    def test_spellings(self):
        """All spellings of one list of layers give the same logits, in every family; another list gives others."""
        for name, (_, path) in self.models.items():
            with self.subTest(family=name):
                n = gguf.read(path)[0][gguf.read(path)[0]["general.architecture"] + ".block_count"]
                flags = [(i + 1) % 3 != 0 for i in range(n)]
                numbers = [int(f) for f in flags]
                expected = self.logits(self.edited(path, {"attention.sliding_window": 5,
                                                          "attention.sliding_window_pattern": 3}))
                self.assertIsInstance(expected, list, expected)
                for pattern in (flags, numbers, (gguf.U32, numbers)):
                    self.assertEqual(self.logits(self.edited(path, {"attention.sliding_window": 5, "attention.sliding_window_pattern": pattern})), expected)
                sizes = [5 * x for x in numbers]
                self.assertEqual(self.logits(self.edited(path, {"attention.sliding_window": sizes, "attention.sliding_window_pattern": None})), expected)
                if name not in HYBRID:  # of which only one layer has attention, as in that list
                    self.assertNotEqual(self.logits(self.edited(path, {"attention.sliding_window": 5, "attention.sliding_window_pattern": 0})), expected)
                self.assertNotEqual(self.logits(self.edited(path, {"attention.sliding_window": 5, "attention.sliding_window_pattern": 1})), expected)
                for key, value in (("attention.sliding_window_pattern", flags + [True]), ("attention.sliding_window_pattern", flags[:-1]),
                                   ("attention.sliding_window", sizes + [5]), ("attention.sliding_window", flags),
                                   ("attention.sliding_window_pattern", "x"),
                                   ("attention.sliding_window", [5] * (n - 1) + [6]), ("attention.sliding_window_pattern", [0.5] * n)):
                    changes = {"attention.sliding_window": 5, key: value}
                    self.assertIn(key, self.logits(self.edited(path, changes)))

    def test_the_default_is_the_family_s(self):
        """Where a window has no pattern: Llama's files mean all layers, Gemma's every sixth is full, gpt-oss every second."""
        for name, period in (("llama", 0), ("phi3", 0), ("olmo2", 4), ("gemma3", 6), ("gpt-oss", 2)):
            path = self.models[name][1]
            expected = self.logits(self.edited(path, {"attention.sliding_window": 5, "attention.sliding_window_pattern": period}))
            self.assertEqual(self.logits(self.edited(path, {"attention.sliding_window": 5})), expected)
        for name in ("bitnet", "bitnet-b1.58", "granite", "hunyuan-dense", "minicpm", "olmoe", "smollm3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"):
            found = self.logits(self.edited(self.models[name][1], {"attention.sliding_window": 5}))
            self.assertIn("attention.sliding_window_pattern", found)

    def test_period_of_three(self):
        """gpt-oss with a period of 3, in every spelling and both containers, against an independent computation."""
        directory, path = self.models["gpt-oss"]
        flags = [True, True, False, True]
        for pattern in (3, flags, [int(f) for f in flags], (gguf.U32, flags)):
            changes = {"attention.sliding_window_pattern": pattern}
            self.assertLess(self.check_reference(path, changes, "gpt-oss.period_3"), 1e-4)
        self.assertLess(self.check_reference(path, {"attention.sliding_window": [8, 8, 0, 8]}, "gpt-oss.period_3"), 1e-4)
        types = ["sliding_attention" if f else "full_attention" for f in flags]
        self.assertLess(self.check_reference(directory, {"layer_types": types}, "gpt-oss.period_3"), 1e-4)
        self.assertGreater(self.check_reference(path, {}, "gpt-oss.period_3"), 1)

    def test_both_containers_agree(self):
        """A period in GGUF and the same list of layers in config.json, whose windows the official numbers of golden/hf confirm."""
        for name in ("gpt-oss", "gemma3"):
            directory, path = self.models[name]
            n = gguf.read(path)[0][gguf.read(path)[0]["general.architecture"] + ".block_count"]
            types = ["full_attention" if (i + 1) % 3 == 0 else "sliding_attention" for i in range(n)]
            expected = self.logits(self.edited(directory, {"layer_types": types}))
            found = self.logits(self.edited(path, {"attention.sliding_window_pattern": 3}))
            self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-4)
            self.assertGreater(max(abs(a - b) for a, b in zip(found, self.plain_logits(path))), 1e-3)

    def test_converted(self):
        """Layers without a period are a list in the converted file."""
        directory = self.models["gemma3"][0]
        types = ["sliding_attention"] * 7
        types[1] = types[2] = types[6] = "full_attention"
        edited = self.edited(directory, {"layer_types": types})
        expected = self.logits(edited)
        converted = os.path.join(self.folder.name, "windows.gguf")
        self.good("convert", edited, "--to", "f32", "-o", converted)
        self.assertLess(max(abs(a - b) for a, b in zip(self.logits(converted), expected)), 1e-4)


class KeysTest(FactsTest):
    """Types of files, other namespaces, and keys that are ignored on request."""

    test_gguf = test_config = test_experts_of_dense_files = test_factors_are_exact = None
    test_granite_by_name_of_llama = test_made_containers = test_yarn = test_clamp = None
    test_the_factor_of_a_scaling = test_members_of_a_scaling = test_published_metadata = None
    test_what_a_target_cannot_state = test_long_factors_of_another_scaling = None
    test_layers_without_rope = test_the_alpha_of_a_base = None

    def test_types(self):
        path = self.models["llama"][1]
        for kind in ("adapter", "mmproj", "imatrix", "controlvector", "else"):
            self.assertIn(f"general.type: expected model, found", self.logits(self.edited(path, {"general.type": kind})))
        # such files have no tokenizer, and may be of families of their own
        for changes in ({"general.type": "adapter", "tokenizer.ggml.tokens": None},
                        {"general.type": "mmproj", "general.architecture": "clip"}):
            edited = self.edited(path, changes)
            for command in (["run", edited, "-p", "a"], ["logits", edited, "--ids", IDS, "-o", "x"]):
                self.fails(1, *command, mentions=[f"general.type: expected model, found {changes['general.type']}: "])
            self.assertIn("cannot be loaded as it is: general.type", " ".join(self.notices(edited)))
        folder = os.path.join(self.folder.name, "peft")
        os.mkdir(folder)
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({"peft_type": "LORA"}, file)
        self.fails(1, "run", folder, "-p", "a", mentions=["found a LoRA adapter", "--lora"])

    def test_namespaces(self):
        path = self.models["llama"][1]
        rotated = self.logits(self.edited(path, {"prism.hadamard.version": 1}))
        self.assertIn("prism.hadamard.block_size: expected a power of two, found none", rotated)
        edited = self.edited(path, {"other.first": 1, "other.second": 2, "alone": 3, "mradermacher.a": "x",
                                    "mradermacher.b": "y", "quantize.imatrix.file": "z"})
        out = os.path.join(self.folder.name, "logits")
        warning = setun("logits", edited, "--ids", IDS, "-o", out).stderr.decode()
        self.assertEqual(warning.count("other.* (2), alone (1)"), 1, warning)
        self.assertNotIn("mradermacher", warning)  # known to be harmless: no warning
        notices = self.notices(edited)
        for kind in ("other.* (2), alone (1)", "mradermacher.* (2), quantize.* (1)"):
            self.assertEqual(len([n for n in notices if n.endswith(kind)]), 1, notices)
        self.assertEqual(len([n for n in notices if "not read" in n]), 2, notices)
        many = self.notices(self.edited(path, {f"other{i}.key": i for i in range(12)}))
        self.assertTrue(any(n.endswith("other7.* (1) and 4 of others") for n in many), many)

    def test_templates(self):
        """A missing template is among the assumptions, and so is one of another type."""
        for path in self.models["llama"]:
            self.assertTrue(any("no chat template" in n for n in self.notices(path)), path)
        path = self.models["llama"][1]
        edited = self.edited(path, {"tokenizer.chat_template": "{{ messages }}"})
        self.assertFalse(any("template" in n for n in self.notices(edited)))
        edited = self.edited(path, {"tokenizer.chat_template": 1})
        self.assertTrue(any("tokenizer.chat_template: expected a string, found u32; ignored" in n for n in self.notices(edited)))
        text = setun("run", path, "-p", "a", "-n", "1").stderr.decode()
        self.assertNotIn("template", text)  # which continuing a text does not need

    def test_merges_of_an_unknown_family(self):
        """vocab.json with merges.txt are split as the family does; for an unknown family nothing is guessed."""
        folder = os.path.join(self.folder.name, "merges")
        os.mkdir(folder)
        with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
            json.dump({"1": 0, "2": 1, "12": 2}, file)
        with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
            file.write("#version: 0.2\n1 2\n")
        # Qwen takes each digit by itself, GPT-2 all digits of a number together.
        for kind, expected in (("qwen3_moe", [0, 1]), ("qwen2", [0, 1]), ("llama", [2]), ("mamba", None)):
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"model_type": kind}, file)
            result = setun("tokenize", folder, "-p", "12")
            text = result.stdout.decode() + result.stderr.decode()
            if expected:
                self.assertEqual([int(line.split()[0]) for line in result.stdout.decode().splitlines()], expected, text)
            else:
                self.assertIn('model_type: expected a known family', text)
                self.assertIn('found "mamba"', text)

    def test_inspect_tells_what_loading_refuses(self):
        edited = self.edited(self.models["llama"][1], {"attention.output_scale": 0.5})
        notices = json.loads(self.good("inspect", edited, "--json"))["notices"]
        self.assertTrue(any("llama.attention.output_scale: expected 0 or 1, found 0.5" in n for n in notices), notices)

    def test_ignored_on_request(self):
        out = os.path.join(self.folder.name, "logits")
        for container, key, value in ((1, "attention.causal", False), (0, "is_causal", False), (1, "prism.hadamard.version", 1)):
            model = self.models["llama"][container]
            plain, edited = self.plain_logits(model), self.edited(model, {key: value})
            name = key if not container or key.startswith("prism") else "llama." + key
            for ignored in (name, "prism.hadamard.*") if key.startswith("prism") else (name,):
                self.assertEqual(self.logits(edited, "--ignore-key", ignored), plain)
                for command in (("logits", "--ids", IDS, "-o", out), ("plan",), ("inspect",), ("run", "-p", "a", "-n", "1"),
                                ("convert", "--to", "f32", "-o", os.path.join(self.folder.name, "ignored.gguf"))):
                    result = setun(command[0], edited, *command[1:], "--ignore-key", ignored)
                    text = result.stderr.decode() + result.stdout.decode()
                    self.assertEqual(result.returncode, 0, text)
                    self.assertIn(f"{name}: ignored, as requested", text)
                converted = self.logits(os.path.join(self.folder.name, "ignored.gguf"))
                self.assertLess(max(abs(a - b) for a, b in zip(converted, plain)), 1e-4)
                os.remove(os.path.join(self.folder.name, "ignored.gguf"))
        model, scaling = self.models["qwen2"][0], {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2]}
        edited = self.edited(model, {"rope_parameters": "absent", "rope_scaling": scaling})
        self.assertIn("config.json: rope_scaling.mrope_section: expected", self.logits(edited))  # as --ignore-key takes it
        self.assertIsInstance(self.logits(edited, "--ignore-key", "rope_scaling.mrope_section"), list)
        text = setun("inspect", self.models["llama"][1], "--ignore-key", "llama.nothing").stdout.decode()
        self.assertIn("llama.nothing: to be ignored, but the key is absent", text)


if __name__ == "__main__":
    main()
