"""JSON within structural tags: where it stands is the tag's to say, what it must be its schema's.

Each JSON schema of a tag is replaced by a mark, a character that no answer needs. The grammar of what is left says
where a mark may stand; what stands there instead is read by the checker of its schema (json_check.py, or
tagged_arguments.py where the JSON is written as tags), keys in any order and judged as all JSON is, and the grammar
hears the mark once the document is whole. Free text is kept from holding marks. Where something else than JSON may
begin at the same place, both readings go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from detectors.finding import Finding
from guard.constraint.compile import CompiledConstraint
from guard.constraint.contract import Checker
from guard.constraint.json_check import Release
from guard.constraint.tag_styles import written_as
from guard.constraint.tagged_arguments import TaggedArguments

MARK: Final = "\ue000"
_FREE: Final = ("any_text", "triggered_tags", "dispatch")
_SPACE: Final = " \t\r\n"
_MOST_SPACE: Final = 200
"""White space that a structure may begin with."""


class Structure(Protocol):
    """A matcher of the tag without its JSON."""

    def push(self, text: str) -> int:
        """Reads on. Returns how many characters of ``text`` were read; what follows them can never be right."""
        ...

    def accepts(self) -> bool: ...

    def forced(self) -> str: ...

    def fork(self) -> Structure: ...


def marked(tag: Any) -> tuple[Any, list[tuple[Any, str]], frozenset[str]]:
    """The tag with marks in place of its JSON; the schemas and how each is written, in the order of their marks; and
    the characters behind which a mark may stand."""
    schemas: list[tuple[Any, str]] = []
    before: set[str] = set()

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(one) for one in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if kind in ("json_schema", "qwen_xml_parameter"):
            style = written_as(node)
            if not style:
                return {**node, "any_order": True}
            schemas.append((node.get("json_schema", True), style))
            return {"type": "const_string", "value": mark_of(len(schemas) - 1)}
        for key in ("begin", "end", "separator", "value"):
            said = node.get(key)
            texts = said if isinstance(said, list) else [said]
            before.update(text[-1] for text in texts if isinstance(text, str) and text)
        out = {key: walk(value) for key, value in node.items()}
        if kind in _FREE:
            out["excludes"] = [*node.get("excludes", ()), MARK]
        return out

    return walk(tag), schemas, frozenset(before)


class Document(NamedTuple):
    """JSON in a tag; ``style`` is how it is written: ``json``, or a key of tagged_arguments.STYLES."""

    compiled: CompiledConstraint
    style: str

    def checker(self) -> Checker:
        if self.style == "json":
            return self.compiled.checker("streaming", False)
        return TaggedArguments(self.compiled, self.style)


def mark_of(index: int) -> str:
    """The mark of a schema: one and the same character, and its number."""
    return MARK + format(index, "04x")


class TaggedChecker:
    """A Checker (contract.py) of an answer in a structural tag."""

    def __init__(
        self,
        new_structure: Callable[[], Structure],
        schemas: Sequence[Document],
        before: frozenset[str],
        release: Release,
    ) -> None:
        self._new_structure = new_structure
        self._schemas = schemas
        self._before = before
        self._release = release
        self._start()

    def _start(self) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self._texts: list[str] = []
        self._fed = 0
        self._failed = False
        self._structure: Structure | None = self._new_structure()
        self._documents: dict[int, Checker] = {}
        self._place: Structure | None = None
        self._base = 0
        self._clear: int | None = None  # of a document that went wrong
        self._notes: list[Finding] = []
        self._look()

    # --- feeding -----------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> Sequence[Finding]:
        self._texts.append(text)
        at = self._fed
        self._fed += len(text)
        if self._failed:
            return ()
        self._notes = []
        self._takes(text, at)
        self._settle()
        return self._notes

    def _takes(self, text: str, at: int) -> bool:
        while text:
            used, wrong = self._documents_take(text, at) if self._documents else self._structure_takes(text, at)
            if wrong is not None:
                self._failed = True
                self._notes.append(wrong)
                return False
            at += used
            # a document that ended earlier than it seemed leaves what followed it to the structure
            text = text[used:] if used >= 0 else "".join(self._texts)[at:]
        return True

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._failed:
            return ()
        self._notes = []
        wrong: list[Finding] = []
        for index, checker in list(self._documents.items()):
            found = [_moved(one, self._base) for one in checker.finish(truncated)]
            if any(one.severity == "error" for one in found):
                wrong = found
            elif self._closes(index):
                if isinstance(checker, TaggedArguments):
                    self._goes_on_behind(checker)
                    if not self._takes("".join(self._texts)[self._base :], self._base):
                        return self._notes
                break
        if self._structure is not None and self._structure.accepts():
            self.safe = self.good = self._fed
            return ()
        self._failed = True
        if wrong:
            return wrong
        message = "the answer ends before it fits the structural tag"
        return (Finding("grammar.truncated", "error", message, onset=self.good, detected_at=self._fed),)

    def _structure_takes(self, text: str, at: int) -> tuple[int, Finding | None]:
        """The text outside of documents, up to where one may begin."""
        assert self._structure is not None
        end = next((n for n, char in enumerate(text, 1) if char in self._before), len(text))
        taken = self._structure.push(text[:end])
        if taken < end:
            self.good = at + taken
            char = text[taken]
            if char in _SPACE and self._place is not None and self._base == at + taken:
                self._base += 1  # white space behind a document
                return taken + 1, None
            return taken, self._mismatch(char, at + taken)
        self._place = None
        self.good = at + end
        self._look()
        return end, None

    def _documents_take(self, text: str, at: int) -> tuple[int, Finding | None]:
        """The text of a document, of any that may stand here; and of what else may."""
        last: Finding | None = None
        other = self._structure
        if other is not None:
            text = text[:1]  # as long as there are two readings they keep step
            if not other.push(text):
                self._structure = other = None
        for index, checker in list(self._documents.items()):
            found = checker.feed(text)
            behind = [one.onset for one in found if one.code == "json.trailing_data"]
            if checker.complete:
                end = self._base + behind[0] if behind else at + len(text)
                if self._closes(index):
                    if isinstance(checker, TaggedArguments):
                        self._notes += [_moved(one, self._base) for one in found if one.severity != "error"]
                        self._goes_on_behind(checker)
                        return self._base - at, None
                    used = len(text[: end - at].rstrip(_SPACE))
                    self._notes += [_moved(one, self._base) for one in found if one.severity != "error"]
                    self._base = self.good = at + used
                    return used, None
            wrong = next((one for one in found if one.severity == "error"), None)
            if wrong is not None:
                wrong = _moved(wrong, self._base)
                if last is None or wrong.onset >= last.onset:  # the reading that went furthest
                    last = wrong
                    self.good = self._base + checker.good
                    self._clear = self._base + checker.safe
                del self._documents[index]
        if self._documents or other is not None:
            last = self._clear = None
        return len(text), last

    def _closes(self, index: int) -> bool:
        """The document of that mark is whole: the structure goes on behind it."""
        assert self._place is not None
        if self._place.push(mark_of(index)) < len(mark_of(index)):
            return False
        self._structure = self._place.fork()
        self._documents = {}
        return True

    def _goes_on_behind(self, ended: TaggedArguments) -> None:
        """The structure takes what follows the last tag, less as much white space as is the object's own."""
        assert self._structure is not None
        behind = "".join(self._texts)[self._base + ended.ended_at :]
        space = behind[: len(behind) - len(behind.lstrip(_SPACE))]
        first = space + behind[len(space) : len(space) + 1]
        own = max(0, len(space) - _MOST_SPACE)
        while own < len(space) and self._structure.fork().push(first[own:]) < len(first) - own:
            own += 1
        self._base += ended.ended_at + own
        self.good = self._base

    def _look(self) -> None:
        """Whether a document may begin here."""
        assert self._structure is not None
        place = self._structure.fork()
        if place.push(MARK) < 1:
            return
        number = len(mark_of(0))
        self._documents = {
            index: schema.checker()
            for index, schema in enumerate(self._schemas)
            if self._structure.fork().push(mark_of(index)) == number
        }
        self._place = self._structure.fork()
        self._base = self.good

    def _settle(self) -> None:
        if self._documents and not self._failed:
            goods = [checker.good for checker in self._documents.values()]
            self.good = self._fed if self._structure is not None else self._base + max(goods)
            safes = [checker.safe for checker in self._documents.values()]
            self.safe = self._base + min(safes) if self._release == "streaming" else 0
        elif self._release == "streaming":
            self.safe = max(self.safe, self.good if self._clear is None else self._clear)

    def _mismatch(self, char: str, at: int) -> Finding:
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        message = f"no answer that fits the structural tag has {shown!r} there"
        return Finding("grammar.mismatch", "error", message, onset=at, detected_at=min(at + 1, self._fed))

    # --- going on from outside ---------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return not self._documents and self._structure is not None and self._structure.accepts()

    def rewind(self) -> None:
        """Back to ``good``: what is fed next goes on from there."""
        text = "".join(self._texts)[: self.good]
        self._start()
        self.feed(text)

    def forced(self) -> str:
        probe = TaggedChecker(self._new_structure, self._schemas, self._before, self._release)
        probe.feed("".join(self._texts)[: self.good])
        if len(probe._documents) == 1 and (probe._structure is None or probe._structure.forced().startswith(MARK)):
            return next(iter(probe._documents.values())).forced()
        if probe._documents or probe._structure is None or probe._structure.accepts():
            return ""
        return probe._structure.forced().partition(MARK)[0]


def _moved(finding: Finding, by: int) -> Finding:
    return replace(finding, onset=finding.onset + by, detected_at=finding.detected_at + by)


def documents_of(found: Sequence[tuple[Any, str]], compile: Callable[[Any], CompiledConstraint]) -> list[Document]:
    """Each schema compiled, equal ones once."""
    known: dict[str, CompiledConstraint] = {}
    out: list[Document] = []
    for schema, style in found:
        key = repr(schema)
        if key not in known:
            known[key] = compile(schema)
        out.append(Document(known[key], style))
    return out
