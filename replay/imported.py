"""Answers that were recorded elsewhere, read from files of JSON lines into observations.

One line an answer, greedy, with the keys ``engine``, ``precision``, ``concurrency``, ``prompt_id``, ``prompt_ids``,
``output_ids``, ``finish``, ``logprobs`` and ``top2`` (or ``top``: for each token its likeliest ones, best first, as
``[id, log probability]``). Optional: ``repeat``, ``version``, ``image``, ``cluster``, ``node``, ``cache``,
``kernels``, ``temperature``. ``prompts.json``, where there is one, is a list of objects with a prompt's ``id`` and its
text, ``user``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from replay.observation import Alternative, Cell, Counts, Observation, Sampling

PROMPTS: Final = "prompts.json"


class ImportFault(Exception):
    """``place`` is the file, and the line in it where there is one."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


class Imported(Struct):
    """``prompts``: request id -> text, empty where no file has them."""

    observations: list[Observation]
    prompts: dict[str, str]


class Line(Struct):
    engine: str
    prompt_id: int | str
    output_ids: list[int]
    precision: str = ""
    concurrency: int = 0
    version: str = ""
    image: str = ""
    cluster: str = ""
    node: str = ""
    cache: str = ""
    kernels: str = ""
    repeat: int | None = None
    temperature: float = 0.0
    prompt_ids: list[int] = []
    finish: str = ""
    logprobs: list[float] = []
    top2: list[list[tuple[int, float]]] = []
    top: list[list[tuple[int, float]]] = []


class Prompt(Struct):
    id: int | str
    user: str


def read_folder(folder: Path) -> Imported:
    """Every ``*.jsonl`` of the folder, by name. Raises ImportFault saying where."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise ImportFault(str(folder), "no such folder" if not folder.is_dir() else "there is no file *.jsonl in it")
    seen: Counter[tuple[Cell, str]] = Counter()
    found = []
    for file in files:
        for line in _lines(file):
            cell, name = _cell(line), _name(line.prompt_id)
            repeat = line.repeat if line.repeat is not None else seen[cell, name]
            seen[cell, name] += 1
            found.append(_observation(line, cell, name, repeat))
    return Imported(found, _prompts(folder / PROMPTS))


def _lines(file: Path) -> Iterator[Line]:
    decoder = msgspec.json.Decoder(Line)
    with file.open("rb") as lines:
        for number, data in enumerate(lines, 1):
            if data.strip():
                try:
                    line = decoder.decode(data)
                except msgspec.DecodeError as error:
                    raise ImportFault(f"{file.name}:{number}", str(error)) from error
                if problem := _uneven(line):
                    raise ImportFault(f"{file.name}:{number}", problem)
                yield line


def _uneven(line: Line) -> str:
    """What does not run side by side over the answer's tokens."""
    tokens = len(line.output_ids)
    for name, given in (("logprobs", line.logprobs), ("top2", line.top2), ("top", line.top)):
        if given and len(given) != tokens:
            return f"{name} has {len(given)} entries and output_ids {tokens}"
    return ""


def _cell(line: Line) -> Cell:
    neighbours = "none" if line.concurrency == 1 else "others" if line.concurrency > 1 else ""
    return Cell(
        engine=line.engine,
        version=line.version,
        image=line.image,
        cluster=line.cluster,
        node=line.node,
        precision=line.precision,
        concurrency=line.concurrency,
        neighbours=neighbours,
        cache=line.cache,
        kernels=line.kernels,
    )


def _observation(line: Line, cell: Cell, name: str, repeat: int) -> Observation:
    return Observation(
        request_id=name,
        cell=cell,
        repeat=repeat,
        sampling=Sampling(temperature=line.temperature),
        prompt_ids=tuple(line.prompt_ids),
        token_ids=tuple(line.output_ids),
        logprobs=tuple(line.logprobs),
        top=tuple(
            tuple(Alternative(token_id, b"", logprob) for token_id, logprob in step) for step in line.top or line.top2
        ),
        finish_reason=line.finish,
        counts=Counts(len(line.prompt_ids) or -1, len(line.output_ids)),
    )


def _name(prompt_id: int | str) -> str:
    return f"prompt-{prompt_id:02d}" if isinstance(prompt_id, int) else prompt_id


def _prompts(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        return {_name(prompt.id): prompt.user for prompt in msgspec.json.decode(file.read_bytes(), type=list[Prompt])}
    except msgspec.DecodeError as error:
        raise ImportFault(file.name, str(error)) from error
