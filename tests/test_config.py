"""A bad file is refused with the file, the line and the key; a good one is what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from guard.checked_yaml import ConfigError
from guard.config import Config, Policy, load_config, parse_config

GOOD = """\
engines:
  - name: a
    url: http://127.0.0.1:8000
    dialect: vllm
  - name: b
    url: http://127.0.0.1:8001/v1
routes:
  - model: m
    engines: [a, b]
"""


def test_a_small_file_is_enough() -> None:
    config = parse_config(GOOD)
    assert [engine.name for engine in config.engines] == ["a", "b"]
    assert config.engines[0].dialect == "vllm"
    assert config.policies == {"default": Policy()}
    assert config.policy_of(config.routes[0], "") == Policy()
    assert config.policy_of(config.routes[0], "strict") is None
    assert config.trace.retention.default == "none"  # nothing is kept that nobody allowed


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("dialect: vllm", "metrics_url: 8000/metrics"),
            "c.yaml:4: engines[0].metrics_url: must be empty, or the page",
        ),
        (("routes:", "trace: {metrics_interval: 0}\nroutes:"), "c.yaml:7: trace.metrics_interval: input should be"),
        (("dialect: vllm", "dialekt: vllm"), "c.yaml:4: engines[0].dialekt: is not a known key"),
        (("dialect: vllm", "dialect: vlmm"), "c.yaml:4: engines[0].dialect: "),
        (("name: b", "name: a"), "c.yaml:5: engines[1].name: a second engine is called 'a'"),
        (("engines: [a, b]", "engines: [a, c]"), "c.yaml:9: routes[0].engines[1]: there is no engine called 'c'"),
        (("engines: [a, b]", "engines: []"), "c.yaml:9: routes[0].engines: "),
        (("url: http://127.0.0.1:8000", "url: 127.0.0.1:8000"), "c.yaml:3: engines[0].url: "),
        (("  - model: m\n", "  - model: m\n    policy: strict\n"), "c.yaml:9: routes[0].policy: there is no policy"),
        (("  - model: m\n", "  - model: m\n    model: k\n"), "c.yaml:9: routes[0].model: is given twice"),
        (("routes:", "rotues:"), "c.yaml:7: rotues: is not a known key"),
        (
            ("    dialect: vllm", "    dialect: vllm\n    api_key_env: NO_SUCH_VARIABLE"),
            "c.yaml:5: engines[0].api_key_env",
        ),
        (("engines:\n", "engines: [\n"), "c.yaml:"),
        (("dialect: vllm", "dialect: torch"), "c.yaml:3: engines[0].url: the dialect torch and a torch:/// address"),
        (
            ("http://127.0.0.1:8000", "torch:///m"),
            "c.yaml:3: engines[0].url: the dialect torch and a torch:/// address",
        ),
        (("dialect: vllm", "constraints: none"), "c.yaml:4: engines[0].constraints: "),
        (("dialect: vllm", "tool_format: qwen"), "c.yaml:4: engines[0].tool_format: 'qwen' is no known"),
        (
            ("dialect: vllm", "reasoning_format: deepseek"),
            "c.yaml:4: engines[0].reasoning_format: 'deepseek' is no known format (there are: apertus, ",
        ),
        (("  - model: m\n", "  - model: m\n    balance: random\n"), "c.yaml:9: routes[0].balance: "),
        (("routes:", "workers: 0\nroutes:"), "c.yaml:7: workers: input should be greater than or equal to 1"),
        (("routes:", "health: {failures: 0}\nroutes:"), "c.yaml:7: health.failures: "),
        (("routes:", "health: {mode: on}\nroutes:"), "c.yaml:7: health.mode: "),
        (
            ("routes:", "health:\n  open_initial: 9\n  open_max: 3\nroutes:"),
            "c.yaml:7: health: open_max (3) is less than open_initial (9)",
        ),
        (
            ("routes:", "policies:\n  default:\n    thresholds:\n      phrase_copies: 1\nroutes:"),
            "c.yaml:10: policies.default.thresholds.phrase_copies: ",
        ),
        (
            ("routes:", "policies:\n  default:\n    thresholds: {phrases: 9}\nroutes:"),
            "c.yaml:9: policies.default.thresholds.phrases: is not a known key",
        ),
        (
            ("routes:", "policies:\n  default:\n    thresholds: {blank_chars: 100}\nroutes:"),
            "c.yaml:9: policies.default.thresholds: trailing_blank_chars (192) is more than blank_chars (100)",
        ),
        (("routes:", "cross_request: {mode: on}\nroutes:"), "c.yaml:7: cross_request.mode: "),
        (
            ("routes:", "cross_request: {key_env: NO_SUCH_VARIABLE}\nroutes:"),
            "c.yaml:7: cross_request.key_env: the variable NO_SUCH_VARIABLE is not set",
        ),
    ],
)
def test_each_mistake_has_its_line_and_key(change: tuple[str, str], problem: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(ConfigError) as raised:
        parse_config(GOOD.replace(*change, 1), "c.yaml")
    assert any(line.startswith(problem) for line in raised.value.problems), raised.value.problems


def test_all_mistakes_at_once() -> None:
    text = GOOD.replace("dialect: vllm", "dialekt: vllm").replace("url: http://127.0.0.1:8001/v1", "url: nowhere")
    with pytest.raises(ConfigError) as raised:
        parse_config(text)
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize("text", ["", "- a", "just text", "engines: {}", "\x00"])
def test_what_is_no_config_at_all(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engines: &x [*x]\nroutes: *x", "c.yaml:1: engines[0]: "),
        ("a: &x {b: *x}", "c.yaml:1: a: is not a known key"),
        ("engines: []\ntrace:\n  - &x [1, *x]\n  - 2026-13-01", "c.yaml:4: a value that cannot be: month must be"),
        ("engines: []\nroutes: !!int many", "c.yaml:2: a value that cannot be: "),
        ("engines: []\nroutes: []", "c.yaml:2: routes: must not be empty"),
        ("[" * 3_000, "c.yaml: is nested too deeply"),
        ("a: &a [1, 1]\nb: &b [*a, *a]\n" + "c: [*b, *b, *b]\na: 1", "c.yaml:4: a: is given twice"),
    ],
)
def test_what_yaml_allows_and_no_config_holds(text: str, problem: str) -> None:
    """Aliases that lead round in circles, values that are none."""
    with pytest.raises(ConfigError) as raised:
        parse_config(text, "c.yaml")
    assert any(line.startswith(problem) for line in raised.value.problems), raised.value.problems


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(tmp_path / "c.yaml")


def test_the_commented_example_is_valid_and_states_the_defaults() -> None:
    shipped = load_config(Path(__file__).parents[1] / "deploy" / "outguard.yaml")
    small = parse_config(GOOD)
    assert shipped.listen == small.listen
    assert shipped.policies == small.policies
    assert shipped.trace == small.trace
    assert shipped.limits == small.limits
    assert shipped.health == small.health
    assert shipped.cross_request == small.cross_request
    assert shipped.routes[0].balance == small.routes[0].balance
    assert shipped.engines[0].drain == small.engines[0].drain
    assert shipped.engines[0].timeouts == small.engines[0].timeouts


def test_the_kubernetes_manifest_holds_a_valid_config() -> None:
    manifest = (Path(__file__).parents[1] / "deploy" / "kubernetes" / "sidecar.yaml").read_text()
    config_map, deployment = yaml.safe_load_all(manifest)
    config = parse_config(config_map["data"]["outguard.yaml"])
    pod = deployment["spec"]["template"]["spec"]
    ports = {port["containerPort"] for port in pod["initContainers"][0]["ports"]}
    assert {int(address.rpartition(":")[2]) for address in (config.listen.http, config.listen.grpc)} == ports


@pytest.mark.parametrize("value", [None, "", " , "])
@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("listen: {api_keys_env: SECRET}", "listen.api_keys_env"),
        ("cross_request: {key_env: SECRET}", "cross_request.key_env"),
        ("trace: {retention: {hash_key_env: SECRET}}", "trace.retention.hash_key_env"),
    ],
)
def test_a_secret_that_is_named_must_be_there(
    monkeypatch: pytest.MonkeyPatch, section: str, key: str, value: str | None
) -> None:
    """An empty one would be no key at all: every caller let in, fingerprints under a key that nobody chose."""
    if value is None:
        monkeypatch.delenv("SECRET", raising=False)
    else:
        monkeypatch.setenv("SECRET", value)
    with pytest.raises(ConfigError, match=rf"config:10: {key}: the variable SECRET is (not set|empty)"):
        parse_config(GOOD + section + "\n")


def test_an_engines_key_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace("dialect: vllm", "dialect: vllm\n    api_key_env: SECRET", 1)
    monkeypatch.setenv("SECRET", "")
    with pytest.raises(ConfigError, match=r"engines\[0\].api_key_env: the variable SECRET is empty"):
        parse_config(text)
    monkeypatch.setenv("SECRET", "k\n")  # as it comes out of many a file
    assert parse_config(text).engines[0].api_key() == "k"


def test_a_route_names_an_engine_once() -> None:
    with pytest.raises(ConfigError, match=r"routes\[0\].engines\[1\]: 'a' stands there twice"):
        parse_config(GOOD.replace("engines: [a, b]", "engines: [a, a]"))


def test_the_stores_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD + "trace:\n  store: http://writer@host:8123/outguard\n  password_env: STORE_PASSWORD\n"
    with pytest.raises(ConfigError, match=r"config:12: trace.password_env: the variable STORE_PASSWORD is not set"):
        parse_config(text)
    monkeypatch.setenv("STORE_PASSWORD", "p@ss/word")
    trace = parse_config(text).trace
    assert trace.dsn() == "http://writer:p%40ss%2Fword@host:8123/outguard"
    assert "p@ss" not in repr(trace)
    with pytest.raises(ConfigError, match="has no user"):
        parse_config(text.replace("writer@", ""))


def test_a_model_in_this_process_and_an_engine_that_is_sent_no_formats() -> None:
    text = GOOD.replace(
        "url: http://127.0.0.1:8000\n    dialect: vllm", "url: torch:///m.gguf?mask=outlines\n    dialect: torch"
    )
    config = parse_config(text.replace("8001/v1", "8001/v1\n    constraints: guard"))
    assert [engine.dialect for engine in config.engines] == ["torch", "plain"]
    assert [engine.constraints for engine in config.engines] == ["engine", "guard"]
    wrong = text.replace("mask=outlines", "mask=none")
    with pytest.raises(ConfigError, match="there are no masks called 'none'"):
        parse_config(wrong)


def test_engines_are_built_of_it_and_torch_is_not_loaded_for_that() -> None:
    """In a process of its own: this one may have loaded it."""
    script = (
        "import sys\n"
        "from guard.build import build_engine\n"
        "from guard.config import EngineConfig\n"
        "local = build_engine(EngineConfig(name='t', url='torch:///m', dialect='torch', constraints='guard'))\n"
        "remote = build_engine(EngineConfig(name='r', url='http://127.0.0.1:1', dialect='vllm', constraints='guard'))\n"
        "assert not local.capabilities.constraints and not remote.capabilities.constraints\n"
        "assert not {'torch', 'transformers', 'xgrammar'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def _numbers(kind: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a section that holds a number, and of those within it."""
    for name, field in kind.model_fields.items():
        parts = {field.annotation, *get_args(field.annotation)}
        if {int, float} & parts or any({int, float} & {*get_args(part)} for part in parts):
            yield (*path, name)
        for part in parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _numbers(part, (*path, name))


NUMBERS = sorted(set(_numbers(Config)))


@pytest.mark.parametrize("word", ["yes", "off", "true"])
@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
def test_a_truth_is_no_number(path: tuple[str, ...], word: str) -> None:
    """yes is 1 to Python, and no number that anybody meant."""
    top, *rest = path
    section: Any = yaml.safe_load(word)
    for key in reversed(["default", *rest] if top == "policies" else rest):
        section = {key: section}
    data: Any = yaml.safe_load(GOOD)
    if top in ("engines", "routes"):
        data[top][0] |= section
    else:
        data[top] = section
    with pytest.raises(ConfigError) as raised:
        parse_config(yaml.safe_dump(data), "c.yaml")
    assert any(f"{path[-1]}: must be a number (yes, no" in line for line in raised.value.problems)


def test_the_keys_that_hold_numbers_are_found() -> None:
    assert len(NUMBERS) > 30
    assert {("limits", "max_requests"), ("engines", "timeouts", "connect"), ("workers",)} <= set(NUMBERS)


def test_truths_are_taken_where_they_are_wanted() -> None:
    config = parse_config(GOOD + "policies: {default: {resume: no, detectors: off}}\n")
    assert config.policies["default"].resume is False
    assert config.policies["default"].detectors == "off"


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("trace: {store: 'sqlite:///secret@x'}", "trace.store: must be none, chdb:///path"),
        ("listen: {http: '8080'}", "listen.http: must be host:port, as 127.0.0.1:8080"),
        ("trace: {otlp_endpoint: 'host:4318'}", "trace.otlp_endpoint: must be empty, or a collector's address"),
    ],
)
def test_an_address_of_the_wrong_form_is_told_in_words(section: str, wanted: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(GOOD + section + "\n")
    (line,) = raised.value.problems
    assert wanted in line
    assert "secret" not in line
    assert "pattern" not in line
