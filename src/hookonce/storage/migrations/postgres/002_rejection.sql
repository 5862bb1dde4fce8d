-- Refused requests can be explained. A new table: locks nothing that exists, and older processes do not look at it.

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
