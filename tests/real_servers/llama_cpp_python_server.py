"""Serve a GGUF file with llama-cpp-python's HTTP server and a chat template of our own, which its command line does not take.

Run by the Python that has `llama_cpp`, not by ours. The arguments behind the template are those of `llama_cpp.server`."""

from __future__ import annotations

import sys
from pathlib import Path

from llama_cpp.llama_chat_format import Jinja2ChatFormatter, LlamaChatCompletionHandlerRegistry
from llama_cpp.server.__main__ import main

_FORMAT = "tiny"

template = Path(sys.argv.pop(1)).read_text(encoding="utf-8")
formatter = Jinja2ChatFormatter(template, eos_token="<|im_end|>", bos_token="")
LlamaChatCompletionHandlerRegistry().register_chat_completion_handler(_FORMAT, formatter.to_chat_handler())
sys.argv += ["--chat_format", _FORMAT]
main()
