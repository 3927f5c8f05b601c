"""Known-answer tasks, and what became of the answer."""

from __future__ import annotations

import pytest

from replay.echo import echo_tasks, harm


@pytest.mark.parametrize(
    ("expected", "answer", "how"),
    [
        ("c_pw4nz8tqm6", "c_pw4nz8tqm6", ""),
        ("c_pw4nz8tqm6", " c_pw4nz8tqm6\n", ""),
        ("c_pw4nz8tqm6", "c_pw4nz8tq6", "dropped"),
        ("c_pw4nz8tqm6", "c_pw4nz8tqn6", "replaced"),
        ("c_pw4nz8tqm6", "c_pw4nz8 is the answer", "tail"),
        ("c_pw4nz8tqm6", "", "dropped"),
        ("c_pw4nz8tqm6", "I cannot do that.", "other"),
    ],
)
def test_how_a_copy_is_wrong(expected: str, answer: str, how: str) -> None:
    assert harm(expected, answer) == how


def test_the_answer_of_a_task_is_in_its_prompt_and_the_same_for_the_same_seed() -> None:
    tasks = echo_tasks("7", 6)
    assert all(task.expected in task.prompt and task.expected in str(task.body("m")) for task in tasks)
    assert tasks == echo_tasks("7", 6)
    assert len({task.expected for task in (*tasks, *echo_tasks("8", 6))}) == 12
    assert len({len(task.prompt) for task in tasks}) > 1  # a batch of them is not all of one length
