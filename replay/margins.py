"""How close the choice was where two answers part ways. Pure.

The rules:

- A margin is read in both runs: how much likelier a run held its own token than the other run's token, in its own
  distribution. Rounding can flip a choice only where that is a few rounding steps, in *both* runs.
- A step depends on the precision of the logits. bf16 keeps 8 bits: logits between 16 and 32 are 1/8 apart; f16 keeps
  11 bits: 1/64. f32 steps are far below what the order of a sum moves: measured, the widest flip was 0.002. A margin
  within four steps (f32: 0.02) is near. In 240 recorded answers of real engines every bf16 flip was within 0.31.
- Where a list of best tokens is too short to hold the other run's token, that token is at least as far off as the last
  one listed: enough to call it outside when that alone is beyond rounding, else nothing is known.
"""

from __future__ import annotations

from typing import Final

from replay.observation import Observation
from replay.results import MarginKind, Side

NEAR: Final = {"f32": 0.02, "fp32": 0.02, "float32": 0.02, "f16": 0.0625, "fp16": 0.0625, "float16": 0.0625}
NEAR_BF16: Final = 0.5
"""Nats. For bf16, and for quantised or unknown precisions, whose activations are bf16 at best."""

UNROUNDED: Final = frozenset({*NEAR, "bf16", "bfloat16"})
"""Precisions whose weights are not quantised. Any other that is known counts as quantised."""

SHOWN: Final = 48


def tolerance(*precisions: str) -> float:
    """The widest margin, in nats, that rounding at the coarsest of these precisions explains."""
    return max((NEAR.get(precision.lower(), NEAR_BF16) for precision in precisions), default=NEAR_BF16)


def quantised(precision: str) -> bool:
    return bool(precision) and precision.lower() not in UNROUNDED


def side(run: Observation, index: int, other: Observation, other_index: int, text: str) -> Side:
    """``run`` at its token ``index``, asked about the other run's token. ``text`` is what stands there."""
    if not 0 <= index < _tokens(run):
        return Side(-1 if index < 0 else index, -1, b"", text[:SHOWN])
    token_id = run.token_ids[index] if index < len(run.token_ids) else -1
    piece = run.pieces[index] if index < len(run.pieces) else b""
    logprob = run.logprobs[index] if index < len(run.logprobs) else None
    listed = run.top[index] if index < len(run.top) else ()
    other_id = other.token_ids[other_index] if 0 <= other_index < len(other.token_ids) else -1
    other_piece = other.pieces[other_index] if 0 <= other_index < len(other.pieces) else b""
    by_id = token_id >= 0 and other_id >= 0 and same_tokenizer(run, other)
    rank = other_rank = -1
    margin = floor = None
    for place, each in enumerate(listed):
        if each.token_id == token_id >= 0 or (token_id < 0 and each.piece == piece):
            rank = place
        if (each.token_id == other_id) if by_id and each.token_id >= 0 else (other_piece and each.piece == other_piece):
            other_rank = place
            margin = logprob - each.logprob if logprob is not None else None
    if other_rank < 0 and listed and logprob is not None and (by_id or other_piece):
        floor = logprob - listed[-1].logprob
    return Side(index, token_id, piece, text[:SHOWN], logprob, margin, rank, other_rank, floor)


def margin_kind(left: Side, right: Side, near: float) -> MarginKind:
    """What the two sides say together. One side beyond rounding is enough against a near tie; both are needed for
    one."""
    sides = (left, right)
    if any(each.margin is not None and abs(each.margin) > near for each in sides):
        return "wide"
    if any(each.list_floor is not None and each.list_floor > near for each in sides):
        return "outside"
    if all(each.margin is not None for each in sides):
        return "near"
    return "unknown"


def drawn(run: Observation, near: float) -> tuple[int, int]:
    """How many of a run's tokens stand below the likeliest of their step by more than rounding, and of how many that
    can be told. A greedy run has none; a sampled one has many."""
    below = told = 0
    for logprob, listed in zip(run.logprobs, run.top, strict=False):
        if listed:
            told += 1
            below += listed[0].logprob - logprob > near
    return below, told


def same_tokenizer(left: Observation, right: Observation) -> bool:
    """Ids can be compared: nothing says that the tokenizers differ."""
    if left.tokenizer_hash and right.tokenizer_hash:
        return left.tokenizer_hash == right.tokenizer_hash
    if left.pieces and right.pieces:
        if left.token_ids == right.token_ids:
            return left.pieces == right.pieces
        named = dict(zip(left.token_ids, left.pieces, strict=False))
        return all(
            named.get(token_id, piece) == piece for token_id, piece in zip(right.token_ids, right.pieces, strict=False)
        )
    return True


def _tokens(run: Observation) -> int:
    return max(len(run.token_ids), len(run.pieces), len(run.logprobs))
