"""What is logged of an exception: its kind and the way to it, never its words."""

from __future__ import annotations

import logging
import sys

from guard.logs import FORMAT, QuietFormatter


def formatted(error: BaseException) -> str:
    try:
        try:
            raise error
        except BaseException as cause:
            raise KeyError("the secret again") from cause
    except KeyError:
        record = logging.LogRecord("outguard", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    return QuietFormatter(FORMAT).format(record)


def test_an_exception_without_its_words() -> None:
    text = formatted(ValueError("the secret"))
    assert "secret" not in text.replace('"the secret again"', "")
    assert "it failed" in text
    assert text.count("Traceback (most recent call last):") == 2
    assert "in formatted" in text
    assert "KeyError" in text
    assert text.endswith("ValueError")


def test_exceptions_in_a_circle_end() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert formatted(one).count("ValueError") == 2


def test_a_line_without_an_exception_is_as_it_is() -> None:
    record = logging.LogRecord("outguard", logging.INFO, __file__, 1, "%d records", (3,), None)
    assert QuietFormatter(FORMAT).format(record).endswith("INFO outguard 3 records")
