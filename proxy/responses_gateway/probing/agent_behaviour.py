"""How well a model behaves in the turns of an agent: what its answers came to, as a table, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from responses_gateway.probing.agent_checks import ToolChecks
from responses_gateway.probing.diagnosis import Finding, Row

# How answers end that did not finish their work.
EARLY = ("announced", "reasoning_only", "empty", "finish_without_call", "malformed_call", "call_in_thought")
# How a call is that a client runs, or of which nobody can tell.
_GOOD = ("valid", "unchecked")
# How servers are told to show the model its tools, and to parse its calls.
_TEMPLATE = {
    "vllm": "start it with --chat-template FILE",
    "sglang": "start it with --chat-template FILE",
    "llamacpp": "start it with --jinja, and --chat-template-file FILE",
    "ollama": "give the Modelfile a TEMPLATE with {{ .Tools }}",
}
_PARSER = {
    "vllm": "start it with the --tool-call-parser and --reasoning-parser of this model",
    "sglang": "start it with the --tool-call-parser and --reasoning-parser of this model",
    "llamacpp": "start it with --jinja, and the template of this model",
}


class TaskOutcome(NamedTuple):
    """What came of one task: how its answers ended, of what validity their calls were, how many of those could be repaired, how
    many calls repeated earlier ones, and why it could not be played to its end."""

    ends: Sequence[str]
    calls: Sequence[str]
    repairable: int
    repeats: int
    problem: str | None


class Behaviour(NamedTuple):
    """The outcomes of all tasks together."""

    tasks: int
    answers: int
    ends: Mapping[str, int]
    calls: Mapping[str, int]
    repairable: int
    repeats: int
    problems: Sequence[str]

    @property
    def early(self) -> dict[str, int]:
        """The answers that ended early, by kind."""
        return {name: number for name, number in self.ends.items() if name in EARLY}

    @property
    def refused(self) -> dict[str, int]:
        """The calls that a client would refuse, by kind."""
        return {name: number for name, number in self.calls.items() if name not in _GOOD}


def behaviour_of(outcomes: Sequence[TaskOutcome]) -> Behaviour:
    """Add up the outcomes of tasks."""
    ends = Counter(end for outcome in outcomes for end in outcome.ends)
    calls = Counter(call for outcome in outcomes for call in outcome.calls)
    problems = [outcome.problem for outcome in outcomes if outcome.problem is not None]
    return Behaviour(
        len(outcomes),
        ends.total(),
        ends,
        calls,
        sum(outcome.repairable for outcome in outcomes),
        sum(outcome.repeats for outcome in outcomes),
        problems,
    )


def behaviour_rows(behaviour: Behaviour) -> Iterator[Row]:
    """Yield the lines of the table."""
    early = behaviour.early
    refused = behaviour.refused
    calls = sum(behaviour.calls.values())
    yield Row("tasks, answers, calls", f"{behaviour.tasks}, {behaviour.answers}, {calls}", None)
    yield Row("turns that ended early", _counts(early, behaviour.answers), not early)
    yield Row("calls a client would refuse", _counts(refused, calls), not refused)
    yield Row("calls that repeat earlier ones", str(behaviour.repeats), behaviour.repeats == 0)
    if cut := behaviour.ends.get("length"):
        yield Row("answers cut at a limit", str(cut), False)


def behaviour_findings(behaviour: Behaviour, checks: ToolChecks, server: str) -> Iterator[Finding]:
    """Yield what is wrong, and what to change."""
    if checks.ignores_tools:
        text = f"The server ignores tools: a prompt has {checks.tokens_with} tokens with them; {checks.tokens_without} without."
        change = _TEMPLATE.get(server, "give it a chat template that has a place for tools")
        yield Finding("error", text, f"No model sees its tools: {change}, or serve another model.")
    if checks.ignored_choices:
        text = f"The server ignores tool_choice: {', '.join(checks.ignored_choices)}."
        yield Finding("warning", text, "Clients cannot force or forbid a call; agents seldom do.")
    if behaviour.problems:
        yield Finding("warning", f"{len(behaviour.problems)} tasks could not be played: {behaviour.problems[0]}")
    if behaviour.answers and not behaviour.calls and not checks.ignores_tools:
        text = "The model made no call in any task."
        yield Finding("warning", text, f"Its calls may be markup that nobody parses: {_parser(server)}. Or it is too small.")
    yield from _early_findings(behaviour.early, server)
    if behaviour.refused:
        text = f"A client would refuse calls: {_counts(behaviour.refused, sum(behaviour.calls.values()))}."
        advice = (
            f"The setting repair_calls: safe, the default for most agents, repairs {behaviour.repairable} of them; "
            "strict_calls: auto prevents them if the server can."
        )
        yield Finding("warning", text, advice)
    if behaviour.repeats:
        advice = "The setting repetition_notice: true adds a notice for the model that it repeats itself."
        yield Finding("warning", f"Calls repeat earlier ones, with the same result: {behaviour.repeats}.", advice)


def _early_findings(early: Mapping[str, int], server: str) -> Iterator[Finding]:
    markup = {name: early[name] for name in ("malformed_call", "call_in_thought") if name in early}
    if markup:
        text = f"Calls were lost in markup: {_counts(markup)}."
        yield Finding("warning", text, f"The server's parser may not fit: {_parser(server)}.")
    if any(name != "announced" for name in early):
        advice = "The setting continue_early_ends: certain asks the model to go on, in the same response."
        yield Finding("warning", f"Turns ended early: {_counts(early)}.", advice)
    elif early:
        advice = "The setting continue_early_ends: all asks the model to go on after announcements, too."
        yield Finding("warning", f"Turns ended with an announced step: {_counts(early)}.", advice)


def _parser(server: str) -> str:
    return _PARSER.get(server, "see whether it has a parser for this model, or set tool_call_parser")


def _counts(numbers: Mapping[str, int], whole: int | None = None) -> str:
    """Write numbers by kind, the most frequent first."""
    kinds = ", ".join(f"{name} {number}" for name, number in sorted(numbers.items(), key=lambda entry: -entry[1]))
    if whole is None:
        return kinds
    total = sum(numbers.values())
    return f"{total} of {whole}: {kinds}" if total else f"0 of {whole}"
