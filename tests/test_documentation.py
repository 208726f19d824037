"""What the pages ask their readers to type or to copy: commands that exist, settings that load, files that are there.

Other tests run some of it as it stands: tests/clients the programs and curl commands, tests/codex and tests/commands what is
for Codex, tests/telemetry the queries, tests/deploy the values of the chart."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from responses_gateway.cli import COMMANDS, main, parse
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.settings import ENV_PREFIX, Settings
from responses_gateway.settings.load import load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "tests/attacks.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
# In all pages of docs/ together: who reads one has to find what they look for.
# Room for the rule of each kind of fault that bug reports show, in translation.md and servers.md.
MOST_WORDS = 49_000
# Variables of the gateway that are no settings.
_OTHER_VARIABLES = {f"{ENV_PREFIX}CONFIG", f"{ENV_PREFIX}KEY"}
# Words that had to be read twice: say who does what, and in messages what was expected.
_HARD_WORDS = re.compile(r"\b(?:told|of (?:its|their) own|(?:is|are) expected)\b")
# The parts of the package that speak to the user of a terminal.
_SPEAKING = ("commands", "settings", "probing")
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_ASSIGNMENT = re.compile(r"\w+=")


class Block(NamedTuple):
    """A fenced block of a page."""

    place: str  # page and line
    language: str
    text: str


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(f"{page.relative_to(ROOT)}:{line}", found["language"], found["text"])


BLOCKS = list(_blocks())


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a block, as words, without the variables that are set for them."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language != "sh":  # what a program prints, mostly
        lines = [line for line in lines if line.startswith(("responses-gateway ", "pip "))]
    split = [shlex.split(line, comments=True) for line in lines]
    return [words[_assignments(words) :] for words in split if words]


def _assignments(words: list[str]) -> int:
    return next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))


TYPED = [(block.place, words) for block in BLOCKS for words in commands(block)]


def ours() -> list[tuple[str, list[str]]]:
    """Return the arguments of each call of the gateway's command, and where it is."""
    called = [(place, words[3:] if words[:2] == ["uvx", "--from"] else words) for place, words in TYPED]
    arguments = [(place, words[1:]) for place, words in called if words[:1] == ["responses-gateway"]]
    return [(place, list(takewhile(lambda word: word != ">", words))) for place, words in arguments]


def of_language(*languages: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each block in one of these languages."""
    chosen = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[block.place for block in chosen])


# What is typed


@of_language("sh")
def test_a_shell_can_read_it(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("place", "argv"), ours(), ids=[place for place, _ in ours()])
def test_the_commands_of_the_gateway_have_these_options(
    place: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, args = parse(argv)  # exits if one is unknown
    if argv[0] == "serve":  # the values are right, too
        monkeypatch.chdir(tmp_path)
        argv = [word.replace("~/gateway", str(tmp_path)) for word in argv]  # as the shell does, for the tutorial's folder
        (tmp_path / "gateway.yaml").write_text("backend: http://gpu-server:8000\n", encoding="utf-8")
        if args.tokenizer is not None:
            (tmp_path / args.tokenizer).mkdir(parents=True)
            (tmp_path / args.tokenizer / "tokenizer.json").touch()
        assert main([*argv, "--print-config"]) == 0
        parsers = {name: getattr(args, name) for name in ("reasoning_parser", "tool_call_parser") if getattr(args, name)}
        if args.tokenizer is None:  # else it would be read
            ParserChoice(load(parsers, None, {}), Policy())


def test_every_page_with_commands_is_read() -> None:
    assert {argv[0] for _, argv in ours()} >= set(COMMANDS) - {"simulate"}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_what_the_text_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = "\n".join([*_INLINE.findall(_BLOCK.sub("", text)), *(block["text"] for block in _BLOCK.finditer(text))])
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|&& |; |=\S+ )make ([a-z-]+)\b", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"^responses-gateway ([a-z][a-z-]+)", code, re.MULTILINE)) <= set(COMMANDS)
    assert set(re.findall(r"(?:\bresponses-gateway|\.)\[(\w+)\]'", code)) <= set(PROJECT["optional-dependencies"])
    variables = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    assert set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z]\b", code)) <= variables


def test_files_of_the_repository_that_commands_name_are_there() -> None:
    folders = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
    named = [(place, word) for place, words in TYPED for word in words if word.startswith(folders) or word.endswith(".lock")]
    assert [(place, word) for place, word in named if not (ROOT / word).exists()] == []
    assert named


def test_docker_compose_knows_the_profiles_services_and_variables() -> None:
    services: dict[str, Any] = COMPOSE["services"]
    profiles = {profile for service in services.values() for profile in service.get("profiles", ())}
    calls = [words for _, words in TYPED if words[:2] == ["docker", "compose"]]
    assert calls
    for words in calls:
        assert {after for word, after in pairwise(words) if word == "--profile"} <= profiles
        assert {word for word in words[words.index("up") + 1 :] if not word.startswith("-")} <= set(services)
    set_for_it = re.findall(r"^((?:\w+=\S+ )+)docker compose", "\n".join(block.text for block in BLOCKS), re.MULTILINE)
    names = {name for assignments in set_for_it for name in re.findall(r"(\w+)=", assignments)}
    known = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert names
    assert names <= known


# What is copied


@of_language("json")
def test_it_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.splitlines():  # lines of a log
            json.loads(line)


@of_language("toml")
def test_it_is_toml(block: Block) -> None:
    assert tomllib.loads(block.text)


@of_language("yaml")
def test_it_is_yaml_and_settings_load(block: Block, tmp_path: Path) -> None:
    found = yaml.safe_load(block.text)
    assert found
    if not isinstance(found, dict) or not found.keys() & Settings.model_fields.keys():
        return
    file = tmp_path / "gateway.yaml"
    whole = re.sub(r"sha256:(\w+)…", lambda found: f"sha256:{found[1]:0<64}", block.text)
    file.write_text(whole, encoding="utf-8")
    load({}, file, {"GITHUB_TOKEN": "token"})


@of_language("python")
def test_it_is_python(block: Block) -> None:
    compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_its_links_lead_somewhere(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in link]
    assert [link for link in links if not _leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_begins_with_a_sentence(page: Path) -> None:
    """What it is for stands before the first heading, list, table or block."""
    text = page.read_text(encoding="utf-8")
    (_, after_title) = re.split(r"^# .+$", text, maxsplit=1, flags=re.MULTILINE)
    assert re.match(r"\s*(?:\[|`/?)?[A-Za-z]", after_title)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_no_heading_stands_twice(page: Path) -> None:
    """A link to the second of two would lead to the first."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    assert sorted({heading for heading in headings if headings.count(heading) > 1}) == []


def test_the_page_of_hosted_tools_begins_with_how_to_start() -> None:
    page = (ROOT / "docs" / "hosted-tools.md").read_text(encoding="utf-8")
    start = page.split("\n## ")[1]
    assert start.startswith("Start\n")
    settings = {found for found in re.findall(r"`(\w+)", start) if found in Settings.model_fields}
    assert settings >= {"web_search_url", "code_interpreter", "mcp_servers", "file_search_tools", "image_generation_model"}
    assert "responses-gateway serve" in start


def test_where_containers_and_clusters_are_started_it_stands_that_nobody_has() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "not tested" in readme.partition("docker compose up")[0].rpartition("\n\n")[0].rpartition("\n\n")[2]
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert "no container started" in page.split("\n## ")[0]


def test_each_setting_has_an_anchor() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    anchors = re.findall(r'<a id="([^"]+)"></a>', page)
    assert sorted(anchors) == sorted(Settings.model_fields)
    assert "<class" not in page, "a kind of value is a word for readers"


def test_the_pages_are_short_enough_to_be_read() -> None:
    """A word is what `wc -w` counts, without the lines and bars of tables."""
    words = {page.name: len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in (ROOT / "docs").glob("*.md")}
    assert sum(words.values()) <= MOST_WORDS, f"say it shorter, or drop what another page says: {words}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_one_reading_of_a_page_is_enough(page: Path) -> None:
    assert _HARD_WORDS.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))) == []


def test_one_reading_of_a_message_of_the_command_line_is_enough() -> None:
    """Of its help, too. What a model is asked is no message."""
    package = ROOT / "proxy" / "responses_gateway"
    files = [package / "cli.py", *(file for part in _SPEAKING for file in (package / part).glob("*.py"))]
    texts = [text for file in files if file.name != "agent_tasks.py" for text in _texts_of(file)]
    assert len(texts) > 1000
    assert [text for text in texts if _HARD_WORDS.search(text)] == []


def _texts_of(file: Path) -> Iterator[str]:
    """Yield the texts of a module, without its docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    unused = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unused:
            yield node.value


def test_no_change_is_listed_twice() -> None:
    entries = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n- ")[1:]
    beginnings = [entry.split(":")[0].split("(")[0].strip() for entry in entries]
    assert sorted({beginning for beginning in beginnings if beginnings.count(beginning) > 1}) == []


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    if not target.exists() or not anchor:
        return target.exists()
    text = target.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return f'<a id="{anchor}"></a>' in text or anchor in {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
