"""The Vercel AI SDK with tools of the provider: each test looks at the deed of its name in `vercel_ai.mjs`."""
from __future__ import annotations
from typing import Any
import json
PROGRAM = "hosted/vercel_ai.mjs"


def test_all(output) -> None:
    print(output.errors)
    [print(k, json.dumps(v)[:1500]) for k, v in output.results.items()]
    assert 0
