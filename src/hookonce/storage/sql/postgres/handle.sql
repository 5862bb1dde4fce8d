-- Stage handle (T2): the row lock and the re-check, inside the transaction that the handler writes in.

-- name: work_lock
-- columns: id int8, token int8
-- NO KEY: a duplicate arriving meanwhile must not wait. The row lock is what keeps every other worker away;
-- state, token and claim id say whether the turn is still ours. The time limits end with the transaction.
-- state || '': the rows are found by id. With statistics of a quieter time the planner takes the index of what is due for
-- tiny, and reads the whole queue for a handful of rows.
SELECT r.id, r.event_id, r.delivery_id, r.object_id, r.account, extract(epoch FROM r.event_time)::float8,
    r.api_version, extract(epoch FROM r.received_at)::float8, r.correlation_id, b.raw, b.headers,
    pg_current_xact_id()::text
FROM (SELECT set_config('statement_timeout', :limit_ms, true) AS statement,
             set_config('idle_in_transaction_session_timeout', :idle_ms, true) AS idle,
             set_config('synchronous_commit',
                 CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
                      ELSE current_setting('synchronous_commit') END, true) AS level) AS armed
CROSS JOIN unnest(:id::int8[], :token::int8[]) AS mine (id, token)
JOIN hookonce_receipt AS r ON r.id = mine.id
LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id
WHERE r.state || '' = 'processing' AND r.token = mine.token AND r.claim_id = :claim_id AND armed.level IS NOT NULL
ORDER BY r.id
FOR NO KEY UPDATE OF r;

-- name: work_mark
-- columns: id int8, token int8, result text
-- The last statement of T2. It also asks whether this is still the transaction that the handler was given.
UPDATE hookonce_receipt AS r
SET state = 'processed', result = done.result, processed_at = coalesce(to_timestamp(:now::float8), clock_timestamp()),
    claim_id = NULL, lease_until = NULL, last_error = NULL
FROM unnest(:id::int8[], :token::int8[], :result::text[]) AS done (id, token, result)
WHERE r.id = done.id AND r.state || '' = 'processing' AND r.token = done.token AND r.claim_id = :claim_id
  AND pg_current_xact_id()::text = :xid
RETURNING r.id;

-- name: work_xid
-- Which transaction this is: another one than at work_lock means that the handler ended ours.
SELECT pg_current_xact_id()::text;
