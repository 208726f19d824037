"""Build hooks: what is released carries its commit (`version.py` reads it) and the addresses of the repository. A wheel
also has the pages of the documentation, for `responses-gateway docs`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class AddressesHook(MetadataHookInterface):
    """Writes the addresses of a release into the metadata, by that of the repository, which the release workflow gives."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `urls`; none where nothing is released."""
        repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        pages = {"Documentation": "tree/main/docs", "Changelog": "blob/main/CHANGELOG.md", "Issues": "issues"}
        addresses = {name: f"{repository}/{path}" for name, path in pages.items()}
        metadata["urls"] = {"Repository": repository, **addresses} if repository else {}


class CommitHook(BuildHookInterface[Any]):
    """Adds `commit.txt` to the package. An editable install needs none: its checkout is asked."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file and have it packed. Without a commit the package is built all the same."""
        self._folder = tempfile.TemporaryDirectory()
        if version != "editable" and self.target_name == "wheel":
            for page in sorted((Path(self.root) / "docs").glob("[a-z]*.md")):
                build_data["force_include"][str(page)] = f"responses_gateway/docs/{page.name}"
        if version == "editable" or (Path(self.root) / "proxy" / "responses_gateway" / "commit.txt").exists():
            return  # in a source archive the file is packed like the rest
        sys.path.insert(0, str(Path(self.root) / "proxy"))
        from responses_gateway.version import read_commit  # noqa: PLC0415  (needs none of the dependencies)

        commit = read_commit(Path(self.root) / "proxy" / "responses_gateway")
        if commit:
            file = Path(self._folder.name) / "commit.txt"
            file.write_text(f"{commit}\n", encoding="ascii")
            folder = "proxy/responses_gateway" if self.target_name == "sdist" else "responses_gateway"
            build_data["force_include"][str(file)] = f"{folder}/commit.txt"

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Take the file away again."""
        self._folder.cleanup()
