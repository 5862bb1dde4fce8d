-- The whole schema, to read and to test against: what all migrations together make.

-- Which migrations were applied.
CREATE TABLE hookonce_migration (
    number integer PRIMARY KEY,
    name   text NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE hookonce_receipt (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Identity is a hash, so that no collation change and no oversized id can ever let a duplicate in.
    key            bytea NOT NULL CHECK (length(key) = 32),
    -- Second guard for providers whose delivery id is not signed: hash of source, signature and body.
    guard          bytea CHECK (length(guard) = 32),
    source         text COLLATE "C" NOT NULL,
    account        text COLLATE "C",
    event_id       text COLLATE "C",
    delivery_id    text COLLATE "C",
    type           text COLLATE "C",
    object_id      text COLLATE "C",
    event_time     timestamptz,
    version_key    text COLLATE "C",
    api_version    text COLLATE "C",
    problem        text COLLATE "C",
    body_digest    bytea NOT NULL,
    secret_id      text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C" NOT NULL,
    trace_parent   text COLLATE "C",
    address        text COLLATE "C" NOT NULL,
    received_at    timestamptz NOT NULL,
    state          text COLLATE "C" NOT NULL CHECK (state IN
                   ('received', 'processing', 'processed', 'retrying', 'failed', 'waiting', 'discarded')),
    -- When a worker may take it. While it is being processed: when its lease is over.
    due_at         timestamptz NOT NULL,
    attempts       integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    crashes        integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    -- The fence: grows with every claim, is never reset, survives replay.
    token          bigint NOT NULL DEFAULT 0,
    claim_id       text COLLATE "C",
    lease_until    timestamptz,
    processed_at   timestamptz,
    result         text COLLATE "C",
    last_error     text COLLATE "C",
    generation     integer NOT NULL DEFAULT 0
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- The correctness boundary: one event, one row, for as long as the key lives.
CREATE UNIQUE INDEX hookonce_receipt_key ON hookonce_receipt (key);
CREATE UNIQUE INDEX hookonce_receipt_guard ON hookonce_receipt (guard) WHERE guard IS NOT NULL;

-- What the claim reads, in its order. Finished receipts are not in it, so it stays small however many there are.
CREATE INDEX hookonce_receipt_due ON hookonce_receipt (due_at, id)
    WHERE state IN ('received', 'processing', 'retrying', 'waiting');

-- For lists by time and for retention: tiny, and free to keep while rows arrive in time order.
CREATE INDEX hookonce_receipt_received ON hookonce_receipt USING brin (received_at) WITH (pages_per_range = 32);

-- What needs a person.
CREATE INDEX hookonce_receipt_failed ON hookonce_receipt (id) WHERE state IN ('failed', 'waiting');

CREATE TABLE hookonce_body (
    receipt_id bigint PRIMARY KEY,
    raw        bytea NOT NULL,
    headers    bytea NOT NULL
);
-- No foreign key: the row is written by the statement that writes its receipt, and the check would cost every accept.
-- lz4 where the server has it: the default compression costs more than all the rest of an accept.
DO $$
BEGIN
    ALTER TABLE hookonce_body ALTER COLUMN raw SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;

CREATE TABLE hookonce_delivery (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    receipt_id     bigint NOT NULL,
    at             timestamptz NOT NULL,
    verdict        text COLLATE "C" NOT NULL CHECK (verdict IN ('duplicate', 'mismatch', 'suspect_replay')),
    delivery_id    text COLLATE "C",
    body_digest    bytea NOT NULL,
    -- Kept as evidence when it differs from the body that came first.
    raw            bytea,
    address        text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C" NOT NULL
);
CREATE INDEX hookonce_delivery_receipt ON hookonce_delivery (receipt_id);

CREATE TABLE hookonce_attempt (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    receipt_id  bigint NOT NULL,
    generation  integer NOT NULL,
    attempt     integer NOT NULL,
    ended_at    timestamptz NOT NULL,
    seconds     double precision NOT NULL,
    state       text COLLATE "C" NOT NULL,
    result      text COLLATE "C",
    error       text COLLATE "C",
    counted     boolean NOT NULL
);
CREATE INDEX hookonce_attempt_receipt ON hookonce_attempt (receipt_id);

CREATE TABLE hookonce_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    action     text COLLATE "C" NOT NULL,
    receipt_id bigint NOT NULL,
    from_state text COLLATE "C" NOT NULL,
    reason     text COLLATE "C" NOT NULL
);
CREATE INDEX hookonce_audit_receipt ON hookonce_audit (receipt_id);

-- Refused requests, a sample of them: why, and what is needed to try again. Never events.
CREATE TABLE hookonce_rejection (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    source     text COLLATE "C" NOT NULL,
    reason     text COLLATE "C" NOT NULL,
    cause      text COLLATE "C" NOT NULL,
    address    text COLLATE "C" NOT NULL,
    method     text COLLATE "C" NOT NULL,
    path       text COLLATE "C" NOT NULL,
    query      bytea NOT NULL,
    headers    bytea NOT NULL,
    raw        bytea NOT NULL
);
CREATE INDEX hookonce_rejection_request ON hookonce_rejection (request_id);
