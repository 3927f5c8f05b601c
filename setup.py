"""The build. Metadata is in pyproject.toml; here is only what compiles the hot modules, from the very same sources.

    OUTGUARD_COMPILE=1 pip install --no-build-isolation .      # needs a C compiler, mypy and the dependencies

mypyc turns typed Python into a C extension. A chunk then costs a sixth less CPU (tests/bench/REPORT.md); without it
everything works the same, from the Python sources. What is listed is what every chunk goes through, and
tests/test_compiled_sources.py says what such a module must not hold: coroutines, functions made in a loop, and a name
that is bound to errors of two types in one function. A class that is compiled is inherited from by compiled ones alone.
Cold code is not worth its build time.
"""

import os

from setuptools import setup

COMPILED = {
    "detectors": (
        "asked bare context empty encoding leak lettered markup mention near_context nearloop novelty numeric panel "
        "periods quoting repetition same_token stream stutter tail token_loop unmarked verdict whitespace"
    ),
    "guard": "delivered deltas evidence holding relay stream",
    "guard/constraint": (
        "automaton callframe grammar_check input_check json_check json_number json_sink json_string json_syntax locate "
        "pushdown regex_check schema_frame schema_node schema_text schema_walk text_check textargs toolargs toolcall "
        "toolname words"
    ),
    "guard/engines": "http_connection http_exchange intake openai_answer openai_reader runs sse",
    "guard/server": "direct openai_stream",
}


def extensions():
    if os.environ.get("OUTGUARD_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    paths = [f"{folder}/{name}.py" for folder, names in COMPILED.items() for name in names.split()]
    return mypycify(paths, opt_level="2", debug_level="0", multi_file=True)


setup(ext_modules=extensions())
