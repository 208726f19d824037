"""Qwen 3 Coder and Qwen 3.5: parameters as tags. Nemotron 3, MiMo, Step 3.5 and Seed OSS vary it."""

from proxy.parsers.format import Block, Call, Header, Parameters, Tools

_NAME = r"""\s*["']?(?P<name>[^"'<>\s]+)["']?\s*"""
_KEY = r"""["']?(?P<key>[^"'<>]+)["']?"""


def function_tags(block_opens: str, block_closes: str, trim: bool = True) -> Tools:
    """`<function=N><parameter=K>V</parameter></function>`, in a block; the block's own tags may be missing."""
    call = Call(
        opens=("<function=",),
        header=Header(pattern=_NAME, ends=(">",)),
        arguments=Parameters(opens=("<parameter=",), heads=(">",), closes=("</parameter>",), header=_KEY, trim=trim),
        closes=("</function>",),
    )
    return Tools(calls=(call,), blocks=(Block(opens=(block_opens,), closes=(block_closes,), calls=(call,)),))


TOOLS = function_tags("<tool_call>", "</tool_call>")
