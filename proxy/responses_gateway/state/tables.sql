-- Each long item of a tenant once, and each hosted call; `digest` is that of the tenant and of the JSON in canonical form. A
-- new item may change any page of its index, so the rows of that are short: there are fewer pages. `result` is that of the
-- hosted call that the item is, as the model got it (see `hosted_calls.py`). No key is ever used twice, because a running
-- request may still refer to one that was deleted.
CREATE TABLE items (key {key}, digest {blob} NOT NULL, body TEXT NOT NULL, result {blob});
CREATE UNIQUE INDEX items_digest ON items (digest);
-- Histories, as a tree: each node is an item that follows those of its parents (0: the beginning). Nodes have the bodies of
-- short items themselves, because the index of the other ones costs more than that: `item` is NULL then.
CREATE TABLE nodes (key {key}, tenant TEXT NOT NULL, parent {integer} NOT NULL, digest {blob} NOT NULL, item {integer},
    item_id TEXT NOT NULL, body TEXT);
CREATE UNIQUE INDEX nodes_parent ON nodes (parent, digest);
CREATE INDEX nodes_item ON nodes (item) WHERE item IS NOT NULL;
CREATE INDEX nodes_item_id ON nodes (tenant, item_id);
-- `input_begin` is the place before the items of the request itself, `repeated_end` that of the last of the texts that
-- `tail` shares with other responses (see `repeated_texts.py`; 0: none). `log_until`: until when the log of a stream is
-- kept that can be resumed only for a while.
CREATE TABLE responses (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at {real} NOT NULL,
    expires_at {real} NOT NULL, status TEXT NOT NULL, head TEXT NOT NULL, tail TEXT NOT NULL,
    input_begin {integer} NOT NULL, input_end {integer} NOT NULL, output_end {integer} NOT NULL,
    repeated_end {integer} NOT NULL, conversation TEXT, background {integer} NOT NULL, session TEXT, worker TEXT,
    alive_until {real}, log_until {real}, cancelled {integer} NOT NULL DEFAULT 0);
CREATE INDEX responses_expiry ON responses (expires_at);
CREATE INDEX responses_input ON responses (input_end);
CREATE INDEX responses_output ON responses (output_end);
CREATE INDEX responses_repeated ON responses (repeated_end) WHERE repeated_end > 0;
CREATE INDEX responses_running ON responses (alive_until) WHERE alive_until IS NOT NULL;
CREATE INDEX responses_log ON responses (log_until) WHERE log_until IS NOT NULL;
CREATE TABLE conversations (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, created_at {real} NOT NULL,
    expires_at {real} NOT NULL, metadata TEXT NOT NULL, output_end {integer} NOT NULL);
CREATE INDEX conversations_expiry ON conversations (expires_at);
CREATE INDEX conversations_output ON conversations (output_end);
-- The stream of a response that runs in the background, in pieces.
CREATE TABLE events (response TEXT NOT NULL, first {integer} NOT NULL, next {integer} NOT NULL, data {blob} NOT NULL,
    PRIMARY KEY (response, first));
-- What another process needs to take a running response over (see `events.py`).
CREATE TABLE journals (response TEXT NOT NULL, first {integer} NOT NULL, data {blob} NOT NULL, PRIMARY KEY (response,
    first));
-- Responses that wait for their completion window (see `waiting.py`); `minute` is that of the deadline.
CREATE TABLE waiting (response TEXT PRIMARY KEY, tenant TEXT NOT NULL, model TEXT NOT NULL,
    completion_window TEXT NOT NULL, follow_up {integer} NOT NULL, accepted_at {real} NOT NULL,
    deadline {real} NOT NULL, minute {integer} NOT NULL, size {integer} NOT NULL,
    leased_until {real} NOT NULL DEFAULT 0, request {blob} NOT NULL);
CREATE INDEX waiting_order ON waiting (model, completion_window, minute, accepted_at);
CREATE INDEX waiting_tenant ON waiting (tenant, size);
CREATE INDEX waiting_turn ON waiting (model, tenant, follow_up DESC, deadline, response, leased_until);
CREATE INDEX waiting_deadline ON waiting (model, deadline, response, leased_until);
-- Which chains of responses had one that waited, so that the next one ranks higher.
CREATE TABLE continuations (tenant TEXT NOT NULL, continuation TEXT NOT NULL, completion_window TEXT NOT NULL,
    model TEXT NOT NULL, expires_at {real} NOT NULL, PRIMARY KEY (tenant, continuation, completion_window, model));
CREATE INDEX continuations_expiry ON continuations (expires_at);
-- What endpoints are to be notified of: why an event was not delivered, until when somebody is sending it, and whether it is
-- tried no more (see `webhooks.py`).
CREATE TABLE webhooks (id TEXT PRIMARY KEY, response TEXT NOT NULL, endpoint TEXT NOT NULL, due {real} NOT NULL,
    attempts {integer} NOT NULL, ended_at {integer}, expires_at {real} NOT NULL, last_failure TEXT,
    sending_until {real} NOT NULL DEFAULT 0, given_up {integer} NOT NULL DEFAULT 0);
CREATE INDEX webhooks_due ON webhooks (endpoint, due);
-- The approvals that were used, and by which response (see `hosted_calls.py`).
CREATE TABLE approvals (digest {blob} PRIMARY KEY, response TEXT NOT NULL, expires_at {real} NOT NULL);
CREATE INDEX approvals_expiry ON approvals (expires_at);
-- The hashes of prompts (see `prompt_hashes.py`).
CREATE TABLE prompt_hashes (response TEXT PRIMARY KEY, tenant TEXT NOT NULL, data {blob} NOT NULL,
    expires_at {real} NOT NULL);
CREATE INDEX prompt_hashes_expiry ON prompt_hashes (expires_at);
-- The calls of the model that were kept, token by token, as trees (see `token_trees.py`). A tree is a rollout, or a chain of
-- responses; `dropped` are its calls that had no room. The prompt of a call is the first `shared` tokens of its parent (0:
-- it has none), and the `rest`.
CREATE TABLE token_trees (key {key}, tenant TEXT NOT NULL, name TEXT NOT NULL, expires_at {real} NOT NULL,
    calls {integer} NOT NULL DEFAULT 0, bytes {integer} NOT NULL DEFAULT 0, dropped {integer} NOT NULL DEFAULT 0,
    reward TEXT);
CREATE UNIQUE INDEX token_trees_name ON token_trees (tenant, name);
CREATE INDEX token_trees_expiry ON token_trees (expires_at);
CREATE INDEX token_trees_age ON token_trees (tenant, key);
CREATE TABLE model_calls (key {key}, tree {integer} NOT NULL, id TEXT NOT NULL, response TEXT NOT NULL,
    parent {integer} NOT NULL, shared {integer} NOT NULL, rest {blob}, sampled {blob}, log_probs {blob}, kind TEXT,
    thread TEXT, prompt_digest {blob}, answer_digest {blob}, details {blob} NOT NULL);
CREATE INDEX model_calls_tree ON model_calls (tree, id);
CREATE INDEX model_calls_response ON model_calls (response);
CREATE INDEX model_calls_prompt ON model_calls (tree, prompt_digest);
CREATE INDEX model_calls_thread ON model_calls (tree, thread);
-- Sessions of agents, a part for each process that had requests of it (see `sessions.py`).
CREATE TABLE session_parts (part TEXT PRIMARY KEY, session TEXT NOT NULL, tenant TEXT NOT NULL,
    updated_at {real} NOT NULL, expires_at {real} NOT NULL, data {blob} NOT NULL);
CREATE INDEX session_parts_session ON session_parts (session);
CREATE INDEX session_parts_updated ON session_parts (updated_at);
CREATE INDEX session_parts_tenant ON session_parts (tenant, updated_at);
CREATE INDEX session_parts_expiry ON session_parts (expires_at);
CREATE TABLE session_requests (part TEXT NOT NULL, number {integer} NOT NULL, data {blob} NOT NULL, PRIMARY KEY (part,
    number));
-- What was used; `team` is that to which the key belonged when it was used last on that day (see `usage.py`).
CREATE TABLE token_usage (day {integer} NOT NULL, key TEXT NOT NULL, team TEXT NOT NULL, model TEXT NOT NULL,
    requests {integer} NOT NULL, input_tokens {integer} NOT NULL, cached_tokens {integer} NOT NULL,
    output_tokens {integer} NOT NULL, reasoning_tokens {integer} NOT NULL, PRIMARY KEY (day, key, model));
CREATE TABLE session_usage (day {integer} NOT NULL, key TEXT NOT NULL, team TEXT NOT NULL, model TEXT NOT NULL,
    session TEXT NOT NULL, requests {integer} NOT NULL, input_tokens {integer} NOT NULL,
    cached_tokens {integer} NOT NULL, output_tokens {integer} NOT NULL, reasoning_tokens {integer} NOT NULL,
    PRIMARY KEY (day, key, model, session));
-- What was charged to quotas (see `quotas.py`).
CREATE TABLE quota_counters (name TEXT PRIMARY KEY, tokens {integer} NOT NULL, expires_at {real} NOT NULL);
CREATE TABLE quota_charges (id TEXT PRIMARY KEY, tokens {integer} NOT NULL, expires_at {real} NOT NULL);
CREATE INDEX quota_charges_expiry ON quota_charges (expires_at);
-- The keys of clients that were made at run time (see `client_keys.py`).
CREATE TABLE client_keys (key {key}, name TEXT NOT NULL, hash TEXT NOT NULL, details TEXT NOT NULL,
    created_at {real} NOT NULL);
CREATE UNIQUE INDEX client_keys_name ON client_keys (name);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value {blob} NOT NULL);
-- Work that one process does for all, and until when the others leave it alone.
CREATE TABLE leases (name TEXT PRIMARY KEY, until {real} NOT NULL);
