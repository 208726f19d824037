"""Settings that contradict each other are refused, each by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from responses_gateway.settings import SettingsError
from responses_gateway.settings.keys import hash_of
from responses_gateway.settings.load import load

ALICE = f"alice: {{hash: '{hash_of('rp_alice-0123456789')}'"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"api_keys: {{{ALICE}, team: red}}}}", "api_keys: alice: team: there is no red in teams"),
        (f"api_keys: {{{ALICE}, tokens_per_day: 5, soft_tokens_per_day: 6}}}}", "alice: soft_tokens_per_day is more than"),
        ("teams: {red: {tokens_per_month: 5, tokens_per_day: 6}}", "teams: red: tokens_per_day is more than tokens_per_month"),
        ("tokens_per_day: 6\ntokens_per_month: 5", "tokens_per_day is more than tokens_per_month"),
        ("tokens_per_day: 6", "need api_keys, jwt_issuer or proxy_name_header"),
        (f"api_keys: {{{ALICE}, tokens_per_day: 6}}}}\nstore: none", "need a store, or Redis in events"),
        ("jwt_issuer: https://login.example.com", "jwt_issuer needs jwt_audience"),
        ("jwt_audience: [x]", "jwt_audience needs jwt_issuer"),
        ("proxy_name_header: X-User", "proxy_name_header needs proxy_addresses or proxy_secret"),
        ("proxy_addresses: [127.0.0.1]", "need proxy_name_header"),
        ("jwt_issuer: http://login.example.com\njwt_audience: [x]", "jwt_issuer: a URL like https://"),
        ("proxy_addresses: [everywhere]", "an address or a network is expected"),
    ],
)
def test_they_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load({}, path, {name: value for name, value in os.environ.items() if not name.startswith("RESPONSES_GATEWAY")})
    assert named in str(caught.value)
