-- The rest of the axes that a failure may depend on, and what spans are made of. An attempt's own span id is the one that
-- the engine was sent in its traceparent, so that the engine's spans and logs are found from a row and back.
-- The findings of an attempt stand in its row as parallel arrays too: most questions then need no second table.

ALTER TABLE requests
    ADD COLUMN IF NOT EXISTS service LowCardinality(String) DEFAULT 'outguard' AFTER sampled,
    ADD COLUMN IF NOT EXISTS guard_version LowCardinality(String) AFTER service,
    ADD COLUMN IF NOT EXISTS top_k Nullable(Int64) CODEC(ZSTD(1)) AFTER top_p,
    ADD COLUMN IF NOT EXISTS min_p Nullable(Float64) CODEC(ZSTD(1)) AFTER top_k,
    ADD COLUMN IF NOT EXISTS frequency_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER min_p,
    ADD COLUMN IF NOT EXISTS presence_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER frequency_penalty,
    ADD COLUMN IF NOT EXISTS repetition_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER presence_penalty,
    ADD COLUMN IF NOT EXISTS stop_strings UInt32 AFTER repetition_penalty;

ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS service LowCardinality(String) DEFAULT 'outguard' AFTER request_id,
    ADD COLUMN IF NOT EXISTS guard_version LowCardinality(String) AFTER service,
    ADD COLUMN IF NOT EXISTS span_id String CODEC(ZSTD(1)) AFTER guard_version,
    ADD COLUMN IF NOT EXISTS request_span_id String CODEC(ZSTD(1)) AFTER span_id,
    ADD COLUMN IF NOT EXISTS sampled Bool DEFAULT true AFTER request_span_id,
    ADD COLUMN IF NOT EXISTS top_k Nullable(Int64) CODEC(ZSTD(1)) AFTER top_p,
    ADD COLUMN IF NOT EXISTS min_p Nullable(Float64) CODEC(ZSTD(1)) AFTER top_k,
    ADD COLUMN IF NOT EXISTS frequency_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER min_p,
    ADD COLUMN IF NOT EXISTS presence_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER frequency_penalty,
    ADD COLUMN IF NOT EXISTS repetition_penalty Nullable(Float64) CODEC(ZSTD(1)) AFTER presence_penalty,
    ADD COLUMN IF NOT EXISTS stop_strings UInt32 AFTER repetition_penalty,
    ADD COLUMN IF NOT EXISTS prefix_hint LowCardinality(String) AFTER concurrency_at_start,
    ADD COLUMN IF NOT EXISTS finding_codes Array(LowCardinality(String)) AFTER contradictions,
    ADD COLUMN IF NOT EXISTS finding_severities Array(LowCardinality(String)) AFTER finding_codes,
    ADD COLUMN IF NOT EXISTS finding_channels Array(LowCardinality(String)) AFTER finding_severities,
    ADD COLUMN IF NOT EXISTS finding_onsets Array(Int64) CODEC(ZSTD(1)) AFTER finding_channels,
    ADD COLUMN IF NOT EXISTS finding_detected_at Array(Int64) CODEC(ZSTD(1)) AFTER finding_onsets;
