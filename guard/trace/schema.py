"""The tables' versions: migrations that ship inside the package, and which of them a store still lacks. Pure but for
reading the package's own files.

A migration is a file ``ddl/NNNN_name.sql``. It is applied whole, in order, and written down in ``schema_migrations``.
Every statement of one can be run twice, so that a starter that was cut off, or two at once, do no harm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Final, NamedTuple

from guard.trace.layout import Layout
from guard.trace.store import Target, WrongSchema

TABLE: Final = "schema_migrations"


class Migration(NamedTuple):
    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All of them, in order."""
    found = []
    for item in resources.files("guard.trace").joinpath("ddl").iterdir():
        match = re.fullmatch(r"(\d{4})_\w+\.sql", item.name)
        if match:
            found.append(Migration(int(match[1]), item.name, item.read_text(encoding="utf-8")))
    return sorted(found)


def latest() -> int:
    """The version that this program reads and writes."""
    return migrations()[-1].version


def pending(applied: Mapping[int, str], store: str) -> list[Migration]:
    """What is to be applied to a store that has ``applied`` (version: name). ``store`` is its name, for the message.

    Raises WrongSchema on a store that a newer program has changed: this one does not know what its rows mean there.
    """
    known = migrations()
    newest = max(applied, default=0)
    if newest > known[-1].version:
        raise WrongSchema(
            f"the trace store {store} has schema {newest} ({applied[newest]}), which a newer Outguard has made; "
            f"this one knows schema {known[-1].version}: upgrade it"
        )
    return [migration for migration in known if migration.version not in applied]


def statements(text: str) -> list[str]:
    """A migration's statements: each ends with a semicolon at the end of a line."""
    bare = re.sub(r"(?m)^\s*--.*$", "", text)
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", bare) if part.strip()]


def forms(target: Target) -> list[str]:
    """Every statement of every migration, as it is for a server or for its cluster."""
    layout = Layout(target.cluster, target.database, target.replicated) if target.cluster else None
    found = [statement for migration in migrations() for statement in statements(migration.text)]
    return [form for statement in found for form in layout.statements(statement)] if layout else found
