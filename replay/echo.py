"""Known-answer tasks: repeat an identifier that nobody can guess. What a matrix adds to expose corruption. Pure.

The right answer is known, and the model is sure of every token (the margins are wide), so that rounding cannot change
it: a copy that is right in most runs and wrong in some was not computed by the model. A model that cannot copy is wrong
in all of them, and that is no corruption.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

from msgspec import Struct

from replay.edit import edit_distance

_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another
ID: Final = "echo"

Harm = Literal["", "dropped", "tail", "replaced", "other"]
"""How a copy is wrong: characters missing, another ending, single characters replaced, anything else."""


class EchoTask(Struct, frozen=True):
    """``request_id`` is ``echo-N``; ``expected`` the whole right answer."""

    request_id: str
    prompt: str
    expected: str

    def body(self, model: str) -> dict[str, Any]:
        """An OpenAI chat request: greedy, with log probabilities."""
        return {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "temperature": 0,
            "seed": 1,
            "max_tokens": 4 * len(self.expected),
            "logprobs": True,
            "top_logprobs": 5,
        }


def echo_tasks(seed: str, number: int, length: int = 24) -> list[EchoTask]:
    """The same for the same seed. ``length``: letters of the identifier, in groups of six. Each prompt is of its own
    length, so that requests in one batch are not all alike."""
    return [_task(seed, index, length) for index in range(number)]


def harm(expected: str, answer: str) -> Harm:
    """What happened to the copy; empty when it is right. White space around it does not count."""
    expected, answer = expected.strip(), answer.strip()
    if answer == expected:
        return ""
    distance = edit_distance(expected, answer)
    if len(answer) < len(expected) and distance == len(expected) - len(answer):
        return "dropped"
    if len(answer) == len(expected) and distance <= max(1, len(expected) // 8):
        return "replaced"
    same = next((i for i, (a, b) in enumerate(zip(expected, answer, strict=False)) if a != b), len(answer))
    return "tail" if same >= len(expected) // 4 else "other"


def _task(seed: str, index: int, length: int) -> EchoTask:
    digest = hashlib.shake_256(f"{seed}/{index}".encode()).digest(length)
    letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)
    expected = "-".join(letters[i : i + 6] for i in range(0, length, 6))
    filler = " Take care with every character." * (index % 4)
    prompt = f"Repeat this identifier exactly, and write nothing else.{filler}\n\n{expected}"
    return EchoTask(f"{ID}-{index}", prompt, expected)
