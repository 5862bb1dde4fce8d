-- What a person may do to a receipt. Each step names the states it is allowed from and leaves an audit row.

-- name: receipt_replay
-- Same receipt, next generation, through the same claim: the token is kept, so no old holder can come back.
UPDATE hookonce_receipt AS r
SET state = 'received', generation = r.generation + 1, attempts = 0, crashes = 0, processed_at = NULL, result = NULL,
    due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), claim_id = NULL, lease_until = NULL
WHERE r.id = :id AND r.state = :from_state AND r.state IN ('processed', 'failed')
  AND EXISTS (SELECT 1 FROM hookonce_body AS b WHERE b.receipt_id = r.id)
RETURNING id;

-- name: receipt_release_waiting
UPDATE hookonce_receipt AS r
SET state = 'received', due_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)
WHERE r.id = :id AND r.state = 'waiting' AND :from_state = 'waiting'
RETURNING id;

-- name: receipt_discard
UPDATE hookonce_receipt AS r
SET state = 'discarded', result = 'discarded', claim_id = NULL, lease_until = NULL
WHERE r.id = :id AND r.state = :from_state AND r.state IN ('received', 'retrying', 'waiting', 'failed')
RETURNING id;

-- name: audit_insert
INSERT INTO hookonce_audit (at, actor, action, receipt_id, from_state, reason)
VALUES (coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), :actor, :action, :id, :from_state, :reason);
