"""Calls as a Python list: Llama 3.2, Llama 4, Olmo 3, LFM 2.

Without a marker only the names of offered tools make a call: lists and links in prose begin in the same way.
"""

from proxy.parsers.families.hermes import THINK, THINK_END
from proxy.parsers.format import Call, PythonCalls, Reasoning, Tools

OLMO3_REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True)

BARE = Call(opens=("",), first=r"\[", arguments=PythonCalls(), declared_only=True)
LFM2_CALL = Call(opens=("<|tool_call_start|>",), first=r"[\[\w]", arguments=PythonCalls(), closes=("<|tool_call_end|>",))
LLAMA4_CALL = Call(opens=("<|python_start|>",), first=r"\[", arguments=PythonCalls(), closes=("<|python_end|>",))
OLMO3_CALL = Call(opens=("<function_calls>",), first=r"[\[\w]", arguments=PythonCalls(), closes=("</function_calls>",))
TOOLS = Tools(bare=(BARE,))
LLAMA4_TOOLS = Tools(calls=(LLAMA4_CALL,), bare=(BARE,))
OLMO3_TOOLS = Tools(calls=(OLMO3_CALL,))
LFM2_TOOLS = Tools(calls=(LFM2_CALL,))
