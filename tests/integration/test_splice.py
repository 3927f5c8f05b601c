"""Answers of a real engine that are cut, and go on to the token as if they had not been. The whole of it, in float32
and at fifty places, is ``make bench-resume``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import engine_process
import pytest
import tokenizer_files

from guard.events import Finished
from tests.bench.resume import measure

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An engine and its tokenizer. One engine is as good as two here: what it goes on from is all that it is told."""
    if reason := tokenizer_files.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("splice")
    tokenizer = tokenizer_files.write_tokenizer(folder / "tokenizer", tokenizer_files.TOOLS_TEMPLATE)
    template = folder / "template.jinja"
    template.write_text(tokenizer_files.TOOLS_TEMPLATE)
    engine = engine_process.start_engine(2, 4096, 1, template=template)
    yield engine.url, tokenizer
    engine.stop()


@pytest.mark.parametrize(("kind", "tokens"), [("text", 32), ("json", 96), ("tool", 96)])
async def test_an_answer_goes_on_to_the_token(place: tuple[str, Path], kind: str, tokens: int) -> None:
    url, tokenizer = place
    row = await measure([url, url], tokenizer, kind, "tokens", cuts=3, tokens=tokens)
    assert isinstance(row.whole.end, Finished)
    assert row.resumed == row.cuts == 3
    assert row.exact == 3, [(at, run.what) for at, run in row.wrong] + [row.whole.what]


async def test_over_the_chat_api_a_text_goes_on_as_well(place: tuple[str, Path]) -> None:
    """Its text is cut into tokens again, so it may go another way; but it goes on, and is one answer."""
    url, tokenizer = place
    row = await measure([url, url], tokenizer, "text", "chat", cuts=2, tokens=24)
    assert row.resumed == 2
    assert all(isinstance(run.end, Finished) and run.end.reason == "length" for _, run in row.wrong)
