"""The official JSON-Schema test suite, read from its folder."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from guard.constraint.compile import CompiledConstraint

DRAFTS: Final = ("draft7", "draft2020-12")
_URIS: Final = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_REMOTE: Final = "http://localhost:1234/"
# documents of other drafts refer to meta-schemas that a registry of this draft does not have
_FOREIGN: Final = {"draft7": ("/v1/", "/draft2"), "draft2020-12": ("/v1/", "/draft7/")}


def registry(suite: Path, folder: str) -> Any:
    """The suite's remote documents."""
    draft = {"draft7": jsonschema_rs.Draft7, "draft2020-12": jsonschema_rs.Draft202012}[folder]
    remotes = suite / "remotes"
    documents = [
        (_REMOTE + path.relative_to(remotes).as_posix(), json.loads(path.read_text()))
        for path in remotes.rglob("*.json")
    ]
    kept = [one for one in documents if not any(part in one[0] for part in _FOREIGN[folder])]
    return jsonschema_rs.Registry(kept, draft=draft)


def cases(suite: Path, folder: str, part: str = "") -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """(name, schema, tests) of the required cases, or of ``part`` (optional, optional/format). A schema that names no
    draft gets the folder's."""
    for path in sorted((suite / folder / part).glob("*.json")):
        for group in json.loads(path.read_text()):
            schema = group["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": _URIS[folder], **schema}
            yield f"{path.stem}: {group['description']}", schema, group["tests"]


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of its objects in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    if isinstance(value, list):
        return [shuffled(one, rng) for one in value]
    return value


def verdict(compiled: CompiledConstraint, text: str, size: int) -> bool:
    """Whether a document is taken, fed in pieces of ``size`` characters."""
    checker = compiled.checker()
    for at in range(0, len(text), size):
        if any(finding.severity == "error" for finding in checker.feed(text[at : at + size])):
            return False
    return not any(finding.severity == "error" for finding in checker.finish(False))
