"""What content a record may hold, and a record without what it may not. Pure.

``full`` keeps text. ``hash`` keeps keyed fingerprints (HMAC-SHA256) of the prompt and of each output, so that equality
can still be asked, and counts. ``none`` keeps neither. Of several wishes the strictest holds.

What may quote an answer, a prompt or a schema goes with them: token ids, log probabilities, the words of findings and
errors, a caller's account of a tool call. Codes, kinds, counts, offsets and times stay: they are the evidence. Where a
stable word is expected and something else stands (an engine's own finish reason, the name of a model or a policy that
nobody configured), it becomes ``other``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from detectors.finding import FAMILIES
from guard.request import Retention
from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord

if TYPE_CHECKING:
    from hashlib import _Hash

FINISH_REASONS: Final = frozenset(
    {"", "stop", "length", "tool_calls", "content_filter", "function_call", "eos_token", "stop_sequence", "abort"}
    | {"error", "cancelled", "eos", "max_tokens", "end_turn", "tool_use"}
)

WORDS: Final = frozenset(
    """
    json_schema json_object regex choice grammar structural_tag tools tool_choice strict ebnf gbnf lark
    parallel_tool_calls named auto none allowed required prefix resume stop logprobs n
    type enum const properties patternProperties additionalProperties propertyNames minProperties maxProperties items
    prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains pattern format
    minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum multipleOf allOf anyOf oneOf not if then else
    dependentSchemas dependentRequired dependencies $ref $defs definitions $dynamicRef unevaluatedItems
    unevaluatedProperties contentEncoding
    """.split()  # noqa: SIM905 (a page of quotes reads no better)
)
"""The words that lists of what was not enforced or was contradicted are made of."""

UNKNOWN_MODEL: Final = "model_not_found"
"""The error of a request whose model no route serves: its name is only a caller's text then."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
_CODE: Final = re.compile(r"[a-z0-9_]{1,40}(\.[a-z0-9_]{1,40}){0,2}")


class RetentionRules(Struct, frozen=True):
    """``default`` for callers that say nothing, ``most`` the most that any may have; ``tenants`` lower it further."""

    default: Retention = "none"
    most: Retention = "full"
    tenants: Mapping[str, Retention] = {}

    def effective(self, tenant: str = "", asked: Retention | None = None) -> Retention:
        """What holds for a request. To be asked before it begins, so that nothing is collected in vain."""
        return strictest(asked or self.default, self.most, self.tenants.get(tenant, "full"))


def strictest(*wishes: str) -> Retention:
    """A wish that is none of the three counts as ``none``."""
    kept: Retention = "full" if wishes else "none"
    for wish in wishes:
        if wish == "full":
            continue
        if wish != "hash":
            return "none"
        kept = "hash"
    return kept


def fingerprint(key: bytes, text: str | bytes) -> str:
    """32 hex digits. Empty for nothing: an empty answer is known by its length anyway."""
    if not text:
        return ""
    inner, outer = _keyed(key)
    inner, outer = inner.copy(), outer.copy()
    inner.update(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    outer.update(inner.digest())
    return outer.digest()[:16].hex()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> tuple[_Hash, _Hash]:
    """The two halves of HMAC-SHA256 (RFC 2104) with the key in them: half of what a short text costs."""
    block = (key if len(key) <= 64 else sha256(key).digest()).ljust(64, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in block)), sha256(bytes(byte ^ 0x5C for byte in block))


def prompt_of(request_body: str) -> bytes:
    """The part of a request that a model is asked with, in one form whatever order and spacing it came in: requests
    that differ only in their sampling or routing have equal prompts."""
    try:
        body = msgspec.json.decode(request_body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return request_body.encode("utf-8", "surrogatepass")
    if not isinstance(body, dict):
        return request_body.encode("utf-8", "surrogatepass")
    asked = {name: body[name] for name in ("messages", "prompt", "tools") if body.get(name)}
    return msgspec.json.encode(asked, order="sorted")


def reduce(record: RequestRecord, retention: str, key: bytes) -> RequestRecord:
    """A record that holds no more than ``retention`` allows; the one given is not touched. ``full`` gets its
    fingerprints too, so that it can be compared with what was hashed."""
    kept = strictest(retention)
    prompt = output = ""
    known: dict[str, str] = {}
    if kept != "none":
        prompt = fingerprint(key, prompt_of(record.request_body)) if record.request_body else record.prompt_fingerprint
        output = fingerprint(key, record.output_text) or record.output_fingerprint
        known = {record.output_text: output, "": ""}  # most often an attempt's is the same
    if kept == "full":
        return msgspec.structs.replace(
            record,
            retention="full",
            prompt_fingerprint=prompt,
            output_fingerprint=output,
            attempts=[_with_fingerprint(attempt, known, key) for attempt in record.attempts],
        )
    return msgspec.structs.replace(
        record,
        retention=kept,
        request_body="",
        output_text="",
        prompt_fingerprint=prompt,
        output_fingerprint=output,
        error_message="",
        error_code=_code(record.error_code),
        finish_reason=_finish(record.finish_reason),
        model="other" if record.error_code == UNKNOWN_MODEL else _name(record.model),
        policy=_name(record.policy) if record.attempts or not record.policy else "other",
        attempts=[_bare(attempt, kept, known, key) for attempt in record.attempts],
    )


def reduce_outcome(record: OutcomeRecord, retention: str) -> OutcomeRecord:
    if strictest(retention) == "full":
        return record
    return msgspec.structs.replace(record, detail="", tool_call_id=_name(record.tool_call_id))


def _print(attempt: AttemptRecord, known: Mapping[str, str], key: bytes) -> str:
    if attempt.output_text in known:
        return known[attempt.output_text] or attempt.output_fingerprint
    return fingerprint(key, attempt.output_text)


def _with_fingerprint(attempt: AttemptRecord, known: Mapping[str, str], key: bytes) -> AttemptRecord:
    return msgspec.structs.replace(attempt, output_fingerprint=_print(attempt, known, key))


def _bare(attempt: AttemptRecord, kept: str, known: Mapping[str, str], key: bytes) -> AttemptRecord:
    output = _print(attempt, known, key) if kept == "hash" else ""
    return msgspec.structs.replace(
        attempt,
        output_text="",
        output_fingerprint=output,
        output_token_ids=[],
        prompt_token_ids=[],
        token_logprobs=[],
        runner_up_logprobs=[],
        error_message="",
        error_kind=_code(attempt.error_kind),
        finish_reason=_finish(attempt.finish_reason),
        unenforced=[_word(item) for item in attempt.unenforced],
        contradictions=[_word(item) for item in attempt.contradictions],
        findings=[_silent(finding) for finding in attempt.findings],
    )


def _silent(finding: FindingRecord) -> FindingRecord:
    return msgspec.structs.replace(finding, message="", code=_word(finding.code))


def _finish(reason: str) -> str:
    """One for each choice, with commas between."""
    return ",".join(part if part in FINISH_REASONS else "other" for part in reason.split(","))


def _code(code: str) -> str:
    return code if not code or _CODE.fullmatch(code) else "other"


def _word(item: str) -> str:
    """Codes (``family.kind``) and words of the known vocabulary, joined by colons: nothing that a schema or an answer
    could have named."""
    return item if all(part in WORDS or _is_code(part) for part in item.split(":")) else "other"


def _is_code(item: str) -> bool:
    family, _, kind = item.partition(".")
    return family in FAMILIES and (not kind or _CODE.fullmatch(kind) is not None)


def _name(name: str) -> str:
    return name if not name or _NAME.fullmatch(name) else "other"
