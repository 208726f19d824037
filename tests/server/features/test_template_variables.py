"""`models: {NAME: {chat_template_kwargs: …}}`: what a template is told, by the name of the model."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.settings import Settings
from responses_gateway.simulator import CACHE, RECEIVED, CacheModel, SimulatorOptions, create_app, serving
from tests.log_lines import log_lines
from tests.request.builders import user
from tests.server.running_gateway import gateway, post, run

KEEPS = {"sim*": {"chat_template_kwargs": {"preserve_thinking": True}}}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {"preserve_thinking": True}),
        ({"reasoning": {"effort": "none"}}, {"preserve_thinking": True, "enable_thinking": False}),
        ({"chat_template_kwargs": {"preserve_thinking": False, "x": 1}}, {"preserve_thinking": False, "x": 1}),
        ({"model": "other"}, None),
    ],
    ids=str,
)
def test_variables_are_sent_by_model_unless_the_request_has_others(fields: dict[str, Any], sent: object) -> None:
    app = create_app()

    async def test() -> None:
        async with serving(app) as url, gateway(url, models=KEEPS) as served:
            await post(served, **fields)
            assert app[RECEIVED][-1]["body"].get("chat_template_kwargs") == sent

    run(test())


@pytest.mark.parametrize("keeps", [False, True])
def test_a_template_that_keeps_thoughts_loses_no_cache(keeps: bool) -> None:
    app = create_app(SimulatorOptions(cache=CacheModel(drops_thoughts=True)))

    async def test() -> None:
        with log_lines() as lines:
            async with serving(app) as url, gateway(url, access_log=True, models=KEEPS if keeps else {}) as served:
                items = [user("scenario: reasoning")]
                for _ in range(3):
                    answer = await post(served, input=items, headers={"x-session-id": "s"})
                    items += [*answer.final["output"], user("scenario: reasoning again")]
                served.parts.metrics.flush()
                causes = [line.get("cache_cause") for line in lines("response")]
        assert causes == ["first", *([None, None] if keeps else ["template", "template"])]

    run(test())
    assert app[CACHE].model.drops_thoughts


def test_it_is_an_object() -> None:
    with pytest.raises(ValueError, match="chat_template_kwargs"):
        Settings(backend=["http://h/v1"], models={"m": {"chat_template_kwargs": "preserve_thinking"}})
