"""What each token id stands for, as bytes. Pure.

Read from the content of a ``tokenizer.json`` (the format of the tokenizers library). Two ways of writing bytes are
known, which cover the large open models: the byte-level alphabet of GPT-2 (Llama 3, Qwen, DeepSeek, SmolLM), and
SentencePiece's pieces with ``▁`` for a blank and ``<0xNN>`` for a single byte (Llama 2, Mistral, Gemma). Other decoders
are refused: a wrong byte would be a silent change of an answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class Vocabulary:
    """``name`` is the same for the same ``tokenizer.json``: ids may go from one engine to another only where it is.
    ``ends``: ids that end an answer, and so are no text. ``special``: control tokens, those among them."""

    def __init__(self, name: str, pieces: list[bytes], special: frozenset[int], ends: frozenset[int]) -> None:
        self.name = name
        self.pieces = pieces
        self.special = special
        self.ends = ends

    def __len__(self) -> int:
        return len(self.pieces)

    def knows(self, ids: Iterable[int]) -> bool:
        size = len(self.pieces)
        return all(0 <= token < size for token in ids)

    def data(self, token: int) -> bytes:
        """The bytes of one token: none for one that ends the answer, or that the vocabulary lacks (the rows by which
        engines pad their matrices)."""
        return b"" if token in self.ends or not 0 <= token < len(self.pieces) else self.pieces[token]

    def text(self, ids: Iterable[int]) -> str:
        return b"".join(map(self.data, ids)).decode("utf-8", "replace")


def fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def read_vocabulary(name: str, file: Mapping[str, Any], ends: Iterable[int] = ()) -> Vocabulary:
    """``file``: a parsed tokenizer.json. Raises ValueError, saying what is not known in it."""
    model, added = file.get("model"), file.get("added_tokens") or []
    if not isinstance(model, dict) or "vocab" not in model:
        raise ValueError("it has no vocabulary")
    ids = dict(_vocab(model["vocab"]))
    to_bytes = _alphabet(file.get("decoder"))
    size = max([*ids.values(), *(token["id"] for token in added)], default=-1) + 1
    pieces = [b""] * size
    for text, token in ids.items():
        pieces[token] = to_bytes(text)
    for token in added:
        pieces[token["id"]] = str(token["content"]).encode()
    special = frozenset(token["id"] for token in added if token.get("special"))
    return Vocabulary(name, pieces, special, frozenset(ends))


def _vocab(vocab: Any) -> Iterator[tuple[str, int]]:
    """A dict (BPE), or a list of (piece, score) (Unigram)."""
    if isinstance(vocab, dict):
        yield from vocab.items()
        return
    for token, (text, *_) in enumerate(vocab):
        yield text, token


def _alphabet(decoder: Any) -> Any:
    kinds = set(_kinds(decoder))
    if "ByteLevel" in kinds:
        return _from_byte_level
    if kinds & {"ByteFallback", "Metaspace"} or "▁" in str(decoder):
        return _from_sentencepiece
    raise ValueError(f"its decoder is not known: {', '.join(sorted(kinds)) or 'there is none'}")


def _kinds(decoder: Any) -> Iterator[str]:
    if isinstance(decoder, dict):
        yield str(decoder.get("type"))
        for inner in decoder.get("decoders") or ():
            yield from _kinds(inner)


def _from_sentencepiece(text: str) -> bytes:
    byte = _BYTE.match(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _from_byte_level(text: str) -> bytes:
    try:
        return bytes(map(_BYTES.__getitem__, text))
    except KeyError:  # a token that was added with its plain text, and not listed as such
        return text.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable Latin-1 stands for itself, the other bytes for characters from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES: Final = _byte_alphabet()
