"""Each safeguard has a test that goes red without it: take it out of a copy, and see.

A mutant is one place of the code, replaced. Its tests run in a process of their own on a copy of the package that holds
this one change; each test that is named must fail there, and pass on a copy that was not changed.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

import hookonce
from tests.mutating import LOADED_ONCE, run_tests
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[1]
PACKAGE = Path(hookonce.__file__).parent
AT_ONCE = 2
MUTANT_SECONDS = 60.0
CONTROL_SECONDS = 180.0

FAILED = 1
"""Pytest's exit status when tests ran and some of them failed; a broken collection, or no test at all, has another."""

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([*LOADED_ONCE])


@dataclass(frozen=True)
class Mutant:
    """A safeguard, where it stands, what is there instead, and the tests that miss it."""

    safeguard: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return self.safeguard


@dataclass(frozen=True)
class Run:
    """What became of a child."""

    status: int | None
    output: str

    @property
    def red(self) -> set[str]:
        """The tests that failed by themselves, not in their set-up."""
        lines = (line.removeprefix("FAILED ") for line in self.output.splitlines() if line.startswith("FAILED "))
        return {line.partition(" - ")[0] for line in lines}


def mutant(safeguard: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(safeguard, file, old, new, tuple(f"tests/{test}" for test in tests))


ACCEPT = "flow/accept.py"

MUTANTS = (
    # receive
    mutant(
        "what is compressed is refused, before anything is hashed",
        "flow/receive.py",
        "        check_encoding(source.endpoint, delivery.headers)\n",
        "",
        "flow/test_receive.py::test_encodings_are_refused_before_anything_is_hashed",
    ),
    mutant(
        "nothing is parsed before the signature was checked",
        "flow/receive.py",
        "        verified = verify(source.endpoint, delivery, now)\n",
        "        source.endpoint.provider.facts(delivery)\n        verified = verify(source.endpoint, delivery, now)\n",
        "flow/test_receive.py::test_a_forged_request_is_neither_parsed_nor_stored[sqlite]",
    ),
    mutant(
        "an id that is missing is not made up",
        "flow/receive.py",
        "        if facts.problem is None:\n",
        "        if False:\n",
        "flow/test_receive.py::test_an_id_that_is_missing_is_refused",
    ),
    mutant(
        "a second guard where the id is not signed (F73)",
        "flow/receive.py",
        "        guarded = provider.profile.guard and not provider.profile.id_signed and verified.signature\n",
        "        guarded = False\n",
        "flow/test_receive.py::test_a_body_replayed_under_another_delivery_id_is_no_second_event[sqlite]",
    ),
    mutant(
        "the events of one request share a commit",
        "flow/accept.py",
        "        while batch is not None and self._waiting and self._waiting[0].batch is batch:\n",
        "        while False:\n",
        "asgi/test_requests.py::test_a_large_batch_is_one_commit[asgi-sqlite]",
    ),
    mutant(
        "the events of one request are bounded",
        "flow/receive.py",
        "        if len(bodies) > EVENTS_MAX:\n",
        "        if False:\n",
        "asgi/test_requests.py::test_too_many_events_are_refused[asgi-sqlite]",
    ),
    mutant(
        "yes only when every event of a request is stored",
        "asgi/app.py",
        "                status = max(status, self.unavailable(arrival, outcome))\n",
        "                self.unavailable(arrival, outcome)\n",
        "asgi/test_requests.py::test_a_batch_that_cannot_be_stored_is_refused_whole[asgi-sqlite]",
    ),
    mutant(
        "fields beyond the bound are not dropped unseen",
        "schemes/request.py",
        '    if text.count(b"&") >= FIELDS_MAX:\n        raise ValueError("too many fields")\n',
        '    text = b"&".join(text.split(b"&")[:FIELDS_MAX])\n',
        "providers/test_options.py::test_more_fields_than_are_read_are_refused",
    ),
    mutant(
        "a token that binds the body binds this one",
        "schemes/jwt.py",
        "            _check_bound(bound, claims, request)\n",
        "            pass\n",
        "providers/test_options.py::test_a_token_must_be_about_this_request_and_this_moment[claims2]",
    ),
    mutant(
        "a request from the future is refused, whatever the provider's own library does",
        "schemes/signature.py",
        "    if signed_at - now > future:\n",
        "    if False:\n",
        "providers/test_catalogue.py::test_stale_and_future_requests[slack]",
    ),
    mutant(
        "a request from long ago is refused",
        "schemes/signature.py",
        "    if past is not None and now - signed_at > past:\n",
        "    if False:\n",
        "providers/test_catalogue.py::test_stale_and_future_requests[slack]",
    ),
    mutant(
        "rates are limited",
        "flow/receive.py",
        "        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._rate\n",
        "        wait = 0.0\n",
        "flow/test_receive.py::test_a_noisy_address_is_held_back_alone",
        "asgi/test_answers.py::test_a_rate_is_told_with_the_time_to_wait[asgi-source_rate]",
        "asgi/test_answers.py::test_a_rate_is_told_with_the_time_to_wait[wsgi-address_rate]",
    ),
    mutant(
        "the memory of addresses is bounded",
        "flow/receive.py",
        "        if len(self._levels) > self._names_max:\n",
        "        if False:\n",
        "flow/test_receive.py::test_addresses_are_remembered_within_bounds",
    ),
    mutant(
        "credentials in headers are not stored",
        "flow/receive.py",
        " for pair in headers if pair[0] not in HEADERS_NOT_KEPT])",
        " for pair in headers])",
        "flow/test_receive.py::test_credentials_in_headers_are_not_kept[sqlite]",
    ),
    mutant(
        "a body in pieces is read up to the bound and no further",
        "asgi/body.py",
        "            if size > bytes_max:\n",
        "            if False:\n",
        "asgi/test_body.py::test_a_body_without_end_is_not_read_on",
    ),
    mutant(
        "a body that announces too much is not read",
        "asgi/body.py",
        "    if announced is not None and announced > bytes_max:\n",
        "    if False:\n",
        "asgi/test_answers.py::test_refusals[asgi]",
    ),
    mutant(
        "the short way through the server knows the bound of bodies",
        "server/direct.py",
        "            if request.size > receiver.bounds.body_bytes_max:\n                raise",
        "            if False:\n                raise",
        "cli/test_commands.py::test_settings_of_the_file_reach_the_application",
    ),
    mutant(
        "what can be read in two ways is refused: a coding before chunked",
        "server/protocol.py",
        '            if value.strip().lower() != b"chunked" or self.parser.get_http_version() != "1.1":\n',
        "            if False:\n",
        "server/test_protocol.py::test_smuggling_corpus",
    ),
    mutant(
        "trailers are no headers",
        "server/direct.py",
        "            self.headers = NOWHERE\n",
        "",
        "server/test_protocol.py::test_trailers_are_no_headers",
    ),
    # verify
    mutant(
        "digests are compared in constant time",
        "schemes/base.py",
        "hmac.compare_digest(expected, signature)",
        "expected == signature",
        "schemes/test_stripe.py::test_every_pair_is_compared_in_constant_time",
    ),
    mutant(
        "every active secret is tried",
        "schemes/base.py",
        "    for secret in secrets:\n",
        "    for secret in secrets[:1]:\n",
        "schemes/test_stripe.py::test_any_active_secret_verifies_during_a_rotation",
        "flow/test_verify.py::test_a_rotation_refuses_nothing[sqlite]",
    ),
    mutant(
        "a secret ends at its time",
        "schemes/base.py",
        "if s.not_after is None or s.not_after.timestamp() > now]",
        "]",
        "schemes/test_stripe.py::test_an_expired_secret_is_not_tried",
    ),
    mutant(
        "an empty key signs nothing",
        "schemes/base.py",
        "        if not key:  #",
        "        if False:  #",
        "schemes/test_stripe.py::test_an_empty_secret_is_never_tried",
        "schemes/test_hmac.py::test_an_empty_secret_is_never_tried",
    ),
    mutant(
        "an old signature is refused",
        "schemes/base.py",
        "    if now - signed_at > tolerance:\n",
        "    if False:\n",
        "flow/test_verify.py::test_the_window_is_closed_on_both_sides[301-False]",
    ),
    mutant(
        "a signature from the future is refused",
        "schemes/base.py",
        "    if signed_at - now > tolerance:\n",
        "    if False:\n",
        "flow/test_verify.py::test_the_window_is_closed_on_both_sides[-301-False]",
    ),
    mutant(
        "a header that is there twice is refused",
        "schemes/base.py",
        "            if found is not None:\n",
        "            if False:\n",
        "schemes/test_stripe.py::test_a_second_header_or_timestamp_is_refused",
    ),
    mutant(
        "a scheme that breaks does not open the door",
        "flow/verify.py",
        "    except Exception as error:\n",
        "    except MemoryError as error:\n",
        "flow/test_verify.py::test_a_scheme_that_breaks_does_not_open_the_door",
    ),
    mutant(
        "an unknown source costs as much as a known one",
        "flow/verify.py",
        '        verify(nobody, Delivery(source="", headers=signed, body=delivery.body + b"."), now)\n',
        "        pass\n",
        "flow/test_verify.py::test_an_unknown_source_costs_the_hashing_of_a_known_one[100000]",
    ),
    mutant(
        "the parts of an identity cannot run into each other",
        "model.py",
        '        digest.update(len(part).to_bytes(4, "big"))\n',
        "",
        "test_model.py::test_identities_are_split_by_length",
    ),
    # accept
    mutant(
        "one event, one row: the unique index",
        "storage/migrations/sqlite/001_initial.sql",
        "CREATE UNIQUE INDEX hookonce_receipt_key",
        "CREATE INDEX hookonce_receipt_key",
        "storage/test_accept.py::test_a_second_arrival_is_a_duplicate[sqlite3]",
    ),
    mutant(
        "a known key is no error (SQLite)",
        "storage/sql/sqlite/accept.sql",
        "ON CONFLICT DO NOTHING\n",
        "",
        "storage/test_accept.py::test_a_second_arrival_is_a_duplicate[sqlite3]",
    ),
    mutant(
        "a known key is no error (PostgreSQL)",
        "storage/sql/postgres/accept.sql",
        "    ON CONFLICT DO NOTHING\n",
        "",
        "storage/test_accept.py::test_a_second_arrival_is_a_duplicate[psycopg]",
    ),
    mutant(
        "a role's synchronous_commit = off does not weaken an accept",
        "storage/sql/postgres/accept.sql",
        "IN ('off', 'local') THEN 'on'\n             ELSE current_setting('synchronous_commit') END, true) AS level,",
        "IN ('') THEN 'on'\n             ELSE current_setting('synchronous_commit') END, true) AS level,",
        "storage/test_postgres.py::test_a_weak_setting_does_not_weaken_a_promise[psycopg-off-on]",
    ),
    mutant(
        "a role's synchronous_commit = off does not weaken a handler's commit",
        "storage/sql/postgres/handle.sql",
        "IN ('off', 'local')",
        "IN ('')",
        "storage/test_postgres.py::test_a_weak_setting_does_not_weaken_a_promise[psycopg-off-on]",
    ),
    mutant(
        "a warning at COMMIT is no promise",
        "storage/pgsession.py",
        "        if self.warnings:\n",
        "        if False:\n",
        "storage/test_postgres.py::test_a_warning_at_commit_is_no_promise[psycopg]",
    ),
    mutant(
        "keys are inserted in order",
        ACCEPT,
        "        new = sorted(first.values(), key=lambda waiting: waiting.arrival.key)\n",
        "        new = list(first.values())\n",
        "flow/test_accept.py::test_keys_are_sorted_in_every_group[sqlite]",
        "storage/test_accept.py::test_keys_travel_in_order[sqlite3]",
    ),
    mutant(
        "of equal arrivals in one commit one is new",
        ACCEPT,
        " and first[waiting.arrival.key] is waiting:\n",
        ":\n",
        "storage/test_accept.py::test_duplicates_within_a_group[sqlite3]",
    ),
    mutant(
        "another body under a known id is kept as evidence",
        ACCEPT,
        "    evidence = None if stored.verdict is Verdict.DUPLICATE else a.body\n",
        "    evidence = None\n",
        "storage/test_accept.py::test_another_body_under_a_known_id_is_a_mismatch[sqlite3]",
    ),
    mutant(
        "a bad row fails alone",
        ACCEPT,
        "            if len(new) == 1:\n",
        "            if True:\n",
        "flow/test_accept.py::test_a_refused_row_fails_alone[sqlite]",
        "storage/test_accept.py::test_a_refused_row_fails_alone[sqlite3]",
    ),
    mutant(
        "after an ambiguous end the same insert runs once more",
        ACCEPT,
        "        except Unavailable:\n            return await self._run(insert, deadline)\n",
        "        except Unavailable:\n            raise\n",
        "flow/test_accept.py::test_an_ambiguous_commit_is_answered_truthfully[sqlite-True-duplicate]",
        "storage/test_accept.py::test_an_ambiguous_end_is_answered_truthfully[sqlite3]",
    ),
    mutant(
        "a receipt that vanished meanwhile is not taken for known",
        ACCEPT,
        "            fresh = await self._insert(sorted(known, key=lambda w: w.arrival.key), deadline)\n",
        "            fresh = {}\n",
        "flow/test_accept.py::test_a_receipt_that_was_just_deleted_is_inserted_again[sqlite]",
    ),
    mutant(
        "the queue is bounded",
        ACCEPT,
        "        if len(self._waiting) >= self._waiting_max:\n",
        "        if False:\n",
        "flow/test_accept.py::test_the_queue_is_bounded[sqlite]",
    ),
    mutant(
        "nobody waits longer than the budget",
        ACCEPT,
        "            asyncio.get_running_loop().call_later(self._budget / 10, self._sweep)\n\n    async def drain",
        "            pass\n\n    async def drain",
        "flow/test_accept.py::test_nobody_waits_longer_than_the_budget[sqlite]",
    ),
    mutant(
        "a client that leaves changes nothing for the others of its group",
        ACCEPT,
        "    if future.done():\n        return\n",
        "",
        "flow/test_accept.py::test_who_leaves_changes_nothing[sqlite]",
    ),
    # claim
    mutant(
        "a claim is of at most so many (SQLite)",
        "storage/sql/sqlite/claim.sql",
        "    LIMIT :limit)",
        "    LIMIT :limit + 1)",
        "storage/test_claim.py::test_never_more_than_the_limit[sqlite3]",
    ),
    mutant(
        "a claim is of at most so many (PostgreSQL)",
        "storage/sql/postgres/claim.sql",
        "    LIMIT :limit\n",
        "    LIMIT :limit + 1\n",
        "storage/test_claim.py::test_the_limit_holds_under_any_plan",
    ),
    mutant(
        "a locked row is skipped",
        "storage/sql/postgres/claim.sql",
        "    LIMIT :limit\n    FOR NO KEY UPDATE SKIP LOCKED\n",
        "    LIMIT :limit\n    FOR NO KEY UPDATE\n",
        "storage/test_claim.py::test_locked_rows_are_skipped[psycopg]",
    ),
    mutant(
        "who holds the row is not taken for dead",
        "storage/sql/postgres/claim.sql",
        "    LIMIT 1\n    FOR NO KEY UPDATE SKIP LOCKED\n",
        "    LIMIT 1\n    FOR NO KEY UPDATE\n",
        "storage/test_claim.py::test_a_living_holder_is_not_a_suspect[psycopg]",
    ),
    mutant(
        "nothing is claimed before it is due",
        "storage/sql/sqlite/claim.sql",
        "      AND crashes = 0 AND due_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)\n",
        "      AND crashes = 0\n",
        "storage/test_claim.py::test_nothing_before_it_is_due[sqlite3]",
    ),
    mutant(
        "a lease that holds is left alone",
        "storage/sql/sqlite/claim.sql",
        "crashes > 0)\n      AND due_at <= coalesce(:now, (julianday('now') - 2440587.5) * 86400.0)\n",
        "crashes > 0)\n",
        "storage/test_claim.py::test_a_lease_that_holds_is_left_alone[sqlite3]",
        "worker/test_worker.py::test_a_dead_workers_events_are_taken_over[sqlite]",
    ),
    mutant(
        "the ordinary claim leaves suspects alone",
        "storage/sql/postgres/claim.sql",
        "'waiting') AND crashes = 0\n",
        "'waiting')\n",
        "storage/test_claim.py::test_who_has_seen_a_worker_die_stays_a_suspect[psycopg]",
    ),
    mutant(
        "a token for every claim",
        "storage/sql/sqlite/claim.sql",
        "SET state = 'processing', token = r.token + 1,",
        "SET state = 'processing',",
        "storage/test_claim.py::test_a_claim_holds_a_lease[sqlite3]",
    ),
    mutant(
        "crashes are counted",
        "storage/sql/sqlite/claim.sql",
        "crashes = r.crashes + CASE r.state WHEN 'processing' THEN 1 ELSE 0 END,",
        "crashes = r.crashes,",
        "storage/test_claim.py::test_a_dead_worker_is_counted_and_the_third_time_ends_it[sqlite3]",
        "worker/test_worker.py::test_a_dead_workers_events_are_taken_over[sqlite]",
    ),
    mutant(
        "a crash loop ends",
        "storage/sql/postgres/claim.sql",
        "r.crashes + 1 >= :crashes_max THEN 'failed'",
        "r.crashes + 1 >= :crashes_max + 1 THEN 'failed'",
        "storage/test_claim.py::test_a_dead_worker_is_counted_and_the_third_time_ends_it[psycopg]",
    ),
    mutant(
        "suspects are taken one at a time",
        "storage/sql/sqlite/claim.sql",
        "    LIMIT 1)",
        "    LIMIT 2)",
        "storage/test_claim.py::test_suspects_are_taken_one_at_a_time[sqlite3]",
    ),
    # handle
    mutant(
        "the re-check before the handler: token",
        "storage/sql/postgres/handle.sql",
        " AND r.token = mine.token",
        "",
        "storage/test_fence.py::test_the_lock_refuses_a_stale_claim[psycopg-token]",
    ),
    mutant(
        "the re-check before the handler: claim id",
        "storage/sql/sqlite/handle.sql",
        " AND r.claim_id = :claim_id;",
        ";",
        "storage/test_fence.py::test_the_lock_refuses_a_stale_claim[sqlite3-claim_id]",
    ),
    mutant(
        "the row lock while the handler runs",
        "storage/sql/postgres/handle.sql",
        "ORDER BY r.id\nFOR NO KEY UPDATE OF r;",
        "ORDER BY r.id;",
        "storage/test_handle.py::test_the_row_lock_outlasts_the_lease[psycopg]",
    ),
    mutant(
        "the fence in the mark: token",
        "storage/sql/sqlite/handle.sql",
        " AND r.token = :token AND r.claim_id = :claim_id\nRETURNING",
        " AND r.claim_id = :claim_id\nRETURNING",
        "storage/test_fence.py::test_the_mark_refuses_a_turn_that_was_lost[sqlite3-token]",
    ),
    mutant(
        "the fence in the mark: claim id",
        "storage/sql/postgres/handle.sql",
        " AND r.claim_id = :claim_id\n  AND pg_current",
        "\n  AND pg_current",
        "storage/test_fence.py::test_the_mark_refuses_a_turn_that_was_lost[psycopg-claim_id]",
    ),
    mutant(
        "the mark asks whether it is still the same transaction",
        "storage/sql/postgres/handle.sql",
        "\n  AND pg_current_xact_id()::text = :xid\n",
        "\n",
        "storage/test_fence.py::test_the_mark_refuses_another_transaction[psycopg]",
    ),
    mutant(
        "every row must be marked",
        "flow/handle.py",
        "    if len(marked) == len(applied):\n",
        "    if True:\n",
        "storage/test_fence.py::test_the_mark_refuses_a_turn_that_was_lost[sqlite3-token]",
    ),
    mutant(
        "the mark comes last",
        "flow/handle.py",
        "    else:\n        yield from _each(mine, held)\n    applied = [done for done in mine if done.error is None]\n",
        "    else:\n        if mine:\n            yield from _mark(mine, xid=rows[0][11], claim_id=claim_id, now=limits.now)\n"
        "        yield from _each(mine, held)\n    applied = []\n",
        "storage/test_fence.py::test_the_mark_refuses_a_turn_that_was_lost[sqlite3-token]",
    ),
    mutant(
        "what one of a group wrote is undone with it",
        "flow/handle.py",
        "            done.error = error\n            yield Undo()\n",
        "            done.error = error\n",
        "storage/test_handle.py::test_a_group_commits_together[sqlite3]",
        "worker/test_groups.py::test_one_that_fails_is_undone_alone[sqlite]",
    ),
    mutant(
        "a savepoint for each event of a group",
        "flow/handle.py",
        "        if not alone:\n            yield Savepoint()\n",
        "        if done is mine[0]:\n            yield Savepoint()\n",
        "storage/test_handle.py::test_a_group_commits_together[sqlite3]",
    ),
    mutant(
        "no COMMIT in a handler's SQL (PostgreSQL)",
        "storage/postgres.py",
        "    if _ENDS_TRANSACTION.search(text):\n",
        "    if False:\n",
        "storage/test_handle.py::test_ending_the_transaction_in_sql_is_misuse[psycopg-COMMIT]",
    ),
    mutant(
        "no commit() in a handler (PostgreSQL)",
        "storage/postgres.py",
        "    def commit(self) -> None:\n        _refuse_end()\n",
        "",
        "storage/test_handle.py::test_commit_by_method_is_misuse[psycopg]",
    ),
    mutant(
        "a swallowed error is the handler's error",
        "storage/postgres.py",
        '    if state == "25P02":\n',
        "    if False:\n",
        "storage/test_handle.py::test_a_swallowed_error_is_counted[psycopg]",
    ),
    mutant(
        "no COMMIT in a handler's SQL, no second file (SQLite)",
        "storage/sqlitelane.py",
        "        if self._guard and action in",
        "        if False and action in",
        "storage/test_handle.py::test_ending_the_transaction_in_sql_is_misuse[sqlite3-COMMIT]",
        "storage/test_handle.py::test_attach_is_misuse[sqlite3]",
    ),
    mutant(
        "no second connection beside the session",
        "storage/sqlalchemy.py",
        "    if running is not None and not _READS",
        "    if False and not _READS",
        "storage/test_sqlalchemy.py::test_a_second_connection_is_misuse[sqlalchemy-sqlite-False]",
    ),
    mutant(
        "an ORM's writes come before the mark",
        "storage/sqlalchemy.py",
        "        session, _ = self._open()\n        session.flush()\n",
        "        self._open()\n",
        "storage/test_sqlalchemy.py::test_the_orm_is_flushed_before_the_mark[sqlalchemy-sqlite]",
    ),
    mutant(
        "a handler that does not end loses its connection",
        "worker/lanes.py",
        "        self.usable = False\n        self._lane.abort()\n        self._jobs.put(None)\n",
        "        self.usable = False\n        self._jobs.put(None)\n",
        "storage/test_handle.py::test_the_time_limit_takes_the_connection_away[sqlite3]",
    ),
    mutant(
        "the server knows the time limit too",
        "storage/sql/postgres/handle.sql",
        "set_config('statement_timeout', :limit_ms, true)",
        "set_config('statement_timeout', '0', :limit_ms <> '')",
        "storage/test_handle.py::test_a_stuck_statement_ends_with_the_limit[psycopg]",
    ),
    # settle
    mutant(
        "an outcome is written by the holder of the claim only",
        "storage/sql/sqlite/settle.sql",
        " AND r.token = :token",
        "",
        "storage/test_fence.py::test_settle_is_fenced[sqlite3-token]",
    ),
    mutant(
        "a hand-back is the holder's only",
        "storage/sql/sqlite/claim.sql",
        " AND r.token = :token AND r.claim_id = :claim_id\nRETURNING",
        " AND r.token = :token\nRETURNING",
        "storage/test_fence.py::test_release_is_fenced[sqlite3-claim_id]",
    ),
    mutant(
        "attempts are bounded",
        "flow/settle.py",
        "    last = claim.attempts >= handler.attempts_max\n",
        "    last = False\n",
        "worker/test_decide.py::test_what_follows[ZeroDivisionError-3-failed-gave_up-0.0-True]",
        "worker/test_worker.py::test_giving_up_keeps_everything[sqlite]",
    ),
    mutant(
        "what no handler is to blame for is not counted",
        "flow/settle.py",
        "delay_seconds=delay, counted=False)",
        "delay_seconds=delay)",
        "worker/test_decide.py::test_what_follows[Unavailable-3-retrying-None-2.0-False]",
        "worker/test_worker.py::test_infrastructure_is_not_the_handlers_fault[sqlite]",
    ),
    mutant(
        "an error's text is one printable line",
        "flow/settle.py",
        "c if c.isprintable() else",
        "c if True else",
        "worker/test_decide.py::test_errors_are_one_printable_line",
    ),
    mutant(
        "foreign text is escaped in log lines",
        "telemetry.py",
        '    return text[:200].encode("unicode_escape", "backslashreplace").decode("ascii")\n',
        "    return text[:200]\n",
        "test_house.py::test_ids_cannot_forge_log_lines",
    ),
    mutant(
        "a replay names the state that was seen",
        "storage/sql/sqlite/operate.sql",
        "WHERE r.id = :id AND r.state = :from_state AND r.state IN ('processed', 'failed')\n",
        "WHERE r.id = :id AND r.state IN ('processed', 'failed')\n",
        "storage/test_claim.py::test_replay_asks_for_the_state_that_was_seen[sqlite3]",
    ),
    # SQLite
    mutant(
        "the write lock from the beginning (BEGIN IMMEDIATE)",
        "storage/sqlite.py",
        'BEGIN = "BEGIN IMMEDIATE /* hookonce */"',
        'BEGIN = "BEGIN /* hookonce */"',
        "storage/test_handle.py::test_the_write_lock_is_held_from_the_beginning[sqlite3]",
    ),
    mutant(
        "synchronous is FULL",
        "storage/sqlite.py",
        '"synchronous": 2,',
        '"synchronous": 1,',
        "storage/test_sqlite.py::test_settings_are_read_back[sqlite3]",
    ),
    mutant(
        "the journal is a write-ahead log",
        "storage/sqlite.py",
        '"journal_mode": "wal"',
        '"journal_mode": "delete"',
        "storage/test_sqlite.py::test_settings_are_read_back[sqlite3]",
    ),
    mutant(
        "settings are read back",
        "storage/sqlite.py",
        "            if seen != value:\n",
        "            if False:\n",
        "storage/test_sqlite.py::test_a_setting_that_does_not_take_is_an_error",
    ),
    mutant(
        "which SQLite has the WAL-reset bug",
        "storage/sqlite.py",
        "    return version >= (3, 51, 3) or",
        "    return version >= (3, 7, 0) or",
        "storage/test_sqlite.py::test_which_versions_are_free_of_the_wal_reset_bug[version0-False]",
    ),
    mutant(
        "in guarded mode checkpoints are ours",
        "storage/sqlite.py",
        "= 0 if self.guarded else 1000\n",
        "= 1000\n",
        "storage/test_sqlite.py::test_settings_are_read_back[sqlite3]",
    ),
    mutant(
        "network file systems are refused",
        "storage/sqlite.py",
        "    if not allowed and kind.startswith(NETWORK_FILE_SYSTEMS):\n",
        "    if False:\n",
        "storage/test_sqlite.py::test_network_file_systems_are_refused[/srv/data-nfs4-True]",
    ),
    mutant(
        "network file systems are asked for, for a URL",
        "storage/connect.py",
        "    refuse_network_file_system(path.parent.resolve(), allowed=allowed)\n",
        "",
        "storage/test_connect.py::test_every_way_to_a_file_asks_for_its_file_system",
    ),
    mutant(
        "the writer's turn holds among processes",
        "storage/sqlite.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "storage/test_sqlite.py::test_the_turn_is_kept_among_processes",
    ),
    mutant(
        "accepts go first",
        "storage/sqlite.py",
        "lambda: not self._held and (urgent or not self._urgent)",
        "lambda: not self._held",
        "storage/test_sqlite.py::test_accepts_go_before_work",
    ),
    # PostgreSQL
    mutant(
        "behind a pooler nothing is prepared",
        "storage/postgres.py",
        "prepare=not pooled)",
        "prepare=True)",
        "storage/test_pgbouncer.py::test_the_whole_flow_through_the_pooler",
    ),
    mutant(
        "our steps run READ COMMITTED, whatever the database's default",
        "storage/postgres.py",
        "        if not pooled:\n            #",
        "        if False:\n            #",
        "storage/test_postgres.py::test_the_suite_of_steps_under_serializable[psycopg]",
    ),
    mutant(
        "a COMMIT that was a rollback is told",
        "storage/postgres.py",
        '        if self._plain.statusmessage != "COMMIT":\n',
        "        if False:\n",
        "storage/test_postgres.py::test_a_commit_that_was_a_rollback_is_told",
    ),
    # schema
    mutant(
        "a newer schema is left alone",
        "storage/migrate.py",
        "    if have > newest:\n",
        "    if False:\n",
        "storage/test_migrate.py::test_an_unknown_newer_schema_is_refused[sqlite]",
    ),
    mutant(
        "nothing starts on an old schema",
        "storage/migrate.py",
        "    if todo:\n",
        "    if False:\n",
        "storage/test_migrate.py::test_an_old_or_missing_schema_is_refused[sqlite]",
    ),
    mutant(
        "who migrates second finds it done",
        "storage/migrate.py",
        "            if await backend.read(applied()) < migration.number:\n                raise\n",
        "            raise\n",
        "storage/test_migrate.py::test_who_comes_second_finds_it_done[sqlite]",
    ),
    mutant(
        "only known states are stored",
        "storage/migrations/sqlite/001_initial.sql",
        "'waiting', 'discarded')),\n",
        "'waiting', 'discarded', 'done')),\n",
        "storage/test_migrate.py::test_only_known_states_are_stored[sqlite-done]",
    ),
    # leaving
    mutant(
        "a request that has begun is finished after SIGTERM",
        "server/serve.py",
        "        deadline = time.monotonic() + grace_seconds\n",
        "        deadline = time.monotonic()\n",
        "server/test_shutdown.py::test_running_request_is_finished_and_idle_connections_are_closed",
    ),
    mutant(
        "a handler that has begun is finished after SIGTERM",
        "server/serve.py",
        "            leaving.append(self._worker.stop())\n",
        "            pass\n",
        "server/test_shutdown.py::test_running_handler_is_finished",
    ),
    mutant(
        "what has not begun is handed back",
        "worker/loop.py",
        "            if self._ready:\n                await self._hand_back(list(self._ready))\n",
        "            if self._ready:\n",
        "worker/test_worker.py::test_stopping_finishes_what_began_and_hands_back_the_rest[sqlite]",
    ),
    mutant(
        "what cannot begin in half of its lease goes back",
        "worker/loop.py",
        "            await self._hand_back_late()\n",
        "",
        "worker/test_worker.py::test_what_cannot_begin_goes_back_uncounted[postgres]",
    ),
    mutant(
        "outcomes that could not be written are written later",
        "worker/loop.py",
        "            self._unsettled.append((claim, outcome, seconds))\n",
        "",
        "worker/test_worker.py::test_outcomes_are_written_after_an_outage[sqlite]",
    ),
)


CONTROLS = [sorted({test for one in MUTANTS for test in one.tests})[part::AT_ONCE] for part in range(AT_ONCE)]
"""Every test that is named above, once, in as many parts as run at a time."""


def copy_of(folder: Path, change: Mutant | None) -> Path:
    """The package below `folder`, with this change. Compiled files come along, but for the one that is changed."""
    copy = folder / "hookonce"
    shutil.copytree(PACKAGE, copy)
    if change is not None:
        file = copy / change.file
        text = file.read_text(encoding="utf-8")
        count = text.count(change.old)
        assert count == 1, f"{change.file} has this {count} times, not once: bring the table up to date\n{change.old}"
        file.write_text(text.replace(change.old, change.new), encoding="utf-8")
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()
    return copy


def run(folder: Path, change: Mutant | None, tests: Sequence[str], environment: dict[str, str], seconds: float) -> Run:
    """These tests in a process of their own, on a copy with this change."""
    folder.mkdir()
    try:
        copy_of(folder, change)
        output = folder / "output.txt"
        arguments = ["-rfE", "--tb=short", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", *tests]
        own = {**environment, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
        child = PROCESSES.Process(target=run_tests, args=(folder, ROOT, output, own, arguments))
        child.start()
        child.join(seconds)
        status = child.exitcode
        if status is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
        return Run(status, output.read_text(encoding="utf-8", errors="replace"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[object, Future[Run]]]:
    """The children of all tests here that were selected, a few at a time; on SQLite or on our own PostgreSQL."""
    folder = tmp_path_factory.mktemp("mutants")
    postgres.start()
    wanted = [item.callspec.params for item in request.session.items if item.path == Path(__file__)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started: dict[object, Future[Run]] = {}
        for number, params in enumerate(wanted):
            if "part" in params:
                part = params["part"]
                what = (None, CONTROLS[part], postgres.lend(), CONTROL_SECONDS)
                started[part] = pool.submit(run, folder / str(number), *what)
            else:
                change = params["change"]
                what = (change, change.tests, postgres.lend(), MUTANT_SECONDS)
                started[change] = pool.submit(run, folder / str(number), *what)
        yield started
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("part", range(AT_ONCE))
def test_unchanged_code_passes(part: int, runs: dict[object, Future[Run]]) -> None:
    """Whatever is named in the table is green on a copy that was not changed: red means the mutation."""
    ended = runs[part].result()
    assert ended.status == 0, ended.output


@pytest.mark.parametrize("change", MUTANTS, ids=str)
def test_a_missing_safeguard_is_noticed(change: Mutant, runs: dict[object, Future[Run]]) -> None:
    """Without it each test that is named for it fails, within its bound."""
    ended = runs[change].result()
    assert ended.status is not None, f"no end within {MUTANT_SECONDS:g} s: name a test with a bound\n{ended.output}"
    assert ended.status == FAILED, ended.output
    assert ended.red == set(change.tests), ended.output
