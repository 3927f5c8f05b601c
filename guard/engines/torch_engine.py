"""A model in this process as an engine: the reference that other engines are held against, and the one whose answers
are constrained by masks over its logits.

The event loop never waits for it. Weights are loaded by a thread at the first use, prompts are cut into tokens and
masks are built by others, and answers are made by ``concurrency`` threads, one answer each at a time; ``waiting`` more
may wait, the rest are told that the engine is busy. Nothing here imports torch before that.

An address is ``torch:///path/of/a/model`` (a directory, or a GGUF file), with ``?dtype=`` (f32, bf16, f16), ``&mask=``
(xgrammar, outlines) and ``&device=`` where they are not float32, xgrammar and cpu.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from guard.engines.contract import Capabilities, EngineError, EngineRequest, Health
from guard.engines.dialect_constraints import named
from guard.engines.token_text import TokenText
from guard.events import CONTENT, Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage

if TYPE_CHECKING:
    from guard.engines.torch_mask import Mask
    from guard.engines.torch_model import Model, Score, Token
    from guard.request import GenerationRequest

DTYPES: Final = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
NEEDS: Final = ("torch", "transformers", "xgrammar")
KINDS: Final = {
    "xgrammar": frozenset({"json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"}),
    "outlines": frozenset({"json_schema", "regex", "choice"}),
}


class Address(NamedTuple):
    path: str
    dtype: str = "f32"
    masks: str = "xgrammar"
    device: str = "cpu"


def address(url: str) -> Address:
    """A torch:// address, taken apart. Raises ValueError, saying what is wrong with it."""
    parts = urlsplit(url)
    options = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
    if parts.scheme != "torch" or not parts.path.strip("/") or parts.netloc:
        raise ValueError("it must be torch:///path/of/a/model")
    unknown = sorted(options.keys() - {"dtype", "mask", "device"})
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not known there (dtype, mask and device are)")
    found = Address(
        unquote(parts.path),
        options.get("dtype", "f32"),
        options.get("mask", "xgrammar"),
        options.get("device", "cpu"),
    )
    if found.masks not in KINDS:
        raise ValueError(f"there are no masks called {found.masks!r} (there are: {', '.join(sorted(KINDS))})")
    if found.dtype not in DTYPES:
        raise ValueError(f"there is no dtype called {found.dtype!r} (there are: {', '.join(sorted(DTYPES))})")
    return found


class TorchStream:
    """One answer being made. Its last event is a Closed or a Fault."""

    def __init__(self, unenforced: tuple[str, ...], first: float, between: float) -> None:
        self.unenforced = unenforced
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[StreamEvent] | None] = asyncio.Queue()
        self._cancelled = threading.Event()
        self._ended = False
        self._first = first
        self._between = between
        self._begun = False

    def __aiter__(self) -> TorchStream:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        if self._ended:
            raise StopAsyncIteration
        patience = self._between if self._begun else self._first
        try:
            async with asyncio.timeout(patience):
                batch = await self._batches.get()
        except TimeoutError:
            self.stop()
            kind = "stall" if self._begun else "first_token_timeout"
            return [Fault(kind, f"the model said nothing for {patience:g} s")]
        if batch is None or self._ended:
            raise StopAsyncIteration
        self._begun = True
        self._ended = isinstance(batch[-1], Closed | Fault)
        return batch

    async def aclose(self) -> None:
        self.stop()
        self._batches.put_nowait(None)  # whoever reads wakes up

    def stop(self) -> None:
        self._ended = True
        self._cancelled.set()

    # --- from the thread that makes the answer -----------------------------------------------------------------------

    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def put(self, batch: list[StreamEvent]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        except RuntimeError:  # the loop is closed, so nobody reads
            self._cancelled.set()


class TorchEngine:
    """``load`` gives the model; it is called by a thread, once. ``masks`` says which back end it was given;
    ``constrains``: whether they are used. Timeouts are seconds, as for any engine."""

    def __init__(
        self,
        name: str,
        load: Callable[[], Model],
        *,
        model: str = "",
        masks: str = "xgrammar",
        concurrency: int = 1,
        waiting: int = 32,
        constrains: bool = True,
        first_token_timeout: float = 60.0,
        between_tokens_timeout: float = 20.0,
        total_timeout: float = 1800.0,
    ) -> None:
        self.name = name
        self.model = model
        self.capabilities = Capabilities(
            token_ids_in=True,
            token_ids_out=True,
            constraints=KINDS[masks] if constrains else frozenset(),
            resume="text",
            resume_constrained=constrains,
        )
        self._load = load
        self._loaded: asyncio.Task[Model] | None = None
        self._makers = ThreadPoolExecutor(concurrency, thread_name_prefix=f"torch-{name}")
        self._most = concurrency + waiting
        self._streams: set[TorchStream] = set()
        self._closed = False
        self._first = first_token_timeout
        self._between = between_tokens_timeout
        self._total = total_timeout

    @classmethod
    def at(cls, name: str, url: str, **more: Any) -> TorchEngine:
        """The engine at a torch:// address. Raises ValueError when the address says what is not known."""
        path, dtype, masks, device = address(url)

        def load_it() -> Model:
            from guard.engines.torch_model import load

            return load(path, dtype, masks, device)

        return cls(name, load_it, model=more.pop("model", "") or Path(path).name, masks=masks, **more)

    @property
    def busy(self) -> int:
        """How many answers are being made, or wait to be."""
        return len(self._streams)

    async def open(self, request: EngineRequest) -> TorchStream:
        """Raises EngineError (ResumeUnsupported among them)."""
        if self._closed:
            raise EngineError("connect", "the engine is closed on this side")
        if len(self._streams) >= self._most:
            raise EngineError("status", f"{len(self._streams)} answers are being made", status=503, retry_after=1.0)
        until = min(time.monotonic() + self._total, request.deadline or float("inf"))
        model = await self._ready()
        prompt = await asyncio.to_thread(model.prompt, request.request, request.prefix)
        mask, unenforced = await self._mask(model, request)
        if self._closed:
            raise EngineError("connect", "the engine is closed on this side")
        stream = TorchStream(unenforced, self._first, self._between)
        self._streams.add(stream)
        making = asyncio.get_running_loop().run_in_executor(
            self._makers, _make, _Job(model, self.model, request, prompt, mask, until), stream
        )
        making.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def score(
        self, request: GenerationRequest, said: Sequence[int] | str, wanted: Sequence[Sequence[int]] = ()
    ) -> tuple[list[int], list[int], list[Score]]:
        """The prompt's tokens, the answer's (of a text: as this model cuts it), and what this model would have said at
        each of them. Raises EngineError."""
        model = await self._ready()

        def work() -> tuple[list[int], list[int], list[Score]]:
            prompt = model.prompt(request, None)
            ids = model.encode(said) if isinstance(said, str) else list(said)
            return prompt, ids, model.scores(prompt, ids, wanted)

        return await asyncio.get_running_loop().run_in_executor(self._makers, work)

    async def health(self) -> Health:
        if self._closed:
            return Health(False, "closed")
        if self._loaded is not None and not self._loaded.done():
            return Health(False, "the model is being loaded")
        try:
            await self._ready()
        except EngineError as error:
            return Health(False, error.message)
        from guard.engines.torch_model import versions

        return Health(True, models=(self.model,), version=versions())

    async def aclose(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            await stream.aclose()
        self._makers.shutdown(wait=False, cancel_futures=True)

    async def _ready(self) -> Model:
        if self._loaded is None or (self._loaded.done() and self._loaded.exception() is not None):
            lacking = [package for package in NEEDS if importlib.util.find_spec(package) is None]
            if lacking:
                message = f"not installed: {', '.join(lacking)} (they come with outguard[torch])"
                raise EngineError("connect", message)
            self._loaded = asyncio.create_task(asyncio.to_thread(self._load))
        try:
            return await asyncio.shield(self._loaded)  # one caller's leaving must not end the loading for all
        except Exception as error:  # files, libraries and memory fail in many ways
            raise EngineError("connect", f"the model could not be loaded: {error}") from error

    async def _mask(self, model: Model, request: EngineRequest) -> tuple[Mask | None, tuple[str, ...]]:
        constraint = request.request.constraint
        if constraint is None:
            return None, ()
        if request.constrain and constraint.kind in self.capabilities.constraints:
            begun = request.prefix.content if request.prefix is not None else ""
            mask = await asyncio.to_thread(model.mask, constraint, begun)
            if mask is not None:
                return mask, model.dropped(constraint)
        return None, (named(constraint),)


class _Job:
    __slots__ = ("mask", "model", "name", "prompt", "request", "until")

    def __init__(
        self, model: Model, name: str, request: EngineRequest, prompt: list[int], mask: Mask | None, until: float
    ) -> None:
        self.model = model
        self.name = name
        self.request = request
        self.prompt = prompt
        self.mask = mask
        self.until = until


def _make(job: _Job, stream: TorchStream) -> None:
    """One whole answer, in a thread of its own. Raises nothing."""
    try:
        _say(job, stream)
    except Exception as error:
        stream.put([Fault("error_event", f"{type(error).__name__}: {error}", 500)])


def _say(job: _Job, stream: TorchStream) -> None:
    request, model = job.request.request, job.model
    sampling = request.sampling
    room = model.context - len(job.prompt)
    most = room if job.request.max_tokens is None else min(room, job.request.max_tokens)
    text: TokenText[Token] = TokenText(sampling.stop)
    ids = tuple(job.prompt) if request.return_token_ids else None
    opened: list[StreamEvent] = [Opened(request.id, job.name, ids)]
    made = 0
    reason = "length"
    ignore_eos = job.request.ignore_eos or request.extra.get("ignore_eos") is True
    tokens = model.tokens(job.prompt, sampling, job.mask, stream.cancelled, ignore_eos=ignore_eos)
    for token in tokens:
        made += 1
        if token.stops:
            reason = "stop"
            break
        piece, whole = text.feed(token.data, token)
        if piece or whole:
            stream.put([*opened, _delta(piece, whole)])
            opened = []
        if text.matched is not None:
            reason = "stop"
            break
        if made >= most:
            break
        if time.monotonic() >= job.until:
            stream.put([Fault("total_timeout", "the answer took longer than it may")])
            return
    if stream.cancelled():
        return
    piece, whole = text.finish()
    last = [*opened, _delta(piece, whole)] if piece or whole else opened
    last.append(FinishReason(0, reason, text.matched))
    last.append(Usage(len(job.prompt), made, len(job.prompt) + made))
    stream.put([*last, Done(), Closed(clean=True)])


def _delta(text: str, tokens: list[Token]) -> TextDelta:
    entries = [token.entry for token in tokens if token.entry is not None]
    return TextDelta(0, CONTENT, text, tuple(token.id for token in tokens), entries or None)
