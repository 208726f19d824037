"""A chat request on its way to a backend."""

from __future__ import annotations

import json

from responses_gateway.backend.served_models import Route
from responses_gateway.server.generation.upstream.chat_call import ChatCall


def test_a_call_with_another_body_is_encoded_anew_and_goes_the_same_way() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    call = ChatCall(body, json.dumps(body).encode(), {"X-Request-Id": "1"}, Route("m", "key"))
    following = {**body, "messages": [*body["messages"], {"role": "assistant", "content": "Hi"}]}
    turn = call.with_body(following)
    assert json.loads(turn.data) == turn.body == following
    assert (turn.headers, turn.route) == (call.headers, call.route)
    assert json.loads(call.data) == body
