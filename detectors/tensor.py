"""The rule of detectors/token_loop.py over a batch of sequences at once, in torch, on a CPU or a GPU.

Every sixteen tokens in a row are hashed, and the hashes of each sequence sorted together with their places; so the
nearest earlier place of each is its neighbour in that order. Sequences that hold no loop are sorted out first, at a
fraction of the price: a run that condemns covers many places, so it is enough to look at some of them. Two different
rows of sixteen tokens share a hash of 62 bits about once in 10^12 sequences.
"""

from __future__ import annotations

from typing import Final

import torch

from detectors.token_loop import FARTHEST, GRAM, WORDLESS, TokenBars, TokenRun

_MULTIPLIER: Final = 0x27D4EB2F165667C5  # odd, so that every token counts in every place
_MIX: Final = 0x1B03738712FAD5C9
NONE: Final = -1


def scan(
    ids: torch.Tensor,
    lengths: torch.Tensor | None = None,
    *,
    bars: TokenBars | None = None,
    wordless: torch.Tensor | None = None,
) -> torch.Tensor:
    """For every sequence (onset, detected_at, period) of the first run that condemns it, or three times -1.

    ``ids``: [sequences, tokens], any integer type; ``lengths``: how many tokens of each count, all of them when None;
    ``wordless``: a bool for every token id of the vocabulary. The result is int64, [sequences, 3], on the device of
    ``ids``. Raises ValueError for an argument of another shape.
    """
    if ids.dim() != 2:
        raise ValueError(f"ids must be [sequences, tokens], and are {list(ids.shape)}")
    rows, tokens = ids.shape
    if lengths is not None and lengths.shape != (rows,):
        raise ValueError(f"lengths must be [{rows}], and are {list(lengths.shape)}")
    bars = bars or TokenBars()
    result = torch.full((rows, 3), NONE, dtype=torch.int64, device=ids.device)
    if tokens <= GRAM or not rows:
        return result
    hashes = _hashes(ids, lengths)
    index = _suspects(hashes, bars)
    if not index.numel():
        return result
    distance = _distances(hashes[index])
    length = _run_lengths(distance) + distance + (GRAM - 1)
    bar = torch.clamp(distance * bars.copies, min=bars.least)
    bar[distance == 1] = bars.single
    condemned = (distance > 0) & (length >= bar)
    if wordless is not None:
        condemned &= _allowed(ids[index], distance, length, bar, wordless)
    found = condemned.any(dim=1).nonzero().squeeze(1)
    if not found.numel():
        return result
    first = condemned[found].to(torch.int8).argmax(dim=1, keepdim=True)
    end = first + GRAM
    span = length[found].gather(1, first).to(torch.int64)
    period = distance[found].gather(1, first).to(torch.int64)
    result[index[found]] = torch.cat((end - span, end, period), dim=1)
    return result


def runs(found: torch.Tensor) -> list[TokenRun | None]:
    """The result of ``scan`` as the streaming form gives it."""
    return [TokenRun(*row) if row[0] != NONE else None for row in found.tolist()]


def _hashes(ids: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """One number for every sixteen tokens in a row."""
    mixed = (ids.to(torch.int64) + 1) * _MIX
    mixed ^= mixed >> 29
    # the hash of a row of two, four, eight, sixteen from those of half as many
    size = 1
    factor = _MULTIPLIER
    while size < GRAM:
        mixed = torch.add(mixed[:, size:], mixed[:, :-size], alpha=factor)
        factor = (factor * _MULTIPLIER) & 0x7FFFFFFFFFFFFFFF
        size *= 2
    mixed &= 0x3FFFFFFFFFFFFFFF
    if lengths is not None:
        # what lies behind the end of a sequence equals nothing: every place there is its own hash
        places = torch.arange(mixed.shape[1], device=ids.device).unsqueeze(0)
        behind = places > (lengths.to(ids.device).unsqueeze(1) - GRAM)
        mixed = torch.where(behind, -places - 2, mixed)
    return mixed


def _suspects(hashes: torch.Tensor, bars: TokenBars) -> torch.Tensor:
    """The sequences in which some of every ``stride`` places came before within reach."""
    rows, grams = hashes.shape
    stride = min(bars.bar(period) - (GRAM - 1) - period for period in range(1, FARTHEST + 1))
    everything = torch.arange(rows, device=hashes.device)
    if stride < 8 or grams <= stride:
        return everything
    low = hashes.to(torch.int32)  # half a hash is enough to sort out by, and half the work
    padded = torch.full((rows, grams + FARTHEST), -1, dtype=torch.int32, device=hashes.device)
    padded[:, FARTHEST:] = low
    before = padded.unfold(1, FARTHEST, stride)
    sampled = low[:, ::stride]
    hits = torch.zeros(rows, dtype=torch.bool, device=hashes.device)
    for start in range(0, rows, 32):  # a few sequences at a time stay in the cache
        part = slice(start, start + 32)
        count = min(before.shape[1], sampled.shape[1])
        hits[part] = (before[part, :count] == sampled[part, :count].unsqueeze(2)).flatten(1).any(dim=1)
    return everything[hits]


def _distances(hashes: torch.Tensor) -> torch.Tensor:
    """At every place, how far back its hash came last; 0: not within reach."""
    ordered, places = torch.sort(hashes, dim=1, stable=True)
    before = torch.zeros_like(places)
    before[:, 1:] = torch.where(ordered[:, 1:] == ordered[:, :-1], places[:, 1:] - places[:, :-1], 0)
    before[before > FARTHEST] = 0
    return torch.zeros_like(before).scatter_(1, places, before).to(torch.int32)


def _run_lengths(distance: torch.Tensor) -> torch.Tensor:
    """How many places in a row, up to and with this one, have its distance."""
    rows, grams = distance.shape
    places = torch.arange(grams, dtype=torch.int32, device=distance.device)
    starts = torch.zeros((rows, grams), dtype=torch.int32, device=distance.device)
    starts[:, 1:] = torch.where(distance[:, 1:] != distance[:, :-1], places[1:], 0)
    return places - starts.cummax(dim=1).values + 1


def _allowed(
    ids: torch.Tensor, far: torch.Tensor, length: torch.Tensor, bar: torch.Tensor, wordless: torch.Tensor
) -> torch.Tensor:
    """False where the period's tokens hold no word and the run is not yet so long as that allows."""
    places = torch.arange(ids.shape[1], dtype=torch.int32, device=ids.device)
    word = torch.where(wordless.to(ids.device)[ids.to(torch.int64)], -1, places.unsqueeze(0))
    last = word.cummax(dim=1).values[:, GRAM - 1 :]
    here = places[GRAM - 1 :].unsqueeze(0)
    return ~((here - last >= far) & (length < WORDLESS * bar))
