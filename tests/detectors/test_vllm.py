"""The logits processors, driven as vLLM drives them. With vLLM installed its own base classes are used; without it,
stand-ins that have nothing but the names."""

from __future__ import annotations

import enum
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

V1 = "vllm.v1.sample.logits_processor"
V2 = "vllm.v1.worker.gpu.sample.logits_processor"
END = 2
CONFIG = SimpleNamespace(model_config=SimpleNamespace(hf_config=SimpleNamespace(eos_token_id=END)))
LOOP = [7, 8, 9] * 60


class Direction(enum.Enum):
    UNIDIRECTIONAL = enum.auto()
    SWAP = enum.auto()


class Base:
    def __init__(self, *arguments: Any) -> None: ...


@pytest.fixture(params=[V1, V2])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    name: str = request.param
    try:
        importlib.import_module(name)
    except ImportError:
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(".".join(parts[:i])))
        monkeypatch.setattr(sys.modules[name], "LogitsProcessor", Base, raising=False)
    module = "detectors.vllm_v1" if name == V1 else "detectors.vllm_v2"
    monkeypatch.delitem(sys.modules, module, raising=False)
    yield importlib.import_module(module).EndLoops
    sys.modules.pop(module, None)


def params(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(ignore_eos=False, extra_args=more or None)


class Batch:
    """Drives either form over a batch of sequences that each grow by one token a step."""

    def __init__(self, kind: Any, wishes: list[SimpleNamespace]) -> None:
        self.v1 = kind.__module__.endswith("v1")
        self.outputs: list[list[int]] = [[] for _ in wishes]
        if self.v1:
            self.processor = kind(CONFIG, torch.device("cpu"), False)
            added = [(i, wish, None, self.outputs[i]) for i, wish in enumerate(wishes)]
            self.update = SimpleNamespace(removed=[], added=added, moved=[])
            return
        size = len(wishes)
        self.ids = torch.zeros((size, 4_000), dtype=torch.int32)
        self.total = torch.full((size,), 5, dtype=torch.int32)
        states = SimpleNamespace(
            device=torch.device("cpu"), max_num_reqs=size, vocab_size=16,
            all_token_ids=SimpleNamespace(gpu=self.ids), total_len=SimpleNamespace(gpu=self.total),
            prompt_len=SimpleNamespace(gpu=torch.full((size,), 5, dtype=torch.int32)),
        )  # fmt: skip
        self.processor = kind(CONFIG, states)
        for i, wish in enumerate(wishes):
            self.processor.add_request(i, wish)

    def step(self, tokens: list[int]) -> Any:
        logits = torch.zeros((len(tokens), 16))
        if self.v1:
            self.processor.update_state(self.update)
            self.update = None
            logits = self.processor.apply(logits)
            for output, token in zip(self.outputs, tokens, strict=True):
                output.append(token)
            return logits
        slots = torch.arange(len(tokens))
        context = SimpleNamespace(expanded_idx_mapping=slots, idx_mapping=slots, idx_mapping_np=slots.numpy())
        logits = self.processor.apply(logits, context)
        for slot, token in enumerate(tokens):
            self.ids[slot, int(self.total[slot])] = token
        self.total += 1
        return logits


def test_a_loop_is_ended_and_nothing_else(processor: Any) -> None:
    batch = Batch(processor, [params(), params(), params(outguard_end_loops=False), SimpleNamespace(ignore_eos=True)])
    honest = [(i * i) % 16 + i % 5 for i in range(180)]
    for i, token in enumerate(LOOP):
        logits = batch.step([token, honest[i] % 16, token, token])
    assert logits[0].argmax() == END
    assert torch.isinf(logits[0]).sum() == 15
    assert not torch.isinf(logits[1:]).any()


def test_an_option_that_is_no_boolean_is_refused(processor: Any) -> None:
    processor.validate_params(params(outguard_end_loops=False))
    processor.validate_params(SimpleNamespace())
    with pytest.raises(ValueError, match="true or false"):
        processor.validate_params(params(outguard_end_loops="no"))


def test_rows_that_move_take_their_history_along(processor: Any) -> None:
    if not processor.__module__.endswith("v1"):
        pytest.skip("the V2 runner keeps a request in its slot")
    batch = Batch(processor, [params(), params()])
    for i, token in enumerate(LOOP):
        batch.step([token, (i * i) % 16 + i % 5])
    move = batch.processor
    move.update_state(SimpleNamespace(removed=[], added=[], moved=[(0, 1, Direction.SWAP)]))
    assert torch.isinf(move.apply(torch.zeros((2, 16)))).sum(dim=1).tolist() == [0, 15]
    move.update_state(SimpleNamespace(removed=[0], added=[], moved=[(1, 0, Direction.UNIDIRECTIONAL)]))
    assert torch.isinf(move.apply(torch.zeros((1, 16)))).sum(dim=1).tolist() == [15]
    move.update_state(SimpleNamespace(removed=[0], added=[], moved=[]))
    assert not torch.isinf(move.apply(torch.zeros((1, 16)))).any()
