"""gpt-oss (harmony): messages with a header that names a channel and perhaps a recipient."""

from proxy.parsers.format import Channels, Reasoning, Tools


def _beginning(word: str) -> str:
    """An expression for the word and each of its beginnings."""
    pattern = ""
    for letter in reversed(word):
        pattern = f"(?:{letter}{pattern})?"
    return pattern


_WORDS = "|".join(_beginning(word) for word in ("assistant", "analysis", "commentary", "final"))

CHANNELS = Channels(
    opens=("<|start|>", "<|channel|>"),
    message="<|message|>",
    ends=("<|end|>", "<|call|>", "<|return|>"),
    header=rf"\s*(?:{_WORDS})(?![a-z])[\w\s.=\-<|>]{{0,400}}",
    channel=r"<\|channel\|>\s*(\w+)",
    recipient=r"\bto=(?:functions\.)?(?!(?:user|all|assistant)\b)([\w.\-]+)",
    reasoning=("analysis",),
)
REASONING = Reasoning(channels=CHANNELS)
TOOLS = Tools(channels=CHANNELS)
