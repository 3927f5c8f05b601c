"""A run as one page: no asset of its own, no script of others, nothing fetched. It can be mailed, and opened in years.

The page's only code is the one script beside this file: its hash stands in the page's content security policy, and what
engines said is data (JSON in an element of its own), put on the page as text and never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from replay.report import Report
from replay.web.data import page_data


def page(report: Report, home: str = "") -> str:
    """``home``: the address of the list of runs, where the page is served."""
    return _filled("page.html", f"Run {report.head.id}", {**page_data(report), "home": home})


def index_page(runs: Sequence[dict[str, Any]]) -> str:
    """The list of runs: ``run``, ``kind``, ``created_at``, ``requests``, ``cells``, ``answers``, ``planned`` and
    ``href`` of each."""
    return _filled("index.html", "Outguard: triage", {"runs": list(runs)})


def script_hash() -> str:
    return base64.b64encode(hashlib.sha256(_part("page.js").encode()).digest()).decode()


def policy() -> str:
    """The content security policy of both pages."""
    return f"default-src 'none'; script-src 'sha256-{script_hash()}'; style-src 'unsafe-inline'; base-uri 'none'"


def _filled(template: str, title: str, data: dict[str, Any]) -> str:
    # "<" cannot stand in the data, so nothing in it can end its element
    embedded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    text = _part(template)
    for name, value in (
        ("title", html.escape(title)),
        ("policy", html.escape(policy())),
        ("style", _part("page.css")),
        ("script", _part("page.js")),
        ("data", embedded),
    ):
        text = text.replace("{{" + name + "}}", value, 1)
    return text.encode("utf-8", "replace").decode()


def _part(name: str) -> str:
    return files("replay.web").joinpath(name).read_text(encoding="utf-8")
