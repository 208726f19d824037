"""gpt-oss (harmony): messages with a header that names a channel and perhaps a recipient."""

from responses_gateway.parsers.format import ChannelFormat, Family, NameSign, ReasoningFormat, TemplateSign, ToolFormat


def beginning(word: str) -> str:
    """Build a regular expression for the word and each of its beginnings."""
    pattern = ""
    for letter in reversed(word):
        pattern = f"(?:{letter}{pattern})?"
    return pattern


_WORDS = "|".join(beginning(word) for word in ("assistant", "analysis", "commentary", "final"))

CHANNELS = ChannelFormat(
    opens=("<|start|>", "<|channel|>"),
    messages=("<|message|>",),
    ends=("<|end|>", "<|call|>", "<|return|>"),
    header=rf"\s*(?:{_WORDS})(?![a-z])[\w\s.=\-<|>]{{0,400}}",
    channel=r"<\|channel\|>\s*(\w+)",
    recipient=r"\bto=(?:functions\.)?(?!(?:user|all|assistant)\b)([\w.\-]+)",
    reasoning=("analysis",),
)
REASONING = ReasoningFormat(channels=CHANNELS)

FAMILY = Family(
    reasoning={"openai_gptoss": REASONING},
    tools={"openai": ToolFormat(channels=CHANNELS)},
    names=tuple(NameSign(name, "openai_gptoss", "openai", priority=3) for name in ("gpt-oss", "gptoss")),
    reasoning_signs=(TemplateSign("<|channel|>analysis", "openai_gptoss"),),
    tool_signs=(TemplateSign("<|channel|>commentary", "openai"),),
)
