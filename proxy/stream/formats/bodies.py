"""Which reader reads which syntax of arguments."""

from __future__ import annotations

from collections.abc import Callable

from .body import Body
from .elements import ElementsReader
from .envelope import EnvelopeReader, JsonReader
from .format import Call, Elements, JsonArguments, JsonEnvelope, Literal, Parameters, PythonCalls
from .lexer import Lexer
from .literals import LiteralBody
from .output import Output
from .parameters import ParametersReader
from .python_calls import PythonReader


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
