"""EXAONE: Deep has thoughts in tags of its own and was not taught to call tools; the others write Hermes calls."""

from responses_gateway.parsers.format import Family, NameSign, ReasoningFormat

# In an answer that they do not begin these tags may be anybody's.
REASONING = ReasoningFormat(opens=("<thought>",), closes=("</thought>",), implicit=True, at_start=True)

FAMILY = Family(
    reasoning={"exaone_deep": REASONING},
    names=(
        NameSign("exaone-deep", "exaone_deep", None),
        NameSign("exaone-4.0", "deepseek_v3", "hermes"),
        NameSign("k-exaone", None, "hermes"),
    ),
)
