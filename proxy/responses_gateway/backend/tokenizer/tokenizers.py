"""A model's tokenizer on this machine: find it, load it once, encode text, count tokens, name special tokens.

Needs the packages of the extra `tokenizer`; for others than `tokenizer.json` those of `transformers`. Nothing is downloaded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from responses_gateway.backend.tokenizer.chat_template import ChatTemplate
from responses_gateway.backend.tokenizer.conversion import OTHER_FILES, PythonEncoding, PythonTokenizer, TokenizerError, convert
from responses_gateway.extras import how_to_install
from responses_gateway.wire.errors import invalid_request

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

TOKENIZER_FILE = "tokenizer.json"

_CACHE_NAME = re.compile(r"(?P<model>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w.-]+))?")
_SPECIAL_TOKENS = re.compile(r"\w+_token")


class ModelTokenizer:
    """The tokenizer of one model, with its chat template if it has one. Several threads may use it at once."""

    def __init__(self, file: Path, *, trust_remote_code: bool = False) -> None:
        """Load a `tokenizer.json`, or a file of `OTHER_FILES`, and the configuration and template beside it.
        `trust_remote_code`: run the Python code that comes with the model, if its tokenizer needs it. Raises `TokenizerError`.
        It takes a second for a large vocabulary, several if it is converted: call it in a thread."""
        self.file = file
        # What a tokenizer in another format is made of; None for a `tokenizer.json`.
        self._converted = convert(file.parent, trust_remote_code=trust_remote_code) if file.name in OTHER_FILES else None
        self._text = self._load(prefix=False)
        # A model that writes *about* `<|im_end|>` uses ordinary tokens: the token itself never becomes text.
        self._text.encode_special_tokens = True
        self.template = _load_template(file.parent)
        self.response_template = _config(file.parent).get("response_template")

    @cached_property
    def _markup(self) -> Tokenizer | PythonTokenizer:
        """The tokenizer that recognises special tokens, loaded at its first use."""
        return self._load()

    def _load(self, *, prefix: bool = True) -> Tokenizer | PythonTokenizer:
        """Make a tokenizer. `prefix`: it may put a space before the first word."""
        if isinstance(self._converted, PythonTokenizer):
            return self._converted.copy()
        content = _read_json(self.file) if self._converted is None else _decode(self._converted, self.file)
        return _load(content if prefix else _without_prefix(content), self.file)

    def encode(self, text: str) -> Encoding | PythonEncoding:
        """Encode text that a model wrote: no tokens are added, and the text of a special token is ordinary text. Pass it as the
        `encode` of `responses_gateway.stream.tokens.meter`."""
        return _encode(self._text, text)

    def encode_markup(self, text: str) -> Encoding | PythonEncoding:
        """Encode a prompt or raw output: special tokens are recognised, and none is added."""
        return _encode(self._markup, text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of an answer, markers included, without the special token at its end."""
        last = self._text.get_added_tokens_decoder().get(token_ids[-1]) if token_ids else None
        ends = last is not None and last.special
        return self._text.decode(list(token_ids[: len(token_ids) - ends]), skip_special_tokens=False)

    @cached_property
    def special_tokens(self) -> frozenset[str]:
        """The texts of the tokens that were added to the vocabulary."""
        return frozenset(token.content for token in self._text.get_added_tokens_decoder().values())

    def marker_ids(self, markers: Iterable[str]) -> dict[str, int]:
        """Return the markers that are special tokens, with their ids."""
        ids = {token.content: number for number, token in self._text.get_added_tokens_decoder().items()}
        return {marker: ids[marker] for marker in markers if marker in ids}

    def count_input(self, body: Mapping[str, Any]) -> int:
        """Count the tokens of the prompt for the body of a chat request. Raises `ApiError` 400 if there is no template, or if
        it refuses the messages. It takes milliseconds for long conversations: call it in a thread."""
        if self.template is None:
            raise invalid_request(
                "The gateway's tokenizer has no chat template. Put the model's chat_template.jinja beside its tokenizer.json.",
                code="input_tokens_unavailable",
            )
        return len(self.encode_markup(self.template.render(body)))


async def load_tokenizer(source: str, environ: Mapping[str, str], *, trust_remote_code: bool = False) -> ModelTokenizer:
    """Load a tokenizer in a thread (see `locate`). Raises `TokenizerError`."""
    try:
        return await asyncio.to_thread(lambda: ModelTokenizer(locate(source, environ), trust_remote_code=trust_remote_code))
    except (OSError, RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:  # of files with something else
        raise TokenizerError(f"tokenizer: {source} cannot be read: {error}") from None


def locate(source: str, environ: Mapping[str, str]) -> Path:
    """Find a `tokenizer.json`, or else a file of `OTHER_FILES`. Raises `TokenizerError`. `source` is the file, a folder that
    contains it, or the name of a model in the local Hugging Face cache (`Qwen/Qwen3-8B`, with `@revision` if not main)."""
    try:
        path = Path(source).expanduser()
        if path.is_file():
            return path
        if path.is_dir():
            return _in_folder(path)
        name = _CACHE_NAME.fullmatch(source)
        if name is None:
            raise TokenizerError(f"tokenizer: there is no file or folder {source}")
        return _in_folder(_snapshot(name["model"], name["revision"] or "main", _cache(environ)))
    except (OSError, RuntimeError, ValueError) as error:  # a folder that this user may not open; a home that there is not
        raise TokenizerError(f"tokenizer: {source}: {error}") from None


def _in_folder(folder: Path) -> Path:
    for name in (TOKENIZER_FILE, *OTHER_FILES):
        if (folder / name).is_file():
            return folder / name
    raise TokenizerError(f"tokenizer: {folder} has no {TOKENIZER_FILE}, and no {', '.join(OTHER_FILES)}")


def _cache(environ: Mapping[str, str]) -> Path:
    """Return the folder of cached models, by the rules of `huggingface_hub`."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    base = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(environ.get("HF_HOME") or base).expanduser() / "hub"


def _snapshot(model: str, revision: str, cache: Path) -> Path:
    folder = cache / f"models--{model.replace('/', '--')}"
    if not folder.is_dir():
        raise TokenizerError(f"tokenizer: {model} is neither a file or folder nor a model in the cache {cache}")
    reference = folder / "refs" / revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    if not snapshot.is_dir():
        raise TokenizerError(f"tokenizer: the cache {cache} has no revision {revision} of {model}")
    return snapshot


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return _decode(file.read_bytes(), file)
    except OSError as error:
        raise TokenizerError(f"tokenizer: {file}: {error.strerror}") from None


def _decode(text: bytes, file: Path) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(text)
    except ValueError:
        raise TokenizerError(f"tokenizer: {file} is not valid JSON") from None
    if not isinstance(content, dict):
        raise TokenizerError(f"tokenizer: {file} is not a JSON object")
    return content


def _load(content: Mapping[str, Any], file: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise _extra_missing() from None
    try:
        tokenizer: Tokenizer = Tokenizer.from_str(msgspec.json.encode(content).decode())
    except Exception as error:  # the library raises plain `Exception`
        raise TokenizerError(f"tokenizer: {file} is not a tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _extra_missing() -> TokenizerError:
    return TokenizerError(f"tokenizer: packages are missing: {how_to_install('tokenizer')}")


def _encode(tokenizer: Tokenizer | PythonTokenizer, text: str) -> Encoding | PythonEncoding:
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except (TypeError, UnicodeEncodeError):  # half a surrogate pair, which the client gets as a question mark, too
        return tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)


def _without_prefix(content: Mapping[str, Any]) -> dict[str, Any]:
    """Change a tokenizer so that it puts no space before the first word, for text from the middle of an answer."""
    stages = {name: _unprefixed(content.get(name)) for name in ("normalizer", "pre_tokenizer")}
    return {**content, **stages}


def _unprefixed(stage: Any) -> Any:
    """Return a normalizer or pre-tokenizer that adds nothing to the beginning of a text; None if nothing else is left of it."""
    if not isinstance(stage, dict):
        return stage
    kind = stage.get("type")
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {**{key: value for key, value in stage.items() if key != "add_prefix_space"}, "prepend_scheme": "never"}
    if kind == "ByteLevel":
        return {**stage, "add_prefix_space": False}
    for members in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and isinstance(stage.get(members), list):
            kept = [_unprefixed(member) for member in stage[members]]
            return {**stage, members: [member for member in kept if member is not None]}
    return stage


def _config(folder: Path, name: str = "tokenizer_config.json") -> dict[str, Any]:
    file = folder / name
    return _read_json(file) if file.is_file() else {}


def _load_template(folder: Path) -> ChatTemplate | None:
    config = _config(folder)
    sources = _template_sources(folder, config)
    if not sources:
        return None
    try:
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415  (an extra)

        try:
            return ChatTemplate(sources, _special_tokens(folder, config))
        except TemplateSyntaxError as error:
            raise TokenizerError(f"tokenizer: the chat template in {folder} is not valid: {error}") from None
    except ImportError:
        raise _extra_missing() from None


def _template_sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates by name, none without a `default`. Files of their own take precedence over the configuration."""
    sources: dict[str, str] = {}
    template = config.get("chat_template")
    if template is None:
        template = _config(folder, "chat_template.json").get("chat_template")
    if isinstance(template, str):
        sources["default"] = template
    elif isinstance(template, Sequence):
        sources.update((entry["name"], entry["template"]) for entry in template)
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        sources[file.stem] = file.read_text(encoding="utf-8")
    main = folder / "chat_template.jinja"
    if main.is_file():
        sources["default"] = main.read_text(encoding="utf-8")
    return sources if "default" in sources else {}


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return `bos_token` and the like by name, as templates use them."""
    tokens: dict[str, str] = {}
    for name, value in {**_config(folder, "special_tokens_map.json"), **config}.items():
        text = value.get("content") if isinstance(value, dict) else value
        if _SPECIAL_TOKENS.fullmatch(name) and isinstance(text, str):
            tokens[name] = text
    return tokens
