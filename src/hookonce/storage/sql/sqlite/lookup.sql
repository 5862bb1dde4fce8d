-- Read-only questions of the command line. Nothing here decides anything.

-- name: receipt_list
SELECT r.id, r.source, r.event_id, r.type, r.object_id, r.state, r.result, r.attempts, r.crashes, r.generation,
    r.received_at, r.processed_at, r.last_error,
    (SELECT count(*) FROM hookonce_delivery AS d WHERE d.receipt_id = r.id)
FROM hookonce_receipt AS r
WHERE (:source IS NULL OR r.source = :source) AND (:state IS NULL OR r.state = :state)
  AND (:type IS NULL OR r.type LIKE :type ESCAPE '!') AND (:needle IS NULL OR :needle IN (r.event_id, r.delivery_id, r.object_id, r.account, r.correlation_id, lower(hex(r.body_digest))))
  AND (:before IS NULL OR r.id < :before)
ORDER BY r.id DESC
LIMIT :limit;

-- name: receipt_show
SELECT r.id, r.source, r.account, r.event_id, r.delivery_id, r.type, r.object_id,
    r.event_time, r.api_version, r.problem, r.secret_id, r.correlation_id, r.address,
    r.received_at, r.state, r.due_at, r.attempts, r.crashes,
    r.token, r.processed_at, r.result, r.last_error, r.generation, r.body_digest,
    b.raw, b.headers
FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.id = :id;

-- name: receipt_standing
-- Where a receipt stands, and whether its body is still there: what decides if a person may act on it.
SELECT r.id, r.source, r.type, r.event_id, r.state, b.receipt_id IS NOT NULL
FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.id = :id;

-- name: receipt_deliveries
SELECT d.at, d.verdict, d.delivery_id, d.address, d.correlation_id, d.raw
FROM hookonce_delivery AS d WHERE d.receipt_id = :id ORDER BY d.id LIMIT :limit;

-- name: receipt_attempts
SELECT a.generation, a.attempt, a.ended_at, a.seconds, a.state, a.result, a.error, a.counted
FROM hookonce_attempt AS a WHERE a.receipt_id = :id ORDER BY a.id LIMIT :limit;

-- name: receipt_audit
SELECT a.at, a.actor, a.action, a.from_state, a.reason
FROM hookonce_audit AS a WHERE a.receipt_id = :id ORDER BY a.id;

-- name: state_counts
SELECT source, state, count(*), min(due_at) FROM hookonce_receipt GROUP BY source, state ORDER BY source, state;

-- name: duplicate_counts
SELECT r.source, d.verdict, count(*) FROM hookonce_delivery AS d JOIN hookonce_receipt AS r ON r.id = d.receipt_id
GROUP BY r.source, d.verdict ORDER BY r.source, d.verdict;

-- name: oldest_open
-- The age of the oldest receipt that should be worked on now: the number to watch.
SELECT coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) - min(due_at)
FROM hookonce_receipt
WHERE state IN ('received', 'processing', 'retrying', 'waiting')
  AND due_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0);

-- name: secret_uses
-- Bounded by the newest receipts: no index is kept for a question that is asked once a rotation.
SELECT n.source, n.secret_id, count(*), max(n.received_at)
FROM (SELECT source, secret_id, received_at FROM hookonce_receipt ORDER BY id DESC LIMIT :events) AS n
GROUP BY n.source, n.secret_id;

-- name: migration_table
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hookonce_migration';

-- name: migration_last
SELECT max(number) FROM hookonce_migration;
