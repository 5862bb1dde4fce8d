-- Stage verify: requests that were refused, a sample of them, for whoever asks why. Never events.

-- name: rejection_insert
INSERT INTO hookonce_rejection (request_id, at, source, reason, cause, address, method, path, query, headers, raw)
VALUES (:request_id, coalesce(:now, (julianday('now') - 2440587.5) * 86400.0), :source, :reason, :cause, :address, :method, :path,
    :query, :headers, :raw);

-- name: rejection_trim
-- Bounded by number: whoever sends nonsense all day fills no disk.
DELETE FROM hookonce_rejection WHERE id <= (SELECT max(id) FROM hookonce_rejection) - :kept;

-- name: rejection_show
SELECT request_id, at, source, reason, cause, address, method, path, query, headers, raw
FROM hookonce_rejection WHERE request_id = :request_id;

-- name: rejection_list
SELECT request_id, at, source, reason, cause, address, method, path, query, headers, raw
FROM hookonce_rejection ORDER BY id DESC LIMIT :limit;
