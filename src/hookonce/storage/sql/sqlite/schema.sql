-- The whole schema, to read and to test against: what all migrations together make. Times are seconds since the epoch, UTC.

-- Which migrations were applied.
CREATE TABLE hookonce_migration (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    at     REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
);

CREATE TABLE hookonce_receipt (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Identity is a hash, so that no collation change and no oversized id can ever let a duplicate in.
    key            BLOB NOT NULL CHECK (length(key) = 32),
    -- Second guard for providers whose delivery id is not signed: hash of source, signature and body.
    guard          BLOB CHECK (length(guard) = 32),
    source         TEXT NOT NULL,
    account        TEXT,
    event_id       TEXT,
    delivery_id    TEXT,
    type           TEXT,
    object_id      TEXT,
    event_time     REAL,
    version_key    TEXT,
    api_version    TEXT,
    problem        TEXT,
    body_digest    BLOB NOT NULL,
    secret_id      TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    trace_parent   TEXT,
    address        TEXT NOT NULL,
    received_at    REAL NOT NULL,
    state          TEXT NOT NULL CHECK (state IN
                   ('received', 'processing', 'processed', 'retrying', 'failed', 'waiting', 'discarded')),
    -- When a worker may take it. While it is being processed: when its lease is over.
    due_at         REAL NOT NULL,
    attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    crashes        INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    -- The fence: grows with every claim, is never reset, survives replay.
    token          INTEGER NOT NULL DEFAULT 0,
    claim_id       TEXT,
    lease_until    REAL,
    processed_at   REAL,
    result         TEXT,
    last_error     TEXT,
    generation     INTEGER NOT NULL DEFAULT 0
);

-- The correctness boundary: one event, one row, for as long as the key lives.
CREATE UNIQUE INDEX hookonce_receipt_key ON hookonce_receipt (key);
CREATE UNIQUE INDEX hookonce_receipt_guard ON hookonce_receipt (guard) WHERE guard IS NOT NULL;

-- What the claim reads, in its order. Finished receipts are not in it, so it stays small however many there are.
CREATE INDEX hookonce_receipt_due ON hookonce_receipt (due_at, id)
    WHERE state IN ('received', 'processing', 'retrying', 'waiting');

-- What needs a person.
CREATE INDEX hookonce_receipt_failed ON hookonce_receipt (id) WHERE state IN ('failed', 'waiting');

CREATE TABLE hookonce_body (
    receipt_id INTEGER PRIMARY KEY,
    raw        BLOB NOT NULL,
    headers    BLOB NOT NULL
);

CREATE TABLE hookonce_delivery (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    receipt_id     INTEGER NOT NULL,
    at             REAL NOT NULL,
    verdict        TEXT NOT NULL CHECK (verdict IN ('duplicate', 'mismatch', 'suspect_replay')),
    delivery_id    TEXT,
    body_digest    BLOB NOT NULL,
    -- Kept as evidence when it differs from the body that came first.
    raw            BLOB,
    address        TEXT NOT NULL,
    correlation_id TEXT NOT NULL
);
CREATE INDEX hookonce_delivery_receipt ON hookonce_delivery (receipt_id);

CREATE TABLE hookonce_attempt (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    receipt_id  INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    ended_at    REAL NOT NULL,
    seconds     REAL NOT NULL,
    state       TEXT NOT NULL,
    result      TEXT,
    error       TEXT,
    counted     INTEGER NOT NULL
);
CREATE INDEX hookonce_attempt_receipt ON hookonce_attempt (receipt_id);

CREATE TABLE hookonce_audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         REAL NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    receipt_id INTEGER NOT NULL,
    from_state TEXT NOT NULL,
    reason     TEXT NOT NULL
);
CREATE INDEX hookonce_audit_receipt ON hookonce_audit (receipt_id);

-- Refused requests, a sample of them: why, and what is needed to try again. Never events.
CREATE TABLE hookonce_rejection (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL,
    at         REAL NOT NULL,
    source     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    cause      TEXT NOT NULL,
    address    TEXT NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    query      BLOB NOT NULL,
    headers    BLOB NOT NULL,
    raw        BLOB NOT NULL
);
CREATE INDEX hookonce_rejection_request ON hookonce_rejection (request_id);
