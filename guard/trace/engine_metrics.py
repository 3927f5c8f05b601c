"""What an engine says of itself on its ``/metrics`` page, as samples: its own names, and a few that all engines share.

A page is in Prometheus' text format. Buckets of histograms, times of creation and what concerns only the process
(Python's collector, file descriptors) are left out. Of the rest each series is kept under its own name, and those that
``COMMON`` knows once more under a name that does not depend on the engine, in the same unit, with the engine's own name
in the label ``__name__``. Pure.

Names: vLLM 0.6 to 0.32 (docs.vllm.ai, usage/metrics; NIXL's in its kv_connector), SGLang (srt/metrics/collector.py),
TensorRT-LLM as ``trtllm-serve`` and Dynamo show it, Dynamo (its metrics catalog), llama.cpp (tools/server).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from guard.trace.record import EngineSample

MAX_SAMPLES: Final = 1_000
"""Of one page. A page with more is cut; the shared names come first."""

KV_CACHE_USAGE: Final = "kv_cache_usage"
RUNNING: Final = "requests_running"
WAITING: Final = "requests_waiting"
PREEMPTIONS: Final = "preemptions_total"
TRANSFERS: Final = "kv_transfers_total"
TRANSFER_SECONDS: Final = "kv_transfer_seconds_total"
TRANSFER_BYTES: Final = "kv_transfer_bytes_total"
TRANSFER_FAILURES: Final = "kv_transfer_failures_total"
PREFIX_QUERIES: Final = "prefix_cache_queries_total"
PREFIX_HITS: Final = "prefix_cache_hits_total"
PREFIX_HIT_RATE: Final = "prefix_cache_hit_rate"


class Common(NamedTuple):
    """``scale`` turns the engine's unit into ours: fractions of one, seconds, bytes. ``only``: a label that must have
    this value."""

    name: str
    scale: float = 1.0
    only: tuple[str, str] | None = None


COMMON: Final[Mapping[str, Common]] = {
    "vllm:kv_cache_usage_perc": Common(KV_CACHE_USAGE),  # a fraction in spite of its name
    "vllm:gpu_cache_usage_perc": Common(KV_CACHE_USAGE),
    "vllm:num_requests_running": Common(RUNNING),
    "vllm:num_requests_waiting": Common(WAITING),
    "vllm:num_preemptions_total": Common(PREEMPTIONS),
    "vllm:nixl_xfer_time_seconds_count": Common(TRANSFERS),
    "vllm:nixl_xfer_time_seconds_sum": Common(TRANSFER_SECONDS),
    "vllm:nixl_bytes_transferred_sum": Common(TRANSFER_BYTES),
    "vllm:nixl_num_failed_transfers_total": Common(TRANSFER_FAILURES),
    "vllm:prefix_cache_queries_total": Common(PREFIX_QUERIES),
    "vllm:prefix_cache_hits_total": Common(PREFIX_HITS),
    "sglang:token_usage": Common(KV_CACHE_USAGE),
    "sglang:num_running_reqs": Common(RUNNING),
    "sglang:num_queue_reqs": Common(WAITING),
    "sglang:num_retracted_requests_total": Common(PREEMPTIONS),
    "sglang:num_retracted_reqs_total": Common(PREEMPTIONS),
    "sglang:kv_transfer_latency_ms_count": Common(TRANSFERS),
    "sglang:kv_transfer_latency_ms_sum": Common(TRANSFER_SECONDS, 1e-3),
    "sglang:kv_transfer_total_mb_sum": Common(TRANSFER_BYTES, 1e6),
    "sglang:num_transfer_failed_reqs_total": Common(TRANSFER_FAILURES),
    "sglang:cache_hit_rate": Common(PREFIX_HIT_RATE),
    "trtllm_kv_cache_utilization": Common(KV_CACHE_USAGE),
    "trtllm_kv_cache_hit_rate": Common(PREFIX_HIT_RATE),
    "trtllm_num_requests_running": Common(RUNNING),
    "trtllm_num_requests_waiting": Common(WAITING),
    "trtllm_kv_transfer_success_total": Common(TRANSFERS),
    "trtllm_kv_transfer_latency_seconds_sum": Common(TRANSFER_SECONDS),
    "trtllm_kv_transfer_bytes_sum": Common(TRANSFER_BYTES),
    "dynamo_component_gpu_cache_usage_percent": Common(KV_CACHE_USAGE),  # a fraction, too
    "dynamo_component_inflight_requests": Common(RUNNING, only=("dynamo_endpoint", "generate")),
    "dynamo_frontend_inflight_requests": Common(RUNNING),
    "dynamo_frontend_queued_requests": Common(WAITING),
    "llamacpp:kv_cache_usage_ratio": Common(KV_CACHE_USAGE),
    "llamacpp:requests_processing": Common(RUNNING),
    "llamacpp:requests_deferred": Common(WAITING),
}
_LEFT_OUT: Final = ("python_", "process_", "go_", "promhttp_", "uvicorn_", "http_")
_LEFT_OUT_ENDS: Final = ("_bucket", "_created")


def samples(page: str) -> list[EngineSample]:
    """Raises ValueError on a page that is no such text."""
    own, common = [], []
    for family in text_string_to_metric_families("\n".join(_wanted(page)) + "\n"):
        for sample in family.samples:
            value = float(sample.value)
            if value != value:  # no number
                continue
            own.append(EngineSample(sample.name, value, dict(sample.labels)))
            shared = COMMON.get(sample.name)
            if shared and (shared.only is None or sample.labels.get(shared.only[0]) == shared.only[1]):
                labels = {**sample.labels, "__name__": sample.name}
                common.append(EngineSample(shared.name, value * shared.scale, labels))
    return [*common, *_hit_rates(common), *own][:MAX_SAMPLES]


def _wanted(page: str) -> Iterable[str]:
    """The lines worth parsing: most of a page are buckets."""
    for line in page.splitlines():
        if line.startswith("#"):
            continue  # what a metric means is known, and its type is of no use here
        name = line.partition("{")[0].partition(" ")[0]
        if name and not name.startswith(_LEFT_OUT) and not name.endswith(_LEFT_OUT_ENDS):
            yield line


def _hit_rates(common: Iterable[EngineSample]) -> list[EngineSample]:
    """Of engines that only count: hits by queries since the engine began, over all its series."""
    queries = sum(sample.value for sample in common if sample.metric == PREFIX_QUERIES)
    hits = sum(sample.value for sample in common if sample.metric == PREFIX_HITS)
    return [EngineSample(PREFIX_HIT_RATE, hits / queries, {})] if queries else []
