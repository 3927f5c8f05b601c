"""Where two answers part ways, and how far apart they are. Pure.

The rules:

- Token ids are compared where both answers have them and nothing says that their tokenizers differ. Answers of
  different tokenizers are aligned by the bytes of their tokens; answers without tokens by the bytes of their text; what
  was kept as a fingerprint only is equal or not, and no more is said.
- Margins are read only where both answers' differing tokens begin at the same byte: elsewhere the two distributions
  answer different questions.
- Answers that differ only in a last token which has no text (an end mark that one engine names and the other does not)
  are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from msgspec import Struct

from replay.edit import edit_distance
from replay.margins import SHOWN as SEAM_SHOWN
from replay.margins import margin_kind, same_tokenizer, side, tolerance
from replay.observation import Observation
from replay.results import Agreement, Comparison, Divergence, Unit

SHOWN = 24


class Difference(Struct, frozen=True):
    """``offset`` is the first character that differs (the length of the shorter answer, when one begins the other).
    ``token``: the first differing token's index, -1 where ids are missing. ``left`` and ``right`` are what stands
    there."""

    offset: int
    token: int
    left: str
    right: str


def first_difference(
    left: str, right: str, left_ids: Sequence[int] = (), right_ids: Sequence[int] = ()
) -> Difference | None:
    """None when the texts are equal."""
    if left == right:
        return None
    offset = common_prefix(left, right)
    token = common_prefix(left_ids, right_ids) if left_ids and right_ids else -1
    return Difference(offset, token, left[offset : offset + SHOWN], right[offset : offset + SHOWN])


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """The length of the longest common beginning, by bisection over slices (which compare in C)."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def agreement(texts: Sequence[str]) -> tuple[int, float]:
    """How many distinct answers there are, and the share of the most frequent one."""
    if not texts:
        return 0, 0.0
    counts = Counter(texts)
    return len(counts), max(counts.values()) / len(texts)


def agreement_of(runs: Sequence[Observation]) -> Agreement:
    """Over the answers of one request. Runs without an answer are counted apart."""
    answered = [run for run in runs if run.answered]
    counts = Counter(answer_keys(answered))
    commonest = max(counts.values(), default=0)
    return Agreement(
        len(answered), len(counts), commonest / len(answered) if answered else 0.0, len(runs) - len(answered)
    )


def answer_keys(runs: Sequence[Observation]) -> list[Hashable]:
    """One key a run, equal for equal answers, on the finest ground that all of them share: token ids, text, or the
    fingerprint. Runs whose answers differ in their end mark only get one key."""
    if not runs:
        return []
    if all(run.token_ids for run in runs) and all(same_tokenizer(runs[0], run) for run in runs[1:]):
        texts = {run.token_ids: run.text for run in runs}
        return [
            run.token_ids[:-1] if run.text and texts.get(run.token_ids[:-1]) == run.text else run.token_ids
            for run in runs
        ]
    if not all(map(_kept, runs)):
        return [run.fingerprint for run in runs]
    if any(run.text for run in runs):
        return [tuple(sorted((channel, text) for channel, text in run.text.items() if text)) for run in runs]
    return [b"".join(run.pieces) for run in runs]


def same_answer(left: Observation, right: Observation) -> bool:
    one, other = answer_keys((left, right))
    return one == other


def same_prompt(left: Observation, right: Observation) -> bool | None:
    """Whether both engines were asked the same thing, None where nothing tells. Equal token counts alone are no proof
    of equality, different ones are one of difference."""
    if left.prompt_ids and right.prompt_ids:
        return left.prompt_ids == right.prompt_ids
    if left.prompt_hash and right.prompt_hash:
        return left.prompt_hash == right.prompt_hash
    if left.template_hash and right.template_hash and left.template_hash != right.template_hash:
        return False
    if left.counts.prompt >= 0 and right.counts.prompt >= 0 and left.counts.prompt != right.counts.prompt:
        return False
    return None


def compare(left: Observation, right: Observation) -> Comparison:
    """Two answers to one request. Raises ValueError when they answer different ones."""
    if left.request_id != right.request_id:
        raise ValueError(f"answers to two requests, {left.request_id} and {right.request_id}, cannot be compared")
    same = same_answer(left, right)
    unit, one, other = _units(left, right)
    found_left = tuple(dict.fromkeys(found.code for found in left.findings))
    found_right = tuple(dict.fromkeys(found.code for found in right.findings))
    longest = max(len(one), len(other))
    return Comparison(
        same=same,
        same_prompt=same_prompt(left, right),
        divergence=None if same else divergence(left, right),
        unit=unit,
        edit_distance=None if unit == "fingerprint" else 0 if same else edit_distance(one, other),
        length_left=len(one) if unit != "fingerprint" else left.counts.completion,
        length_right=len(other) if unit != "fingerprint" else right.counts.completion,
        agreed_tokens=(
            None if unit != "tokens" else sum(map(_equal, one, other)) / longest if longest and not same else 1.0
        ),
        finish_left=left.finish_reason,
        finish_right=right.finish_reason,
        findings_both=tuple(code for code in found_left if code in found_right),
        findings_left=tuple(code for code in found_left if code not in found_right),
        findings_right=tuple(code for code in found_right if code not in found_left),
    )


def divergence(left: Observation, right: Observation) -> Divergence | None:
    """The seam of two answers that are not the same; None where nothing shows it (fingerprints, no answer)."""
    by_ids = bool(left.token_ids and right.token_ids) and same_tokenizer(left, right)
    if not by_ids and not (_kept(left) and _kept(right)):
        return None
    channel, byte = _text_seam(left, right)
    left_at = right_at = -1
    aligned = False
    if by_ids:
        left_at = right_at = common_prefix(left.token_ids, right.token_ids)
        aligned = True
        if left.pieces and not left.text:
            byte = sum(map(len, left.pieces[:left_at]))
    elif left.pieces and right.pieces:
        left_at, right_at, aligned, at = _aligned(left.pieces, right.pieces)
        byte = byte if left.text or right.text else at
    one = side(left, left_at, right, right_at if aligned else -1, _from(left, channel, byte))
    other = side(right, right_at, left, left_at if aligned else -1, _from(right, channel, byte))
    kind = margin_kind(one, other, tolerance(left.cell.precision, right.cell.precision)) if aligned else "unknown"
    return Divergence(left_at, byte, channel, one, other, kind)


def _aligned(left: Sequence[bytes], right: Sequence[bytes]) -> tuple[int, int, bool, int]:
    """The tokens that hold the first differing byte, whether they begin at the same byte, and that byte."""
    byte = common_prefix(b"".join(left), b"".join(right))
    left_at, left_start = _holding(left, byte)
    right_at, right_start = _holding(right, byte)
    return left_at, right_at, left_start == right_start, byte


def _holding(pieces: Sequence[bytes], byte: int) -> tuple[int, int]:
    start = 0
    for index, piece in enumerate(pieces):
        if byte < start + len(piece):
            return index, start
        start += len(piece)
    return len(pieces), start


def _text_seam(left: Observation, right: Observation) -> tuple[str, int]:
    for channel in dict.fromkeys((*left.text, *right.text)):
        one, other = left.text.get(channel, ""), right.text.get(channel, "")
        if one != other:
            return channel, common_prefix(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
    return next(iter(left.text), "content"), -1


def _from(run: Observation, channel: str, byte: int) -> str:
    if run.text:
        return run.text.get(channel, "").encode("utf-8", "replace")[max(byte, 0) :][:SEAM_SHOWN].decode(errors="ignore")
    return b"".join(run.pieces)[max(byte, 0) :][:SEAM_SHOWN].decode("utf-8", "ignore")


def _units(left: Observation, right: Observation) -> tuple[Unit, Sequence[Hashable], Sequence[Hashable]]:
    if left.token_ids and right.token_ids and same_tokenizer(left, right):
        return "tokens", left.token_ids, right.token_ids
    if not (_kept(left) and _kept(right)):
        return "fingerprint", (), ()
    return "characters", _whole(left), _whole(right)


def _kept(run: Observation) -> bool:
    """What was said is there, even if it was nothing."""
    return bool(run.text or run.pieces) or not run.fingerprint


def _whole(run: Observation) -> str:
    return "\0".join(run.text.values()) if run.text else b"".join(run.pieces).decode("utf-8", "replace")


def _equal(left: Hashable, right: Hashable) -> bool:
    return left == right
