-- Stage settle (T3): an attempt that did not succeed. Written only by the holder of the claim.

-- name: receipt_settle
UPDATE hookonce_receipt AS r
SET state = :state, result = :result, last_error = :error,
    due_at = coalesce(to_timestamp(:now::float8), clock_timestamp()) + make_interval(secs => :delay_seconds::float8),
    attempts = r.attempts - CASE WHEN :counted::int = 1 THEN 0 ELSE 1 END,
    claim_id = NULL, lease_until = NULL
WHERE r.id = :id AND r.state || '' = 'processing' AND r.token = :token AND r.claim_id = :claim_id
RETURNING r.id;

-- name: attempt_insert
INSERT INTO hookonce_attempt (receipt_id, generation, attempt, ended_at, seconds, state, result, error, counted)
VALUES (:id, :generation, :attempt, coalesce(to_timestamp(:now::float8), clock_timestamp()), :seconds, :state, :result,
    :error, :counted::int = 1);
