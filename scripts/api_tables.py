"""The parts of `docs/translation.md` that no table of the translation has: what is never sent, and WebSockets."""

from __future__ import annotations

# Events that the API has and the gateway never sends, with the reason.
UNSENT_EVENTS = {
    "there is no audio output": (
        "response.audio.delta",
        "response.audio.done",
        "response.audio.transcript.delta",
        "response.audio.transcript.done",
    ),
    "images are sent when they are complete": ("response.image_generation_call.partial_image",),
    "the client runs the shell": (
        "response.shell_call_command.added",
        "response.shell_call_command.delta",
        "response.shell_call_command.done",
        "response.shell_call_output_content.delta",
        "response.shell_call_output_content.done",
    ),
    "the gateway runs no agents": ("response.inject.created", "response.inject.failed"),
}

# Items of an answer that the gateway never makes, besides those that only its input may have.
UNSENT_ITEMS = "`multi_agent_call`, `multi_agent_call_output`"

_UNSENT = """
Over a WebSocket, a refused request gets an `error`. Never sent:

| events | because |
|---|---|
"""

_ANSWERS = """
## The response

| field | |
|---|---|
| `id`, `object`, `created_at`, `completed_at`, `status`, `model`, `output` | always |
| `error` | its `code` is `server_error`, `rate_limit_exceeded`, `invalid_prompt`, or one of a backend that clients act on |
| `incomplete_details` | `reason`: `max_output_tokens`, `content_filter`, `steered` |
| `usage`, `tool_usage` | as the backend counts, otherwise null; `tool_usage`: searches and tokens of images, \
once the response has ended |
| `input_transformations` | encrypted reasoning of the input that the model does not get: `organization_mismatch` of another \
key or gateway, `model_mismatch` of another model; never `end_user_mismatch`, `prefix_mismatch` (it is tied to no user, and \
to nothing before it), nor `turn_boundary` (at the end of its turn it is on the loss report) |
| `prompt_cache_diagnostics` | at the end, if the request names a `comparison_response_id`: the first difference that changed \
what the backend got (instructions count as input): `model_changed`, `prompt_cache_key_changed`, `tools_changed`, \
`reasoning_effort_changed`, `verbosity_changed`, `context_compacted`, `input_changed`; never `service_tier_changed` or \
`text_format_changed`, which change no prompt; `unavailable` also if the prompts are alike and the backend has reused \
nothing |
| `moderation` | at the end, if it was requested: what the guard model says; an `error` if there is none, or if it failed |
| `instructions`, `metadata`, `parallel_tool_calls`, `temperature`, `tool_choice`, `tools`, `top_p`, `background`, \
`conversation`, `max_output_tokens`, `max_tool_calls`, `previous_response_id`, `prompt_cache_key`, `reasoning`, \
`safety_identifier`, `service_tier`, `text`, `top_logprobs`, `truncation`, `user` | the values in effect |
| `access_programs`, `agent`, `image`, `prompt`, `prompt_cache_options`, \
`prompt_cache_retention` | never sent |

Of the reasons and codes of the API, these are never sent: `max_messages`; `data_residency_mismatch`, `bio_policy`, \
`misalignment_policy_violation`, `vector_store_timeout`, and those of images (`invalid_image`, `invalid_image_format`, \
`invalid_base64_image`, `invalid_image_url`, `image_too_large`, `image_too_small`, `image_parse_error`, \
`image_content_policy_violation`, `invalid_image_mode`, `image_file_too_large`, `unsupported_image_media_type`, \
`empty_image_file`, `failed_to_download_image`, `image_file_not_found`): a backend that refuses an image gives its own reason.

## Messages of a WebSocket

A `response.create` waits until the response before it has ended. All other messages, and invalid ones, are answered at once.

| message | answer |
|---|---|
| `response.create` | the events of a response, or an `error` |
| `response.cancel` | ends the running response, or that with its `response_id` |
| `response.steer` | `response.steer.accepted`, or `response.steer.failed` with one of the codes below |
| `response.inject`, any other | an `error` (`invalid_value`) |

A steered response ends after the open item: reasoning is finished, calls of one turn stay together, and hosted tools are \
run. If nothing is open it ends at once, and if it ends by itself it is `completed`. The next response then begins by itself, \
before any waiting message, with the settings of the steered one and all steers as its input. If the client has calls to \
answer, `response.steer.pending` names them, and the steers precede the input of the `response.create` that continues the \
response. Until then they wait on the connection. With `store`, the steered response is stored before its end is sent, and the \
next one with its input before its beginning: if the gateway dies or the client leaves, it is `failed`, and can be continued.

| code of `response.steer.failed` | for |
|---|---|
| `response_not_found` | a response of another connection, or none |
| `invalid_input` | anything but a text, messages of users or outputs of functions; other fields; over 1000 items and parts |
| `steering_not_supported` | a response of a conversation, with `context_management`, or without an answer |
| `too_many_pending_steers` | more than 32 on a connection, or 4 MiB |
| `response_already_completed`, `response_not_active` | a response that has ended, with that status or another |
| `successor_creation_failed` | a steer that was accepted and is returned: the response failed, the next one could not begin, \
or the connection can no longer continue it |

## Decisions

`POST /v1/decisions` asks the backend for one token per question, without thinking. The first question is
asked alone, so that the backend has cached what the others begin with. A question has labels `Yes` and `No`,
letters, or pairs of letters; an answer is the probability of its label, divided by that of all labels. **It is not
calibrated.** `value` of a level is its position from 0, `score` the mean position. `refusal` means that all labels together
have less than a thousandth.

vLLM (0.32) is asked for the tokens of up to 255 labels (`/tokenize`, `logprob_token_ids`): each probability is exact. Other
servers report their 20 likeliest tokens, and take at most 52 options: a label that is not among the tokens gets 0 if that is
right within a thousandth; otherwise the request is refused (400 `logprobs_truncated`). Questions cannot have images.
`prompt_cache_options` and `safety_identifier` have no effect. If the backend sends no log probabilities, the answer is 502
`logprobs_unavailable`.
"""


def answers() -> str:
    """Return what follows the table of events."""
    rows = "".join(f"| {', '.join(f'`{name}`' for name in names)} | {reason} |\n" for reason, names in UNSENT_EVENTS.items())
    return f"{_UNSENT}{rows}\nNor are the items {UNSENT_ITEMS}.\n{_ANSWERS}"
