"""A YAML file of this project's own kind, checked whole against its model: every mistake is reported with the file, the
line and the key, all of them at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
Problem = tuple[tuple[str | int, ...], str]
"""The path of a key, and what is wrong there."""


class ConfigError(Exception):
    """``problems`` are lines of the form ``file:line: key: what is wrong``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Problems(ValueError):
    """What a model's own check has found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


def read_text(path: str | Path) -> str:
    """Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (byte {error.start})"]) from error


def place_of(path: str | Path, key: str) -> str:
    """``file:line`` of a dotted key of a file that has been read before; of the deepest part of it that is there."""
    try:
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return str(path)  # it was another file a moment ago
    return f"{path}:{_line(root, tuple(key.split('.')))}"


def parse_yaml(text: str, name: str, kind: type[Model], keys: str) -> Model:
    """A file of this project's own kind, checked whole. ``keys`` says what it must hold. Raises ConfigError."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError([f"{name}:{line}: is not YAML: {error.problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{name}: is not YAML: {error}"]) from error
    except ValueError as error:  # a date such as 2026-13-01
        raise ConfigError([f"{name}:{_impossible(root)}: a value that cannot be: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{name}: is nested too deeply"]) from error
    if not isinstance(data, dict):
        raise ConfigError([f"{name}:1: must be a mapping of {keys}, and is {_kind(data)}"])
    problems = [f"{name}:{line}: {key}: is given twice" for line, key in _repeated_keys(root, (), set())]
    if problems:
        raise ConfigError(problems)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise ConfigError(list(_explain(error, root, name))) from error


def _explain(error: ValidationError, root: yaml.Node | None, name: str) -> list[str]:
    lines: list[tuple[int, str]] = []
    failed = [tuple(problem["loc"]) for problem in error.errors()]
    for problem in error.errors():
        if any(len(path) > len(problem["loc"]) and path[: len(problem["loc"])] == problem["loc"] for path in failed):
            continue  # the list that came out empty because its items are wrong is not a second mistake
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            lines.extend((_line(root, path), f"{_dotted(path)}: {text}") for path, text in cause.problems)
            continue
        path = tuple(problem["loc"])
        message = (problem["msg"][:1].lower() + problem["msg"][1:]).removeprefix("value error, ")
        if problem["type"] == "extra_forbidden":
            message = "is not a known key"
        elif problem["type"] == "missing":
            message = "is missing"
        elif problem["type"] == "too_short" and problem["ctx"]["min_length"] == 1:
            message = "must not be empty"
        lines.append((_line(root, path), f"{_dotted(path)}: {message}"))
    return [f"{name}:{line}: {text}" for line, text in sorted(set(lines))]


def _impossible(root: yaml.Node | None) -> int:
    """The line of the first scalar that is no value of its kind."""
    left, walked = [root], set()
    loader = yaml.SafeLoader("")
    while left:
        node = left.pop()
        if id(node) in walked:
            continue
        walked.add(id(node))
        if isinstance(node, yaml.MappingNode):
            left.extend(part for pair in reversed(node.value) for part in reversed(pair))
        elif isinstance(node, yaml.SequenceNode):
            left.extend(reversed(node.value))
        elif isinstance(node, yaml.ScalarNode):
            try:
                loader.construct_object(node)
            except ValueError:
                return node.start_mark.line + 1
    return 1


def _line(node: yaml.Node | None, path: tuple[str | int, ...]) -> int:
    """The line of the deepest part of the path that the file has."""
    line = 1 if node is None else node.start_mark.line + 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, node = key.start_mark.line + 1, value
                    break
            else:
                break
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _repeated_keys(node: yaml.Node | None, path: tuple[str | int, ...], walked: set[int]) -> list[tuple[int, str]]:
    """YAML lets the last of two equal keys win in silence; a config must not. ``walked`` are the nodes that were looked
    at: an alias leads to one of them again, and may lead round in circles."""
    found: list[tuple[int, str]] = []
    if id(node) in walked:
        return found
    walked.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            here = (*path, str(key.value))
            if key.value in seen:
                found.append((key.start_mark.line + 1, _dotted(here)))
            seen.add(key.value)
            found.extend(_repeated_keys(value, here, walked))
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            found.extend(_repeated_keys(value, (*path, i), walked))
    return found


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "config"


def _kind(value: Any) -> str:
    return {type(None): "empty", list: "a list", str: "a string"}.get(type(value), "a plain value")
