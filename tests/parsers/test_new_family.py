"""A new model family is one file: a copy of the gateway with a made-up family knows it everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAMILY = """
from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, NameSign
from responses_gateway.parsers.format import ReasoningFormat, TemplateSign, ToolFormat

CALL = CallFormat(opens=("<<call>>",), first=r"\\{", arguments=JsonEnvelope(), closes=("<</call>>",))
FAMILY = Family(
    reasoning={"madeup": ReasoningFormat(opens=("<<hm>>",), closes=("<</hm>>",))},
    tools={"madeup": ToolFormat(calls=(CALL,))},
    names=(NameSign("made-up", "madeup", "madeup"),),
    reasoning_signs=(TemplateSign("<<hm>>", "madeup"),),
    tool_signs=(TemplateSign("<<call>>", "madeup"),),
)
"""
PROGRAM = """
import runpy
from responses_gateway.parsers import detect, markers, parser
from responses_gateway.wire.deltas import Reasoning, Text, ToolArguments, ToolCall

text = '<<hm>>Hm.<</hm>>Look.<<call>>{"name": "f", "arguments": {}}<</call>>'
expected = [Reasoning("Hm."), Text("Look."), ToolCall(0, "", "f"), ToolArguments(0, "{}")]
for name in ("madeup", "auto"):
    assert parser(name, name, schemas={"f": {}}, thinking_open=False).feed(text) == expected
    assert "<<call>>" in markers(name, name)
assert detect("someone/Made_Up-7B", None) == ("madeup", "madeup")
assert detect("x", "<<hm>> <<call>>") == ("madeup", "madeup")
page = runpy.run_path("scripts/generate_docs.py")
assert "| `madeup` | `<<hm>>` `<</hm>>` | `<<call>>`, JSON |" in page["_names"]()
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "proxy"), str(folder / "scripts")])}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def copy_with(folder: Path, **families: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("proxy", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name, code in families.items():
        (folder / "proxy" / "responses_gateway" / "parsers" / "families" / f"{name}.py").write_text(code, encoding="utf-8")


@pytest.mark.slow
def test_a_file_is_all_that_a_family_takes(tmp_path: Path) -> None:
    copy_with(tmp_path, made_up=FAMILY)
    done = run(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr


def test_a_name_belongs_to_one_family(tmp_path: Path) -> None:
    copy_with(tmp_path, made_up=FAMILY, made_up_again=FAMILY)
    done = run(tmp_path, "import responses_gateway.parsers")
    assert "ValueError: two model families have the parser names madeup" in done.stderr
