"""Further turns of the model within one response, behind calls for which it need not wait for the client: those that the
gateway has run, and those of asynchronous tools, whose results may come in any later request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from responses_gateway.request import Policy
from responses_gateway.request.turns import RunCall, with_chat_name, with_turn
from responses_gateway.server.generation.hosted_tools.turns import HostedTurns
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.stream.translator import Translator


class FurtherTurns:
    """The turns behind the first one of a response that may have several. `hosted` runs the tools of the gateway; None where
    the request declares none."""

    __slots__ = ("_most", "_parsers", "_policy", "hosted")

    def __init__(self, parsers: ParserChoice, policy: Policy, most: int, hosted: HostedTurns | None) -> None:
        """`parsers` choose how their answers are read. `most` is the number of turns of a response, with the first one."""
        self._parsers = parsers
        self._policy = policy
        self._most = most
        self.hosted = hosted

    async def begin(self, body: Mapping[str, Any], translator: Translator) -> dict[str, Any]:
        """Begin the next turn of a translator that wants one. Return its chat request, given that of the last one."""
        lifecycle = translator.lifecycle
        items = [msgspec.json.decode(text) for text in translator.writer.done[lifecycle.turn.first_item :]]
        items = [with_chat_name(item, translator.options.tools) for item in items]
        said: list[dict[str, Any] | RunCall] = items
        may_call = len(lifecycle.turns) + 1 < self._most and not lifecycle.out_of_calls
        if self.hosted is not None:
            said = self.hosted.with_results(items, translator)
            may_call = may_call and not self.hosted.out_of_calls
        following = with_turn(body, said, self._policy, may_call=may_call)
        start = await self._parsers.start(following)
        markup = self._parsers.markup(following, start)
        translator.next_turn(markup, may_call=may_call, start=start)
        return following
