"""The wire contract holds to its naming rules, says what every field means, and is what the generated code was made
from."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).resolve().parents[2]
protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools (extra dev) is not installed")

PASCAL = re.compile(r"^[A-Z][A-Za-z0-9]*$")
SNAKE = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorProto:
    out = tmp_path_factory.mktemp("proto") / "set"
    include = Path(protoc.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT / 'proto'}",
            f"--proto_path={include}",
            "--include_source_info",
            f"--descriptor_set_out={out}",
            "guard/v1/guard.proto",
        ]
    )
    assert status == 0
    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    return file


def messages(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    found = list(file.message_type)
    while found:
        message = found.pop()
        if not message.options.map_entry:
            yield message
            found.extend(message.nested_type)


def enums(file: FileDescriptorProto) -> Iterator[EnumDescriptorProto]:
    yield from file.enum_type
    for message in messages(file):
        yield from message.enum_type


def test_names(contract: FileDescriptorProto) -> None:
    assert contract.package == "guard.v1"
    for message in messages(contract):
        assert PASCAL.match(message.name)
        for field in message.field:
            assert SNAKE.match(field.name), field.name
        for oneof in message.oneof_decl:
            assert SNAKE.match(oneof.name.lstrip("_")), oneof.name
    for enum in enums(contract):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        assert all(value.name.startswith(prefix) for value in enum.value), enum.name
        assert (enum.value[0].name, enum.value[0].number) == (f"{prefix}UNSPECIFIED", 0)


def test_calls_have_messages_of_their_own(contract: FileDescriptorProto) -> None:
    (service,) = contract.service
    assert [method.name for method in service.method] == ["Generate", "Check", "ReportOutcome", "ListEngines"]
    for method in service.method:
        assert method.input_type == f".guard.v1.{method.name}Request"
        assert method.output_type == f".guard.v1.{method.name}Response"
    streams = {method.name: (method.client_streaming, method.server_streaming) for method in service.method}
    assert streams["Generate"] == (False, True)
    assert streams["Check"] == (True, True)


def test_the_events_of_both_streams_have_the_same_numbers(contract: FileDescriptorProto) -> None:
    by_name = {message.name: message for message in contract.message_type}
    generate = {field.name: field.number for field in by_name["GenerateResponse"].field}
    check = {field.name: field.number for field in by_name["CheckResponse"].field}
    assert check.items() <= generate.items()


def test_everything_is_documented(contract: FileDescriptorProto) -> None:
    said = {tuple(place.path): place.leading_comments for place in contract.source_code_info.location}

    def undocumented(path: tuple[int, ...], message: DescriptorProto) -> Iterator[str]:
        if message.options.map_entry:
            return
        parts = [((), message.name)]
        parts += [((2, i), field.name) for i, field in enumerate(message.field)]
        parts += [((8, i), oneof.name) for i, oneof in enumerate(message.oneof_decl) if oneof.name[0] != "_"]
        for i, enum in enumerate(message.enum_type):
            parts += [((4, i), enum.name)]
            parts += [((4, i, 2, j), value.name) for j, value in enumerate(enum.value)]
        for rest, name in parts:
            if not said.get(path + rest, "").strip():
                yield f"{message.name}.{name}"
        for i, nested in enumerate(message.nested_type):
            yield from undocumented((*path, 3, i), nested)

    missing = [name for i, message in enumerate(contract.message_type) for name in undocumented((4, i), message)]
    for i, enum in enumerate(contract.enum_type):
        places = [((5, i), enum.name)] + [((5, i, 2, j), value.name) for j, value in enumerate(enum.value)]
        missing += [name for path, name in places if not said.get(path, "").strip()]
    (service,) = contract.service
    places = [((6, 0), service.name)] + [((6, 0, 2, i), method.name) for i, method in enumerate(service.method)]
    missing += [name for path, name in places if not said.get(path, "").strip()]
    assert missing == []


def check_drift() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "proto/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)


def test_the_generated_code_is_what_the_contract_generates() -> None:
    done = check_drift()
    assert done.returncode == 0, done.stdout


def test_drift_is_seen(tmp_path: Path) -> None:
    for folder in ("proto/guard/v1", "guard/v1"):
        (tmp_path / folder).mkdir(parents=True)
        for file in (ROOT / folder).iterdir():
            if file.is_file():
                (tmp_path / folder / file.name).write_bytes(file.read_bytes())
    script = tmp_path / "proto" / "generate.py"
    script.write_bytes((ROOT / "proto" / "generate.py").read_bytes())
    contract = tmp_path / "proto" / "guard" / "v1" / "guard.proto"
    contract.write_text(contract.read_text().replace("string model = 1;", "string model_name = 1;", 1))
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "model_name" in done.stdout
