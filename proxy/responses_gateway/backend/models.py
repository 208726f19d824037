"""Which of the backends serve a model, and what all of them say of it."""

from __future__ import annotations

from typing import NamedTuple

from responses_gateway.backend.member import Member
from responses_gateway.backend.members import Members
from responses_gateway.backend.policies.alike import difference
from responses_gateway.backend.policies.routers import PAUSES
from responses_gateway.backend.served_models import ModelCatalogue, PoolSpec, no_such_model


class Partners(NamedTuple):
    """The backends that may continue each other's answers to a model, and how often. `checkpoint`: what all of them list of the
    model; empty if they were not compared, because the settings vouch for them."""

    members: list[Member]
    attempts: int
    checkpoint: str = ""


NOBODY = Partners([], 0)


class ServedModels:
    """The models of all backends, by the names that clients use."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def serving(self, model: str) -> list[Member]:
        """Return the same as `candidates`. Raises `ApiError` 404 if there are none, and none can come."""
        serving = self.candidates(model)
        if not serving and self._members.by_name and not self.awaits(model):
            raise no_such_model(model, (member.catalogue for member in self._members.by_name.values()))
        return serving

    def candidates(self, model: str) -> list[Member]:
        """Return the backends that are known to serve a model, or else those of which that is not known. A single one serves
        any model, unless the settings say what it serves."""
        only = self._members.only
        members = list(self._members.by_name.values())
        if not model or (only is not None and not only.catalogue.restricted):
            return members
        answers = [(member.catalogue.serves(model), member) for member in members]
        return [member for answer, member in answers if answer] or [member for answer, member in answers if answer is None]

    def awaits(self, model: str) -> bool:
        """Tell whether a member that serves the model may come: there is a pool without members that could have one."""
        pools = self._members.pools
        if not pools:
            return False
        filled = {member.spec.pool for member in self._members.by_name.values()}
        empty = (pool for name, pool in pools.items() if name not in filled)
        return any(self._of_pool(pool).serves(model) is not False for pool in empty)

    def _of_pool(self, pool: PoolSpec) -> ModelCatalogue:
        """Return what the last member of a pool served, or what the settings say that its members serve."""
        return self._members.last_catalogues.get(pool.name) or ModelCatalogue(pool.models, pool.aliases)

    def partners(self, model: str, least: int = 2) -> Partners:
        """Return which backends may continue each other's answers to a model: those that the settings vouch for, or else those
        about which they say nothing, if these are alike and there are `least` of them."""
        able = [member for member in self.candidates(model) if member.spec.continue_answers != 0]
        vouched = [member for member in able if member.vouched_for]
        if vouched:
            return _partners(vouched, model)
        checkpoints = [member.catalogue.checkpoint(model) for member in able]
        if len(able) < least or difference(checkpoints):
            return NOBODY
        return _partners(able, model, checkpoints[0] or "")

    def context_of(self, model: str) -> int | None:
        """Return how many tokens the context of a model has at every backend that may get it; None if one does not tell."""
        only = self._members.only
        if only is not None and not only.catalogue.restricted:
            return only.catalogue.context(model)
        lengths = [member.catalogue.context(model) for member in self.candidates(model)]
        known = [length for length in lengths if length is not None]
        return min(known) if known and len(known) == len(lengths) else None

    def all_vllm(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model is vLLM."""
        only = self._members.only
        if only is not None:
            return only.is_vllm
        return all(member.catalogue.owner(model) == "vllm" for member in self.candidates(model))

    def take_client_key(self, model: str) -> bool:
        """Tell whether a backend that may get a request for this model, now or later, gets the key of its client."""
        candidates = self.candidates(model)
        return not candidates or any(member.backend.takes_client_key for member in candidates)

    def all_report_usage(self, model: str) -> bool:
        """Tell whether every backend that may get a request for this model has reported the usage of one before."""
        return all(member.usage_reported for member in self.candidates(model))

    def usage_reported(self, backend: str) -> None:
        """Note that a backend reported the usage of a request."""
        if backend in self._members.by_name:
            self._members.by_name[backend].usage_reported = True


def _partners(members: list[Member], model: str, checkpoint: str = "") -> Partners:
    able = [member for member in members if member.continues(model)]
    attempts = (member.spec.continue_answers or (len(PAUSES) if member.router else 1) for member in able)
    return Partners(able, max(attempts, default=0), checkpoint)
