"""What setup.py compiles must be what mypyc translates rightly (it is not what every type checker accepts)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def compiled() -> list[str]:
    listed = next(
        node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "COMPILED"
    )
    return [f"{folder}/{name}.py" for folder, names in ast.literal_eval(listed).items() for name in names.split()]


@pytest.mark.parametrize("path", compiled())
def test_a_compiled_module_is_translated_rightly(path: str) -> None:
    source = (ROOT / path).read_text()
    for function in ast.walk(ast.parse(source)):
        assert not isinstance(function, ast.AsyncFunctionDef), f"{path}:{function.lineno}: a coroutine"
        if not isinstance(function, ast.FunctionDef):
            continue
        for loop in ast.walk(function):
            if isinstance(loop, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                made = [node for node in ast.walk(loop) if isinstance(node, ast.Lambda)]
                assert not made, f"{path}:{loop.lineno}: a function made in a loop, which would lose what it stands in"
        caught: dict[str, set[str]] = defaultdict(set)
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                caught[node.name].add(ast.unparse(node.type))
        for name, types in caught.items():
            # the name would keep the first type, and the second error would be a TypeError instead
            assert len(types) == 1, f"{path}:{function.lineno}: {name} is bound to errors of {len(types)} types"
    assert not re.search(r'(?<!r)"[^"\n]*\\ud[89a-f]', source), f"{path}: half a surrogate pair in a literal"
