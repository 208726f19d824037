"""Read streams of the Messages API, a JSON list in a file, with Anthropic's Python SDK; print as JSON what it makes of each."""

import json
import sys
from pathlib import Path
from typing import Any

import anthropic
import httpx2


def read(body: str) -> dict[str, Any]:
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())
    transport = httpx2.MockTransport(lambda _request: answer)
    client = anthropic.Anthropic(api_key="x", max_retries=0, http_client=httpx2.Client(transport=transport))
    try:
        with client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}]) as stream:
            message = stream.get_final_message()
    except anthropic.APIStatusError as error:
        return {"raised": type(error).__name__, "type": error.type}
    content = [block.model_dump() for block in message.content]
    return {
        "content": content,
        "stop_reason": message.stop_reason,
        "usage": [message.usage.input_tokens, message.usage.output_tokens],
    }


print(json.dumps([read(body) for body in json.loads(Path(sys.argv[1]).read_text())]))
