"""Inkling: messages, each of which begins with a marker that tells what it is. The prompt ends in the header of the first."""

from responses_gateway.parsers.format import (
    ChannelFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

_CONTENTS = tuple(f"<|content_{kind}|>" for kind in ("text", "thinking", "invoke_tool_json", "invoke_tool_text", "tool_error"))

CHANNELS = ChannelFormat(
    opens=("<|message_model|>", *_CONTENTS),
    messages=_CONTENTS,
    ends=("<|end_message|>", "<|content_model_end_sampling|>"),
    header=r"\s{0,8}[\w.\-:/]{0,128}\s{0,8}",  # the name of the tool, which the call repeats
    channel=r"<\|content_(\w+)\|>",
    recipient=r"<\|content_(invoke_tool_json)\|>",
    reasoning=("thinking",),
    arguments=JsonEnvelope(arguments=("args", "arguments", "parameters")),
    begins=True,
)

FAMILY = Family(
    reasoning={"inkling": ReasoningFormat(channels=CHANNELS)},
    tools={"inkling": ToolFormat(channels=CHANNELS)},
    names=(NameSign("inkling", "inkling", "inkling"),),
    reasoning_signs=(TemplateSign("<|content_thinking|>", "inkling"),),
    tool_signs=(TemplateSign("<|content_invoke_tool_json|>", "inkling"),),
)
