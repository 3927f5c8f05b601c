-- Which places of the spool were erased from which table, so that the accounts (outguard store verify) still add up. It
-- names no trace and no tenant.

CREATE TABLE IF NOT EXISTS erasures
(
    erased_at DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1)),
    table_name LowCardinality(String),
    spool_segment String CODEC(ZSTD(1)),
    spool_offset UInt64 CODEC(Delta, ZSTD(1)),
    spool_row UInt32 CODEC(ZSTD(1)),
    INDEX by_segment spool_segment TYPE set(16) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(erased_at)
ORDER BY (table_name, spool_segment, spool_offset, spool_row)
TTL toDateTime(erased_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1;
