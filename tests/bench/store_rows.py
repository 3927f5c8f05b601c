"""Requests as a fleet would leave them, made inside the store by SQL: a million take minutes, not hours.

The shape: a week with days and nights, three models on eight engines in three clusters and two images, 22 tenants of
very different size, one request in twenty tried more than once, findings on four in a hundred attempts, content kept of
one in five (a body of about 1.5 KB, 160 tokens with two logprobs each). What is drawn comes from hashes of the row's
number: every run makes the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

DAYS: Final = 7
BLOCK: Final = 50_000
"""Rows of one insert: about what a busy writer sends in a few batches."""

# u(salt): a number in [0, 1) for each row; r: more of them for an attempt of it
_U: Final = "(sipHash64(n, {salt}) % 1000003 / 1000003)"

_REQUEST: Final = f"""
    lower(hex(sipHash128(n, 1))) AS trace_id,
    concat('chatcmpl-', lower(hex(sipHash64(n, 2)))) AS request_id,
    (n + {_U.format(salt=3)}) / {{rows:UInt64}} AS place,
    fromUnixTimestamp64Micro(toInt64({{end:Int64}} - {86_400_000_000 * DAYS} * (1 - place)
        + 7.2e9 * sin(place * 2 * pi() * {DAYS})), 'UTC') AS started_at,
    lower(hex(sipHash64(n, 4))) AS span_id,
    arrayElement(['qwen3-32b', 'llama-4-scout', 'deepseek-v4'], 1 + toUInt8(3 * pow({_U.format(salt=5)}, 1.5)))
        AS model,
    concat('tenant-', toString(toUInt8(22 * pow({_U.format(salt=6)}, 3)))) AS tenant,
    {_U.format(salt=7)} AS u_outcome,
    multiIf(u_outcome < 0.97, 'ok', u_outcome < 0.99, 'failed', u_outcome < 0.997, 'cancelled', 'invalid') AS came_to,
    multiIf(came_to = 'failed', arrayElement(['engines_failed', 'deadline', 'constraint_unmet'], 1 + n % 3),
        came_to = 'invalid', 'invalid_request', '') AS error_code,
    multiIf(came_to = 'invalid', 0, {_U.format(salt=8)} < 0.95, 1, {_U.format(salt=9)} < 0.8, 2, 3) AS attempts_made,
    multiIf({_U.format(salt=10)} < 0.2, 'full', {_U.format(salt=10)} < 0.4, 'hash', 'none') AS retention,
    50 + 4000 * pow({_U.format(salt=11)}, 2) AS duration_ms,
    15 + 300 * pow({_U.format(salt=12)}, 4) AS first_token_ms,
    toUInt32(50 + 3000 * pow({_U.format(salt=13)}, 3)) AS prompt_tokens,
    toUInt32(5 + 600 * pow({_U.format(salt=14)}, 2)) AS completion_tokens,
    multiIf({_U.format(salt=15)} < 0.6, '', {_U.format(salt=15)} < 0.9, 'json_schema', 'tools') AS constraint_kind
"""

_WORDS: Final = (
    "arrayStringConcat(arrayMap(i -> arrayElement(splitByChar(' ', 'the store keeps what every engine said and when it "
    "said it so that a failure can be run again over images clusters and precisions until one of them is to blame'), "
    "1 + sipHash64(n, i) % 33), range({count})), ' ')"
)

REQUESTS: Final = f"""
INSERT INTO requests (trace_id, request_id, started_at, span_id, guard_version, protocol, kind, tenant, model, policy,
    retention, duration_ms, first_token_ms, outcome, error_code, finish_reason, stream, temperature, seed, max_tokens,
    constraint_kind, constraint_hash, prompt_tokens, completion_tokens, attempts_made, recovered, verdict_format,
    released_chars, request_body, output_text, prompt_fingerprint, output_fingerprint, spool_segment, spool_offset)
SELECT trace_id, request_id, started_at, span_id, '0.2.0', if(n % 5 = 0, 'grpc', 'http'), 'chat', tenant, model,
    'default', retention, duration_ms, first_token_ms, came_to, error_code, if(came_to = 'ok', 'stop', ''), n % 4 != 0,
    if(n % 3 = 0, NULL, 0.7), if(n % 10 = 0, n, NULL), 1024,
    constraint_kind, if(constraint_kind = '', '', lower(hex(sipHash64(n % 200)))), prompt_tokens, completion_tokens,
    attempts_made, came_to = 'ok' AND attempts_made > 1, if(constraint_kind = '', 'none', 'ok'), completion_tokens * 4,
    if(retention = 'full', concat('{{"model":"', model, '","messages":[{{"role":"user","content":"',
        {_WORDS.format(count=230)}, '"}}]}}'), ''),
    if(retention = 'full', {_WORDS.format(count=130)}, ''),
    if(retention = 'none', '', lower(hex(sipHash128(n % 50000)))),
    if(retention = 'none', '', lower(hex(sipHash128(n, 16)))),
    concat('0001796062831', leftPad(toString(intDiv(n, 4000)), 7, '0'), '-5ca1ab1e'), n % 4000 * 4000
FROM (SELECT number AS n, {_REQUEST} FROM numbers({{start:UInt64}}, {{count:UInt64}}))
"""

_ATTEMPT: Final = f"""
    SELECT n, trace_id, request_id, started_at, span_id AS request_span_id, model, tenant, came_to AS request_outcome,
        retention, prompt_tokens, completion_tokens, constraint_kind, attempts_made, duration_ms, first_token_ms,
        arrayJoin(range(1, attempts_made + 1)) AS attempt,
        1 + (toUInt8(model != 'qwen3-32b') + toUInt8(model = 'deepseek-v4')) * 3 + sipHash64(n, attempt, 20)
            % if(model = 'deepseek-v4', 2, 3) AS e,
        concat('engine-', toString(e)) AS engine,
        arrayElement(['vllm', 'sglang'], 1 + e % 2) AS dialect,
        arrayElement(['0.31.0', '0.32.0'], 1 + (e > 5)) AS engine_version,
        concat('registry.example/', dialect, '@sha256:', if(e > 5, '9f8e7d6c', '0123abcd')) AS image,
        arrayElement(['a', 'b', 'c'], 1 + e % 3) AS cluster,
        concat('node-', toString(e * 3 + sipHash64(n, attempt, 21) % 3)) AS node,
        arrayElement(['bf16', 'fp8'], 1 + (e > 4)) AS precision,
        if(attempt < attempts_made OR request_outcome = 'failed',
            arrayElement(['condemned', 'fault', 'refused'], 1 + sipHash64(n, attempt, 22) % 3),
            if(request_outcome = 'cancelled', 'cancelled', 'ok')) AS outcome,
        if(outcome = 'condemned', ['repetition.token'], if(sipHash64(n, attempt, 23) % 100 < 2, ['schema.required'],
            CAST([], 'Array(String)'))) AS codes
    FROM (SELECT number AS n, {_REQUEST} FROM numbers({{start:UInt64}}, {{count:UInt64}}))
"""

ATTEMPTS: Final = f"""
INSERT INTO attempts (trace_id, request_id, started_at, guard_version, span_id, request_span_id, protocol, kind, tenant,
    model, policy, retention, constraint_kind, request_outcome, choice, attempt, engine, dialect, engine_model,
    engine_version, image, cluster, node, precision, endpoint, first_token_ms, duration_ms, chunks, inter_token_p50_ms,
    inter_token_max_ms, concurrency_at_start, prefix_hint, outcome, action, error_kind, finish_reason, resumed_at,
    onset, prompt_tokens, completion_tokens, cached_tokens, released_chars, held_chars, contradictions, finding_codes,
    finding_severities, finding_channels, finding_onsets, finding_detected_at, output_token_ids, token_logprobs,
    runner_up_logprobs, spool_segment, spool_offset, spool_row)
SELECT trace_id, request_id, started_at, '0.2.0', lower(hex(sipHash64(n, attempt, 24))), request_span_id, 'http',
    'chat', tenant, model, 'default', retention, constraint_kind, request_outcome, 0, attempt, engine, dialect, model,
    engine_version, image, cluster, node, precision, concat('10.0.0.', toString(e), ':8000'), first_token_ms,
    duration_ms / attempts_made, completion_tokens, 12 + e, 40 + sipHash64(n, 25) % 400, 1 + sipHash64(n, 26) % 40,
    arrayElement(['cold', 'partly', 'warm'], 1 + sipHash64(n, 27) % 3), outcome,
    if(outcome = 'ok', 'finish', if(attempt < attempts_made, 'resume', 'fail')),
    transform(outcome, ['condemned', 'fault', 'refused'], ['repetition.token', 'stream.cut', 'open.busy'], ''),
    if(outcome = 'ok', 'stop', ''), if(attempt > 1, 200, -1), if(outcome = 'condemned', 240, -1), prompt_tokens,
    completion_tokens, prompt_tokens * (n % 2), completion_tokens * 4, if(outcome = 'condemned', 120, 0),
    if(codes = ['schema.required'] AND constraint_kind = 'json_schema', ['json_schema:schema.required'],
        CAST([], 'Array(String)')),
    codes, arrayMap(c -> 'error', codes), arrayMap(c -> 'content', codes), arrayMap(c -> 240, codes),
    arrayMap(c -> 300, codes),
    if(retention = 'full', arrayMap(i -> toUInt32(sipHash64(n, i) % 150000), range(160)), []),
    if(retention = 'full', arrayMap(i -> toFloat32(-(sipHash64(n, i) % 1000) / 400), range(160)), []),
    if(retention = 'full', arrayMap(i -> toFloat32(-(sipHash64(n, i) % 1000) / 400 - 1), range(160)), []),
    concat('0001796062831', leftPad(toString(intDiv(n, 4000)), 7, '0'), '-5ca1ab1e'), n % 4000 * 4000, attempt - 1
FROM ({_ATTEMPT})
"""

FINDINGS: Final = f"""
INSERT INTO findings (trace_id, request_id, started_at, tenant, model, retention, engine, engine_model, engine_version,
    image, cluster, node, precision, code, severity, channel, onset, detected_at, message, attempt, choice,
    spool_segment, spool_offset)
SELECT trace_id, request_id, started_at, tenant, model, retention, engine, model, engine_version, image, cluster, node,
    precision, arrayJoin(codes), 'error', 'content', 240, 300,
    if(retention = 'full', 'as long as a message is', ''), attempt, 0,
    concat('0001796062831', leftPad(toString(intDiv(n, 4000)), 7, '0'), '-5ca1ab1e'), n % 4000 * 4000
FROM ({_ATTEMPT})
"""

OUTCOMES: Final = f"""
INSERT INTO outcomes (trace_id, tool_call_id, reported_at, ok, spool_segment, spool_offset)
SELECT trace_id, 'call_1', addSeconds(started_at, 5), n % 7 != 0,
    concat('0001796062831', leftPad(toString(intDiv(n, 4000)), 7, '0'), '-5ca1ab1e'), n % 4000 * 4000
FROM (SELECT number AS n, {_REQUEST} FROM numbers({{start:UInt64}}, {{count:UInt64}})) WHERE constraint_kind = 'tools'
"""

ENGINE_METRICS: Final = """
INSERT INTO engine_metrics (at, engine, cluster, metric, labels, value)
SELECT fromUnixTimestamp64Milli(intDiv({end:Int64}, 1000) - 15000 * number, 'UTC'), concat('engine-', toString(1 + e)),
    arrayElement(['a', 'b', 'c'], 1 + e % 3),
    arrayJoin(['vllm:kv_cache_usage_perc', 'vllm:num_requests_running', 'vllm:num_requests_waiting',
        'vllm:num_preemptions']),
    map('model_name', 'qwen3-32b'), sipHash64(number, e) % 1000 / 1000
FROM numbers({samples:UInt64}) ARRAY JOIN range(8) AS e
"""


def fill(command: Callable[..., object], rows: int, end: float) -> Iterator[int]:
    """Fill the tables through ``command(sql, parameters)``, ``end`` (Unix seconds) being the last request's time.
    Yields how many rows are there, after each block."""
    micro = round(end * 1e6)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        for sql in (REQUESTS, ATTEMPTS, FINDINGS, OUTCOMES):
            command(sql, {"start": start, "count": count, "rows": rows, "end": micro})
        yield start + count
    command(ENGINE_METRICS, {"end": micro, "samples": max(1, rows // 100)})
