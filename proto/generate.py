"""Generate guard/v1 from proto/guard/v1; with ``--check`` say whether the committed files are what it would generate.

The generated files name the versions of protobuf and grpcio that made them, and refuse to be imported by older ones.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).resolve().parent
ROOT = PROTO.parent
INIT = '"""The generated wire contract; its source is proto/guard/v1/guard.proto."""\n'


def generate(out: Path) -> list[Path]:
    """Write the generated files below ``out`` and return their paths relative to it. Ends the process on an error."""
    sources = sorted(PROTO.glob("guard/*/*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={PROTO}",
        f"--proto_path={files('grpc_tools').joinpath('_proto')}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        f"--grpc_python_out={out}",
        *(str(source) for source in sources),
    ]
    status = protoc.main(arguments)
    if status:
        raise SystemExit(status)
    for source in sources:
        (out / source.relative_to(PROTO).parent / "__init__.py").write_text(INIT)
    return sorted(path.relative_to(out) for path in out.glob("guard/v*/*.py*"))


def drift() -> list[str]:
    """The differences between what is committed and what would be generated, as lines; empty when there are none."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        names = generate(fresh)
        committed = {path.relative_to(ROOT) for path in ROOT.glob("guard/v*/*.py*")}
        lines.extend(f"{name}: is generated from nothing" for name in sorted(committed - set(names)))
        for name in names:
            old = (ROOT / name).read_text() if name in committed else ""
            new = (fresh / name).read_text()
            sides = f"committed/{name}", f"generated/{name}"
            lines.extend(difflib.unified_diff(old.splitlines(), new.splitlines(), *sides, lineterm=""))
    return lines


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        lines = drift()
        print("\n".join(lines[:80]) if lines else "guard/v1 is what proto/ generates")
        return 1 if lines else 0
    if arguments:
        print("usage: python proto/generate.py [--check]", file=sys.stderr)
        return 2
    for name in generate(ROOT):
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
