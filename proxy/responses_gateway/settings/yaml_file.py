"""Reads YAML files, strictly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from responses_gateway.settings.section import SettingsError

# What may be the name of a setting, and is no secret.
_NAME = re.compile("[a-z_]{1,40}")


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises `SettingsError`, which tells the place of an error but not the text: it may be a key."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not valid YAML: it is not UTF-8") from None
    except _DuplicateKey as error:
        raise SettingsError(f"{path}: not valid YAML{_place(error)}: {error.problem} occurs twice") from None
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{path}: not valid YAML{_place(error)}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # an invalid date, deeply nested lists
        raise SettingsError(f"{path}: not valid YAML") from None


class _DuplicateKey(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys: of `backend:` twice only the second would count."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:  # as its types require
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    name = key.value if _NAME.fullmatch(key.value) else "a key"
                    raise _DuplicateKey(problem=name, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    context = error.context_mark
    if mark is None:
        return ""
    inside = ""
    if context is not None and context.line != mark.line:
        inside = f", in the block that begins at line {context.line + 1}"
    return f" at line {mark.line + 1}, column {mark.column + 1}{inside}"
