-- The counts by the minute outlive an erasure, so they hold nothing that a caller wrote. The model that an
-- invalid request names is a caller's text, whether one is served under that name or not: those count under "other".

ALTER TABLE requests_to_minutes
    MODIFY QUERY
SELECT
    toStartOfMinute(toDateTime(started_at, 'UTC')) AS minute,
    service, if(r.outcome = 'invalid', 'other', r.model) AS model, outcome, error_code,
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

ALTER TABLE requests_per_minute
    DELETE WHERE outcome = 'invalid' AND model != 'other';
