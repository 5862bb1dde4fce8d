-- Stage accept: make arrivals ours. Rows come sorted by key, so that two receivers never wait for each other in a ring.

-- name: receipt_insert
-- columns: key bytea, guard bytea, source text, account text, event_id text, delivery_id text, type text, object_id text, event_time float8, version_key text, api_version text, problem text, body_digest bytea, secret_id text, correlation_id text, trace_parent text, address text, state text, wait_seconds float8, raw bytea, headers bytea
-- DO NOTHING, never DO UPDATE: a duplicate must not wait for the handler that holds the row.
-- set_config(.., true) lasts for this transaction only: a role with synchronous_commit = off cannot weaken a promise.
WITH durable AS (
    SELECT set_config('synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
             ELSE current_setting('synchronous_commit') END, true) AS level,
        coalesce(to_timestamp(:now::float8), clock_timestamp()) AS now
), fresh AS (
    INSERT INTO hookonce_receipt (key, guard, source, account, event_id, delivery_id, type, object_id, event_time,
        version_key, api_version, problem, body_digest, secret_id, correlation_id, trace_parent, address, received_at,
        state, due_at)
    SELECT a.key, a.guard, a.source, a.account, a.event_id, a.delivery_id, a.type, a.object_id,
        to_timestamp(a.event_time), a.version_key, a.api_version, a.problem, a.body_digest, a.secret_id,
        a.correlation_id, a.trace_parent, a.address, durable.now, a.state,
        durable.now + make_interval(secs => a.wait_seconds)
    FROM unnest(:key::bytea[], :guard::bytea[], :source::text[], :account::text[], :event_id::text[],
        :delivery_id::text[], :type::text[], :object_id::text[], :event_time::float8[], :version_key::text[],
        :api_version::text[], :problem::text[], :body_digest::bytea[], :secret_id::text[], :correlation_id::text[],
        :trace_parent::text[], :address::text[], :state::text[], :wait_seconds::float8[])
    AS a (key, guard, source, account, event_id, delivery_id, type, object_id, event_time, version_key, api_version,
        problem, body_digest, secret_id, correlation_id, trace_parent, address, state, wait_seconds)
    CROSS JOIN durable
    WHERE durable.level IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING id, key
), bodies AS (
    INSERT INTO hookonce_body (receipt_id, raw, headers)
    SELECT fresh.id, b.raw, b.headers
    FROM unnest(:key::bytea[], :raw::bytea[], :headers::bytea[]) AS b (key, raw, headers) JOIN fresh USING (key)
)
SELECT id, key FROM fresh;

-- name: receipt_known
-- columns: key bytea, guard bytea
-- A statement of its own, after the insert: its snapshot sees what the insert had to wait for.
SELECT r.id, r.key, r.guard, r.body_digest, extract(epoch FROM r.received_at)::float8
FROM hookonce_receipt AS r WHERE r.key = ANY (:key::bytea[])
UNION
SELECT r.id, r.key, r.guard, r.body_digest, extract(epoch FROM r.received_at)::float8
FROM hookonce_receipt AS r WHERE r.guard = ANY (:guard::bytea[]);

-- name: delivery_insert
-- columns: receipt_id int8, verdict text, delivery_id text, body_digest bytea, raw bytea, address text, correlation_id text
-- Written before a duplicate is answered: with synchronous replication this commit is what waits for the standby.
WITH durable AS (
    SELECT set_config('synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
             ELSE current_setting('synchronous_commit') END, true) AS level
)
INSERT INTO hookonce_delivery (receipt_id, at, verdict, delivery_id, body_digest, raw, address, correlation_id)
SELECT d.receipt_id, coalesce(to_timestamp(:now::float8), clock_timestamp()), d.verdict, d.delivery_id, d.body_digest,
    d.raw, d.address, d.correlation_id
FROM unnest(:receipt_id::int8[], :verdict::text[], :delivery_id::text[], :body_digest::bytea[], :raw::bytea[],
        :address::text[], :correlation_id::text[])
    AS d (receipt_id, verdict, delivery_id, body_digest, raw, address, correlation_id)
    CROSS JOIN durable
WHERE durable.level IS NOT NULL
RETURNING receipt_id;
