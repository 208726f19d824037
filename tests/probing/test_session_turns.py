"""What three turns show of a server: thoughts left out by its template, what keeps them; what it accepts of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.probing.diagnosis import findings, rows
from responses_gateway.probing.prober import probe
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.session_turns import keeping_variables
from responses_gateway.simulator import CACHE, CacheModel, SimulatorOptions, create_app, serving, tokenizer
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.generation import Notation
from responses_gateway.simulator.prefix_cache import PrefixCache


def probed(*, change: Callable[[PrefixCache], None] | None = None, **model: Any) -> Profile:
    """Probe a simulated server, whose cache may be changed before."""
    app = create_app(SimulatorOptions(cache=CacheModel(**model)))
    if change is not None:
        change(app[CACHE])
    return probed_by(app)


def probed_by(app: web.Application) -> Profile:
    async def ask() -> Profile:
        async with serving(app) as url:
            return await probe(f"{url}/v1")

    return asyncio.run(ask())


def named(profile: Profile, part: str) -> list[str]:
    """Return the findings about sessions that say this."""
    return [f"{finding.text} {finding.advice}" for finding in findings(profile) if part in finding.text]


def forgetful(cache: PrefixCache) -> None:
    """Have the cache forget all that it reads."""
    read = cache.read

    def forget(prompt: Sequence[int], answer: Sequence[int]) -> int | None:
        cache.clear()
        return read(prompt, answer)

    cache.read = forget  # type: ignore[method-assign]


def started_again(cache: PrefixCache) -> None:
    """Have the cache forget all once, when the third turn comes."""
    read = cache.read
    questions = []

    def forget(prompt: Sequence[int], answer: Sequence[int]) -> int | None:
        if "wear" in tokenizer.decode(prompt):
            questions.append(prompt)
            if len(questions) == 1:
                cache.clear()
        return read(prompt, answer)

    cache.read = forget  # type: ignore[method-assign]


def balanced(cache: PrefixCache) -> None:
    """Have two servers with caches of their own answer in turn."""
    caches = [PrefixCache(cache.model), PrefixCache(cache.model)]

    def read(prompt: Sequence[int], answer: Sequence[int]) -> int | None:
        caches.reverse()
        return caches[0].read(prompt, answer)

    cache.read = read  # type: ignore[method-assign]


def reordering(cache: PrefixCache) -> None:
    """Have a template that says at the beginning of a prompt how many messages follow the first results."""
    rendered = cache.prompt_ids

    def changed(request: ChatRequest, notation: Notation) -> list[int]:
        return [tokenizer.token_id("later" if len(request.messages) > 4 else "soon"), *rendered(request, notation)]

    cache.prompt_ids = changed  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("change", "cause", "text"),
    [
        (forgetful, "evicted", "no longer has what it just read"),
        (started_again, "evicted", "no longer has what it just read"),
        (balanced, "other_backend", "the turns of a session reach different ones"),
        (reordering, "template", "renders earlier turns differently"),
    ],
)
def test_the_reason_for_which_tokens_are_read_again_is_named(
    change: Callable[[PrefixCache], None], cause: str, text: str
) -> None:
    profile = probed(change=change)
    session = profile.session
    assert (session.drops_thoughts, session.cause) == (False, cause)
    assert session.lost is not None
    assert session.lost >= 64
    (line,) = named(profile, text)
    assert f": {session.lost} tokens of a short session were read again. " in line


def test_a_reason_before_the_template_is_named_beside_the_thoughts_that_it_leaves_out() -> None:
    profile = probed(change=balanced, drops_thoughts=True)
    assert (profile.session.drops_thoughts, profile.session.cause) == (True, "other_backend")
    assert named(profile, "reach different ones")
    assert named(profile, "leaves out earlier thoughts")


def test_a_template_that_leaves_out_thoughts_is_named_with_what_keeps_them() -> None:
    profile = probed(drops_thoughts=True)
    session = profile.session
    assert (session.drops_thoughts, session.keeps) == (True, {"preserve_thinking": True})
    assert session.cause == "template"
    assert session.lost is not None
    assert session.lost >= 64
    (found,) = [finding for finding in findings(profile) if "leaves out earlier thoughts" in finding.text]
    assert f" {session.lost} tokens " in found.text
    assert "models: {simulator: {chat_template_kwargs: {preserve_thinking: true}}}" in found.advice


def test_a_template_that_keeps_thoughts_loses_nothing() -> None:
    profile = probed()
    assert (profile.session.drops_thoughts, profile.session.lost, profile.session.cause) == (False, 0, None)
    assert not any("thoughts at" in finding.text for finding in findings(profile))


def test_what_is_not_reported_is_not_said_to_be_lost() -> None:
    profile = probed(drops_thoughts=True, reports=False)
    assert (profile.session.lost, profile.session.cause) == (None, "unreported")
    assert named(profile, "does not say how much of a prompt was cached")
    assert any("leaves out earlier thoughts" in finding.text for finding in findings(profile))


def test_what_a_server_accepts_of_sessions_is_listed() -> None:
    (row,) = [row for row in rows(probed()) if row.ability == "session fields"]
    assert row.value == "priority, session_id, nvext"


def test_a_server_accepts_priorities_if_it_accepts_another_one_than_0() -> None:
    app = create_app()

    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions") and (await request.json()).get("priority"):
            error = {"message": "Got priority 1 but Priority scheduling is not enabled.", "code": 400}
            return web.json_response({"error": error}, status=400)
        response: web.StreamResponse = await handler(request)
        return response

    app.middlewares.append(refusing)
    (row,) = [row for row in rows(probed_by(app)) if row.ability == "session fields"]
    assert row.value == "session_id, nvext"


@pytest.mark.parametrize(
    ("template", "variables"),
    [
        ("{% if preserve_thinking or loop.index0 > last %}", {"preserve_thinking": True}),
        ("{%- if not clear_thinking %}", {"clear_thinking": False}),
        ("{% if truncate_history_thinking is not defined %}", {"truncate_history_thinking": False}),
        ("{{ messages }}", {}),
    ],
)
def test_a_template_tells_its_variables(template: str, variables: dict[str, bool]) -> None:
    assert keeping_variables(template) == variables
