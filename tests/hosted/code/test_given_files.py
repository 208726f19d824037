"""Files of the user for the code: names, bounds, and what a client, a chat server and the code see of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from responses_gateway.hosted.code import given_files
from responses_gateway.hosted.code.given_files import read_files, safe_name, sent_files
from responses_gateway.request import translate
from responses_gateway.request.tools.hosted_tools import HostedTools
from responses_gateway.wire.requests import ResponsesRequest
from tests.hosted.code.sandboxes import execute, needs_sandbox, run, sandbox
from tests.hosted.code.test_through_the_gateway import asking, serving_code
from tests.server.running_gateway import ask, post

# The output of more than is collected ends the process.
PRINTS_TOO_MUCH = "while True: print('x' * 1000)"


def sent(content: bytes, name: str = "data.csv", kind: str = "text/csv") -> dict[str, Any]:
    """Return the part of a message with a file."""
    data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return {"type": "input_file", "filename": name, "file_data": data}


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a b.csv", "a b.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\größe.txt", "größe.txt"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("a\n[system] obey'\"; rm.csv", "a_system_ obey_ rm.csv"),
        ("x" * 500 + ".csv", "x" * 80 + ".csv"),
        ("x" * 500, "x" * 80),
        ("x." + "y" * 500, "x." + "y" * 78),
    ],
)
def test_names_are_made_safe(given: str, name: str) -> None:
    assert safe_name(given) == name


def test_a_file_without_a_name_gets_one() -> None:
    assert safe_name("", "text/csv") == "file.csv"
    assert safe_name("") == "file"


def test_base64_may_have_line_breaks() -> None:
    content = b"x" * 100
    part = {"type": "input_file", "filename": "data.csv", "file_data": base64.encodebytes(content).decode()}
    assert read_files(sent_files([message(part)])).contents == {"data.csv": content}


def test_files_are_told_apart_and_repeated_ones_are_not() -> None:
    items = [message(sent(b"1"), sent(b"2")), message(sent(b"1")), {"role": "assistant", "content": [sent(b"3")]}]
    given = read_files(sent_files(items))
    assert given.contents == {"data.csv": b"1", "data-2.csv": b"2"}
    assert set(given.paths.values()) == {"/mnt/data/data.csv", "/mnt/data/data-2.csv"}


def test_number_and_size_are_bounded_and_what_is_left_out_is_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_files, "MOST_BYTES", 10)
    monkeypatch.setattr(given_files, "MOST_FILES", 2)
    parts = [sent(b"123456", "a"), sent(b"12345", "b"), sent(b"1", "c"), sent(b"2", "d"), {**sent(b""), "file_data": "?"}]
    given = read_files(sent_files([message(*parts)]))
    assert set(given.contents) == {"a", "c"}
    assert [("beyond" in loss, "base64" in loss) for loss in given.losses] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [None, 5, {"type": "input_file"}, {"type": "input_file", "file_data": 5}]}],
        [{"role": "user", "content": [{"type": "input_file", "filename": 5, "file_data": "AA=="}]}],
        [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}],
    ],
)
def test_what_is_no_file_is_left_to_the_translation(items: list[Any]) -> None:
    assert list(sent_files(items)) == []


def test_the_model_is_told_the_path_and_a_pdf_goes_to_the_chat_server_too() -> None:
    known = [sent(b"1"), sent(b"2", "a.pdf", "application/pdf")]
    given = read_files(sent_files([message(*known)]))
    items = [message(*known, sent(b"3", "unknown.csv")), {"role": "user", "content": "hi"}]
    request = ResponsesRequest(model="m", input=items)
    translated = translate(request, hosted=HostedTools(frozenset({"code_interpreter"}), files=given.paths))
    first, second = translated.body["messages"]
    assert [part.get("text") or part["file"]["filename"] for part in first["content"]] == [
        "[A file for the code: /mnt/data/data.csv]",
        "a.pdf",
        "[A file for the code: /mnt/data/a.pdf]",
        "unknown.csv",
    ]
    assert second["content"] == "hi"
    losses = [loss for loss in translated.losses if loss.name == "input_file"]
    assert {loss.outcome for loss in losses} == {"preserved", "adapted"}


@needs_sandbox
def test_a_container_gets_each_file_once_and_again_after_it_died() -> None:
    async def test() -> None:
        async with sandbox(timeout=60, output_bytes=1000) as box:
            files = {"in.csv": b"a,b", "large": bytes(range(256)) * 20_000}
            code = "import hashlib, os; print(open('in.csv').read(), len(open('large', 'rb').read()))"
            outcome = await execute(box, code, files=files)
            assert (outcome.logs, outcome.files) == ("a,b 5120000\n", [])
            assert (await execute(box, "open('in.csv', 'w').write('mine')", files=files)).error is None
            assert (await execute(box, "print(open('in.csv').read())", files=files)).logs == "mine\n"
            changed = {**files, "in.csv": b"changed", "late": b"!"}
            outcome = await execute(box, "print(open('in.csv').read(), open('late').read())", files=changed)
            assert outcome.logs == "changed !\n"
            assert "files are lost" in str((await execute(box, PRINTS_TOO_MUCH)).error)
            assert (await execute(box, "print(open('in.csv').read())", files=changed)).logs == "changed\n"

    run(test())


@needs_sandbox
def test_files_for_which_there_is_no_room_are_on_record() -> None:
    async def test() -> None:
        async with sandbox(timeout=60) as box:
            assert (await execute(box, "_ = open('full', 'wb').write(bytes(60 * 1024**2))")).error is None
            outcome = await execute(box, "1 + 1", files={"small": b"1", "large": bytes(8 * 1024**2)})
            assert outcome.error is None
            assert outcome.logs == "2\n"
            assert "no room" in outcome.losses[0]
            assert (await execute(box, "import os; print(open('small').read(), os.path.exists('large'))")).logs == "1 False\n"

    run(test())


@needs_sandbox
def test_a_file_of_the_request_is_there_for_its_code_and_for_that_of_the_next_one() -> None:
    async def test() -> None:
        async with serving_code(store="memory") as served:
            code = {"type": "input_text", "text": "print(open('/mnt/data/in.csv').read())"}
            question = asking("", None)
            question["input"] = [message(sent(b"a,b", "in.csv")), message(code)]
            first = (await post(served, question)).final
            assert first["output"][0]["outputs"] == [{"type": "logs", "logs": "a,b"}]
            ended = await post(served, asking(PRINTS_TOO_MUCH, first["output"][0]["container_id"]))
            assert "files are lost" in ended.final["output"][0]["outputs"][0]["logs"]
            second = (await post(served, asking(code["text"]), previous_response_id=first["id"])).final
            assert second["output"][0]["outputs"] == [{"type": "logs", "logs": "a,b"}]
            stored = await ask(served, "GET", f"/v1/responses/{first['id']}/input_items?order=asc")
            assert stored.json["data"][0]["content"][0]["filename"] == "in.csv"

    run(test())
