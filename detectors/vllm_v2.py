"""Ends a collapsed sequence inside vLLM's batch: the logits processor of the V2 model runner.

    vllm serve MODEL --logits-processors detectors.vllm_v2:EndLoops

The tokens stay on the device: every sixteenth step the end of every running sequence is scanned there
(detectors/tensor.py), and only whether anything was found comes to the host. Optional, and never needed by the sidecar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

from detectors.end_loops import check, end_ids, wanted

if TYPE_CHECKING:
    import torch

EVERY: Final = 16  # steps
WINDOW: Final = 2_048  # tokens of a sequence's end; a period of up to 256 is condemned within it


class EndLoops(LogitsProcessor):  # type: ignore[misc]
    """One for all slots of the engine's batch."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        import torch

        super().__init__(vllm_config, req_states)
        self._states = req_states
        ends = end_ids(vllm_config)
        self._wanted = [False] * req_states.max_num_reqs
        self._able = bool(ends)
        self._ended = torch.zeros(req_states.max_num_reqs, dtype=torch.bool, device=req_states.device)
        self._any = False
        self._step = 0
        self._only_ends = torch.full((req_states.vocab_size,), float("-inf"), device=req_states.device)
        if ends:
            self._only_ends[torch.tensor(ends, device=req_states.device)] = 0.0

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        check(sampling_params)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        self._wanted[req_idx] = self._able and wanted(sampling_params)
        self._ended[req_idx] = False
        return self._wanted[req_idx]

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        import torch

        self._step += 1
        if self._step % EVERY == 0:
            self._look(ctx)
        if not self._any:
            return logits
        rows = self._ended[ctx.expanded_idx_mapping].unsqueeze(1)
        return torch.where(rows, self._only_ends.to(logits.dtype), logits)

    def _look(self, ctx: Any) -> None:
        import torch

        from detectors.tensor import NONE, scan

        slots = [int(slot) for slot in ctx.idx_mapping_np if self._wanted[int(slot)]]
        if not slots:
            self._any = False
            return
        states = self._states
        index = torch.tensor(slots, device=states.device)
        total = states.total_len.gpu[index].to(torch.int64)
        first = torch.maximum(states.prompt_len.gpu[index].to(torch.int64), total - WINDOW)
        places = first.unsqueeze(1) + torch.arange(WINDOW, device=states.device)
        ids = states.all_token_ids.gpu[index]
        ids = ids.gather(1, places.clamp(max=ids.shape[1] - 1))
        found = scan(ids, total - first)[:, 0] != NONE
        self._ended[index] |= found
        self._any = bool(self._ended[index].any())
