"""Other sampling for an answer that has collapsed twice at the same place: there the loop is the model's own, and the
same settings lead into it again. Pure.

Free text gets a frequency penalty, which is what pushes a model out of a loop; a document does not, since its
punctuation has to repeat, and gets a little temperature instead. A seed is changed in both.
"""

from __future__ import annotations

from typing import Final

import msgspec

from detectors.finding import Finding
from guard.enforce import varied
from guard.request import Sampling

PENALTY: Final = 0.5
MOST_PENALTY: Final = 2.0
SAME_PLACE: Final = 64
"""Characters that two collapses may be apart and still be at the same place."""


def with_other_sampling(sampling: Sampling, *, document: bool) -> Sampling:
    if document:
        return varied(sampling, 2)
    penalty = min(MOST_PENALTY, (sampling.frequency_penalty or 0.0) + PENALTY)
    seed = None if sampling.seed is None else sampling.seed + 1
    return msgspec.structs.replace(sampling, frequency_penalty=penalty, seed=seed)


def finding_of(sampling: Sampling) -> Finding:
    """What goes on record."""
    told = ", ".join(
        f"{name} {value:g}"
        for name in ("frequency_penalty", "temperature", "seed")
        if (value := getattr(sampling, name)) is not None
    )
    return Finding("guard.sampling_changed", "info", f"the answer goes on with other sampling: {told}", "stream")


class Places:
    """Where an answer's attempts collapsed."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, int]] = []

    def again(self, channel: str, onset: int) -> bool:
        """Whether one collapsed there before; this one is kept."""
        again = any(channel == other and abs(onset - at) <= SAME_PLACE for other, at in self._seen)
        self._seen.append((channel, onset))
        return again
