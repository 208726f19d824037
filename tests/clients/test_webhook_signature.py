"""Webhooks of the gateway, as `webhooks.unwrap` of openai-node verifies them; the Python SDK does so in `test_webhooks.py`."""

from __future__ import annotations

import base64
import json
import time

import pytest

from responses_gateway.server.features.webhooks.signature import event_of, signed_headers, signing_key
from responses_gateway.state.webhooks import Notice
from tests.clients.client_programs import missing, run_text

PROGRAM = """
import OpenAI from "openai";
const [body, headers, secret] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "x", webhookSecret: secret });
const event = await client.webhooks.unwrap(body, JSON.parse(headers));
const changed = await client.webhooks.unwrap(body + " ", JSON.parse(headers)).catch((error) => error.constructor.name);
console.log(JSON.stringify({ type: event.type, id: event.data.id, changed }));
"""


def test_openai_node_verifies_what_is_sent() -> None:
    if (reason := missing(".mjs")) is not None:
        pytest.skip(reason)
    secret = "whsec_" + base64.b64encode(bytes(range(24))).decode()
    notice = Notice("0123456789abcdef", "resp_1", "completed", 0, int(time.time()))
    body = event_of(notice)
    headers = signed_headers(notice, body, signing_key(secret), int(time.time()))
    output = run_text(PROGRAM, ".mjs", body.decode(), json.dumps(headers), secret)
    assert output.errors == []
    assert output.results == {"type": "response.completed", "id": "resp_1", "changed": "InvalidWebhookSignatureError"}
