"""A walk over all of the API that outlives one stream: what its clients do by chance, and what must be true after each step."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import aiohttp

from responses_gateway.conformance.checker import frames
from tests.judges import judge_stream
from tests.server.resources.walked_model import (
    TOOLS,
    Conversation,
    Item,
    Known,
    Plan,
    Said,
    WalkedBackend,
    in_order,
    items_of,
    new_plan,
    results_of,
    said_in,
    said_to,
    since_compaction,
)
from tests.server.running_gateway import TERMINALS, Answer, Served, events_of
from tests.waiting import until

TENANTS = ("a", "b")
# What each kind of end has as its status.
_STATUSES = {"ends": "completed", "length": "incomplete", "breaks": "failed", "refuses": "failed"}
_STATEMENT = "SELECT count(*) FROM "
_TABLES = ("responses", "nodes", "items", "events", "journals", "waiting", "conversations")


def raw_final(body: bytes) -> str:
    """Return the JSON of the response in the only terminal event, byte for byte."""
    (data,) = [frame.data for frame in frames(body) if frame.data[:60].partition('"type":"')[2].partition('"')[0] in TERMINALS]
    text: str = data.partition('"response":')[2][:-1]
    return text


class Walk:
    """Clients of two tenants, and gateways that share a store. `resumable`: streams go on when their clients leave."""

    def __init__(
        self,
        chance: random.Random,
        backend: WalkedBackend,
        gateways: Sequence[Served],
        session: aiohttp.ClientSession,
        *,
        resumable: bool,
    ) -> None:
        self.chance = chance
        self.backend = backend
        self.gateways = gateways
        self.session = session
        self.resumable = resumable
        self.known: list[Known] = []
        self.hanging: dict[Known, asyncio.Task[None]] = {}  # each with what follows it to its end
        self.conversations: list[Conversation] = []
        self.summaries: dict[str, str] = {}  # encrypted content -> the mark of the response that has it
        self.unnamed = 0  # responses that may be stored, and whose ids nobody knows
        self.log: list[str] = []
        self._item_ids: set[str] = set()

    # ---- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, tenant: str, method: str, path: str, *, may: Sequence[int] = (), **request: Any) -> Answer:
        """Ask one of the gateways. `may`: the errors of servers that the answer may be."""
        served = self.chance.choice(self.gateways)
        headers = {"Authorization": f"Bearer key-{tenant}"}
        async with self.session.request(method, f"{served.url}/v1/{path}", headers=headers, **request) as answer:
            got = Answer(answer.status, {}, await answer.read())
        assert got.status < 500 or got.status in may, (method, path, got)
        return got

    async def create(self, known: Known, body: Item, *, may: Sequence[int] = ()) -> bool:
        """Ask for a response that is not in the background; return False if it ended as an error of HTTP. `may`: errors of the
        store, after which the response says that it is not stored."""
        fate = known.plan.fate
        answer = await self.ask(known.tenant, "POST", "responses", json=body, may=(502, *may) if fate == "breaks" else may)
        if answer.status != 200:
            assert answer.status in may or fate == "refuses" or (fate == "breaks" and not body["stream"]), answer
            return False
        if body["stream"]:
            assert judge_stream(answer.body, unfinished_allowed=True) == []
        final = raw_final(answer.body) if body["stream"] else answer.body.decode()
        known.stored = json.loads(final)["store"] if may else body.get("store", True)
        known.events = events_of(answer.body) if body["stream"] and self.resumable and known.stored else None
        self.settle(known, final)
        self.known.append(known)
        return True

    def some(self, things: Sequence[Any]) -> Any:
        """Choose one, a late one most of the time; None of none."""
        return things[-1 - min(int(self.chance.expovariate(0.25)), len(things) - 1)] if things else None

    def plan(self) -> Plan:
        plan = new_plan(len(self.backend.plans) + 1, self.chance)
        self.backend.plans[plan.number] = plan
        return plan

    def request(self, kinds: Sequence[str]) -> tuple[Known, Item]:
        """Return a response that is to be made, and the body of its request, which continues something or nothing."""
        chance = self.chance
        tenant = chance.choice(TENANTS)
        plan = self.plan()
        known = Known("", tenant, [], [], plan)
        body: Item = {"model": "m", "tools": TOOLS, "max_output_tokens": plan.limit}
        parent = self.some([each for each in self.known if each.tenant == tenant and each.final and each.is_there])
        items: list[Item] = []
        kind = chance.choice(kinds)
        if kind == "previous" and parent is not None:
            known.said = list(parent.said)
            body["previous_response_id"] = parent.id
        elif kind == "resend" and parent is not None:
            items = items_of(since_compaction(parent.said))
        elif kind == "conversation":
            known.conversation = self.some([each for each in self.conversations if each.tenant == tenant and not each.busy])
        if known.conversation is not None:
            known.conversation.busy = True
            known.said = list(known.conversation.said)
            body["conversation"] = chance.choice([known.conversation.id, {"id": known.conversation.id}])
        items += results_of([*known.said, *said_in(items)], plan.mark)
        sent = said_in(items)
        if kind == "reference" and parent is not None:
            told = [item for item in parent.json["output"] if item["type"] == "message" and item["status"] == "completed"]
            items = [{"type": "item_reference", "id": item["id"]} for item in told]
            sent = said_in(told)
        said = [
            chance.choice(["same", f"é🙂 {plan.mark}", f"{'long ' * 2400}{plan.mark}"]) for _ in range(chance.choice([1, 1, 2]))
        ]
        items += [{"role": "user", "content": text} for text in said]
        known.sent = [*sent, *(("user", text) for text in said)]
        body["input"] = said[0] if len(items) == 1 and chance.random() < 0.5 else items
        return known, body

    # ---- what must be true -------------------------------------------------------------------------------------------

    def settle(self, known: Known, final: str) -> None:
        """Note how a response has ended, and compare its prompt with what was said."""
        response = json.loads(final)
        known.id = response["id"]
        known.final = final
        output = response["output"]
        self.check_prompt(known.plan, [*known.said, *known.sent], asked=[item["type"] for item in output] == ["compaction"])
        self.summaries |= {item["encrypted_content"]: known.plan.mark for item in output if item["type"] == "compaction"}
        known.said = [*known.said, *known.sent, *said_in(output)]
        ids = {item["id"] for item in output}
        assert len(ids) == len(output), ids
        assert not ids & self._item_ids, ids
        self._item_ids |= ids
        assert response["status"] in (_STATUSES[known.plan.fate], "cancelled"), response
        assert response["store"] is known.stored
        conversation = known.conversation
        if conversation is not None:
            conversation.busy = False
            if response["status"] in ("completed", "incomplete") and known.stored:
                conversation.said += [*known.sent, *said_in(output)]

    def check_prompt(self, plan: Plan, said: Sequence[Said], *, asked: bool) -> None:
        """Compare the prompt of the answer with what was said, of which a summary has replaced what is before it. `asked`: the
        prompt ends with the question for such a summary."""
        expected = [
            ("compaction", self.summaries[entry[1]]) if entry[0] == "compaction" else entry for entry in since_compaction(said)
        ]
        told = in_order(said_to(plan.prompts[-1][:-1] if asked else plan.prompts[-1]))
        assert told == in_order(expected), f"{plan.mark}: {told} is not {expected}"

    async def check(self, known: Known) -> None:
        """Look at a response in all ways, also as the other tenant."""
        path = f"responses/{known.id}"
        owner = known.tenant
        (other,) = set(TENANTS) - {owner}
        for tenant in (other,) if known.is_there else TENANTS:
            for method, end in (
                ("GET", ""),
                ("GET", "?stream=true"),
                ("GET", "/input_items"),
                ("POST", "/cancel"),
                ("DELETE", ""),
            ):
                answer = await self.ask(tenant, method, path + end)
                assert answer.status == 404, (method, end, answer)
            body = {"model": "m", "input": "hi", "previous_response_id": known.id}
            answer = await self.ask(tenant, "POST", "responses", json=body)
            assert (answer.status, answer.json["error"]["code"]) == (400, "previous_response_not_found")
        if not known.is_there:
            return
        answer = await self.ask(owner, "GET", path)
        if known.final is None:
            assert known.plan.model_had_finished or answer.json["status"] in ("queued", "in_progress"), answer
            return
        assert answer.body.decode() == known.final
        items = await self.pages(owner, f"{path}/input_items")
        assert said_in(items) == known.sent, items
        after = self.chance.choice([-1, 0, 1, 2, 3, 5, 8, 99])
        events = events_of((await self.ask(owner, "GET", f"{path}?stream=true&starting_after={after}")).body)
        if known.events is not None:
            assert events == known.events[after + 1 :]
        else:
            assert events[-1]["response"] == known.json
            assert after < 0 or [event["sequence_number"] for event in events] == [after + 1]

    async def check_conversation(self, conversation: Conversation) -> list[Item]:
        """Compare a conversation with what was said in it; return its items."""
        path = f"conversations/{conversation.id}"
        (other,) = set(TENANTS) - {conversation.tenant}
        for method, end in (("GET", ""), ("GET", "/items"), ("DELETE", ""), ("POST", "/items")):
            assert (await self.ask(other, method, path + end, json={"items": []})).status == 404
        assert (await self.ask(conversation.tenant, "GET", path)).json["metadata"] == conversation.metadata
        items = await self.pages(conversation.tenant, f"{path}/items")
        assert said_in(items) == conversation.said
        return items

    async def pages(self, tenant: str, path: str) -> list[Item]:
        """Return all items of a list in their order, read page by page from either end."""
        order = self.chance.choice(["asc", "desc"])
        items: list[Item] = []
        after = ""
        while True:
            limit = self.chance.choice([1, 2, 3, 20, 100])
            page = (await self.ask(tenant, "GET", f"{path}?order={order}&limit={limit}{after}")).json
            items += page["data"]
            assert len(page["data"]) <= limit
            after = f"&after={page['last_id']}"
            if not page["has_more"]:
                break
        assert len({item["id"] for item in items}) == len(items)
        return items if order == "asc" else items[::-1]

    # ---- responses ---------------------------------------------------------------------------------------------------

    async def respond(self) -> None:
        """Make a response, which its client reads to its end."""
        known, body = self.request(["new", "previous", "previous", "resend", "reference", "conversation"])
        body |= {"stream": self.chance.random() < 0.6}
        if self.chance.random() < 0.2:
            body["store"] = False
        self.note("respond", known, body)
        if not await self.create(known, body):
            if known.conversation is not None:
                known.conversation.busy = False
            return
        await self.check(known)

    async def begin(self) -> None:
        """Make a response in the background, which may hang until something is done to it."""
        known, body = self.request(["new", "previous", "resend", "conversation"])
        plan = known.plan
        known.background = True
        if plan.fate != "refuses" and self.chance.random() < 0.6:
            plan.waits_at = self.chance.randrange(len(plan.pieces))
        self.note(f"begin (waits at {plan.waits_at})", known, body)
        answer = await self.ask(known.tenant, "POST", "responses", json=body | {"background": True})
        assert (answer.status, answer.json["status"]) == (200, "queued"), answer
        known.id = answer.json["id"]
        self.known.append(known)
        following = asyncio.create_task(self._follow(known))
        if plan.waits_at is None:
            await following
        else:
            await plan.waits.wait()
            self.hanging[known] = following

    async def _follow(self, known: Known) -> None:
        """Follow a response in the background to its end."""
        answer = await self.ask(known.tenant, "GET", f"responses/{known.id}?stream=true")
        if known.deleted:
            return
        assert judge_stream(answer.body, unfinished_allowed=True) == []
        known.events = events_of(answer.body)
        got = await self.ask(known.tenant, "GET", f"responses/{known.id}")
        if known.deleted:
            return
        assert got.body.decode() == raw_final(answer.body) or got.json["status"] == "cancelled"
        self.settle(known, got.body.decode())

    async def end(self, known: Known) -> None:
        """Wait for the end of a response that has hung."""
        await self.hanging.pop(known)
        if known.deleted and known.conversation is not None:  # nobody knows whether it had ended before
            self.conversations.remove(known.conversation)
            path = f"conversations/{known.conversation.id}"
            assert (await self.ask(known.tenant, "DELETE", path)).status == 200
        await self.check(known)

    async def release(self) -> None:
        """Let a response go on that hangs."""
        known = self.some(list(self.hanging))
        if known is not None:
            self.note("release", known)
            known.plan.gate.set()
            await self.end(known)

    async def cancel(self) -> None:
        """Cancel a response, whatever has become of it."""
        known = self.some([each for each in self.known if each.is_there])
        if known is None:
            return
        self.note("cancel", known)
        before = known.final
        answer = await self.ask(known.tenant, "POST", f"responses/{known.id}/cancel")
        if not known.background:
            assert answer.status == 400
            return
        if known in self.hanging:
            await self.end(known)
        assert answer.body.decode() == known.final == (before or known.final)
        assert before or known.json["status"] == "cancelled" or known.plan.model_had_finished

    async def delete(self) -> None:
        """Delete a response, whatever has become of it."""
        known = self.some([each for each in self.known if each.is_there])
        if known is None:
            return
        self.note("delete", known)
        known.deleted = True
        assert (await self.ask(known.tenant, "DELETE", f"responses/{known.id}")).status == 200
        if known in self.hanging:
            await self.end(known)
        await self.check(known)

    def note(self, step: str, known: Known, body: Item | None = None) -> None:
        """Note a step for whoever looks for what went wrong."""
        plan = known.plan
        names = ("previous_response_id", "conversation", "stream", "store", "stream_id")
        asked = {name: body[name] for name in names if name in body} if body is not None else ""
        self.log.append(f"{step} {plan.mark} {plan.fate} {known.id} {[entry[0] for entry in known.sent]} {asked}")

    # ---- conversations -----------------------------------------------------------------------------------------------

    async def converse(self) -> None:
        """Create a conversation, or add items to one."""
        items = [{"role": "user", "content": self.chance.choice(["same", "Hello"])} for _ in range(self.chance.randint(1, 3))]
        conversation = self.some([each for each in self.conversations if not each.busy])
        if conversation is None or self.chance.random() < 0.4:
            tenant = self.chance.choice(TENANTS)
            metadata = {"number": str(len(self.log))}
            answer = await self.ask(tenant, "POST", "conversations", json={"items": items, "metadata": metadata})
            self.conversations.append(Conversation(answer.json["id"], tenant, said_in(items), metadata))
        else:
            path = f"conversations/{conversation.id}/items"
            answer = await self.ask(conversation.tenant, "POST", path, json={"items": items})
            assert said_in(answer.json["data"]) == said_in(items)
            conversation.said += said_in(items)

    async def remove_item(self) -> None:
        """Remove a message from a conversation: all others stay as they are."""
        conversation = self.some([each for each in self.conversations if not each.busy and each.said])
        if conversation is None:
            return
        before = await self.check_conversation(conversation)
        messages = [item for item in before if item["type"] == "message"]
        if not messages:
            return
        item = self.chance.choice(messages)
        self.log.append(f"remove {item['id']} of {conversation.id}")
        path = f"conversations/{conversation.id}/items/{item['id']}"
        assert (await self.ask(conversation.tenant, "GET", path)).json == item
        assert (await self.ask(conversation.tenant, "DELETE", path)).status == 200
        assert (await self.ask(conversation.tenant, "GET", path)).status == 404
        rest = [other for other in before if other is not item]
        conversation.said = said_in(rest)
        assert await self.check_conversation(conversation) == rest

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Let all end, look at everything once more and delete it: nothing is left."""
        while self.hanging:
            await self.release()
        for known in self.known:
            await self.check(known)
        rest = [known for known in self.known if known.is_there]
        self.chance.shuffle(rest)
        for known in rest:
            assert (await self.ask(known.tenant, "DELETE", f"responses/{known.id}")).status == 200
        for conversation in self.conversations:  # the items of deleted responses are theirs, too
            await self.check_conversation(conversation)
            assert (await self.ask(conversation.tenant, "DELETE", f"conversations/{conversation.id}")).status == 200
        # A connection is kept for a second whose answer is complete but for the end of its body.
        await until(lambda: not any(plan.running for plan in self.backend.plans.values()), "the backend is free")
        store = self.gateways[0].parts.store
        assert store is not None
        left = await store.database.run(lambda sql: {name: sql.execute(_STATEMENT + name).fetchone()[0] for name in _TABLES})
        assert left["responses"] <= self.unnamed, left
        assert left["responses"] or not any(left.values()), left
