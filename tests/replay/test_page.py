"""The page of a run: whole in itself, true to its data, and usable in a real browser with the keyboard alone."""

from __future__ import annotations

import asyncio
import html.parser
import json
import re
from collections.abc import Iterator
from pathlib import Path

import browser
import msgspec
import pytest
import replayed
from replayed import sources

from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from guard.events import Closed, Done, FinishReason, Opened, TextDelta
from replay.attribution import attribute
from replay.counts import counts, failing
from replay.matrix import Matrix
from replay.report import Report
from replay.results import Evidence, Ruling, Step, Triage
from replay.scorecard import Row, Scorecard
from replay.summary import summarise
from replay.web.data import TEXT_CHARS, TEXTS_CHARS, Texts, page_data
from replay.web.page import index_page, page

HOSTILE = "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>&amp;<!--\u2028"


def with_margins(*pieces: tuple[str, int, float, str, float]) -> Play:
    """Tokens as (text, id, log probability, the other one, its)."""
    batches = []
    for text, id_, logprob, other, its in pieces:
        top = [
            {"token": text, "id": id_, "logprob": logprob},
            {"token": other, "id": (id_ + 100) % 200, "logprob": its},
        ]
        batches.append([TextDelta(0, "content", text, (id_,), [{**top[0], "top_logprobs": top}])])
    return Play([[Opened("x", "m")], *batches, [FinishReason(0, "stop"), Done(), Closed(True)]])  # type: ignore[list-item]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    first = ("The", 1, -0.1, "A", -3.0)
    sure = with_margins(first, (" keeper", 2, -0.69, " guard", -0.7), (" slept.", 3, -0.1, "?", -4.0))
    flips = with_margins(first, (" guard", 102, -0.69, " keeper", -0.7), (" left.", 4, -0.1, "?", -4.0))

    def loops(request: EngineRequest) -> Play:
        return answer("The keeper", *["!"] * 200) if "1" in str(request.request.messages) else sure

    engines = {
        "f32": ScriptedEngine("f32", lambda _: sure),
        "bf16": ScriptedEngine("bf16", lambda _: flips),
        "loops": ScriptedEngine("loops", loops),
        "down": ScriptedEngine("down", lambda _: Play(error=EngineError("connect", HOSTILE))),
        "hostile": ScriptedEngine("hostile", telling(HOSTILE)),
    }
    config = replayed.configured(*engines, f32={"image": HOSTILE[:40]}, bf16={"precision": "bf16"})
    chosen = sources(4)
    chosen[2].body["messages"] = [{"role": "user", "content": HOSTILE}]
    folder = tmp_path_factory.mktemp("run")
    outcome, journal = asyncio.run(replayed.run(folder, Matrix(repeats=2), engines, chosen, config=config))
    journal.head.command = f"outguard replay {HOSTILE}"
    found = attribute(counts(outcome.observations, failing("wrong", lambda _: None)))
    ruling = Ruling(
        "matrix",
        "near_tie",
        "strong",
        evidence_for=(Evidence("margins", "both margins are within rounding", "decisive"),),
        next_steps=(Step("repeat it", "to be sure", 20),),
    )
    made = Report(journal.head, outcome.observations, summarise(outcome.observations, chosen))
    return msgspec.structs.replace(made, triage=Triage(ruling, (ruling,), (), found))


class Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_it_is_whole_in_itself_and_what_engines_said_is_never_markup(report: Report) -> None:
    made = page(report)
    elements = Elements()
    elements.feed(made)
    names = [name for name, _ in elements.tags]
    assert names.count("script") == 2
    assert not {"img", "link", "iframe", "object"} & set(names)
    assert not [attrs for _, attrs in elements.tags if "src" in attrs or str(attrs.get("href", "#"))[:1] != "#"]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", made.replace(json.dumps(HOSTILE), ""))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["command"].endswith(HOSTILE)


def test_every_square_and_seam_is_in_the_data(report: Report) -> None:
    data = page_data(report)
    assert len(data["squares"]) == 5 * 4
    answers = 40 - 3  # the engine that is down was given up after five
    assert data["counts"]["answers"] == answers
    assert sum(square[3] for square in data["squares"]) == answers
    assert sum(count for square in data["answers"].values() for count, *_ in square) == answers
    near = [seam for seam in data["seams"] if seam["kind"] == "near"]
    assert near
    assert (near[0]["left"]["at"], near[0]["right"]["at"]) == (" keeper", " guard")
    assert near[0]["left"]["before"] == near[0]["right"]["before"] == "The"
    assert near[0]["left"]["top"][0] == [" keeper", -0.69, True]


def test_texts_are_kept_once_and_bounded() -> None:
    texts = Texts()
    assert texts.number("a") == texts.number("a") == 0
    assert texts.kept[texts.number("x" * (TEXT_CHARS + 5))].endswith("[5 characters more]")
    numbers = [texts.number(f"{n} " + "y" * (TEXT_CHARS - 10)) for n in range(TEXTS_CHARS // TEXT_CHARS + 5)]
    assert -1 in numbers
    assert sum(map(len, texts.kept)) <= TEXTS_CHARS


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    if reason := browser.missing():
        pytest.skip(reason)
    with browser.Browser() as one:
        yield one


@pytest.fixture
def shown(chromium: browser.Browser, report: Report, tmp_path: Path) -> browser.Browser:
    path = tmp_path / "page.html"
    path.write_text(page(report))
    chromium.problems.clear()
    chromium.show(path.as_uri())
    return chromium


def test_a_browser_draws_it(shown: browser.Browser) -> None:
    assert shown.run("document.querySelectorAll('.map [role=gridcell]').length") == 20
    assert shown.run("document.querySelectorAll('.axis svg').length") >= 1
    assert shown.run("document.querySelectorAll('.seam-list button').length") >= 4
    assert shown.run("document.querySelector('h1').textContent").startswith("Two tokens were as good as equally likely")
    text = shown.run("document.body.innerText")
    assert "[object" not in text
    assert "undefined" not in text.replace("undetermined", "")
    assert HOSTILE[:60] in shown.run("document.getElementById('reproduce').textContent")
    assert shown.run("window.owned === undefined")
    assert shown.run("document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
    assert shown.problems == []


def test_a_scorecard_is_shown_where_there_is_one(chromium: browser.Browser, report: Report, tmp_path: Path) -> None:
    rows = (
        Row("token_match", "fail", "0.9 of 10 tokens", "at least 0.98", HOSTILE),
        Row("sound", "pass", "1 of 1", "1"),
    )
    path = tmp_path / "page.html"
    path.write_text(page(msgspec.structs.replace(report, scorecard=Scorecard("b against a", rows))))
    chromium.problems.clear()
    chromium.show(path.as_uri())
    said = chromium.run("document.getElementById('scorecard').innerText")
    assert "token match" in said
    assert chromium.run("document.querySelector('h1').textContent") == "b against a: not passed"
    assert chromium.problems == []


def test_the_keyboard_alone_gets_from_a_square_to_its_seam(shown: browser.Browser) -> None:
    shown.run("document.getElementById('map').focus(), choose(0, 0)")
    for key in ("ArrowDown", "ArrowRight"):
        shown.press(key)
    assert shown.run("document.getElementById('map').getAttribute('aria-activedescendant')") == "q1-1"
    assert "bf16" in shown.run("document.getElementById('detail').textContent")
    shown.press("Enter")
    assert shown.run("document.activeElement.id").startswith("seam")
    pair = shown.run("document.getElementById('pair').innerText")
    assert "both margins are within rounding" in pair
    assert "margin 0.010" in pair
    first = shown.run("document.activeElement.id")
    shown.press("ArrowUp" if first != "seam0" else "ArrowDown")
    assert shown.run("document.activeElement.id") != first
    assert shown.problems == []


def test_light_and_dark(shown: browser.Browser) -> None:
    def paper(scheme: str) -> list[int]:
        shown.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colour = shown.run("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", colour)]

    assert min(paper("light")) > 200
    assert max(paper("dark")) < 60
    assert shown.screenshot()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_narrow_window(shown: browser.Browser) -> None:
    narrow = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.call("Emulation.setDeviceMetricsOverride", **narrow)
    shown.call("Page.reload")
    shown.show(shown.run("location.href"))
    outside = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    said = shown.run(f"{outside}.filter(e => !e.closest('.map, .scrolls')).map(e => e.className || e.tagName).join()")
    shown.call("Emulation.clearDeviceMetricsOverride")
    assert said == ""
    assert shown.problems == []


def test_an_empty_run_and_the_list_of_runs(chromium: browser.Browser, report: Report, tmp_path: Path) -> None:
    bare = msgspec.structs.replace(report, observations=[], summary=summarise([], report.sources), triage=None, left=5)
    path = tmp_path / "page.html"
    path.write_text(page(bare))
    chromium.problems.clear()
    chromium.show(path.as_uri())
    assert "No two sound answers" in chromium.run("document.body.innerText")
    row = {"run": "r1", "kind": "matrix", "created_at": 1.0, "requests": 1, "cells": 2, "answers": 3, "planned": 4}
    path.write_text(index_page([{**row, "href": "#r1"}]))
    chromium.show(path.as_uri())
    assert "3 of 4" in chromium.run("document.body.innerText")
    path.write_text(index_page([]))
    chromium.show(path.as_uri())
    assert "No run is stored" in chromium.run("document.body.innerText")
    assert chromium.problems == []
