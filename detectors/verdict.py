"""What the repetition detector says of a text that it condemns: the finding with its evidence."""

from __future__ import annotations

from typing import Any, Final

from detectors.finding import Finding
from detectors.lettered import Lettered
from detectors.novelty import Novelty
from detectors.periods import Run, Window
from detectors.stutter import Stutter
from detectors.unit import tokens, turned

MESSAGES: Final = {
    "single_token_from_start": "the answer is one token again and again from its first token on",
    "single_token": "from here on the answer is one token again and again",
    "newlines": "from here on the answer is nothing but new lines",
    "spaces": "from here on the answer is nothing but white space",
    "rows": "from here on the answer is the same row again and again",
    "period": "from here on the answer is the same passage again and again",
    "near_loop": "from here on the answer is the same passage again and again, but for its numbers",
}


def condemned(run: Run, window: Window, channel: str, onset: int | None = None, end: int | None = None) -> Finding:
    unit = window.slice(run.start, run.start + run.period) or window.text[-run.period :]
    evidence: dict[str, Any] = {
        "period": run.period,
        "copies": round((run.bar - run.start) / run.period, 1),
        "unit": unit[:80],
        "tokens_in_unit": tokens(turned(unit)),
    }
    if run.why:
        evidence["raised_by"] = run.why
    return Finding(
        f"repetition.{run.kind}",
        "error",
        f"{MESSAGES[run.kind]} ({unit[:24]!r}, period {run.period})",
        channel,
        run.start if onset is None else onset,
        run.bar if end is None else end,
        0.99 if not run.why else 0.95,
        evidence,
    )


def circling(novelty: Novelty, window: Window, channel: str) -> Finding:
    onset = novelty.onset
    message = "the answer goes round in circles: it says the same few phrases again and again"
    evidence = {"new_phrases": round(novelty.share, 2), "unit": window.slice(onset, onset + 80)}
    return Finding("repetition.circles", "error", message, channel, onset, window.end, 0.9, evidence)


def stuttered(stutter: Stutter, window: Window, channel: str) -> Finding:
    onset = stutter.onset
    sample = window.slice(onset, onset + 40)
    message = f"every piece of the text comes twice or more often ({sample!r})"
    evidence = {"samples": stutter.hits, "unit": sample}
    return Finding("repetition.stutter", "error", message, channel, onset, window.end, 0.97, evidence)


def counted(lettered: Lettered, window: Window, channel: str) -> Finding:
    end, onset = window.end, lettered.onset
    unit = window.slice(onset, onset + (end - onset) // lettered.copies)
    evidence = {"copies": lettered.copies, "unit": unit[:80], "period": len(unit)}
    message = f"{MESSAGES['near_loop']} ({unit[:24]!r})"
    return Finding("repetition.near_loop", "error", message, channel, onset, end, 0.95, evidence)
