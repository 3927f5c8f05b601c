"""A process that compiles one constraint under hard limits of CPU time and memory, so that the server need not find out
for itself what a hostile one costs.

Run as ``python -m guard.constraint.probe SECONDS MEGABYTES``: reads a Constraint as JSON, and exits with 0, or with 1
and the refusal as JSON on standard output. Killed by its limits it says nothing, which says it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import resource
import signal
import sys
import time
from typing import Final

import msgspec

from guard.constraint.limits import Limits, depth_of, too_complex
from guard.constraint.spec import Constraint
from guard.request import RequestError

SUSPECT_BYTES: Final = 64 << 10
"""Smaller schemas are compiled in milliseconds whatever they say, once their shape is within its limits."""
_WAIT: Final = 20.0
_SHARE: Final = 0.4
"""Of the seconds that a constraint may take in all: what this process can build is built once more by the one that
asked, and to begin costs something as well."""
_COUNT: Final = re.compile(rb"\d{4}|\{\d+")


class Refusal(msgspec.Struct):
    message: str
    param: str
    code: str


def is_suspect(constraint: Constraint) -> bool:
    """Whether a constraint may take long to compile: large ones, and those whose counts an engine may write out. The
    automaton of a regex is limited as it is built."""
    match constraint.kind:
        case "json_schema":
            return len(constraint.canonical) > SUSPECT_BYTES
        case "grammar":
            text = str(constraint.value)
            return len(text) > 4_000 or (constraint.syntax == "lark" and "{" in text)
        case "structural_tag":
            return len(constraint.canonical) > 4_000 or _COUNT.search(constraint.canonical) is not None
    return False


async def probe(constraint: Constraint, limits: Limits) -> None:
    """Raises RequestError when the constraint is wrong, or cannot be compiled within the limits."""
    if constraint.kind == "json_schema":
        # what can be told from its looks needs no process
        if depth_of(constraint.value, limits.depth) > limits.depth:
            raise too_complex(constraint.param, f"the schema nests deeper than {limits.depth} levels")
        if len(constraint.canonical) > limits.bytes:
            size = len(constraint.canonical)
            raise too_complex(constraint.param, f"the schema has {size} bytes, and may have {limits.bytes}")
    elif constraint.kind == "grammar" and len(constraint.value) > limits.grammar_chars:
        size = len(constraint.value)
        raise too_complex(constraint.param, f"the grammar has {size} characters, and may have {limits.grammar_chars}")
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "guard.constraint.probe",
            str(limits.seconds * _SHARE),
            str(limits.megabytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise _unprobed(constraint, f"no process can be started for it: {error.strerror}") from error
    try:
        async with asyncio.timeout(_WAIT):
            said, _ = await process.communicate(json.dumps(msgspec.to_builtins(constraint)).encode())
    except TimeoutError:
        raise too_complex(constraint.param, f"compiling takes longer than {_WAIT:g} seconds") from None
    except (RuntimeError, ConnectionError) as error:  # uvloop says a RuntimeError of a pipe that is closed
        raise _unprobed(constraint, "the process that was started for it died") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return
    try:
        refusal = msgspec.json.decode(said, type=Refusal)
    except msgspec.DecodeError:
        raise too_complex(
            constraint.param,
            f"compiling takes more than {limits.seconds * _SHARE:g} seconds of CPU or {limits.megabytes} MB of memory",
        ) from None
    raise RequestError(refusal.message, refusal.param, refusal.code)


def _unprobed(constraint: Constraint, why: str) -> RequestError:
    """Nobody's fault but ours, and no word about the constraint."""
    return RequestError(f"the constraint could not be checked: {why}", constraint.param, "overloaded")


def main() -> int:
    seconds, megabytes = float(sys.argv[1]), int(sys.argv[2])
    # the standard library's JSON: integers may have more than 64 bits
    constraint = msgspec.convert(json.load(sys.stdin), Constraint)
    from guard.constraint.compile import compile_constraint

    if constraint.kind == "structural_tag":
        with contextlib.suppress(ImportError):
            import xgrammar  # noqa: F401  # what loading it takes is not the constraint's doing
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))  # to the millisecond, and it ends the process
    cpu = math.ceil(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + (megabytes << 20),) * 2)
    try:
        compile_constraint(constraint).checker().feed("")
    except RequestError as error:
        sys.stdout.buffer.write(msgspec.json.encode(Refusal(error.message, error.param, error.code)))
        return 1
    except MemoryError:
        return 2
    return 0


def _mapped() -> int:
    """Bytes of address space that the process holds already."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
