"""Engines' metrics pages: real ones and made-up ones, in each engine's own words and in those that all share."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.trace import engine_metrics
from guard.trace.engine_metrics import samples
from guard.trace.record import EngineSample

PAGES = {
    "vllm": """
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.42
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e9
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 400.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 100.0
# TYPE vllm:nixl_xfer_time_seconds histogram
vllm:nixl_xfer_time_seconds_bucket{le="0.1"} 2
vllm:nixl_xfer_time_seconds_bucket{le="+Inf"} 5
vllm:nixl_xfer_time_seconds_count 5
vllm:nixl_xfer_time_seconds_sum 1.5
vllm:nixl_bytes_transferred_sum 3e6
vllm:nixl_num_failed_transfers_total 2
python_gc_objects_collected_total{generation="0"} 13387.0
process_open_fds 34.0
""",
    "sglang": """
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:num_running_reqs{model_name="m"} 3
sglang:num_queue_reqs{model_name="m"} 1
sglang:cache_hit_rate{model_name="m"} 0.25
sglang:num_retracted_requests_total{model_name="m"} 7
sglang:kv_transfer_latency_ms_sum{model_name="m"} 1500
sglang:kv_transfer_latency_ms_count{model_name="m"} 5
sglang:kv_transfer_total_mb_sum{model_name="m"} 3
sglang:num_transfer_failed_reqs_total{model_name="m"} 2
""",
    "trtllm": """
trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.42
trtllm_kv_cache_hit_rate{model_name="m"} 0.25
trtllm_num_requests_running 3
trtllm_num_requests_waiting 1
trtllm_kv_transfer_success_total 5
trtllm_kv_transfer_latency_seconds_sum 1.5
trtllm_kv_transfer_bytes_sum 3000000
""",
    "dynamo": """
dynamo_component_gpu_cache_usage_percent{dynamo_component="backend"} 0.42
dynamo_component_inflight_requests{dynamo_endpoint="generate"} 3
dynamo_component_inflight_requests{dynamo_endpoint="clear_kv_blocks"} 9
dynamo_frontend_queued_requests{model="m"} 1
""",
    "llamacpp": """
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
llamacpp:requests_deferred 1
llamacpp:kv_cache_usage_ratio 0.42
""",
}
SHARED = {
    "kv_cache_usage": {"vllm": 0.42, "sglang": 0.28, "trtllm": 0.42, "dynamo": 0.42, "llamacpp": 0.42},
    "requests_running": dict.fromkeys(PAGES, 3.0),
    "requests_waiting": dict.fromkeys(PAGES, 1.0),
    "preemptions_total": {"vllm": 7.0, "sglang": 7.0},
    "kv_transfers_total": {"vllm": 5.0, "sglang": 5.0, "trtllm": 5.0},
    "kv_transfer_seconds_total": {"vllm": 1.5, "sglang": 1.5, "trtllm": 1.5},
    "kv_transfer_bytes_total": {"vllm": 3e6, "sglang": 3e6, "trtllm": 3e6},
    "kv_transfer_failures_total": {"vllm": 2.0, "sglang": 2.0},
    "prefix_cache_hit_rate": {"vllm": 0.25, "sglang": 0.25, "trtllm": 0.25},
}


def values(page: str, metric: str) -> list[float]:
    return [sample.value for sample in samples(page) if sample.metric == metric]


@pytest.mark.parametrize("metric", SHARED)
@pytest.mark.parametrize("engine", PAGES)
def test_every_engine_says_the_same_in_the_same_words(engine: str, metric: str) -> None:
    wanted = SHARED[metric].get(engine)
    assert values(PAGES[engine], metric) == ([] if wanted is None else [wanted])


def test_its_own_names_and_labels_are_kept() -> None:
    found = samples(PAGES["vllm"])
    assert EngineSample("vllm:num_requests_running", 3.0, {"engine": "0", "model_name": "m"}) in found
    running = next(sample for sample in found if sample.metric == "requests_running")
    assert running.labels == {"engine": "0", "model_name": "m", "__name__": "vllm:num_requests_running"}
    assert not [s for s in found if s.metric.startswith(("python_", "process_")) or s.metric.endswith("_created")]
    assert "vllm:nixl_xfer_time_seconds_sum" in {sample.metric for sample in found}
    assert "vllm:nixl_xfer_time_seconds_bucket" not in {sample.metric for sample in found}


def test_a_page_is_bounded_and_the_shared_names_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_metrics, "MAX_SAMPLES", 20)
    many = PAGES["vllm"] + "".join(f'vllm:other{{n="{n}"}} {n}\n' for n in range(100))
    found = samples(many)
    assert len(found) == 20
    assert {"kv_cache_usage", "prefix_cache_hit_rate"} <= {sample.metric for sample in found}


def test_numbers_that_are_none() -> None:
    assert samples("a NaN\nb +Inf\n") == [EngineSample("b", float("inf"), {})]
    assert samples("") == []


@pytest.mark.parametrize("page", ["<html>no such page</html>", "a{b} c", "name one two three four"])
def test_what_is_no_page(page: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        samples(page)


@pytest.mark.parametrize(("engine", "least"), [("vllm", 4), ("llamacpp", 2)])
def test_real_pages(shared: Path, engine: str, least: int) -> None:
    recorded = (shared / "recordings" / engine / "get_metrics.response").read_bytes()
    found = samples(recorded.partition(b"\r\n\r\n")[2].decode())
    known = {sample.metric for sample in found} & SHARED.keys()
    assert len(known) >= least, known
    assert len(found) > 10
