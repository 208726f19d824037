"""Reading a YAML file that somebody wrote by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from proxy.settings.section import SettingsError


def read_yaml(path: Path) -> Any:
    """What is in the file. Raises `SettingsError`, which says where a mistake is and not what stands there: it may be a key."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not valid YAML: it is not UTF-8") from None
    except _KeyTwice as error:
        raise SettingsError(f"{path}: not valid YAML{_place(error)}: a key that is there already") from None
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{path}: not valid YAML{_place(error)}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is none, lists in lists without end
        raise SettingsError(f"{path}: not valid YAML") from None


class _KeyTwice(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """A key that is there twice is a mistake: `backend:` twice would be the second one alone."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:  # so say its types
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise _KeyTwice(problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


def _place(error: yaml.MarkedYAMLError) -> str:
    found, begun = error.problem_mark, error.context_mark
    if found is None:
        return ""
    inside = f", in what begins at line {begun.line + 1}" if begun is not None and begun.line != found.line else ""
    return f" at line {found.line + 1}, column {found.column + 1}{inside}"
