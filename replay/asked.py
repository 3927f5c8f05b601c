"""What ``outguard replay`` was asked for: its options, and the matrix, requests and thresholds that they mean."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from guard.checked_yaml import parse_yaml, read_text
from guard.config import Config
from guard.options import read_config, reading
from replay import journal
from replay.matrix import Matrix, chosen
from replay.scorecard import THRESHOLDS
from replay.select import Selection, add_neighbours, by_condition, by_id, from_file
from replay.source import ReplayError
from replay.where import WhereError, parse


class Asked(Struct, frozen=True, kw_only=True, dict=True):
    """The options by their names; None and False where they were not given. The configuration is read when it is first
    needed: a folder of recorded answers is judged without one."""

    config_path: Path
    command: str
    trace_id: str | None = None
    traces: tuple[str, ...] = ()
    where: str | None = None
    since: float | None = None
    file: Path | None = None
    import_: Path | None = None
    golden: str | None = None
    candidate: str | None = None
    thresholds: tuple[str, ...] = ()
    suite: str | None = None
    sample: int = 0
    matrix_file: Path | None = None
    engines: str | None = None
    concurrency: str | None = None
    cache: str | None = None
    repeats: int | None = None
    echo: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    per_second: float | None = None
    seed: int | None = None
    plan_only: bool = False
    resume: str | None = None
    list_: bool = False
    folder: Path | None = None
    html: Path | None = None
    json_: bool = False

    @cached_property
    def config(self) -> Config:
        """What is wrong with it ends the process with 2."""
        return read_config(self.config_path)

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.folder or journal.folder_of(self.config)

    @property
    def names_requests(self) -> bool:
        return bool(self.trace_id or self.traces or self.file) or self.where is not None or self.since is not None

    def matrix(self) -> Matrix:
        """The file's, with the flags over it. Raises ConfigError on mistakes of the file, ReplayError on those of
        flags."""
        declared = Matrix()
        if self.matrix_file is not None:
            keys = "a matrix (engines, concurrency, repeats, ...)"
            declared = parse_yaml(read_text(self.matrix_file), str(self.matrix_file), Matrix, keys)
        whole: dict[str, Any] = declared.model_dump()
        for name in ("engines", "concurrency", "cache"):
            given: str | None = getattr(self, name)
            if given is not None:
                whole[name] = tuple(part.strip() for part in given.split(",") if part.strip())
                if not whole[name]:  # a variable of a script that is not set, which must not mean all of them
                    raise ReplayError(f"--{name}: names nothing")
        whole |= self._given("repeats", "echo", "seed")
        whole["sampling"] |= self._given("temperature", "max_tokens")
        whole["limits"] |= self._given("per_second")
        try:
            return Matrix.model_validate(whole)
        except ValidationError as error:
            places = [one["loc"] for one in error.errors()]
            told = [
                f"{'.'.join(map(str, one['loc'])) or 'matrix'}: {one['msg']}"
                for one in error.errors()
                # that a list lacks what is wrong in it goes without saying
                if not any(len(place) > len(one["loc"]) and place[: len(one["loc"])] == one["loc"] for place in places)
            ]
            raise ReplayError("; ".join(told).replace("Value error, ", "")) from error

    def _given(self, *names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def selection(self, matrix: Matrix) -> Selection:
        """Raises ReplayError when nothing is chosen, or in two ways."""
        ids = [*([self.trace_id] if self.trace_id else []), *self.traces]
        ways = [bool(ids), self.where is not None or self.since is not None, self.file is not None]
        if sum(ways) != 1:
            said = "only one of them" if sum(ways) else "what to run again"
            raise ReplayError(f"say {said}: TRACE_ID (or --trace), --where and --since, or --file")
        if self.file is not None:
            return from_file(self.file, sample=self.sample)
        with reading(self.config_path) as reader:
            if ids:
                found = by_id(reader, ids)
            else:
                try:
                    condition = parse(self.where) if self.where else None
                except WhereError as error:
                    raise ReplayError(f"--where: {error}") from error
                found = by_condition(reader, condition, since=self.since, sample=self.sample, seed=matrix.seed)
            together = [load.at_once for load in matrix.loads if load.kind == "recorded"]
            if together:
                add_neighbours(reader, found, max(together))
            return found

    def engine_names(self) -> tuple[str, ...]:
        """Those that were named, else all of the configuration. Raises ReplayError."""
        try:
            return tuple(engine.name for engine in chosen(self.matrix(), self.config.engines, ()))
        except ValueError as error:
            raise ReplayError(str(error)) from error

    def bounds(self) -> dict[str, float]:
        """The thresholds of faithfulness."""
        found = dict(THRESHOLDS)
        for one in self.thresholds:
            name, _, value = one.partition("=")
            if name not in THRESHOLDS:
                known = ", ".join(THRESHOLDS)
                raise ReplayError(f"--threshold {one}: there is none called {name!r} (there are: {known})")
            try:
                found[name] = float(value)
            except ValueError:
                raise ReplayError(f"--threshold {one}: {value!r} is no number") from None
        return found
