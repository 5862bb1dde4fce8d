-- Refused requests can be explained. A new table: locks nothing that exists, and older processes do not look at it.

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
