"""An acceptance suite: checks as data. Two are shipped (``can-run``, ``production-ready``); a file of one's own has the
same form.

    title: What it says of a deployment that passes
    checks:
      - name: answers
        about: Plain questions are answered
        requests: [{messages: [{role: user, content: "..."}], max_tokens: 64}]
        needs: {sound: 1.0}

A check asks its ``requests``, ``echo`` known-answer tasks, and a ``long`` task for each length in words (an identifier
stands at the beginning of so many words and is to be repeated at their end), under its loads, and needs the measures of
replay/checks.py. A ``faithful`` check holds the engines against the golden one instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from guard.checked_yaml import parse_yaml, read_text
from guard.section import Section, formed
from replay.checks import MEASURES
from replay.echo import echo_tasks
from replay.load import Cache, read_load
from replay.matrix import Limits, Matrix
from replay.scorecard import THRESHOLDS
from replay.source import ReplayError, Source

SHIPPED: Final = ("can-run", "production-ready")
ALIASES: Final = {"acceptance": "production-ready"}

_WORDS: Final = """
harbour lantern morning timber quiet station winter copper garden letter bridge window river market engine silver meadow
ticket anchor village
""".split()  # noqa: SIM905


class Check(Section):
    """``overlong``: a prompt of so many words, which no context holds. ``needs``: measures and their least values."""

    name: Annotated[str, formed(r"[a-z][a-z0-9-]*", "a name of small letters, digits and -, beginning with a letter")]
    about: str
    requests: tuple[dict[str, Any], ...] = ()
    echo: Annotated[int, Field(ge=0, le=200)] = 0
    long: tuple[Annotated[int, Field(ge=10, le=1_000_000)], ...] = ()
    overlong: Annotated[int, Field(ge=0, le=5_000_000)] = 0
    concurrency: tuple[str, ...] = ("alone",)
    cache: tuple[Cache, ...] = ("as_is",)
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    faithful: bool = False
    needs: dict[str, float] = Field(default_factory=dict)

    @field_validator("concurrency")
    @classmethod
    def _loads(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            read_load(text)
        return value

    @field_validator("needs")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        known = {*MEASURES, *THRESHOLDS}
        if unknown := sorted(value.keys() - known):
            raise ValueError(f"{', '.join(unknown)} is no measure (there are: {', '.join(sorted(known))})")
        return value

    def sources(self, model: str) -> list[Source]:
        found = [
            Source(f"{self.name}-{number}", "completion" if "prompt" in body else "chat", {"model": model, **body})
            for number, body in enumerate(self.requests, 1)
        ]
        tasks = echo_tasks(self.name, self.echo)
        for task in tasks:  # a name of its own in every check: each has other identifiers
            name = f"{self.name}-{task.request_id}"
            found.append(Source(name, "chat", task.body(model), expected=task.expected))
        names = echo_tasks(f"{self.name}/long", len(self.long), length=6)
        for words, task in zip(self.long, names, strict=True):
            found.append(_long(f"{self.name}-long-{words}", model, words, task.expected))
        if self.overlong:
            found.append(_long(f"{self.name}-overlong", model, self.overlong, ""))
        return found

    def matrix(self, engines: Sequence[str], seed: int = 0) -> Matrix:
        at_once = max(read_load(text).at_once for text in self.concurrency)
        return Matrix(
            engines=tuple(engines),
            concurrency=self.concurrency,
            cache=self.cache,
            repeats=self.repeats,
            seed=seed,
            limits=Limits(per_engine=max(32, at_once)),
        )


class Suite(Section):
    title: str
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]


def load_suite(name: str) -> Suite:
    """A shipped one by its name, else a file. Raises ReplayError or ConfigError."""
    name = ALIASES.get(name, name)
    if name in SHIPPED:
        text = files("replay.suites").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        return parse_yaml(text, f"{name}.yaml", Suite, "title and checks")
    if not Path(name).is_file():
        raise ReplayError(f"there is no suite called {name!r}, and no such file (shipped: {', '.join(SHIPPED)})")
    return parse_yaml(read_text(name), name, Suite, "title and checks")


def _long(id_: str, model: str, words: int, expected: str) -> Source:
    filler = " ".join(_WORDS[(n * 7 + n // 20) % len(_WORDS)] for n in range(words))
    asked = f"Remember the identifier {expected}.\n\n{filler}\n\nWhich identifier were you to remember? Write it alone."
    body = {
        "model": model,
        "messages": [{"role": "user", "content": asked}],
        "temperature": 0,
        "max_tokens": 32,
    }
    return Source(id_, "chat", body, expected=expected or None)
