-- Stage claim (T1): whose turn is it. Each statement is a transaction of its own and commits before any handler runs.

-- name: receipt_claim
-- MATERIALIZED: without it a nested loop may run the inner query once a row and claim the whole table.
-- The subselect around the clock makes it a constant of the scan, so that the index ends where "due" ends.
-- Receipts that were found in the hands of a dead worker are left to receipt_claim_suspect.
WITH due AS MATERIALIZED (
    SELECT id FROM hookonce_receipt
    WHERE state IN ('received', 'retrying', 'waiting') AND crashes = 0
      AND due_at <= (SELECT coalesce(to_timestamp(:now::float8), clock_timestamp()))
    ORDER BY due_at, id
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE hookonce_receipt AS r
SET state = 'processing', token = r.token + 1, claim_id = :claim_id, attempts = r.attempts + 1,
    lease_until = coalesce(to_timestamp(:now::float8), clock_timestamp()) + make_interval(secs => :lease_seconds::float8),
    due_at = coalesce(to_timestamp(:now::float8), clock_timestamp()) + make_interval(secs => :lease_seconds::float8)
FROM due
WHERE r.id = due.id
RETURNING r.id, r.token, r.source, r.type, r.problem, r.attempts, r.crashes, r.generation, r.result, r.state, r.event_id,
    r.object_id, r.correlation_id;

-- name: receipt_claim_suspect
-- One at a time: if this event kills the worker again, no other event is blamed for it.
-- A row that a living worker is working on is locked by it and therefore skipped, however long its lease is over.
WITH due AS MATERIALIZED (
    SELECT id FROM hookonce_receipt
    WHERE state IN ('received', 'processing', 'retrying', 'waiting') AND (state = 'processing' OR crashes > 0)
      AND due_at <= (SELECT coalesce(to_timestamp(:now::float8), clock_timestamp()))
    ORDER BY due_at, id
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE hookonce_receipt AS r
SET token = r.token + 1, claim_id = :claim_id,
    crashes = r.crashes + CASE r.state WHEN 'processing' THEN 1 ELSE 0 END,
    attempts = r.attempts + CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 0 ELSE 1 END,
    state = CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 'failed' ELSE 'processing' END,
    result = CASE WHEN r.state = 'processing' AND r.crashes + 1 >= :crashes_max THEN 'crash_loop' ELSE r.result END,
    last_error = CASE WHEN r.state = 'processing' THEN :error ELSE r.last_error END,
    lease_until = coalesce(to_timestamp(:now::float8), clock_timestamp()) + make_interval(secs => :lease_seconds::float8),
    due_at = coalesce(to_timestamp(:now::float8), clock_timestamp()) + make_interval(secs => :lease_seconds::float8)
FROM due
WHERE r.id = due.id
RETURNING r.id, r.token, r.source, r.type, r.problem, r.attempts, r.crashes, r.generation, r.result, r.state, r.event_id,
    r.object_id, r.correlation_id;

-- name: receipt_release
-- columns: id int8, token int8
-- A clean hand-back (drain, batch not reached): the attempt is given back, the token is not.
UPDATE hookonce_receipt AS r
SET state = 'received', attempts = r.attempts - 1, claim_id = NULL, lease_until = NULL,
    due_at = coalesce(to_timestamp(:now::float8), clock_timestamp())
FROM unnest(:id::int8[], :token::int8[]) AS mine (id, token)
WHERE r.id = mine.id AND r.state || '' = 'processing' AND r.token = mine.token AND r.claim_id = :claim_id
RETURNING r.id;

-- name: receipt_disown
-- columns: claim_id text
-- The claim was committed, but its answer was lost: nobody works on it, and nobody died. By its id, since nothing else is known.
UPDATE hookonce_receipt AS r
SET state = 'received', attempts = r.attempts - 1, claim_id = NULL, lease_until = NULL,
    due_at = coalesce(to_timestamp(:now::float8), clock_timestamp())
FROM unnest(:claim_id::text[]) AS mine (claim_id)
WHERE r.state = 'processing' AND r.claim_id = mine.claim_id
RETURNING r.id;
