"""Reads an answer with OpenAI's own SDK for Python, as a program does."""

from __future__ import annotations

import warnings

import httpx
import openai

from tests.bridges.judging import Answer


def sdk_error(answer: Answer) -> str | None:
    """Return the exception that the SDK's stream helper raises, None if it reads to the end or reports the server's error."""
    headers = {"content-type": "text/event-stream" if answer.status == 200 else "application/json"}
    transport = httpx.MockTransport(lambda _request: httpx.Response(answer.status or 502, content=answer.body, headers=headers))
    with (
        warnings.catch_warnings(action="ignore"),  # about values that are not what the models expect
        httpx.Client(transport=transport) as http,
        openai.OpenAI(base_url="http://bridge/v1", api_key="none", http_client=http, max_retries=0) as client,
    ):
        try:
            with client.responses.stream(model="m", input="Hello") as stream:
                for _ in stream:
                    pass
        except openai.APIError:
            return None  # the error of the server, told as such
        except Exception as error:
            return type(error).__name__
    return None
