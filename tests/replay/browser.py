"""A headless Chromium for tests of pages: driven over its DevTools pipe (NUL-terminated JSON on descriptors 3 and 4).

``missing()`` says why there is none. What goes wrong in the page (an exception, an error on its console, a request to
anything but the page itself) is in ``problems``.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def program() -> str:
    return next((path for name in NAMES if (path := shutil.which(name))), "")


def missing() -> str:
    return "" if program() else "no Chromium is installed (Debian: apt-get install chromium)"


class Browser:
    def __init__(self, width: int = 1280, height: int = 1000, *, dark: bool = False) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="outguard-browser-", ignore_cleanup_errors=True)
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # the browser wants exactly the descriptors 3 and 4
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]
        flags += [f"--window-size={width},{height}", f"--user-data-dir={self._profile.name}", "--no-first-run"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(to_read), str(from_write), program(), *flags, "about:blank"],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._to, self._from = to_write, from_read
        self._buffer = b""
        self._number = 0
        self._session = ""
        self._shown = ""
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self, seconds: float = 60.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._from, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("the browser does not answer")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"].get("exception", {}).get("description")))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent" and params["request"]["url"] != self._shown:
            self.problems.append(f"asked for {params['request']['url'][:200]}")

    def show(self, url: str) -> None:
        self._shown = url
        self.call("Page.navigate", url=url)
        until = time.monotonic() + 30
        while self.run("document.readyState") != "complete" or self.run("location.href") != url:
            assert time.monotonic() < until, "the page does not load"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        codes = {"Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Home": 36}
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **more)

    def screenshot(self, path: Path | None = None) -> bytes:
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])
        if path is not None:
            path.write_bytes(data)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()
