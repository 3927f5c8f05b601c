-- Token ids and logprobs have long come in the form in which they are stored, and no more as base64 text: the columns that
-- took it, and the defaults that were made of them, go.

ALTER TABLE attempts
    MODIFY COLUMN output_token_ids Array(UInt32) DEFAULT [] CODEC(T64, ZSTD(1)),
    MODIFY COLUMN token_logprobs Array(Float32) DEFAULT [] CODEC(ZSTD(1)),
    MODIFY COLUMN runner_up_logprobs Array(Float32) DEFAULT [] CODEC(ZSTD(1));

ALTER TABLE attempts
    DROP COLUMN IF EXISTS output_token_ids_le,
    DROP COLUMN IF EXISTS token_logprobs_le,
    DROP COLUMN IF EXISTS runner_up_logprobs_le;
