-- In token mode an attempt's prompt is known to the token: what was sent, for a replay that sends the same. Kept, as the
-- ids of its answer are, only where content is.

ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS prompt_token_ids Array(UInt32) DEFAULT [] CODEC(T64, ZSTD(1));
