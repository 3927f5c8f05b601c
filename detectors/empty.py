"""An answer that holds nothing although it cost something.

Judged once, when the stream has ended and its finish reason and usage are known, from what each channel held. Where a
limit of a few tokens left nothing to see, no other engine would do better, so that is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from detectors.finding import Finding

_A_FEW: Final = 16  # tokens: a limit this small may honestly leave nothing to see


@dataclass(frozen=True, slots=True)
class Facts:
    """What one channel held. ``visible`` counts the characters that are no white space; ``document``: it begins and
    ends as a JSON object or array does."""

    chars: int = 0
    visible: int = 0
    document: bool = False


def judge_empty(
    channels: Mapping[str, Facts],
    *,
    finish_reason: str,
    completion_tokens: int,
    tool_calls: int,
    json: bool = False,
    stopped_at_once: bool = False,
) -> Sequence[Finding]:
    """``json``: the caller asked for a document. ``stopped_at_once``: a stop string of the caller's was the first thing
    generated."""
    content = channels.get("content", Facts())
    reasoning = channels.get("reasoning", Facts())
    refusal = channels.get("refusal", Facts())
    if content.visible or refusal.visible or tool_calls or stopped_at_once:
        return ()
    cut = finish_reason == "length"
    evidence = {
        "content_chars": content.chars,
        "reasoning_chars": reasoning.chars,
        "completion_tokens": completion_tokens,
        "finish_reason": finish_reason,
    }
    if reasoning.visible:
        if json and reasoning.document and not cut:
            return (
                _finding(
                    "answer_in_reasoning", "the document came in the reasoning channel, the content is empty", evidence
                ),
            )
        if cut:
            message = "the token limit was used up by reasoning before the answer began"
            return (_finding("budget_in_reasoning", message, evidence),)
        return (_finding("reasoning_only", "there is reasoning and no answer", evidence),)
    if content.chars:
        return (_finding("whitespace_only", "the answer is nothing but white space", evidence),)
    if completion_tokens > 1:
        message = f"{completion_tokens} tokens were spent and nothing was delivered"
        return (_finding("tokens_spent", message, evidence, warn=cut and completion_tokens <= _A_FEW),)
    return (_finding("nothing", "the answer is empty", evidence, warn=cut),)


def _finding(kind: str, message: str, evidence: Mapping[str, object], *, warn: bool = False) -> Finding:
    return Finding(f"empty.{kind}", "warn" if warn else "error", message, evidence=evidence)
