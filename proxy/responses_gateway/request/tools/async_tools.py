"""Tools with `async: true`: the model does not wait for their results, which may come in any later request.

Open models know nothing of such tools. Two hints tell them, one in the description of the tool and one in the place of the
result of a call; without them models mostly invent the result."""

from __future__ import annotations

# The types of tools that may be asynchronous.
MAY_BE_ASYNC = frozenset({"function", "custom"})

# The end of the description of such a tool.
RESULTS_COME_LATER = (
    "This tool works in the background: its result comes in a later message. Until it is there, do not guess the result, "
    "and do not call the tool again for the same thing."
)
# What the model reads as the result of a call until there is one.
PENDING = (
    "This call runs in the background. Its result is not there yet: do not guess it, and do not make the call again. "
    "Go on with the rest of the request."
)
