"""Which reader reads which syntax of arguments."""

from __future__ import annotations

from collections.abc import Callable

from proxy.parsers.arguments.elements import ElementsReader
from proxy.parsers.arguments.envelope import EnvelopeReader, JsonReader
from proxy.parsers.arguments.literals import LiteralBody
from proxy.parsers.arguments.parameters import ParametersReader
from proxy.parsers.arguments.python_calls import PythonReader
from proxy.parsers.arguments.reader import Body
from proxy.parsers.format import Call, Elements, JsonArguments, JsonEnvelope, Literal, Parameters, PythonCalls
from proxy.parsers.lexer import Lexer
from proxy.parsers.output import Output


def body_of(call: Call, name: str, call_id: str, output: Output, markers: Callable[..., Lexer], outer: tuple[str, ...]) -> Body:
    """A reader for the arguments of `call`. `markers` makes a lexer; `outer` are markers that end the call from outside."""
    syntax = call.arguments
    stops = markers(*call.closes, *outer)
    match syntax:
        case JsonArguments():
            return JsonReader(name, call_id, output, stops)
        case JsonEnvelope():
            return EnvelopeReader(syntax, call, output, stops)
        case Parameters():
            return ParametersReader(syntax, call, name, call_id, output, markers, outer)
        case Elements():
            return ElementsReader(syntax, call, name, call_id, output, markers, outer)
        case Literal():
            return LiteralBody(name, call_id, output, stops, markers(*syntax.quotes))
        case PythonCalls():
            return PythonReader(call, output, stops)
