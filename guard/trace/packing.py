"""The payload of a spooled record, and the record again. Pure.

A record that an older version left in the spool lacks fields, which then have their defaults. So records are still
stored after an upgrade.

The long lists of numbers travel packed, from the spool to the store: taking 400 numbers apart and putting them together
again costs more than all the rest of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from guard.trace.frames import LOSS, OUTCOME, PACKED, REQUEST, SCRAPE, SKETCH
from guard.trace.record import LossRecord, OutcomeRecord, RequestRecord, ScrapeRecord, SketchRecord

ARRAYS: Final = {"output_token_ids": "I", "token_logprobs": "f", "runner_up_logprobs": "f", "prompt_token_ids": "I"}
"""What an attempt carries packed, four little-endian bytes a number. A new one comes last."""

_FEWEST: Final = 3
"""How many of them the first version that packed them knew."""


class Packed(msgspec.Struct, array_like=True):
    """A request whose attempts' lists of numbers were taken out: ``numbers`` has one for each of ``ARRAYS`` of each
    attempt, in that order."""

    request: RequestRecord
    numbers: list[bytes]


Plain = RequestRecord | OutcomeRecord | LossRecord | ScrapeRecord | SketchRecord
Record = Plain | Packed

_decoders: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    REQUEST: msgspec.msgpack.Decoder(RequestRecord),
    PACKED: msgspec.msgpack.Decoder(Packed),
    OUTCOME: msgspec.msgpack.Decoder(OutcomeRecord),
    LOSS: msgspec.msgpack.Decoder(LossRecord),
    SCRAPE: msgspec.msgpack.Decoder(ScrapeRecord),
    SKETCH: msgspec.msgpack.Decoder(SketchRecord),
}


def decode(kind: int, payload: bytes | memoryview) -> Record:
    """Raises msgspec.DecodeError (ValidationError when it is well-formed and no record)."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise msgspec.ValidationError(f"there is no record of kind {kind}")
    record: Record = decoder.decode(payload)
    if isinstance(record, Packed):
        record.numbers = _filled(record.numbers, len(record.request.attempts))
    return record


def _filled(numbers: list[bytes], attempts: int) -> list[bytes]:
    """With empty lists for those that an older version did not know."""
    each, left = divmod(len(numbers), attempts or 1)
    if each == len(ARRAYS) and attempts and not left:
        return numbers
    if left or not attempts or not _FEWEST <= each < len(ARRAYS):
        raise msgspec.ValidationError("its attempts and their numbers do not fit together")
    missing = [b""] * (len(ARRAYS) - each)
    return [one for at in range(0, len(numbers), each) for one in (*numbers[at : at + each], *missing)]


def pack(record: RequestRecord) -> list[bytes] | None:
    """The lists of numbers of a request's attempts, packed; None where there are none."""
    numbers = [packed(kind, getattr(attempt, name)) for attempt in record.attempts for name, kind in ARRAYS.items()]
    return numbers if any(numbers) else None


def whole(record: Record) -> Plain:
    """With its numbers where they were before it was packed."""
    if not isinstance(record, Packed):
        return record
    numbers = iter(record.numbers)
    for attempt in record.request.attempts:
        for name, kind in ARRAYS.items():
            setattr(attempt, name, unpacked(kind, next(numbers)))
    return record.request


def packed(kind: str, numbers: Sequence[Any]) -> bytes:
    """Little-endian bytes. Ids that are none (negative, more than 32 bits) are left out as a whole, and what is too
    large for a float is infinite."""
    if not numbers:
        return b""
    try:
        return struct.pack(f"<{len(numbers)}{kind}", *numbers)
    except struct.error:
        return b""
    except OverflowError:
        return struct.pack(f"<{len(numbers)}{kind}", *map(_narrowed, numbers))


def unpacked(kind: str, data: bytes) -> list[Any]:
    return list(struct.unpack(f"<{len(data) // 4}{kind}", data))


def _narrowed(number: float) -> float:
    return number if not abs(number) > _LARGEST else float("inf") if number > 0 else float("-inf")


_LARGEST: Final = 3.4028234663852886e38
