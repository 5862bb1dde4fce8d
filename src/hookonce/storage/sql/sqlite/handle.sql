-- Stage handle (T2): the re-check, inside the transaction that the handler writes in. BEGIN IMMEDIATE is the lock.

-- name: work_lock
-- columns: id int8, token int8
-- State, token and claim id say whether the turn is still ours.
SELECT r.id, r.event_id, r.delivery_id, r.object_id, r.account, r.event_time, r.api_version, r.received_at,
    r.correlation_id, b.raw, b.headers, ''
FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.id = :id AND r.state = 'processing' AND r.token = :token AND r.claim_id = :claim_id;

-- name: work_mark
-- columns: id int8, token int8, result text
-- The last statement of T2.
UPDATE hookonce_receipt AS r
SET state = 'processed', result = :result,
    processed_at = coalesce(:now, (julianday('now') - 2440587.5) * 86400.0),
    claim_id = NULL, lease_until = NULL, last_error = NULL
WHERE r.id = :id AND r.state = 'processing' AND r.token = :token AND r.claim_id = :claim_id
RETURNING id;
