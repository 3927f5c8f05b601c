"""Recorded answers of real engines, imported and ruled on as their index describes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from replay.imported import Imported, ImportFault, read_folder
from replay.observation import Alternative, Cell, Observation
from replay.results import Ruling
from replay.triage import contrast, triage

RECORDED = Path(__file__).parents[3] / "shared" / "recordings" / "nondeterminism"
LINE = {"engine": "e", "prompt_id": 3, "output_ids": [5, 6], "concurrency": 6, "precision": "bf16"}

recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason=f"the recordings are not there ({RECORDED})")


def write(folder: Path, *lines: object, name: str = "a.jsonl") -> Path:
    (folder / name).write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return folder


def test_a_line_is_an_observation(tmp_path: Path) -> None:
    more = {"prompt_ids": [1], "finish": "stop", "logprobs": [-0.5, -1], "top2": [[[5, -0.5], [7, -0.6]], [[6, -1]]]}
    write(tmp_path, LINE | more, LINE | more, "")
    (tmp_path / "prompts.json").write_text('[{"id": 3, "user": "Go on.", "ids": [1]}]')
    found = read_folder(tmp_path)
    one, two = found.observations
    assert one.request_id == two.request_id == "prompt-03"
    assert found.prompts == {"prompt-03": "Go on."}
    assert (one.repeat, two.repeat) == (0, 1)
    assert one.cell == Cell("e", precision="bf16", concurrency=6, neighbours="others")
    assert one.top[0] == (Alternative(5, b"", -0.5), Alternative(7, b"", -0.6))
    assert one.sampling.greedy
    assert (one.counts.prompt, one.counts.completion, one.finish_reason) == (1, 2, "stop")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"a\.jsonl:2: "),
        ({"engine": "e"}, r"a\.jsonl:2: .*prompt_id"),
        (LINE | {"output_ids": "x"}, r"a\.jsonl:2: .*output_ids"),
        (LINE | {"logprobs": [0.0]}, r"a\.jsonl:2: logprobs has 1 entries and output_ids 2"),
        (LINE | {"top": [[[5]]]}, r"a\.jsonl:2: "),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, said: str) -> None:
    with pytest.raises(ImportFault, match=said):
        read_folder(write(tmp_path, LINE, line))


def test_a_folder_without_lines_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFault, match=r"there is no file \*\.jsonl"):
        read_folder(tmp_path)
    with pytest.raises(ImportFault, match="no such folder"):
        read_folder(tmp_path / "gone")
    write(tmp_path, LINE)
    (tmp_path / "prompts.json").write_text('{"a": 1}')
    with pytest.raises(ImportFault, match=r"prompts\.json"):
        read_folder(tmp_path)


# --- the real data ---------------------------------------------------------------------------------------------------


@cache
def data() -> Imported:
    return read_folder(RECORDED)


def picked(engine: str, precision: str, concurrency: int) -> list[Observation]:
    cell = (engine, precision, concurrency)
    return [o for o in data().observations if (o.cell.engine, o.cell.precision, o.cell.concurrency) == cell]


@recorded
@pytest.mark.parametrize(
    ("left", "right", "cause", "differing"),
    [
        # the table of the recordings' index, row by row
        (("vllm", "f32", 1), ("vllm", "f32", 6), "agreement", 0),
        (("sglang", "f32", 1), ("sglang", "f32", 6), "agreement", 0),
        (("llamacpp", "q4_1", 1), ("llamacpp", "q4_1", 6), "agreement", 0),
        (("llamacpp", "f32", 1), ("llamacpp", "f32", 6), "batch_dependent", 1),
        (("vllm", "f32", 1), ("sglang", "f32", 1), "agreement", 0),
        (("vllm", "f32", 1), ("llamacpp", "f32", 1), "agreement", 0),
        (("sglang", "f32", 1), ("llamacpp", "f32", 1), "agreement", 0),
        (("vllm", "bf16", 1), ("vllm", "bf16", 6), "batch_dependent", 11),
        (("sglang", "bf16", 1), ("sglang", "bf16", 6), "batch_dependent", 15),
        (("vllm", "bf16", 1), ("vllm", "f32", 1), "near_tie", 13),
        (("sglang", "bf16", 1), ("sglang", "f32", 1), "near_tie", 16),
        (("vllm", "bf16", 1), ("sglang", "bf16", 1), "near_tie", 17),
        (("llamacpp", "q4_1", 1), ("llamacpp", "f32", 1), "quantisation_drift", 17),
    ],
)
def test_pairs_are_ruled_as_the_index_describes(
    left: tuple[str, str, int], right: tuple[str, str, int], cause: str, differing: int
) -> None:
    ruling = contrast("pair", picked(*left), picked(*right))
    assert ruling.cause == cause
    if differing:
        told = [e.statement for e in ruling.evidence_for if f"{differing} of 20" in e.statement]
        assert told, ruling.evidence_for
    if cause == "batch_dependent":
        assert ruling.mechanism == "near_tie"
        assert ruling.confidence == "moderate"  # one run an arm
        assert any("repeat each request alone and under load" in step.action for step in ruling.next_steps)


@recorded
def test_the_whole_of_it_claims_no_corruption_anywhere() -> None:
    found = triage(data().observations, data().prompts)
    rulings: list[Ruling] = [found.ruling, *found.contrasts, *found.requests]
    assert not [r for r in rulings if r.cause.startswith("corruption") or "corrupt" in r.leaning]
    assert {r.cause for r in rulings} == {
        "agreement",
        "batch_dependent",
        "near_tie",
        "quantisation_drift",
        "undetermined",
    }
    assert found.ruling.cause == "batch_dependent"
    assert not found.attribution.failures
    assert found.differences is not None
    blamed = [{str(c) for c in clause.conditions} for clause in found.differences.clauses]
    assert blamed == [{"precision bf16"}, {"precision q4_1"}]


@recorded
def test_without_its_log_probabilities_no_near_tie_is_ruled() -> None:
    bare = [
        msgspec.structs.replace(o, logprobs=(), top=()) for o in picked("vllm", "bf16", 1) + picked("vllm", "f32", 1)
    ]
    ruling = contrast("pair", bare, [])
    assert (ruling.cause, ruling.leaning) == ("undetermined", "near_tie")
    assert "log probabilities" in ruling.next_steps[0].action
