"""All detectors of one channel behind one feed.

The panel's doubt is the smallest of its detectors'. A detector that raises is taken out and recorded, and the answer
goes on without it: a mistake here must not cost anybody an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.contract import Detector
from detectors.empty import Facts
from detectors.encoding import Encoding
from detectors.finding import Finding
from detectors.numeric import Numeric
from detectors.policy import DEFAULT, Policy
from detectors.repetition import Repetition
from detectors.whitespace import Whitespace


class Panel:
    """One channel: ``content``, ``reasoning``, ``refusal`` or ``tool:N``.

    ``json``: the channel is to be a JSON document. ``extra``: further detectors of this channel; they are fed last.
    Findings come in the order in which they became certain.
    """

    __slots__ = ("_channel", "_chars", "_detectors", "_edge", "_looking", "_numeric", "_visible", "doubt")

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
        self._numeric: Numeric | None = Numeric(channel=channel)
        self._detectors: list[Detector] = [
            Repetition(channel=channel, prompt_text=prompt_text, json=json, policy=policy),
            Whitespace(channel=channel, json=json, policy=policy),
            Encoding(channel=channel, prompt_text=prompt_text, policy=policy),
            *extra,
        ]

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        self._chars = doubt = self._chars + len(text)
        if self._looking:
            self._look(text)
        found: list[Finding] | None = None
        broken: list[Detector] | None = None
        for detector in self._detectors:
            try:
                news = detector.feed(text, token_ids, logprobs)
            except Exception as error:  # whatever it is, it is the detector's fault and not the answer's
                news = (self._gone(detector, error),)
                broken = [*(broken or ()), detector]
            else:
                if detector.doubt < doubt:
                    doubt = detector.doubt
            if news:
                found = [*(found or ()), *news]
        if logprobs and self._numeric is not None:
            news = self._look_at_numbers(text, token_ids, logprobs)
            if news:
                found = [*(found or ()), *news]
        if broken:
            self._detectors = [detector for detector in self._detectors if detector not in broken]
        if found is None:
            self.doubt = doubt
            return ()
        found.sort(key=_when)
        self.doubt = self._then(found, doubt)
        return found

    def finish(self) -> Sequence[Finding]:
        found: list[Finding] = []
        doubt = self._chars
        for detector in self._detectors:
            try:
                found += detector.finish()
            except Exception as error:
                found.append(self._gone(detector, error))
            else:
                doubt = min(doubt, detector.doubt)
        self.doubt = doubt
        return sorted(found, key=_when)

    def facts(self) -> Facts:
        """What the channel held so far; ``visible`` is not counted, only told from zero."""
        document = self._edge in (("{", "}"), ("[", "]"))
        return Facts(self._chars, self._chars if self._visible else 0, document)

    def _then(self, found: Sequence[Finding], doubt: int) -> int:
        """What was clear when the first error became certain, although more text came in the same feed: a detector
        that held back something at that point may have let it go since."""
        at = next((finding.detected_at for finding in found if finding.severity == "error"), None)
        if at is not None:
            for detector in self._detectors:
                for held, until in getattr(detector, "releases", ()):
                    if held < at < until:
                        doubt = min(doubt, held)
        return max(doubt, self.doubt)

    def _look(self, text: str) -> None:
        seen = text.strip()
        if seen:
            self._edge = (self._edge[0] if self._visible else seen[0], seen[-1])
            self._visible = True
            self._looking = self._channel == "reasoning"

    def _look_at_numbers(
        self, text: str, token_ids: Sequence[int] | None, logprobs: Sequence[float]
    ) -> Sequence[Finding]:
        numeric = self._numeric
        if numeric is None:
            return ()
        try:
            return numeric.feed(text, token_ids, logprobs)
        except Exception as error:
            self._numeric = None
            return (self._gone(numeric, error),)

    def _gone(self, detector: Detector, error: Exception) -> Finding:
        name = type(detector).__name__
        message = f"the detector {name} failed and was taken out: {type(error).__name__}"
        evidence = {"detector": name, "error": f"{type(error).__name__}: {error}"[:200]}
        return Finding(
            "guard.detector_error", "warn", message, self._channel, self._chars, self._chars, evidence=evidence
        )


def _when(finding: Finding) -> int:
    return finding.detected_at
