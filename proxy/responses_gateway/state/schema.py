"""The tables."""

from __future__ import annotations

from collections.abc import Mapping

from responses_gateway.state.interfaces import Sql, StoreUnavailable

# The names of the types in a statement, by database. A `key` counts up and is never used twice.
SQLITE = {"key": "INTEGER PRIMARY KEY AUTOINCREMENT", "integer": "INTEGER", "real": "REAL", "blob": "BLOB"}
POSTGRES = {
    "key": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "blob": "BYTEA",
}

# Changes with the tables. Begins above 12, because builds that were never released numbered their stores up to that.
VERSION = 13

_TABLES = (
    # Each item once; `digest` is that of its JSON in canonical form. `result` is that of the hosted call that the item is, as
    # the model got it (see `hosted_calls.py`). No key is ever used twice, because a running request may still refer to one that
    # was deleted.
    "CREATE TABLE items (key {key}, tenant TEXT NOT NULL, digest {blob} NOT NULL, body TEXT NOT NULL, result {blob})",
    "CREATE UNIQUE INDEX items_digest ON items (tenant, digest)",
    # Histories, as a tree: each node is an item that follows those of its parents (0: the beginning).
    "CREATE TABLE nodes (key {key}, tenant TEXT NOT NULL, parent {integer} NOT NULL, "
    "item {integer} NOT NULL, item_id TEXT NOT NULL)",
    "CREATE UNIQUE INDEX nodes_parent ON nodes (parent, item)",
    "CREATE INDEX nodes_item ON nodes (item)",
    "CREATE INDEX nodes_item_id ON nodes (tenant, item_id)",
    # `input_begin` is the place before the items of the request itself, `repeated_end` that of the last of the texts that
    # `tail` shares with other responses (see `repeated_texts.py`; 0: none). `log_until`: until when the log of a stream is
    # kept that can be resumed only for a while.
    "CREATE TABLE responses (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at {real} NOT NULL, "
    "expires_at {real} NOT NULL, status TEXT NOT NULL, head TEXT NOT NULL, tail TEXT NOT NULL, "
    "input_begin {integer} NOT NULL, input_end {integer} NOT NULL, output_end {integer} NOT NULL, "
    "repeated_end {integer} NOT NULL, conversation TEXT, background {integer} NOT NULL, "
    "worker TEXT, alive_until {real}, log_until {real}, cancelled {integer} NOT NULL DEFAULT 0)",
    "CREATE INDEX responses_expiry ON responses (expires_at)",
    "CREATE INDEX responses_input ON responses (input_end)",
    "CREATE INDEX responses_output ON responses (output_end)",
    "CREATE INDEX responses_repeated ON responses (repeated_end) WHERE repeated_end > 0",
    "CREATE INDEX responses_running ON responses (alive_until) WHERE alive_until IS NOT NULL",
    "CREATE INDEX responses_log ON responses (log_until) WHERE log_until IS NOT NULL",
    "CREATE TABLE conversations (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at {real} NOT NULL, "
    "expires_at {real} NOT NULL, metadata TEXT NOT NULL, output_end {integer} NOT NULL)",
    "CREATE INDEX conversations_expiry ON conversations (expires_at)",
    "CREATE INDEX conversations_output ON conversations (output_end)",
    # The stream of a response that runs in the background, in pieces.
    "CREATE TABLE events (response TEXT NOT NULL, first {integer} NOT NULL, next {integer} NOT NULL, data {blob} NOT NULL, "
    "PRIMARY KEY (response, first))",
    # What another process needs to take a running response over (see `events.py`).
    "CREATE TABLE journals (response TEXT NOT NULL, first {integer} NOT NULL, data {blob} NOT NULL, "
    "PRIMARY KEY (response, first))",
    # Responses that wait for their completion window (see `waiting.py`); `minute` is that of the deadline.
    "CREATE TABLE waiting (response TEXT PRIMARY KEY, tenant TEXT NOT NULL, model TEXT NOT NULL, "
    "completion_window TEXT NOT NULL, follow_up {integer} NOT NULL, accepted_at {real} NOT NULL, deadline {real} NOT NULL, "
    "minute {integer} NOT NULL, size {integer} NOT NULL, leased_until {real} NOT NULL DEFAULT 0, request {blob} NOT NULL)",
    "CREATE INDEX waiting_order ON waiting (model, completion_window, minute, accepted_at)",
    "CREATE INDEX waiting_tenant ON waiting (tenant, size)",
    "CREATE INDEX waiting_turn ON waiting (model, tenant, follow_up DESC, deadline, response, leased_until)",
    "CREATE INDEX waiting_deadline ON waiting (model, deadline, response, leased_until)",
    # Which chains of responses had one that waited, so that the next one ranks higher.
    "CREATE TABLE continuations (tenant TEXT NOT NULL, continuation TEXT NOT NULL, completion_window TEXT NOT NULL, "
    "model TEXT NOT NULL, expires_at {real} NOT NULL, PRIMARY KEY (tenant, continuation, completion_window, model))",
    "CREATE INDEX continuations_expiry ON continuations (expires_at)",
    # What endpoints are to be notified of: why an event was not delivered, until when somebody is sending it, and whether it is
    # tried no more (see `webhooks.py`).
    "CREATE TABLE webhooks (id TEXT PRIMARY KEY, response TEXT NOT NULL, endpoint TEXT NOT NULL, due {real} NOT NULL, "
    "attempts {integer} NOT NULL, ended_at {integer}, expires_at {real} NOT NULL, last_failure TEXT, "
    "sending_until {real} NOT NULL DEFAULT 0, given_up {integer} NOT NULL DEFAULT 0)",
    "CREATE INDEX webhooks_due ON webhooks (endpoint, due)",
    # The approvals that were used, and by which response (see `hosted_calls.py`).
    "CREATE TABLE approvals (digest {blob} PRIMARY KEY, response TEXT NOT NULL, expires_at {real} NOT NULL)",
    "CREATE INDEX approvals_expiry ON approvals (expires_at)",
    # The hashes of prompts (see `prompt_hashes.py`).
    "CREATE TABLE prompt_hashes (response TEXT PRIMARY KEY, tenant TEXT NOT NULL, data {blob} NOT NULL, "
    "expires_at {real} NOT NULL)",
    "CREATE INDEX prompt_hashes_expiry ON prompt_hashes (expires_at)",
    # What was used; `team` is that to which the key belonged when it was used last on that day (see `usage.py`).
    "CREATE TABLE token_usage (day {integer} NOT NULL, key TEXT NOT NULL, team TEXT NOT NULL, model TEXT NOT NULL, "
    "requests {integer} NOT NULL, input_tokens {integer} NOT NULL, cached_tokens {integer} NOT NULL, "
    "output_tokens {integer} NOT NULL, reasoning_tokens {integer} NOT NULL, PRIMARY KEY (day, key, model))",
    # What was charged to quotas (see `quotas.py`).
    "CREATE TABLE quota_counters (name TEXT PRIMARY KEY, tokens {integer} NOT NULL, expires_at {real} NOT NULL)",
    "CREATE TABLE quota_charges (id TEXT PRIMARY KEY, tokens {integer} NOT NULL, expires_at {real} NOT NULL)",
    "CREATE INDEX quota_charges_expiry ON quota_charges (expires_at)",
    "CREATE TABLE secrets (name TEXT PRIMARY KEY, value {blob} NOT NULL)",
    # Work that one process does for all, and until when the others leave it alone.
    "CREATE TABLE leases (name TEXT PRIMARY KEY, until {real} NOT NULL)",
)


class OtherSchema(StoreUnavailable):
    """The store was written by another version of the gateway. The message is for operators."""


def create_tables(sql: Sql, types: Mapping[str, str]) -> None:
    """Create the tables, unless they are there, in the open transaction; `types` are those of the database. Raise
    `OtherSchema`."""
    sql.execute("CREATE TABLE IF NOT EXISTS version (number {integer} NOT NULL)".format_map(types))
    row = sql.execute("SELECT number FROM version").fetchone()
    if row is None:
        for statement in _TABLES:
            sql.execute(statement.format_map(types))
        sql.execute("INSERT INTO version (number) VALUES (?)", (VERSION,))
    elif row[0] != VERSION:
        raise OtherSchema(
            f"the store has tables of version {row[0]}, this gateway needs {VERSION}: let the setting `store` name an empty "
            "database or a new file, or run the version of the gateway that wrote this one"
        )
