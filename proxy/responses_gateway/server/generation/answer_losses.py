"""What of a request the backend's answer did not honour, though it could be translated."""

from __future__ import annotations

from collections.abc import Sequence

from responses_gateway.request import Loss

_NO_LOGPROBS = Loss("parameter", "include", "ignored", "the backend sent no log probabilities")


def logprob_losses(output: Sequence[str]) -> list[Loss]:
    """Return what the output of a request for log probabilities, as the JSON of its items, shows to be lost."""
    texts = [item for item in output if '"type":"output_text"' in item and '"text":""' not in item]
    if not texts or any('"logprobs":[{' in item for item in texts):
        return []
    return [_NO_LOGPROBS]
