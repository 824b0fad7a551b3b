"""Setun: language models with ternary and other very low-bit weights. See Model."""
from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_bool, c_char_p, c_int32, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _library
from ._library import SetunError, call, lib, listed, make, params, text_of

if TYPE_CHECKING:
    import numpy

__all__ = ["Model", "Session", "SetunError", "version"]


def version() -> str:
    """Of the library, such as "0.1.0"."""
    return lib.setun_version().decode()


class Model:
    """A GGUF file or a Hugging Face directory, loaded. `memory`: bytes that the process may take, 0: what is available."""

    def __init__(self, path: str, *, memory: int = 0, threads: int = 0, isa: str | None = None, precise: bool = False) -> None:
        self._handle: c_void_p | None = None
        given = params(_library.ModelParams, "model")
        given.memory, given.threads, given.precise = memory, threads, precise
        given.isa = isa.encode() if isa else None
        self._handle = make("model_load", path.encode(), byref(given))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_model_free(self._handle)

    @property
    def info(self) -> dict[str, Any]:
        """setun_model_info's members."""
        info = _library.ModelInfo(size=ctypes.sizeof(_library.ModelInfo))
        call("model_get_info", self._handle, byref(info))
        values = {name: getattr(info, name) for name, _ in info._fields_[1:]}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Ids. `special`: control tokens are recognized; `bos`: begin with BOS where the model's texts do."""
        data = text.encode()
        return listed("tokenize", self._handle, data, len(data), special * 1 + bos * 2)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Text. `special`: control tokens are shown."""
        given, length = (c_int32 * len(ids))(*ids), c_size_t()
        call("detokenize", self._handle, given, len(ids), int(special), None, 0, byref(length))
        text = ctypes.create_string_buffer(max(length.value, 1))
        call("detokenize", self._handle, given, len(ids), int(special), text, length.value, byref(length))
        return text.raw[:length.value].decode()

    def session(self, *, n_ctx: int = 0, threads: int = 0) -> Session:
        """An empty session. n_ctx 0: the model's trained length, at most 4096."""
        return Session(self, n_ctx=n_ctx, threads=threads)

    def generate(self, prompt: str, **options: Any) -> Iterator[str]:
        """Pieces of the text that continues a prompt; options as Session.generate's."""
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


class Session:
    """A timeline of tokens over a model. It belongs to one thread at a time."""

    def __init__(self, model: Model, *, n_ctx: int = 0, threads: int = 0) -> None:
        self._handle: c_void_p | None = None
        self.model = model  # which must live longer
        given = params(_library.SessionParams, "session")
        given.n_ctx, given.threads = n_ctx, threads
        self._handle = make("session_new", model._handle, byref(given))
        self._n_vocab = model.info["n_vocab"]

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.setun_session_free(self._handle)

    def eval(self, ids: Sequence[int]) -> None:
        """Appends tokens and computes what follows them."""
        call("session_eval", self._handle, (c_int32 * len(ids))(*ids), len(ids), None)

    def hidden(self, ids: Sequence[int], layer: int) -> numpy.ndarray:
        """Appends tokens and gives their hidden states [n, n_embd]: layer 0 is the input of block 0, l + 1 its output."""
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
        """Those after the last token, [n_vocab], read-only and not copied: the session's next call overwrites them."""
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
        """Tokens so far."""
        return lib.setun_session_position(self._handle)

    @property
    def n_ctx(self) -> int:
        """Tokens that fit."""
        return lib.setun_session_context(self._handle)

    @property
    def tokens(self) -> list[int]:
        return lib.setun_session_tokens(self._handle)[:self.position] if self.position else []

    def truncate(self, n: int) -> None:
        """Forgets all tokens from position n on."""
        call("session_truncate", self._handle, n)

    def save(self) -> bytes:
        """Tokens and KV cache; logits are not among them."""
        length = c_size_t()
        call("session_save_memory", self._handle, None, 0, byref(length))
        data = ctypes.create_string_buffer(length.value)
        call("session_save_memory", self._handle, data, length.value, byref(length))
        return data.raw

    def load(self, data: bytes) -> None:
        """What save gave, of the same model."""
        call("session_load_memory", self._handle, data, len(data))

    def generate(self, *, max_tokens: int = 0, stop: Sequence[str] = (), continues: bool = True,
                 **sampling: float) -> Iterator[str]:
        """Pieces of new text, until a token that ends it, a stop text (never shown), max_tokens (0: no limit) or a full
        context. `sampling`: members of setun_sampler_params, such as temperature, top_k or seed; else the model's own."""
        given = _library.SamplerParams(size=ctypes.sizeof(_library.SamplerParams))
        call("model_get_sampler_params", self.model._handle, byref(given))
        for name, value in sampling.items():
            if name in ("size", "model") or not hasattr(given, name):
                raise TypeError(f"{name} is not an option of sampling")
            setattr(given, name, value)
        return self._pieces(given, max_tokens, [text.encode() for text in stop], continues)

    def _pieces(self, given: Any, max_tokens: int, stop: list[bytes], continues: bool) -> Iterator[str]:
        sampler = decoder = stops = None
        try:
            sampler = make("sampler_new", byref(given))
            decoder = make("decoder_new", self.model._handle, 2 if continues else 0)
            stops = make("stops_new", (c_char_p * len(stop))(*stop), len(stop))
            for known in self.tokens:
                call("sampler_accept", sampler, known)
            drawn, ended = c_int32(), False
            count = 0
            while not ended and (not max_tokens or count < max_tokens):
                call("sampler_sample", sampler, lib.setun_session_logits(self._handle), self._n_vocab, byref(drawn))
                count += 1
                if lib.setun_token_is_end(self.model._handle, drawn):
                    break
                call("sampler_accept", sampler, drawn)
                piece, ended = self._shown(stops, text_of("decoder_push", decoder, drawn))
                if piece:
                    yield piece
                if ended or self.position == self.n_ctx:
                    break
                self.eval([drawn.value])
            if not ended:
                piece, ended = self._shown(stops, text_of("decoder_finish", decoder))
                piece += "" if ended else text_of("stops_finish", stops)
                if piece:
                    yield piece
        finally:
            lib.setun_stops_free(stops)
            lib.setun_decoder_free(decoder)
            lib.setun_sampler_free(sampler)

    @staticmethod
    def _shown(stops: Any, piece: str) -> tuple[str, bool]:
        """What of a piece is certain not to belong to a stop text, and whether one was found."""
        data, text, length, found = piece.encode(), c_void_p(), c_size_t(), c_bool()
        call("stops_push", stops, data, len(data), byref(text), byref(length), byref(found))
        return (ctypes.string_at(text, length.value).decode() if length.value else ""), found.value
