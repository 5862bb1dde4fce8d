-- Stage settle (T3): an attempt that did not succeed. Written only by the holder of the claim.

-- name: receipt_settle
UPDATE hookonce_receipt AS r
SET state = :state, result = :result, last_error = :error,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :delay_seconds,
    attempts = r.attempts - CASE WHEN :counted = 1 THEN 0 ELSE 1 END,
    claim_id = NULL, lease_until = NULL
WHERE r.id = :id AND r.state = 'processing' AND r.token = :token AND r.claim_id = :claim_id
RETURNING id;

-- name: attempt_insert
INSERT INTO hookonce_attempt (receipt_id, generation, attempt, ended_at, seconds, state, result, error, counted)
VALUES (:id, :generation, :attempt, coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), :seconds, :state, :result,
    :error, :counted = 1);
