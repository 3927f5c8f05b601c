"""The reader on what real engines sent: every recorded exchange, whole, byte by byte and split at random; and for each
trap that the recordings hold, the events that it must give."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.engines.error_body import read_error_body
from guard.engines.openai_reader import OpenAIReader, read_stream, read_whole
from guard.engines.sse import SseReader
from guard.events import (
    Closed,
    Done,
    Fault,
    FinishReason,
    Opened,
    StreamEvent,
    TextDelta,
    ToolDelta,
    Usage,
)

ENGINES = ("vllm", "llamacpp", "llamacpp-hermes-template", "sglang", "sglang-hermes-parser", "transformers")
READ = ("/v1/chat/completions", "/v1/completions")


class Recording:
    def __init__(self, root: Path, name: str) -> None:
        stem = root / "recordings" / name
        self.name = name
        self.request: dict[str, Any] = json.loads(stem.with_name(f"{stem.name}.request.json").read_text())
        head, _, self.body = stem.with_name(f"{stem.name}.response").read_bytes().partition(b"\r\n\r\n")
        self.status = int(head.split()[1])
        self.streamed = b"text/event-stream" in head.lower()
        timing = stem.with_name(f"{stem.name}.timing.json")
        self.clean = not timing.exists() or json.loads(timing.read_text())["clean_end"]

    def events(self) -> list[StreamEvent]:
        return read_stream(self.body, self.clean) if self.streamed else read_whole(self.body)


def all_recordings(root: Path) -> Iterator[Recording]:
    for engine in ENGINES:
        for path in sorted((root / "recordings" / engine).glob("*.request.json")):
            yield Recording(root, f"{engine}/{path.name.removesuffix('.request.json')}")


def same_question(one: Recording, other: Recording) -> bool:
    asked = [{k: v for k, v in r.request["body_json"].items() if not k.startswith("stream")} for r in (one, other)]
    return asked[0] == asked[1]


def text_of(events: list[StreamEvent], channel: str = "content", choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and (e.channel, e.choice) == (channel, choice))


def reasons(events: list[StreamEvent]) -> list[str]:
    return [e.reason for e in events if isinstance(e, FinishReason)]


def calls(events: list[StreamEvent]) -> list[ToolDelta]:
    return [e for e in events if isinstance(e, ToolDelta)]


@pytest.fixture
def events(shared: Path) -> Any:
    return lambda name: Recording(shared, name).events()


def test_every_stream_in_any_split(shared: Path) -> None:
    seen = 0
    for recording in all_recordings(shared):
        if not recording.streamed or recording.request["path"] not in READ:
            continue
        seen += 1
        whole = recording.events()
        body, rng = recording.body, random.Random(recording.name)
        cuts = sorted(rng.sample(range(len(body)), min(len(body), 60)))
        for pieces in (
            [body[i : i + 1] for i in range(len(body))],
            [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)],
        ):
            reader = OpenAIReader()
            split = [event for piece in pieces for event in reader.feed(piece)] + reader.end(recording.clean)
            assert split == whole, recording.name
        assert isinstance(whole[0], Opened), recording.name
        assert isinstance(whole[-1], Closed | Fault), recording.name
        assert sum(isinstance(e, Closed | Fault) for e in whole) == 1, recording.name
        assert not any(isinstance(e, Fault) and e.kind == "protocol" for e in whole), recording.name
    assert seen > 130


def test_every_whole_answer_and_every_error(shared: Path) -> None:
    answers = errors = 0
    for recording in all_recordings(shared):
        if recording.streamed or recording.request["path"] not in READ:
            continue
        if recording.status == 200:
            answers += 1
            events = recording.events()
            assert isinstance(events[0], Opened), recording.name
            assert events[-1] == Closed(True), recording.name
            assert len(reasons(events)) == 1, recording.name
            assert any(isinstance(e, Usage) for e in events), recording.name
        else:
            errors += 1
            said = read_error_body(recording.body)
            assert said.message, recording.name
            assert '"message"' not in said.message, recording.name
            assert "PKG/" not in said.message, recording.name
    assert answers > 130
    assert errors > 40


def test_streams_of_other_protocols_are_read_as_events_at_least(shared: Path) -> None:
    """/v1/responses, /v1/messages, /generate: not this reader's, but well-formed event streams."""
    seen = 0
    for recording in all_recordings(shared):
        if recording.streamed and recording.request["path"] not in READ:
            seen += 1
            reader = SseReader()
            found = reader.feed(recording.body) + reader.finish()
            assert reader.broken is None, recording.name
            assert found, recording.name
            assert all(data == b"[DONE]" or json.loads(data) is not None for _, data in found), recording.name
    assert seen > 5


def test_stream_and_whole_agree(shared: Path) -> None:
    """The same request streamed and not: the same text, except where the engines themselves disagree."""
    disagree = {
        "llamacpp/continue_plain",  # the whole answer repeats the prefix
        "llamacpp/continue_noflags",
        "llamacpp/continue_json_schema",
        "llamacpp/continue_json_schema_oddkey_noflags",
        "vllm/tool_cut",  # the markup vanishes from the stream
        "vllm/tool_cut_auto",
        "llamacpp-hermes-template/tool_auto_markup_cut",
        "sglang-hermes-parser/tool_cut",
        "sglang-hermes-parser/tool_cut_auto",
        "sglang-hermes-parser/tool_cut_late",  # the stream closes the arguments by itself
        "sglang-hermes-parser/tool_auto",  # the stream begins with a line break
        "llamacpp-hermes-template/tool_auto",  # took another path
    }
    seen = 0
    for recording in all_recordings(shared):
        if not recording.name.endswith("_stream") or recording.request["path"] not in READ or recording.status != 200:
            continue
        name = recording.name.removesuffix("_stream")
        if not (shared / "recordings" / f"{name}.response").exists() or name in disagree:
            continue
        other = Recording(shared, name)
        if other.status != 200 or not same_question(other, recording):
            continue
        seen += 1
        streamed, whole = recording.events(), other.events()
        assert text_of(streamed) == text_of(whole), name
        assert "".join(c.arguments for c in calls(streamed)) == "".join(c.arguments for c in calls(whole)), name
        assert reasons(streamed) == reasons(whole), name
    assert seen > 55


# --- what surprised -----------------------------------------------------------------------------------------------


def test_vllm_killed_in_midstream_says_so_and_done_is_not_believed(events: Any) -> None:
    for name in ("vllm/engine_killed_midstream", "vllm/sigterm_midstream"):
        found = events(name)
        fault = found[-1]
        assert isinstance(fault, Fault)
        assert (fault.kind, fault.status) == ("error_event", 500)
        assert fault.message.startswith("EngineCore encountered an issue")
        assert not any(isinstance(e, Done | FinishReason | Closed) for e in found)


@pytest.mark.parametrize("engine", ["llamacpp", "sglang", "transformers"])
def test_the_others_just_end(events: Any, engine: str) -> None:
    found = events(f"{engine}/engine_killed_midstream")
    assert found[-1] == Fault("cut", "the connection ended in the middle of the answer")
    assert reasons(found) == []
    assert len(text_of(found)) > 50


def test_transformers_has_no_done_and_no_finish_reason_key_before_the_end(events: Any) -> None:
    found = events("transformers/chat_stream")
    assert not any(isinstance(e, Done) for e in found)
    assert reasons(found) == ["stop"]
    assert found[-1] == Closed(True)
    assert isinstance(found[-2], Usage)
    assert isinstance(found[-3], FinishReason)


def test_vllm_gives_the_eos_entry_and_id_with_the_finish_chunk(events: Any) -> None:
    found = events("vllm/chat_stream_logprobs")
    entries = [entry for e in found if isinstance(e, TextDelta) for entry in e.logprobs or ()]
    assert len(entries) == 8
    assert entries[-1]["token"] == "<|im_end|>"
    assert text_of(found) == "The capital of France is Paris."
    found = events("vllm/chat_stream_token_ids")
    assert [i for e in found if isinstance(e, TextDelta) for i in e.token_ids or ()] == [
        504, 3575, 282, 4649, 314, 7042, 30, 2,
    ]  # fmt: skip
    opened = found[0]
    assert isinstance(opened, Opened)
    assert opened.prompt_token_ids is not None
    assert len(opened.prompt_token_ids) == 37


def test_sglang_gives_no_eos_entry(events: Any) -> None:
    found = events("sglang/chat_stream_logprobs")
    assert sum(len(e.logprobs or ()) for e in found if isinstance(e, TextDelta)) == 7


def test_llamacpp_logprobs_carry_the_ids(events: Any) -> None:
    for name in ("llamacpp/chat_stream_logprobs", "llamacpp/completions_token_ids_in_stream"):
        deltas = [e for e in events(name) if isinstance(e, TextDelta)]
        assert all(e.token_ids and e.logprobs for e in deltas)
        assert deltas[0].token_ids == (60,)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_completions_give_ids_and_logprobs_in_the_chat_shape(events: Any, engine: str) -> None:
    found = events(f"{engine}/completions_token_ids_in_stream")
    deltas = [e for e in found if isinstance(e, TextDelta)]
    assert [e.token_ids for e in deltas] == [(504,), (3575,), (282,), (4649,), (314,), (7042,), (30,), (2,)]
    assert [e.logprobs[0]["token"] for e in deltas][:2] == ["The", " capital"]
    assert [top["token"] for top in deltas[0].logprobs[0]["top_logprobs"]] == ["The", "L"]
    assert found[0].prompt_token_ids[:3] == (1, 9690, 198)


def test_n2_interleaves_and_counts_differently(events: Any) -> None:
    for engine, count in (("vllm", [32]), ("sglang", [32]), ("llamacpp", [16, 16])):
        found = events(f"{engine}/chat_n2_stream")
        assert {e.choice for e in found if isinstance(e, TextDelta)} == {0, 1}
        assert [e.completion_tokens for e in found if isinstance(e, Usage)] == count
        assert sorted(e.choice for e in found if isinstance(e, FinishReason)) == [0, 1]
    assert {e.choice for e in events("transformers/chat_n2_stream") if isinstance(e, TextDelta)} == {0}


def test_stop_strings(events: Any) -> None:
    found = events("vllm/chat_stop_string_stream")
    assert [e.text for e in found if isinstance(e, TextDelta)][:3] == ["T", "he capit", "al "]
    assert [e.matched_stop for e in found if isinstance(e, FinishReason)] == [" is"]
    found = events("sglang/chat_stop_string_stream")
    assert [e.matched_stop for e in found if isinstance(e, FinishReason)] == [" is"]
    found = events("vllm/stop_token_ids_stream")
    assert [e.matched_stop for e in found if isinstance(e, FinishReason)] == [4649]


def test_cut_tool_calls(events: Any) -> None:
    found = events("vllm/tool_cut_stream")
    assert (text_of(found), calls(found), reasons(found)) == ("", [], ["length"])
    assert text_of(events("vllm/tool_cut")) == '<tool_call>\n{"name": "get_'
    late = events("sglang-hermes-parser/tool_cut_late_stream")
    assert "".join(c.arguments for c in calls(late)) == '{"city": ""}'
    assert reasons(late) == ["length"]
    late = events("llamacpp-hermes-template/tool_auto_markup_cut_late_stream")
    assert "".join(c.arguments for c in calls(late)) == '{"city": "Rome'


def test_tool_calls(events: Any) -> None:
    found = events("vllm/tool_auto_stream")
    assert calls(found)[0].name == "get_weather"
    assert calls(found)[0].arguments == ""
    assert json.loads("".join(c.arguments for c in calls(found))) == {"city": "Rome"}
    assert reasons(found) == ["tool_calls"]
    assert reasons(events("vllm/tool_named_stream")) == ["stop"]


def test_a_continued_usage_is_on_every_chunk(events: Any) -> None:
    counts = [e.completion_tokens for e in events("vllm/chat_stream_continuous_usage") if isinstance(e, Usage)]
    assert len(counts) > 5
    assert counts == sorted(counts)


def test_llamacpp_repeats_the_prefix_in_a_whole_answer_only(shared: Path) -> None:
    whole, stream = Recording(shared, "llamacpp/continue_plain"), Recording(shared, "llamacpp/continue_plain_stream")
    prefix = whole.request["body_json"]["messages"][-1]["content"]
    assert text_of(read_whole(whole.body)).startswith(prefix)
    assert text_of(read_whole(whole.body, drop_prefix=prefix)) == text_of(stream.events())


def test_cached_tokens_are_counted(events: Any) -> None:
    assert [e.cached_tokens for e in events("llamacpp/chat_stream_usage") if isinstance(e, Usage)] == [36]


def test_emoji_never_come_in_halves(events: Any) -> None:
    for engine in ("vllm", "llamacpp", "sglang", "transformers"):
        assert "\ufffd" not in text_of(events(f"{engine}/chat_stream_utf8"))


def test_errors_in_their_own_words(shared: Path) -> None:
    def said(name: str) -> tuple[str, str]:
        recording = Recording(shared, name)
        found = read_error_body(recording.body)
        return found.message, found.param

    assert said("vllm/err_unknown_model") == ("The model `no-such-model` does not exist. Valid aliases: m.", "model")
    assert said("llamacpp/err_no_messages") == ("'messages' is required", "")
    assert said("sglang/err_empty_messages") == ("Messages cannot be empty.", "")
    assert said("transformers/err_unknown_model")[0].startswith("Server is pinned to")
    assert said("transformers/err_empty_body") == ("Field required", "")
    assert said("transformers/err_negative_max_tokens") == ("Internal Server Error", "")
    assert said("vllm/err_not_found") == ("Not Found", "")
    assert "File " not in said("sglang/err_malformed_json")[0]
