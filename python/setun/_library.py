"""The shared library: its structs (as in setun.h, each begins with `size`), its functions, its errors."""
from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_uint8, c_void_p
from typing import Any


class SetunError(Exception):
    """A failure that the library reports: `status` is its name, such as "io" or "limit"."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("message", c_char * 512)]


class ModelInfo(ctypes.Structure):
    _fields_ = ([("size", c_size_t)] + [(n, c_char_p) for n in ("architecture", "container", "isa", "activation")] +
                [(n, c_uint32) for n in ("n_layer", "n_embd", "n_head", "n_head_kv", "head_dim", "n_ff", "n_vocab", "n_ctx_train")] +
                [(n, c_uint64) for n in ("n_params", "weight_bytes", "bytes_per_token", "macs_per_token", "head_macs")])


class Adapter(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("scale", c_float)]


class ModelParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("isa", c_char_p), ("assume", c_char_p), ("activation", c_char_p),
                ("ignore_keys", POINTER(c_char_p)), ("n_ignore_keys", c_size_t), ("precise", c_bool), ("threads", c_int),
                ("log", c_void_p), ("progress", c_void_p), ("user", c_void_p), ("adapters", POINTER(Adapter)),
                ("n_adapters", c_size_t), ("memory", c_uint64), ("session", c_void_p), ("source", c_void_p), ("no_stream", c_bool),
                ("context", c_void_p), ("adapter_rank", c_uint32), ("adapter_bytes", c_uint64),
                ("beside", c_uint64), ("on_experts", c_void_p), ("experts_user", c_void_p), ("experts_state", c_char_p), ("experts_ahead", c_int),
                ("device", c_char_p), ("device_cache", c_char_p),
                ("device_memory", c_uint64)]


class SessionParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("n_ctx", c_uint32), ("n_batch", c_uint32), ("threads", c_int), ("kv_keys", c_int),
                ("kv_values", c_int)]


class ContextParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("n_ctx", c_uint32), ("n_seq_max", c_uint32), ("n_cache", c_uint64), ("n_batch", c_uint32),
                ("n_logits", c_uint32), ("threads", c_int), ("kv_keys", c_int), ("kv_values", c_int), ("window", c_uint32),
                ("sinks", c_uint32), ("pooling", c_int)]


class EmbeddingInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("n_dimensions", c_uint32), ("n_ctx", c_uint32), ("n_dense", c_uint32), ("pooling", c_int),
                ("source", c_char_p), ("bidirectional", c_bool), ("nested", c_bool), ("n_prompts", c_size_t), ("prompt", c_char_p), ("no_text", c_bool),
                ("lengths", POINTER(c_uint32)), ("n_lengths", c_size_t), ("unscaled", c_bool)]


class EmbeddingParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("raw", c_bool), ("n_dimensions", c_uint32), ("progress", c_void_p), ("user", c_void_p),
                ("normalize", c_bool)]


class EmbeddingInput(ctypes.Structure):
    _fields_ = [("ids", POINTER(c_int32)), ("n", c_size_t)]


LOGITS = ctypes.CFUNCTYPE(c_bool, c_uint32, POINTER(c_float), c_void_p)
HIDDEN = ctypes.CFUNCTYPE(c_bool, c_uint32, c_uint32, c_uint32, POINTER(c_float), c_void_p)


class EvalParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("on_logits", LOGITS), ("on_hidden", HIDDEN), ("progress", c_void_p), ("user", c_void_p)]


TEXT = ctypes.CFUNCTYPE(c_bool, c_void_p, c_size_t, c_void_p)


class GenerateParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("max_tokens", c_uint64), ("stops", POINTER(c_char_p)), ("n_stops", c_size_t),
                ("ignore_end", c_bool), ("decode_flags", c_int), ("on_text", TEXT), ("user", c_void_p)]


class ConstraintParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("grammar", c_int), ("text", c_char_p), ("length", c_size_t), ("name", c_char_p),
                ("space", c_uint32), ("ordered", c_bool), ("memory", c_uint64), ("milliseconds", c_uint32)]


class SamplerOrder(ctypes.Structure):
    _fields_ = [("n", c_uint8), ("steps", c_uint8 * 15)]


class SamplerParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("penalty_last_n", c_int32), ("repeat_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("dry_multiplier", c_float), ("dry_base", c_float),
                ("dry_allowed_length", c_int32), ("dry_penalty_last_n", c_int32), ("top_k", c_int32), ("typical_p", c_float),
                ("top_p", c_float), ("min_p", c_float), ("xtc_probability", c_float), ("xtc_threshold", c_float),
                ("temperature", c_float), ("dynatemp_range", c_float), ("dynatemp_exponent", c_float), ("seed", c_uint64),
                ("model", c_void_p), ("order", SamplerOrder), ("top_n_sigma", c_float), ("mirostat", c_int32),
                ("mirostat_tau", c_float), ("mirostat_eta", c_float)]


def _load() -> ctypes.CDLL:
    """$SETUN_LIBRARY, else the library in this package, else the system's."""
    path = os.environ.get("SETUN_LIBRARY")
    inside = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "libsetun.*")))
    path = path or (inside[0] if inside else None) or ctypes.util.find_library("setun")
    if not path:
        raise ImportError("libsetun is not inside of the package, nor is it installed; SETUN_LIBRARY may name it")
    return ctypes.CDLL(path)


lib = _load()
_IDS = POINTER(c_int32)
for _name, _result, _arguments in [
        ("version", c_char_p, []), ("choice_name", c_char_p, [c_int, c_size_t]), ("status_name", c_char_p, [c_int]),
        ("model_params_init", None, [c_void_p, c_size_t]), ("session_params_init", None, [c_void_p, c_size_t]),
        ("eval_params_init", None, [c_void_p, c_size_t]), ("generate_params_init", None, [c_void_p, c_size_t]),
        ("model_load", c_int, [c_char_p, c_void_p, POINTER(c_void_p), POINTER(Error)]), ("model_free", None, [c_void_p]),
        ("model_get_info", c_int, [c_void_p, POINTER(ModelInfo), POINTER(Error)]),
        ("tokenize", c_int, [c_void_p, c_char_p, c_size_t, c_int, _IDS, c_size_t, POINTER(c_size_t), POINTER(Error)]),
        ("detokenize", c_int, [c_void_p, _IDS, c_size_t, c_int, c_char_p, c_size_t, POINTER(c_size_t), POINTER(Error)]),
        ("context_params_init", None, [c_void_p, c_size_t]), ("embedding_params_init", None, [c_void_p, c_size_t]),
        ("context_new", c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]), ("context_free", None, [c_void_p]),
        ("pooling_name", c_char_p, [c_int]),
        ("model_get_embedding_info", c_int, [c_void_p, POINTER(EmbeddingInfo), POINTER(Error)]),
        ("model_get_prompt", c_int, [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_char_p), POINTER(Error)]),
        ("context_embed", c_int, [c_void_p, POINTER(EmbeddingInput), c_size_t, c_void_p, POINTER(c_float), POINTER(Error)]),
        ("adapters_load", c_int, [c_void_p, POINTER(Adapter), c_size_t, POINTER(c_void_p), POINTER(Error)]),
        ("adapters_free", None, [c_void_p]),
        ("session_use_adapters", c_int, [c_void_p, c_void_p, c_float, POINTER(Error)]),
        ("session_new", c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]), ("session_free", None, [c_void_p]),
        ("session_context", c_uint32, [c_void_p]), ("session_position", c_uint32, [c_void_p]),
        ("session_eval", c_int, [c_void_p, _IDS, c_size_t, c_void_p, POINTER(Error)]),
        ("session_logits", POINTER(c_float), [c_void_p]), ("session_tokens", _IDS, [c_void_p]),
        ("session_truncate", c_int, [c_void_p, c_uint32, POINTER(Error)]),
        ("session_save_memory", c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), POINTER(Error)]),
        ("session_load_memory", c_int, [c_void_p, c_char_p, c_size_t, POINTER(Error)]),
        ("model_get_sampler_params", c_int, [c_void_p, POINTER(SamplerParams), POINTER(Error)]),
        ("sampler_new", c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]), ("sampler_free", None, [c_void_p]),
        ("sampler_accept", c_int, [c_void_p, c_int32, POINTER(Error)]),
        ("constraint_params_init", None, [c_void_p, c_size_t]),
        ("constraint_new", c_int, [c_void_p, POINTER(ConstraintParams), POINTER(c_void_p), POINTER(Error)]),
        ("constraint_free", None, [c_void_p]),
        ("matcher_new", c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)]), ("matcher_free", None, [c_void_p]),
        ("matcher_reset", None, [c_void_p]), ("matcher_allows", c_bool, [c_void_p, c_int32]),
        ("matcher_mask", c_int, [c_void_p, POINTER(c_uint32), c_size_t, POINTER(Error)]),
        ("matcher_accept", c_int, [c_void_p, c_int32, POINTER(Error)]),
        ("matcher_rollback", c_int, [c_void_p, c_size_t, POINTER(Error)]),
        ("matcher_may_end", c_bool, [c_void_p]), ("matcher_must_end", c_bool, [c_void_p]),
        ("matcher_forced", c_int, [c_void_p, _IDS, c_size_t, POINTER(c_size_t), POINTER(Error)]),
        ("sampler_constrain", c_int, [c_void_p, c_void_p, POINTER(Error)]),
        ("generate", c_int, [c_void_p, c_void_p, POINTER(GenerateParams), c_void_p, POINTER(Error)]),
        ("chat_new", c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)]), ("chat_free", None, [c_void_p]),
        ("chat_render", c_int, [c_void_p, c_char_p, c_size_t, c_void_p, POINTER(c_void_p), POINTER(Error)]),
        ("rendering_free", None, [c_void_p]),
        ("rendering_tokenize", c_int, [c_void_p, _IDS, c_size_t, POINTER(c_size_t), POINTER(Error)])]:
    _function = getattr(lib, "setun_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last parameter is a setun_error; raises its failure as an exception."""
    error = Error()
    status = getattr(lib, "setun_" + name)(*arguments, byref(error))
    if status:
        raise SetunError(lib.setun_status_name(status).decode(), error.message.decode(errors="replace"))


def make(name: str, *arguments: Any) -> c_void_p:
    """A new object from a function that returns it through its last parameter but one."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def kv_type(name: str) -> int:
    """A format of the KV cache by its name."""
    names: list[str] = []
    while found := lib.setun_choice_name(6, len(names)):  # SETUN_CHOICE_KV
        names.append(found.decode())
    if name not in names:
        raise SetunError("argument", f"kv: expected one of {', '.join(names)}, found {name}")
    return names.index(name)


def pooling(name: str | None) -> int:
    """A setun_pooling by its name; None: the model's own."""
    for value in range(2, 6):  # SETUN_POOLING_MEAN and on
        if name == lib.setun_pooling_name(value).decode():
            return value
    if name is not None:
        raise SetunError("argument", f"pooling: expected mean, cls, last or none, found {name}")
    return 1


def params(kind: Any, name: str) -> Any:
    """A struct of parameters with the defaults."""
    made = kind()
    getattr(lib, f"setun_{name}_params_init")(byref(made), ctypes.sizeof(made))
    return made


def listed(name: str, *arguments: Any) -> list[int]:
    """The ids from a function with the parameters list, capacity and number of ids."""
    count = c_size_t()
    call(name, *arguments, None, 0, byref(count))
    ids = (c_int32 * max(count.value, 1))()
    call(name, *arguments, ids, count.value, byref(count))
    return list(ids[:count.value])
