-- What dashboards show, counted as rows come in: attempts by engine, image and minute, requests by model and minute,
-- findings by code and minute. Sums add up over any span; a quantile is a state, read with quantilesTDigestMerge.
-- No tenant, no trace and no text: what is erased from the evidence leaves only its share of a count here.

CREATE TABLE IF NOT EXISTS attempts_per_minute
(
    minute DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    engine LowCardinality(String),
    engine_version LowCardinality(String),
    image LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String),
    precision LowCardinality(String),
    model LowCardinality(String),
    attempts SimpleAggregateFunction(sum, UInt64),
    ok SimpleAggregateFunction(sum, UInt64),
    condemned SimpleAggregateFunction(sum, UInt64),
    faults SimpleAggregateFunction(sum, UInt64),
    refused SimpleAggregateFunction(sum, UInt64),
    cancelled SimpleAggregateFunction(sum, UInt64),
    resumed SimpleAggregateFunction(sum, UInt64),
    contradicted SimpleAggregateFunction(sum, UInt64),
    prompt_tokens SimpleAggregateFunction(sum, UInt64),
    cached_tokens SimpleAggregateFunction(sum, UInt64),
    completion_tokens SimpleAggregateFunction(sum, UInt64),
    released_chars SimpleAggregateFunction(sum, UInt64),
    held_chars SimpleAggregateFunction(sum, UInt64),
    most_at_once SimpleAggregateFunction(max, UInt32),
    duration_ms AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), Float32) CODEC(ZSTD(1)),
    first_token_ms AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), Float32) CODEC(ZSTD(1)),
    inter_token_ms AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), Float32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(minute)
ORDER BY (engine, image, engine_version, cluster, node, precision, model, minute)
TTL toDateTime(minute) + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS attempts_to_minutes TO attempts_per_minute AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS minute,
    engine, engine_version, image, cluster, node, precision, model,
    count() AS attempts,
    countIf(a.outcome = 'ok') AS ok,
    countIf(a.outcome = 'condemned') AS condemned,
    countIf(a.outcome = 'fault') AS faults,
    countIf(a.outcome = 'refused') AS refused,
    countIf(a.outcome = 'cancelled') AS cancelled,
    countIf(a.resumed_at >= 0) AS resumed,
    countIf(notEmpty(a.contradictions)) AS contradicted,
    sum(a.prompt_tokens) AS prompt_tokens,
    sum(a.cached_tokens) AS cached_tokens,
    sum(a.completion_tokens) AS completion_tokens,
    sum(a.released_chars) AS released_chars,
    sum(a.held_chars) AS held_chars,
    max(a.concurrency_at_start) AS most_at_once,
    quantilesTDigestState(0.5, 0.9, 0.99)(toFloat32(a.duration_ms)) AS duration_ms,
    quantilesTDigestStateIf(0.5, 0.9, 0.99)(toFloat32(a.first_token_ms), a.first_token_ms > 0) AS first_token_ms,
    quantilesTDigestStateIf(0.5, 0.9, 0.99)(toFloat32(a.inter_token_p50_ms), a.inter_token_p50_ms > 0) AS inter_token_ms
FROM attempts AS a
GROUP BY minute, engine, engine_version, image, cluster, node, precision, model;

CREATE TABLE IF NOT EXISTS requests_per_minute
(
    minute DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    service LowCardinality(String),
    model LowCardinality(String),
    outcome LowCardinality(String),
    error_code LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64),
    recovered SimpleAggregateFunction(sum, UInt64),
    format_failed SimpleAggregateFunction(sum, UInt64),
    attempts SimpleAggregateFunction(sum, UInt64),
    completion_tokens SimpleAggregateFunction(sum, UInt64),
    wasted_tokens SimpleAggregateFunction(sum, UInt64),
    duration_ms AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), Float32) CODEC(ZSTD(1)),
    first_token_ms AggregateFunction(quantilesTDigest(0.5, 0.9, 0.99), Float32) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(minute)
ORDER BY (service, model, outcome, error_code, minute)
TTL toDateTime(minute) + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_minutes TO requests_per_minute AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS minute,
    service, model, outcome, error_code,
    count() AS requests,
    countIf(r.recovered) AS recovered,
    countIf(r.verdict_format = 'failed') AS format_failed,
    sum(r.attempts_made) AS attempts,
    sum(r.completion_tokens) AS completion_tokens,
    sum(r.wasted_tokens) AS wasted_tokens,
    quantilesTDigestState(0.5, 0.9, 0.99)(toFloat32(r.duration_ms)) AS duration_ms,
    quantilesTDigestStateIf(0.5, 0.9, 0.99)(toFloat32(r.first_token_ms), r.first_token_ms > 0) AS first_token_ms
FROM requests AS r
GROUP BY minute, service, model, outcome, error_code;

CREATE TABLE IF NOT EXISTS findings_per_minute
(
    minute DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    code LowCardinality(String),
    severity LowCardinality(String),
    engine LowCardinality(String),
    engine_version LowCardinality(String),
    image LowCardinality(String),
    cluster LowCardinality(String),
    model LowCardinality(String),
    findings SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(minute)
ORDER BY (code, severity, engine, image, engine_version, cluster, model, minute)
TTL toDateTime(minute) + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS findings_to_minutes TO findings_per_minute AS
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS minute,
    code, severity, engine, engine_version, image, cluster, model,
    count() AS findings
FROM findings
GROUP BY minute, code, severity, engine, engine_version, image, cluster, model;
