"""Clients without a key of the settings: tokens of an issuer, and what trusted proxies say; with the attacks on both."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from responses_gateway.server.identity import key_set
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import RECEIVED, create_app, serving
from tests.server.access.issuer import AUDIENCE, RSA, Issuer, issuing, other_keys
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, simulated

KEY = "rp_alice-0123456789"
SECRET = "proxy-0123456789abcdef"


def accepting(issuer: Issuer) -> dict[str, Any]:
    """The setting that accepts its tokens."""
    return {"issuer": issuer.url, "audience": [AUDIENCE]}


@asynccontextmanager
async def trusting(**settings: Any) -> AsyncIterator[tuple[Served, Issuer]]:
    """Serve a gateway that trusts an issuer."""
    async with issuing() as issuer, simulated(jwt=accepting(issuer), **settings) as served:
        yield served, issuer


async def asked(served: Served, token: str) -> Answer:
    return await post(served, headers={"Authorization": f"Bearer {token}"})


def refused(answer: Answer) -> str:
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    return assert_error(answer, 401, "invalid_token")


# ---- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_opens_the_door_and_is_never_sent_to_the_backend() -> None:
    async def test() -> None:
        backend = create_app()
        async with issuing() as issuer, serving(backend) as url:
            async with gateway(url, jwt=accepting(issuer)) as served:
                issuer.keys |= other_keys()
                for key_id in ("one", "ec", "ed"):
                    assert (await asked(served, issuer.token(key_id))).status == 200
                assert issuer.asked == 1
                assert assert_error(await post(served), 401, "invalid_api_key")
            received = [entry["headers"] for entry in backend[RECEIVED]]
            assert received
            assert not [headers for headers in received if "authorization" in {name.lower() for name in headers}]

    run(test())


MESSAGE = {"model": "simulator", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}


def test_tokens_and_trusted_proxies_open_the_door_of_the_messages_api_too() -> None:
    async def test() -> None:
        async with trusting(trusted_proxy={"name_header": "X-User", "secret": SECRET}) as (served, issuer):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                for headers, status in (
                    ({"Authorization": f"Bearer {issuer.token()}"}, 200),
                    ({"x-api-key": issuer.token()}, 200),
                    ({"X-User": "alice", "X-Responses-Gateway-Proxy-Secret": SECRET}, 200),
                    ({"X-User": "alice"}, 401),
                    ({"Authorization": f"Bearer {_tampered(issuer)}"}, 401),
                    ({"x-api-key": _signed_with_the_public_key(issuer)}, 401),
                ):
                    answer = await ask(served, "POST", path, json=MESSAGE, headers=headers)
                    assert answer.status == status, (path, headers)
                    if status == 401:
                        assert answer.json["error"]["type"] == "authentication_error"

    run(test())


def _with(issuer: Issuer, header: dict[str, Any], signature: bytes = b"") -> str:
    """Return a token with another header, and any signature."""
    _, payload, _ = issuer.token().split(".")
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{head}.{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _public() -> bytes:
    return RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _signed_with_the_public_key(issuer: Issuer) -> str:
    """Return a token whose HMAC has the public key as its secret, which is what confused algorithms accept."""
    unsigned = _with(issuer, {"alg": "HS256", "kid": "one", "typ": "JWT"}).rpartition(".")[0]
    digest = hmac.new(_public(), unsigned.encode(), hashlib.sha256).digest()
    return f"{unsigned}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _foreign(issuer: Issuer, **header: Any) -> str:
    """Return a token of another key, with what the header says of it."""
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 300}
    return jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256", headers={"kid": "one", **header})


def _tampered(issuer: Issuer) -> str:
    head, payload, signature = issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "==")) | {"sub": "root"}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.{signature}"


ATTACKS: dict[str, Callable[[Issuer], str]] = {
    "no signature": lambda issuer: _with(issuer, {"alg": "none", "kid": "one"}),
    "no signature, another case": lambda issuer: _with(issuer, {"alg": "nOnE", "kid": "one"}),
    "an empty signature": lambda issuer: _with(issuer, {"alg": "RS256", "kid": "one"}),
    "the public key as a secret": _signed_with_the_public_key,
    "other claims": _tampered,
    "a key of its own": _foreign,
    "a key in its header": lambda issuer: _foreign(issuer, jwk={"kty": "oct", "k": "c2VjcmV0"}),
    "keys elsewhere": lambda issuer: _foreign(issuer, jku="http://127.0.0.1:1/keys", x5u="http://127.0.0.1:1/x"),
    "a path as its key": lambda issuer: _foreign(issuer, kid="../../../../dev/null"),
    "an extension that must be understood": lambda issuer: issuer.token(headers={"crit": ["b64"], "b64": True}),
    "another kind of token": lambda issuer: issuer.token(headers={"typ": "secevent+jwt"}),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 3600),
    "not yet valid": lambda issuer: issuer.token(nbf=int(time.time()) + 3600),
    "never expires": lambda issuer: issuer.token(exp=None),
    "another audience": lambda issuer: issuer.token(aud="another-service"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "another issuer": lambda issuer: issuer.token(iss="https://evil.example.com"),
    "another issuer, by a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "names within names": lambda issuer: issuer.token(sub={"sub": ["alice"]}),
    "nobody": lambda issuer: issuer.token(sub=None),
    "a name with a line break": lambda issuer: issuer.token(sub="alice\nadmin"),
    "a long name": lambda issuer: issuer.token(sub="a" * 1000),
    "deep JSON": lambda issuer: _with(issuer, {"alg": "RS256", "x": json.loads("[" * 500 + "]" * 500)}),
    "no base64": lambda issuer: "a.b.c",
    "a large one": lambda issuer: f"{'a' * 7000}.{'a' * 7000}.{'a' * 7000}"[:7900] + ".a",
}


def test_the_attacks_of_the_handbook_are_refused() -> None:
    async def test() -> None:
        async with trusting() as (served, issuer):
            assert (await asked(served, issuer.token())).status == 200
            admitted = []
            for name, attack in ATTACKS.items():
                answer = await asked(served, attack(issuer))
                if answer.status != 401:
                    admitted.append((name, answer.status))
            assert admitted == []
            assert served.metric("key_requests_total", key="jwt") == 1

    run(test())


@pytest.mark.parametrize(
    "published",
    [
        {"kty": "oct", "k": base64.urlsafe_b64encode(b"0" * 32).decode(), "kid": "one"},
        {"kty": "RSA", "kid": "one", "use": "enc"},
        {"kty": "RSA", "kid": "one", "n": "x" * 10_000_000, "e": "AQAB"},  # read to a bound
        "no key",
    ],
)
def test_a_set_without_a_usable_key_is_no_set(published: Any) -> None:
    async def test() -> None:
        async with trusting() as (served, issuer):
            issuer.published = [published]
            answer = await asked(served, issuer.token())
            assert_error(answer, 503, "server_error")
            assert answer.headers["retry-after"] == "5"

    run(test())


def test_short_keys_are_not_used() -> None:
    weak = {"kty": "RSA", "n": "x" * 171, "e": "AQAB", "kid": "one"}  # 1026 bits
    assert key_set.usable_keys({"keys": [weak]}) == {}


@pytest.mark.parametrize("url", ["http://keys.example.com/", "file:///etc/passwd", "ftp://x/", None, 5])
def test_keys_are_fetched_over_tls_only(url: object) -> None:
    with pytest.raises(ValueError, match="https"):
        key_set.checked_url(url)


def test_keys_are_kept_while_the_issuer_is_away_and_new_ones_found_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with trusting() as (served, issuer):
            assert (await asked(served, issuer.token())).status == 200
            issuer.keys |= other_keys()
            for _ in range(3):
                refused(await asked(served, issuer.token("ec")))  # the last attempt was a moment ago
            assert issuer.asked == 1
            monkeypatch.setattr(key_set, "PAUSE", 0.0)
            assert (await asked(served, issuer.token("ec"))).status == 200
            assert issuer.asked == 2
            issuer.away = True
            monkeypatch.setattr(key_set, "FRESH", 0.0)
            for key_id in ("one", "ec"):
                assert (await asked(served, issuer.token(key_id))).status == 200

    run(test())


def test_a_gateway_whose_issuer_was_never_there_says_that_it_cannot_tell() -> None:
    async def test() -> None:
        async with trusting() as (served, issuer):
            issuer.away = True
            assert_error(await asked(served, issuer.token()), 503, "server_error")
            assert_error(await post(served), 401, "invalid_api_key")

    run(test())


def test_a_subject_and_a_key_of_the_same_name_are_different_owners() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY)}}
        async with trusting(store="memory", api_keys=keys, tokens_per_day=1) as (served, issuer):
            stored = (await asked(served, issuer.token())).final["id"]
            assert_error(await asked(served, issuer.token()), 429, "insufficient_quota")
            assert (await asked(served, KEY)).status == 200
            for credential, status in ((issuer.token(), 200), (KEY, 404)):
                headers = {"Authorization": f"Bearer {credential}"}
                assert (await ask(served, "GET", f"/v1/responses/{stored}", headers=headers)).status == status
            assert served.metric("key_requests_total", key="jwt") == 1
            assert served.metric("key_requests_total", key="alice") == 1

    run(test())


def test_the_first_group_that_is_a_team_counts() -> None:
    async def test() -> None:
        teams = {"red": {"models": ["other"]}, "blue": {}}
        async with trusting(teams=teams) as (served, issuer):
            assert (await asked(served, issuer.token(groups=["staff", "blue", "red"]))).status == 200
            assert_error(await asked(served, issuer.token(groups=["staff", "red", "blue"])), 404, "model_not_found")
            assert_error(await asked(served, issuer.token(groups="red")), 404, "model_not_found")
            assert (await asked(served, issuer.token(groups={"red": 1}))).status == 200

    run(test())


def test_a_websocket_ends_with_its_token() -> None:
    async def test() -> None:
        create = {"type": "response.create", "model": "simulator", "input": "hi"}
        async with trusting() as (served, issuer):
            token = issuer.token()
            session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
            async with session, session.ws_connect(f"{served.url}/v1/responses") as socket:
                await socket.send_json(create)
                while (await socket.receive_json())["type"] != "response.completed":
                    pass
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("responses_gateway.server.identity.tokens.LEEWAY", -3600)
                    await socket.send_json(create)
                    assert (await socket.receive_json())["error"]["code"] == "invalid_token"

    run(test())


# ---- trusted proxies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trust", "headers", "status"),
    [
        ({"addresses": ["127.0.0.0/8"]}, {"X-Forwarded-User": "alice"}, 200),
        ({"addresses": ["10.0.0.0/8"]}, {"X-Forwarded-User": "alice"}, 401),
        ({"addresses": ["10.0.0.0/8"]}, {"X-Forwarded-User": "alice", "X-Forwarded-For": "10.0.0.1"}, 401),
        ({"secret": SECRET}, {"X-Forwarded-User": "alice", "X-Responses-Gateway-Proxy-Secret": SECRET}, 200),
        ({"secret": SECRET}, {"X-Forwarded-User": "alice", "X-Responses-Gateway-Proxy-Secret": "wrong"}, 401),
        ({"secret": SECRET}, {"X-Forwarded-User": "alice"}, 401),
        ({"secret": SECRET}, {"X-Responses-Gateway-Proxy-Secret": SECRET}, 401),
        ({"addresses": ["127.0.0.1"]}, {}, 401),
    ],
)
def test_a_name_is_believed_from_trusted_proxies_alone(trust: dict[str, Any], headers: dict[str, str], status: int) -> None:
    async def test() -> None:
        async with simulated(trusted_proxy={"name_header": "X-Forwarded-User", **trust}) as served:
            assert (await post(served, headers=headers)).status == status

    run(test())


def test_two_names_are_none_and_the_headers_of_a_proxy_reach_no_backend() -> None:
    async def test() -> None:
        backend = create_app()
        proxy = {"name_header": "X-User", "groups_header": "X-Groups", "secret": SECRET}
        secret = ("X-Responses-Gateway-Proxy-Secret", SECRET)
        async with (
            serving(backend) as url,
            gateway(url, teams={"red": {"models": ["simulator"]}}, trusted_proxy=proxy) as served,
        ):
            chat = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}
            headers: Any = [("X-User", "alice"), ("X-Groups", "staff, red"), secret]
            assert (await ask(served, "POST", "/v1/chat/completions", json=chat, headers=headers)).status == 200
            chat["model"] = "hidden"
            assert (await ask(served, "POST", "/v1/chat/completions", json=chat, headers=headers)).status == 404
            refused(await ask(served, "POST", "/v1/responses", json={}, headers=[*headers, ("X-User", "root")]))
        names = {name.lower() for entry in backend[RECEIVED] for name in entry["headers"]}
        assert not names & {"x-user", "x-groups", "x-responses-gateway-proxy-secret"}

    run(test())
