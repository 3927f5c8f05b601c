"""The batch form gives what the streaming form gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.token_loop import TokenBars, TokenLoop, TokenRun

torch = pytest.importorskip("torch", reason="torch is not installed")
from detectors.tensor import runs, scan  # noqa: E402

SMALL = TokenBars(single=20, copies=3, least=30)


def streamed(ids: list[int], bars: TokenBars, wordless: set[int]) -> TokenRun | None:
    watch = TokenLoop(bars, wordless)
    watch.feed(ids)
    return watch.found


sequences = st.lists(
    st.tuples(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 12)), min_size=1, max_size=6
).map(lambda parts: [token for unit, copies in parts for token in unit * copies])


@settings(max_examples=60, deadline=None)
@given(st.lists(sequences, min_size=1, max_size=4), st.sets(st.integers(0, 5), max_size=3))
def test_batch_and_stream_agree(batch: list[list[int]], wordless: set[int]) -> None:
    longest = max(map(len, batch))
    ids = torch.tensor([row + [9] * (longest - len(row)) for row in batch])
    lengths = torch.tensor([len(row) for row in batch])
    mask = torch.tensor([token in wordless for token in range(10)])
    assert runs(scan(ids, lengths, bars=SMALL, wordless=mask)) == [streamed(row, SMALL, wordless) for row in batch]


def test_a_loop_is_found_where_it_begins() -> None:
    head = list(range(100, 200))
    for unit in ([7], [7, 8], list(range(30))):
        row = head + unit * 60
        found = streamed(row, TokenBars(), set())
        assert found is not None
        assert (found.onset, found.period) == (100, len(unit))
        assert runs(scan(torch.tensor([row, list(range(len(row)))]))) == [found, None]


def test_wordless_tokens_may_repeat_longer() -> None:
    row = torch.tensor([[3] * 300])
    mask = torch.tensor([False, False, False, True])
    assert runs(scan(row)) == [TokenRun(0, 48, 1)]
    assert runs(scan(row, wordless=mask)) == [None]
    assert runs(scan(torch.tensor([[3] * 400]), wordless=mask)) == [TokenRun(0, 384, 1)]


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="sequences, tokens"):
        scan(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="lengths"):
        scan(torch.zeros((2, 40), dtype=torch.int64), torch.tensor([1]))
    assert runs(scan(torch.zeros((2, 8), dtype=torch.int64))) == [None, None]
