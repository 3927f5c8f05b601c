-- What is kept of a text whose retention is hash: keyed fingerprints of its beginnings and of some of its n-grams
-- (guard/trace/sketch.py), from which two texts can be compared and the place where they part be found.

CREATE TABLE IF NOT EXISTS sketches
(
    trace_id String CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    started_at DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    part LowCardinality(String),
    choice UInt32,
    attempt UInt32,
    length UInt64 CODEC(T64, ZSTD(1)),
    kinds UInt32 CODEC(T64, ZSTD(1)),
    prefixes Array(UInt32) CODEC(NONE),
    grams Array(UInt32) CODEC(NONE),
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
    cleanup_delay_period = 2, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 5;
