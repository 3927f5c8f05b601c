"""All detectors of one channel behind one feed.

The panel's doubt is the smallest of its detectors'. Plain words mean something to the repetition detector alone while
the others are calm: those are fed the words later, joined, which is the same by the contract. A detector that raises is
taken out and recorded, and the answer goes on without it: a mistake here must not cost anybody an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detectors.contract import Detector
from detectors.empty import Facts
from detectors.encoding import Encoding
from detectors.finding import Finding
from detectors.numeric import Numeric
from detectors.policy import DEFAULT, Policy
from detectors.repetition import Repetition
from detectors.whitespace import Whitespace

_UNSEEN_CODES: Final = (
    *range(0x21), 0x7F, *range(0x80, 0xA1), 0xAD, 0x115F, 0x1160, 0x180E, *range(0x2000, 0x2010),
    *range(0x2028, 0x2030), *range(0x205F, 0x2070), 0x3000, 0x3164, 0xFEFF, 0xFFA0,
)  # fmt: skip
_UNSEEN: Final = "".join(map(chr, _UNSEEN_CODES))
"""Characters that leave nothing to see: white space, controls, joiners, fillers."""


_odd: Final = re.compile(r"""[^ "-;=?-Z\\^_a-z{|}]""").search  # not in plain words
_PLAIN_CHARS: Final = 8  # a plain piece has fewer
_LATER: Final = 64  # pieces that are fed together at most


class Panel:
    """One channel: ``content``, ``reasoning``, ``refusal`` or ``tool:N``.

    ``json``: the channel is to be a JSON document. ``extra``: further detectors of this channel; they are fed last.
    Findings come in the order in which they became certain.
    """

    __slots__ = (
        "_channel",
        "_chars",
        "_edge",
        "_encoding",
        "_extra",
        "_later",
        "_looking",
        "_numeric",
        "_repetition",
        "_visible",
        "_wait",
        "_whitespace",
        "doubt",
    )

    def __init__(
        self,
        policy: Policy = DEFAULT,
        channel: str = "content",
        prompt_text: str | None = None,
        json: bool = False,
        extra: Sequence[Detector] = (),
    ) -> None:
        self.doubt = 0
        self._channel = channel
        self._chars = 0
        self._visible = False
        self._looking = True
        self._edge = ("", "")  # first and last visible character, for the reasoning channel
        # each is None once it has failed
        self._repetition: Repetition | None = Repetition(
            channel=channel, prompt_text=prompt_text, json=json, policy=policy
        )
        self._whitespace: Whitespace | None = Whitespace(channel=channel, json=json, policy=policy)
        self._encoding: Encoding | None = Encoding(channel=channel, prompt_text=prompt_text, policy=policy)
        self._numeric: Numeric | None = Numeric(channel=channel)
        self._extra: list[Detector] = list(extra)
        self._wait = False  # all but the first are calm
        self._later: list[str] = []  # what they have not been fed yet

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        # written out, because a loop over detectors of different types costs twice as much
        self._chars = doubt = self._chars + len(text)
        if self._looking:
            self._look(text)
        if (
            self._wait
            and 1 < len(text) < _PLAIN_CHARS
            and text[-1] != text[-2]
            and not logprobs
            and "  " not in text
            and _odd(text) is None
            and len(self._later) < _LATER
        ):
            return self._feed_first(text, token_ids, doubt)
        rest = text
        if self._later:
            self._later.append(text)
            rest = "".join(self._later)
            self._later.clear()
        first: Sequence[Finding] = ()
        second: Sequence[Finding] = ()
        third: Sequence[Finding] = ()
        more: list[Finding] | None = None
        fed = 0
        try:
            repetition = self._repetition
            if repetition is not None:
                first = repetition.feed(text, token_ids)
                if repetition.doubt < doubt:
                    doubt = repetition.doubt
            fed = 1
            whitespace = self._whitespace
            if whitespace is not None:
                second = whitespace.feed(rest)
                if whitespace.doubt < doubt:
                    doubt = whitespace.doubt
            fed = 2
            encoding = self._encoding
            if encoding is not None:
                third = encoding.feed(rest)
                if encoding.doubt < doubt:
                    doubt = encoding.doubt
            fed = 3
            for detector in self._extra:
                news = detector.feed(rest, token_ids, logprobs)
                fed += 1
                if detector.doubt < doubt:
                    doubt = detector.doubt
                if news:
                    more = [*(more or ()), *news]
            if logprobs and self._numeric is not None:
                news = self._numeric.feed(text, token_ids, logprobs)
                if news:
                    more = [*(more or ()), *news]
        except Exception as error:  # whatever it is, it is the detector's fault and not the answer's
            more, doubt = self._without(fed, error, more or [], text, rest, token_ids, logprobs)
        self._wait = self._all_calm()
        if not (first or second or third or more):
            self.doubt = doubt
            return ()
        found = sorted((*first, *second, *third, *(more or ())), key=_when)
        self.doubt = self._then(found, doubt)
        return found

    def _feed_first(self, text: str, token_ids: Sequence[int] | None, doubt: int) -> Sequence[Finding]:
        """Plain words, and the others are calm."""
        repetition = self._repetition
        if repetition is None:
            self._later.append(text)
            self.doubt = doubt
            return ()
        try:
            found = repetition.feed(text, token_ids)
        except Exception as error:
            self._repetition = None
            found, doubt = [self._gone(repetition, error)], self._chars
        else:
            if repetition.doubt < doubt:
                doubt = repetition.doubt
        self._later.append(text)
        if not found:
            self.doubt = doubt
            return ()
        found = sorted(found, key=_when)
        self.doubt = self._then(found, doubt)
        return found

    def _all_calm(self) -> bool:
        whitespace, encoding = self._whitespace, self._encoding
        if (whitespace is not None and not whitespace.calm) or (encoding is not None and not encoding.calm):
            return False
        for detector in self._extra:  # noqa: SIM110 - this way it is quicker
            if not getattr(detector, "calm", False):
                return False
        return True

    def _catch_up(self) -> list[Finding]:
        """Feed the others what they have not been fed; they find nothing in it."""
        text = "".join(self._later)
        self._later.clear()
        return self._without(1, None, [], "", text, None, None)[0] if text else []

    def finish(self) -> Sequence[Finding]:
        found: list[Finding] = self._catch_up()
        doubt = self._chars
        for detector in self._holders():
            try:
                found += detector.finish()
            except Exception as error:
                found.append(self._gone(detector, error))
            else:
                doubt = min(doubt, detector.doubt)
        self.doubt = doubt
        return sorted(found, key=_when)

    def _holders(self) -> list[Detector]:
        """Those that can hold text back, in the order in which they are fed; the one that looks at numbers cannot."""
        own: tuple[Detector | None, ...] = (self._repetition, self._whitespace, self._encoding)
        return [*(detector for detector in own if detector is not None), *self._extra]

    def _without(
        self,
        fed: int,
        error: Exception | None,
        found: list[Finding],
        text: str,
        rest: str,
        token_ids: Sequence[int] | None,
        logprobs: Sequence[float] | None,
    ) -> tuple[list[Finding], int]:
        """The detector after the first ``fed`` has raised, if anything has: take it out and feed those behind it, the
        first of all with ``text`` and the others with ``rest``."""
        detectors: list[Detector | None] = [self._repetition, self._whitespace, self._encoding, *self._extra]
        detectors.append(self._numeric if logprobs else None)
        failed: list[Detector] = []
        for i, detector in enumerate(detectors):
            if i < fed or detector is None:
                continue
            try:
                if i == fed and error is not None:
                    raise error
                found += detector.feed(rest if i and detector is not self._numeric else text, token_ids, logprobs)
            except Exception as reason:
                found.append(self._gone(detector, reason))
                failed.append(detector)
        self._repetition = None if self._repetition in failed else self._repetition
        self._whitespace = None if self._whitespace in failed else self._whitespace
        self._encoding = None if self._encoding in failed else self._encoding
        self._numeric = None if self._numeric in failed else self._numeric
        self._extra = [detector for detector in self._extra if detector not in failed]
        return found, min([self._chars, *(detector.doubt for detector in self._holders())])

    def facts(self) -> Facts:
        """What the channel held so far; ``visible`` is not counted, only told from zero."""
        document = self._edge in (("{", "}"), ("[", "]"))
        return Facts(self._chars, self._chars if self._visible else 0, document)

    def _then(self, found: Sequence[Finding], doubt: int) -> int:
        """What was clear when the first error became certain, although more text came in the same feed: a detector
        that held back something at that point may have let it go since."""
        at = next((finding.detected_at for finding in found if finding.severity == "error"), None)
        if at is not None:
            for detector in self._holders():
                for held, until in getattr(detector, "releases", ()):
                    if held < at < until:
                        doubt = min(doubt, held)
        return max(doubt, self.doubt)

    def _look(self, text: str) -> None:
        seen = text.strip()
        if seen and (self._visible or seen.strip(_UNSEEN)):
            self._edge = (self._edge[0] if self._visible else seen[0], seen[-1])
            self._visible = True
            self._looking = self._channel == "reasoning"

    def _gone(self, detector: Detector, error: Exception) -> Finding:
        name = type(detector).__name__
        message = f"the detector {name} failed and was taken out: {type(error).__name__}"
        evidence = {"detector": name, "error": f"{type(error).__name__}: {error}"[:200]}
        return Finding(
            "guard.detector_error", "warn", message, self._channel, self._chars, self._chars, evidence=evidence
        )


def _when(finding: Finding) -> int:
    return finding.detected_at
