-- What the engines say of themselves: one row a sample of one series of an engine's /metrics page, on the clock of the
-- machine that scraped it, which is the clock of the attempts. Asked by engine and metric over a stretch of time.

CREATE TABLE IF NOT EXISTS engine_metrics
(
    at DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    engine LowCardinality(String),
    cluster LowCardinality(String),
    metric LowCardinality(String),
    labels Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    value Float64 CODEC(Gorilla, ZSTD(1)),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(at)
ORDER BY (engine, metric, at)
TTL toDateTime(at) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
