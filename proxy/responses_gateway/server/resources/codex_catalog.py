"""What Codex must know about a model beyond what a backend tells: a table of families, shipped as `models.yaml`, and
the operator's own before it (`model_table` in the settings).

A table is a YAML list. Each entry names its models by glob patterns, compared without regard to case with the model's id, with
its root (vLLM's name for the weights), and with the part of each behind the last slash. Of each table the first entry that
matches counts; the operator's fields go before the shipped ones. The fields bear the names and take the values of Codex's own
catalog, checked when the table is read: one wrong value would make Codex throw the whole catalog away."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from responses_gateway.settings import SettingsError, first_problem

_PACKAGE = Path(__file__).parents[2]
SHIPPED_TABLE = _PACKAGE / "models.yaml"
SHIPPED_PROMPT = _PACKAGE / "prompts" / "codex.md"

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_EFFORTS: dict[str, str] = {
    "none": "Answer at once, without thinking first",
    "minimal": "Hardly any thinking",
    "low": "Short thinking, quick answers",
    "medium": "Thinking as long as the task seems to need",
    "high": "Long thinking, for hard problems",
    "xhigh": "Very long thinking",
    "max": "As long as it takes",
}


# What Codex reads a number of tokens into: one that is larger makes it refuse the whole catalog.
_MOST_TOKENS = 2**63 - 1
Tokens = Annotated[int, Field(gt=0, le=_MOST_TOKENS)]


class ModelEntry(BaseModel):
    """What a table says of the models that match; a field that is not given is left to the entries behind."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    match: tuple[str, ...] = Field(min_length=1)
    prompt: Path | None = None  # file of the base prompt; a relative path starts at the table
    display_name: str | None = None
    description: str | None = None
    visibility: Literal["list", "hide"] = "list"
    # place in the list, lowest first; the first one is Codex's default
    priority: int = Field(default=1, ge=-(2**31), lt=2**31)
    context_window: Tokens | None = None  # in tokens; the smaller of this one and the backend's counts
    max_context_window: Tokens | None = None  # the most that a user may set as `model_context_window`
    auto_compact_token_limit: Tokens | None = None
    input_modalities: tuple[Literal["text", "image"], ...] = ("text",)
    supports_image_detail_original: bool = False  # images may be sent in their full size
    supported_reasoning_levels: tuple[Effort, ...] = ()
    default_reasoning_level: Effort | None = None
    default_reasoning_summary: Literal["none", "auto", "concise", "detailed"] = "auto"
    shell_type: Literal["default", "local", "shell_command", "unified_exec", "disabled"] = "unified_exec"
    apply_patch_tool_type: Literal["freeform"] | None = "freeform"  # `null` leaves the tool out
    support_verbosity: bool = False
    default_verbosity: Literal["low", "medium", "high"] | None = None
    supports_parallel_tool_calls: bool = True
    supports_search_tool: bool = False
    tool_mode: Literal["code_mode", "code_mode_only"] | None = None
    multi_agent_version: Literal["v2", "disabled"] | None = None
    use_responses_lite: bool = False
    web_search_tool_type: Literal["text", "text_and_image"] | None = None
    # the model that reviews requests for approval, where another one than that of the session
    auto_review_model_override: str | None = None
    tool_output_tokens: Tokens = 10000  # longest tool output that Codex sends, in tokens

    @field_validator("match", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def matches(self, names: Iterable[str]) -> bool:
        """Tell whether one of the patterns fits one of the names, which are in lower case."""
        return any(map(self._pattern.match, names))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """All patterns as one: a backend may list hundreds of models, each of which is compared with every entry."""
        return re.compile("|".join(translate(pattern.lower()) for pattern in self.match))


class ModelTable:
    """The operator's table before the shipped one. `catalog_entry` joins what they say with what the backend says."""

    def __init__(self, operators: tuple[ModelEntry, ...] = ()) -> None:
        self._operators = operators

    def find(self, model_id: str, root: str | None = None) -> ModelEntry:
        """Return the entry for a model, its fields taken from the first table that gives them."""
        names = [name for full in (model_id, root or model_id) for name in (full.lower(), full.lower().rpartition("/")[2])]
        fields: dict[str, Any] = {"match": (model_id,)}
        for table in (_shipped(), self._operators):  # the shipped one is read for the first client that asks
            entry = next((entry for entry in table if entry.matches(names)), None)
            if entry is not None:
                fields.update((name, getattr(entry, name)) for name in entry.model_fields_set)
        return ModelEntry(**fields)

    def catalog_entry(self, model: dict[str, Any]) -> dict[str, Any]:
        """Return the model of Codex's catalog for one of the backend's list; `model["id"]` is a string.

        It has every field that any version of Codex since 0.98 requires; optional fields without a value are left out, because
        not all of them may be null."""
        root = model.get("root")
        entry = self.find(model["id"], root if isinstance(root, str) else None)
        served = context_length(model)
        window = min((size for size in (entry.context_window, served) if size), default=None)
        levels = [{"effort": effort, "description": _EFFORTS[effort]} for effort in entry.supported_reasoning_levels]
        fields = entry.model_dump(mode="json", exclude={"match", "prompt", "tool_output_tokens"}) | {
            "slug": model["id"],
            "display_name": entry.display_name or model["id"],
            "description": entry.description or (f"{window:,} tokens of context" if window else "Context length unknown"),
            "supported_reasoning_levels": levels,
            "supports_reasoning_summaries": True,  # required before 0.169
            "supported_in_api": True,
            "base_instructions": base_prompt(entry.prompt or SHIPPED_PROMPT),
            "truncation_policy": {"mode": "tokens", "limit": entry.tool_output_tokens},
            "context_window": window,
            "max_context_window": min((size for size in (entry.max_context_window, served) if size), default=None),
            "experimental_supported_tools": [],
        }
        return {name: value for name, value in fields.items() if value is not None}


def context_length(model: dict[str, Any]) -> int | None:
    """Tokens of context, by whichever name the backend's list has for it: vLLM and SGLang, OpenRouter, Groq, llama.cpp (served,
    then trained)."""
    meta = model.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    named = [model.get(name) for name in ("max_model_len", "context_length", "context_window", "max_context_length")]
    candidates = [*named, meta.get("n_ctx"), meta.get("n_ctx_train")]
    return next((size for size in candidates if type(size) is int and 0 < size <= _MOST_TOKENS), None)


def load_model_table(path: Path | None) -> ModelTable:
    """Return the operator's table, if there is one, before the shipped one. Raises `SettingsError`."""
    return ModelTable() if path is None else ModelTable(_read(path))


@cache
def _shipped() -> tuple[ModelEntry, ...]:
    return _read(SHIPPED_TABLE)


@cache
def base_prompt(path: Path) -> str:
    """Return the text of a prompt, read once."""
    return path.read_text(encoding="utf-8")


def _read(path: Path) -> tuple[ModelEntry, ...]:
    from responses_gateway.settings.yaml_file import read_yaml  # noqa: PLC0415  (most gateways never read a table)

    try:
        content = read_yaml(path)
    except SettingsError as error:
        raise SettingsError(f"model_table: {error}") from None
    if not isinstance(content, list):
        raise SettingsError(f"model_table: {path}: a list is expected, of entries such as `- match: my-model*`")
    return tuple(_entry(path, number, fields) for number, fields in enumerate(content, start=1))


def _entry(path: Path, number: int, fields: object) -> ModelEntry:
    try:
        entry = ModelEntry.model_validate(fields)
        if entry.prompt is None:
            return entry
        prompt = path.parent / entry.prompt
        base_prompt(prompt)
    except ValidationError as error:
        name, what = first_problem(error, ModelEntry.model_fields)
        raise SettingsError(f"model_table: {path}: entry {number}: {name}: {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"model_table: {path}: entry {number}: prompt: {error}") from None
    return entry.model_copy(update={"prompt": prompt})
