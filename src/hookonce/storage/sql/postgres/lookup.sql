-- Read-only questions of the command line. Nothing here decides anything.

-- name: receipt_list
SELECT r.id, r.source, r.event_id, r.type, r.object_id, r.state, r.result, r.attempts, r.crashes, r.generation,
    extract(epoch FROM r.received_at)::float8, extract(epoch FROM r.processed_at)::float8, r.last_error,
    (SELECT count(*) FROM hookonce_delivery AS d WHERE d.receipt_id = r.id)
FROM hookonce_receipt AS r
WHERE (:source::text IS NULL OR r.source = :source) AND (:state::text IS NULL OR r.state = :state)
  AND (:type::text IS NULL OR r.type LIKE :type ESCAPE '!') AND (:needle::text IS NULL OR :needle IN (r.event_id, r.delivery_id, r.object_id, r.account, r.correlation_id, encode(r.body_digest, 'hex')))
  AND (:before::int8 IS NULL OR r.id < :before)
ORDER BY r.id DESC
LIMIT :limit;

-- name: receipt_show
SELECT r.id, r.source, r.account, r.event_id, r.delivery_id, r.type, r.object_id,
    extract(epoch FROM r.event_time)::float8, r.api_version, r.problem, r.secret_id, r.correlation_id, r.address,
    extract(epoch FROM r.received_at)::float8, r.state, extract(epoch FROM r.due_at)::float8, r.attempts, r.crashes,
    r.token, extract(epoch FROM r.processed_at)::float8, r.result, r.last_error, r.generation, r.body_digest,
    b.raw, b.headers
FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.id = :id;

-- name: receipt_standing
-- Where a receipt stands, and whether its body is still there: what decides if a person may act on it.
SELECT r.id, r.source, r.type, r.event_id, r.state, b.receipt_id IS NOT NULL
FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.id = :id;

-- name: receipt_deliveries
SELECT extract(epoch FROM d.at)::float8, d.verdict, d.delivery_id, d.address, d.correlation_id, d.raw
FROM hookonce_delivery AS d WHERE d.receipt_id = :id ORDER BY d.id LIMIT :limit;

-- name: receipt_attempts
SELECT a.generation, a.attempt, extract(epoch FROM a.ended_at)::float8, a.seconds, a.state, a.result, a.error, a.counted
FROM hookonce_attempt AS a WHERE a.receipt_id = :id ORDER BY a.id LIMIT :limit;

-- name: receipt_audit
SELECT extract(epoch FROM a.at)::float8, a.actor, a.action, a.from_state, a.reason
FROM hookonce_audit AS a WHERE a.receipt_id = :id ORDER BY a.id;

-- name: state_counts
SELECT source, state, count(*), extract(epoch FROM min(due_at))::float8 FROM hookonce_receipt GROUP BY source, state ORDER BY source, state;

-- name: duplicate_counts
SELECT r.source, d.verdict, count(*) FROM hookonce_delivery AS d JOIN hookonce_receipt AS r ON r.id = d.receipt_id
GROUP BY r.source, d.verdict ORDER BY r.source, d.verdict;

-- name: oldest_open
-- The age of the oldest receipt that should be worked on now: the number to watch.
SELECT extract(epoch FROM coalesce(to_timestamp(:now::float8), clock_timestamp()) - min(due_at))::float8
FROM hookonce_receipt
WHERE state IN ('received', 'processing', 'retrying', 'waiting')
  AND due_at <= (SELECT coalesce(to_timestamp(:now::float8), clock_timestamp()));

-- name: secret_uses
-- Bounded by the newest receipts: no index is kept for a question that is asked once a rotation.
SELECT n.source, n.secret_id, count(*), extract(epoch FROM max(n.received_at))::float8
FROM (SELECT source, secret_id, received_at FROM hookonce_receipt ORDER BY id DESC LIMIT :events) AS n
GROUP BY n.source, n.secret_id;

-- name: migration_table
SELECT 1 WHERE to_regclass('hookonce_migration') IS NOT NULL;

-- name: migration_last
SELECT max(number) FROM hookonce_migration;
