"""The dashboards: a page for each kind of question, a row for each question, a panel for each answer."""

from __future__ import annotations

from dashboards.panels import BYTES, NUMBER, PER_SECOND, REQUESTS, SECONDS, SHARE, TOKENS, Dashboard, Panel, Row
from dashboards.queries import GATEWAYS, MODELS, PREFIX, ended, percentiles, quantile, rate, ratio, within

SUCCEEDED = "completed|incomplete"
ANSWERED = "completed|incomplete|failed"
#: What no backend answered has no model, and has always failed.
KNOWN = MODELS + ', model!="unknown"'

OVERVIEW = Dashboard(
    "responses-proxy-overview",
    "responses-proxy / Overview",
    "Is it up, is it fast, does it do what is asked of it?",
    [
        Row(
            "Now",
            [
                Panel("Gateways up", "Targets that answer Prometheus, of those it knows.", NUMBER,
                      {f"sum(up{{{GATEWAYS}}})": "up"}, "stat", 4, 4, bad=1, low_is_bad=True),
                Panel("Requests", "Requests for a response that ended, per second.", REQUESTS,
                      {rate("requests_total", select=MODELS): "requests"}, "stat", 4, 4),
                Panel("In flight", "Requests being answered at this moment.", NUMBER,
                      {f"sum({PREFIX}requests_in_flight{{{GATEWAYS}}})": "in flight"}, "stat", 4, 4),
                Panel("Answered well", "Responses that ended as the model ended them, of all that the gateway tried to answer. "
                      "Wrong requests and clients that left do not count.", SHARE,
                      {ratio(ended(SUCCEEDED), ended(ANSWERED)): "well"}, "stat", 4, 4,
                      warn=0.99, bad=0.95, low_is_bad=True, decimals=2),
                Panel("First token, p95", "Nineteen of twenty requests have their first token within this time.", SECONDS,
                      {quantile(0.95, "time_to_first_token_seconds"): "p95"}, "stat", 4, 4, warn=5, bad=30),
                Panel("Output", "Tokens that the models write, per second.", TOKENS,
                      {rate("tokens_total", select=MODELS + ', kind="output"'): "output"}, "stat", 4, 4),
            ],
        ),
        Row(
            "Traffic",
            [
                Panel("Requests by how they ended", "Rejected: an error below 500, mostly a wrong request. Failed: the backend "
                      "or the gateway. Incomplete: cut at a token limit or by a filter.", REQUESTS,
                      {rate("requests_total", "outcome", select=MODELS): "{{outcome}}"}, stacked=True),
                Panel("Requests by model", "The ten busiest. `unknown`: requests that no backend answered.", REQUESTS,
                      {f"topk(10, {rate('requests_total', 'model', select=MODELS)})": "{{model}}"}, stacked=True),
                Panel("In flight by gateway", "How the load is spread over the replicas.", NUMBER,
                      {f"sum by (instance) ({PREFIX}requests_in_flight{{{GATEWAYS}}})": "{{instance}}"}, stacked=True),
            ],
        ),
        Row(
            "Speed",
            [
                Panel("Time to first token", "From the arrival of the request to the first token, reasoning included: mostly "
                      "queue and prefill of the backend.", SECONDS, percentiles("time_to_first_token_seconds")),
                Panel("Between tokens", "Between two reads of a stream that brought tokens: how smoothly it runs.", SECONDS,
                      percentiles("inter_token_latency_seconds")),
                Panel("Tokens", "Input (of it from the backend's prefix cache) and output, per second.", TOKENS,
                      {rate("tokens_total", "kind", select=MODELS + ', kind=~"input|cached|output"'): "{{kind}}"}),
            ],
        ),
        Row(
            "What should be zero",
            [
                Panel("Defects", "Failures of the gateway itself, in the time shown: report them.", NUMBER,
                      {within("defects_total"): "defects"}, "stat", 4, 4, bad=0.5, decimals=0),
                Panel("Broken laws", "Laws of a Responses stream that a sampled stream broke, in the time shown: report them.",
                      NUMBER, {within("invariant_violations_total"): "broken laws"}, "stat", 4, 4, bad=0.5, decimals=0),
                Panel("Malformed chunks", "Payloads of a backend that were no chat chunk, in the time shown.", NUMBER,
                      {within("malformed_chunks_total"): "malformed"}, "stat", 4, 4, warn=0.5, decimals=0),
                Panel("Backend errors", "Requests that the backend refused or broke, in the time shown.", NUMBER,
                      {within("backend_errors_total"): "errors"}, "stat", 4, 4, warn=0.5, decimals=0),
                Panel("Clients that left", "Connections closed by the client before the end, of all requests.", SHARE,
                      {f"{ratio(rate('client_disconnects_total'), rate('requests_total'))} or vector(0)": "left"},
                      "stat", 4, 4, warn=0.1, bad=0.3, decimals=1),
                Panel("Keep-alives", "Sent because nothing else was: many mean long prefills or silent thinking.", PER_SECOND,
                      {f"{rate('keep_alives_total')} or vector(0)": "keep-alives"}, "stat", 4, 4),
            ],
        ),
        Row(
            "Processes",
            [
                Panel("CPU", "Cores in use, by gateway. One process uses one at most.", NUMBER,
                      {f"rate(process_cpu_seconds_total{{{GATEWAYS}}}[$__rate_interval])": "{{instance}}"}),
                Panel("Memory", "Resident memory, by gateway.", BYTES,
                      {f"process_resident_memory_bytes{{{GATEWAYS}}}": "{{instance}}"}),
                Panel("Connections", "Open file descriptors, of those allowed: two for each request in flight.", SHARE,
                      {f"process_open_fds{{{GATEWAYS}}} / process_max_fds{{{GATEWAYS}}}": "{{instance}}"}, warn=0.8),
            ],
        ),
    ],
)  # fmt: skip

BY_MODEL = Dashboard(
    "responses-proxy-models",
    "responses-proxy / Models: tokens and latency",
    "How does each model do?",
    [
        Row(
            "Side by side",
            [
                Panel("Requests", "Per second, by model.", REQUESTS,
                      {rate("requests_total", "model", select=MODELS): "{{model}}"}),
                Panel("Failed", "Responses that failed, of all that the gateway tried to answer and a backend began to.", SHARE,
                      {ratio(f"({ended('failed', 'model', select=KNOWN)} or 0 * {ended(ANSWERED, 'model', select=KNOWN)})",
                             ended(ANSWERED, "model", select=KNOWN)): "{{model}}"}, warn=0.01),
                Panel("Whole response, p95", "From the arrival of the request to the last byte.", SECONDS,
                      {quantile(0.95, "request_duration_seconds", "model"): "{{model}}"}),
            ],
        ),
        Row(
            "Waiting for the first token",
            [
                Panel("First token, median", "Half of the requests have their first token within this time.", SECONDS,
                      {quantile(0.5, "time_to_first_token_seconds", "model"): "{{model}}"}),
                Panel("First token, p95", "Nineteen of twenty have it within this time.", SECONDS,
                      {quantile(0.95, "time_to_first_token_seconds", "model"): "{{model}}"}),
                Panel("First visible token, p95", "The first text, refusal or call: between this and the first token "
                      "lies the reasoning.", SECONDS,
                      {quantile(0.95, "time_to_first_visible_token_seconds", "model"): "{{model}}"}),
                Panel("First token, all of them", "Where the requests lie, over time: two bands are two kinds of requests, "
                      "long and short prompts for one.", SECONDS,
                      {rate("time_to_first_token_seconds_bucket", "le", select=MODELS): "{{le}}"}, "heatmap", 24),
            ],
        ),
        Row(
            "Writing",
            [
                Panel("Between tokens, median", "Between two reads of a stream that brought tokens.", SECONDS,
                      {quantile(0.5, "inter_token_latency_seconds", "model"): "{{model}}"}),
                Panel("Between tokens, p95", "The pauses that a reader notices.", SECONDS,
                      {quantile(0.95, "inter_token_latency_seconds", "model"): "{{model}}"}),
                Panel("Output", "Tokens per second, all streams of a model together.", TOKENS,
                      {rate("tokens_total", "model", select=MODELS + ', kind="output"'): "{{model}}"}, stacked=True),
                Panel("Between tokens, all of them", "Where the pauses lie, over time.", SECONDS,
                      {rate("inter_token_latency_seconds_bucket", "le", select=MODELS): "{{le}}"}, "heatmap", 24),
            ],
        ),
        Row(
            "Tokens",
            [
                Panel("Input", "Tokens of prompts per second.", TOKENS,
                      {rate("tokens_total", "model", select=MODELS + ', kind="input"'): "{{model}}"}, stacked=True),
                Panel("From the prefix cache", "Of the input, what the backend did not have to compute again, where it tells.",
                      SHARE, {ratio(rate("tokens_total", "model", select=MODELS + ', kind="cached"'),
                                    rate("tokens_total", "model", select=MODELS + ', kind="input"')): "{{model}}"}),
                Panel("What the output is", "Reasoning, text, arguments of tools, and markup (`other`).", TOKENS,
                      {rate("tokens_total", "kind", select=MODELS + ', kind!~"input|cached|output"'): "{{kind}}"},
                      stacked=True),
                Panel("Output of a response", "Tokens, on average.", NUMBER,
                      {ratio(rate("tokens_total", "model", select=MODELS + ', kind="output"'),
                             rate("time_to_first_token_seconds_count", "model", select=MODELS)): "{{model}}"}),
                Panel("Prompt of a response", "Tokens, on average.", NUMBER,
                      {ratio(rate("tokens_total", "model", select=MODELS + ', kind="input"'),
                             rate("time_to_first_token_seconds_count", "model", select=MODELS)): "{{model}}"}),
                Panel("Counted in another way", "Responses whose output tokens the backend counts differently than we do, per "
                      "second.", PER_SECOND,
                      {rate("token_disagreements_total", "model", select=MODELS): "{{model}}"}),
            ],
        ),
    ],
)  # fmt: skip

ERRORS = Dashboard(
    "responses-proxy-errors",
    "responses-proxy / Errors and lifecycle",
    "What goes wrong, and whose doing is it?",
    [
        Row(
            "How responses end",
            [
                Panel("Ended", "Shares of all requests.", SHARE,
                      {f"{rate('requests_total', 'outcome')} / ignoring(outcome) group_left () ({rate('requests_total')} > 0)":
                       "{{outcome}}"}, stacked=True),
                Panel("Terminal events", "The one event that ends a response, by status and reason, but for good ends.",
                      PER_SECOND,
                      {rate("terminal_events_total", "status", "reason", select=GATEWAYS + ', status!="completed"'):
                       "{{status}}: {{reason}}"}),
                Panel("Output items", "Items closed, by type: messages, reasoning, calls.", PER_SECOND,
                      {rate("output_items_total", "type"): "{{type}}"}),
            ],
        ),
        Row(
            "The backend",
            [
                Panel("Backend errors", "Requests that the backend refused or broke, by kind. docs/troubleshooting.md knows "
                      "the messages.", PER_SECOND, {rate("backend_errors_total", "kind"): "{{kind}}"}),
                Panel("Repairs", "What had to be mended in its streams, by kind (docs/parsers.md).", PER_SECOND,
                      {rate("repairs_total", "kind"): "{{kind}}"}),
                Panel("Malformed chunks", "Payloads that were no chat chunk: often the error page of a proxy in between.",
                      PER_SECOND, {rate("malformed_chunks_total", "instance"): "{{instance}}"}),
            ],
        ),
        Row(
            "The clients",
            [
                Panel("Clients that left", "By what they left: the sending of the request, the wait, or the stream.",
                      PER_SECOND, {rate("client_disconnects_total", "phase"): "{{phase}}"}),
                Panel("Not carried over", "What of requests the backend cannot do, by name: see the header "
                      "`x-responses-proxy-losses` of the answers. The ten most frequent.", PER_SECOND,
                      {f"topk(10, {rate('losses_total', 'name', 'outcome')})": "{{name}}: {{outcome}}"}),
                Panel("Inputs of custom tools", "Those with a grammar: valid, invalid, repaired, unrepaired, or skipped (not "
                      "judged). See docs/custom-tools.md.", PER_SECOND,
                      {rate("custom_tool_inputs_total", "outcome"): "{{outcome}}"}),
                Panel("Keep-alives", "Comments keep proxies awake, events keep clients awake.", PER_SECOND,
                      {rate("keep_alives_total", "kind"): "{{kind}}"}),
            ],
        ),
        Row(
            "The gateway",
            [
                Panel("Defects", "Failures of the gateway itself, per hour. The log has a stack trace for each.", NUMBER,
                      {f"sum by (instance) (increase({PREFIX}defects_total{{{GATEWAYS}}}[1h]))": "{{instance}}"}),
                Panel("Broken laws", "Laws that sampled streams broke, per hour, by rule.", NUMBER,
                      {f"sum by (rule) (increase({PREFIX}invariant_violations_total{{{GATEWAYS}}}[1h]))": "{{rule}}"}),
                Panel("Streams checked", "Streams held against the laws: the fraction is the setting `invariant_sampling`.",
                      PER_SECOND, {rate("sampled_streams_total"): "checked"}),
                Panel("Events", "Delta events sent, by type. Tokens that came together leave together: under load there are "
                      "fewer events than tokens.", PER_SECOND, {rate("events_total", "type"): "{{type}}"}, width=16),
                Panel("Starts", "When the processes started, as their age.", SECONDS,
                      {f"time() - process_start_time_seconds{{{GATEWAYS}}}": "{{instance}}"}),
            ],
        ),
    ],
    models=False,
)  # fmt: skip

BACKENDS = Dashboard(
    "responses-proxy-backends",
    "responses-proxy / Backends and keys",
    "Where do requests go, and whose are they?",
    [
        Row(
            "Now",
            [
                Panel("Backends up", "Backends that at least one gateway takes for well.", NUMBER,
                      {f"count(max by (backend) ({PREFIX}backend_up{{{GATEWAYS}}}) > 0) or vector(0)": "up"}, "stat", 6, 4,
                      bad=1, low_is_bad=True),
                Panel("Backends down", "Backends that at least one gateway takes for broken: it sends them nothing.", NUMBER,
                      {f"count(min by (backend) ({PREFIX}backend_up{{{GATEWAYS}}}) == 0) or vector(0)": "down"}, "stat", 6, 4,
                      bad=1),
                Panel("Waiting", "Requests in line for a backend with room.", NUMBER,
                      {f"sum({PREFIX}queued_requests{{{GATEWAYS}}}) or vector(0)": "waiting"}, "stat", 6, 4),
                Panel("Turned away", "Requests that got no backend in the time shown: too many waited, or too long.", NUMBER,
                      {within("queue_rejections_total"): "turned away"}, "stat", 6, 4, warn=0.5, decimals=0),
            ],
        ),
        Row(
            "Backends",
            [
                Panel("Requests", "Sent to each backend, second tries among them.", REQUESTS,
                      {rate("backend_requests_total", "backend"): "{{backend}}"}, stacked=True),
                Panel("In flight", "What each backend works on at this moment.", NUMBER,
                      {f"sum by (backend) ({PREFIX}backend_requests_in_flight{{{GATEWAYS}}})": "{{backend}}"}, stacked=True),
                Panel("Health", "1 while all gateways take the backend for well.", NUMBER,
                      {f"min by (backend) ({PREFIX}backend_up{{{GATEWAYS}}} > bool 0)": "{{backend}}"}),
                Panel("Tried elsewhere", "Requests that left a backend for another one, by reason.", PER_SECOND,
                      {rate("backend_retries_total", "backend", "reason"): "{{backend}}: {{reason}}"}),
                Panel("Breakers", "Gateways whose breaker for a backend is not closed.", NUMBER,
                      {f'sum by (backend, state) ({PREFIX}backend_breaker_state{{{GATEWAYS}, state!="closed"}})':
                       "{{backend}}: {{state}}"}),
                Panel("In line", "How long requests waited that got a backend.", SECONDS,
                      {quantile(share, "queue_wait_seconds", select=GATEWAYS): name
                       for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))}),
            ],
        ),
        Row(
            "Keys",
            [
                Panel("Requests by key", "Requests that were let in, by the name of their API key. The ten busiest.", REQUESTS,
                      {f"topk(10, {rate('key_requests_total', 'key')})": "{{key}}"}, stacked=True),
                Panel("Tokens by key", "Input and output. The ten that take most.", TOKENS,
                      {f"topk(10, {rate('key_tokens_total', 'key')})": "{{key}}"}, stacked=True),
                Panel("Refused", "Requests without a good key, or beyond a limit, by reason.", PER_SECOND,
                      {rate("access_refusals_total", "reason"): "{{reason}}"}),
            ],
        ),
        Row(
            "What runs",
            [
                Panel("Versions", "Gateways by what they run: more than one during an upgrade.", NUMBER,
                      {f"count by (version, commit) ({PREFIX}build_info{{{GATEWAYS}}})": "{{version}} {{commit}}"}, width=12),
                Panel("Workers", "Processes that serve, by gateway.", NUMBER,
                      {f"sum by (instance) ({PREFIX}workers{{{GATEWAYS}}})": "{{instance}}"}, width=12),
            ],
        ),
    ],
    models=False,
)  # fmt: skip

DASHBOARDS = {"overview.json": OVERVIEW, "models.json": BY_MODEL, "errors.json": ERRORS, "backends.json": BACKENDS}
