"""Serve a GGUF file with llama.cpp's own HTTP server. Run by the Python that has `xllamacpp`, not by ours."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("template", type=Path)
parser.add_argument("port", type=int)
parser.add_argument("markup")
parser.add_argument("--raw", action="store_true", help="leave thoughts in the text")
parser.add_argument("--no-jinja", action="store_true")
chosen = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = chosen.model
params.model_alias = {"tiny"} if isinstance(params.model_alias, set) else ["tiny"]
params.port = chosen.port
params.hostnames = ["127.0.0.1"] if isinstance(params.hostnames, list) else "127.0.0.1"
params.chat_template = chosen.template.read_text(encoding="utf-8")
params.default_template_kwargs = {"fmt": json.dumps(chosen.markup)}
params.use_jinja = not chosen.no_jinja
params.n_ctx = 32768
params.n_parallel = 4
params.n_gpu_layers = 0
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.sampling.top_k = 1
params.endpoint_metrics = True
params.endpoint_slots = True
if chosen.raw:
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
server = xllamacpp.Server(params)
signal.pause()
