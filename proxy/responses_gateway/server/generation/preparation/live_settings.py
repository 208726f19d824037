"""The settings in force, which may change while the gateway runs. A request takes one value of them at its first line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.preparation.encrypted_content import COMPACTION_PROMPT
from responses_gateway.settings import ApiKey, Settings


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings, and what was made of them for translating requests and answers."""

    settings: Settings
    parsers: ParserChoice

    @property
    def identifies_backends(self) -> bool:
        """It matters whether a backend can send the ids of its tokens."""
        return self.settings.token_ids == "auto" and self.parsers.any_raw


class LiveSettings:
    """Holds the current value. Only settings of translation and parsers take effect; the rest stays as at the start."""

    def __init__(self, settings: Settings, parsers: ParserChoice, identify_backends: Callable[[], None]) -> None:
        """`identify_backends` is called when it begins to matter what a backend is."""
        self.current = InForce(settings, parsers)
        self.given = settings  # without keys that were added
        self._added_keys: Mapping[str, ApiKey] = MappingProxyType({})
        self._identify_backends = identify_backends

    def use(self, settings: Settings) -> None:
        """Take settings that were found out for the requests that come from now on."""
        self._take(settings, self.current.parsers.changed(settings, translation_policy(settings)))

    def replace(self, settings: Settings) -> None:
        """Take settings that were given anew. Raise `ValueError` for parsers that are not there."""
        self._take(settings, self.current.parsers.replaced(settings, translation_policy(settings)))

    def add_keys(self, keys: Mapping[str, ApiKey]) -> None:
        """Take the keys that were made at run time, in place of those before; a key of the settings that has the same name
        comes first. The key of a team that the settings do not have opens nothing, since its team's limits are unknown."""
        self._added_keys = keys
        self._take(self.given, self.current.parsers)

    def _take(self, settings: Settings, parsers: ParserChoice) -> None:
        self.given = settings
        if self._added_keys:
            added = {name: key for name, key in self._added_keys.items() if key.team is None or key.team in settings.teams}
            settings = settings.model_copy(update={"api_keys": {**added, **settings.api_keys}})
        self.current = InForce(settings, parsers)
        if self.current.identifies_backends:
            self._identify_backends()


def translation_policy(settings: Settings) -> Policy:
    """Return how requests are translated under these settings."""
    return Policy(
        system_messages=settings.system_messages,
        late_developer=settings.late_developer,
        user_messages=settings.user_messages,
        reasoning_field=settings.reasoning_field,
        reasoning_effort=settings.reasoning_effort,
        max_tokens_field=settings.max_tokens_field,
        default_max_output_tokens=settings.default_max_output_tokens,
        named_tool_choice=settings.named_tool_choice,
        forward=frozenset(settings.forward),
        moderates=settings.moderation_model is not None,
        service_tier_priorities=settings.service_tier_priorities,
        url_inputs=settings.url_inputs,
        custom_tool_grammar=settings.custom_tool_grammar,
        strict=settings.strict,
        compaction_trigger_prompt=COMPACTION_PROMPT,
        compacts_context=True,
        encrypts_reasoning=True,
        stores_responses=settings.store != "none",
    )
