"""What a command that reads traces says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from guard import options
from guard.cli import main
from guard.trace.store import AmbiguousTrace, Unavailable

CONFIG = """\
engines: [{name: a, url: "http://127.0.0.1:1"}]
routes: [{model: m, engines: [a]}]
trace: {store: "http://127.0.0.1:1/outguard"}
"""


class Reader:
    def flush(self) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "blames_the_store"),
    [(AmbiguousTrace("4b", ["4bf9", "4bf8"]), False), (Unavailable("connection refused"), True)],
)
def test_an_id_that_fits_several_traces_is_not_the_store_s_fault(
    error: Exception,
    blames_the_store: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "outguard.yaml"
    path.write_text(CONFIG)
    monkeypatch.setattr(options, "open_store", lambda *_: Reader())
    with pytest.raises(SystemExit) as end, options.reading(path):
        raise error
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert str(error) in said
    assert ("store cannot be read" in said) is blames_the_store


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("engines --since 7d", "--since goes with --contradictions"),
        ("engines --live --since 7d", "--since goes with --contradictions"),
        ("engines --live --contradictions", "one of them at a time"),
        ("policy explain --json --markdown", "one of them at a time"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(command: str, told: str) -> None:
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 2
    assert told in done.stderr
