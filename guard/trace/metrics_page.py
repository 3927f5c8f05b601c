"""The Prometheus pages of several workers as one."""

from __future__ import annotations

from collections.abc import Mapping


def merged(pages: Mapping[str, bytes]) -> bytes:
    """``pages`` by the worker's name, in the text format. Every sample gets the label ``worker``, and the samples of a
    metric stand together below its help, as the format asks."""
    metrics: dict[str, list[str]] = {}
    for worker, page in pages.items():
        head, samples = "", metrics.setdefault("", [])
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                head = line
                samples = metrics.setdefault(head, [])
            elif line.startswith("#"):
                if line not in samples:
                    samples.append(line)
            elif line:
                samples.append(_labelled(line, worker))
    lines = [line for head, samples in metrics.items() for line in ([head, *samples] if head else samples)]
    return "".join(f"{line}\n" for line in lines).encode()


def _labelled(sample: str, worker: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{worker="{worker}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{worker}"}} {value}'
