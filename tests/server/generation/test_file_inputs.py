"""PDFs and text files of requests reach the model as text, at both doors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.preparation.ground import with_texts
from responses_gateway.server.generation.replay import replay
from responses_gateway.simulator import SimulatorOptions, create_app, serving
from tests.hosted.pdf_files import as_base64, document, encrypted
from tests.server.hosted.model import model
from tests.server.running_gateway import Answer, Served, ask, gateway, run
from tests.server.scripted_backend import text_stream

BILL = as_base64(document("Ten tonnes of paint.", "Sixty tonnes."))
LOCKED = as_base64(encrypted("open sesame"))
TEXT = "[Text of the document, 2 pages]\n\n[page 1]\nTen tonnes of paint.\n\n[page 2]\nSixty tonnes."


def messages(*files: str) -> dict[str, Any]:
    """Return a body in which Claude Code has read files."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    shown = [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}} for data in files
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "PDF file read"}, *shown]}
    said = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    return {"model": "simulator", "max_tokens": 50, "messages": said}


def responses(*files: str, **fields: Any) -> dict[str, Any]:
    parts = [
        {"type": "input_file", "filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{data}"} for data in files
    ]
    return {"model": "simulator", "input": [{"role": "user", "content": parts}], **fields}


def with_file(door: str, media_type: str, content: bytes) -> dict[str, Any]:
    """Return a body whose last message has a file, and a question."""
    data = as_base64(content)
    if door == "/v1/responses":
        file = {"type": "input_file", "filename": "cities.csv", "file_data": f"data:{media_type};base64,{data}"}
        content_parts = [file, {"type": "input_text", "text": "Which one?"}]
        return {"model": "simulator", "input": [{"role": "user", "content": content_parts}]}
    source = {"type": "base64", "media_type": media_type, "data": data}
    blocks = [{"type": "document", "title": "cities.csv", "source": source}, {"type": "text", "text": "Which one?"}]
    return {"model": "simulator", "max_tokens": 50, "messages": [{"role": "user", "content": blocks}]}


async def items_of(served: Served, answer: Answer) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await ask(served, "GET", f"/v1/responses/{answer.json['id']}/input_items")).json["data"]
    return listed


async def send(served: Served, body: dict[str, Any], path: str = "/v1/messages") -> Answer:
    return await ask(served, "POST", path, json=body)


@pytest.mark.slow
def test_claude_codes_model_reads_a_pdf_in_the_result_of_its_call(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(create_app(SimulatorOptions())) as url, gateway(url, record=str(tmp_path)) as served:
            answer = await send(served, messages(BILL))
            assert "content:document" in answer.headers["x-responses-gateway-losses"].partition("adapted")[2]
            counted = await send(served, messages(BILL), "/v1/messages/count_tokens")
            read = [tokens for name, tokens in answer.json["usage"].items() if "input_tokens" in name]
            assert counted.json["input_tokens"] == sum(read) > 60
        async with model(text_stream("hi")) as (served, talking):
            assert (await send(served, messages(BILL))).status == 200
            assert talking.requests[0]["messages"][-1]["content"] == f"PDF file read\n{TEXT}"

    run(test())
    assert [replay(path).differences for path in tmp_path.glob("exchange-*.jsonl")] == [[]]


@pytest.mark.slow
def test_a_pdf_that_cannot_be_read_is_told_where_a_refusal_would_end_the_conversation() -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, talking):
            answer = await send(served, messages(LOCKED, as_base64(b"x"), ""))
            assert "content:document" in answer.headers["x-responses-gateway-losses"].partition("adapted")[0]
            told = talking.requests[0]["messages"][-1]["content"]
            assert "cannot be shown here: it is encrypted" in told
            assert told.count("cannot be shown here: it is damaged") == 2
        async with model(text_stream("hi"), strict=True) as (served, talking):
            refused = await send(served, messages(LOCKED))
            assert refused.status == 400
            assert "messages[2].content[0].content[1]" in refused.json["error"]["message"]
            assert talking.requests == []

    run(test())


@pytest.mark.slow
def test_files_of_the_other_door_are_read_as_well_and_stay_files_where_they_cannot_be() -> None:
    async def test() -> None:
        async with model(text_stream("hi"), store="memory") as (served, talking):
            first = await send(served, responses(BILL, LOCKED), "/v1/responses")
            assert first.status == 200, first.body
            said = talking.requests[0]["messages"][0]["content"]
            assert said[0]["text"] == TEXT.replace("document", "document 'bill.pdf'")
            assert said[1]["file"]["file_data"].endswith(LOCKED)
            later = {"model": "simulator", "previous_response_id": first.json["id"], "input": "And?"}
            assert (await send(served, later, "/v1/responses")).status == 200
            assert talking.requests[1]["messages"][0] == talking.requests[0]["messages"][0]
            question = {"type": "item_reference", "id": (await items_of(served, first))[0]["id"]}
            assert (await send(served, {"model": "simulator", "input": [question]}, "/v1/responses")).status == 200
            assert talking.requests[2]["messages"] == talking.requests[0]["messages"]
            assert (await items_of(served, first))[0]["content"][0]["type"] == "input_file"

    run(test())


@pytest.mark.parametrize("door", ["/v1/messages", "/v1/responses"])
def test_a_backend_that_reads_pdfs_gets_them(door: str) -> None:
    async def test() -> None:
        async with model(text_stream("hi"), file_inputs="pass") as (served, talking):
            body = messages(BILL) if door == "/v1/messages" else responses(BILL)
            assert (await send(served, body, door)).status == 200
            content = talking.requests[0]["messages"][-1]["content"]
            assert [part["file"]["file_data"] for part in content if part["type"] == "file"] == [
                f"data:application/pdf;base64,{BILL}"
            ]

    run(test())


@pytest.mark.parametrize("door", ["/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("media_type", ["text/csv", "application/octet-stream"])
def test_the_model_reads_a_text_file(door: str, media_type: str) -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, talking):
            for content in ("city;river\nZürich;Limmat\n", ""):
                answer = await send(served, with_file(door, media_type, content.encode()), door)
                assert answer.status == 200, answer.body
                assert answer.headers["x-responses-gateway-losses"].startswith("adapted=")
                said = talking.requests[-1]["messages"][-1]["content"]
                assert said == f"[Text of the document 'cities.csv']\n\n{content}\nWhich one?"

    run(test())


def test_a_file_that_is_no_text_stays_a_file_or_is_told() -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, talking):
            assert (await send(served, with_file("/v1/messages", "application/zip", b"PK\xff"))).status == 200
            assert "reads no files of its type" in talking.requests[0]["messages"][0]["content"]
            assert (await send(served, with_file("/v1/responses", "application/zip", b"PK\xff"), "/v1/responses")).status == 200
            assert talking.requests[1]["messages"][0]["content"][0]["file"]["filename"] == "cities.csv"

    run(test())


def test_what_the_code_has_as_a_file_is_not_in_the_prompt_unless_it_is_a_pdf() -> None:
    table = {"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,eA=="}
    bill = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{BILL}"}
    sent = [(part["filename"], part["file_data"]) for part in (table, bill)]
    items = [{"role": "user", "content": [table, bill]}]
    (shown,) = with_texts(items, dict.fromkeys(sent, "its text"), {each: f"/mnt/data/{each[0]}" for each in sent})
    assert shown["content"][0] == table
    assert [part["text"] for part in shown["content"][1:]] == ["its text", "[A file for the code: /mnt/data/a.pdf]"]
