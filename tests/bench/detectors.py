"""The detectors' numbers: false alarms, recall, delay, what a caller sees, what is held, cost, and the usual rules
beside them on the same texts. Run by ``make bench-detectors`` on what a container ships, by ``python -m
tests.bench.detectors`` on the sources; prints, says which it was, and exits with 1 when a goal is missed.

Everything comes from the test half and from seeds that no threshold was set on.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from detectors import CrossRequest, Detector, Finding, Leak, Panel, Prompts, leak
from detectors.tail import Tail
from tests.bench.baselines import RULES, pieces
from tests.bench.interval import interval
from tests.corpus.clean import Document, documents
from tests.corpus.collapse import EXACT, EXPLAINED, NEAR, Collapse, collapses, real_loops
from tests.corpus.honest import honest

SEED = 7_001
CHUNK = 4  # characters


@dataclass
class Goals:
    missed: list[str] = field(default_factory=list)

    def check(self, what: str, met: bool) -> str:
        if not met:
            self.missed.append(what)
        return "met" if met else "MISSED"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=12_000, help="clean documents from this machine")
    parser.add_argument("--honest", type=int, default=4_000, help="generated honest documents that repeat themselves")
    parser.add_argument("--each", type=int, default=400, help="collapses of every kind")
    parser.add_argument("--compare", type=int, default=600, help="documents and collapses for the other rules")
    options = parser.parse_args(arguments)
    goals = Goals()
    print(f"the detectors are {'compiled' if str(leak.__file__).endswith('.so') else 'Python'} here")
    clean = list(documents("test", options.documents, SEED))
    made = list(honest(options.honest, SEED))
    broken = list(collapses(options.each, SEED))
    size = sum(len(document.text) for document in clean)
    print(f"{len(clean)} clean documents ({size / 1e6:.0f} MB) of this machine's test half, {len(made)} generated, "
          f"{len(broken)} collapses of {len({c.kind for c in broken})} kinds\n")  # fmt: skip
    false_alarms(clean, made, goals)
    holding(clean[:1_500] + made[:500], goals)
    recall(broken, goals)
    real(goals)
    cost(clean[:400], goals)
    cross_request_cost(clean[:400])
    comparison(clean[: options.compare] + made[: options.compare // 3], broken, options.compare, goals)
    tensor_speed(goals)
    print("\nevery goal is met" if not goals.missed else "\ngoals missed: " + "; ".join(goals.missed))
    return 1 if goals.missed else 0


def panel(document: Document | Collapse) -> Panel:
    prompt = document.prompt if isinstance(document, Document) else None
    json = document.json if isinstance(document, Collapse) else False
    return Panel(prompt_text=prompt, json=json, extra=(Tail(), Leak("content", prompt_text=prompt)))


def whole(document: Document) -> list[Finding]:
    watch = panel(document)
    return [f for f in (*watch.feed(document.text), *watch.finish()) if f.severity == "error"]


def share(hits: int, total: int) -> str:
    low, high = interval(hits, total)
    return f"{hits}/{total} = {100 * hits / max(total, 1):.3f} % [{100 * low:.3f}, {100 * high:.3f}]"


def false_alarms(clean: Sequence[Document], made: Sequence[Document], goals: Goals) -> None:
    print("FALSE ALARMS (default policy)")
    total = 0
    for name, group in (("this machine's documents", clean), ("generated, repetitive", made)):
        alarms = [(document, found) for document in group if (found := whole(document))]
        total += len(alarms)
        families = Counter(found[0].family for _, found in alarms)
        print(f"  {name}: {share(len(alarms), len(group))}")
        for family, count in families.most_common():
            print(f"    of them {family}: {share(count, len(group))}")
        for document, found in alarms:
            first = found[0]
            around = document.text[max(0, first.onset - 20) : first.onset + 30]
            print(f"    {first.code} at {first.onset} in {document.name}: {around!r}")
    count = len(clean) + len(made)
    print(f"  goal: at most 1 in 10,000: {goals.check('false alarms', total * 10_000 <= count)}\n")


def holding(group: Iterable[Document], goals: Goals) -> None:
    chunks = held = longest = 0
    for document in group:
        watch = panel(document)
        since = 0
        for start in range(0, len(document.text), CHUNK):
            if any(f.severity == "error" for f in watch.feed(document.text[start : start + CHUNK])):
                break  # a false alarm, counted above
            chunks += 1
            if watch.doubt < min(start + CHUNK, len(document.text)):
                held += 1
                since += 1
                longest = max(longest, since)
            else:
                since = 0
    part = held / chunks
    print(f"HOLDING in clean text, chunks of {CHUNK} characters")
    print(f"  held at all: {100 * part:.4f} % of {chunks} chunks; goal under 1 %: {goals.check('held', part < 0.01)}")
    print(f"  longest wait: {longest} chunks; goal at most 16: {goals.check('longest wait', longest <= 16)}\n")


@dataclass
class Caught:
    """One collapse as a live stream would have met it; ``copies`` and ``tokens`` from its onset to its condemnation."""

    collapse: Collapse
    finding: Finding | None
    copies: float = 0.0
    tokens: int = 0
    seen: int = 0


def watched(collapse: Collapse) -> Caught:
    watch = panel(collapse)
    found: list[Finding] = []
    for start in range(0, len(collapse.text), CHUNK):
        found = [f for f in watch.feed(collapse.text[start : start + CHUNK]) if f.severity == "error"]
        if found:
            break
    found = found or [f for f in watch.finish() if f.severity == "error"]
    if not found:
        return Caught(collapse, None)
    first = found[0]
    late = first.detected_at - collapse.onset
    tokens = len(pieces(collapse.text[collapse.onset : first.detected_at])) if late > 0 else 0
    copies = late / collapse.period if collapse.period else 0.0
    return Caught(collapse, first, copies, tokens, max(0, min(watch.doubt, first.detected_at) - collapse.onset))


def in_time(caught: Caught) -> bool:
    """6 copies or 24 tokens, whichever is later; 16 tokens of a single one; 12 copies of a near-loop."""
    collapse = caught.collapse
    if collapse.single:
        return caught.tokens <= 16 or caught.copies <= 16
    if not collapse.exact:
        return caught.copies <= 12
    return caught.copies <= 6 or caught.tokens <= 24


def recall(broken: Sequence[Collapse], goals: Goals) -> None:
    print("RECALL, DELAY (from the onset), WHAT A CALLER SEES")
    kinds: dict[str, list[Caught]] = defaultdict(list)
    for collapse in broken:
        kinds[collapse.kind].append(watched(collapse))
    print(f"  {'kind':24}{'recall':38}{'copies':>14}{'tokens':>14}  in time  onset right  seen at most")
    for kind, group in kinds.items():
        hits = [caught for caught in group if caught.finding is not None]
        line = f"  {kind:24}{share(len(hits), len(group)):38}"
        floor = 1.0 if kind in EXACT else 0.99 if kind in NEAR else 0.995
        goals.check(f"recall of {kind}", len(hits) >= math.ceil(floor * len(group)))
        looping = [caught for caught in hits if caught.collapse.period]
        if looping:
            copies = sorted(caught.copies for caught in looping)
            tokens = sorted(caught.tokens for caught in looping)
            timely = sum(map(in_time, looping)) / len(looping)
            right = sum(
                caught.finding is not None
                and abs(caught.finding.onset - caught.collapse.onset) <= caught.collapse.period
                for caught in looping
            ) / len(looping)  # fmt: skip
            sight = sum(caught.seen <= max(2 * caught.collapse.period, 200) for caught in looping) / len(looping)
            line += f"{_spread(copies):>14}{_spread(tokens):>14}"
            line += f"{100 * timely:8.1f} %{100 * right:11.1f} %{100 * sight:12.1f} %"
            if kind not in EXPLAINED:
                goals.check(f"delay of {kind}", timely >= 0.99)
                goals.check(f"onset of {kind}", right >= 0.99)
                goals.check(f"sight of {kind}", sight >= 0.99)
        print(line)
    print(
        "  copies, tokens: median / largest. In time: 6 copies or 24 tokens (a single token 16, a near-loop 12 copies)."
    )
    print("  Seen: the share of loops of which at most two copies or 200 characters were released.")
    print("  Code and rows explain repetition, so they are given longer, and are not held to these times.\n")


def real(goals: Goals) -> None:
    """Recorded loops of a real model, judged without their prompts."""
    loops = [loop for _, loop in real_loops()]
    seen = [watched(loop) for loop in loops]
    hits = [caught for caught in seen if caught.finding is not None]
    print("REAL LOOPS of a small model at temperature 0 (tests/corpus/real_loops.jsonl)")
    print(f"  found: {share(len(hits), len(loops))}: {goals.check('real loops', len(hits) == len(loops))}")
    copies = sorted(caught.copies for caught in hits)
    sight = sum(caught.seen <= max(2 * caught.collapse.period, 200) for caught in hits)
    print(f"  copies until condemned, median / largest: {_spread(copies)}")
    print(f"  at most two copies or 200 characters released: {share(sight, len(hits))}\n")


class _Nothing:
    """A call that does nothing, to be taken off."""

    def feed(self, text: str) -> None: ...


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} / {values[-1]:.0f}"


def cost(group: Sequence[Document], goals: Goals) -> None:
    print(f"COST of all detectors of a channel, a {CHUNK}-character chunk")
    prose = [d for d in group if d.name.split("#")[0].endswith((".txt", ".md", ".rst", "LICENSE", "METADATA"))]
    worst = 0.0
    for name, part in (("prose and markdown", prose[:120]), ("all documents", group[:120])):
        cut = [[d.text[i : i + CHUNK] for i in range(0, len(d.text), CHUNK)] for d in part]
        count = sum(map(len, cut))
        if not count:
            continue
        best = sum(fastest(lambda: Panel(extra=(Tail(), Leak())), chunks) for chunks in cut)
        bare = sum(fastest(_Nothing, chunks) for chunks in cut)
        worst = max(worst, (best - bare) / count * 1e6)
        print(
            f"  {name}: {(best - bare) / count * 1e6:.2f} us, "
            f"and {bare / count * 1e6:.2f} us for a call that does nothing"
        )
    print(f"  goal: at most 4 us: {goals.check('cost', worst <= 4.0)}\n")


def cross_request_cost(group: Sequence[Document]) -> None:
    """With the prompts of 32 other requests known; on and off in turn, as machines change their minds."""
    prompts = Prompts(b"bench")
    for i, document in enumerate(group[200:232]):
        prompts.add(str(i), document.text)
    cut = [[d.text[i : i + CHUNK] for i in range(0, len(d.text), CHUNK)] for d in group[:40]]
    count = sum(map(len, cut))
    off = on = 0.0
    for chunks in cut:
        off += fastest(lambda: Panel(extra=(Tail(), Leak())), chunks)
        on += fastest(lambda: Panel(extra=(Tail(), Leak(), CrossRequest(prompts, "own", severity="warn"))), chunks)
    began = time.process_time()
    for i, document in enumerate(group[:32]):
        prompts.add(f"more {i}", document.text)
    add = (time.process_time() - began) / 32
    print("CROSS-REQUEST ALARM (off by default)")
    print(f"  a chunk: {off / count * 1e6:.2f} us without it, {on / count * 1e6:.2f} us with it ({on / off:.2f} times)")
    print(f"  a prompt of {sum(len(d.text) for d in group[:32]) // 32} characters: {add * 1e3:.2f} ms once\n")


def fastest(make: Callable[[], Detector | _Nothing], chunks: Sequence[str], rounds: int = 7) -> float:
    """CPU seconds of the quickest of several rounds, so that what else the machine does weighs little."""
    best = math.inf
    for _ in range(rounds):
        feed = make().feed
        began = time.process_time()
        for chunk in chunks:
            feed(chunk)
        best = min(best, time.process_time() - began)
    return best


def comparison(clean: Sequence[Document], broken: Sequence[Collapse], most: int, goals: Goals) -> None:
    print(f"AGAINST OTHER RULES ({len(clean)} honest documents, {most} loops; repetition only)")
    looping = [c for c in broken if c.kind in (*EXACT, *NEAR, *EXPLAINED)]
    looping = looping[:: max(1, len(looping) // most)]
    exact = [c for c in looping if c.exact]
    near = [c for c in looping if not c.exact]
    print(f"  {'rule':24}{'exact loops':>14}{'near-loops':>14}{'false alarms':>14}{'delay, tokens: median, 95 %':>30}")

    def ours(text: str, document: Document | Collapse) -> int | None:
        watch = panel(document)
        found = [f for f in (*watch.feed(text), *watch.finish()) if f.severity == "error"]
        return found[0].detected_at if found else None

    rows: dict[str, tuple[float, float, float]] = {}
    late_by: dict[str, dict[int, int]] = {}
    for name in ("Outguard", *RULES):

        def stop(document: Document | Collapse, name: str = name) -> int | None:
            if name == "Outguard":
                return ours(document.text, document)
            return RULES[name](pieces(document.text))

        alarms = sum(stop(document) is not None for document in clean)
        after = late_by[name] = {}
        shares = []
        for group in (exact, near):
            hits = 0
            for collapse in group:
                at = stop(collapse)
                if at is not None and at > collapse.onset:  # before the onset it is a false alarm, whatever follows
                    hits += 1
                    after[id(collapse)] = len(pieces(collapse.text[collapse.onset : at]))
            shares.append(hits / max(1, len(group)))
        delays = sorted(after.values())
        late = f"{statistics.median(delays):.0f}, {delays[int(len(delays) * 0.95)]}" if delays else "-"
        false = alarms / len(clean)
        rows[name] = (shares[0], shares[1], false)
        print(f"  {name:24}{100 * shares[0]:12.1f} %{100 * shares[1]:12.1f} %{100 * false:12.2f} %{late:>30}")
    mine = rows.pop("Outguard")
    ahead = all(mine[0] >= row[0] and mine[1] >= row[1] and mine[2] <= row[2] for row in rows.values())
    print(f"  goal: ahead in recall and in false alarms: {goals.check('comparison', ahead)}")
    own = late_by["Outguard"]
    for name, after in late_by.items():
        both = after.keys() & own.keys()
        if name != "Outguard" and both:
            theirs, mine_too = statistics.median(after[i] for i in both), statistics.median(own[i] for i in both)
            print(f"  of the {len(both)} loops that {name} sees: median delay {theirs:.0f} tokens, ours {mine_too:.0f}")
    print("  Delay is the one column in which we are not ahead of every rule, and cannot be: a rule that stops at the")
    print("  fourth copy stops every honest table, refrain and list that has four. What that rule gains in tokens the")
    print("  caller does not see: repeats are held from about the second copy on (SEEN, above).\n")


def tensor_speed(goals: Goals) -> None:
    try:
        from tests.bench.tensor_speed import measure
    except ImportError:
        print("TORCH FORM: not measured, torch is not installed")
        return
    rate = measure()
    print(
        f"TORCH FORM: {rate / 1e6:.1f} million tokens a second on this CPU; goal 5: {goals.check('torch', rate >= 5e6)}"
    )


if __name__ == "__main__":
    sys.exit(main())
