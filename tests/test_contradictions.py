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
        (f"api_keys: {{{ALICE}, team: red}}}}", "api_keys: alice: team: there is no team red in teams"),
        (f"api_keys: {{{ALICE}, tokens_per_day: 5, soft_tokens_per_day: 6}}}}", "alice: soft_tokens_per_day is more than"),
        ("teams: {red: {tokens_per_month: 5, tokens_per_day: 6}}", "teams: red: tokens_per_day is more than tokens_per_month"),
        ("tokens_per_day: 6\ntokens_per_month: 5", "tokens_per_day is more than tokens_per_month"),
        ("operations_host: 0.0.0.0", "operations_host has no effect without operations_port"),
        ("moderation_prompt: 'Is {text} safe?'", "moderation_prompt has no effect without moderation_model"),
        ("trust_remote_code: true", "trust_remote_code has no effect without tokenizer"),
        ("metrics: key", "metrics: key needs api_keys, jwt or trusted_proxy"),
        (f"admin_key: rp_alice-0123456789\napi_keys: {{{ALICE}}}}}", "api_keys: alice has the admin_key"),
        ("tokens_per_day: 6", "need api_keys, jwt or trusted_proxy"),
        (f"api_keys: {{{ALICE}, tokens_per_day: 6}}}}\nstore: none", "need a store, or Redis in events"),
        ("jwt: {issuer: https://login.example.com}", "jwt: audience: this field is required"),
        ("jwt: {issuer: https://login.example.com, audience: []}", "jwt: audience: expected at least one audience"),
        ("jwt: {audience: [x]}", "jwt: issuer: this field is required"),
        ("jwt: {issuer: http://login.example.com, audience: [x]}", "jwt: issuer: expected a URL like https://"),
        ("jwt: {issuer: https://a, audience: [x], name_claims: b}", "jwt: unknown key name_claims (did you mean name_claim?)"),
        ("trusted_proxy: {name_header: X-User}", "trusted_proxy: expected addresses or secret"),
        ("trusted_proxy: {addresses: [127.0.0.1]}", "trusted_proxy: name_header: this field is required"),
        ("trusted_proxy: {name_header: X-User, addresses: [everywhere]}", "expected an address or a network"),
        ("trusted_proxy: {name_header: X-User, secret: short}", "trusted_proxy: secret: expected at least 16 characters"),
    ],
)
def test_they_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load({}, path, {name: value for name, value in os.environ.items() if not name.startswith("RESPONSES_GATEWAY")})
    assert named in str(caught.value)


def test_what_has_an_effect_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("metrics: key\noperations_port: 9001\noperations_host: 0.0.0.0")  # the window hides more then
    assert load({}, path, {}).metrics == "key"
    path.write_text("trust_remote_code: true\ntokenizer: t")
    assert load({}, path, {}).trust_remote_code
