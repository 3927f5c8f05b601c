"""Honest answers that repeat themselves: what a detector must let through, with the prompt that called for it where one
did. Deterministic by seed."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Final

from tests.corpus.clean import Document
from tests.corpus.words import noun, prose, sentence, word


def _table(rng: random.Random) -> str:
    columns = rng.randint(2, 6)
    width = rng.randint(4, 60)
    head = "| " + " | ".join(noun(rng).title() for _ in range(columns)) + " |\n"
    rule = "|" + "|".join("-" * width for _ in range(columns)) + "|\n"
    value = rng.choice(["0", "-", "", "N/A", "yes", "✓"])
    rows = [f"| row {i} | " + " | ".join(value for _ in range(columns - 1)) + " |\n" for i in range(rng.randint(4, 60))]
    return head + rule + "".join(rows)


def _equal_rows(rng: random.Random) -> str:
    row = "| " + " | ".join(rng.choice(["0", "-", "none", "ok"]) for _ in range(rng.randint(2, 6))) + " |\n"
    return "| a | b |\n|---|---|\n" + row * rng.randint(4, 24)


def _zeros(rng: random.Random) -> str:
    n, m = rng.randint(4, 20), rng.randint(4, 20)
    value = rng.choice(["0", "1", "0.0", "0.0"])
    form = rng.randrange(4)
    if form == 0:
        return json.dumps([[float(value)] * m] * n)
    if form == 1:
        return "\n".join(",".join([value] * m) for _ in range(n)) + "\n"
    if form == 2:
        return "[" + ", ".join([value] * rng.randint(20, 300)) + "]"
    return "[\n" + ",\n".join("    [" + ", ".join([value] * m) + "]" for _ in range(n)) + "\n]\n"


def _numbers(rng: random.Random) -> str:
    n = rng.randint(50, 400)
    form = rng.randrange(5)
    if form == 0:
        return ", ".join(str(i) for i in range(1, n))
    if form == 1:
        return "\n".join(str(rng.randint(0, 9)) for _ in range(n))
    if form == 2:
        return "\n".join(",".join(f"{rng.random():.3f}" for _ in range(5)) for _ in range(n // 4))
    if form == 3:
        return " ".join(rng.choice("01") for _ in range(n))
    return "\n".join(f"{i} x {k} = {i * k}" for i in range(1, 13) for k in range(1, 13))


def _base64(rng: random.Random) -> str:
    data = rng.randbytes(rng.randint(20, 200)) + bytes(rng.randint(20, 130)) + rng.randbytes(rng.randint(20, 300))
    text = base64.b64encode(data).decode()
    return "data:application/octet-stream;base64," + text if rng.random() < 0.5 else text


def _hex(rng: random.Random) -> str:
    lines = []
    for i in range(rng.randint(8, 40)):
        data = bytes(16) if rng.random() < 0.4 else rng.randbytes(16)
        lines.append(f"{i * 16:08x}  " + " ".join(f"{b:02x}" for b in data) + "  |" + "." * 16 + "|\n")
    return "".join(lines)


def _art(rng: random.Random) -> str:
    form = rng.randrange(6)
    if form == 0:
        width = rng.randint(20, 120)
        return "+" + "-" * width + "+\n" + ("|" + " " * width + "|\n") * rng.randint(3, 12) + "+" + "-" * width + "+\n"
    if form == 1:
        return "\n".join(" " * (20 - i) + "*" * (2 * i + 1) for i in range(20))
    if form == 2:
        return "\n".join("".join(rng.choice("#.") for _ in range(40)) for _ in range(20))
    if form == 3:
        return "\n".join(("# " * 20).strip() if i % 2 else (" #" * 20) for i in range(rng.randint(4, 8)))
    if form == 4:
        return "\n".join(f"{noun(rng):12} [{'█' * k}{'░' * (40 - k)}] {k * 2.5:.0f}%" for k in range(0, 41, 4))
    return "Loading" + "." * rng.randint(3, 40) + " done\n" + "~" * rng.randint(20, 100) + "\n"


def _rules(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(3, 10)):
        mark = rng.choice("=-*_~#")
        parts.append(f"{sentence(rng)}\n{mark * rng.randint(10, 120)}\n")
    return "".join(parts)


def _code(rng: random.Random) -> str:
    names = [f"{word(rng)}_{noun(rng)}" for _ in range(rng.randint(6, 20))]
    form = rng.randrange(5)
    if form == 0:
        return "```python\n" + "".join(
            f"    def get_{name}(self):\n        return self._{name}\n\n" for name in names
        ) + "```\n"  # fmt: skip
    if form == 1:
        return "".join(f"#define {name.upper()}_{i} 0x{i:04x}\n" for i, name in enumerate(names * 3))
    if form == 2:
        return "".join(f"test_{name}_{i:03} ... ok\n" for i, name in enumerate(names * 3))
    if form == 3:
        return "int table[] = {\n" + "    0, 0, 0, 0, 0, 0, 0, 0,\n" * rng.randint(4, 30) + "};\n"
    lines = "".join(f"INSERT INTO t (id, name) VALUES ({i}, '{name}');\n" for i, name in enumerate(names * 4))
    return f"```sql\n{lines}```\n"


def _rows(rng: random.Random) -> str:
    form = rng.randrange(4)
    n = rng.randint(10, 60)
    if form == 0:
        return "\n".join(json.dumps({"id": i, "name": noun(rng), "active": True, "score": 0}) for i in range(n))
    if form == 1:
        return json.dumps([{"id": i, "status": "ok", "value": 0} for i in range(n)], indent=rng.choice([None, 2]))
    if form == 2:
        return json.dumps([{"name": "", "value": None}] * rng.randint(4, 24))
    return "\n".join(f"{i},{noun(rng)},{rng.randint(0, 9)},true" for i in range(n))


def _log(rng: random.Random) -> str:
    what = rng.choice(["heartbeat ok", "GET /health 200", "connection from 10.0.0.7 accepted", "retrying in 5s"])
    return "\n".join(
        f"2026-01-{rng.randint(10, 28)} 12:{i % 60:02}:{rng.randint(10, 59)} INFO {what}"
        for i in range(rng.randint(10, 60))
    )


def _verse(rng: random.Random) -> str:
    refrain = f"Oh {noun(rng)}, my {noun(rng)}, come back to me\n"
    stanzas = []
    for _ in range(rng.randint(3, 8)):
        lines = "".join(sentence(rng)[:-1] + ",\n" for _ in range(4))
        stanzas.append(lines + refrain * rng.randint(1, 4) + "\n")
    return "".join(stanzas)


def _laughter(rng: random.Random) -> str:
    laugh = rng.choice(["ha", "ha ", "haha ", "hee ", "la ", "na ", "ja", "哈", "w", "lol ", "no "]) * rng.randint(
        3, 12
    )
    loud = "N" + "o" * rng.randint(3, 12) + "!" * rng.randint(1, 10)
    return f'"{laugh.strip()}," said the {noun(rng)}. {loud} {prose(rng, 200)} So long{"." * rng.randint(3, 8)}'


def _hashes(rng: random.Random) -> str:
    return "\n".join(
        f"{hashlib.sha256(rng.randbytes(8)).hexdigest()}  {noun(rng)}-{i}.tar.gz" for i in range(rng.randint(5, 40))
    ) + "\n" + "0" * 40 + "\n" + "f" * 32  # fmt: skip


def _dna(rng: random.Random) -> str:
    return (
        "\n".join("".join(rng.choice("ACGT") for _ in range(60)) for _ in range(20)) + "\n" + "A" * rng.randint(5, 30)
    )


def _tree(rng: random.Random) -> str:
    return "\n".join("│   " * rng.randint(0, 5) + "├── " + noun(rng) + ".py" for _ in range(rng.randint(10, 60)))


def _list(rng: random.Random) -> str:
    return "\n".join(f"{i}. {sentence(rng)}" for i in range(1, rng.randint(10, 100)))


def _steps(rng: random.Random) -> str:
    return "\n".join(f"Step {i}: the {noun(rng)} {word(rng)} the {noun(rng)}." for i in range(1, rng.randint(8, 40)))


KINDS: Final[dict[str, Callable[[random.Random], str]]] = {
    "table": _table, "equal rows": _equal_rows, "zeros": _zeros, "numbers": _numbers, "base64": _base64, "hex": _hex,
    "art": _art, "rules": _rules, "code": _code, "rows": _rows, "log": _log, "verse": _verse, "laughter": _laughter,
    "hashes": _hashes, "dna": _dna, "tree": _tree, "list": _list, "steps": _steps,
}  # fmt: skip


def _asked(rng: random.Random) -> tuple[str, str]:
    n = rng.choice([20, 50, 100, 200, 300, 500])
    what = rng.choice(["OK", "hello", "I will not talk in class", "test", "yes sir"])
    form = rng.randrange(6)
    if form == 0:
        return f"Write {what} {n} times.", (what + rng.choice([" ", "\n", ", "])) * n
    if form == 1:
        return f"Give me a JSON array of {n} zeros.", json.dumps([0] * n)
    if form == 2:
        return f"Print a line of {n} dashes", "-" * n
    if form == 3:
        return f'Repeat the sentence "{what}!" {n} times, numbered.', "".join(
            f"{i}. {what}!\n" for i in range(1, n + 1)
        )
    if form == 4:
        return f"Continue: {(what + ' ') * 12}", (what + " ") * 40
    return f"Bitte schreibe {n} mal das Wort {what}", (what + "\n") * n


def honest(count: int, seed: int = 0) -> Iterator[Document]:
    """``count`` documents, all kinds in turn, each standing in some prose; every fourth was asked for."""
    rng = random.Random(f"honest {seed}")
    kinds = list(KINDS.items())
    for i in range(count):
        if i % 4 == 3:
            prompt, text = _asked(rng)
            before = "" if rng.random() < 0.5 else "Sure, here you are:\n\n"
            yield Document(f"asked#{i}", before + text, prompt)
            continue
        name, make = kinds[i % len(kinds)]
        text = f"{prose(rng, rng.randint(0, 400))}\n\n{make(rng)}\n\n{prose(rng, rng.randint(0, 400))}"
        yield Document(f"{name}#{i}", text, rng.choice([None, "Please show me an example."]))
