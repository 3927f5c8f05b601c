"""A small version of ``make demo-triage``: a real llama.cpp engine on 4-bit weights, held against the model in this
process on the same weights in float32. It takes a minute of CPU, so it runs where OUTGUARD_SLOW is set: that target
sets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import engine_process
import pytest
import torch_models

from guard.config import parse_config
from replay.campaign import Campaign
from replay.golden import pair, verify
from replay.journal import Journal
from replay.matrix import Matrix
from replay.report import reported
from replay.scorecard import THRESHOLDS
from replay.select import Selection
from replay.source import Source

ASKED = {"prompt-1": "What is the capital of France?", "prompt-2": "Name three colours."}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.skipif("OUTGUARD_SLOW" not in os.environ, reason="takes a minute of CPU: make demo-triage runs it")
async def test_a_real_engine_is_read_token_by_token(llamacpp_engine: str, tmp_path: Path) -> None:
    if reason := torch_models.missing():
        pytest.skip(reason)
    engine = {"name": "q4", "url": llamacpp_engine, "dialect": "llamacpp", "precision": "q4_1"}
    config = parse_config(json.dumps({"engines": [engine], "routes": [{"model": "m", "engines": ["q4"]}]}))
    chosen = [
        Source(name, "chat", {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 10})
        for name, text in ASKED.items()
    ]
    pairing = pair(config, f"torch://{engine_process.model_path()}", "q4")
    campaign = Campaign(pairing.config, pairing.matrix(Matrix(), chosen), Selection(chosen, len(chosen), {}))
    with Journal.create(tmp_path, campaign.head(1.0, "", "faithful")) as journal:
        outcome, card = await verify(pairing, journal, THRESHOLDS, lambda _: None)
    assert card is not None
    values = {row.name: row.value for row in card.rows}
    assert values["prompt_equality"] == 1.0  # one chat template, one tokenizer
    assert values["beyond_rounding"] == 0.0
    assert values["token_match"] is not None
    assert 0.7 < values["token_match"] < 1.0  # its first token is another one, within rounding
    assert values["kl_mean"] is not None
    assert 0 < values["kl_mean"] < 0.05
    first = outcome.observations[0]
    assert first.token_ids
    assert len(first.top) == len(first.token_ids) == len(first.pieces)
    assert reported(journal.head, outcome.observations).triage is not None
