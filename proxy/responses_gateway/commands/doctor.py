"""`responses-gateway doctor`: examine a backend or a running gateway, and say what to change."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from responses_gateway.backend.discovery.interface import Target
from responses_gateway.commands import fits_header, printable
from responses_gateway.commands.argument_types import positive
from responses_gateway.commands.client_files import back_up
from responses_gateway.commands.smoke_test import Step, run_smoke_test
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.extras import how_to_install
from responses_gateway.hosted.documents import pdf_obstacle
from responses_gateway.hosted.search.pages import page_obstacle
from responses_gateway.probing.agent_behaviour import Behaviour, behaviour_findings, behaviour_of, behaviour_rows
from responses_gateway.probing.agent_checks import check_tools
from responses_gateway.probing.diagnosis import Finding, Row, findings, rows, server_name
from responses_gateway.probing.prober import probe
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.recommend import recommended_settings
from responses_gateway.settings import BackendPool, SettingsError, backend_url
from responses_gateway.settings.load import load
from responses_gateway.wire.errors import ApiError

WORKS = 0
BROKEN = 1
UNUSABLE = 2

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_DEFAULT_URL = "http://127.0.0.1:8000"
_ONE_ADDRESS = (
    "the name has one address. If it is a Kubernetes Service, it must be headless (clusterIP: None): otherwise the gateway "
    "sees one backend, however many there are"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = (
        "Exit status: 0 if it works (with the settings that are printed), 1 if something is broken, 2 if it could not be "
        "examined. The doctor sends about twenty small requests, and one prompt that is too long."
    )
    parser.add_argument("url", nargs="?", metavar="URL", help=f"URL of a Chat Completions server (default: {_DEFAULT_URL})")
    parser.add_argument("--gateway", metavar="URL", help="test a running gateway instead, from end to end")
    parser.add_argument("--config", type=Path, metavar="FILE", help="look at the pools and MCP servers of a settings file")
    parser.add_argument("--model", help="model to use (default: the first that the server lists)")
    parser.add_argument("--api-key", metavar="KEY", help="key of the server (default: the variable OPENAI_API_KEY)")
    parser.add_argument("--timeout", type=positive, default=120, metavar="SECONDS", help="longest silence (default: 120)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the settings that fit to this file; a backup is kept")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument("--agent", action="store_true", help="also play twenty agent tasks, and report how the model behaves")


def run(args: argparse.Namespace) -> int:
    """Examine and report. Return the exit status: 0 (works), 1 (broken) or 2 (could not be examined)."""
    api_key = (args.api_key or os.environ.get("OPENAI_API_KEY", "")).strip() or None
    if api_key is not None and not fits_header(api_key):
        return _unusable("the API key contains characters that a header may not have")
    if args.gateway is not None and args.url is not None:
        return _unusable("--gateway takes the place of the backend's URL: leave out one of them")
    if args.agent and (args.gateway is not None or args.config is not None):
        return _unusable("--agent examines a backend: leave out --gateway and --config")
    if args.config is not None and (args.gateway is not None or args.url is not None):
        return _unusable("--config examines a settings file: leave out the URL and --gateway")
    try:
        if args.gateway is not None:
            return _examine_gateway(args, api_key)
        _tell_missing_libraries()
        if args.config is not None:
            return _examine_settings(args)
        return _examine_backend(args, api_key)
    except (ValueError, SettingsError) as error:  # `backend_url` raises the former
        return _unusable(str(error))
    except OSError as error:
        return _unusable(f"cannot write {args.write}: {error.strerror}")


def _tell(question: str) -> None:
    """Show what is being asked, beside the report: at once also where the output is piped."""
    print(f"testing: {printable(question)}", file=sys.stderr, flush=True)


def _tell_missing_libraries() -> None:
    """Say which library an extra of this installation lacks, though it is installed."""
    for use, obstacle, extra in (("web pages", page_obstacle, "web"), ("PDFs", pdf_obstacle, "pdf")):
        if reason := obstacle():
            text = f"warning: the gateway cannot read {use}: {reason}. Reinstall the extra: {how_to_install(extra)}"
            print(printable(text), file=sys.stderr)


def _unusable(text: str) -> int:
    lines = "\n".join(map(printable, text.splitlines()))
    print(f"responses-gateway doctor: {lines}", file=sys.stderr)
    return UNUSABLE


# ---- a backend --------------------------------------------------------------------------------------------------------


def _examine_backend(args: argparse.Namespace, api_key: str | None) -> int:
    url = backend_url(args.url or _DEFAULT_URL)
    try:
        profile = asyncio.run(probe(url, model=args.model, api_key=api_key, answer_timeout=args.timeout, tell=_tell))
    except ApiError as error:
        text = f"{url}: {error.message}{_hint(error)}"
        if not args.json:
            return _unusable(text)
        print(json.dumps({"verdict": "unreachable", "error": text}, ensure_ascii=False, indent=2))
        return UNUSABLE
    results = findings(profile)
    settings = recommended_settings(profile)
    behaviour = None
    if args.agent and profile.refusal is None:
        behaviour, more = asyncio.run(_play_agent(profile, settings, args, api_key))
        results += more
    if args.json:
        print(json.dumps(_as_json(profile, results, settings, behaviour), ensure_ascii=False, indent=2))
    else:
        _print(profile, results, settings, behaviour, Console(highlight=False))
    if args.write is not None and profile.refusal is None:
        if args.write.is_file():  # it may have keys of clients
            print(f"The previous file is {back_up(args.write)}.", file=sys.stderr)
        args.write.write_text(_as_yaml(profile, settings), encoding="utf-8")
    return BROKEN if any(finding.level == "error" for finding in results) else WORKS


async def _play_agent(
    profile: Profile, settings: dict[str, Any], args: argparse.Namespace, api_key: str | None
) -> tuple[Behaviour, list[Finding]]:
    from responses_gateway.commands.agent_trial import AS_WRITTEN, play_tasks  # a whole gateway: nothing else here needs one

    checks = await check_tools(profile, api_key=api_key, answer_timeout=args.timeout, tell=_tell)
    played = {**settings, **AS_WRITTEN}
    outcomes = await play_tasks(played, model=profile.model, api_key=api_key, answer_timeout=args.timeout, tell=_tell)
    behaviour = behaviour_of(outcomes)
    return behaviour, list(behaviour_findings(behaviour, checks, profile.server))


def _hint(error: ApiError) -> str:
    if error.type == "authentication_error":
        return " Give its key with --api-key, or in the variable OPENAI_API_KEY."
    if error.code == "no_model":
        return " Is the URL right? If it is, name a model with --model."
    return ""


def _verdict(results: list[Finding], settings: dict[str, Any]) -> str:
    levels = {finding.level for finding in results if finding.loss}
    if "error" in levels:
        return "broken"
    if len(settings) > 1:  # besides `backend`
        return "works with the settings below"
    return "works, with losses" if "warning" in levels else "works"


def _as_json(profile: Profile, results: list[Finding], settings: dict[str, Any], behaviour: Behaviour | None) -> dict[str, Any]:
    return {
        "verdict": _verdict(results, settings),
        "server": server_name(profile),
        "findings": [finding._asdict() for finding in results],
        "settings": settings,
        "profile": asdict(profile),
        **({} if behaviour is None else {"behaviour": behaviour._asdict()}),
    }


def _as_yaml(profile: Profile, settings: dict[str, Any]) -> str:
    head = f"# {printable(server_name(profile))} with {printable(profile.model)}, as `responses-gateway doctor` found it\n"
    return head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def _print(
    profile: Profile, results: list[Finding], settings: dict[str, Any], behaviour: Behaviour | None, console: Console
) -> None:
    console.print(Text(f"{printable(server_name(profile))} at {profile.url}", style="bold"))
    console.print(_table(rows(profile)))
    if behaviour is not None:
        console.print(Text("\nHow well does this model behave?", style="bold"))
        console.print(_table(behaviour_rows(behaviour)))
    for finding in results:
        console.print()
        console.print(Text(f"{finding.level}: {printable(finding.text)}", style=_STYLES[finding.level]))
        if finding.advice:
            console.print(Text(printable(finding.advice)))
    console.print()
    verdict = _verdict(results, settings)
    console.print(Text(f"{verdict} ({profile.times.seconds:.1f} s)", style="bold red" if verdict == "broken" else "bold green"))
    if profile.refusal is None:
        print(f"\n{_as_yaml(profile, settings)}", end="")


def _table(lines: Iterable[Row]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in lines:
        style = {True: "green", False: "red", None: ""}[row.good]
        table.add_row(Text(row.ability), Text(printable(row.value), style=style))
    return table


# ---- pools ------------------------------------------------------------------------------------------------------------


def _examine_settings(args: argparse.Namespace) -> int:
    from responses_gateway.server.features.standard import failing_programs

    settings = load({}, args.config, os.environ)
    if not settings.pools and not settings.mcp_servers:
        return _unusable(f"{args.config} has neither pools nor MCP servers")
    pools = asyncio.run(look_at_pools(settings.pools, args.timeout))
    failing = asyncio.run(failing_programs(settings))
    if args.json:
        listed = [{**one._asdict(), "members": [asdict(member) for member in one.members]} for one in pools]
        print(json.dumps({"pools": listed, "failing_mcp_servers": failing}, ensure_ascii=False, indent=2))
    else:
        _print_findings(pools, failing, Console(highlight=False, soft_wrap=True))
    if any(one.problem for one in pools):
        return UNUSABLE
    return WORKS if all(one.members for one in pools) and not failing else BROKEN


def _print_findings(pools: list[PoolFinding], failing: list[str], console: Console) -> None:
    for one in pools:
        console.print(Text(f"{one.pool} ({one.source}): {len(one.members)} backends", style="bold"))
        for member in one.members:
            state = "draining" if member.draining else "ready"
            console.print(Text(f"  {member.address}  {state}  {printable(member.pod)}".rstrip()))
        for text, style in ((one.problem, "bold red"), (one.warning, "yellow")):
            if text:
                console.print(Text(f"  {printable(text)}", style=style))
    for problem in failing:
        console.print(Text(f"error: {printable(problem)}", style=_STYLES["error"]))
    if not pools and not failing:
        console.print(Text("All programs of MCP servers can be started.", style="green"))


# ---- a gateway --------------------------------------------------------------------------------------------------------


def _examine_gateway(args: argparse.Namespace, api_key: str | None) -> int:
    steps = run_smoke_test(args.gateway, model=args.model, api_key=api_key, timeout=args.timeout, tell=_tell)
    unreachable = steps[0].outcome == "failed"  # then there are no others
    if args.json:
        verdict = "unreachable" if unreachable else "broken" if _any_failed(steps) else "works"
        print(json.dumps({"verdict": verdict, "steps": [step._asdict() for step in steps]}, ensure_ascii=False, indent=2))
    elif unreachable:
        return _unusable(steps[0].detail)
    else:
        _print_steps(steps, Console(highlight=False))
    return UNUSABLE if unreachable else BROKEN if _any_failed(steps) else WORKS


def _any_failed(steps: list[Step]) -> bool:
    return any(step.outcome == "failed" for step in steps)


def _print_steps(steps: list[Step], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    styles = {"passed": "green", "failed": "bold red", "unclear": "yellow"}
    for step in steps:
        table.add_row(Text(step.outcome, style=styles[step.outcome]), Text(step.name), Text(printable(step.detail)))
    console.print(table)
    console.print(Text("broken", style="bold red") if _any_failed(steps) else Text("works", style="bold green"))


class PoolFinding(NamedTuple):
    """What one source says: its members, and what is wrong."""

    pool: str
    source: str
    members: list[Target]
    problem: str
    warning: str


async def look_at_pools(pools: dict[str, BackendPool], seconds: float) -> list[PoolFinding]:
    """Ask the source of each pool once; one that says nothing in so many seconds has a problem."""
    return list(await asyncio.gather(*(_look_at(name, details, seconds) for name, details in pools.items())))


async def _look_at(name: str, details: BackendPool, seconds: float) -> PoolFinding:
    from responses_gateway.server.setup.discovery import source_of

    source = source_of(details, os.environ)
    result: asyncio.Future[tuple[list[Target], str]] = asyncio.get_running_loop().create_future()

    def report(targets: Sequence[Target] | None, problem: str = "") -> None:
        if not result.done():
            result.set_result((list(targets or ()), problem))

    watching = asyncio.create_task(source.watch(report))
    members: list[Target] = []
    problem = f"no answer within {seconds:g} seconds"
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            members, problem = await result
    await end_tasks(watching)
    warning = _ONE_ADDRESS if source.kind == "dns" and len(members) == 1 else ""
    return PoolFinding(name, source.kind, members, problem, warning)
