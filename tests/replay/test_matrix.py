"""What a declaration means: its mistakes by file, line and key; its cells, its plan, its cost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import replayed
import yaml
from hypothesis import given
from hypothesis import strategies as st
from replayed import sources

from guard.checked_yaml import ConfigError, parse_yaml
from replay.load import LOADS as LOADS_KNOWN
from replay.load import Load, read_load
from replay.matrix import Matrix, cells, chosen, confounded
from replay.plan import cost, plan


def read(text: str) -> Matrix:
    return parse_yaml(text, "m.yaml", Matrix, "a matrix")


def test_a_whole_declaration() -> None:
    matrix = read(
        "engines: [a]\nonly: {cluster: [x]}\nconcurrency: [alone, 'copies:8']\ncache: [cold, warm]\nrepeats: 5\n"
        "echo: 2\nsampling: {temperature: 0}\ntop_logprobs: 3\n"
        "kernels: {a: batch_invariant}\nlimits: {per_second: 2}\nseed: 7\n"
    )
    assert matrix.loads == (Load(), Load("copies", 8))
    assert matrix.sampling.temperature == 0
    assert matrix.limits.per_second == 2


def test_the_example_is_a_matrix() -> None:
    path = Path(__file__).resolve().parents[2] / "deploy" / "matrix.yaml"
    matrix = read(path.read_text())
    assert {load.kind for load in matrix.loads} == set(LOADS_KNOWN)
    assert set(yaml.safe_load(path.read_text())) == set(Matrix.model_fields)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("repeats: 0", "m.yaml:1: repeats: input should be greater than or equal to 1"),
        ("engines: [a]\nrepeat: 3", "m.yaml:2: repeat: is not a known key"),
        ("engines: [a]\ncache: [hot]", "m.yaml:2: cache[0]: input should be 'as_is', 'cold' or 'warm'"),
        ("concurrency: [crowd]", "m.yaml:1: concurrency: 'crowd' is no load (known: alone, copies:K"),
        ("concurrency: [copies]", "copies needs how many run at once: copies:8"),
        ("concurrency: ['copies:1']", "copies needs how many run at once"),
        ("concurrency: ['alone:3']", "alone is one request at a time"),
        ("concurrency: ['copies:64']", "copies:64 is more than limits.per_engine (32) allows"),
        ("limits:\n  per_engine: many", "m.yaml:2: limits.per_engine: input should be a valid integer"),
        ("sampling:\n  temperature: 3", "m.yaml:2: sampling.temperature: input should be less than or equal to 2"),
        ("repeats: 1\nrepeats: 2", "m.yaml:2: repeats: is given twice"),
        ("- a", "m.yaml:1: must be a mapping of a matrix, and is a list"),
    ],
)
def test_mistakes(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["alone", "copies:2", "others:6", "recorded:4", "cancelled:3"])
def test_loads_are_read_as_they_are_written(name: str) -> None:
    assert read_load(name).name == name


# --- cells -----------------------------------------------------------------------------------------------------------

AXES = {"image": "1.2", "cluster": "x", "precision": "bf16"}


def test_engines_are_those_named_else_the_route_s() -> None:
    config = replayed.configured("a", "b", "c", a=AXES)
    assert [e.name for e in chosen(Matrix(), config.engines, ["b", "c"])] == ["b", "c"]
    assert [e.name for e in chosen(Matrix(), config.engines, [])] == ["a", "b", "c"]
    assert [e.name for e in chosen(Matrix(engines=("c", "a")), config.engines, ["b"])] == ["c", "a"]
    assert [e.name for e in chosen(Matrix(only={"cluster": ("x",)}), config.engines, [])] == ["a"]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such engine: z"):
        chosen(Matrix(engines=("z",)), config.engines, [])
    with pytest.raises(ValueError, match="no engine is left"):
        chosen(Matrix(only={"image": ("9",)}), config.engines, [])  # type: ignore[arg-type]


def test_every_engine_under_every_load_in_every_state_of_its_cache() -> None:
    config = replayed.configured("a", "b", a=AXES)
    matrix = Matrix(concurrency=("alone", "copies:4"), cache=("cold", "warm"), kernels={"a": "batch_invariant"})
    found, impossible = cells(matrix, config.engines)
    assert len(found) == 8
    assert not impossible
    first = found[0].cell
    assert (first.image, first.cluster, first.precision, first.concurrency) == ("1.2", "x", "bf16", 1)
    assert (first.neighbours, first.cache, first.kernels) == ("none", "cold", "batch_invariant")
    assert (found[3].cell.neighbours, found[3].cell.concurrency, found[3].cell.cache) == ("copies", 4, "warm")


@pytest.mark.parametrize(
    ("dialect", "url", "cache", "why"),
    [
        ("plain", "http://h:1", "cold", "cannot keep off"),
        ("dynamo", "http://h:1", "cold", "cannot keep off"),
        ("torch", "torch:///m", "warm", "keeps none"),
    ],
)
def test_what_cannot_be_had_is_no_cell(dialect: str, url: str, cache: str, why: str) -> None:
    config = replayed.configured("a", a={"dialect": dialect, "url": url})
    found, impossible = cells(Matrix(cache=("as_is", cache)), config.engines)  # type: ignore[arg-type]
    assert len(found) == 1
    assert why in impossible[0].why


def test_a_model_in_this_process_makes_one_answer_at_a_time() -> None:
    config = replayed.configured("a", a={"dialect": "torch", "url": "torch:///m"})
    found, impossible = cells(Matrix(concurrency=("alone", "copies:4")), config.engines)
    assert [cell.load.name for cell in found] == ["alone"]
    assert "one answer at a time" in impossible[0].why


def test_axes_that_never_vary_apart() -> None:
    two = replayed.configured("a", "b", a={"image": "1", "cluster": "x"}, b={"image": "2", "cluster": "y"})
    assert confounded(two.engines) == [("image", "cluster")]
    three = replayed.configured(
        *"abc", a={"image": "1", "cluster": "x"}, b={"image": "2", "cluster": "y"}, c={"image": "1", "cluster": "y"}
    )
    assert confounded(three.engines) == []


# --- the plan --------------------------------------------------------------------------------------------------------

LOADS = ["alone", "copies:3", "others:3", "cancelled:2"]


@given(
    count=st.integers(1, 9),
    repeats=st.integers(1, 4),
    loads=st.lists(st.sampled_from(LOADS), min_size=1, max_size=4, unique=True),
    caches=st.lists(st.sampled_from(["as_is", "cold", "warm"]), min_size=1, unique=True),
)
def test_every_cell_observes_every_request_as_often_as_asked(
    count: int, repeats: int, loads: list[str], caches: list[str]
) -> None:
    matrix = Matrix(concurrency=tuple(loads), cache=tuple(caches), repeats=repeats)  # type: ignore[arg-type]
    config = replayed.configured("a", "b")
    found = plan(cells(matrix, config.engines)[0], sources(count), repeats)
    keys = [volley.key for volley in found.volleys()]
    assert len(keys) == len(set(keys))
    left_out = {(one.engine, one.what) for one in found.left_out}
    for index, cell in enumerate(found.cells):
        mine = [volley for volley in found.volleys() if volley.cell == index]
        copies = cell.load.at_once if cell.load.kind == "copies" else 1
        for source in range(count):
            times = sum(volley.observed.count(source) for volley in mine)
            assert times == (0 if (cell.engine, cell.load.name) in left_out else repeats * copies)
        for volley in mine:
            assert len(volley.observed) + len(volley.beside) == cell.load.at_once
            assert volley.primed == (cell.cache == "warm")


def test_neighbours_as_they_were_recorded() -> None:
    chosen_ = sources(3)
    chosen_[0].beside = (chosen_[1].id, "elsewhere")
    config = replayed.configured("a")
    found = plan(cells(Matrix(concurrency=("recorded:2",)), config.engines)[0], chosen_, 1)
    assert [(volley.observed, volley.beside) for volley in found.volleys()] == [((0,), (chosen_[1].id,))]
    assert "2 of 3 requests have no recorded neighbour" in found.left_out[0].why


def test_the_cells_take_turns_at_being_the_first() -> None:
    config = replayed.configured("a")
    matrix = Matrix(concurrency=("alone", "copies:2"), repeats=2)
    volleys = plan(cells(matrix, config.engines)[0], sources(1), 2).lanes["http://127.0.0.1:8001"]
    assert [(volley.repeat, volley.cell) for volley in volleys] == [(0, 0), (0, 1), (1, 1), (1, 0)]


def test_the_cost_by_what_was_recorded() -> None:
    config = replayed.configured("primary", "second")
    found = plan(cells(Matrix(cache=("warm",)), config.engines)[0], sources(4), 2)
    price = cost(found, sources(4), {})
    assert (price.answers, price.requests) == (16, 32)  # each is primed
    assert price.tokens == 16 * 30
    assert price.seconds == 16.0  # two seconds each, both engines at once
    unknown = [msgspec.structs.replace(source, attempts=[]) for source in sources(4)]
    price = cost(found, unknown, {})
    assert (price.seconds, price.tokens, price.unknown) == (None, 0, 16)
    assert cost(found, sources(4), {}, per_second=0.5).seconds == 8 * 4.0
