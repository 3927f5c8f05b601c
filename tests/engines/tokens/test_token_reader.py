"""What engines sent when they were asked in tokens, read by the guard: every recording, in any split."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from replay_server import sse

from guard.engines.openai_reader import OpenAIReader
from guard.engines.tokens import native
from guard.engines.tokens.reader import TokenReader, Wire
from guard.engines.tokens.vocabulary import Vocabulary
from guard.events import Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage

ABORT = {"type": "abort", "message": "x"}
PARIS = [504, 3575, 282, 4649, 314, 7042, 30, 2]
WORDS = {
    504: "The",
    3575: " capital",
    282: " of",
    4649: " France",
    314: " is",
    7042: " Paris",
    30: ".",
    2: "<|im_end|>",
}

WIRES: dict[str, Callable[[], Wire]] = {
    "vllm": OpenAIReader,
    "llamacpp": lambda: native.NativeReader(native.LlamaCpp()),
    "sglang": lambda: native.NativeReader(native.SGLang()),
}


@lru_cache
def known() -> list[bytes]:
    return [WORDS.get(i, f"<{i}>").encode() for i in range(50_000)]


def vocabulary(pieces: dict[int, str] | None = None, *, ends: tuple[int, ...] = (2,)) -> Vocabulary:
    """Of 50,000 tokens, the others called by their numbers."""
    texts = known()
    if pieces:
        texts = list(texts)
        for token, piece in pieces.items():
            texts[token] = piece.encode()
    return Vocabulary("v", texts, frozenset({0, 1, 2}), frozenset(ends))


def recorded(shared: Path, name: str) -> bytes:
    return (shared / "recordings" / f"{name}.response").read_bytes().partition(b"\r\n\r\n")[2]


def read(
    engine: str, body: bytes, *, cuts: list[int] | None = None, clean: bool = True, **more: Any
) -> list[StreamEvent]:
    reader = TokenReader(WIRES[engine](), more.pop("words", None) or vocabulary(), 37, **more)
    places = [0, *(cuts or []), len(body)]
    out: list[StreamEvent] = []
    for low, high in pairwise(places):
        out += reader.feed(body[low:high])
        if reader.ended:
            return out
    return out + reader.end(clean)


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def ids(events: list[StreamEvent]) -> list[int]:
    return [token for event in events if isinstance(event, TextDelta) for token in event.token_ids or ()]


def of(kind: type, events: list[StreamEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


RECORDINGS = [
    ("vllm", "vllm/completions_token_ids_in_stream"),
    ("sglang", "sglang/native_generate_stream"),
    ("sglang", "sglang/native_generate_stop_stream"),
    ("sglang", "sglang/native_generate_json_schema_incremental"),
    ("llamacpp", "llamacpp/native_completion_stream"),
    ("llamacpp", "llamacpp/native_completion_stop_stream"),
]


@pytest.mark.parametrize(("engine", "name"), RECORDINGS)
def test_any_split_gives_the_same(shared: Path, engine: str, name: str) -> None:
    body = recorded(shared, name)
    whole = read(engine, body)
    rng = random.Random(name)
    for _ in range(4):
        assert read(engine, body, cuts=sorted(rng.sample(range(1, len(body)), 40))) == whole
    assert isinstance(whole[0], Opened)
    assert isinstance(whole[-1], Closed)
    assert len(of(FinishReason, whole)) == len(of(Done, whole)) == 1


@pytest.mark.parametrize(("engine", "name"), RECORDINGS[:2])
def test_one_delta_a_token_and_none_for_the_end(shared: Path, engine: str, name: str) -> None:
    events = read(engine, recorded(shared, name))
    deltas = of(TextDelta, events)
    assert [delta.text for delta in deltas] == [*(WORDS[i] for i in PARIS[:-1]), ""]
    assert ids(events) == PARIS
    assert of(FinishReason, events)[0].reason == "stop"
    entry = deltas[0].logprobs[0]
    assert (entry["token"], entry["bytes"]) == ("The", list(b"The"))
    assert -1.9 < entry["logprob"] < -1.7
    assert entry["top_logprobs"] == []


def test_the_alternatives_that_were_asked_for(shared: Path) -> None:
    for engine, name in RECORDINGS[:2]:
        events = read(engine, recorded(shared, name), top=2, words=vocabulary({60: "L"}))
        assert [other["token"] for other in of(TextDelta, events)[0].logprobs[0]["top_logprobs"]] == ["The", "L"]


def test_llamacpp_to_its_limit(shared: Path) -> None:
    events = read("llamacpp", recorded(shared, "llamacpp/native_completion_stream"))
    assert len(ids(events)) == 24
    assert of(FinishReason, events)[0].reason == "length"
    assert of(Usage, events) == [Usage(37, 24, 61, 24)]


def test_a_token_that_ends_under_another_name(shared: Path) -> None:
    """The vocabulary does not know that 2 ends an answer; the finish reason does."""
    for engine, name in RECORDINGS[:2]:
        events = read(engine, recorded(shared, name), words=vocabulary(ends=()))
        assert text(events) == "The capital of France is Paris."
        assert ids(events) == PARIS


def test_a_control_token_in_the_middle_is_text(shared: Path) -> None:
    body = recorded(shared, "sglang/native_generate_stream")
    words = Vocabulary("v", vocabulary().pieces, frozenset({2, 4649}), frozenset({2}))
    assert text(read("sglang", body, words=words)) == "The capital of France is Paris."


def test_stop_strings(shared: Path) -> None:
    """The engine's own cut and the guard's agree, and the ids of the stop string stay on record."""
    events = read("sglang", recorded(shared, "sglang/native_generate_stop_stream"), stops=[" is", " femme"])
    assert text(events) == "The capital of France"
    assert ids(events) == PARIS[:5]
    assert of(FinishReason, events) == [FinishReason(0, "stop", " is")]

    words = vocabulary({2618: " la", 2849: " fem", 1558: "me"})
    events = read("llamacpp", recorded(shared, "llamacpp/native_completion_stop_stream"), stops=[" femme"], words=words)
    assert text(events).endswith(" la")
    assert of(FinishReason, events) == [FinishReason(0, "stop", " femme")]
    assert ids(events)[-2:] == [2849, 1558]


def test_a_stop_string_that_the_engine_does_not_know(shared: Path) -> None:
    """It began before this stream, so that the engine cannot see it: what follows is not listened to."""
    body = recorded(shared, "sglang/native_generate_stream")
    events = read("sglang", body, stops=["Q. The capital"], before="a Q. ")
    assert text(events) == ""
    assert of(FinishReason, events) == [FinishReason(0, "stop", "Q. The capital")]
    assert isinstance(events[-1], Closed)
    assert of(Usage, events) == [Usage(37, 2, 39)]


def test_a_token_that_holds_a_part_of_a_stop_string_leaves_whole(shared: Path) -> None:
    """ " of" may become "f it": it waits, and leaves whole with what shows that it did not."""
    events = read("sglang", recorded(shared, "sglang/native_generate_stream"), stops=["f it"])
    deltas = [(delta.text, delta.token_ids) for delta in of(TextDelta, events)][:4]
    assert deltas == [("The", (504,)), (" capital", (3575,)), (" of France", (282, 4649)), (" is", (314,))]


def test_characters_of_several_tokens() -> None:
    words = Vocabulary("v", [b"\xf0\x9f", b"\x99\x82", b"a"], frozenset(), frozenset())
    said = [{"content": "", "tokens": [token], "stop": False} for token in (2, 0, 1, 2)]
    end = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 4, "tokens_evaluated": 3}
    body = sse(*said, end, done=False)
    deltas = of(TextDelta, read("llamacpp", body, words=words))
    assert [(delta.text, delta.token_ids) for delta in deltas] == [("a", (2,)), ("🙂", (0, 1)), ("a", (2,))]


@pytest.mark.parametrize(
    ("engine", "body", "kind", "message"),
    [
        ("llamacpp", b'data: {"error":{"code":500,"message":"slot lost"}}\n\n', "error_event", "slot lost"),
        ("llamacpp", b"data: {nonsense\n\n", "protocol", "no JSON"),
        ("llamacpp", b'data: {"hello": 1}\n\n', "protocol", "without tokens"),
        ("llamacpp", b'data: {"content":"a","tokens":[],"stop":false}\n\n', "protocol", "without its token ids"),
        ("llamacpp", b"<html>sorry</html>\n\n", "protocol", ""),
        ("sglang", b'data: {"error":{"message":"aborted","code":400}}\n\n', "error_event", "aborted"),
        (
            "sglang",
            sse({"output_ids": [1], "meta_info": {"completion_tokens": 1, "finish_reason": ABORT}}),
            "error_event",
            "x",
        ),
        ("vllm", b'data: {"choices":[{"index":0,"text":"a"}]}\n\n', "protocol", "without its token ids"),
    ],
)
def test_what_is_no_answer(engine: str, body: bytes, kind: str, message: str) -> None:
    fault = read(engine, body)[-1]
    assert isinstance(fault, Fault)
    assert fault.kind == kind
    assert message in fault.message


@pytest.mark.parametrize(("engine", "name"), RECORDINGS)
def test_cut_at_any_place(shared: Path, engine: str, name: str) -> None:
    """The tokens that were whole, a fault, and no finish reason that was not sent."""
    body = recorded(shared, name)
    told = ids(read(engine, body))
    end = body.rindex(b"[DONE]") if b"[DONE]" in body else len(body)
    for at in random.Random(name).sample(range(1, end - 40), 25):
        events = read(engine, body[:at], clean=False)
        assert isinstance(events[-1], Fault), at
        assert told[: len(ids(events))] == ids(events)
        if b'"finish_reason":{' not in body[:at] and b'"finish_reason":"' not in body[:at]:
            assert not of(FinishReason, events)


def test_sglang_that_says_only_what_is_new() -> None:
    said = (([504], 1), ([3575, 282], 3), ([4649], 4))
    body = sse(*({"output_ids": new, "meta_info": {"completion_tokens": count}} for new, count in said), done=False)
    assert ids(read("sglang", body, clean=False)) == PARIS[:4]


def test_one_object_instead_of_a_stream(shared: Path) -> None:
    for engine, name in (("sglang", "sglang/native_generate_plain"), ("llamacpp", "llamacpp/native_completion_plain")):
        reader = TokenReader(WIRES[engine](), vocabulary(), 37)
        events = reader.whole(recorded(shared, name))
        assert len(ids(events)) in (8, 12)
        assert events[-1] == Closed(True)
        assert len(of(FinishReason, events)) == 1


@pytest.mark.parametrize("top", [None, 5, "x", {"a": 1}, ["x", 5, None], [{"id": "x", "logprob": "y"}], [{"id": [1]}]])
@pytest.mark.parametrize("logprob", [None, "x", True, -1, -1.0, [1]])
def test_log_probabilities_of_any_shape_are_read_as_far_as_they_can_be(top: Any, logprob: Any) -> None:
    entry = {"logprob": logprob, "top_logprobs": top}
    event = {"content": "The", "tokens": [504], "stop": False, "completion_probabilities": [entry]}
    events = read("llamacpp", sse(event, done=False), top=2)
    assert text(events) == "The"
    (told,) = next(e.logprobs for e in events if isinstance(e, TextDelta)) or ()
    assert told["logprob"] == -1.0 or (math.isnan(told["logprob"]) and logprob not in (-1, -1.0))
    assert all(isinstance(one["logprob"], float) for one in told["top_logprobs"])


@pytest.mark.parametrize("engine", ["llamacpp", "sglang", "vllm"])
@pytest.mark.parametrize("token", [50_000, 2**63, -1])
def test_a_token_that_the_vocabulary_does_not_have(engine: str, token: int) -> None:
    event: dict[str, Any] = {
        "llamacpp": {"content": "x", "tokens": [token], "stop": False},
        "sglang": {"output_ids": [token], "meta_info": {"completion_tokens": 1}},
        "vllm": {"choices": [{"index": 0, "text": "x", "token_ids": [token]}]},
    }[engine]
    assert read(engine, sse(event, done=False))
