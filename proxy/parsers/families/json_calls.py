"""Families that differ only in the marker before their JSON calls."""

from proxy.parsers.format import Block, Call, JsonEnvelope, Reasoning, Tools

_JSON = JsonEnvelope()

PHI4_MINI_CALL = Call(opens=("functools",), first=r"\[", arguments=_JSON)
PHI4_MINI_TOOLS = Tools(calls=(PHI4_MINI_CALL,))

LONGCAT_REASONING = Reasoning(opens=("<longcat_think>",), closes=("</longcat_think>",))
LONGCAT_CALL = Call(
    opens=("<longcat_tool_call>",), first=r"\{", arguments=_JSON, closes=("</longcat_tool_call>",), fillers=("}",)
)
LONGCAT_TOOLS = Tools(calls=(LONGCAT_CALL,))

INTERNLM_CALL = Call(opens=("<|plugin|>",), first=r"\{", arguments=_JSON)
INTERNLM_BLOCK = Block(opens=("<|action_start|>",), closes=("<|action_end|>",), calls=(INTERNLM_CALL,))
INTERNLM_TOOLS = Tools(blocks=(INTERNLM_BLOCK,))

APERTUS_REASONING = Reasoning(opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",))
APERTUS_CALL = Call(
    opens=("<|tools_prefix|>",), first=r"\[", arguments=JsonEnvelope(name_is_key=True), closes=("<|tools_suffix|>",)
)
APERTUS_TOOLS = Tools(calls=(APERTUS_CALL,))

GIGACHAT3_CALL = Call(
    opens=("function call<|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>", "<|function_call|>"),
    first=r"\{",
    arguments=_JSON,
)
GIGACHAT3_TOOLS = Tools(calls=(GIGACHAT3_CALL,))

XLAM_TOOLS = Tools(
    calls=(
        Call(opens=("<tool_call>",), first=r"[\[{]", arguments=_JSON, fillers=("</tool_call>",)),
        Call(opens=("[TOOL_CALLS]",), first=r"[\[{]", arguments=_JSON),
        Call(opens=("```json\n",), first=r"\[", arguments=JsonEnvelope(strict=True), fillers=("```",)),
    ),
    bare=(Call(opens=("",), first=r"\[", arguments=JsonEnvelope(strict=True)),),
)
