"""What EndpointSlices (discovery.k8s.io/v1) mean: which endpoints get requests. Plain data, no I/O.

A service has several slices: by family of addresses, by set of ports, and because each has a limited number of endpoints. While
an endpoint moves from one to another it may be in both."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from responses_gateway.backend.discovery.interface import Target, address_of, is_address

SERVICE_LABEL = "kubernetes.io/service-name"


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object or a list."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Port(msgspec.Struct, frozen=True):
    """A port of the pods; without a number it means all of them."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Conditions(msgspec.Struct, frozen=True):
    """What is known of an endpoint; None: nothing."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Reference(msgspec.Struct, frozen=True):
    """The pod of an endpoint."""

    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One pod. The first of the addresses counts: all are the same pod's."""

    addresses: list[str]
    conditions: Conditions | None = None
    target_ref: Reference | None = None


class Slice(msgspec.Struct, frozen=True, rename="camel"):
    """A slice, or the `Status` in an event that tells of an error."""

    metadata: Metadata = Metadata()
    address_type: str = ""
    ports: list[Port] | None = None
    endpoints: list[Endpoint] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""

    def belongs_to(self, service: str) -> bool:
        """Tell whether it is one of a Service's, as was asked for."""
        return (self.metadata.labels or {}).get(SERVICE_LABEL, service) == service


class SliceList(msgspec.Struct, frozen=True):
    """The answer to a list."""

    metadata: Metadata
    items: list[Slice]


class SliceEvent(msgspec.Struct, frozen=True):
    """A line of a watch."""

    type: str
    object: Slice


_READY = Conditions()


def targets_of(slices: Iterable[Slice], port: str) -> tuple[list[Target], str]:
    """Return the endpoints that may get requests, by `port`: a name, a number, or empty for the only one there is; and what is
    wrong with the ports."""
    ranked: dict[str, tuple[tuple[bool, bool], Target]] = {}
    problem = ""
    for each in slices:
        if not each.endpoints:
            continue  # that of a Service without pods has no ports, either
        try:
            number = _port(each, port)
        except ValueError as error:
            problem = str(error)
            continue
        for endpoint in each.endpoints:
            target = _target(endpoint, number)
            if target is None:
                continue
            pod = endpoint.target_ref.uid if endpoint.target_ref is not None else ""
            # A pod with addresses of both families is one backend; a ready endpoint tells more than one that drains.
            rank = (target.draining, each.address_type == "IPv6")
            key = pod or target.address
            if key not in ranked or rank < ranked[key][0]:
                ranked[key] = (rank, target)
    by_address = {target.address: target for _, target in sorted(ranked.values(), key=lambda entry: entry[0], reverse=True)}
    return sorted(by_address.values(), key=lambda target: target.address), problem


def _target(endpoint: Endpoint, port: int) -> Target | None:
    """Return the target of an endpoint; None if it takes no requests: it starts, fails its probe, or is about to be killed.
    A condition that is absent is true, except for `terminating` (which `ready` does not tell where a Service publishes
    endpoints that are not ready)."""
    state = endpoint.conditions or _READY
    if not endpoint.addresses or state.serving is False or (state.ready is False and not state.terminating):
        return None
    address = address_of(endpoint.addresses[0], port)
    if not is_address(address):
        return None
    name = endpoint.target_ref.name if endpoint.target_ref is not None else ""
    return Target(address, draining=bool(state.terminating), pod=name)


def _port(each: Slice, name_or_number: str) -> int:
    """Return the number of the wanted port. Raises `ValueError`, which says which ports there are."""
    ports = [port for port in each.ports or () if port.port is not None and port.protocol in (None, "TCP")]
    fitting = [port for port in ports if name_or_number in ("", port.name, str(port.port))]
    if len(fitting) == 1 and fitting[0].port is not None:
        return fitting[0].port
    names = ", ".join(port.name or str(port.port) for port in ports) or "none"
    if name_or_number:
        raise ValueError(f"the endpoints have no port {name_or_number}, but {names}")
    raise ValueError(f"the endpoints have several ports, or none: name one with `port` ({names})")
