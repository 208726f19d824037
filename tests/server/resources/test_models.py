"""`/v1/models`: one answer for the SDKs and for Codex, and what either gets when the backend does not answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.resources import models
from responses_gateway.server.resources.codex_catalog import SHIPPED_PROMPT, ModelTable, load_model_table
from responses_gateway.settings import SettingsError
from responses_gateway.simulator import SimulatorOptions
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, run, simulated
from tests.server.scripted_backend import Connection, backend, refusing

CODEX = "/v1/models?client_version=0.169.0"
# Of each entry, found by leaving them out one by one; one that is missing makes Codex refuse the whole catalog.
REQUIRED = {
    "slug", "display_name", "supported_reasoning_levels", "shell_type", "visibility", "supported_in_api", "priority",
    "support_verbosity", "truncation_policy", "experimental_supported_tools", "base_instructions",
}  # fmt: skip
REQUIRED_BEFORE_0_169 = {"supports_reasoning_summaries", "supports_parallel_tool_calls"}


def listing(*entries: Any, **fields: Any) -> bytes:
    return json.dumps({"object": "list", "data": list(entries), **fields}).encode()


def one(name: str = "qwen3", **fields: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 1, "owned_by": "vllm", **fields}


class Answers:
    """A backend whose answer can be changed while it runs."""

    def __init__(self, status: int = 200, body: bytes = b"") -> None:
        self.status = status
        self.body = body

    async def __call__(self, connection: Connection) -> None:
        head = f"HTTP/1.1 {self.status} X\r\nContent-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        connection.write(head.encode() + self.body)


async def catalog(served: Served, path: str = CODEX, **headers: str) -> list[dict[str, Any]]:
    answer = await ask(served, "GET", path, headers=headers)
    assert answer.status == 200, answer.body
    entries: list[dict[str, Any]] = answer.json["models"]
    return entries


# ---- the answer -------------------------------------------------------------------------------------------------------


def test_both_shapes_at_once() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("qwen3", "org/other"), max_model_len=40960)) as served:
            answer = (await ask(served, "GET", "/v1/models")).json
            assert answer["object"] == "list"
            assert [(each["id"], each["max_model_len"], each["owned_by"]) for each in answer["data"]] == [
                ("qwen3", 40960, "vllm"),
                ("org/other", 40960, "vllm"),
            ]
            assert [each["slug"] for each in answer["models"]] == ["qwen3", "org/other"]
            for entry in answer["models"]:
                assert set(entry) >= REQUIRED | REQUIRED_BEFORE_0_169
                assert None not in entry.values()
                assert entry["context_window"] == 40960
                assert entry["base_instructions"] == SHIPPED_PROMPT.read_text(encoding="utf-8")
                assert (entry["shell_type"], entry["apply_patch_tool_type"]) == ("unified_exec", "freeform")

    run(test())


def test_fields_of_the_backend_pass_but_not_its_own_list_of_models() -> None:
    """llama.cpp answers with a `models` of another shape."""
    body = listing(one(extra={"a": [1, None]}), {"object": "model"}, models=[{"name": "qwen3"}], first_id="x")

    async def test() -> None:
        async with backend(Answers(body=body)) as behind, gateway(behind.url) as served:
            answer = (await ask(served, "GET", "/v1/models")).json
            assert answer["data"] == [one(extra={"a": [1, None]})]  # what has no id is no model
            assert answer["first_id"] == "x"
            assert [each["slug"] for each in answer["models"]] == ["qwen3"]

    run(test())


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({"max_model_len": 40960}, 40960),
        ({"context_length": 8192}, 8192),
        ({"meta": {"n_ctx_train": 131072, "n_ctx": 16384}}, 16384),
        ({"meta": {"n_ctx_train": 131072}}, 131072),
        ({"meta": None, "max_model_len": "many", "context_window": 0}, None),
        ({"max_model_len": 2**63}, None),  # Codex would refuse the whole catalog
        ({}, None),
    ],
)
def test_the_window_is_found_by_any_of_its_names(fields: dict[str, Any], window: int | None) -> None:
    async def test() -> None:
        async with backend(Answers(body=listing(one(**fields)))) as behind, gateway(behind.url) as served:
            [entry] = await catalog(served)
            assert entry.get("context_window") == window

    run(test())


def test_the_catalog_of_hundreds_of_models_holds_nobody_up_for_long() -> None:
    """Writing an entry is the measure: comparing names with all that the tables name took thirty times as long."""
    table = ModelTable()
    listed = [one(f"org/model-{number}") for number in range(100)]
    entry = table.find("org/model-1")
    written = least_time(lambda: [entry.model_dump(mode="json") for _ in listed])
    assert least_time(lambda: [table.catalog_entry(model) for model in listed]) < 20 * written


def least_time(work: Callable[[], object]) -> float:
    """Return the seconds of CPU time that it takes when nothing disturbs it."""
    times = []
    for _ in range(7):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def test_the_etag_is_of_what_matters() -> None:
    """vLLM's list has the time of day in it, and ids that are never the same."""
    answers = Answers(body=listing(one(created=1)))

    async def tag(served: Served, **headers: str) -> Answer:
        return await ask(served, "GET", "/v1/models", headers=headers)

    async def test(keep: pytest.MonkeyPatch) -> None:
        keep.setattr(models, "KEPT_SECONDS", -1.0)
        async with backend(answers) as behind, gateway(behind.url) as served:
            before = (await tag(served)).headers["etag"]
            answers.body = listing(one(created=2))
            assert (await tag(served)).headers["etag"] == before
            unchanged = await tag(served, **{"If-None-Match": before})
            assert (unchanged.status, unchanged.body) == (304, b"")
            answers.body = listing(one(max_model_len=1))
            changed = await tag(served, **{"If-None-Match": before})
            assert changed.status == 200
            assert changed.headers["etag"] != before

    with pytest.MonkeyPatch.context() as keep:
        run(test(keep))


def test_one_model() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("org/some model",), max_model_len=4096)) as served:
            for path in ("/v1/models/org/some%20model", "/v1/models/org%2Fsome%20model"):
                model = (await ask(served, "GET", path)).json
                assert (model["id"], model["object"], model["context_window"]) == ("org/some model", "model", 4096)
            error = await ask(served, "GET", "/v1/models/other")
            assert "`other` does not exist" in assert_error(error, 404, "model_not_found")

    run(test())


# ---- how often, and for whom, the backend is asked --------------------------------------------------------------------


def test_requests_at_once_and_in_a_row_cost_one() -> None:
    async def test() -> None:
        async with backend(Answers(body=listing(one()))) as behind, gateway(behind.url) as served:
            await asyncio.gather(*(catalog(served) for _ in range(5)))
            assert (await ask(served, "GET", "/v1/models/qwen3")).status == 200
            assert len(behind.requests) == 1

    run(test())


def test_each_key_has_its_own_list() -> None:
    async def test() -> None:
        async with backend(Answers(body=listing(one()))) as behind, gateway(behind.url) as served:
            for key in ("Bearer a", "Bearer b", "Bearer a"):
                await catalog(served, Authorization=key)
            sent = [line for request in behind.requests for line in request.split(b"\r\n") if b"uthorization" in line]
            assert sent == [b"Authorization: Bearer a", b"Authorization: Bearer b"]
        async with backend(Answers(body=listing(one()))) as behind, gateway(behind.url, backend_api_key="ours") as served:
            for key in ("Bearer a", "Bearer b"):
                await catalog(served, Authorization=key)
            assert len(behind.requests) == 1
            assert b"Authorization: Bearer ours\r\n" in behind.requests[0]

    run(test())


# ---- what goes wrong --------------------------------------------------------------------------------------------------

FAILURES = {
    "error": (503, b'{"error": {"message": "loading"}}'),
    "overloaded": (429, b"{}"),
    "no JSON": (200, b"<html>"),
    "no list": (200, b'{"data": {"qwen3": {}}}'),
    "another shape": (200, b"[1]"),
    "no number": (200, b'{"data": [{"id": "qwen3", "max_model_len": NaN}]}'),
    "half a character": (200, b'{"data": [{"id": "qwen3\\ud800"}]}'),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("header", [{}, {"originator": "codex-tui"}])
def test_codex_gets_the_last_list_or_an_empty_one(failure: str, header: dict[str, str]) -> None:
    path = "/v1/models" if header else CODEX
    answers = Answers(*FAILURES[failure])

    async def test(keep: pytest.MonkeyPatch) -> None:
        keep.setattr(models, "KEPT_SECONDS", -1.0)
        async with backend(answers) as behind, gateway(behind.url) as served:
            assert await catalog(served, path, **header) == []
            answers.status = 200
            answers.body = listing(one())
            assert [each["slug"] for each in await catalog(served, path, **header)] == ["qwen3"]
            answers.status, answers.body = FAILURES[failure]
            assert [each["slug"] for each in await catalog(served, path, **header)] == ["qwen3"]
            assert await catalog(served, path, **header, Authorization="Bearer other") == []  # not what others may see

    with pytest.MonkeyPatch.context() as keep:
        run(test(keep))


def test_nobody_there() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9") as served:
            assert await catalog(served) == []
            assert_error(await ask(served, "GET", "/v1/models"), 502, "server_error")
            assert_error(await ask(served, "GET", "/v1/models/qwen3"), 502, "server_error")

    run(test())


def test_a_backend_that_says_nothing() -> None:
    async def silent(connection: Connection) -> None:
        await connection.lost

    async def test() -> None:
        async with backend(silent) as behind, gateway(behind.url, connect_timeout=0.05) as served:
            assert await catalog(served) == []
            assert_error(await ask(served, "GET", "/v1/models"), 504, "server_error")

    run(test())


def test_others_get_the_truth() -> None:
    async def test() -> None:
        async with backend(refusing(429, b'{"a": 1}', headers=b"Retry-After: 3\r\n")) as behind, gateway(behind.url) as served:
            answer = await ask(served, "GET", "/v1/models")
            assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, b'{"a": 1}', "3")
            assert not {"openai-model", "set-cookie", "x-secret", "x-models-etag"} & set(answer.headers)

    run(test())


@pytest.mark.parametrize("path", ["/v1/models", CODEX])
def test_a_wrong_key_is_a_wrong_key(path: str) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(api_key="right")) as served:
            assert (await ask(served, "GET", path, headers={"Authorization": "Bearer wrong"})).status == 401
            assert (await ask(served, "GET", path, headers={"Authorization": "Bearer right"})).status == 200

    run(test())


def test_other_methods_are_the_backends() -> None:
    async def test() -> None:
        async with backend(Answers(204)) as behind, gateway(behind.url) as served:
            assert (await ask(served, "DELETE", "/v1/models/tuned")).status == 204
            assert behind.requests[0].startswith(b"DELETE /v1/models/tuned HTTP/1.1\r\n")

    run(test())


# ---- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "root", "modalities", "levels"),
    [
        ("Qwen/Qwen3-8B", None, ["text"], ["none", "medium"]),
        ("QWEN3-32b-awq", None, ["text"], ["none", "medium"]),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, ["text"], []),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", None, ["text"], []),
        ("Qwen/Qwen3-VL-8B-Instruct", None, ["text", "image"], []),
        ("Qwen/Qwen3.5-35B-A3B", None, ["text", "image"], ["none", "medium"]),
        ("openai/gpt-oss-120b", None, ["text"], ["low", "medium", "high"]),
        ("zai-org/GLM-4.6", None, ["text"], ["none", "medium"]),
        ("zai-org/GLM-4.5V", None, ["text", "image"], ["none", "medium"]),
        ("moonshotai/Kimi-K2.5", None, ["text", "image"], []),
        ("deepseek-ai/DeepSeek-R1", None, ["text"], []),
        ("somebody/unheard-of", None, ["text"], []),
        ("prod", "/models/gpt-oss-20b", ["text"], ["low", "medium", "high"]),  # --served-model-name prod
    ],
)
def test_known_families(name: str, root: str | None, modalities: list[str], levels: list[str]) -> None:
    entry = load_model_table(None).catalog_entry({"id": name, "root": root})
    assert entry["input_modalities"] == modalities
    assert [level["effort"] for level in entry["supported_reasoning_levels"]] == levels
    assert entry.get("default_reasoning_level") in (levels or [None])
    assert entry["visibility"] == "list"


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-Embedding-8B", "BAAI/bge-m3", "Qwen/Qwen3-Reranker-4B", "openai/whisper-large-v3"]
)
def test_what_one_cannot_talk_to_is_not_in_the_picker(name: str) -> None:
    assert load_model_table(None).catalog_entry({"id": name})["visibility"] == "hide"


def table(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_table_of_the_operator_goes_before_ours_field_by_field(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("You are mine.\n", encoding="utf-8")
    path = table(
        tmp_path,
        """
        - match: [nothing, "Qwen3*"]
          prompt: prompt.md
          display_name: Our Qwen
          context_window: 32768
          apply_patch_tool_type: null
          support_verbosity: true
          default_verbosity: low
        """,
    )

    async def test() -> None:
        options = SimulatorOptions(models=("Qwen/Qwen3-8B", "gpt-oss-20b"), max_model_len=40960)
        async with simulated(options, model_table=path) as served:
            ours, other = await catalog(served)
            assert (ours["display_name"], ours["base_instructions"]) == ("Our Qwen", "You are mine.\n")
            assert (ours["context_window"], other["context_window"]) == (32768, 40960)
            assert "apply_patch_tool_type" not in ours
            assert (ours["support_verbosity"], ours["default_verbosity"]) == (True, "low")
            assert ours["default_reasoning_level"] == "medium"  # from the table that is shipped
            assert other["apply_patch_tool_type"] == "freeform"

    run(test())


def test_a_window_is_never_larger_than_the_backends(tmp_path: Path) -> None:
    mine = load_model_table(table(tmp_path, "- {match: '*', context_window: 1000000}"))
    assert mine.catalog_entry({"id": "m", "max_model_len": 4096})["context_window"] == 4096
    assert mine.catalog_entry({"id": "m"})["context_window"] == 1000000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("match: x", "a list is expected"),
        ("- [", "not valid YAML"),
        ("- {display_name: x}", "entry 1: match: this field is required"),
        (
            "- {match: a}\n- {match: x, visibilty: list}",
            "entry 2: visibilty: there is no such field (did you mean visibility?)",
        ),
        ("- {match: x, apply_patch_tool_type: function}", "apply_patch_tool_type: expected 'freeform'"),
        ("- {match: x, context_window: 9223372036854775808}", "context_window: must be at most"),
        ("- {match: x, prompt: none.md}", "entry 1: prompt: "),
        ("- x", "entry 1: "),
    ],
)
def test_a_wrong_table_is_said_at_the_start(text: str, said: str, tmp_path: Path) -> None:
    path = table(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_model_table(path)
    assert str(caught.value).startswith(f"model_table: {path}: ")
    assert said in str(caught.value)


def test_a_table_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_model_table(tmp_path / "none.yaml")
