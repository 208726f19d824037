"""InternLM: a JSON object after a marker for plug-ins, inside a block for actions."""

from responses_gateway.parsers.format import CallBlock, CallFormat, Family, JsonEnvelope, NameSign, TemplateSign, ToolFormat

CALL = CallFormat(opens=("<|plugin|>",), first=r"\{", arguments=JsonEnvelope())
BLOCK = CallBlock(opens=("<|action_start|>",), closes=("<|action_end|>",), calls=(CALL,))

FAMILY = Family(
    tools={"internlm": ToolFormat(blocks=(BLOCK,))},
    names=(
        NameSign("internlm", None, "internlm"),
        NameSign("intern-s1", "deepseek_r1", "internlm"),
        NameSign("intern-s2", "qwen3", "qwen3_coder"),
    ),
    tool_signs=(TemplateSign("<|action_start|>", "internlm"),),
)
