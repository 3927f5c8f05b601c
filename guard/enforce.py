"""Holding an engine to a constraint from outside: what of an answer that broke it may stand, and what it goes on with.
Pure.

The rules:

- Only two kinds of text are put into an answer: what the constraint forces, and what the engine itself would have said
  next (the tokens that it named beside the one it chose). A part of such a token counts as proposed too.
- White space leads nowhere, so it is taken only when nothing else is proposed; markup of chat templates never is.
- Where neither helps, the engine is asked again: with another seed, then at a higher temperature.
- An answer that was whole before it went wrong ends there, because the constraint allows nothing else.
- A number that the engine had ended with what it said next has ended, although more digits would be allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from detectors.finding import Finding
from detectors.markup import find
from guard.constraint.contract import Checker
from guard.events import CONTENT, GuardEvent, Release, TextDelta
from guard.request import Sampling

ALTERNATIVES: Final = 20
"""How many of the likeliest tokens an engine is asked for at each place: the most that engines give by default."""

DEEP: Final = 200
"""How many where those had none that was allowed. Engines with a limit of their own refuse it, and are asked for fewer.
"""

FAMILIES: Final = frozenset({"json", "schema", "regex", "grammar", "constraint"})
"""Of findings about the content that this can help with. A call has a way of its own (calling.py)."""

GREEDY: Final = 1e-3
HOTTEST: Final = 1.5
WARMER: Final = 0.3

Origin = Literal["forced", "proposed", "whole", "again"]


class Salvage(Struct):
    """What an attempt leaves behind. ``held``: pieces that were not delivered and may stand; ``taken_back``: how many
    characters of what was delivered may not; ``refused``: what the engine said at the place where the answer can stand
    no longer, None where it ended there or where that is not known any more."""

    held: list[TextDelta]
    taken_back: int
    refused: TextDelta | None


class Mend(Struct):
    """``added`` is to be put behind the text that may stand. ``whole``: the answer ends with it."""

    origin: Origin
    added: str = ""
    whole: bool = False


class Seed(Struct):
    """What an attempt begins with behind what was delivered: pieces that an engine said, and those that were added."""

    held: list[TextDelta]
    added: list[TextDelta]
    mend: Mend

    @property
    def pieces(self) -> list[TextDelta]:
        return [*self.held, *self.added]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(map(token_count, self.pieces))

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """None when a piece came without them."""
        ids: list[int] = []
        for piece in self.pieces:
            if piece.token_ids is None:
                return None
            ids.extend(piece.token_ids)
        return tuple(ids)


def spoken_parts(pieces: Sequence[TextDelta], before: Sequence[Sequence[int] | str]) -> tuple[Sequence[int] | str, ...]:
    """``before`` and the pieces behind it, as runs of ids and of text (guard/spoken.py)."""
    parts = list(before)
    for piece in pieces:
        last = parts[-1] if parts else None
        if piece.token_ids is None:
            parts[-1:] = [last + piece.text] if isinstance(last, str) else [*parts[-1:], piece.text]
        elif last is None or isinstance(last, str):
            parts.append(piece.token_ids)
        else:
            parts[-1] = [*last, *piece.token_ids]
    return tuple(parts)


def token_count(piece: TextDelta) -> int:
    """As the guard counts it: exact where the engine named its tokens, else one a delta of its own."""
    if piece.token_ids is not None:
        return len(piece.token_ids)
    return len(piece.logprobs) if piece.logprobs else piece.count if piece.text else 0


def enforceable(code: str) -> bool:
    return code.partition(".")[0] in FAMILIES


def mend(
    text: str,
    new_checker: Callable[[], Checker],
    refused: TextDelta | None,
    tried: Collection[str],
    *,
    document: bool,
    blanks: bool = True,
) -> Mend:
    """How an answer goes on that stands up to ``text``. ``tried`` was put there before and led nowhere; ``document``:
    it is JSON, so that white space alone may follow what is whole; ``blanks``: white space is better than nothing."""
    if is_whole(text, new_checker):
        return Mend("whole", whole=True)
    added = _forced(text, new_checker)
    if not added and document and text[-1:].isdigit() and _ends_number(refused):
        added = _forced(text + " ", new_checker)
    origin: Origin = "forced"
    if not added or added in tried:
        origin = "proposed"
        added = _proposed(text, new_checker, refused, tried)
        if not added or not (blanks or added.strip()):
            return Mend("again")
        added += _forced(text + added, new_checker)
    ends = document and not added[-1:].isdigit() and is_whole(text + added, new_checker)
    return Mend(origin, added, ends)


def is_whole(text: str, new_checker: Callable[[], Checker]) -> bool:
    checker = new_checker()
    return not any(found.severity == "error" for found in (*checker.feed(text), *checker.finish(truncated=False)))


def proposals(refused: TextDelta) -> Iterator[str]:
    """What the engine named beside the token with which ``refused`` begins, the likeliest first: as text from there on.
    Nothing where the tokens and the text do not fit together."""
    entries = refused.logprobs or []
    behind = sum(len(_token(entry)) for entry in entries) - len(refused.text)
    if behind < 0:  # a split piece keeps its tokens: the first began before it
        return
    for entry in entries:
        token = _token(entry)
        if len(token) <= behind:
            behind -= len(token)
            continue
        for other in sorted(entry.get("top_logprobs") or (), key=_likelihood, reverse=True):
            text = _token(other)
            if text == token or "\ufffd" in text or find(text) is not None:
                continue
            if text.startswith(token[:behind]):
                yield text[behind:]
            elif not token[:behind].strip():  # one more blank before it is no harm
                yield text
        return


def varied(sampling: Sampling, level: int) -> Sampling:
    """Other sampling for another try at the same place: from level 1 on another seed, from level 2 on a higher
    temperature. Greedy sampling has no use for a seed, so it gets the temperature at once."""
    if level < 1:
        return sampling
    greedy = sampling.temperature is not None and sampling.temperature < GREEDY
    seed = sampling.seed + level if sampling.seed is not None else level if greedy else None
    warmer = level if greedy else level - 1
    if not warmer:
        return msgspec.structs.replace(sampling, seed=seed)
    temperature = (1.0 if sampling.temperature is None else sampling.temperature) + WARMER * warmer
    temperature = max(min(temperature, HOTTEST), sampling.temperature or 0.0)
    return msgspec.structs.replace(sampling, seed=seed, temperature=temperature)


def finding_of(mended: Mend, at: int) -> Finding:
    """What goes on record: never the text itself."""
    count = len(mended.added)
    if mended.origin == "whole":
        message = "the answer was whole, and what followed was cut off"
    elif mended.origin == "forced":
        message = f"{count} characters were put there that the constraint forces"
    elif mended.origin == "proposed":
        message = f"{count} characters were put there that the engine had proposed beside what broke the constraint"
    else:
        message = "the engine was asked again from the last place that the constraint allows"
    evidence = {"origin": mended.origin, "characters": count}
    return Finding("constraint.enforced", "info", message, onset=at, detected_at=at + count, evidence=evidence)


def as_asked(events: list[GuardEvent], sampling: Sampling) -> None:
    """Leaves the log probabilities that the caller asked for, and takes out those that only the guard did."""
    for event in events:
        if isinstance(event, Release) and event.logprobs is not None:
            event.logprobs = _fewer(event.logprobs, sampling.top_logprobs or 0) if sampling.logprobs else None


def added_pieces(choice: int, text: str) -> list[TextDelta]:
    """In pieces of four characters: each counts as one token, and tokens are as long as that on average."""
    return [TextDelta(choice, CONTENT, text[at : at + 4]) for at in range(0, len(text), 4)]


# --- inside -----------------------------------------------------------------------------------------------------------


def _forced(text: str, new_checker: Callable[[], Checker]) -> str:
    checker = new_checker()
    broken = any(found.severity == "error" for found in checker.feed(text))
    return "" if broken else checker.forced()


def _ends_number(refused: TextDelta | None) -> bool:
    return refused is not None and refused.text[:1] in tuple(" \t\r\n,]}")


def _proposed(text: str, new_checker: Callable[[], Checker], refused: TextDelta | None, tried: Collection[str]) -> str:
    if refused is None:
        return ""
    parts: list[str] = []
    blank = ""
    for option in proposals(refused):
        checker = new_checker()
        found = checker.feed(text + option)
        stands = option
        if any(one.severity == "error" for one in found):
            stands = option[: max(0, checker.good - len(text))]
        if stands in tried or not stands or _leads_back(text, stands, new_checker):
            continue
        if not stands.strip():
            blank = blank or stands
        elif stands == option:
            return option
        else:
            parts.append(stands)
    return parts[0] if parts else blank


def _leads_back(text: str, option: str, new_checker: Callable[[], Checker]) -> bool:
    """To a key that the object has already. That is no error, but a model that comes back once comes back again."""
    found = new_checker().feed(text + option + '"')
    return any(one.code == "json.duplicate_key" and one.detected_at > len(text) for one in found)


def _fewer(entries: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    return [{**entry, "top_logprobs": (entry.get("top_logprobs") or [])[:most]} for entry in entries]


def _token(entry: dict[str, Any]) -> str:
    token = entry.get("token")
    return token if isinstance(token, str) else ""


def _likelihood(entry: dict[str, Any]) -> float:
    value = entry.get("logprob")
    return float(value) if isinstance(value, int | float) else float("-inf")
