"""`responses-gateway doctor`: the right verdict on servers of many kinds, and its output."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.settings.keys import hash_of
from responses_gateway.settings.load import load
from responses_gateway.simulator import serving
from tests.commands.doctor_report import CONTEXT, bad_request, examine, report, run, server
from tests.server import running_gateway
from tests.server.running_gateway import gateway, simulated

# ---- verdicts on dialects ----------------------------------------------------------------------------------------


def test_a_vllm_that_parses_works_as_it_is() -> None:
    def change(body: dict[str, Any]) -> None:
        if "1 to 2000" in body["messages"][0]["content"]:  # as long as it would be
            body["messages"][0]["content"] += " tokens: 8000, tps: 500"

    found = report(change=change)
    assert (found.status, found.verdict, found.server) == (0, "works", "vLLM 0.32.0")
    assert found.settings == {}
    assert found.findings == []
    facts = found.profile
    assert facts["models"] == [{"id": "m", "max_length": CONTEXT}]
    assert (facts["reasoning_field"], facts["calls"], facts["usage"]) == ("reasoning", "parsed", "last")
    assert (facts["token_ids"], facts["tokenize"], facts["structured_output"]) == (True, "messages", True)
    assert (facts["max_tokens_field"], facts["overflow"], facts["error_shape"]) == (
        "max_completion_tokens",
        "recognised",
        "openai",
    )
    assert facts["tolerates"] == {"two_system": True, "late_system": True, "developer": True, "two_user": True}
    assert facts["stops"] is True


@pytest.mark.parametrize(
    ("dialect", "model", "parser", "reasoning"),
    [
        ("vllm-raw", "Qwen/Qwen3-8B", "hermes", "qwen3"),
        ("vllm-raw", "m", "hermes", "qwen3"),
        ("vllm-raw-xml", "m", "qwen3_coder", "qwen3"),
        ("vllm-raw", "nvidia/nemotron-3-nano", "hermes", "nemotron_v3"),  # what was seen goes before the name
    ],
)
def test_a_raw_vllm_is_told_its_flags(dialect: str, model: str, parser: str, reasoning: str) -> None:
    found = report(dialect=dialect, model=model)
    assert (found.status, found.verdict) == (0, "works with the settings below")
    flags = f"--enable-auto-tool-choice --tool-call-parser {parser} --reasoning-parser {reasoning}"
    assert flags in found.said("warning")
    assert found.settings == {"reasoning_parser": reasoning, "tool_call_parser": parser}


def test_a_raw_sglang_is_told_flags_by_its_own_names() -> None:
    found = report(dialect="sglang-raw")
    assert found.server == "SGLang 0.5.6"
    assert "Start the server with --tool-call-parser qwen25 --reasoning-parser qwen3." in found.said("warning")
    assert found.settings["tool_call_parser"] == "hermes"


@pytest.mark.parametrize(
    ("dialect", "server", "more"),
    [
        ("sglang", "SGLang 0.5.6", {}),
        ("transformers", "transformers serve", {"default_max_output_tokens": 32768}),
        ("deepseek", "unknown server", {}),
    ],
)
def test_reasoning_content_becomes_a_setting(dialect: str, server: str, more: dict[str, int]) -> None:
    found = report(dialect=dialect)
    assert (found.status, found.verdict, found.server) == (0, "works with the settings below", server)
    assert found.settings == {"reasoning_field": "reasoning_content", **more}
    assert "reasoning_content" in found.said("note")
    assert found.said("error") == ""


def test_llamacpp_tells_its_context_elsewhere() -> None:
    assert report(dialect="llamacpp").profile["models"] == [{"id": "m", "max_length": CONTEXT}]


def test_ollama_works_but_does_not_report_its_context() -> None:
    found = report(dialect="ollama")
    assert (found.status, found.verdict, found.server) == (0, "works", "Ollama 0.13.0")
    assert "OLLAMA_CONTEXT_LENGTH" in found.said("note")
    assert found.profile["overflow"] is None  # nothing is sent that could keep it busy


def test_openai_has_no_reasoning_to_see() -> None:
    found = report(dialect="openai")
    assert (found.status, found.verdict) == (0, "works")
    assert "No reasoning was seen" in found.said("note")


def test_the_old_function_call_field_is_noted() -> None:
    found = report(dialect="legacy")
    assert found.profile["calls"] == "legacy"
    assert "function_call" in found.said("note")
    assert found.status == 0


def test_interleaved_calls_are_noted() -> None:
    found = report(dialect="vllm-interleaved", model="sim-parallel")
    assert (found.profile["parallel_calls"], found.profile["interleaved_calls"]) == (True, True)
    assert "interleaved" in found.said("note")
    found = report(model="sim-parallel")
    assert (found.profile["parallel_calls"], found.profile["interleaved_calls"]) == (True, False)


@pytest.mark.parametrize(("dialect", "usage"), [("vllm-usage-none", "none"), ("vllm-usage-every", "every")])
def test_usage_is_looked_for(dialect: str, usage: str) -> None:
    found = report(dialect=dialect)
    assert found.profile["usage"] == usage
    assert ("no usage" in found.said("warning")) is (usage == "none")


# ---- broken servers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("sim-drop", "broke in the middle"),
        ("sim-eof", "without a finish_reason"),
        ("sim-no-finish", "without a finish_reason"),
        ("sim-malformed", "not valid JSON"),
        ("sim-error", "EngineCore"),
        ("sim-status-500", "HTTP 500: Internal server error"),
        ("sim-status-503", "HTTP 503"),
        ("sim-reset", "closed the connection"),
    ],
)
def test_a_broken_server_is_called_broken(model: str, said: str) -> None:
    found = report(model=model)
    assert (found.status, found.verdict) == (1, "broken")
    assert said in found.said("error")
    assert found.settings == {}  # nothing is concluded from what did not work


def test_a_server_that_hangs_is_given_up() -> None:
    found = report("--timeout", "0.2", model="sim-slow-headers-5")
    assert (found.status, found.verdict) == (1, "broken")
    assert "within 0.2 seconds" in found.said("error")


def test_a_missing_done_marker_is_harmless() -> None:
    found = report(model="sim-no-done")
    assert found.status == 0
    assert "[DONE]" in found.said("note")


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    found = report("--model", "other", strict_models=True)
    assert found.status == 1
    assert "It serves m: name one with --model." in found.said("error")


@pytest.mark.parametrize(("status", "message"), [(503, "Loading model"), (429, "Too many requests for this model")])
def test_a_server_that_is_not_ready_is_to_be_asked_again(status: int, message: str) -> None:
    answer = {"error": {"message": message, "type": "unavailable_error", "code": status}}
    found = report(change=lambda body: web.json_response(answer, status=status))
    assert (found.status, found.verdict) == (1, "broken")
    assert "try again in a while" in found.said("error")
    assert "--model" not in found.said("error")


def test_a_wrong_model_is_refused_where_names_count() -> None:
    assert report(strict_models=True).profile["unknown_model"] == "refused"
    assert report().profile["unknown_model"] == "served"


# ---- what the user sees -----------------------------------------------------------------------------------------------


def test_each_question_is_shown_beside_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine("--json") == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    lines = shown.err.splitlines()
    assert all(line.startswith("testing: ") for line in lines)
    assert {
        "testing: a tool call",
        "testing: messages of system, system, user",
        "testing: messages of user with temperature",
    } < set(lines)
    assert len(lines) > 15


@pytest.mark.slow
def test_a_slow_server_shows_where_the_doctor_is_also_in_a_pipe() -> None:
    async def test() -> None:
        seen = asyncio.Event()

        async def models(_request: web.Request) -> web.StreamResponse:
            return web.json_response({"data": [{"id": "m"}]})

        async def slow(_request: web.Request) -> web.StreamResponse:
            await seen.wait()
            return web.Response(status=500)

        app = web.Application()
        app.router.add_get("/v1/models", models)
        app.router.add_post("/v1/chat/completions", slow)
        async with serving(app) as url:
            command = [sys.executable, "-m", "responses_gateway", "doctor", url]
            pipe = asyncio.subprocess.PIPE
            environ = {**os.environ, "NO_PROXY": "*"}
            doctor = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ)
            assert doctor.stderr is not None
            assert await doctor.stderr.readline() == b"testing: a short answer\n"
            seen.set()
            await doctor.communicate()
            assert doctor.returncode == 1

    running_gateway.run(test())


def test_the_report_ends_with_settings_that_serve_accepts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert examine(dialect="vllm-raw", model="qwen3") == 0
    out = capsys.readouterr().out
    assert out.startswith("vLLM 0.32.0 at http://127.0.0.1:")
    assert "raw (hermes)" in out
    assert "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3" in out
    path = tmp_path / "gateway.yaml"
    path.write_text(out[out.index("# vLLM") :])
    settings = load({}, path, {})
    assert (settings.reasoning_parser, settings.tool_call_parser) == ("qwen3", "hermes")
    assert settings.backend[0].endswith("/v1")


def test_the_settings_may_be_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gateway.yaml"
    assert examine("--write", str(path), dialect="llamacpp") == 0
    assert load({}, path, {}).reasoning_field == "reasoning_content"
    assert examine("--write", str(tmp_path / "no" / "where.yaml")) == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_file_that_was_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("api_keys: {alice: sha256:0b14}\n", encoding="utf-8")
    assert examine("--write", str(path), dialect="llamacpp") == 0
    assert f"The previous file is {path}.bak.\n" in capsys.readouterr().err
    assert Path(f"{path}.bak").read_text(encoding="utf-8") == "api_keys: {alice: sha256:0b14}\n"
    assert load({}, path, {}).reasoning_field == "reasoning_content"


def test_the_gateway_works_with_the_recommended_settings(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"

    async def test() -> None:
        async with server("vllm-raw", model="m") as url:
            assert await asyncio.to_thread(run, url, "--write", str(path)) == 0
            settings = load({}, path, {})
            names = ("reasoning_parser", "tool_call_parser")
            async with gateway(url, **{name: getattr(settings, name) for name in names}) as served:
                assert await asyncio.to_thread(run, "--gateway", served.url) == 0

    running_gateway.run(test())


def test_a_broken_server_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(model="sim-drop") == 1
    out = capsys.readouterr().out
    assert "error: Answers break: The connection to the backend broke" in out
    assert "broken (" in out


def test_control_characters_of_a_server_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine("--model", "m", change=lambda body: bad_request("\x1b[31mred")) == 1
    assert "\x1b[31m" not in capsys.readouterr().out


# ---- what cannot be examined ------------------------------------------------------------------------------------------


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert run(url) == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert run("--gateway", url) == 2
    assert f"no answer from {url}/v1/responses: " in capsys.readouterr().err
    for argv in ([url], ["--gateway", url]):
        assert run(*argv, "--json") == 2
        assert json.loads(capsys.readouterr().out)["verdict"] == "unreachable"


def test_no_key_is_asked_for_where_the_place_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "Country, region, or territory not supported"}}, status=403)

    async def test() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", refuse)
        async with serving(app) as url:
            assert await asyncio.to_thread(run, url) == 2
        said = capsys.readouterr().err
        assert ("territory not supported" in said, "--api-key" in said) == (True, False)

    asyncio.run(test())


def test_a_key_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(api_key="the-right-key") == 2
    assert "--api-key" in capsys.readouterr().err
    assert examine("--api-key", "the-right-key", api_key="the-right-key") == 0
    assert examine(api_key="the-right-key", environ={"OPENAI_API_KEY": "the-right-key"}) == 0
    assert "the-right-key" not in "".join(capsys.readouterr())


def test_a_gateway_in_the_place_of_the_backend_tells_where_its_key_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of("rp_alice-0123456789")}) as served:
            assert await asyncio.to_thread(run, served.url) == 2

    asyncio.run(test())
    assert "in the header 'Authorization: Bearer YOUR_KEY'. Give its key with --api-key" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://user:password@x"])
def test_an_invalid_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(url) == 2
    err = capsys.readouterr().err
    assert err.startswith("responses-gateway doctor: ")
    assert "password@" not in err


def test_a_web_server_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> int:
        async with serving(web.Application()) as url:
            return await asyncio.to_thread(run, url)

    assert asyncio.run(test()) == 2
    assert "/models lists no model (HTTP 404). Is the URL right?" in capsys.readouterr().err


def test_a_backend_or_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://x", "--gateway", "http://y") == 2
    assert "--gateway" in capsys.readouterr().err
