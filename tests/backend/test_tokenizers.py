"""Finding and loading a model's tokenizer, encoding with it, and rendering its chat template."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.backend.tokenizer.chat_template import ChatTemplate
from responses_gateway.backend.tokenizer.conversion import TokenizerError
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer, load_tokenizer, locate
from responses_gateway.parsers import reasoning_markers
from responses_gateway.stream.tokens.meter import TokenMeter
from responses_gateway.wire.errors import ApiError
from tests.data_folder import STREAMS, TINY_MODEL
from tests.stream.vocabularies import PREFIXED, vocabulary

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
SIMPLE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def model(folder: Path, kind: str = "llama3", template: str | None = SIMPLE, **config: Any) -> Path:
    """Make a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(vocabulary(kind).to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def loaded(folder: Path) -> ModelTokenizer:
    return ModelTokenizer(folder / "tokenizer.json")


def rendered(template: str, body: Mapping[str, Any] = HELLO, **variables: str) -> str:
    return ChatTemplate({"default": template}, variables, lambda: datetime(2026, 11, 20)).render(body)


# ---- finding ----------------------------------------------------------------------------------------------------------


def test_a_folder_or_its_file(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    assert locate(str(folder), {}) == locate(str(folder / "tokenizer.json"), {}) == folder / "tokenizer.json"


@pytest.mark.parametrize(
    ("environ", "cache"),
    [
        ({"HF_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/a"}, "a"),
        ({"HF_HOME": "{}/b"}, "b/hub"),
        ({"XDG_CACHE_HOME": "{}/c"}, "c/huggingface/hub"),
    ],
)
def test_a_name_in_the_cache(tmp_path: Path, environ: dict[str, str], cache: str) -> None:
    base = tmp_path / cache / "models--org--name"
    main = model(base / "snapshots" / "abc123")
    old = model(base / "snapshots" / "0ld")
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("abc123\n")
    here = {name: value.format(tmp_path) for name, value in environ.items()}
    assert locate("org/name", here) == main / "tokenizer.json"
    assert locate("org/name@0ld", here) == old / "tokenizer.json"
    with pytest.raises(TokenizerError, match="no revision v2 of org/name"):
        locate("org/name@v2", here)
    with pytest.raises(TokenizerError, match="nor a model in the cache"):
        locate("org/other", here)


def test_the_cache_of_the_user_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TokenizerError, match=r"\.cache/huggingface/hub"):
        locate("gpt2", {})


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no file or folder /nowhere/at/all"):
        locate("/nowhere/at/all", {})
    with pytest.raises(TokenizerError, match=r"has no tokenizer.json, and no tekken.json, tokenizer.model"):
        locate(str(tmp_path), {})
    (tmp_path / "tokenizer.model").touch()
    assert locate(str(tmp_path), {}) == tmp_path / "tokenizer.model"


def test_a_cache_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    base = tmp_path / "models--org--name"
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="tokenizer: org/name: "):
        locate("org/name", {"HF_HUB_CACHE": str(tmp_path)})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{", "not valid JSON"), ("[]", "not a JSON object"), ('{"model": {"type": "Abacus"}}', "is not a tokenizer")],
)
def test_a_file_that_is_no_tokenizer(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(TokenizerError, match=complaint):
        ModelTokenizer(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="directory"):
        ModelTokenizer(tmp_path)


def test_a_template_that_is_not_valid(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"chat template in .* is not valid"):
        loaded(model(tmp_path, template="{% if %}"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("chat_template.jinja", b"caf\xe9"),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default"}]}'),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default", "template": 5}]}'),
        ("tokenizer_config.json", b"[" * 100_000),
    ],
)
def test_a_file_with_something_else_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    folder = model(tmp_path, template=None)
    (folder / file).write_bytes(content)
    with pytest.raises(TokenizerError, match=f"tokenizer: {folder} cannot be read"):
        asyncio.run(load_tokenizer(str(folder), {}))


def test_without_the_packages_the_operator_learns_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model(tmp_path)
    monkeypatch.setitem(sys.modules, "responses_gateway.backend.tokenizer.jinja_environment", None)
    with pytest.raises(TokenizerError, match=r"pip install '\.\[tokenizer\]'"):
        loaded(folder)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r"pip install '\.\[tokenizer\]'"):
        loaded(folder)


# ---- encoding ---------------------------------------------------------------------------------------------------------


def test_the_text_of_a_special_token_is_text_unless_it_is_markup() -> None:
    tokenizer = loaded(TINY_MODEL)
    assert len(tokenizer.encode_markup("<|im_end|>")) == 1
    assert len(tokenizer.encode("<|im_end|>")) > 1
    assert tokenizer.encode("Hello, world").ids == tokenizer.encode_markup("Hello, world").ids


def test_markers_that_are_single_tokens() -> None:
    found = loaded(TINY_MODEL).marker_ids(["<think>", "</think>", "<|im_end|>", "<function=", "Hello", " ", "he"])
    assert found == {"<think>": 1505, "</think>": 1506, "<|im_end|>": 1486}


def test_ids_are_decoded_with_markers_and_without_the_end_token() -> None:
    tokenizer = loaded(TINY_MODEL)
    written = "<think>\nhm\n</think>\n\n<tool_call>\n<function=get_weather>\n</function>\n</tool_call>"
    assert tokenizer.decode(tokenizer.encode_markup(f"{written}<|im_end|>").ids) == written
    assert tokenizer.decode(tokenizer.encode_markup("Hello").ids) == "Hello"
    assert tokenizer.decode([]) == ""


def test_half_a_surrogate_pair_is_one_question_mark(tmp_path: Path) -> None:
    tokenizer = loaded(model(tmp_path))
    assert tokenizer.encode("a\ud83d b").ids == tokenizer.encode("a? b").ids


def test_a_limit_of_the_file_does_not_count(tmp_path: Path) -> None:
    folder = model(tmp_path)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = loaded(folder)
    assert len(tokenizer.encode("1 2 3 4 5 6 7 8 9")) == 17
    assert len(tokenizer.encode("1")) == 1


@pytest.mark.parametrize("kind", PREFIXED)
def test_text_of_the_model_gets_no_space_before_it(tmp_path: Path, kind: str) -> None:
    tokenizer = loaded(model(tmp_path, kind))
    assert len(tokenizer.encode_markup("stream")) == len(tokenizer.encode(" stream"))
    assert tokenizer.encode("stream").ids != tokenizer.encode_markup("stream").ids
    text = "这是一个测试，模型的输出没有空格。" * 100 + " and a stream" * 90
    meter = TokenMeter(tokenizer.encode)
    for at in range(0, len(text), 5):
        meter.feed("text", text[at : at + 5])
    assert meter.totals()["text"] == len(tokenizer.encode(text))


# ---- templates --------------------------------------------------------------------------------------------------------


def test_calls_and_reasoning_are_prepared_as_templates_expect_them() -> None:
    template = (
        "{% for m in messages %}[{{ m.content }}|{{ m.reasoning_content }}|{{ m.reasoning }}|"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}]{% endfor %}"
    )
    calls = [
        {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("f", '{"a": "<é>"}'), ("g", ""), ("h", '{"cut'))
    ]
    messages = [
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": calls},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    assert rendered(template, {"messages": messages}) == '[|hm|hm|f({"a": "<é>"})g({})h("{\\"cut")][a\nb|||]'


def test_tools_have_all_of_their_fields() -> None:
    body = {**HELLO, "tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}
    expected = '{"type": "function", "function": {"name": "f", "description": null, "parameters": null, "strict": true}}'
    assert rendered("{{ tools[0] | tojson }}", body) == expected
    assert rendered("{{ tools is none }}") == "True"


def test_variables_of_the_request_and_of_the_model() -> None:
    body = {**HELLO, "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False, "messages": "mine"}}
    template = (
        "{{ bos_token }}{{ reasoning_effort }} {{ enable_thinking }} {{ messages[0].content }} {{ strftime_now('%d %B %Y') }}"
    )
    assert rendered(template, body, bos_token="<s>") == "<s>low False Hello 20 November 2026"


def test_the_tags_of_templates_in_the_wild() -> None:
    template = "{% for m in messages %}\n  {% generation %}\n{{ m.content }}\n  {% endgeneration %}\n{% break %}{% endfor %}"
    assert rendered(template) == "Hello\n"


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ raise_exception('Roles must alternate!') }}", "refuses these messages: Roles must alternate!"),
        ("{{ messages + 1 }}", "refuses these messages"),
        ("{{ messages[0].content.x.y }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
    ],
)
def test_a_template_that_refuses_is_the_clients_fault(template: str, complaint: str) -> None:
    with pytest.raises(ApiError, match=complaint) as refusal:
        rendered(template)
    assert refusal.value.status == 400


def test_pictures_cannot_be_counted_here() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(ApiError, match="part of type 'image_url'") as refusal:
        rendered(SIMPLE, {"messages": [{"role": "user", "content": [picture]}]})
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("tail", "opened"),
    [
        ("<think>\n", True),
        ("<think>", True),
        ("", False),
        ("<think>\n\n</think>\n\n", False),
        ("[THINK]", True),
        ("<seed:think>Go.", True),
    ],
)
@pytest.mark.parametrize("question", ["Hello", "What does <think> mean?", "</think>"])
def test_a_prompt_that_ends_in_reasoning(tail: str, opened: bool, question: str) -> None:
    template = (
        "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}assistant:" + tail + "{% endif %}"
    )
    body = {"messages": [{"role": "user", "content": question}]}
    assert ChatTemplate({"default": template}, {}).thinking_open(body, *reasoning_markers("auto")) is opened


def test_a_template_that_always_opens_the_answer() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}\nassistant: <think>\n"}, {})
    assert template.thinking_open(HELLO, *reasoning_markers("auto"))


@pytest.mark.parametrize("form", ["text", "list", "file", "old file"])
def test_where_a_template_may_stand(tmp_path: Path, form: str) -> None:
    folder = model(tmp_path, template=None, bos_token={"content": "<s>"}, eos_token="</s>", added_tokens_decoder={})
    config = json.loads((folder / "tokenizer_config.json").read_text())
    match form:
        case "text":
            config["chat_template"] = "{{ bos_token }}x"
        case "list":
            config["chat_template"] = [
                {"name": "default", "template": "{{ bos_token }}x"},
                {"name": "tool_use", "template": "tools{{ eos_token }}"},
            ]
        case "file":
            config["chat_template"] = "an older one"
            (folder / "chat_template.jinja").write_text("{{ bos_token }}x")
            (folder / "additional_chat_templates").mkdir()
            (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools{{ eos_token }}")
        case _:
            (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ bos_token }}x"}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    template = loaded(folder).template
    assert template is not None
    assert template.render(HELLO) == "<s>x"
    tools = template.render({**HELLO, "tools": [{"type": "function", "function": {"name": "f"}}]})
    assert tools == ("tools</s>" if form in ("list", "file") else "<s>x")


def test_special_tokens_of_a_file_of_their_own(tmp_path: Path) -> None:
    folder = model(tmp_path, template="{{ bos_token }}{{ eos_token }}", eos_token="</s>")
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "old"}))
    template = loaded(folder).template
    assert template is not None
    assert template.render(HELLO) == "<s></s>"


def test_without_a_template_nothing_is_counted(tmp_path: Path) -> None:
    tokenizer = loaded(model(tmp_path, template=None))
    assert tokenizer.template is None
    with pytest.raises(ApiError, match=r"chat_template\.jinja") as refusal:
        tokenizer.count_input(HELLO)
    assert refusal.value.status == 400


# ---- against a real server --------------------------------------------------------------------------------------------


def recorded() -> list[dict[str, Any]]:
    """Return what the manifests say of every recorded stream, with the folder and the number of prompt tokens."""
    found = []
    for manifest in sorted(STREAMS.glob("*/manifest.json")):
        for stream in json.loads(manifest.read_text(encoding="utf-8"))["streams"]:
            if stream["status"] == 200:
                last = (manifest.parent / stream["file"]).read_text(encoding="utf-8").rpartition('"prompt_tokens":')[2]
                found.append({**stream, "prompt_tokens": int(last.partition(",")[0])})
    return found


@pytest.mark.slow
def test_prompts_are_counted_as_the_server_counted_them() -> None:
    tokenizer = loaded(TINY_MODEL)
    assert tokenizer.template is not None
    wrong = []
    streams = recorded()
    assert len(streams) > 500
    for stream in streams:
        kwargs = {"fmt": stream["format"], **(stream["request"].get("chat_template_kwargs") or {})}  # fmt: the server's default
        body = {**stream["request"], "chat_template_kwargs": kwargs}
        if tokenizer.count_input(body) != stream["prompt_tokens"]:
            wrong.append((stream["file"], "count"))
        if tokenizer.template.thinking_open(body, *reasoning_markers("auto")) is not (
            stream["prompt_tail"].strip() == "<think>"
        ):
            wrong.append((stream["file"], "thinking_open"))
    assert wrong == []
