"""Hunyuan A13B: an array of calls in tags, the answer in tags too. Jamba writes its calls in the same way."""

from proxy.parsers.families.hermes import THINK, THINK_END
from proxy.parsers.format import Call, JsonEnvelope, Reasoning, Tools

REASONING = Reasoning(opens=THINK, closes=THINK_END, wrappers=(("<answer>", "</answer>"),))
CALL = Call(opens=("<tool_calls>",), first=r"\[", arguments=JsonEnvelope(), closes=("</tool_calls>",), fillers=("}", "]"))
TOOLS = Tools(calls=(CALL,))
