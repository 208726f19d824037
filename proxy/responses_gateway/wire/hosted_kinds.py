"""The kinds of tools that the gateway runs itself, a row each: what the rooms above know of a kind, as plain values.

What a row cannot say is code: `hosted/` runs the tool, `server/features/hosted_tools/` opens it for a request. Where an item
shows more of a call than its text and its result, `stream/items/hosted.py` says what; where a model reads more of it than
the result that was kept, `request/input/calls.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Schema = dict[str, Any]


class HostedFunction(NamedTuple):
    """A function by which the model calls a tool. `trained_name`: what gpt-oss calls it, which was trained with such a tool."""

    name: str
    description: str
    parameters: Schema
    trained_name: str = ""


class ItemForm(NamedTuple):
    """The form of the item of a call: its type, its members, and the names of its events in the order in which OpenAI sends
    them: progress, its text if it has one, more progress, its end. `response.TYPE.` stands before each name.

    `text`: the member with the text that is shown while it comes. It is the argument of this name; of `arguments` all of them.
    `ends`: the ends that have an event; of any other the item itself tells. `known`: the members that are known when the item
    is added. `empty`: the members that it is added with, in the place of those that it will have. All others it has only when
    it is done. `interrupted`: the status of a call that was interrupted. `on_request`: the member that only those clients get
    that ask for it with `include`."""

    type: str
    id_prefix: str
    before: tuple[str, ...]
    text: str = ""
    after: tuple[str, ...] = ()
    ends: tuple[str, ...] = ("completed",)
    known: tuple[str, ...] = ()
    empty: Mapping[str, Any] = MappingProxyType({})
    interrupted: str = "incomplete"
    on_request: str = ""

    def added(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members that an item is added with which will be this one."""
        return {name: self.empty.get(name, item[name]) for name in item if name in self.known or name in self.empty}

    @property
    def text_event(self) -> str:
        """The events of the text, without `.delta` and `.done`."""
        return f"response.{self.type}_{self.text}"

    @property
    def text_argument(self) -> str:
        """The argument whose text is shown, and which a model may write as it is; empty where all or none of them are shown."""
        return "" if self.text == "arguments" else self.text

    @property
    def include(self) -> str:
        """The value of `include` that asks for the member `on_request`."""
        return f"{self.type}.{self.on_request}"


class HostedKind(NamedTuple):
    """A kind of tool.

    `name`: what the types of its declarations begin with (some have a date or a suffix), and its name in reports and metrics.
    `setting`: the setting without which it cannot be run. `functions`: none where servers list them.
    `read_as`: how an item of an earlier call is shown to the model. `unread`: when it is not."""

    name: str
    setting: str
    item: ItemForm
    functions: tuple[HostedFunction, ...] = ()
    read_as: str = ""
    unread: str = ""


def arguments(required: list[str], properties: dict[str, Schema]) -> Schema:
    """Return the schema of the arguments of a function."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def described(kind: str, description: str) -> Schema:
    """Return the schema of an argument."""
    return {"type": kind, "description": description}


_QUERIES = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "What to search for."}
_ENDS_OF_MCP = ("completed", "failed")

MCP = HostedKind(
    "mcp",
    setting="mcp_servers",
    item=ItemForm(
        "mcp_call",
        "mcp",
        ("in_progress",),
        text="arguments",
        ends=_ENDS_OF_MCP,
        known=("server_label", "name", "approval_request_id"),
        empty={"arguments": "", "output": None, "error": None},
    ),
    read_as="shown as a function call with its output",
)
WEB_SEARCH = HostedKind(
    "web_search",
    setting="web_search_url",
    item=ItemForm(
        "web_search_call",
        "ws",
        ("in_progress", "searching"),
        interrupted="failed",  # because the type has no other status for it
        on_request="action.sources",
    ),
    functions=(
        HostedFunction(
            "web_search",
            "Searches the web. Returns titles, addresses and excerpts of pages, each with a number to cite it by.",
            arguments(["queries"], {"queries": _QUERIES}),
            "browser.search",
        ),
        HostedFunction(
            "open_page",
            "Opens a web page and returns its text.",
            arguments(
                ["url"],
                {
                    "url": described("string", "The address of the page, as a search or the user gave it."),
                    "line": described("integer", "The line to begin at, to go on in a long page."),
                },
            ),
            "browser.open",
        ),
        HostedFunction(
            "find_in_page",
            "Finds a text in a web page and returns the passages that contain it.",
            arguments(
                ["url", "pattern"],
                {"url": described("string", "The address of the page."), "pattern": described("string", "The text to find.")},
            ),
            "browser.find",
        ),
    ),
    read_as="shown as a function call, with the results if those are stored",
    unread="it has no action",
)
FILE_SEARCH = HostedKind(
    "file_search",
    setting="file_search_tools",
    item=ItemForm(
        "file_search_call", "fs", ("in_progress", "searching"), empty={"queries": [], "results": None}, on_request="results"
    ),
    functions=(
        HostedFunction(
            "file_search",
            "Searches the user's files. Returns passages, each with a number to cite it by.",
            arguments(["queries"], {"queries": _QUERIES}),
        ),
    ),
    read_as="shown as a function call with its results, stored or in the item",
    unread="there are no results, stored or in the item",
)
CODE_INTERPRETER = HostedKind(
    "code_interpreter",
    setting="code_interpreter",
    item=ItemForm(
        "code_interpreter_call",
        "ci",
        ("in_progress",),
        text="code",
        after=("interpreting",),
        known=("container_id",),
        empty={"code": "", "outputs": None},
        on_request="outputs",
    ),
    functions=(
        HostedFunction(
            "python",
            "Runs Python code in a sandbox and returns what it prints. There is the standard library alone, and no network. "
            "Variables and the files in /mnt/data are kept between calls; image files written there are shown to the user.",
            arguments(["code"], {"code": described("string", "The code to run.")}),
            "python",
        ),
    ),
    read_as="shown as a function call with its logs, stored or in the item",
)
IMAGE_GENERATION = HostedKind(
    "image_generation",
    setting="image_generation_model",
    item=ItemForm(
        "image_generation_call",
        "ig",
        ("in_progress", "generating"),
        empty={"result": None},
        interrupted="failed",  # because the type has no other status for it
    ),
    functions=(
        HostedFunction(
            "generate_image",
            "Generates an image and shows it to the user.",
            arguments(["prompt"], {"prompt": described("string", "What the image shows, in detail.")}),
        ),
    ),
    read_as="shown as a function call",
    unread="it has no `revised_prompt`",
)

HOSTED: dict[str, HostedKind] = {kind.name: kind for kind in (WEB_SEARCH, MCP, FILE_SEARCH, CODE_INTERPRETER, IMAGE_GENERATION)}
# The kinds by the types of their items.
HOSTED_CALLS: dict[str, HostedKind] = {kind.item.type: kind for kind in HOSTED.values()}
# The item that shows the tools of an MCP server; its events are those of a call.
TOOL_LIST = ItemForm(
    "mcp_list_tools", "mcpl", ("in_progress",), ends=_ENDS_OF_MCP, known=("server_label",), empty={"tools": []}
)
# What has such events, by type.
ITEM_FORMS: dict[str, ItemForm] = {TOOL_LIST.type: TOOL_LIST, **{kind.item.type: kind.item for kind in HOSTED.values()}}
