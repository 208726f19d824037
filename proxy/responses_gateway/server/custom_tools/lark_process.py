"""Runs on its own (`python -I lark_process.py`): one grammar and one text as JSON on stdin, the result as JSON on stdout.

Nothing of the gateway is imported here, so that it starts within a tenth of a second."""

from __future__ import annotations

import json
import re
import sys

# Lark would look for any other import in the file system.
_FOREIGN_IMPORT = re.compile(r"%import\s++(?!common\b)")
_LONGEST_REASON = 500


def check(definition: str, text: str) -> dict[str, str]:
    """Return `outcome` and `reason`, as in `grammar_check.CheckResult`."""
    try:
        from lark import Lark  # noqa: PLC0415  (an extra)
        from lark.exceptions import LarkError, UnexpectedInput  # noqa: PLC0415
    except ImportError:
        return {"outcome": "skipped", "reason": "the extra `grammars` is not installed"}
    if _FOREIGN_IMPORT.search(definition):
        return {"outcome": "skipped", "reason": "only terminals of Lark's `common` can be imported"}
    try:
        parser = Lark(definition, parser="earley", ambiguity="forest")
    except (LarkError, re.error, OSError, RecursionError) as error:
        return {"outcome": "skipped", "reason": f"Lark does not accept the grammar: {error}"[:_LONGEST_REASON]}
    try:
        parser.parse(text)
    except UnexpectedInput as error:
        return {"outcome": "invalid", "reason": str(error)[:_LONGEST_REASON]}
    return {"outcome": "valid", "reason": ""}


if __name__ == "__main__":
    print(json.dumps(check(**json.load(sys.stdin))))
