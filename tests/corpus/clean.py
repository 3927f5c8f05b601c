"""Honest text from what a machine has: sources, documentation, data and locale files, licences, manual pages.

Deterministic for one machine and seed: files are taken in sorted order, told apart by their content, and cut at line
ends into documents of 2 to 20 KB. The tuning and the test half never share a file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import site
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Half = Literal["tuning", "test"]

_SUFFIXES: Final = {
    ".py", ".md", ".rst", ".txt", ".json", ".csv", ".po", ".yaml", ".yml", ".toml", ".cfg", ".html", ".js", ".ts",
    ".css", ".h", ".hpp", ".c", ".pl", ".pm", ".xml", ".tex", ".sh", ".go", ".rs", ".java", ".sql", ".vim", ".pyi",
    ".cmake", ".gz",
}  # fmt: skip
_NAMES: Final = (
    "LICENSE",
    "LICENCE",
    "COPYING",
    "NOTICE",
    "AUTHORS",
    "README",
    "CHANGELOG",
    "NEWS",
    "copyright",
    "METADATA",
)
_ELSEWHERE: Final = (
    "/usr/share/doc", "/usr/share/man", "/usr/share/common-licenses", "/usr/share/perl", "/usr/share/vim",
    "/usr/include", "/usr/lib/python3", "/usr/share/locale", "/usr/share/zoneinfo", "/usr/lib/node_modules",
    "/usr/local/lib",
)  # fmt: skip
# not text that anybody wrote or a model might: packed indexes, and the tables of this project's own tests
_NEVER: Final = ("search.index", "search-index", ".min.", "/__pycache__/", "/tests/corpus/", ".map", "/static.files/")
_OTHER_WORDS: Final = re.compile("[\u0080-\U0010ffff]+")
_MOST_BYTES: Final = 400_000


@dataclass(frozen=True)
class Document:
    name: str
    text: str
    prompt: str | None = None


def roots() -> list[str]:
    paths = sysconfig.get_paths()
    own = {paths["stdlib"], paths["purelib"], *site.getsitepackages()}
    return sorted({os.path.realpath(path) for path in (*own, *_ELSEWHERE) if os.path.isdir(path)})


def files() -> list[str]:
    found: set[str] = set()
    for root in roots():
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in names:
                path = os.path.join(folder, name)
                if _wanted(path, name):
                    found.add(path)
    return sorted(found)


def documents(half: Half, most: int, seed: int = 0) -> Iterator[Document]:
    """At most ``most`` documents of one half, spread over all kinds of files."""
    paths = files()
    random.Random(seed).shuffle(paths)
    seen: set[bytes] = set()
    count = 0
    for path in paths:
        digest = hashlib.blake2b(path.encode(), digest_size=8).digest()
        if (digest[0] & 1) != (half == "test"):
            continue
        text = _read(path)
        if text is None:
            continue
        # files that begin alike are versions of one; both halves would otherwise hold the same text
        key = hashlib.blake2b(text[:2000].encode("utf-8", "replace"), digest_size=8).digest()
        if key in seen or (key[0] & 1) != (half == "test"):
            continue
        seen.add(key)
        for document in _cut(path, text, random.Random(int.from_bytes(digest, "big") + seed)):
            yield document
            count += 1
            if count >= most:
                return


def _wanted(path: str, name: str) -> bool:
    if any(part in path for part in _NEVER):
        return False
    suffix = os.path.splitext(name)[1]
    return suffix in _SUFFIXES or name.startswith(_NAMES)


def _read(path: str) -> str | None:
    try:
        if not 2000 <= os.path.getsize(path) <= _MOST_BYTES:
            return None
        data = Path(path).read_bytes()
        if path.endswith(".gz"):
            data = gzip.decompress(data)[:_MOST_BYTES]
        text = data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError):
        return None
    # a file that was itself decoded wrongly is not clean
    return text if "\0" not in text and "\ufffd" not in text and not _misread(text) else None


def _misread(text: str) -> bool:
    """Whether most words that are no ASCII are UTF-8 read as Latin-1: they can be turned back."""
    words = _OTHER_WORDS.findall(text)
    turned = 0
    for word in words:
        try:
            turned += len(word.encode("latin-1").decode()) < len(word)
        except UnicodeError:
            continue
    return turned * 2 > len(words)


def _cut(path: str, text: str, rng: random.Random) -> Iterator[Document]:
    """At most four documents of a file, so that no large file outweighs the others."""
    at = 0
    for part in range(4):
        size = int(2000 * 10 ** rng.random())
        end = text.find("\n", at + size)
        end = len(text) if end < 0 else end + 1
        # an answer does not begin in the middle of an indentation
        piece = text[at : min(end, at + 20_000)].lstrip()
        if len(piece) < 2000:
            return
        yield Document(f"{path}#{part}", piece)
        at = end
