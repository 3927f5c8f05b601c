"""Simulated fleets with a planted cause: observations as engines with that fault would give them.

A request has one right answer, of words that are tokens, with its distribution at every step: the model is sure of most
steps (a margin of 3 nats and more), and in some requests it holds two words as good as equally likely at one step,
after which the answer goes another way. What a fault does to an answer is one function; when it strikes is the fleet.

Everything is drawn from the seed. No fleet knows anything of the rules that are to find it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from replay.echo import echo_tasks
from replay.observation import Alternative, Cell, Counts, Found, Observation, Sampling
from tests.replay.answers import token_id

WORDS = [a + b + c for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ai") for c in ("l", "n", "r", "st", "m")]
LENGTH = 24

Step = list[tuple[str, float]]  # words and log probabilities, the chosen one first


@dataclass
class Answer:
    """``steps``: what stands at each, with the other likely words. ``drawn``: steps whose word is not the likeliest."""

    steps: list[Step]
    findings: tuple[Found, ...] = ()

    def words(self) -> list[str]:
        return [step[0][0] for step in self.steps]


@dataclass
class Request:
    name: str
    prompt: str
    right: Answer
    other: Answer | None = None
    """The answer on the other side of its near tie, where it has one."""
    expected: str | None = None
    prompt_ids: tuple[int, ...] = ()


@dataclass
class Fleet:
    """``cause`` and ``axes`` are what a triage should find: a set of axis values, or several that select the same runs
    and must all be named; none are asked for where it is None."""

    runs: list[Observation]
    cause: str
    axes: tuple[frozenset[str], ...] | None = None
    prompts: dict[str, str] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, requests: int = 8, ties: float = 0.6) -> None:
        self.rng = random.Random(seed)
        self.requests = [self._request(number, ties) for number in range(requests)]

    def _request(self, number: int, ties: float) -> Request:
        rng = self.rng
        prompt = f"Case {rng.randrange(10_000, 99_999)}: " + " ".join(rng.choices(WORDS, k=12))
        steps = [self.sure(word) for word in rng.choices(WORDS, k=LENGTH)]
        other = None
        if rng.random() < ties:
            place, gap = rng.randrange(4, LENGTH - 6), rng.choice((0.0, 0.0625, 0.125, 0.25))
            here, there = steps[place][0][0], rng.choice(WORDS) + "y"
            steps[place] = [(here, -0.69), (there, -0.69 - gap), (rng.choice(WORDS), -4.0)]
            flipped: Step = [(there, -0.69), (here, -0.69 - gap / 2), steps[place][2]]
            other = Answer([*steps[:place], flipped, *(self.sure(w) for w in rng.choices(WORDS, k=LENGTH - place - 1))])
        ids = tuple(rng.randrange(1000) for _ in range(16))
        return Request(f"r{number}", prompt, Answer(steps), other, prompt_ids=ids)

    def sure(self, word: str) -> Step:
        """A step of which the model is sure."""
        sure = self.rng.uniform(-0.06, -0.001)
        return [(word, sure), *((self.rng.choice(WORDS), sure - self.rng.uniform(3, 5) - n) for n in range(3))]

    # --- what faults do to an answer ---------------------------------------------------------------------------------

    def corrupted(self, answer: Answer) -> Answer:
        """From some token on, words that no distribution held; at times a loop, which the guard condemns."""
        rng, words = self.rng, answer.steps
        place = rng.randrange(2, len(words) - 4)
        if rng.random() < 0.5:
            word = rng.choice(WORDS)
            found = (Found("repetition.token", onset=place),)
            return Answer([*words[:place], *([(word, -0.01), ("x", -6.0)] for _ in range(20))], found)
        kept = [*words[:place], *words[place + 1 + rng.randrange(2) :]]  # characters dropped
        garbled: Step = [(rng.choice(WORDS) + "zq", -0.02), (rng.choice(WORDS), -7.0)]
        return Answer([*kept[:place], garbled, *kept[place:]], (Found("encoding.mojibake"),))

    def drawn(self, answer: Answer) -> Answer:
        """Sampled at a temperature: every few steps a less likely word, and another way from there."""
        rng = self.rng
        steps = list(answer.steps)
        place = rng.randrange(0, 6)
        while place < len(steps):
            word, top = steps[place][0], steps[place][1:]
            taken = rng.choice(top)[0] + rng.choice("aeiou")
            steps[place] = [(taken, word[1] - rng.uniform(1.0, 3.0)), word, *top]
            steps[place + 1 :] = [self.sure(each) for each in rng.choices(WORDS, k=LENGTH - place - 1)]
            place += rng.randrange(2, 7)
        return Answer(steps)

    def mixed_up(self, answer: Answer, beside: Request) -> Answer:
        """Another request's prompt is gone on with in the middle of the answer."""
        place = self.rng.randrange(2, 10)
        theirs = beside.prompt.replace(":", "").split()
        return Answer([*answer.steps[:place], *(self.sure(word) for word in theirs[: self.rng.randrange(4, 10)])])

    def quantised(self, answer: Answer) -> Answer:
        """Rounded weights: soon some choice that was close falls the other way, and the answer drifts."""
        rng = self.rng
        place, gap = rng.randrange(2, LENGTH - 4), rng.uniform(0.02, 0.4)
        here, there = answer.steps[place][0][0], rng.choice(WORDS) + "o"
        answer.steps[place] = [(here, -0.6), (there, -0.6 - gap), (rng.choice(WORDS), -4.0)]
        turned: Step = [(there, -0.6), (here, -0.6 - gap), (rng.choice(WORDS), -4.0)]
        return Answer(
            [*answer.steps[:place], turned, *(self.sure(w) for w in rng.choices(WORDS, k=LENGTH - place - 1))]
        )

    def otherwise(self, answer: Answer) -> Answer:
        """Another implementation: sure of another word, which the first hardly thought of."""
        place = self.rng.randrange(1, LENGTH - 4)
        return Answer([*answer.steps[:place], *(self.sure(w) for w in self.rng.choices(WORDS, k=LENGTH - place))])

    # --- how an answer is seen ---------------------------------------------------------------------------------------

    def seen(self, request: Request, cell: Cell, repeat: int, answer: Answer, *, logprobs: bool = True) -> Observation:
        words = [word + " " for word in answer.words()]
        pieces = tuple(word.encode() for word in words)
        beside = self.rng.sample([r.name for r in self.requests], min(cell.concurrency, len(self.requests)))
        return Observation(
            request_id=request.name,
            cell=cell,
            repeat=repeat,
            expected=request.expected,
            sampling=Sampling(temperature=0.0, seed=1),
            prompt_ids=request.prompt_ids,
            in_flight=tuple(beside) if cell.concurrency > 1 else (),
            text={"content": "".join(words).strip() if request.expected else "".join(words)},
            token_ids=tuple(map(token_id, pieces)),
            pieces=pieces,
            logprobs=tuple(step[0][1] for step in answer.steps) if logprobs else (),
            top=tuple(map(_listed, answer.steps)) if logprobs else (),
            finish_reason="stop",
            findings=answer.findings,
            condemned=answer.findings[0].code if answer.findings else "",
            counts=Counts(len(request.prompt_ids), len(pieces)),
        )

    def run(
        self,
        cells: list[Cell],
        repeats: int,
        answer: Callable[[Request, Cell], Answer],
        *,
        logprobs: bool = True,
    ) -> list[Observation]:
        return [
            self.seen(request, cell, repeat, answer(request, cell), logprobs=logprobs)
            for cell in cells
            for request in self.requests
            for repeat in range(repeats)
        ]

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    def prompts(self) -> dict[str, str]:
        return {request.name: request.prompt for request in self.requests}


def _listed(step: Step) -> tuple[Alternative, ...]:
    best = sorted(step, key=lambda each: -each[1])
    return tuple(Alternative(token_id((w + " ").encode()), (w + " ").encode(), value) for w, value in best)


def _named(*axes: set[str]) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, axes))


IMAGES = [
    Cell("vllm", image=image, cluster=cluster, precision="bf16", concurrency=1)
    for image in ("1.0", "1.1", "1.2")
    for cluster in ("a", "b")
]
LOADS = [
    Cell("vllm", image=image, precision="bf16", concurrency=at_once, neighbours="none" if at_once == 1 else "others")
    for image in ("1.1", "1.2")
    for at_once in (1, 8, 32)
]
ENGINES = [Cell("a", precision="bf16", concurrency=1), Cell("b", precision="bf16", concurrency=1)]
CACHES = [
    Cell("vllm", precision="bf16", cluster=cluster, concurrency=at_once, cache=cache)
    for cluster in ("a", "b")
    for at_once in (1, 8)
    for cache in ("cold", "warm")
]


def bad_image(seed: int) -> Fleet:
    """Image 1.2 on cluster b corrupts one answer in ten."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        bad = cell.image == "1.2" and cell.cluster == "b" and world.happens(0.1)
        return world.corrupted(request.right) if bad else request.right

    return Fleet(world.run(IMAGES, 24, answer), "corruption", _named({"image 1.2", "cluster b"}))


def bad_image_unseen(seed: int) -> Fleet:
    """The same, on engines that give no log probabilities."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        bad = cell.image == "1.2" and cell.cluster == "b" and world.happens(0.1)
        return world.corrupted(request.right) if bad else request.right

    runs = world.run(IMAGES, 24, answer, logprobs=False)
    return Fleet(runs, "corruption", _named({"image 1.2", "cluster b"}))


def race(seed: int) -> Fleet:
    """From eight requests at once on, one answer in ten is corrupted. Alone none is."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        return world.corrupted(request.right) if cell.concurrency >= 8 and world.happens(0.1) else request.right

    return Fleet(world.run(LOADS, 14, answer), "corruption", _named({"at least 8 at once"}))


def near_tie(seed: int) -> Fleet:
    """In bf16 close choices fall either way, whatever the load; f32 does not waver."""
    world = World(seed)
    cells = [Cell("exact", precision="f32", concurrency=1), *ENGINES]

    def answer(request: Request, cell: Cell) -> Answer:
        flips = request.other is not None and cell.precision == "bf16" and world.happens(0.4)
        return request.other if flips and request.other else request.right

    return Fleet(world.run(cells, 10, answer), "near_tie", _named({"precision bf16"}))


def near_tie_unseen(seed: int) -> Fleet:
    """The same without log probabilities: not to be ruled a near tie, nor anything else."""
    fleet = near_tie(seed)
    return replace(fleet, runs=[_blind(run) for run in fleet.runs], cause="undetermined")


def batch(seed: int) -> Fleet:
    """Close choices fall the other way under load, and only then."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        flips = request.other is not None and cell.concurrency >= 8 and world.happens(0.5)
        return request.other if flips and request.other else request.right

    return Fleet(world.run(LOADS, 8, answer), "batch_dependent", _named({"at least 8 at once"}))


def cache(seed: int) -> Fleet:
    """A warm prefix cache makes close choices fall the other way, each time."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        return request.other if request.other is not None and cell.cache == "warm" else request.right

    return Fleet(world.run(CACHES, 4, answer), "cache_dependent", _named({"cache warm"}))


def temperature_unset(seed: int) -> Fleet:
    """Engine b takes temperature 0 for "not set", and samples."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        return world.drawn(request.right) if cell.engine == "b" else request.right

    return Fleet(world.run(ENGINES, 6, answer), "sampling", _named({"engine b"}))


def temperature_unset_unseen(seed: int) -> Fleet:
    """The same without log probabilities: as many answers as runs say it."""
    fleet = temperature_unset(seed)
    return replace(fleet, runs=[_blind(run) for run in fleet.runs])


def template(seed: int) -> Fleet:
    """Engine b has another chat template: other prompt tokens, other answers, each stable."""
    world = World(seed, requests=10)
    others = {request.name: world.otherwise(request.right) for request in world.requests}
    cells = [*ENGINES, Cell("c", precision="bf16", concurrency=1)]

    def answer(request: Request, cell: Cell) -> Answer:
        return others[request.name] if cell.engine == "b" else request.right

    runs = [
        _asked(run, (1, 2, *run.prompt_ids)) if run.cell.engine == "b" else run for run in world.run(cells, 3, answer)
    ]
    return Fleet(runs, "template", _named({"engine b"}))


def kv_mixup(seed: int) -> Fleet:
    """A warm cache under load gives an answer another request's prompt, once in twelve."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        return request.right

    runs = []
    for run in world.run(CACHES, 12, answer):
        struck = run.cell.cache == "warm" and run.cell.concurrency > 1 and world.happens(1 / 12)
        beside = next((r for r in world.requests if r.name in run.in_flight and r.name != run.request_id), None)
        own = next(r for r in world.requests if r.name == run.request_id)
        if struck and beside is not None:
            mixed = world.seen(own, run.cell, run.repeat, world.mixed_up(own.right, beside))
            run = _beside(mixed, run.in_flight)
        runs.append(run)
    axes = _named({"cache warm", "8 at once"})
    return Fleet(runs, "corruption.cross_request", axes, world.prompts())


def confounded(seed: int) -> Fleet:
    """Image 1.2 runs on cluster b and nowhere else, and nothing else runs there: both are to be named."""
    world = World(seed)
    cells = [
        Cell("vllm", image=image, cluster=cluster, precision="bf16", concurrency=1, cache=state)
        for image, cluster in (("1.1", "a"), ("1.2", "b"))
        for state in ("cold", "warm")
    ]

    def answer(request: Request, cell: Cell) -> Answer:
        return world.corrupted(request.right) if cell.image == "1.2" and world.happens(0.12) else request.right

    return Fleet(world.run(cells, 15, answer), "corruption", _named({"image 1.2"}, {"cluster b"}))


def drift(seed: int) -> Fleet:
    """Engine c has the weights in four bits, a and b have not."""
    world = World(seed, requests=14, ties=0.0)
    others = {request.name: world.quantised(request.right) for request in world.requests if world.happens(0.85)}
    cells = [Cell("a", precision="f32", concurrency=1), Cell("b", precision="f32", concurrency=1)]
    cells.append(Cell("c", precision="q4_1", concurrency=1))

    def answer(request: Request, cell: Cell) -> Answer:
        return others.get(request.name, request.right) if cell.precision == "q4_1" else request.right

    return Fleet(world.run(cells, 3, answer), "quantisation_drift", _named({"precision q4_1"}))


def engine_difference(seed: int) -> Fleet:
    """Engine b computes something else: sure of other words, each time the same."""
    world = World(seed, requests=12)
    others = {request.name: world.otherwise(request.right) for request in world.requests}
    cells = [*ENGINES, Cell("c", precision="bf16", concurrency=1)]

    def answer(request: Request, cell: Cell) -> Answer:
        return others[request.name] if cell.engine == "b" else request.right

    return Fleet(world.run(cells, 2, answer), "engine_diff.systematic", _named({"engine b"}))


def echo(seed: int) -> Fleet:
    """Under load known answers lose characters, one in ten; no log probabilities are there to help."""
    world = World(seed, requests=3)
    for task in echo_tasks(str(seed), 6):
        right = Answer([world.sure(part) for part in task.expected])
        world.requests.append(Request(task.request_id, task.prompt, right, expected=task.expected))
    runs = []
    for run in world.run(LOADS, 14, lambda request, cell: request.right, logprobs=False):
        if run.expected is not None:
            said = run.expected
            if run.cell.concurrency >= 8 and world.happens(0.1):
                place = world.rng.randrange(1, len(said) - 1)
                said = said[:place] + said[place + 1 :]
            run = _saying(run, said)
        runs.append(run)
    return Fleet(runs, "corruption", _named({"at least 8 at once"}))


def model_fault(seed: int) -> Fleet:
    """The model loops on two requests, wherever it runs."""
    world = World(seed, ties=0.0)
    bad = {request.name: world.corrupted(request.right) for request in world.requests[:2]}
    runs = world.run(IMAGES, 5, lambda request, cell: bad.get(request.name, request.right))
    return Fleet([_looping(run) if run.request_id in bad else run for run in runs], "model", None)


def healthy(seed: int) -> Fleet:
    """Everything agrees."""
    world = World(seed)
    return Fleet(world.run(LOADS, 4, lambda request, cell: request.right), "agreement", None)


def base_rate(seed: int) -> Fleet:
    """At a temperature of 0.7 one answer in twenty fails, everywhere alike: no place is to blame."""
    world = World(seed)

    def answer(request: Request, cell: Cell) -> Answer:
        said = world.drawn(request.right)
        return world.corrupted(said) if world.happens(0.05) else said

    runs = world.run([*IMAGES, *LOADS], 6, answer)
    return Fleet([_at(run, 0.7) for run in runs], "model", None)


def chance(seed: int) -> Fleet:
    """Two failures in 480 runs at a temperature of 0.7, anywhere: too few to say anything."""
    world = World(seed)
    runs = [_at(run, 0.7) for run in world.run(IMAGES, 10, lambda request, cell: world.drawn(request.right))]
    for place in world.rng.sample(range(len(runs)), 2):
        runs[place] = _looping(runs[place])
    return Fleet(runs, "undetermined", None)


PLANTED: dict[str, Callable[[int], Fleet]] = {
    made.__name__: made
    for made in (
        bad_image,
        bad_image_unseen,
        race,
        near_tie,
        batch,
        cache,
        temperature_unset,
        temperature_unset_unseen,
        template,
        kv_mixup,
        confounded,
        drift,
        engine_difference,
        echo,
    )
}
INNOCENT: dict[str, Callable[[int], Fleet]] = {
    made.__name__: made for made in (healthy, base_rate, chance, model_fault, near_tie_unseen)
}


def fleets() -> Iterator[tuple[str, Callable[[int], Fleet]]]:
    yield from PLANTED.items()
    yield from INNOCENT.items()


# --- observations changed --------------------------------------------------------------------------------------------


def _with(run: Observation, **fields: object) -> Observation:
    return msgspec.structs.replace(run, **fields)


def _blind(run: Observation) -> Observation:
    return _with(run, logprobs=(), top=())


def _asked(run: Observation, prompt_ids: tuple[int, ...]) -> Observation:
    return _with(run, prompt_ids=prompt_ids)


def _beside(run: Observation, in_flight: tuple[str, ...]) -> Observation:
    return _with(run, in_flight=in_flight)


def _at(run: Observation, temperature: float) -> Observation:
    return _with(run, sampling=Sampling(temperature=temperature))


def _looping(run: Observation) -> Observation:
    return _with(run, condemned="repetition.period", findings=(Found("repetition.period"),))


def _saying(run: Observation, said: str) -> Observation:
    return _with(run, text={"content": said}, token_ids=(), pieces=())
