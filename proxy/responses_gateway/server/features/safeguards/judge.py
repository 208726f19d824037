"""Has each tool call of an answer judged. Every question is a request like any other: it has its line in the log, and its
tokens count for the client's key.

It fails closed: a call without a clear verdict in time is `unavailable`, and the client does not run it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import count

import msgspec

from responses_gateway.ended_tasks import all_results
from responses_gateway.request import Loss, safeguards
from responses_gateway.server.generation.generation import NullSink
from responses_gateway.server.generation.preparation.context import Caller, caller_within
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.server.generation.responses import Creation, Responses
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.writer.messages import MessageOptions, MessageStream, Safeguards
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter, Histogram
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.requests import ResponsesRequest

SECONDS = 30.0  # seconds for all calls of an answer, because the client waits for them before it gets the end
# Calls that are judged at the same time, and most calls of one answer.
_AT_ONCE = 4
MOST_CALLS = 64
# Tokens for one answer: a word and a sentence, and the thoughts of a model that always thinks.
_TOKENS = 2048
_ADAPTED = Loss("parameter", "safeguards", "adapted", "judged by a model of this gateway, with a prompt of its own")
VERDICTS = Counter(
    "safeguards_verdicts_total",
    "Tool calls by verdict: safe, unsafe, or unavailable (no verdict: the client does not run the call).",
    ("outcome",),
)
VERDICT_SECONDS = Histogram(
    "safeguards_seconds",
    "How long the end of an answer waited until its tool calls were judged.",
    (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0),
)
JUDGE_TOKENS = Counter(
    "safeguards_tokens_total", "Tokens used to judge tool calls: of the prompts (input) and the answers (output).", ("kind",)
)
SAFEGUARD_METRICS = (VERDICTS, VERDICT_SECONDS, JUDGE_TOKENS)


class Judge:
    """The model of the settings that judges."""

    def __init__(self, model: str, responses: Responses) -> None:
        self._model = model
        self._responses = responses

    async def prepare(self, prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Return a request whose losses say that its calls are judged, if the client asks for that."""
        if _rules_of(prepared) is None:
            return prepared
        losses = [_ADAPTED if loss.name == "safeguards" else loss for loss in prepared.losses]
        return msgspec.structs.replace(prepared, losses=losses)

    async def conclude(self, prepared: PreparedRequest, translator: Translator, log: RequestLog) -> None:
        """Give an answer that has ended the verdicts on its calls, if the client asks for them."""
        rules = _rules_of(prepared)
        stream = translator.response
        if rules is None or translator.status == "failed" or not isinstance(stream, MessageStream):
            return
        began = time.monotonic()
        calls = list(safeguards.calls_in(msgspec.json.decode(item) for item in stream.output))
        questions = _Questions(self._model, self._responses, prepared.caller, log)
        conversation = safeguards.conversation_of(prepared.call.body["messages"], rules)
        verdicts = await questions.judge(calls, conversation) if calls else {}
        metrics = self._responses.metrics
        for verdict in verdicts.values():
            metrics.count(VERDICTS, verdict.outcome)
        if calls:
            metrics.observe(VERDICT_SECONDS, time.monotonic() - began)
            metrics.count(JUDGE_TOKENS, "input", amount=questions.input)
            metrics.count(JUDGE_TOKENS, "output", amount=questions.output)
        stream.judged(Safeguards(safeguards.results_of(verdicts), Usage(questions.input, questions.output)))


def _rules_of(prepared: PreparedRequest) -> str | None:
    """Return what the client says of how calls are to be judged; None if it does not ask for that."""
    form = prepared.options.form
    return form.safeguards if isinstance(form, MessageOptions) else None


class _Questions:
    """The questions about the calls of one answer, and what they have cost (`input`, `output`: tokens)."""

    def __init__(self, model: str, responses: Responses, caller: Caller, log: RequestLog) -> None:
        self.input = 0
        self.output = 0
        self._model = model
        self._responses = responses
        self._log = log
        self._caller = caller_within(caller)
        self._numbers = count(1)

    async def judge(self, calls: Sequence[safeguards.Call], conversation: str) -> dict[str, safeguards.Verdict]:
        """Return the verdicts by the ids of the calls."""
        deadline = asyncio.get_running_loop().time() + SECONDS

        async def judge(call: safeguards.Call) -> safeguards.Verdict:
            return await self._ask(safeguards.question_about(call, conversation), call.name, deadline)

        verdicts = {call.tool_use_id: safeguards.known_verdict(call) or safeguards.unavailable("error") for call in calls}
        open_calls = [call for call in calls[:MOST_CALLS] if safeguards.known_verdict(call) is None]
        results = await all_results(judge, open_calls, _AT_ONCE)
        return verdicts | {call.tool_use_id: verdict for call, verdict in zip(open_calls, results, strict=True)}

    async def _ask(self, question: str, tool: str, deadline: float) -> safeguards.Verdict:
        loop = asyncio.get_running_loop()
        verdict = safeguards.unavailable("timeout")
        reason = "not in time"
        if loop.time() < deadline:
            try:
                verdict = safeguards.read_verdict(await self._answer(question, deadline))
                reason = "neither safe nor unsafe"
            except ApiError as error:
                reason = error.message
                verdict = safeguards.unavailable("timeout" if loop.time() >= deadline else "error")
        if verdict.outcome == "unavailable":
            failed = logs.fields(request_id=self._caller.request_id, model=self._model, tool=tool, reason=reason)
            logs.logger().warning("tool call not judged", extra=failed)
        return verdict

    async def _answer(self, question: str, deadline: float) -> str:
        """Return what the model says. Raise `ApiError`."""
        request = ResponsesRequest.model_validate({
            "model": self._model,
            "instructions": safeguards.PROMPT,
            "input": question,
            "reasoning": {"effort": "none"},
            "max_output_tokens": _TOKENS,
            "temperature": 0.0,
            "store": False,
        })  # fmt: skip
        # Several are asked at once: vLLM before 0.14 refuses a request whose id another one has that runs.
        request_id = f"{self._caller.request_id}.{next(self._numbers)}"
        caller = msgspec.structs.replace(self._caller, request_id=request_id)
        async with Creation(self._responses, caller, lambda: None) as creation:
            await creation.prepare(request)
            generation = creation.start(NullSink())
            late = server_error("The judge of tool calls did not answer in time.", 504)
            timer = asyncio.get_running_loop().call_at(deadline, generation.fail, late)
            try:
                await generation.open()
                await generation.run()
            finally:
                timer.cancel()
            translator = creation.translator
        self._charge(translator)
        if translator.error is not None:
            raise translator.error.copy()
        items = [msgspec.json.decode(item) for item in translator.response.output]
        return "".join(part.get("text", "") for item in items if item["type"] == "message" for part in item["content"])

    def _charge(self, translator: Translator) -> None:
        self._log.charge(translator)
        usage = translator.usage
        if usage is not None:
            self.input += usage.input or 0
            self.output += usage.output or 0
