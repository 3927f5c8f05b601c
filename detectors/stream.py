"""The protocol of one answer's stream: did it end, how, and can its numbers be true.

The rules:

- A stream ends with a finish reason. Without one it failed, whatever else it sent; no reason is ever made up.
- A protocol's own end mark ([DONE]) is missed, not demanded: some engines never send it.
- What an engine says about itself may contradict what it sent. That is recorded; it condemns only where the answer
  cannot be complete.

Nothing here knows a clock: that a stream stalled is told by the edge, as a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from detectors.empty import Facts, judge_empty
from detectors.finding import Finding, Severity

_REASONS: Final = frozenset(("stop", "length", "tool_calls", "function_call", "content_filter"))
_ABORTED: Final = frozenset(("abort", "aborted", "error", "cancelled", "internal_error"))
_FAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "cut": ("cut", "the connection ended in the middle of the answer"),
    "stall": ("stall", "the engine fell silent in the middle of the answer"),
    "first_token_timeout": ("stall", "the engine never began to answer"),
    "total_timeout": ("stall", "the engine did not finish in the time it had"),
    "error_event": ("error_event", "the engine reported an error in the middle of the answer"),
    "protocol": ("protocol", "the engine sent bytes that are no stream"),
}
_MANY: Final = 200  # tokens
_CHARS_A_TOKEN: Final = 40  # no tokenizer gives more over a whole answer; the longest single tokens have about 128
_SLACK: Final = 400  # characters that may come without being counted: a prefix that is repeated, a stop string


class StreamIntegrity:
    """One choice of one attempt. ``json``: the caller asked for a document."""

    __slots__ = ("_doubted", "_json", "_reason", "_reasons", "_usage")

    def __init__(self, *, json: bool = False) -> None:
        self._doubted = False  # the usage was found wrong already
        self._json = json
        self._reason = ""
        self._reasons = 0
        self._usage: tuple[int, int, int] | None = None

    def finish_reason(self, reason: str) -> Sequence[Finding]:
        self._reasons += 1
        first, self._reason = self._reason, self._reason or reason
        if self._reasons > 1:
            if reason == first:
                return (_finding("double_finish", "warn", f"the finish reason {reason!r} came twice"),)
            severity: Severity = "warn" if {reason, first} == {"stop", "tool_calls"} else "error"
            message = f"the stream finished with {first!r} and then with {reason!r}"
            return (_finding("finish_contradiction", severity, message, first=first, second=reason),)
        if reason in _ABORTED:
            return (_finding("aborted", "error", f"the engine gave up the answer: {reason!r}", reason=reason),)
        if reason not in _REASONS:
            return (_finding("finish_unknown", "warn", f"{reason!r} is no known finish reason", reason=reason),)
        return ()

    def usage(self, prompt_tokens: int, completion_tokens: int, total_tokens: int) -> Sequence[Finding]:
        """May come several times, growing; the last counts."""
        first = self._usage is None
        self._usage = (prompt_tokens, completion_tokens, total_tokens)
        wrong = min(self._usage) < 0 or (total_tokens and total_tokens != prompt_tokens + completion_tokens)
        if wrong and first:
            self._doubted = True
            return (self._mismatch("the parts do not add up to the total"),)
        return ()

    def end(
        self,
        *,
        kind: str,
        done: bool,
        message: str = "",
        text_chars: int = 0,
        tool_calls: int = 0,
        channels: Mapping[str, Facts] | None = None,
        stopped_at_once: bool = False,
    ) -> Sequence[Finding]:
        """``kind``: done, clean, cut, or the kind of a fault. ``text_chars``: all characters of all channels, tool
        arguments included; ``channels`` says the same in detail."""
        found: list[Finding] = []
        if kind in _FAULTS and not (kind == "cut" and self._reason):
            code, text = _FAULTS[kind]
            if message:
                text = message if message.startswith(text) else f"{text}: {message}"
            found.append(_finding(code, "error", text, fault=kind))
        elif kind == "cut":
            found.append(_finding("cut", "warn", "the connection was cut after the answer had ended"))
        if not self._reason:
            if kind in ("done", "clean", "cut"):
                text = "the stream ended without a finish reason"
                found.append(_finding("no_terminal", "error", text, done=done, text_chars=text_chars))
            return found
        if kind == "clean" and not done:
            found.append(_finding("missing_done", "info", "the stream ended well but without its end mark"))
        found += self._against_calls(tool_calls)
        if kind in ("done", "clean", "cut"):
            found += self._against_text(text_chars, tool_calls)
            if self._reason in _REASONS and self._reason not in ("content_filter", "tool_calls", "function_call"):
                found += judge_empty(
                    channels if channels is not None else {"content": Facts(text_chars, text_chars)},
                    finish_reason=self._reason,
                    completion_tokens=self._usage[1] if self._usage else 0,
                    tool_calls=tool_calls,
                    json=self._json,
                    stopped_at_once=stopped_at_once,
                )
        return found

    def _against_calls(self, tool_calls: int) -> Sequence[Finding]:
        calls = self._reason in ("tool_calls", "function_call")
        if calls and not tool_calls:
            text = f"finished with {self._reason!r}, and no tool was called"
            return (_finding("finish_mismatch", "error", text, finish_reason=self._reason, tool_calls=0),)
        if tool_calls and self._reason == "stop":
            text = "finished with 'stop' although tools were called"
            return (_finding("finish_mismatch", "warn", text, finish_reason="stop", tool_calls=tool_calls),)
        return ()

    def _against_text(self, chars: int, tool_calls: int) -> Sequence[Finding]:
        if self._usage is None:
            return ()
        tokens = self._usage[1]
        if self._doubted and self._reason != "length":
            return ()
        if chars and not tokens:
            return (self._mismatch("there is text, and no token was counted", text_chars=chars),)
        if chars > tokens * _CHARS_A_TOKEN + _SLACK:
            return (self._mismatch("there is more text than so few tokens can spell", text_chars=chars),)
        if chars > 0 and tokens >= _MANY and chars * 8 < tokens and not tool_calls:
            # hidden reasoning may cost that much and end well; with the limit reached the answer is not there
            severity: Severity = "error" if self._reason == "length" else "warn"
            return (self._mismatch("many tokens were spent on hardly any text", severity, text_chars=chars),)
        return ()

    def _mismatch(self, text: str, severity: Severity = "warn", **evidence: Any) -> Finding:
        prompt, completion, total = self._usage or (0, 0, 0)
        evidence |= {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        return _finding("usage_mismatch", severity, f"the usage cannot be true: {text}", **evidence)


def _finding(kind: str, severity: Severity, message: str, **evidence: Any) -> Finding:
    return Finding(f"stream.{kind}", severity, message, "stream", evidence=evidence)
