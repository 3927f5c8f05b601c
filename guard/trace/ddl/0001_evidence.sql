-- The evidence: one row a request, an attempt, a finding, an execution verdict, and a loss of such rows.
--
-- Column names are the field names of guard/trace/record.py. Attempts and findings repeat the axes of their request
-- and attempt, so that triage groups one table and joins nothing.
-- spool_segment, spool_offset, spool_row name the place in the spool that a row came from: they are unique, and the
-- writer asks for them after a crash. Together with non_replicated_deduplication_window they make a batch that is sent
-- twice stored once.
-- The long arrays arrive as base64 of their little-endian bytes (the columns ending in _le, which are not stored):
-- reading 400 numbers as text costs more than the rest of the row. This needs ClickHouse 25.8 or later.
-- A day is a partition and rows go after 90 days by dropping whole parts: nothing is rewritten to expire it.
-- Old parts are looked for every few seconds, so that an erasure need not wait long for its end.
-- A row is wide, and most often few are wanted: small granules make looking one up eight times cheaper.

CREATE TABLE IF NOT EXISTS requests
(
    trace_id String CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    started_at DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    parent_span_id String CODEC(ZSTD(1)),
    trace_state String CODEC(ZSTD(1)),
    sampled Bool DEFAULT true,
    protocol LowCardinality(String),
    kind LowCardinality(String),
    tenant LowCardinality(String),
    model LowCardinality(String),
    policy LowCardinality(String),
    retention LowCardinality(String),
    duration_ms Float64 CODEC(ZSTD(1)),
    first_token_ms Float64 CODEC(ZSTD(1)),
    outcome LowCardinality(String),
    error_code LowCardinality(String),
    error_message String CODEC(ZSTD(1)),
    finish_reason LowCardinality(String),
    choices UInt32,
    stream Bool,
    temperature Nullable(Float64) CODEC(ZSTD(1)),
    top_p Nullable(Float64) CODEC(ZSTD(1)),
    seed Nullable(Int128) CODEC(ZSTD(1)),
    max_tokens Nullable(Int64) CODEC(ZSTD(1)),
    constraint_kind LowCardinality(String),
    constraint_hash String CODEC(ZSTD(1)),
    tools UInt32,
    prompt_tokens UInt32 CODEC(T64, ZSTD(1)),
    completion_tokens UInt32 CODEC(T64, ZSTD(1)),
    wasted_tokens UInt32 CODEC(T64, ZSTD(1)),
    attempts_made UInt32,
    recovered Bool,
    verdict_format LowCardinality(String),
    verdict_tool_choice LowCardinality(String),
    released_chars UInt64 CODEC(T64, ZSTD(1)),
    request_body String CODEC(ZSTD(3)),
    output_text String CODEC(ZSTD(3)),
    prompt_fingerprint String CODEC(ZSTD(1)),
    output_fingerprint String CODEC(ZSTD(1)),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_trace trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (started_at, trace_id)
TTL toDateTime(started_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    index_granularity = 1024,
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;

CREATE TABLE IF NOT EXISTS attempts
(
    trace_id String CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    started_at DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    protocol LowCardinality(String),
    kind LowCardinality(String),
    tenant LowCardinality(String),
    model LowCardinality(String),
    policy LowCardinality(String),
    retention LowCardinality(String),
    stream Bool,
    temperature Nullable(Float64) CODEC(ZSTD(1)),
    top_p Nullable(Float64) CODEC(ZSTD(1)),
    seed Nullable(Int128) CODEC(ZSTD(1)),
    max_tokens Nullable(Int64) CODEC(ZSTD(1)),
    constraint_kind LowCardinality(String),
    constraint_hash String CODEC(ZSTD(1)),
    tools UInt32,
    request_outcome LowCardinality(String),
    choice UInt32,
    attempt UInt32,
    engine LowCardinality(String),
    dialect LowCardinality(String),
    engine_model LowCardinality(String),
    engine_version LowCardinality(String),
    image LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String),
    precision LowCardinality(String),
    endpoint LowCardinality(String),
    tokenizer_hash LowCardinality(String),
    template_hash LowCardinality(String),
    first_token_ms Float64 CODEC(ZSTD(1)),
    duration_ms Float64 CODEC(ZSTD(1)),
    chunks UInt32 CODEC(T64, ZSTD(1)),
    inter_token_p50_ms Float64 CODEC(ZSTD(1)),
    inter_token_max_ms Float64 CODEC(ZSTD(1)),
    concurrency_at_start UInt32 CODEC(T64, ZSTD(1)),
    outcome LowCardinality(String),
    action LowCardinality(String),
    error_kind LowCardinality(String),
    error_status Int32,
    error_message String CODEC(ZSTD(1)),
    finish_reason LowCardinality(String),
    resumed_at Int64 CODEC(T64, ZSTD(1)),
    onset Int64 CODEC(T64, ZSTD(1)),
    prompt_tokens UInt32 CODEC(T64, ZSTD(1)),
    completion_tokens UInt32 CODEC(T64, ZSTD(1)),
    cached_tokens UInt32 CODEC(T64, ZSTD(1)),
    reasoning_tokens UInt32 CODEC(T64, ZSTD(1)),
    released_chars UInt64 CODEC(T64, ZSTD(1)),
    held_chars UInt64 CODEC(T64, ZSTD(1)),
    unenforced Array(LowCardinality(String)),
    contradictions Array(LowCardinality(String)),
    output_text String CODEC(ZSTD(3)),
    output_fingerprint String CODEC(ZSTD(1)),
    output_token_ids_le String EPHEMERAL,
    token_logprobs_le String EPHEMERAL,
    runner_up_logprobs_le String EPHEMERAL,
    output_token_ids Array(UInt32) DEFAULT reinterpret(base64Decode(output_token_ids_le), 'Array(UInt32)') CODEC(T64, ZSTD(1)),
    token_logprobs Array(Float32) DEFAULT reinterpret(base64Decode(token_logprobs_le), 'Array(Float32)') CODEC(ZSTD(1)),
    runner_up_logprobs Array(Float32) DEFAULT reinterpret(base64Decode(runner_up_logprobs_le), 'Array(Float32)')
        CODEC(ZSTD(1)),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_trace trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (model, engine, started_at, trace_id)
TTL toDateTime(started_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    index_granularity = 1024,
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;

CREATE TABLE IF NOT EXISTS findings
(
    trace_id String CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    started_at DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    retention LowCardinality(String),
    engine LowCardinality(String),
    engine_model LowCardinality(String),
    engine_version LowCardinality(String),
    image LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String),
    precision LowCardinality(String),
    code LowCardinality(String),
    severity LowCardinality(String),
    channel LowCardinality(String),
    onset Int64 CODEC(T64, ZSTD(1)),
    detected_at Int64 CODEC(T64, ZSTD(1)),
    message String CODEC(ZSTD(1)),
    confidence Float64 DEFAULT 1 CODEC(ZSTD(1)),
    attempt UInt32,
    choice UInt32,
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_trace trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (code, engine, started_at, trace_id)
TTL toDateTime(started_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;

CREATE TABLE IF NOT EXISTS outcomes
(
    trace_id String CODEC(ZSTD(1)),
    tool_call_id String CODEC(ZSTD(1)),
    reported_at DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    ok Bool,
    detail String CODEC(ZSTD(3)),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(reported_at)
ORDER BY (trace_id, reported_at)
TTL toDateTime(reported_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;

CREATE TABLE IF NOT EXISTS losses
(
    worker LowCardinality(String),
    reason LowCardinality(String),
    count UInt64,
    first_at DateTime64(6, 'UTC'),
    last_at DateTime64(6, 'UTC'),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(last_at)
ORDER BY last_at
TTL toDateTime(last_at) + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
