"""What native code writes to standard error during a compile is logged; what others write there stays."""

from __future__ import annotations

import logging
import os

import pytest

from guard.constraint.native_noise import to_the_log

WARNING = b"[19:20:42] /project/cpp/json_schema_converter.cc:1199: Warning: pattern is not supported; ignoring it\n"


def test_warnings_go_to_the_log_once(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "guard.constraint.native_noise"), to_the_log():
        os.write(2, WARNING * 3)
        os.write(2, b"somebody else's line\n")
    assert caplog.messages == ["json_schema_converter.cc: pattern is not supported; ignoring it"]
    assert capfd.readouterr().err == "somebody else's line\n"


def test_standard_error_is_given_back_when_a_compile_fails(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(2)
    with pytest.raises(ValueError, match="no grammar"), to_the_log():
        raise ValueError("no grammar")
    assert (before.st_dev, before.st_ino) == (os.fstat(2).st_dev, os.fstat(2).st_ino)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


@pytest.mark.slow
def test_xgrammar_itself(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed (outguard[torch])")
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([]), max_threads=1, cache_enabled=False)
    schema = '{"type": "string", "pattern": "^x+$", "maxLength": 3}'
    with caplog.at_level(logging.INFO, "guard.constraint.native_noise"), to_the_log():
        compiler.compile_json_schema(schema)
    assert "maxLength" in caplog.text
    assert capfd.readouterr().err == ""
