"""The data beside the checkout that is not part of the repository: recordings, documents, models. It may be absent."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[2] / "shared"
