"""Where the data of tests is: what the repository carries (`tests/data`), and what lies beside the checkout, or is absent."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
DATA = _ROOT / "tests" / "data"
_ARCHIVE = DATA / "recordings.tar.xz"

# Streams that others recorded, captured requests of clients, the weights of the tiny model.
BESIDE = Path(os.environ.get("SHARED") or _ROOT.parent / "shared")


def _unpacked() -> Path:
    """Return the folder with the content of the archive, unpacked by the first process that needs it.

    Its name has the archive's digest, so that another version is another folder."""
    digest = hashlib.sha256(_ARCHIVE.read_bytes()).hexdigest()[:16]
    folder = _ROOT / ".cache" / "test-data" / digest
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole, because the workers of a run begin at the same time and must not read half of it.
        own = Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(_ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
            archive.extractall(own)
        try:
            own.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(own)
    return folder


CARRIED = _unpacked()
STREAMS = CARRIED / "streams"
TINY_MODEL = CARRIED / "tinymodel" / "model"
