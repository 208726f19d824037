"""The tiny model that all servers run: its folder, and the variants of its chat template.

It plays a script by heart for "Please play scenario: NAME". With `questions` its template also maps the ordinary questions of
a probe (the weather in Paris, 17 times 23) to scripts; otherwise it answers all of those with a greeting.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.data_folder import BESIDE

FOLDER = Path(os.environ.get("TINYMODEL") or BESIDE / "tinymodel").absolute()
# The languages of chat templates differ: llama.cpp's has no `split` that takes all of these calls.
_SPLIT = """(text.split("scenario:")[-1].split() + ["hello"])[0].strip(".,;!?\\"'`")"""
_SPLIT_OF_LLAMA_CPP = "text.split('scenario:')[-1] | trim"

_THOUGHT = "{%- if thought %}"
_THOUGHT_OF_THIS_TURN = "{%- if thought and (preserve_thinking | default(false) or loop.index0 > turn.begin) %}"
_BEGIN_OF_THE_TURN = """{%- set turn = namespace(begin=0) %}
{%- for m in messages %}{%- if m.role == "user" %}{%- set turn.begin = loop.index0 %}{%- endif %}{%- endfor %}
"""
_ANSWER = """{%- set ns.after_tool = false %}
    {{- "<|im_start|>assistant\\n" }}"""
_ANSWER_WITH_CUE = """{%- set ns.after_tool = false %}
    {%- set steps = known.get(fmt, {}).get(ns.name, 1) %}
    {{- "<|cue|>" + fmt + " " + ns.name + " " + ([ns.step, steps - 1] | min | string) + "\\n" }}
    {{- "<|im_start|>assistant\\n" }}"""

_CALL = '{{- "\\n<tool_call>'
_CALL_AS_IT_WAS = '{{- ("\\n" if text or not loop.first else "") + "<tool_call>'


def is_there() -> bool:
    """Tell whether the model can be served."""
    return (FOLDER / "model" / "config.json").exists()


def chat_template(*, questions: bool, for_llama_cpp: bool = False) -> str:
    """Return the text of the chat template."""
    if for_llama_cpp and not questions:
        return (FOLDER / "chat_template.llama_cpp.jinja").read_text(encoding="utf-8")
    name = "chat_template.questions.jinja" if questions else "model/chat_template.jinja"
    text = (FOLDER / name).read_text(encoding="utf-8")
    return text.replace(_SPLIT, _SPLIT_OF_LLAMA_CPP) if for_llama_cpp else text


def copy_model(target: Path, *, questions: bool, markup: str) -> Path:
    """Copy the model into `target`, with this template, which writes calls in this markup unless asked for another one."""
    shutil.copytree(FOLDER / "model", target)
    (target / "chat_template.jinja").write_text(template_of(questions=questions, markup=markup), encoding="utf-8")
    return target


def template_of(*, questions: bool, markup: str) -> str:
    """Return the text of the chat template, which writes calls in this markup unless asked for another one."""
    return chat_template(questions=questions).replace('default("hermes")', f'default("{markup}")')


def without_earlier_thoughts(template: str) -> str:
    """Return a template that leaves out the thoughts before the user's last message, unless `preserve_thinking` is set, and
    that changes nothing else of what was said: the cue of an answer stays."""
    changes = {_THOUGHT: _THOUGHT_OF_THIS_TURN, _ANSWER: _ANSWER_WITH_CUE, _CALL: _CALL_AS_IT_WAS}
    for before, after in changes.items():
        assert before in template
        template = template.replace(before, after)
    return _BEGIN_OF_THE_TURN + template
