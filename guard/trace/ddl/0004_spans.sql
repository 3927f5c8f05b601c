-- OpenTelemetry spans with the names of the collector's ClickHouse exporter, so that Grafana, ClickStack and HyperDX read
-- them as they are, and a collector may write the engines' own spans beside them (create_schema: false).
--
-- They are made from the rows of requests and attempts as those are inserted, by the rules of guard/trace/spans.py (a test
-- holds the two together): the same spans go out over OTLP. No text of a prompt, an answer, an error or a finding is in
-- one. A caller's wish not to be sampled is kept.
-- The exporter's indexes of attributes are left out: they cost as much as the rest of a span, and what is rare enough for
-- them to help with (a tenant, a request id) is found in requests.

CREATE TABLE IF NOT EXISTS otel_traces
(
    Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested
    (
        Timestamp DateTime64(9, 'UTC'),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested
    (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
TTL toDateTime(Timestamp) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    index_granularity = 1024,
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;

-- Where in time a trace lies: the exporter keeps this as a table, and tools look here first.
CREATE VIEW IF NOT EXISTS otel_traces_trace_id_ts AS
SELECT TraceId, toDateTime(min(Timestamp)) AS Start, toDateTime(max(Timestamp)) AS End
FROM otel_traces
WHERE TraceId != ''
GROUP BY TraceId;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_spans TO otel_traces AS
WITH transform(kind, ['completion'], ['text_completion'], kind) AS operation
SELECT
    toDateTime64(started_at, 9, 'UTC') AS Timestamp,
    trace_id AS TraceId,
    span_id AS SpanId,
    parent_span_id AS ParentSpanId,
    trace_state AS TraceState,
    trimRight(concat(operation, ' ', model)) AS SpanName,
    'Server' AS SpanKind,
    service AS ServiceName,
    map('service.name', service, 'service.version', guard_version) AS ResourceAttributes,
    'outguard' AS ScopeName,
    guard_version AS ScopeVersion,
    mapFilter((name, value) -> value != '' AND value != '[]', map(
        'gen_ai.operation.name', operation,
        'gen_ai.provider.name', 'outguard',
        'gen_ai.request.model', toString(model),
        'gen_ai.request.temperature', ifNull(toString(temperature), ''),
        'gen_ai.request.top_p', ifNull(toString(top_p), ''),
        'gen_ai.request.seed', ifNull(if(seed BETWEEN -9223372036854775808 AND 9223372036854775807, toString(seed), ''), ''),
        'gen_ai.request.max_tokens', ifNull(toString(max_tokens), ''),
        'gen_ai.request.choice.count', if(choices = 1, '', toString(choices)),
        'gen_ai.response.id', request_id,
        'gen_ai.response.finish_reasons',
            toJSONString(arrayFilter(part -> part != '', splitByChar(',', toString(finish_reason)))),
        'gen_ai.usage.input_tokens', toString(prompt_tokens),
        'gen_ai.usage.output_tokens', toString(completion_tokens),
        'gen_ai.response.time_to_first_chunk', if(first_token_ms = 0, '', toString(first_token_ms / 1e3)),
        'error.type', if(outcome IN ('failed', 'invalid', 'cancelled'),
            if(error_code != '', toString(error_code), toString(outcome)), toString(error_code)),
        'outguard.protocol', toString(protocol),
        'outguard.tenant', toString(tenant),
        'outguard.policy', toString(policy),
        'outguard.retention', toString(retention),
        'outguard.outcome', toString(outcome),
        'outguard.attempts', toString(attempts_made),
        'outguard.recovered', toString(recovered),
        'outguard.wasted_tokens', toString(wasted_tokens),
        'outguard.constraint.kind', toString(constraint_kind),
        'outguard.constraint.hash', constraint_hash,
        'outguard.verdict.format', toString(verdict_format),
        'outguard.verdict.tool_choice', toString(verdict_tool_choice)
    )) AS SpanAttributes,
    toUInt64(greatest(0, round(duration_ms * 1e6))) AS Duration,
    if(outcome IN ('failed', 'invalid', 'cancelled'), 'Error', 'Unset') AS StatusCode,
    '' AS StatusMessage
FROM requests
WHERE sampled AND match(trace_id, '^[0-9a-f]{32}$') AND match(span_id, '^[0-9a-f]{16}$');

CREATE MATERIALIZED VIEW IF NOT EXISTS attempts_to_spans TO otel_traces AS
WITH
    transform(kind, ['completion'], ['text_completion'], kind) AS operation,
    toUInt64(greatest(0, round(duration_ms * 1e6))) AS nanoseconds
SELECT
    toDateTime64(started_at, 9, 'UTC') AS Timestamp,
    trace_id AS TraceId,
    span_id AS SpanId,
    request_span_id AS ParentSpanId,
    '' AS TraceState,
    trimRight(concat(operation, ' ', if(engine_model != '', toString(engine_model), toString(model)))) AS SpanName,
    'Client' AS SpanKind,
    service AS ServiceName,
    map('service.name', service, 'service.version', guard_version) AS ResourceAttributes,
    'outguard' AS ScopeName,
    guard_version AS ScopeVersion,
    mapFilter((name, value) -> value != '' AND value != '[]', map(
        'gen_ai.operation.name', operation,
        'gen_ai.provider.name', if(dialect != '', toString(dialect), 'unknown'),
        'gen_ai.request.model', toString(model),
        'gen_ai.response.model', toString(engine_model),
        'gen_ai.response.finish_reasons', if(finish_reason = '', '', toJSONString([toString(finish_reason)])),
        'gen_ai.usage.input_tokens', toString(prompt_tokens),
        'gen_ai.usage.output_tokens', toString(completion_tokens),
        'gen_ai.usage.cache_read.input_tokens', if(cached_tokens = 0, '', toString(cached_tokens)),
        'gen_ai.response.time_to_first_chunk', if(first_token_ms = 0, '', toString(first_token_ms / 1e3)),
        'server.address', if(match(endpoint, ':[0-9]+$'),
            trim(BOTH '[]' FROM replaceRegexpOne(toString(endpoint), ':[0-9]+$', '')), toString(endpoint)),
        'server.port', extract(endpoint, ':([0-9]+)$'),
        'error.type', if(error_kind != '' OR outcome = 'ok', toString(error_kind), toString(outcome)),
        'http.response.status_code', if(error_status = 0, '', toString(error_status)),
        'outguard.engine', toString(engine),
        'outguard.engine.version', toString(engine_version),
        'outguard.engine.image', toString(image),
        'outguard.engine.cluster', toString(cluster),
        'outguard.engine.node', toString(node),
        'outguard.engine.precision', toString(precision),
        'outguard.choice', toString(choice),
        'outguard.attempt', toString(attempt),
        'outguard.outcome', toString(outcome),
        'outguard.action', toString(action),
        'outguard.resumed_at', if(resumed_at < 0, '', toString(resumed_at)),
        'outguard.onset', if(onset < 0, '', toString(onset)),
        'outguard.released_chars', toString(released_chars),
        'outguard.held_chars', toString(held_chars),
        'outguard.concurrency_at_start', toString(concurrency_at_start),
        'outguard.unenforced', toJSONString(unenforced),
        'outguard.contradictions', toJSONString(contradictions)
    )) AS SpanAttributes,
    nanoseconds AS Duration,
    if(outcome = 'ok', 'Unset', 'Error') AS StatusCode,
    '' AS StatusMessage,
    arrayMap(code -> addNanoseconds(toDateTime64(started_at, 9, 'UTC'), nanoseconds), finding_codes) AS `Events.Timestamp`,
    arrayMap(code -> 'outguard.finding', finding_codes) AS `Events.Name`,
    arrayMap((code, severity, channel, found, seen) -> map(
        'outguard.finding.code', toString(code),
        'outguard.finding.severity', toString(severity),
        'outguard.finding.channel', toString(channel),
        'outguard.finding.onset', toString(found),
        'outguard.finding.detected_at', toString(seen)
    ), finding_codes, finding_severities, finding_channels, finding_onsets, finding_detected_at) AS `Events.Attributes`
FROM attempts
WHERE sampled AND match(trace_id, '^[0-9a-f]{32}$') AND match(request_span_id, '^[0-9a-f]{16}$');
