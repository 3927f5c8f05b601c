"""The demo's steps: each asks the running sidecar something real, says what came and why, and checks it.

Two llama.cpp engines with the same small model; in front of one of them a fault turns every answer into one token for
ever after its 40th piece. The sidecar is started as an operator would start it, with the embedded ClickHouse as its
store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from guard.client import Client, Generation
from guard.demo.engine import missing
from guard.demo.processes import DemoError, Processes, end_like_ctrl_c, free_ports
from guard.events import Finished, Recovery, Release
from guard.tables import LEAST_WIDTH
from guard.tables import console as wide_console

COLLAPSES_AFTER = 40
INDENT = "   "
QUESTION = "Which city is the capital of Italy? Answer in one short sentence."
STORY = "Write a long story about a lighthouse keeper who finds a message in a bottle."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
DATE = r"\d{4}-\d{2}-\d{2}"

CONFIG = """\
listen:
  http: 127.0.0.1:{http}
  grpc: 127.0.0.1:{grpc}
engines:
  - name: steady
    url: http://127.0.0.1:{steady}
    dialect: llamacpp
    image: llama-server@xllamacpp-2026.10
    cluster: a
    precision: q4_1
  - name: shaky
    url: http://127.0.0.1:{shaky}
    dialect: llamacpp
    image: llama-server@xllamacpp-2026.10-faulty
    cluster: b
    precision: q4_1
routes:
  - model: smollm2
    engines: [steady, shaky]
  - model: smollm2-from-shaky
    engines: [shaky, steady]
trace:
  store: chdb://{folder}/store
  retention:
    default: full   # so that the demo can show and replay what it asked; the product's own default is none
"""


def run(*, keep: bool) -> int:
    """The exit code: 0 when every step went as it should."""
    end_like_ctrl_c()
    console = wide_console(LEAST_WIDTH + len(INDENT))
    if lacking := missing():
        console.print(f"The demo cannot run: {lacking}", style="red")
        return 1
    with tempfile.TemporaryDirectory(prefix="outguard-demo-") as folder, Processes(Path(folder)) as processes:
        try:
            demo = Demo(console, Path(folder), processes)
            demo.start()
            for step in (demo.chat, demo.json_schema, demo.regex, demo.collapse, demo.traces, demo.replay):
                step()
        except DemoError as error:
            console.print(f"The demo stopped: {error}", style="red")
            return 1
        failed = demo.failed
        console.print()
        if failed:
            console.print(f"Not as it should be: {', '.join(failed)}", style="red")
        else:
            console.print("Every step went as it should.", style="green")
        if keep:
            demo.keep()
    return 1 if failed else 0


class Demo:
    def __init__(self, console: Console, folder: Path, processes: Processes) -> None:
        self._console = console
        self._folder = folder
        self._processes = processes
        self._config = folder / "outguard.yaml"
        self._steady, self._real, self._shaky, self._http, self._grpc = free_ports(5)
        self._number = 0
        self._collapsed = ""
        self.failed: list[str] = []

    # --- the steps ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._say("Starting two llama.cpp engines with SmolLM2-135M, a fault in front of one, and the sidecar ...")
        started = time.monotonic()
        for name, port in (("steady", self._steady), ("shaky-engine", self._real)):
            self._processes.start(name, "guard.demo.engine", str(port), ready=f"http://127.0.0.1:{port}/health")
        fault = (str(self._shaky), str(self._real), str(COLLAPSES_AFTER))
        self._processes.start("fault", "guard.demo.fault", *fault, ready=f"http://127.0.0.1:{self._shaky}/health")
        self._config.write_text(
            CONFIG.format(http=self._http, grpc=self._grpc, steady=self._steady, shaky=self._shaky, folder=self._folder)
        )
        ready = f"http://127.0.0.1:{self._http}/readyz"
        self._processes.start("outguard", "guard", "serve", "--config", str(self._config), ready=ready)
        self._say(f"ready after {time.monotonic() - started:.1f} s")

    def chat(self) -> None:
        self._step("A chat answer, through both protocols", "the same request at temperature 0 gives the same text")
        with Client(f"127.0.0.1:{self._grpc}") as client:
            over_grpc = client.generate(
                "smollm2", [{"role": "user", "content": QUESTION}], temperature=0, max_tokens=30, timeout=60
            ).text()
        answer = self._openai().chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=30
        )
        over_http = answer.choices[0].message.content
        self._quote("gRPC", over_grpc)
        self._quote("OpenAI SDK", over_http or "")
        self._check("same text", bool(over_grpc) and over_grpc == over_http)

    def json_schema(self) -> None:
        self._step("A JSON-schema answer", "the schema goes to the engine, and the answer is checked on its way back")
        answer = self._openai().chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Invent a person. Answer with a JSON object with name and age."}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "person", "schema": PERSON, "strict": True},
            },
            temperature=0,
            max_tokens=80,
        )
        text = answer.choices[0].message.content or ""
        verdict = (answer.model_extra or {})["outguard"]["verdicts"][0]["format"]
        self._quote("answer", text)
        self._say(f"verdict on its format: {verdict}")
        self._check("valid", _valid_person(text) and verdict == "ok")

    def regex(self) -> None:
        self._step("A regex answer", f"the engine knows no regexes: {DATE} reaches it as a grammar")
        with Client(f"127.0.0.1:{self._grpc}") as client:
            generation = client.generate(
                "smollm2",
                [{"role": "user", "content": "On which day did the moon landing happen? Answer as YYYY-MM-DD."}],
                regex=DATE,
                temperature=0,
                max_tokens=20,
                timeout=60,
            )
            text = generation.text()
        self._quote("answer", text)
        finished = generation.finished.get(0)
        self._check("matches", finished is not None and finished.verdicts.format == "ok")

    def collapse(self) -> None:
        self._step(
            "A collapse, recovered from in the middle of the stream",
            f"the first engine sends '!' for ever after its {COLLAPSES_AFTER}th piece; the caller must never see that",
        )
        with Client(f"127.0.0.1:{self._grpc}") as client:
            generation = client.generate(
                "smollm2-from-shaky",
                [{"role": "user", "content": STORY}],
                temperature=0,
                max_tokens=120,
                timeout=90,
            )
            self._stream(generation)
        self._collapsed = generation.trace_id
        finished, recoveries = generation.finished.get(0), generation.recoveries
        text = generation.received()
        for found in generation.findings:
            self._say(f"found on {found.engine}: {found.finding.code} from character {found.finding.onset} on")
        for r in recoveries:
            self._say(f"{r.action}: {r.from_engine} -> {r.to_engine} after {r.offset} characters ({r.reason})")
        if finished is not None:
            self._say(
                f"finished: {finished.reason}, {finished.attempts} attempts, {finished.wasted_tokens} wasted tokens"
            )
        whole = finished is not None and finished.attempts == 2 and finished.reason in ("stop", "length")
        self._check("recovered", whole and len(recoveries) == 1 and "!!!" not in text)

    def traces(self) -> None:
        self._step("The traces", "every request left one row, each attempt another: outguard traces list, traces show")
        self._command("traces", "list")
        self._command("traces", "show", self._collapsed[:12])
        rows = json.loads(self._command("traces", "list", "--json", quiet=True))
        row = next((r for r in rows if r["trace_id"] == self._collapsed), None)
        self._check("two attempts on record", row is not None and row["attempts_made"] == 2 and row["outcome"] == "ok")

    def replay(self) -> None:
        self._step(
            "The same request again, over both engines",
            "outguard replay says which engine the failure belongs to",
        )
        arguments = ("replay", self._collapsed[:12], "--engines", "steady,shaky", "--repeats", "2")
        self._command(*arguments, codes=(0, 1))
        runs = json.loads(self._command(*arguments, "--json", quiet=True, codes=(0, 1)))["runs"]
        bad = {run["engine"] for run in runs if run["condemned"]}
        self._check("only the faulty engine fails", bad == {"shaky"})

    def keep(self) -> None:
        body = {"model": "smollm2", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40}
        self._say("Still serving; end it with Ctrl-C. For example:")
        for line in (
            f"curl -s http://127.0.0.1:{self._http}/v1/chat/completions -H 'content-type: application/json' "
            f"-d '{json.dumps(body)}'",
            "grpcurl -plaintext -d '"
            + json.dumps({"model": "smollm2", "chat": {"messages": [{"role": "ROLE_USER", "text": QUESTION}]}})
            + f"' 127.0.0.1:{self._grpc} guard.v1.Guard/Generate",
            f"outguard traces list --config {self._config}",
        ):
            self._console.print(Text("  " + line), soft_wrap=True)  # to be copied: a break would end up in the JSON
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self._console.print()

    # --- saying it ---------------------------------------------------------------------------------------------------

    def _step(self, title: str, why: str) -> None:
        self._number += 1
        self._console.print()
        self._console.print(Text(f"{self._number}. {title}", style="bold"))
        self._console.print(Text(f"   {why}", style="dim"))

    def _say(self, line: str) -> None:
        self._console.print(Text(f"   {line}"))

    def _quote(self, name: str, text: str) -> None:
        self._console.print(Text(f"   {name}: {text.strip()}", style="cyan"))

    def _check(self, what: str, ok: bool) -> None:
        self._console.print(Text(f"   {what}: {'yes' if ok else 'NO'}", style="green" if ok else "red"))
        if not ok:
            self.failed.append(what)

    def _stream(self, generation: Generation) -> None:
        """The answer as it comes, a mark where it changed engines."""
        width = min(110, self._console.width - 6)
        pieces: list[str] = []
        for event in generation:
            if isinstance(event, Release):
                pieces.append(event.text)
            elif isinstance(event, Recovery):
                pieces.append(" ⟪here the other engine took over⟫ ")
            elif isinstance(event, Finished):
                break
        for line in textwrap.wrap("".join(pieces), width):
            self._console.print(Text(f"   {line}", style="cyan"))

    def _openai(self) -> Any:
        import openai

        return openai.OpenAI(base_url=f"http://127.0.0.1:{self._http}/v1", api_key="none", max_retries=0)

    def _command(self, *arguments: str, quiet: bool = False, codes: tuple[int, ...] = (0,)) -> str:
        """Run an outguard command on the demo's configuration, showing what it prints."""
        if not quiet:
            self._console.print(Text(f"   $ outguard {' '.join(arguments)}", style="dim"))
        done = subprocess.run(
            [sys.executable, "-m", "guard", *arguments, "--config", str(self._config)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env={**os.environ, "COLUMNS": str(self._console.width - len(INDENT))},
        )
        if done.returncode not in codes:
            raise DemoError(f"outguard {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
        if not quiet:
            self._console.print(Text(textwrap.indent(done.stdout.rstrip(), INDENT)))
        return done.stdout


def _valid_person(text: str) -> bool:
    try:
        person = json.loads(text)
    except ValueError:
        return False
    return isinstance(person, dict) and set(person) == {"name", "age"} and type(person["age"]) is int
