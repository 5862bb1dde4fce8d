-- Stage claim (T1): whose turn is it. Each statement is a transaction of its own and commits before any handler runs.
-- While a worker works it holds the only write lock, so nobody can claim what it is working on.

-- name: receipt_claim
-- Receipts that were found in the hands of a dead worker are left to receipt_claim_suspect.
UPDATE hookonce_receipt AS r
SET state = 'processing', token = r.token + 1, claim_id = :claim_id, attempts = r.attempts + 1,
    lease_until = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease_seconds,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease_seconds
WHERE r.id IN (
    SELECT id FROM hookonce_receipt
    WHERE state IN ('received', 'retrying', 'waiting') AND state IN ('received', 'processing', 'retrying', 'waiting')
      AND crashes = 0 AND due_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY due_at, id
    LIMIT :limit)
RETURNING id, token, source, type, problem, attempts, crashes, generation, result, state, event_id, object_id, correlation_id;

-- name: receipt_claim_suspect
-- One at a time: if this event kills the worker again, no other event is blamed for it.
UPDATE hookonce_receipt AS r
SET token = r.token + 1, claim_id = :claim_id,
    crashes = r.crashes + CASE r.state WHEN 'processing' THEN 1 ELSE 0 END,
    attempts = r.attempts + CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 0 ELSE 1 END,
    state = CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 'failed' ELSE 'processing' END,
    result = CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 'crash_loop' ELSE r.result END,
    last_error = CASE WHEN r.state = 'processing' THEN :error ELSE r.last_error END,
    lease_until = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease_seconds,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :lease_seconds
WHERE r.id IN (
    SELECT id FROM hookonce_receipt
    WHERE state IN ('received', 'processing', 'retrying', 'waiting') AND (state = 'processing' OR crashes > 0)
      AND due_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
    ORDER BY due_at, id
    LIMIT 1)
RETURNING id, token, source, type, problem, attempts, crashes, generation, result, state, event_id, object_id, correlation_id;

-- name: receipt_release
-- columns: id int8, token int8
-- A clean hand-back (drain, batch not reached): the attempt is given back, the token is not.
UPDATE hookonce_receipt AS r
SET state = 'received', attempts = r.attempts - 1, claim_id = NULL, lease_until = NULL,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
WHERE r.id = :id AND r.state = 'processing' AND r.token = :token AND r.claim_id = :claim_id
RETURNING id;

-- name: receipt_disown
-- columns: claim_id text
-- The claim was committed, but its answer was lost: nobody works on it, and nobody died.
UPDATE hookonce_receipt AS r
SET state = 'received', attempts = r.attempts - 1, claim_id = NULL, lease_until = NULL,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
WHERE r.state = 'processing' AND r.claim_id = :claim_id
RETURNING id;
