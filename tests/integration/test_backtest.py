"""``outguard backtest`` over the answers that a running sidecar has stored."""

from __future__ import annotations

import json
from pathlib import Path

from replay_server import Reply, chunk, sse
from sidecar_process import Played, Sidecar

FOUR = "So it goes, as they say here. " * 4 + "Then they all went home by the sea."
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 40, "total_tokens": 47}}


def test_stored_answers_are_judged_again(stage: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    sidecar, one, _ = stage
    pieces = [chunk(FOUR[i : i + 6]) for i in range(0, len(FOUR), 6)]
    one.play(Reply(sse(chunk(role="assistant"), *pieces, chunk(finish="stop"), USAGE)))
    answer = sidecar.post({"model": "one", "stream": True})
    assert answer.content == FOUR
    unkept = sidecar.post({"model": "one", "stream": True}, **{"x-outguard-retention": "none"})
    assert unkept.content == FOUR
    policy = tmp_path / "new.yaml"
    policy.write_text("thresholds: {phrase_copies: 3}\n")
    done = sidecar.outguard("backtest", "--policy", str(policy), "--since", "1h", "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    wrong = [example for example in told["examples"] if example["change"] == "newly wrong"]
    assert answer.headers["x-outguard-trace-id"] in {example["id"] for example in wrong}
    assert wrong[0]["after"]["code"] == "repetition.period"
    assert told["skipped"]["the content was not kept (retention none)"] >= 1
    policy.write_text("thresholds: {phrase_copies: 9}\n")
    done = sidecar.outguard("backtest", "--policy", str(policy), "--since", "1h")
    assert done.returncode == 0, done.stderr
    assert "No answer would have been treated otherwise." in done.stdout
