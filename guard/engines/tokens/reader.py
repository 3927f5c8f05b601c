"""Token ids into text, one delta a token: what StreamGuard reads when an engine is spoken with in tokens. Pure.

Rules.

- The text is the guard's own reading of the ids; an engine that sends text without ids has broken what was agreed.
- A delta holds the text of one token, or of the few that make up one character: no token is ever split, and how the
  engine grouped them makes no difference.
- A token that ends the answer has no text. Other control tokens do: they are markup that the guard reads, or a leak.
  One that comes last before the finish reason ``stop`` was the end, whatever its name.
- A stop string ends the answer before it, also where it began in what was said before this stream. An engine that goes
  on behind it is not listened to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from guard.engines.token_text import TokenText
from guard.engines.tokens.vocabulary import Vocabulary
from guard.events import CONTENT, Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage

Entry = dict[str, Any]
Item = tuple[int, Entry | None]


class Wire(Protocol):
    """OpenAIReader or NativeReader."""

    done: bool
    ended: bool

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def end(self, clean: bool = True) -> list[StreamEvent]: ...

    def whole(self, body: bytes) -> list[StreamEvent]: ...


class TokenReader:
    """Reads one answer. ``sent``: how many ids were; ``before``: the end of what was said before this stream,
    where a stop string may have begun; ``top``: how many alternatives a caller asked for."""

    def __init__(
        self,
        wire: Wire,
        vocabulary: Vocabulary,
        sent: int,
        stops: Sequence[str] = (),
        *,
        before: str = "",
        top: int = 0,
    ) -> None:
        self._wire = wire
        self._vocabulary = vocabulary
        self._sent = sent
        self._text: TokenText[Item] = TokenText(stops, before, whole=True)
        self._top = top
        self._control: Item | None = None  # the last token, where it may turn out to have been the end
        self._made = 0
        self._over = False
        self._told = False

    @property
    def done(self) -> bool:
        return self._wire.done or self._over

    @property
    def ended(self) -> bool:
        return self._wire.ended or self._over

    def feed(self, data: bytes) -> list[StreamEvent]:
        return self._read(self._wire.feed(data))

    def end(self, clean: bool = True) -> list[StreamEvent]:
        return self._read(self._wire.end(clean))

    def whole(self, body: bytes) -> list[StreamEvent]:
        return self._read(self._wire.whole(body))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _read(self, events: list[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for event in events:
            if self._over:
                break
            kind = type(event)
            if kind is TextDelta:
                self._tokens(event, out)  # type: ignore[arg-type]
            elif kind is FinishReason:
                self._finish(event, out)  # type: ignore[arg-type]
            elif kind is Opened or kind is Usage or kind is Done or kind is Closed or kind is Fault:
                out.append(event)
            else:
                self._broken("the engine read the answer itself, although it was asked for tokens", out)
        return out

    def _tokens(self, delta: TextDelta, out: list[StreamEvent]) -> None:
        ids = delta.token_ids
        if not ids:
            if delta.text:
                self._broken("the engine sent text without its token ids", out)
            return None
        entries = delta.logprobs
        matching = entries is not None and len(entries) == len(ids)
        for at, token in enumerate(ids):
            if self._text.matched is not None:
                return self._stopped(out)
            self._made += 1
            self._flush_control(out)
            item = (token, self._entry(token, entries[at]) if matching and entries else None)
            if token in self._vocabulary.special and token not in self._vocabulary.ends:
                self._control = item
            else:
                self._say(item, self._vocabulary.data(token), out)
        return None

    def _say(self, item: Item, data: bytes, out: list[StreamEvent]) -> None:
        text, items = self._text.feed(data, item)
        if text or items:
            out.append(_delta(text, items))

    def _flush_control(self, out: list[StreamEvent]) -> None:
        if self._control is not None:
            item, self._control = self._control, None
            self._say(item, self._vocabulary.data(item[0]), out)

    def _finish(self, event: FinishReason, out: list[StreamEvent]) -> None:
        if self._told:
            return
        self._told = True
        if self._control is not None and event.reason == "stop" and not isinstance(event.matched_stop, str):
            item, self._control = self._control, None
            self._say(item, b"", out)
        self._flush_control(out)
        text, items = self._text.finish()
        if text or items:
            out.append(_delta(text, items))
        if self._text.matched is not None:
            event = FinishReason(event.choice, "stop", self._text.matched)
        out.append(event)

    def _stopped(self, out: list[StreamEvent]) -> None:
        """The engine goes on behind a stop string that it did not see."""
        self._finish(FinishReason(0, "stop"), out)
        out += [Usage(self._sent, self._made, self._sent + self._made), Done(), Closed(clean=True)]
        self._over = True

    def _broken(self, message: str, out: list[StreamEvent]) -> None:
        out.append(Fault("protocol", message))
        self._over = True

    def _entry(self, token: int, entry: Entry) -> Entry:
        """OpenAI's form, whatever the engine left out of it."""
        told = self._named(token, entry)
        others = entry.get("top_logprobs")
        said = [other for other in others if isinstance(other, dict)] if isinstance(others, list) else []
        told["top_logprobs"] = [self._named(other.get("id"), other) for other in said[: self._top]]
        return told

    def _named(self, token: Any, entry: Entry) -> Entry:
        logprob = entry.get("logprob")
        number = float(logprob) if isinstance(logprob, float | int) and not isinstance(logprob, bool) else math.nan
        if not isinstance(token, int) or not 0 <= token < len(self._vocabulary):
            return {"token": entry.get("token") or "", "logprob": number, "bytes": entry.get("bytes")}
        data = self._vocabulary.pieces[token]
        return {"id": token, "token": data.decode("utf-8", "replace"), "logprob": number, "bytes": list(data)}


def _delta(text: str, items: Sequence[Item]) -> TextDelta:
    entries = [entry for _, entry in items if entry is not None]
    return TextDelta(0, CONTENT, text, tuple(token for token, _ in items), entries or None)
