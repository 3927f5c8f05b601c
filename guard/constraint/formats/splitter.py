"""Splits the reasoning off an answer whose engine left it in the content, while it streams.

The contract: feed the deltas of the content channel in order; what comes back is the same text on two channels,
``reasoning`` and ``content``, without the markup. Once ``settled`` is true everything passes unchanged, and the
splitter may be dropped. ``lead`` is then the text as it was written up to where the content begins: with the content
behind it, it is what the engine itself has said, for a resume by text. Token ids and log probabilities go with the
last piece of what came with them, those of the markup with the piece behind it: none is lost.

Pure; any split of the same text gives the same text on both channels. What counts as reasoning is in reasoning.py.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

from detectors.finding import Finding
from detectors.quoting import PAIRS
from guard.constraint.formats.contract import Text
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.reasoning import Block, Form
from guard.events import CONTENT, REASONING, Repair, TextDelta

Out = TextDelta | Finding | Repair
Reading = Generator[None, None, None]

MAX_HELD: Final = 200_000
"""Characters that may wait for a closing marker; longer text without one is reasoning: no answer that hides its
reasoning is that long."""

_SPACES: Final = 64
"""How much white space beside a marker may wait for it, and belongs to it."""
_WORDS: Final = (" token", " tag", " marker", " symbol", " delimiter")
_HARMONY: Final = ("<|channel|>", "<|start|>assistant")
_K3: Final = "<|open|>"
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_HEAD_CHARS: Final = 300
_ENDS: Final = ("<|end|>", "<|return|>", "<|call|>", "<|start|>")


class ReasoningSplitter:
    """``told``: the format was configured, so splitting is nothing to report; else it is a repair. ``inside``: the
    answer goes on within its reasoning, which an earlier attempt has begun."""

    def __init__(self, form: Form, *, told: bool, inside: bool = False) -> None:
        self.settled = False
        self.lead = ""
        self._form = form
        self._told = told
        self._inside = inside
        self._cursor = Cursor()
        self._written: list[str] | None = []
        self._last = ""
        self._calm_until = ""
        self._resting = False
        self._ids: tuple[int, ...] | None = None
        self._logprobs: list[dict[str, Any]] | None = None
        self._choice = 0
        self._found = False
        self._held: list[str] = []
        self._holding = False
        self._reading = self._read()
        next(self._reading)

    def feed(self, delta: TextDelta) -> list[Out]:
        if self.settled:
            return [delta]
        text = delta.text
        if self._written is not None:
            self._written.append(text)
        if self._calm_until and self._ids is None and self._logprobs is None and self._is_plain(text):
            self._last = text[-1]
            return [TextDelta(delta.choice, REASONING, text, delta.token_ids, delta.logprobs, delta.count)]
        self._choice = delta.choice
        if delta.token_ids is not None:
            self._ids = (self._ids or ()) + delta.token_ids
        if delta.logprobs:
            self._logprobs = (self._logprobs or []) + delta.logprobs
        self._cursor.push(text)
        return self._go_on()

    def finish(self) -> list[Out]:
        """The text has ended: what waited is what it was taken for."""
        if self.settled:
            return []
        self._cursor.ended = True
        out = self._go_on()
        if self._ids or self._logprobs:
            out.append(TextDelta(self._choice, CONTENT, "", self._ids, self._logprobs))
            self._ids = self._logprobs = None
        self.settled = True
        return out

    def _is_plain(self, text: str) -> bool:
        """Whether reasoning goes on with text that waits for nothing, and nothing waits before it."""
        return bool(text) and self._calm_until not in text and not text[-1].isspace()

    def _go_on(self) -> list[Out]:
        c = self._cursor
        self._calm_until = ""
        next(self._reading, None)
        out: list[Out] = []
        if self._found and not self._told:
            self._told = True
            message = "the reasoning stood in the content with its markup, and was split off"
            out.append(Finding("leak.reasoning_tag", "warn", message, CONTENT, 0, 0))
            out.append(Repair(self._choice, "leak.reasoning_tag", message))
        none_yet = () if self._ids is not None else None
        for piece in c.out:
            assert isinstance(piece, Text)
            channel = piece.channel or CONTENT
            last = out[-1] if out else None
            if isinstance(last, TextDelta) and last.channel == channel:
                last.text += piece.text
            else:
                out.append(TextDelta(self._choice, channel, piece.text, none_yet))
        c.out.clear()
        waits = c.at < len(c.text) or self._holding
        if out and isinstance(last := out[-1], TextDelta) and not waits:
            last.token_ids, last.logprobs = self._ids, self._logprobs
            self._ids = self._logprobs = None
        self.settled = self._resting and not self._ids and not self._logprobs
        return out

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> Reading:
        yield
        c = self._cursor
        if self._inside:
            if self._form.blocks:
                yield from self._block(self._form.blocks[0])
            else:
                yield from c.until(_ENDS if "harmony" in self._form.framed else ("<|close|>",), self._think)
        else:
            lead = yield from self._space()
            opening = yield from c.follows(*self._openings())
            if opening and not self._form.asks_about(opening) and not (yield from self._is_spoken_of(0, len(opening))):
                yield from self._opened_by(opening)
            elif self._form.opened != "no":
                yield from self._opened_by_prompt(lead)
            else:
                c.say(lead)
        self._answer_begins()
        self._resting = True
        while True:
            c.say(c.text[c.at :])
            c.at = len(c.text)
            yield

    def _openings(self) -> tuple[str, ...]:
        form = self._form
        out = [block.opening for block in form.blocks]
        out += [wrap[0] for block in form.blocks for wrap in block.wraps if wrap[0].startswith("<|")]
        if "harmony" in form.framed:
            out += _HARMONY
        if "kimi_k3" in form.framed:
            out.append(_K3)
        return tuple(out)

    def _opened_by(self, opening: str) -> Reading:
        c = self._cursor
        if opening in _HARMONY:
            yield from self._harmony()
        elif opening == _K3:
            yield from self._kimi_k3_blocks()
        for block in self._form.blocks:
            if block.opening == opening:
                c.at += len(opening)
                blank = yield from self._space()
                if (yield from c.peek()):
                    yield from self._block(block)
                else:
                    c.say(opening + blank)  # nothing but the marker: it may be the answer
                return
            if opening in dict(block.wraps):
                self._found = True
                yield from self._answer(block)
                return

    def _opened_by_prompt(self, lead: str) -> Reading:
        form = self._form
        if not form.blocks:
            yield from self._kimi_k3_opened(lead)
        elif form.opened == "yes":
            yield from self._block(form.blocks[0])
        else:
            self._held = [lead]
            self._holding = True
            closed = yield from self._up_to(form.blocks[0].closing, REASONING)
            if not self._holding or closed:
                self._let_go(REASONING)
                yield from self._answer(form.blocks[0])
            else:
                self._let_go(CONTENT)

    def _let_go(self, channel: str) -> None:
        """What was held turned out to be text of that channel."""
        held, self._held = "".join(self._held), []
        self._holding = False
        if channel == REASONING:
            self._found = True
            held = held.lstrip()
        self._say(channel, held)

    def _say(self, channel: str, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        if self._holding:
            self._held.append(text)
            return
        c = self._cursor
        c.channel = REASONING if channel == REASONING else ""
        c.say(text)
        c.channel = ""

    def _think(self, text: str) -> None:
        self._say(REASONING, text)

    def _block(self, block: Block) -> Reading:
        """From behind the opening marker on."""
        self._found = True
        if (yield from self._up_to(block.closing, REASONING)):
            yield from self._answer(block)

    def _up_to(self, closing: str, channel: str) -> Generator[None, None, bool]:
        """Passes the text before the closing marker on, and reads the marker and white space before it. False if the
        text ended without one."""
        c = self._cursor
        passed = 0
        while True:
            start = c.text.find(closing, c.at)
            if start < 0:
                if c.ended:
                    self._pass(channel, len(c.text))
                    return False
                end = len(c.text) - _begun(c.text, c.at, closing)
                end -= _blank_before(c.text, c.at, end)
                passed += end - c.at
                self._pass(channel, end)
                if self._holding and passed > MAX_HELD:
                    self._let_go(REASONING)
                if channel == REASONING and not self._holding and c.at == len(c.text):
                    self._calm_until = closing[0]
                yield
                continue
            blank = _blank_before(c.text, c.at, start)
            self._pass(channel, start - blank)
            before = c.text[start - 1] if blank else self._last
            if before != "\n" and (yield from self._is_spoken_of(blank, len(closing), before)):
                self._pass(channel, c.at + blank + len(closing))
                continue
            c.at += blank + len(closing)
            return True

    def _pass(self, channel: str, end: int) -> None:
        c = self._cursor
        text = c.text[c.at : end]
        c.at = max(c.at, end)
        self._say(channel, text)

    def _answer(self, block: Block) -> Reading:
        """What is between the closing marker and the answer, and the answer where markers are put round it."""
        c = self._cursor
        yield from self._space()
        wraps = dict(block.wraps)
        opened = yield from c.take(*wraps)
        if opened:
            yield from self._space()
        self._answer_begins()
        if opened and (yield from self._up_to(wraps[opened], CONTENT)):
            yield from self._space()

    def _answer_begins(self) -> None:
        if self._written is not None:
            c = self._cursor
            written, self._written = "".join(self._written), None
            self.lead = written[: len(written) - (len(c.text) - c.at)] if self._found else ""

    # --- small questions ---------------------------------------------------------------------------------------------

    def _space(self) -> Generator[None, None, str]:
        """Reads white space, as much as may stand beside a marker."""
        c = self._cursor
        out = ""
        while len(out) < _SPACES:
            yield from c.need(1)
            char = c.text[c.at : c.at + 1]
            if not char or not char.isspace():
                break
            out += char
            c.at += 1
        return out

    def _is_spoken_of(self, ahead: int, length: int, before: str = "") -> Generator[None, None, bool]:
        """Whether the marker of that length, so far ahead, is being mentioned: it stands between quotation marks, or is
        called a tag."""
        c = self._cursor
        closing = "`" if before == "`" else PAIRS.get(before, "")
        while True:
            start = c.at + ahead + length
            behind = c.text[start : start + _LONGEST_WORD]
            if behind.startswith(_WORDS) or (closing and behind.startswith(closing)):
                return True
            if c.ended or (behind and not any(word.startswith(behind) for word in _WORDS)):
                return False
            yield

    # --- answers whose parts all have headers ------------------------------------------------------------------------

    def _harmony(self) -> Reading:
        """Messages of gpt-oss. Those to a tool are left as they are, for the parser of calls."""
        c = self._cursor
        while (yield from c.follows(*_HARMONY, skip_space=True)):
            header, stop = yield from c.collect(("<|message|>",), _HEAD_CHARS)
            named = _CHANNEL.search(header)
            if not stop or " to=" in header:
                self._answer_begins()
                c.say(header.strip().removeprefix("<|start|>assistant") + stop if stop else header)
                if not stop:
                    return
                stop = yield from c.until(_ENDS, c.say)
                if stop != "<|start|>":
                    c.say(stop)
            elif named is not None and named[1] == "analysis":
                self._found = True
                stop = yield from c.until(_ENDS, self._think)
            else:
                self._found = True
                self._answer_begins()
                stop = yield from c.until(_ENDS, c.say)
            if stop == "<|start|>":
                c.at -= len(stop)

    def _kimi_k3_opened(self, lead: str) -> Reading:
        """The prompt has opened a block, whose closing marker says which it was."""
        c = self._cursor
        if self._form.opened == "yes":
            self._found = True
            yield from c.until(("<|close|>",), self._think)
        else:
            self._held, self._holding = [lead], True
            yield from c.until(("<|close|>",), self._think)
            name = yield from c.follows("think", "response")
            self._let_go(REASONING if name == "think" else CONTENT)
        yield from c.collect(("<|sep|>",), _HEAD_CHARS)
        yield from self._kimi_k3_blocks()

    def _kimi_k3_blocks(self) -> Reading:
        """Blocks of Kimi K3. Those of tools are left as they are, for the parser of calls."""
        c = self._cursor
        while token := (yield from c.take("<|open|>", "<|close|>", skip_space=True)):
            name, stop = yield from c.collect(("<|sep|>",), _HEAD_CHARS)
            if not stop or (token == "<|open|>" and name not in ("think", "response")):
                self._answer_begins()
                c.say(token + name + stop)
                return
            self._found = True
            if token == "<|open|>":
                if name == "response":
                    self._answer_begins()
                stop = yield from c.until(("<|close|>", "<|open|>"), self._think if name == "think" else c.say)
                c.at -= len(stop)


_LONGEST_WORD: Final = max(map(len, _WORDS))


def _begun(text: str, at: int, marker: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``marker``."""
    for size in range(min(len(marker) - 1, len(text) - at), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


def _blank_before(text: str, at: int, end: int) -> int:
    """How much white space before ``end`` may belong to a marker there."""
    start = max(at, end - _SPACES)
    return end - start - len(text[start:end].rstrip())
