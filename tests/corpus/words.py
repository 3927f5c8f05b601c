"""Sentences without end: a small grammar in several scripts, so that generated text never runs short or repeats."""

from __future__ import annotations

import random
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ADJECTIVES: Final = _words(
    "old quiet narrow bright northern careful distant early empty gentle heavy hidden honest hollow late little loose "
    "low modern patient plain proud quick rare ripe rough round salty sharp short silver slow small soft steady "
    "strange tall thin tired warm weak wide wild wooden young"
)
_NOUNS: Final = _words(
    "harbour engine letter teacher garden river market bridge window lantern captain kitchen valley station painter "
    "mirror violin castle engineer forest farmer island journey kettle ladder meadow notebook orchard pocket quarry "
    "railway sailor tailor umbrella village winter baker candle doctor evening factory glacier hammer compiler server "
    "schema request token buffer cache index query thread packet kernel module parser"
)
_VERBS: Final = _words(
    "carries follows remembers opens answers crosses paints repairs leaves watches measures counts hides lifts moves "
    "keeps finds builds cleans reads sends returns checks stores explains ignores welcomes brings breaks forgets"
)
_LINKS: Final = ("while", "because", "although", "and", "before", "after", "until", "so that", "whereas", "but")
_OTHER: Final = {
    "german": _words(
        "Der alte Hafen liegt hinter der Brücke und wartet auf das Schiff aus dem Norden während er schläft"
    ),
    "russian": _words("старый город стоит у реки где рыбак каждое утро чинит сети пока дети идут через мост в школу"),
    "chinese": tuple("我们在河边的小镇上住了很久每天早晨都能听见火车经过山谷然后慢慢消失在雾里老师说春天快到了"),
    "japanese": tuple("私たちは川のそばの小さな町に長く住んでいて毎朝汽車が谷を通りすぎる音を聞きながら学校へ行きます"),
    "arabic": _words("كان البحر هادئا والقوارب تعود إلى الميناء قبل غروب الشمس بينما ينتظر الناس أخبار المسافرين"),
    "emoji": _words("🌊 🚀 the 🐙 sails 🌞 over a 🏔️ and 🎻 plays for the 🦊 near the 🍎 tree"),
}
LANGUAGES: Final = ("english", *_OTHER)


def sentence(rng: random.Random, language: str = "english") -> str:
    if language != "english":
        words = _OTHER[language]
        space = "" if language in ("chinese", "japanese") else " "
        end = "。" if not space else "."
        return space.join(rng.sample(words, rng.randint(5, min(12, len(words))))) + end
    clause = _clause(rng)
    if rng.random() < 0.5:
        clause += f"{rng.choice([',', ''])} {rng.choice(_LINKS)} {_clause(rng)}"
    return clause[0].upper() + clause[1:] + rng.choice("....!?")


def prose(rng: random.Random, chars: int, language: str = "english") -> str:
    parts: list[str] = []
    size = 0
    gap = "" if language in ("chinese", "japanese") else " "
    while size < chars:
        part = sentence(rng, language) + (gap if rng.random() < 0.85 else "\n\n")
        parts.append(part)
        size += len(part)
    return "".join(parts)


def noun(rng: random.Random) -> str:
    return rng.choice(_NOUNS)


def word(rng: random.Random) -> str:
    return rng.choice((_NOUNS, _ADJECTIVES, _VERBS)[rng.randrange(3)])


def _clause(rng: random.Random) -> str:
    subject = f"the {rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}"
    return f"{subject} {rng.choice(_VERBS)} {rng.choice(['the', 'a', 'every', 'no'])} {rng.choice(_NOUNS)}"
