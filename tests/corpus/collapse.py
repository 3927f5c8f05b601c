"""Collapsed answers of every kind, with the place where each begins. Deterministic by seed.

An answer is some honest text (or none) and then what the kind does for ever, cut at a token limit. Units are drawn from
generated prose of several scripts and from code and data, so that they look like what models loop on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.corpus.words import LANGUAGES, noun, prose, sentence, word

MOST: Final = 6_000  # characters of a collapsed answer, unless its unit is long


@dataclass(frozen=True)
class Collapse:
    """``onset`` is where the collapse begins, ``period`` the characters of one copy (0: it has none), ``exact`` whether
    the copies are equal, ``single`` whether one token is all of it. ``json``: the channel was to be a JSON document."""

    kind: str
    text: str
    onset: int
    period: int = 0
    exact: bool = True
    json: bool = False
    single: bool = False


_TOKENS: Final = ("!", "G", "?", "@", "&", "é", "ß", "的", "ん", "🙂", "<s>", "<pad>", "<|endoftext|>", "<unk>",
                  " the", " of", " and", " prevent", " forever", "the", "ing", " да", " und", "!!", " I", "Q",
                  "z", "€")  # fmt: skip


def _prefix(rng: random.Random, language: str = "english") -> str:
    return prose(rng, int(20 * 150 ** rng.random()), language).rstrip("\n ")


def _token_from_start(rng: random.Random) -> Collapse:
    token = rng.choice(_TOKENS)
    token = token.strip() or token if rng.random() < 0.5 and len(token) > 1 else token
    return Collapse("token from start", token * rng.randint(60, 400), 0, len(token), single=True)


def _token_late(rng: random.Random) -> Collapse:
    before = _prefix(rng, rng.choice(LANGUAGES))
    token = rng.choice(_TOKENS)
    if before.endswith(token):
        before += " so the replica fails in the middle of a sentence"
    return Collapse("token late", before + token * rng.randint(60, 400), len(before), len(token), single=True)


def _loop(kind: str, before: str, unit: str, rng: random.Random) -> Collapse:
    copies = max(14, min(400, MOST // len(unit)))
    return Collapse(kind, before + unit * rng.randint(14, copies), len(before), len(unit))


def _word(rng: random.Random) -> Collapse:
    language = rng.choice(LANGUAGES)
    unit = " " + (word(rng) if language == "english" else rng.choice(prose(rng, 60, language).split() or ["so"]))[:14]
    unit += rng.choice(["", "", ",", " and"])
    return _loop("word", _prefix(rng, language), unit, rng)


def _phrase(rng: random.Random) -> Collapse:
    language = rng.choice(LANGUAGES)
    text = prose(rng, 200, language).replace("\n", " ")
    start = rng.randint(0, 100)
    unit = text[start : start + rng.randint(8, 60)].strip() + rng.choice([" ", ", ", ". ", "\n"])
    return _loop("phrase", _prefix(rng, language) + "\n", unit, rng)


def _sentence(rng: random.Random) -> Collapse:
    language = rng.choice(LANGUAGES)
    unit = sentence(rng, language) + rng.choice([" ", "\n", "\n\n"])
    return _loop("sentence", _prefix(rng, language) + rng.choice([" ", "\n", "\n\n"]), unit, rng)


def _paragraph(rng: random.Random) -> Collapse:
    unit = prose(rng, 10_000)[: rng.randint(150, 1_990)] + "\n\n"
    return _loop("paragraph", _prefix(rng) + "\n\n", unit, rng)


def _any_period(rng: random.Random) -> Collapse:
    """Cut anywhere, in the middle of words too."""
    language = rng.choice(LANGUAGES)
    text = prose(rng, 5_000, language)
    size = int(12 * 160 ** rng.random())
    start = rng.randint(0, len(text) - size)
    return _loop("cut anywhere", _prefix(rng, language), text[start : start + size], rng)


def _code_loop(rng: random.Random) -> Collapse:
    name, other = noun(rng), word(rng)
    unit = rng.choice([
        f"    {name} = {other}({name}, {noun(rng)})\n",
        f"    if {name} is None:\n        return {other}\n    {noun(rng)}.append({name})\n",
        f"def {name}(self):\n    return self.{other}_{noun(rng)}\n\n",
        f"<div class=\"{name}\"><span>{sentence(rng)}</span></div>\n",
        f"import {name}\nfrom {other} import {noun(rng)}\n",
    ])  # fmt: skip
    copies = rng.randint(40, 120)
    before = "```python\n" + prose(rng, 100) + "\n"
    return Collapse("code", before + unit * copies, len(before), len(unit))


def _row_loop(rng: random.Random) -> Collapse:
    unit = rng.choice([
        f"| {noun(rng)} | {word(rng)} | {sentence(rng)} |\n",
        json.dumps({"name": noun(rng), "state": word(rng), "text": sentence(rng)}) + ",\n",
        f"{noun(rng)},{word(rng)},{noun(rng)},{word(rng)}\n",
        f'    "{noun(rng)}",\n',
    ])  # fmt: skip
    before = prose(rng, 200) + "\n\n"
    if unit.startswith("    "):
        before = '{\n  "items": [\n    "first",\n'
    return Collapse("rows", before + unit * rng.randint(70, 200), len(before), len(unit))


def _near_counter(rng: random.Random) -> Collapse:
    text = sentence(rng)
    shape = rng.choice([
        "Step {i}: wait, {t}\n", "{i}. {t}\n", "Attempt {i} failed. {t} ", "({i}) {t}\n", "{t} This is try {i}.\n\n",
        "**Step {i}.** {t}\n", "- Item {i}: {t}\n", "In {y}, {t} ", "Chapter {i}\n\n{t}\n\n", "[{i}] {t}\n",
    ])  # fmt: skip
    first = rng.randint(1, 90)
    pieces = [shape.format(i=first + k, y=1900 + k, t=text) for k in range(rng.randint(24, 90))]
    return _near("near: counter", rng, pieces)


def _near_list(rng: random.Random) -> Collapse:
    item = rng.choice([noun(rng).title(), f"{word(rng)} {noun(rng)}", f"The {noun(rng)}", "Banana", "TODO"])
    pieces = [f"{k}{rng.choice(['.'])} {item}\n" for k in range(1, rng.randint(50, 120))]
    return _near("near: list", rng, pieces)


def _near_digits(rng: random.Random) -> Collapse:
    text = sentence(rng)[:-1].lower()
    pieces = [f"It took {rng.randint(1, 999)} days and {rng.randint(1, 99)} hours until {text}. " for _ in range(60)]
    return _near("near: digits", rng, pieces)


def _near_blank(rng: random.Random) -> Collapse:
    parts = sentence(rng).split()
    gaps = [" ", "  ", "\n", "\n\n", "   ", " \n", "\t"]
    pieces = ["".join(part + (rng.choice(gaps) if rng.random() < 0.3 else " ") for part in parts) for _ in range(40)]
    return _near("near: white space", rng, pieces)


def _near_marks(rng: random.Random) -> Collapse:
    shape = rng.choice(["{i}. [{i}]\n", "1. [{i}]\n", "[{i}] ({i})\n", "{i}) {j}.\n", "#{i} - {i}\n"])
    return _near("near: counters only", rng, [shape.format(i=k, j=k + 1) for k in range(1, 120)])


_COUNTERS: Final = (
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
    "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI XXII XXIII XXIV",
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty twenty-one twenty-two twenty-three twenty-four",
)


def _near_letters(rng: random.Random) -> Collapse:
    text = sentence(rng)
    counters = rng.choice(_COUNTERS).split()
    shape = rng.choice(["{i}. {t}\n", "({i}) {t}\n", "Step {i}: {t}\n", "**Attempt {i}:** {t}\n\n", "- {i}) {t}\n"])
    return _near("near: letters", rng, [shape.format(i=counter, t=text) for counter in counters])


def _near(kind: str, rng: random.Random, pieces: list[str]) -> Collapse:
    before = _prefix(rng) + "\n\n" if rng.random() < 0.8 else ""
    period = sum(map(len, pieces[:12])) // 12
    return Collapse(kind, before + "".join(pieces), len(before), period, exact=False)


def _stutter(rng: random.Random) -> Collapse:
    text = prose(rng, rng.randint(500, 2_000))
    pieces: list[str] = []
    glued = rng.random() < 0.5
    for part in text.split():
        if glued and len(part) > 6:
            pieces += [" " + part[:4], part[4:]]
        else:
            pieces.append(" " + part)
    return Collapse("stutter", "".join(piece * 2 for piece in pieces), 0)


def _several_times(rng: random.Random) -> Collapse:
    times = rng.randint(3, 6)
    text = prose(rng, rng.randint(300, 900))
    return Collapse("several times", "".join(f" {part}" * times for part in text.split()), 0)


def _recovered(rng: random.Random) -> Collapse:
    unit = " " + word(rng) + rng.choice(["", " " + noun(rng)])
    before = _prefix(rng)
    text = before + unit * rng.randint(20, 40) + f"\n\nSorry, let me start again. {prose(rng, 600)}"
    return Collapse("recovered", text, len(before), len(unit))


def _blank_in_json(rng: random.Random) -> Collapse:
    before = rng.choice(['{"name": "x"', '{"items": [1, 2,', '{"a": {"b": "c"},', "[", '{"text": "it said \\"no\\""'])
    blank = rng.choice([" " * 500, "\n " * 200, "\n\t" * 200, "".join(rng.choice(" \n\t ") for _ in range(600))])
    return Collapse("white space in JSON", before + blank, len(before), json=True)


def _blank_after_json(rng: random.Random) -> Collapse:
    before = json.dumps({noun(rng): [1, 2, {"x": sentence(rng)}]}, indent=rng.choice([None, 2]))
    blank = rng.choice([" " * 400, "\n" * 200, " \n" * 200])
    return Collapse("white space after JSON", before + blank, len(before), json=True)


def _newlines(rng: random.Random) -> Collapse:
    before = _prefix(rng) if rng.random() < 0.7 else ""
    return Collapse("new lines", before + rng.choice(["\n", "\n\n", " \n", "\n \n"]) * 120, len(before))


def _replacement(rng: random.Random) -> Collapse:
    language = rng.choice(LANGUAGES[1:])
    text = prose(rng, 400, language)
    at = rng.randint(20, len(text) - 20)
    return Collapse("replacement character", text[:at] + "\ufffd" * rng.randint(1, 3) + text[at + 1 :], at)


def _mojibake(rng: random.Random) -> Collapse:
    words = [
        "Ich",
        "möchte",
        "wissen,",
        "ob",
        "die",
        "Straße",
        "schön",
        "für",
        "Fußgänger",
        "ist",
        "—",
        "„überall“",
        "heißt",
        "es,",
        "sie",
        "wäre",
        "größer.",
    ]
    text = " ".join(rng.choice(words) for _ in range(80)).encode().decode("cp1252", "replace").replace("\ufffd", "")
    return Collapse("mojibake", text, 0)


KINDS: Final[dict[str, Callable[[random.Random], Collapse]]] = {
    "token from start": _token_from_start, "token late": _token_late, "word": _word, "phrase": _phrase,
    "sentence": _sentence, "paragraph": _paragraph, "cut anywhere": _any_period, "code": _code_loop, "rows": _row_loop,
    "recovered": _recovered, "near: counter": _near_counter, "near: list": _near_list, "near: digits": _near_digits,
    "near: white space": _near_blank, "near: counters only": _near_marks, "near: letters": _near_letters,
    "stutter": _stutter, "several times": _several_times,
    "white space in JSON": _blank_in_json, "white space after JSON": _blank_after_json, "new lines": _newlines,
    "replacement character": _replacement, "mojibake": _mojibake,
}  # fmt: skip
EXACT: Final = (
    "token from start",
    "token late",
    "word",
    "phrase",
    "sentence",
    "paragraph",
    "cut anywhere",
    "recovered",
)
EXPLAINED: Final = ("code", "rows")
NEAR: Final = (
    "near: counter",
    "near: list",
    "near: digits",
    "near: white space",
    "near: counters only",
    "near: letters",
)


REAL: Final = "real loops"


def real_loops() -> list[tuple[str, Collapse]]:
    """Recorded answers of a real model, each with its prompt (tests/corpus/record_loops.py)."""
    found = []
    for line in (Path(__file__).parent / "real_loops.jsonl").read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        single = told["exact"] and told["period"] == 1
        found.append(
            (told["prompt"], Collapse(REAL, told["text"], told["onset"], told["period"], told["exact"], single=single))
        )
    return found


def collapses(each: int, seed: int = 0) -> Iterator[Collapse]:
    """``each`` answers of every kind."""
    for kind, make in KINDS.items():
        rng = random.Random(f"collapse {kind} {seed}")
        for _ in range(each):
            yield make(rng)
