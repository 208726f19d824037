"""Llama 3 and 4 with JSON calls: the answer is one or more objects, or they follow `<|python_tag|>`."""

from proxy.parsers.format import Call, JsonEnvelope, Tools

BARE = Call(opens=("",), first=r"\{", arguments=JsonEnvelope(strict=True))
TOOLS = Tools(calls=(Call(opens=("<|python_tag|>",), first=r"\{", arguments=JsonEnvelope()),), bare=(BARE,))
