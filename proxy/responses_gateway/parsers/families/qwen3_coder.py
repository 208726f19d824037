"""Qwen 3 Coder and Qwen 3.5 to 3.8: parameters as tags. Nemotron 3, MiMo, Step 3.5 and Seed OSS vary it."""

from dataclasses import replace

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)


def function_tags(block_opens: str, block_closes: str, trim: bool = True) -> ToolFormat:
    """Build the format `<function=N><parameter=K>V</parameter></function>` in a block, whose tags may be missing."""
    parameters = TaggedParameters(opens=("<parameter=",), heads=(">",), closes=("</parameter>",), trim=trim)
    call = CallFormat(opens=("<function=",), header=CallHeader(ends=(">",)), arguments=parameters, closes=("</function>",))
    # Within the block the model may write attributes.
    attributes = replace(parameters, opens=("<parameter=", "<parameter name="))
    either = replace(call, opens=("<function=", "<function name="), arguments=attributes)
    # Now and then it writes more tags around its blocks.
    block = CallBlock(opens=(block_opens, "<tool_calls>"), closes=(block_closes, "</tool_calls>"), calls=(either,))
    return ToolFormat(calls=(call,), blocks=(block,))


TOOLS = function_tags("<tool_call>", "</tool_call>")

FAMILY = Family(
    tools={"qwen3_coder": TOOLS, "qwen3_xml": TOOLS},
    names=(
        NameSign("qwen3-coder", None, "qwen3_coder", priority=3),
        *(NameSign(f"qwen3.{version}", "qwen3", "qwen3_coder", priority=3) for version in (5, 6, 7, 8)),
        NameSign("trinity-large-thinking", "deepseek_r1", "qwen3_coder"),
        NameSign("minicpm-v-4.6", None, "qwen3_coder"),
    ),
    tool_signs=(TemplateSign("<function=", "qwen3_coder"),),
    original=True,
)
