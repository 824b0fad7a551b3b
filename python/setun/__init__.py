"""Setun: language models with ternary and other very low-bit weights. See Model."""
from __future__ import annotations

import ctypes
import itertools
import json
import os
import queue
import threading
from ctypes import byref, c_char_p, c_int32, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from . import _library
from ._library import SetunError, call, lib, listed, make, params

if TYPE_CHECKING:
    import numpy

__all__ = ["Adapters", "Constraint", "Matcher", "Model", "Session", "SetunError", "version"]


def version() -> str:
    """The library's version, such as "0.1.0"."""
    return str(lib.setun_version().decode())


def _adapter_list(adapters: Mapping[str, float]) -> tuple[Any, int]:
    rows = [_library.Adapter(os.fsencode(path), scale) for path, scale in adapters.items()]
    return (_library.Adapter * len(rows))(*rows), len(rows)


class Model:
    """A GGUF file or a Hugging Face directory, loaded. `memory`: bytes that the process may use, 0: what is available;
    `adapters`: paths of LoRA adapters, each with its scale; adapter_rank, adapter_bytes: room for those loaded later;
    `device`: where it computes, `device_memory`: bytes of its memory, as in setun_model_params."""

    def __init__(self, path: str | os.PathLike[str], *, memory: int = 0, threads: int = 0, isa: str | None = None,
                 precise: bool = False, adapters: Mapping[str, float] | None = None, adapter_rank: int = 0,
                 adapter_bytes: int = 0, device: str | None = None, device_memory: int = 0) -> None:
        self._handle: c_void_p | None = None
        given = params(_library.ModelParams, "model")
        given.memory, given.threads, given.precise = memory, threads, precise
        given.isa = isa.encode() if isa else None
        given.device = device.encode() if device else None
        given.device_memory = device_memory
        given.adapters, given.n_adapters = _adapter_list(adapters or {})
        given.adapter_rank, given.adapter_bytes = adapter_rank, adapter_bytes
        self._handle = make("model_load", os.fsencode(path), byref(given))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_model_free(self._handle)

    @property
    def info(self) -> dict[str, Any]:
        """The members of setun_model_info."""
        info = _library.ModelInfo(size=ctypes.sizeof(_library.ModelInfo))
        call("model_get_info", self._handle, byref(info))
        values = {name: getattr(info, name) for name, *_ in info._fields_[1:]}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False, eos: bool = False) -> list[int]:
        """The text's ids. `special`: control tokens are recognized; `bos`, `eos`: begin with BOS and end with EOS if the
        model's whole texts do."""
        data = text.encode()
        return listed("tokenize", self._handle, data, len(data), special * 1 + bos * 2 + eos * 8)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The ids' text. `special`: control tokens are shown."""
        given, length = (c_int32 * len(ids))(*ids), c_size_t()
        call("detokenize", self._handle, given, len(ids), int(special), None, 0, byref(length))
        text = ctypes.create_string_buffer(max(length.value, 1))
        call("detokenize", self._handle, given, len(ids), int(special), text, length.value, byref(length))
        return text.raw[:length.value].decode()

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts that the model's files define for texts that become vectors, by name."""
        info, found = self._embedding_info(), {}
        for i in range(info.n_prompts):
            name, text = c_char_p(), c_char_p()
            call("model_get_prompt", self._handle, i, byref(name), byref(text))
            found[(name.value or b"").decode()] = (text.value or b"").decode()
        return found

    def _embedding_info(self) -> Any:
        info = _library.EmbeddingInfo(size=ctypes.sizeof(_library.EmbeddingInfo))
        call("model_get_embedding_info", self._handle, byref(info))
        return info

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, pooling: str | None = None, prompt: str | None = None,
              normalize: bool | None = None, dimensions: int = 0, threads: int = 0,
              parallel: int = 8) -> Any:
        """The vectors of texts (or of lists of ids, used unchanged), [n, dimensions] float32; for a single text,
        [dimensions]. `pooling`: "mean", "cls" or "last"; None: the model's own; "none": the vectors of all tokens, a list
        with [tokens, dimensions] for each text, or for a single text its array. `prompt`: the name of one of `prompts`;
        None: the model's default; "": none. `normalize`: whether vectors are divided by their length; None: as the model's
        files say, and divided where they say nothing. `parallel`: texts computed together."""
        import numpy
        alone, info = isinstance(texts, str), self._embedding_info()
        name = prompt if prompt is not None else (info.prompt or b"").decode()
        if name and name not in self.prompts:
            raise SetunError("argument", f"prompt: expected one of {', '.join(self.prompts)}, found {name}")
        before = self.prompts[name] if name else ""
        ids = [self.tokenize(before + t, bos=True, eos=True) if isinstance(t, str) else list(t)
               for t in ([texts] if isinstance(texts, str) else texts)]
        counts = [len(i) if pooling == "none" else 1 for i in ids]
        vectors = numpy.empty((sum(counts), dimensions or info.n_dimensions), numpy.float32)
        given = params(_library.ContextParams, "context")
        longest = max((len(i) for i in ids), default=0)
        given.n_ctx, given.n_seq_max = max(1, min(longest, info.n_ctx)), max(1, min(parallel, len(ids)))
        given.n_cache = given.n_ctx + 512 + 64 * given.n_seq_max
        given.n_logits, given.threads, given.pooling = 1, threads, _library.pooling(pooling)
        how = params(_library.EmbeddingParams, "embedding")
        how.raw, how.normalize, how.n_dimensions = normalize is False, normalize is True, dimensions
        arrays = [(c_int32 * len(i))(*i) for i in ids]
        rows = (_library.EmbeddingInput * len(ids))(
            *(_library.EmbeddingInput(ctypes.cast(a, ctypes.POINTER(c_int32)), len(a)) for a in arrays))
        context = make("context_new", self._handle, byref(given))
        try:
            call("context_embed", context, rows, len(ids), byref(how), vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        finally:
            lib.setun_context_free(context)
        if pooling == "none":
            texts_of = numpy.split(vectors, list(itertools.accumulate(counts))[:-1])
            return texts_of[0] if alone else texts_of
        return vectors[0] if alone else vectors

    def session(self, *, n_ctx: int = 0, threads: int = 0, kv: str = "f16") -> Session:
        """An empty session. n_ctx 0: the model's trained length, at most 4096. `kv`: the format of the KV cache."""
        return Session(self, n_ctx=n_ctx, threads=threads, kv=kv)

    def load_adapters(self, adapters: Mapping[str, float]) -> Adapters:
        """Loads LoRA adapters, by path with the scale of each, for Session.use_adapters. The model must have been loaded
        with room for them (adapter_rank, adapter_bytes)."""
        return Adapters(self, adapters)

    def generate(self, prompt: str, **options: Any) -> Iterator[str]:
        """Pieces of the text that continues a prompt; options as in Session.generate."""
        session = self.session()
        session.eval(self.tokenize(prompt, bos=True))
        return session.generate(**options)

    def chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Iterator[str]:
        """Pieces of the answer to messages ({"role": ..., "content": ...}), by the model's chat template."""
        ids = self.chat_ids(messages)
        session = self.session()
        session.eval(ids)
        return session.generate(continues=False, **options)

    def chat_ids(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """The tokens of a conversation, ready for the answer."""
        context = json.dumps({"messages": list(messages), "add_generation_prompt": True}).encode()
        chat = make("chat_new", self._handle, None)
        try:
            rendering = make("chat_render", chat, context, len(context), None)
            try:
                return listed("rendering_tokenize", rendering)
            finally:
                lib.setun_rendering_free(rendering)
        finally:
            lib.setun_chat_free(chat)


class Adapters:
    """LoRA adapters of a model, whose weights they leave unchanged: see Model.load_adapters."""

    def __init__(self, model: Model, adapters: Mapping[str, float]) -> None:
        self._handle: c_void_p | None = None
        self.model = model  # which must live longer
        rows, n = _adapter_list(adapters)
        self._handle = make("adapters_load", model._handle, rows, n)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_adapters_free(self._handle)


class Constraint:
    """The texts that are allowed, compiled for a model's vocabulary. Exactly one of: a JSON schema (as text, or a value that
    json.dumps accepts), a regular expression that matches the whole text, a grammar in GBNF, one in Lark's syntax. `space`:
    the most white space in a row around JSON's punctuation, up to 8; 0: one space after colons and commas. `ordered`:
    properties in the schema's order. `memory`: bytes at most, 0: 256 MiB. Any number of threads may use it."""

    def __init__(self, model: Model, *, json_schema: str | bool | Mapping[str, Any] | None = None,
                 expression: str | None = None, gbnf: str | None = None, lark: str | None = None, space: int = 0,
                 ordered: bool = False, memory: int = 0) -> None:
        self._handle: c_void_p | None = None
        self.model = model  # which must live longer
        if json_schema is not None and not isinstance(json_schema, str):
            json_schema = json.dumps(json_schema)
        texts = [(kind, text) for kind, text in enumerate((json_schema, expression, gbnf, lark)) if text is not None]
        if len(texts) != 1:
            raise ValueError(f"expected one of json_schema, expression, gbnf, lark, found {len(texts)}")
        given = params(_library.ConstraintParams, "constraint")
        given.grammar, given.text = texts[0][0], texts[0][1].encode()
        given.length = len(given.text)
        given.space, given.ordered, given.memory = space, ordered, memory
        self._handle = make("constraint_new", model._handle, byref(given))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_constraint_free(self._handle)

    def matcher(self) -> Matcher:
        """A matcher at the beginning of a text."""
        return Matcher(self)


class Matcher:
    """A position in one text that must match a constraint. It belongs to one thread at a time."""

    def __init__(self, constraint: Constraint) -> None:
        self._handle: c_void_p | None = None
        self.constraint = constraint  # which must live longer
        self._n_vocab = int(constraint.model.info["n_vocab"])
        self._handle = make("matcher_new", constraint._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_matcher_free(self._handle)

    def mask(self) -> numpy.ndarray:
        """Which tokens may come next, [n_vocab] bool."""
        import numpy
        words = numpy.zeros((self._n_vocab + 31) // 32, numpy.uint32)
        call("matcher_mask", self._handle, words.ctypes.data_as(ctypes.POINTER(ctypes.c_uint32)), len(words))
        bits = numpy.unpackbits(words.astype("<u4").view(numpy.uint8), bitorder="little")
        return bits[:self._n_vocab].astype(bool)

    def allows(self, token: int) -> bool:
        """May this token come next?"""
        return bool(lib.setun_matcher_allows(self._handle, token))

    def accept(self, token: int) -> None:
        """Appends a token; one that is not allowed is an error and changes nothing."""
        call("matcher_accept", self._handle, token)

    def rollback(self, n: int) -> None:
        """Takes back the last n tokens."""
        call("matcher_rollback", self._handle, n)

    def reset(self) -> None:
        """Moves back to the beginning."""
        lib.setun_matcher_reset(self._handle)

    def forced(self) -> list[int]:
        """The tokens that must follow, up to the first choice; they are not accepted yet."""
        return listed("matcher_forced", self._handle)

    @property
    def may_end(self) -> bool:
        return bool(lib.setun_matcher_may_end(self._handle))

    @property
    def must_end(self) -> bool:
        return bool(lib.setun_matcher_must_end(self._handle))


class Session:
    """A sequence of tokens evaluated by a model. It belongs to one thread at a time."""

    def __init__(self, model: Model, *, n_ctx: int = 0, threads: int = 0, kv: str = "f16") -> None:
        self._handle: c_void_p | None = None
        self.model = model  # which must live longer
        self.adapters: Adapters | None = None
        given = params(_library.SessionParams, "session")
        given.n_ctx, given.threads = n_ctx, threads
        given.kv_keys = given.kv_values = _library.kv_type(kv)
        self._handle = make("session_new", model._handle, byref(given))
        self._n_vocab = model.info["n_vocab"]

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_session_free(self._handle)

    def eval(self, ids: Sequence[int]) -> None:
        """Appends tokens and computes what follows them."""
        call("session_eval", self._handle, (c_int32 * len(ids))(*ids), len(ids), None)

    def hidden(self, ids: Sequence[int], layer: int) -> numpy.ndarray:
        """Appends tokens and returns their hidden states [n, n_embd]: layer 0 is the input of block 0, l + 1 its output."""
        import numpy
        width, begin = self.model.info["n_embd"], self.position
        found = numpy.empty((len(ids), width), numpy.float32)

        def take(at: int, position: int, n: int, values: Any, user: Any) -> bool:
            if at == layer:
                found[position - begin:position - begin + n] = numpy.ctypeslib.as_array(values, (n, width))
            return True
        if not 0 <= layer <= self.model.info["n_layer"]:
            raise SetunError("argument", f"layer: expected 0 to {self.model.info['n_layer']}, found {layer}")
        given = params(_library.EvalParams, "eval")
        given.on_hidden = _library.HIDDEN(take)
        call("session_eval", self._handle, (c_int32 * len(ids))(*ids), len(ids), byref(given))
        return found

    @property
    def logits(self) -> numpy.ndarray:
        """The logits after the last token, [n_vocab], read-only and not copied: the session's next call overwrites them."""
        import numpy
        values = lib.setun_session_logits(self._handle)
        if not values:
            raise SetunError("state", "the session has no logits: evaluate a token first")
        block = ctypes.cast(values, ctypes.POINTER(ctypes.c_float * self._n_vocab)).contents
        block._session = self  # keeps the memory as long as the array
        array = numpy.ctypeslib.as_array(block)
        array.flags.writeable = False
        return array

    @property
    def position(self) -> int:
        """The number of tokens so far."""
        return int(lib.setun_session_position(self._handle))

    @property
    def n_ctx(self) -> int:
        """The number of tokens that fit."""
        return int(lib.setun_session_context(self._handle))

    @property
    def tokens(self) -> list[int]:
        return lib.setun_session_tokens(self._handle)[:self.position] if self.position else []

    def truncate(self, n: int) -> None:
        """Removes all tokens from position n on."""
        call("session_truncate", self._handle, n)

    def save(self) -> bytes:
        """The tokens and the KV cache as bytes, without logits."""
        length = c_size_t()
        call("session_save_memory", self._handle, None, 0, byref(length))
        data = ctypes.create_string_buffer(length.value)
        call("session_save_memory", self._handle, data, length.value, byref(length))
        return data.raw

    def load(self, data: bytes) -> None:
        """Restores what `save` returned for the same model."""
        call("session_load_memory", self._handle, data, len(data))

    def use_adapters(self, adapters: Adapters | None, scale: float = 1) -> None:
        """Computes with these adapters, times `scale`, from now on; None: with those that the model was loaded with. The
        tokens are kept and evaluated again; the logits are discarded."""
        call("session_use_adapters", self._handle, adapters._handle if adapters else None, scale)
        self.adapters = adapters

    def generate(self, *, max_tokens: int = 0, stop: str | Sequence[str] = (), continues: bool = True,
                 constraint: Constraint | None = None, **sampling: float) -> Iterator[str]:
        """Pieces of new text, until an end token, a stop text (never shown), max_tokens (0: no limit) or a full context. The
        session must have logits, and must not be used until the iterator ends or is closed. `constraint`: what the new
        text must match. `sampling`: members of setun_sampler_params, such as temperature, top_k or seed; those not given
        have the model's defaults."""
        if max_tokens < 0:
            raise ValueError(f"max_tokens: expected 0 or more, found {max_tokens}")
        stop = [stop] if isinstance(stop, str) else stop
        given = _library.SamplerParams(size=ctypes.sizeof(_library.SamplerParams))
        call("model_get_sampler_params", self.model._handle, byref(given))
        for name, value in sampling.items():
            if name in ("size", "model", "order") or not hasattr(given, name):
                raise TypeError(f"{name} is not an option of sampling")
            setattr(given, name, value)
        options = params(_library.GenerateParams, "generate")
        options.max_tokens, options.decode_flags = max_tokens, 2 if continues else 0
        options.stops, options.n_stops = (c_char_p * len(stop))(*(text.encode() for text in stop)), len(stop)
        return self._pieces(given, options, constraint)

    def _pieces(self, sampling: Any, options: Any, constraint: Constraint | None) -> Iterator[str]:
        pieces: queue.Queue[str | SetunError | None] = queue.Queue(1)
        ended = threading.Event()

        def take(text: int, length: int, user: Any) -> bool:
            pieces.put(ctypes.string_at(text, length).decode())
            return not ended.is_set()

        def work() -> None:
            try:
                call("generate", self._handle, sampler, byref(options), None)
                pieces.put(None)
            except SetunError as error:
                pieces.put(error)

        sampler = make("sampler_new", byref(sampling))
        try:
            for known in self.tokens:
                call("sampler_accept", sampler, known)
            if constraint:
                call("sampler_constrain", sampler, constraint._handle)
            options.on_text = _library.TEXT(take)
            worker = threading.Thread(target=work, daemon=True)
            worker.start()
            try:
                piece = pieces.get()
                while isinstance(piece, str):
                    yield piece
                    piece = pieces.get()
                if piece:
                    raise piece
            finally:
                ended.set()
                while worker.is_alive():
                    try:
                        pieces.get(timeout=0.01)
                    except queue.Empty:
                        pass
                worker.join()
        finally:
            lib.setun_sampler_free(sampler)
