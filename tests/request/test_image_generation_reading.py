"""The options of `image_generation`: sent to the server of images, or named as lost."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.tools.hosted_tools import read_image_generation
from responses_gateway.wire.errors import ApiError


def test_options_are_sent_or_named() -> None:
    tool = {"type": "image_generation", "size": "1024x1024", "quality": "auto", "output_compression": 50, "partial_images": 2}
    options = read_image_generation({**tool, "action": "edit"}, "tools[0]")
    assert options.sent == {"size": "1024x1024", "output_compression": 50}
    assert [loss.partition(":")[0] for loss in options.losses] == ["partial_images", "action"]


@pytest.mark.parametrize("wrong", [{"size": 5}, {"output_compression": "high"}, {"output_compression": True}, {"action": []}])
def test_a_wrong_type_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        read_image_generation({"type": "image_generation", **wrong}, "tools[0]")
    assert (caught.value.status, caught.value.param) == (400, f"tools[0].{next(iter(wrong))}")
