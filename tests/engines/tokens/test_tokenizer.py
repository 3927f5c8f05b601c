"""Prompts as token ids: the ones that real engines made of the same messages; templates as engines render them."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tokenizer_files

from guard.engines.tokens.template import ChatTemplate, TemplateError, Unrendered
from guard.engines.tokens.tokenizer import ChatTokenizer, TokenizerError, load, tokenizer_file, vocabulary_name
from guard.engines.tokens.vocabulary import Vocabulary, read_vocabulary
from guard.normalise import chat_request, completion_request
from guard.request import GenerationRequest


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := tokenizer_files.missing():
        pytest.skip(reason)
    return tokenizer_files.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> ChatTokenizer:
    return load(folder)


def asked(**body: Any) -> GenerationRequest:
    return chat_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **body}, request_id="r")


def test_prompts_are_those_of_the_engines(shared: Path, tokenizer: ChatTokenizer) -> None:
    prompts = json.loads((shared / "recordings/nondeterminism/prompts.json").read_text())
    for prompt in prompts:
        messages = [{"role": "user", "content": prompt["user"]}]
        assert tokenizer.prompt(asked(messages=messages)) == prompt["ids"], prompt["user"]
    assert len(prompts) == 20


def test_answers_read_from_their_ids(shared: Path, tokenizer: ChatTokenizer) -> None:
    body = (shared / "recordings/llamacpp/native_completion_plain.response").read_bytes().partition(b"\r\n\r\n")[2]
    said = json.loads(body)
    assert tokenizer.vocabulary.text(said["tokens"]) == said["content"]


@pytest.mark.parametrize("text", ["In 1984: été 🙂 日本\n\n  x\t{", " leading", "don't", "<tool_call>\n", "\x00\x7f"])
def test_a_text_and_its_tokens(tokenizer: ChatTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.vocabulary.text(ids) == text
    assert tokenizer.vocabulary.knows(ids)


def test_what_ends_an_answer_is_no_text(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.vocabulary.ends == {2}
    assert tokenizer.vocabulary.text([504, 2]) == "The"
    assert tokenizer.vocabulary.text([1]) == "<|im_start|>"
    assert not tokenizer.vocabulary.knows([50_000_000])
    assert tokenizer.vocabulary.data(-1) == b""


def test_an_answer_that_the_caller_began(tokenizer: ChatTokenizer) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, I"}]
    ids = tokenizer.prompt(asked(messages=messages), goes_on=True)
    assert tokenizer.vocabulary.text(ids).endswith("assistant\nHello, I")


def test_completions(tokenizer: ChatTokenizer) -> None:
    text = completion_request({"model": "m", "prompt": "Hello"}, request_id="r")
    ids = completion_request({"model": "m", "prompt": [5, 6]}, request_id="r")
    assert tokenizer.vocabulary.text(tokenizer.prompt(text)) == "Hello"
    assert tokenizer.prompt(ids) == [5, 6]


def test_where_the_files_are(folder: Path, tmp_path: Path) -> None:
    for path in (folder, folder / "tokenizer.json", folder / "model.gguf"):
        assert tokenizer_file(path) == folder / "tokenizer.json"
    assert vocabulary_name(folder) == load(folder).vocabulary.name
    with pytest.raises(TokenizerError, match=r"there is no tokenizer\.json"):
        tokenizer_file(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(TokenizerError, match="cannot be used"):
        load(tmp_path)


def test_a_template_of_its_own_file(folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    other = load(tmp_path)
    assert other.vocabulary.text(other.prompt(asked())) == "Hi!"
    assert other.template_hash != load(folder).template_hash
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(TokenizerError, match="chat template"):
        load(tmp_path)


def test_a_sidecar_without_token_mode_loads_none_of_it() -> None:
    """Nor one whose configuration has been read, and whose engines were built."""
    script = """
import sys
from guard.config import parse_config
from guard.build import build_engine
config = parse_config("engines: [{name: a, url: 'http://h:1', dialect: vllm}]\\nroutes: [{model: m, engines: [a]}]")
build_engine(config.engines[0])
print([name for name in ("jinja2", "tokenizers", "transformers") if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


# --- vocabularies ---------------------------------------------------------------------------------------------------


def test_sentencepiece_pieces() -> None:
    file = {
        "model": {"vocab": {"<unk>": 0, "▁Hello": 1, "<0xF0>": 2, "<0x9F>": 3, "▁▁": 4}},
        "added_tokens": [{"id": 5, "content": "<end_of_turn>", "special": True}],
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
    vocabulary = read_vocabulary("v", file, [5])
    assert vocabulary.pieces == [b"<unk>", b" Hello", b"\xf0", b"\x9f", b"  ", b"<end_of_turn>"]
    assert vocabulary.special == {5}


def test_unigram_lists_its_pieces() -> None:
    file = {"model": {"vocab": [["▁a", -1.0], ["b", -2.0]]}, "decoder": {"type": "Metaspace"}}
    assert read_vocabulary("v", file).pieces == [b" a", b"b"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"model": {"vocab": {"##a": 0}}, "decoder": {"type": "WordPiece"}}, "WordPiece"),
        ({"model": {"vocab": {"a": 0}}}, "there is none"),
        ({"model": {}}, "no vocabulary"),
    ],
)
def test_a_vocabulary_that_is_not_known(file: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_vocabulary("v", file)


def test_ids_beyond_a_vocabulary() -> None:
    assert Vocabulary("v", [b"a"], frozenset(), frozenset()).data(7) == b""


# --- templates ------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 4, tzinfo=UTC)
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}


def rendered(source: str, messages: list[dict[str, Any]], **more: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}, lambda: NOW).render(messages, **more)


@pytest.mark.parametrize(
    ("source", "message", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}", {"content": "x"}, "<s>x"),
        ("{{ messages[0].content }}", {"content": [{"type": "text", "text": "a"}, "b"]}, "a\nb"),
        ("{{ messages[0].content }}|", {"content": None, "tool_calls": [CALL]}, "|"),
        ("{{ messages[0].tool_calls[0].function.arguments | tojson }}", {"tool_calls": [CALL]}, '{"a": "ü"}'),
        ("{{ {'a': '<&>'} | tojson(indent=1) }}", {}, '{\n "a": "<&>"\n}'),
        ("{{ strftime_now('%Y') }}", {}, "2026"),
        ("{% for m in messages %}{% if loop.first %}{% break %}{% endif %}x{% endfor %}.", {}, "."),
        ("{% generation %}a{% endgeneration %}b", {}, "ab"),
        ("{% if add_generation_prompt %}\n  go\n{% endif %}", {}, "  go\n"),
        ("{% if tools is none %}no{% endif %}", {}, "no"),
        ("{{ messages[0].name is defined }}", {"name": None}, "False"),
    ],
)
def test_rendering(source: str, message: dict[str, Any], text: str) -> None:
    assert rendered(source, [{"role": "user", **message}]) == text


def test_arguments_of_the_caller() -> None:
    source = "{% if enable_thinking %}think{% endif %}"
    assert rendered(source, [{"role": "user", "content": ""}], arguments={"enable_thinking": True}) == "think"


@pytest.mark.parametrize(
    ("source", "messages", "error", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", [{"content": "x"}], TemplateError, "roles must alternate"),
        ("{{ messages[3].content.x }}", [{"content": "x"}], TemplateError, "does not take these messages"),
        ("{{ ''.__class__.__mro__ }}", [{"content": "x"}], TemplateError, "unsafe"),
        ("x", [{"content": [{"type": "image_url"}]}], Unrendered, "only text"),
    ],
)
def test_what_is_not_taken(source: str, messages: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rendered(source, messages)


def test_an_open_end_that_the_template_hides() -> None:
    with pytest.raises(TemplateError, match="does not show"):
        rendered("nothing", [{"role": "assistant", "content": "begun"}], goes_on=True)
    source = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"
    assert rendered(source, [{"content": "a"}, {"content": "a "}], goes_on=True) == "[a][a"


def test_as_the_transformers_library_renders(folder: Path) -> None:
    """The real one, on a template with tools, calls and their results."""
    transformers = pytest.importorskip("transformers")
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Wetter in Köln?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    theirs.chat_template = tokenizer_files.TOOLS_TEMPLATE
    parsed = [dict(message) for message in messages]
    parsed[2]["tool_calls"] = [{**CALL, "function": {"name": "f", "arguments": {"a": "ü"}}}]
    for tools in ([], [tool]):
        text = theirs.apply_chat_template(parsed, tools=tools or None, tokenize=False, add_generation_prompt=True)
        ours = ChatTemplate(tokenizer_files.TOOLS_TEMPLATE, {}, lambda: NOW).render(messages, tools)
        assert ours == text
