"""Hunyuan A13B: an array of calls in tags, the answer in tags too. Jamba writes its calls in the same way."""

from proxy.stream.formats.format import Call, JsonEnvelope, Reasoning, Tools

from .hermes import THINK, THINK_END

REASONING = Reasoning(opens=THINK, closes=THINK_END, wrappers=(("<answer>", "</answer>"),))
CALL = Call(opens=("<tool_calls>",), first=r"\[", arguments=JsonEnvelope(), closes=("</tool_calls>",), fillers=("}", "]"))
TOOLS = Tools(calls=(CALL,))
