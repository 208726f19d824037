"""Hermes and Qwen 3: a JSON object in `<tool_call>` tags. Also Granite 4 and others that took it over."""

from proxy.parsers.format import Call, JsonEnvelope, Reasoning, Tools

THINK = ("<think>",)
THINK_END = ("</think>",)

REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True)

CALL = Call(opens=("<tool_call>",), first=r"\{", arguments=JsonEnvelope(), closes=("</tool_call>",), fillers=("}",))
TOOLS = Tools(calls=(CALL,))
