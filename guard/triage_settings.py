"""The section ``triage`` of the configuration: the page of stored replays."""

from __future__ import annotations

from typing import Annotated, Literal

from guard.section import MayBeOff, Section


class TriageSettings(Section):
    """``page``: the replays that are stored, at /triage of the HTTP server, read only. They hold what was asked and
    answered: auto serves them where only this machine can connect, on serves them to whoever may ask (with API keys,
    to who has one), off never. ``runs``: the folder of the replays; empty: beside the trace store."""

    page: Annotated[Literal["auto", "on", "off"], MayBeOff] = "auto"
    runs: str = ""
