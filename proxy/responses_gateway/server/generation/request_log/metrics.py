"""What is counted of each request for a response."""

from __future__ import annotations

from responses_gateway.telemetry.instruments import DURATION_BUCKETS, LATENCY_BUCKETS, Counter, Gauge, Histogram

# Upper bounds of the gaps between two reads, in seconds; streams count into these buckets themselves.
GAP_BUCKETS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
_RELEASE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

REQUESTS = Counter("requests_total", "Requests for a response, by outcome.", ("model", "outcome", "stream", "api"))
IN_FLIGHT = Gauge("requests_in_flight", "Requests under way.")
DURATION = Histogram("request_duration_seconds", "From the request's arrival to the last byte.", DURATION_BUCKETS, ("model",))
FIRST_TOKEN = Histogram(
    "time_to_first_token_seconds", "From the request's arrival to the model's first token.", LATENCY_BUCKETS, ("model",)
)
FIRST_VISIBLE = Histogram(
    "time_to_first_visible_token_seconds",
    "From the request's arrival to the first text, refusal or tool call, after the reasoning.",
    LATENCY_BUCKETS,
    ("model",),
)
INTER_TOKEN = Histogram(
    "inter_token_latency_seconds", "Between two consecutive reads of a stream that brought tokens.", GAP_BUCKETS, ("model",)
)
TOKENS = Counter(
    "tokens_total",
    "Tokens: input (cached is a part of it); output (reasoning, text, refusal, tool_arguments, other are its parts).",
    ("model", "kind"),
)
UNSEEN_TOKENS = Counter(
    "unseen_tokens_total",
    "Output tokens that a backend counted but did not send: its parsers may not fit the model.",
    ("model",),
)
DISAGREEMENTS = Counter(
    "token_disagreements_total",
    "Responses for which the backend and the gateway count different numbers of output tokens.",
    ("model",),
)
ITEMS = Counter("output_items_total", "Finished output items, by type.", ("type",))
EVENTS = Counter("events_total", "Delta events sent, by type.", ("type",))
TERMINALS = Counter("terminal_events_total", "Finished responses, by status and reason.", ("status", "reason"))
BACKEND_ERRORS = Counter("backend_errors_total", "Requests that a backend refused, or whose answer broke off.", ("kind",))
CONTINUATIONS = Counter(
    "continuations_total",
    "Answers that broke off at a backend, by whether another one continued them, and why they broke off or why none did.",
    ("outcome", "reason"),
)
MALFORMED = Counter("malformed_chunks_total", "Events from a backend that are not valid chat completion chunks.")
REPAIRS = Counter("repairs_total", "Repairs of what backends sent, by kind.", ("kind",))
KEEP_ALIVES = Counter("keep_alives_total", "Keep-alives sent, by kind.", ("kind",))
LOSSES = Counter("losses_total", "Parts of requests that could not be translated unchanged.", ("kind", "name", "outcome"))
DISCONNECTS = Counter("client_disconnects_total", "Clients that disconnected before the end, by phase.", ("phase",))
RELEASE = Histogram(
    "client_disconnect_release_seconds",
    "From the end of a client's connection to that of its request to the backend.",
    _RELEASE_BUCKETS,
)
KEY_DURATION = Histogram(
    "key_request_duration_seconds", "From a request's arrival to the last byte, by API key.", DURATION_BUCKETS, ("key",)
)
KEY_FIRST_TOKEN = Histogram(
    "key_time_to_first_token_seconds",
    "From a request's arrival to the model's first token, by API key.",
    LATENCY_BUCKETS,
    ("key",),
)
KEY_TOKENS = Counter("key_tokens_total", "Input and output tokens, by API key.", ("key",))
VIOLATIONS = Counter("invariant_violations_total", "Violations of the rules of the API in sampled streams.", ("rule",))
SAMPLED = Counter("sampled_streams_total", "Streams that were checked against the rules of the API.")

REQUEST_METRICS = (
    REQUESTS, IN_FLIGHT, DURATION, FIRST_TOKEN, FIRST_VISIBLE, INTER_TOKEN, TOKENS, UNSEEN_TOKENS, DISAGREEMENTS, ITEMS, EVENTS,
    TERMINALS, BACKEND_ERRORS, CONTINUATIONS, MALFORMED, REPAIRS, KEEP_ALIVES, LOSSES, DISCONNECTS, RELEASE, KEY_DURATION,
    KEY_FIRST_TOKEN, VIOLATIONS, SAMPLED,
)  # fmt: skip
