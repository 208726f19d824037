"""Which models a backend serves, and under which names."""

from __future__ import annotations

import json

import pytest

from responses_gateway.backend.served_models import BackendSpec, Listing, ModelCatalogue, no_such_model, with_model


def catalogue(patterns: tuple[str, ...] = (), listed: tuple[str, ...] | None = None, **aliases: str) -> ModelCatalogue:
    return ModelCatalogue(patterns, aliases, None if listed is None else Listing(dict.fromkeys(listed, "vllm")))


@pytest.mark.parametrize(
    ("made", "serves"),
    [
        (catalogue(), None),
        (catalogue(listed=("qwen3",)), True),
        (catalogue(listed=("other",)), False),
        (catalogue(listed=("other",), qwen3="other"), True),
        (catalogue(("Qwen*",)), True),
        (catalogue(("llama*",), ("qwen3",)), False),
        (catalogue(("llama*",), qwen3="llama-4"), True),
    ],
)
def test_whether_a_model_is_served(made: ModelCatalogue, serves: bool | None) -> None:
    assert made.serves("qwen3") is serves


def test_an_alias_is_another_name_for_the_backends_own() -> None:
    made = catalogue(listed=("qwen3",), gpt="qwen3")
    assert [made.own_name(name) for name in ("gpt", "qwen3", "x")] == ["qwen3", "qwen3", "x"]
    assert made.names() == ["qwen3", "gpt"]
    assert made.owner("gpt") == "vllm"


def test_a_model_that_nobody_serves_is_answered_with_those_that_are() -> None:
    error = no_such_model("x" * 500, [catalogue(listed=("a", "b")), catalogue(listed=("b",), c="b")])
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert error.message.endswith("does not exist. Served here: `a`, `b`, `c`.")
    assert len(error.message) < 200


def test_a_renamed_body_is_the_same_but_for_its_model() -> None:
    body = b'{"model":"a","messages":[{"model":"a","n":1.50,"text":"\\u00e4\xc3\xa4"}],"seed":12345678901234567890}'
    changed = with_model(body, 'b"')
    assert changed == body.replace(b'{"model":"a","messages', b'{"model":"b\\"","messages', 1)
    assert json.loads(changed)["model"] == 'b"'


def test_a_key_is_not_printed() -> None:
    assert "hunter2" not in repr(BackendSpec("a", "http://a/v1", api_key="hunter2"))
