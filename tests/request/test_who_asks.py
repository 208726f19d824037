"""Who asks: which names count before which, and what of a client's words is taken at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.request.who_asks import NOBODY, asker_of, with_kind, with_session
from responses_gateway.request.who_asks.asker import SessionRoots, session_id

CODEX = {"session_id": "tree", "thread_id": "child", "x-codex-parent-thread-id": "tree", "turn_id": "t1"}


def codex(**turn: Any) -> dict[str, Any]:
    return {"client_metadata": {**CODEX, "x-codex-turn-metadata": json.dumps(turn)}, "prompt_cache_key": "key"}


def test_a_request_that_says_nothing_is_nobody_s() -> None:
    assert asker_of({"Content-Type": "application/json", "User-Agent": "curl"}, {"input": "hi"}) is NOBODY


# Each line alone names a session; where several are said, an earlier one counts before a later one.
ORDER: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"X-Dynamo-Session-ID": "dynamo"}, {}),
    ({}, {"client_metadata": {"session_id": "codex-body"}}),
    ({}, {"client_metadata": {"x-codex-turn-metadata": '{"session_id":"codex-turn"}'}}),
    ({"x-codex-turn-metadata": '{"session_id":"codex-header-turn"}'}, {}),
    ({"session-id": "codex-header"}, {}),
    ({"session_id": "codex-old"}, {}),
    ({"X-Claude-Code-Session-Id": "claude"}, {}),
    ({}, {"metadata": {"user_id": '{"session_id":"claude-user"}'}}),
    ({}, {"nvext": {"agent_context": {"session_id": "agent-context"}}}),
    ({"x-session-affinity": "affinity"}, {}),
    ({"x-dynamo-trajectory-id": "trajectory"}, {}),
    ({"X-SMG-Routing-Key": "smg"}, {}),
    ({"X-Session-ID": "plain"}, {}),
    ({}, {"prompt_cache_key": "key"}),
]


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict):
            both[name] = {**one[name], **other[name]}
    return both


@pytest.mark.parametrize("first", range(len(ORDER)))
@pytest.mark.parametrize("second", range(len(ORDER)))
def test_an_earlier_name_counts_before_a_later_one(first: int, second: int) -> None:
    (headers, body), (more_headers, more_body) = ORDER[first], ORDER[second]
    asker = asker_of({**more_headers, **headers}, merged(more_body, body))
    alone = asker_of(*ORDER[min(first, second)])
    assert asker.session == alone.session is not None
    assert asker.source["session"] == alone.source["session"]


@pytest.mark.parametrize(("headers", "body"), ORDER)
def test_a_session_that_names_no_threads_is_one_thread(headers: dict[str, str], body: dict[str, Any]) -> None:
    asker = asker_of(headers, body)
    assert asker.thread == asker.session
    assert (asker.parent, asker.kind, asker.agent, asker.final) == (None, None, None, False)


def test_a_router_s_session_has_the_client_s_threads() -> None:
    asker = asker_of({"x-dynamo-session-id": "router"}, codex(request_kind="turn", thread_source="subagent"))
    assert (asker.session, asker.thread, asker.parent, asker.turn) == ("router", "child", "tree", "t1")
    assert asker.kind == "subagent"
    assert asker.source["session"] == "header x-dynamo-session-id"
    assert asker.source["thread"] == "client_metadata.thread_id"


@pytest.mark.parametrize(
    ("own", "parent"),
    [
        ("x-dynamo-session-id", "x-dynamo-parent-session-id"),
        ("x-dynamo-trajectory-id", "x-dynamo-parent-trajectory-id"),
        ("x-session-affinity", "x-parent-session-id"),
        ("X-Session-Id", "X-Parent-Session-Id"),
    ],
)
def test_a_child_has_its_parent_s_session_and_a_thread_of_its_own(own: str, parent: str) -> None:
    asker = asker_of({own: "b", parent: "a"}, {})
    assert (asker.session, asker.thread, asker.parent, asker.kind) == ("a", "b", "a", "subagent")
    assert asker.source["session"] == f"header {parent.lower()}"


def test_an_explicit_child_counts_before_the_client_s_threads() -> None:
    asker = asker_of({"x-dynamo-session-id": "b", "x-dynamo-parent-session-id": "a"}, codex())
    assert (asker.session, asker.thread, asker.parent, asker.turn) == ("a", "b", "a", "t1")


def test_a_trajectory_of_dynamo_s_earlier_body() -> None:
    context = {"session_id": "s", "trajectory_id": "t", "parent_trajectory_id": "p"}
    asker = asker_of({}, {"nvext": {"agent_context": context}})
    assert (asker.session, asker.thread, asker.parent, asker.kind) == ("s", "t", "p", "subagent")
    alone = asker_of({}, {"nvext": {"agent_context": {"trajectory_id": "t"}}})
    assert (alone.session, alone.thread, alone.parent) == ("t", "t", None)


def test_a_session_that_is_its_own_parent_has_none() -> None:
    asker = asker_of({"x-session-id": "a", "x-parent-session-id": "a"}, {})
    assert (asker.session, asker.thread, asker.parent, asker.kind) == ("a", "a", None, None)


@pytest.mark.parametrize("header", ["X-Session-Final", "X-Dynamo-Session-Final"])
def test_the_last_request_of_a_session_says_so(header: str) -> None:
    assert asker_of({"x-session-id": "a", header: "True"}, {}).final
    assert not asker_of({"x-session-id": "a", header: "false"}, {}).final


def test_codex_over_a_websocket_is_believed_by_its_message_alone() -> None:
    turn = {"request_kind": "prewarm", "thread_source": "user", "session_id": "s", "thread_id": "old", "turn_id": ""}
    handshake = {
        "session-id": "s",
        "thread-id": "old",
        "x-openai-subagent": "review",
        "x-codex-turn-metadata": json.dumps(turn),
    }
    message = codex(request_kind="turn", thread_source="subagent", subagent_kind="thread_spawn")
    asker = asker_of(handshake, message, handshake=True)
    assert (asker.thread, asker.turn, asker.kind, asker.agent) == ("child", "t1", "subagent", None)
    assert asker_of(handshake, {}, handshake=True) is NOBODY
    assert asker_of({**handshake, "x-session-id": "mine"}, {}, handshake=True).session == "mine"


@pytest.mark.parametrize(
    ("turn", "kind", "agent"),
    [
        ({"request_kind": "turn", "thread_source": "user"}, "subagent", None),  # it names a parent
        ({"request_kind": "compaction", "thread_source": "subagent"}, "compaction", None),
        ({"request_kind": "prewarm"}, "prewarm", None),
        ({"request_kind": "turn", "thread_source": "thread_title"}, "title", None),
        ({"subagent_kind": "review"}, "review", "review"),
        ({"subagent_kind": "memory_consolidation"}, "auxiliary", "memory_consolidation"),
        ({"subagent_kind": "compact"}, "compaction", "compact"),
        ({"subagent_kind": "guardian"}, "subagent", "guardian"),
        ({"subagent_kind": "thread_spawn", "agent_name": "/root/job_0/job_1"}, "subagent", "/root/job_0/job_1"),
        ({"request_kind": 7, "thread_source": [], "agent_name": {}}, "subagent", None),
    ],
)
def test_kinds_and_agents_of_codex(turn: dict[str, Any], kind: str, agent: str | None) -> None:
    asker = asker_of({}, codex(**turn))
    assert (asker.kind, asker.agent) == (kind, agent)


def test_a_main_turn_of_codex_says_that_a_user_began_it() -> None:
    metadata = {"session_id": "s", "x-codex-turn-metadata": '{"request_kind":"turn","thread_source":"user"}'}
    assert asker_of({}, {"client_metadata": metadata}).kind == "main"
    assert asker_of({"session-id": "s"}, {}).kind is None
    assert asker_of({"session-id": "s", "x-openai-memgen-request": "true"}, {}).kind == "auxiliary"
    unknown = {"session_id": "s", "x-codex-turn-metadata": '{"request_kind":"turn","thread_source":"robot"}'}
    assert asker_of({}, {"client_metadata": unknown}).kind is None


def claude(**hints: str) -> dict[str, str]:
    return {"X-Claude-Code-Session-Id": "s"} | {f"x-claude-code-{name.replace('_', '-')}": hint for name, hint in hints.items()}


@pytest.mark.parametrize(
    ("hints", "kind"),
    [
        ({}, None),
        ({"request_class": "main"}, "main"),
        ({"request_class": "compaction"}, "compaction"),
        ({"request_class": "auxiliary"}, "auxiliary"),
        ({"request_class": "side_reply"}, "auxiliary"),
        ({"request_class": "workflow"}, None),
        ({"request_class": "workflow", "agent_id": "a1"}, "subagent"),
        ({"agent_id": "a1"}, "subagent"),
    ],
)
def test_kinds_of_claude_code(hints: dict[str, str], kind: str | None) -> None:
    assert asker_of(claude(**hints), {}).kind == kind


TITLE = {"tools": [], "output_config": {"format": {"type": "json_schema", "schema": {"properties": {"title": {}}}}}}


def test_titles_and_classifiers_of_claude_code_are_told_by_their_shape() -> None:
    assert asker_of(claude(), TITLE).kind == "title"
    assert asker_of(claude(request_class="auxiliary"), TITLE).kind == "title"
    assert asker_of(claude(), {**TITLE, "tools": [{"name": "Bash"}]}).kind is None
    assert (
        asker_of(claude(), {"tools": [], "output_config": {"format": {"schema": {"properties": {"verdict": {}}}}}}).kind is None
    )
    assert asker_of(claude(), {"stop_sequences": ["</block>"]}).kind == "auxiliary"
    assert asker_of({}, TITLE) is NOBODY  # of another client, which names no session


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [
        ("Agent=57", 0.057),
        ("Bash=1200;Read=30;mcp__a=b=70", 1.3),
        ("Bash=", None),
        ("Bash=x;Read=5", 0.005),
        ("Bash=9999999999", None),
        ("Bash=²", None),
        ("A=1;" * 32 + "B=500", 0.032),
        ("A=1;" * 2000, None),
    ],
)
def test_durations_of_tools(durations: str, seconds: float | None) -> None:
    assert asker_of(claude(prev_tool_durations=durations), {}).tool_seconds == seconds


OPENCODE = {"x-session-affinity": "s", "x-session-id": "s"}


def test_a_title_of_opencode_has_no_tools_and_no_history() -> None:
    asks = [{"role": "system", "content": "a title"}, {"role": "user", "content": "do it"}]
    assert asker_of(OPENCODE, {"messages": asks}).kind == "title"
    assert asker_of(OPENCODE, {"input": asks}).kind == "title"
    assert asker_of(OPENCODE, {"messages": [*asks, {"role": "assistant", "content": "ok"}]}).kind is None  # a summary
    assert asker_of(OPENCODE, {"messages": asks, "tools": [{}]}).kind is None
    assert asker_of({"x-session-id": "s"}, {"messages": asks}).kind is None  # of another client
    assert asker_of({"x-smg-routing-key": "s"}, {"messages": asks}).kind is None
    assert asker_of(OPENCODE, {}).kind is None  # a body that was not read


def test_a_message_that_only_warms_says_so() -> None:
    assert asker_of({"x-session-id": "s"}, {"generate": False}).kind == "prewarm"


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\nb", "a\x00b", "a\u202eb", "\udc80"])
def test_an_id_that_no_line_can_show_is_none(bad: str) -> None:
    assert asker_of({"x-session-id": bad}, {}) is NOBODY
    assert asker_of({}, {"client_metadata": {"session_id": bad}, "prompt_cache_key": "key"}).session == "key"
    assert asker_of({"x-session-id": "s", "x-parent-session-id": bad}, {}).session == "s"


def test_an_id_of_the_greatest_length_and_in_any_script() -> None:
    assert asker_of({"x-session-id": "x" * 256}, {}).session == "x" * 256
    assert asker_of({"x-session-id": "Sitzung 7 · ü"}, {}).session == "Sitzung 7 · ü"


@pytest.mark.parametrize(
    "json_text",
    ["[" * 10_000, '{"a":' * 3_000, "[1]", "null", '"x"', "{", '{"session_id": "\\ud800"}', "{" + '"a":1,' * 5_000 + "}"],
)
def test_hostile_json_says_nothing(json_text: str) -> None:
    metadata = {"session_id": "s", "x-codex-turn-metadata": json_text}
    assert asker_of({}, {"client_metadata": metadata}).session == "s"
    assert asker_of({"x-codex-turn-metadata": json_text}, {}) is NOBODY
    assert asker_of({}, {"metadata": {"user_id": json_text}}) is NOBODY


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = ["client_metadata", "metadata", "nvext", "prompt_cache_key", "generate", "input", "messages", "tools", "output_config"]


@pytest.mark.slow
@pytest.mark.untraced
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING), st.booleans())
def test_a_body_of_any_shape_is_read(body: dict[str, Any], handshake: bool) -> None:
    for headers in ({}, OPENCODE, claude()):
        asker = asker_of(headers, body, handshake=handshake)
        assert asker.session is None or len(asker.session) <= 256


def test_the_gateway_knows_some_things_better() -> None:
    asker = asker_of({"x-session-id": "s"}, {})
    assert with_kind(asker, "compaction").source == {**asker.source, "kind": "gateway"}
    joined = with_session(NOBODY, "resp_1", "previous_response_id")
    assert (joined.session, joined.thread) == ("resp_1", "resp_1")
    assert joined.source == {"session": "previous_response_id", "thread": "previous_response_id"}
    child = with_session(asker_of({"x-session-id": "b", "x-parent-session-id": "a"}, {}), "root", "parent")
    assert (child.session, child.thread, child.parent) == ("root", "b", "a")


def test_what_a_sub_agent_begins_is_in_the_session_of_the_first_agent() -> None:
    roots = SessionRoots()
    child = roots.placed("tenant", asker_of({"x-session-id": "child", "x-parent-session-id": "root"}, {}))
    grandchild = asker_of({"x-session-id": "grandchild", "x-parent-session-id": "child"}, {})
    placed = roots.placed("tenant", grandchild)
    assert (child.session, child.thread) == ("root", "child")
    assert (placed.session, placed.thread, placed.parent) == ("root", "grandchild", "child")
    assert roots.placed("another", grandchild).session == "child"  # whose threads are not known there
    assert roots.placed("tenant", NOBODY) is NOBODY


def test_the_opaque_id_of_a_session_is_that_of_its_tenant() -> None:
    ids = {session_id(tenant, session) for tenant in ("a", "b") for session in ("one", "half \udc80")}
    assert len(ids) == 4
    assert all(one.startswith("sess_") and one.isascii() for one in ids)


def test_a_session_is_named_by_its_client_and_by_no_key_of_the_cache() -> None:
    assert asker_of({"x-session-id": "mine"}, {}).is_named
    assert not asker_of({}, {"prompt_cache_key": "key"}).is_named
