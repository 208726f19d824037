"""What doctor says of a backend: each finding and each advice stands alone."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from responses_gateway.backend.server_types import SERVER_TYPES
from responses_gateway.probing.diagnosis import findings
from responses_gateway.probing.profile import Profile

TEXTS = ["", "<think>\nHm.\n</think>\n\n<tool_call>\n", '{"name": "get_weather", "parameters": {"city": "Paris"}}']


@pytest.mark.parametrize("server", list(SERVER_TYPES))
@pytest.mark.parametrize("calls", ["parsed", "forced", "legacy", "refused", "swallowed", "none"])
def test_an_advice_is_made_of_whole_sentences(server: Any, calls: Any) -> None:
    for text, field in product(TEXTS, (None, "reasoning")):
        profile = Profile("http://b/v1", server=server, calls=calls, calls_refusal="no tool-call-parser")
        profile.texts = {"calls": text}
        profile.reasoning_field = field
        profile.thoughts_alone = True
        for finding in findings(profile):
            assert not finding.advice or re.fullmatch(r"(?!Or\b)[A-Z].*[.?!:\w]", finding.advice, re.DOTALL), finding
            assert " Or " not in finding.advice
