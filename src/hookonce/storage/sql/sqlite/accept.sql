-- Stage accept: make arrivals ours. All rows of one commit; the writer's turn is held from the first to COMMIT.

-- name: receipt_insert
-- columns: key bytea, guard bytea, source text, account text, event_id text, delivery_id text, type text, object_id text, event_time float8, version_key text, api_version text, problem text, body_digest bytea, secret_id text, correlation_id text, trace_parent text, address text, state text, wait_seconds float8, raw bytea, headers bytea
-- ON CONFLICT DO NOTHING, not INSERT OR IGNORE: the latter also swallows a violated NOT NULL or CHECK.
INSERT INTO hookonce_receipt (key, guard, source, account, event_id, delivery_id, type, object_id, event_time,
    version_key, api_version, problem, body_digest, secret_id, correlation_id, trace_parent, address, received_at,
    state, due_at)
VALUES (:key, :guard, :source, :account, :event_id, :delivery_id, :type, :object_id, :event_time, :version_key,
    :api_version, :problem, :body_digest, :secret_id, :correlation_id, :trace_parent, :address,
    coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), :state,
    coalesce(:now, (julianday('now') - 2440587.5) * 86400.0) + :wait_seconds)
ON CONFLICT DO NOTHING
RETURNING id, key;

-- name: body_insert
-- columns: receipt_id int8, raw bytea, headers bytea
INSERT INTO hookonce_body (receipt_id, raw, headers) VALUES (:receipt_id, :raw, :headers);

-- name: receipt_known
-- columns: key bytea, guard bytea
SELECT r.id, r.key, r.guard, r.body_digest, r.received_at FROM hookonce_receipt AS r WHERE r.key = :key
UNION
SELECT r.id, r.key, r.guard, r.body_digest, r.received_at FROM hookonce_receipt AS r WHERE r.guard = :guard;

-- name: delivery_insert
-- columns: receipt_id int8, verdict text, delivery_id text, body_digest bytea, raw bytea, address text, correlation_id text
INSERT INTO hookonce_delivery (receipt_id, at, verdict, delivery_id, body_digest, raw, address, correlation_id)
VALUES (:receipt_id, coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), :verdict, :delivery_id, :body_digest,
    :raw, :address, :correlation_id)
RETURNING receipt_id;
