"""What of an answer waits: pieces in the order in which they came, until nothing can take them back.

A piece that is clear in part is split, unless the answer is read in whole tokens: then what came of one token leaves
together, or not at all. What a repair takes out of the text (``drops`` of the checker) never leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from guard.constraint.contract import Checker
from guard.delivered import Delivered
from guard.enforce import Salvage
from guard.events import GuardEvent, Release, TextDelta, ToolRelease
from guard.watch import Watcher

Piece = TextDelta | ToolRelease


class Channel:
    """``fed``: characters that have come on it. ``waits``: nothing of it may leave yet, whatever it is."""

    __slots__ = ("checker", "fed", "panel", "waits")

    def __init__(self, panel: Watcher, checker: Checker | None) -> None:
        self.panel = panel
        self.checker = checker
        self.fed = 0
        self.waits = False

    def clear(self) -> int:
        """The offset up to which nothing can be taken back."""
        if self.waits:
            return 0
        doubt = self.panel.doubt
        if self.checker is not None and self.checker.safe < doubt:
            return self.checker.safe
        return doubt


class Holding:
    """The queue of one attempt, ``pieces``. What leaves is noted in ``delivered``. ``whole``: by whole tokens; what is
    added is then of token ``group``."""

    __slots__ = ("_choice", "_constrained", "_watched", "delivered", "group", "pieces", "whole")

    def __init__(self, choice: int, delivered: Delivered, *, watched: bool, constrained: bool) -> None:
        self._choice = choice
        self.delivered = delivered
        self._watched = watched
        self._constrained = constrained
        self.pieces: deque[tuple[Channel, int, Piece, int]] = deque()
        self.whole = False
        self.group = 0

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def __iter__(self) -> Iterator[tuple[Channel, int, Piece]]:
        """(channel, its offset, piece) in the order of arrival."""
        return ((channel, start, piece) for channel, start, piece, _ in self.pieces)

    @property
    def chars(self) -> int:
        return sum(_length(piece) for _, _, piece in self)

    def first_of(self, channel: Channel) -> int:
        """How much of a channel has left: the offset of what waits first."""
        return next((start for owner, start, _ in self if owner is channel), channel.fed)

    @property
    def front(self) -> int | None:
        """The token of which something waits first."""
        return self.pieces[0][3] if self.pieces else None

    def salvage(self, channel: Channel, limit: int) -> Salvage | None:
        """What of a channel may stand up to ``limit``; None where others wait as well."""
        left = self.first_of(channel)
        drops = channel.checker.drops if channel.checker is not None else ()
        held: list[TextDelta] = []
        refused: TextDelta | None = None
        for owner, start, piece in self:
            if owner is not channel or not isinstance(piece, TextDelta):
                return None
            if start + len(piece.text) > limit:
                piece, rest = split(piece, max(0, limit - start))
                refused = refused or rest
            if start < limit:
                text = without(piece.text, start, drops)
                if text != piece.text:
                    piece = TextDelta(piece.choice, piece.channel, text, count=piece.count)
                held.append(piece)
        taken_back = len(without("x" * max(0, left - limit), limit, drops))
        return Salvage(held, taken_back, refused)

    def add(self, channel: Channel, start: int, piece: Piece) -> None:
        self.pieces.append((channel, start, piece, self.group))

    def leave(
        self,
        out: list[GuardEvent],
        *,
        condemned: Channel | None = None,
        onset: int = 0,
        final: bool = False,
        until: int | None = None,
    ) -> None:
        """Release from the front what is clear: before the ``onset`` on the ``condemned`` channel; all that is not
        condemned, when it is ``final``. ``until``: the token that was being read when the answer was condemned."""
        pieces = self.pieces
        if self.whole:
            while pieces and (until is None or pieces[0][3] < until) and self._is_clear(condemned, onset, final):
                group = pieces[0][3]
                while pieces and pieces[0][3] == group:
                    self._release(*pieces.popleft()[:3], out)
            return
        while pieces:
            channel, start, piece, group = pieces[0]
            end = start + _length(piece)
            clear = end if final else self._clear(channel, end)
            if channel is condemned:
                clear = min(clear, onset)
            if clear >= end:
                pieces.popleft()
                self._release(channel, start, piece, out)
                continue
            if clear > start:
                first, rest = split(piece, clear - start)
                pieces[0] = (channel, clear, rest, group)
                self._release(channel, start, first, out)
            return

    def _is_clear(self, condemned: Channel | None, onset: int, final: bool) -> bool:
        """Whether all that came of the first token is."""
        group = self.pieces[0][3]
        for channel, start, piece, other in self.pieces:
            if other != group:
                break
            end = start + _length(piece)
            clear = end if final else self._clear(channel, end)
            if end > (min(clear, onset) if channel is condemned else clear):
                return False
        return True

    def _clear(self, channel: Channel, end: int) -> int:
        """Detectors that only observe hold nothing, and so do constraints."""
        if channel.waits:
            return 0
        checker = channel.checker if self._constrained else None
        clear = channel.panel.doubt if self._watched else end
        return min(clear, checker.safe) if checker is not None else clear

    def _release(self, channel: Channel, start: int, piece: Piece, out: list[GuardEvent]) -> None:
        if isinstance(piece, ToolRelease):
            self.delivered.add_call(piece)
            out.append(piece)
            return
        text = piece.text
        if channel.checker is not None and channel.checker.drops:
            text = without(text, start, channel.checker.drops)
        if text or piece.token_ids or piece.logprobs:
            release = Release(self._choice, piece.channel, text, piece.token_ids, piece.logprobs, piece.count)
            self.delivered.add(release)
            out.append(release)


def _length(piece: Piece) -> int:
    return len(piece.text) if isinstance(piece, TextDelta) else len(piece.arguments)


def split(piece: Piece, at: int) -> tuple[Any, Any]:
    """Two pieces of the same kind. The ids and logprobs of a piece stay with its rest: a token has arrived when its
    last character has."""
    if isinstance(piece, TextDelta):
        count = share(piece, at)
        text = piece.text
        return (
            TextDelta(piece.choice, piece.channel, text[:at], count=count),
            TextDelta(piece.choice, piece.channel, text[at:], piece.token_ids, piece.logprobs, piece.count - count),
        )
    return (
        ToolRelease(piece.choice, piece.index, piece.arguments[:at], piece.id, piece.name),
        ToolRelease(piece.choice, piece.index, piece.arguments[at:]),
    )


def share(piece: TextDelta | Release, at: int) -> int:
    """Of how many tokens the first ``at`` characters of a piece are, that which is cut in two included."""
    return min(piece.count, -(-piece.count * at // len(piece.text))) if at else 0


def untold(piece: ToolRelease, start: int, told: Sequence[int]) -> tuple[int, ToolRelease] | None:
    """What of a piece at offset ``start`` of its call's arguments the caller does not hold yet, and its offset.
    ``told``: how much he holds of each call's, all of which is said again."""
    if piece.index >= len(told):
        return start, piece
    held = max(0, told[piece.index] - start)
    _, rest = split(piece, held)
    return (start + held, rest) if rest.arguments else None


def without(text: str, start: int, drops: Sequence[tuple[int, int]]) -> str:
    """``text``, which begins at offset ``start``, less the dropped ranges."""
    kept: list[str] = []
    at = 0
    for low, high in drops:
        low, high = max(low - start, at), min(high - start, len(text))
        if low < high:
            kept.append(text[at:low])
            at = high
    kept.append(text[at:])
    return "".join(kept)
