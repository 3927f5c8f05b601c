"""Forced decoding: the model in this process reads an answer in one go, other engines token by token."""

from __future__ import annotations

import pytest
import torch_models

from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import Play, ScriptedEngine, answer
from guard.events import Closed, Done, FinishReason, TextDelta
from guard.request import GenerationRequest, Sampling
from replay.observation import Alternative, Cell, Observation
from replay.scores import END, Unscored, read

ASKED = GenerationRequest(
    "r", "chat", "m", messages=[{"role": "user", "content": "Hello"}], sampling=Sampling(temperature=0)
)


def seen(**more: object) -> Observation:
    return Observation(request_id="r", cell=Cell(engine="b"), **more)  # type: ignore[arg-type]


# --- by a model in this process --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    if reason := torch_models.missing():
        pytest.skip(reason)
    from guard.engines.torch_model import Model

    tokenizer = torch_models.new_tokenizer()
    return Model(torch_models.random_model(tokenizer), tokenizer)


def own_answer(model, length: int):  # type: ignore[no-untyped-def]
    sampling = Sampling(temperature=0, logprobs=True, top_logprobs=3)
    tokens = model.tokens(model.prompt(ASKED, None), sampling, None, lambda: False, ignore_eos=True)
    return [token for token, _ in zip(tokens, range(length), strict=False)]


@pytest.mark.parametrize("chunk", [1, 2, 7, 256])
def test_its_own_answer_is_what_it_would_have_said(model, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:  # type: ignore[no-untyped-def]
    """However the reading is cut, step for step with the log probabilities that it gave when it spoke."""
    tokens = own_answer(model, 40)
    monkeypatch.setattr("guard.engines.torch_model.PREFILL_CHUNK", chunk)
    wanted = [[one["id"] for one in token.entry["top_logprobs"]] for token in tokens]
    scores = model.scores(model.prompt(ASKED, None), [token.id for token in tokens], wanted)
    assert len(scores) == 40
    for token, score in zip(tokens, scores, strict=True):
        assert score.best == token.entry["top_logprobs"][0]["id"]  # the end of the answer, which was not allowed
        assert score.chosen_logprob == pytest.approx(token.entry["logprob"], abs=1e-4)
        assert list(score.wanted) == pytest.approx([one["logprob"] for one in token.entry["top_logprobs"]], abs=1e-4)
        assert score.best_logprob >= score.second_logprob


def test_another_answer_is_read_to_where_the_context_ends(model) -> None:  # type: ignore[no-untyped-def]
    prompt = model.prompt(ASKED, None)
    assert model.scores(prompt, [], []) == []
    assert len(model.scores(prompt, [5] * 10, [])) == 10
    assert len(model.scores([5] * (model.context - 3), [5] * 10, [])) == 3


async def test_an_engine_of_it(model) -> None:  # type: ignore[no-untyped-def]
    from guard.engines.torch_engine import TorchEngine

    engine = TorchEngine("golden", lambda: model)
    tokens = own_answer(model, 8)
    top = tuple(tuple(Alternative(one["id"], b"", one["logprob"]) for one in t.entry["top_logprobs"]) for t in tokens)
    said = seen(token_ids=tuple(token.id for token in tokens), top=top)
    found = await read(engine, ASKED, said)
    assert found.prompt == tuple(model.prompt(ASKED, None))
    for step, token in zip(found.steps, tokens, strict=True):
        assert step.same == (token.id == token.entry["top_logprobs"][0]["id"])
        assert step.short == pytest.approx(token.entry["top_logprobs"][0]["logprob"] - token.entry["logprob"], abs=1e-4)
    assert found.steps[0].golden == pytest.approx(found.steps[0].candidate, abs=1e-4)
    by_text = await read(engine, ASKED, seen(text={"content": "Hello"}))
    assert by_text.by_text
    assert [step.token for step in by_text.steps] == model.encode("Hello")
    with pytest.raises(Unscored):
        await read(engine, ASKED, seen(token_ids=(10**9,)))
    await engine.aclose()


# --- by any other engine ---------------------------------------------------------------------------------------------


def one_token(id_: int, logprob: float = -0.1) -> Play:
    entry = {"token": "x", "id": id_, "logprob": logprob, "top_logprobs": [{"token": "y", "id": 99, "logprob": -2.0}]}
    return Play([[TextDelta(0, "content", "x", (id_,), [entry]), FinishReason(0, "length"), Done(), Closed(True)]])


async def test_an_engine_is_asked_for_one_token_behind_each_beginning() -> None:
    def play(request: EngineRequest) -> Play:
        assert isinstance(request.request.prompt, tuple)
        return one_token({2: 11, 3: 12, 4: 13}[len(request.request.prompt)])

    engine = ScriptedEngine("golden", play)
    said = seen(prompt_ids=(1, 2), token_ids=(11, 12, 77), top=((Alternative(11, b"", -0.2),),) * 3)
    found = await read(engine, ASKED, said)
    assert [(step.token, step.best) for step in found.steps] == [(11, 11), (12, 12), (77, 13)]
    assert found.steps[0].golden == {11: -0.1, 99: -2.0}
    assert found.steps[2].short == pytest.approx(1.9)  # outside its list: at least as far as the list's end
    assert all(sent.max_tokens == 1 and sent.request.kind == "completion" for sent in engine.requests)


async def test_where_the_golden_engine_would_have_ended() -> None:
    found = await read(
        ScriptedEngine("g", lambda _: answer(reason="stop")), ASKED, seen(prompt_ids=(1,), token_ids=(5,))
    )
    assert found.steps[0].best == END
    assert not found.steps[0].same


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"prompt_ids": (1,)}, "did not name the token ids"),
        ({"token_ids": (1,)}, "did not name the token ids"),
        ({"prompt_ids": (1,), "token_ids": (1,)}, "refused"),
    ],
)
async def test_what_cannot_be_read_says_why(said: dict[str, object], why: str) -> None:
    engine = ScriptedEngine("g", lambda _: Play(error=EngineError("status", "refused", status=400)))
    with pytest.raises(Unscored, match=why):
        await read(engine, ASKED, seen(**said))
