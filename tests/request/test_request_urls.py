"""URLs that a backend would fetch: which are accepted, and the errors for the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.request import Policy, translate
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosts.public_urls import not_public
from responses_gateway.wire.requests import parse_request

DATA = "data:image/png;base64,iVBORw0KGgo="
PUBLIC = [
    "http://example.com/a.png",
    "HTTPS://EXAMPLE.com.:8443/?next=http://127.0.0.1/&a=@b#c",
    "https://8.8.8.8/x",
    "http://134744072/",  # the same
    "https://[2606:4700:4700::1111]:443/",
    "https://bücher.example/x",
    "https://xn--bcher-kva.example/",
    "https://a_b.example.com/",
    "https://10.example.com/",
    "https://[2a00:1450:4001:81b::200e]/",
    "https://[64:ff9b::8.8.8.8]/",
]
LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.1", "017700000001", "0177.0.0.1",
    "0", "0.0.0.0", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "db.localhost", "localhost.localdomain",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[::ffff:0:7f00:1]", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1",
    "127.0.0.\u00ad1", "loc\u00adalhost", "ⓛocalhost", "١٢٧.٠.٠.١",
]  # fmt: skip
PRIVATE = [
    "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "100.64.0.1", "192.0.0.8",
    "198.18.0.1", "224.0.0.1", "[ff02::1]", "255.255.255.255", "240.0.0.1", "[2001:db8::1]", "metadata.google.internal",
    "host.docker.internal", "printer.local", "gateway.lan", "redis", "redis:6379", "api.default.svc.cluster.local",
    "kubernetes.default.svc", "db.private", "[fec0::1]", "[fec0:0:0:ffff::1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::1]", "[64:ff9b:1:a00:1::]", "[2002:a00:1::]", "[2002:a9fe:a9fe::1]", "[2001:0:7f00:1::]",
    "[2001:0:808:808:0:ffff:f5ff:fffe]", "[::ffff:10.0.0.1]", "[::ffff:0:a00:1]", "[2606:4700::5efe:10.0.0.1]",
    "[2606:4700::200:5efe:a9fe:a9fe]", "[100::1]", "[2001:10::1]", "[2001:20::1]", "[3fff::1]", "[3ffe::1]", "[5f00::1]",
    "[4000::1]", "[e000::1]", "192.88.99.1", "168.63.129.16",
]  # fmt: skip
TRICKS = [
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://example.com:80@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com\t@127.0.0.1/",
    "http:\\\\127.0.0.1/",
    "http:/127.0.0.1/",
    "http:127.0.0.1/",
    "http:///127.0.0.1/",
    "//127.0.0.1/",
    " http://example.com/",
    "http://exam\nple.com/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1%2f.example.com/",
    "http://[::1",
    "http://[::1].example.com/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://08.8.8.8/",
    "http://-1.1/",
    "http://+8.8.8.8/",
    "http://8_8.8.8.8/",
    "http://0x-1.1/",
    "http://example.com../",
    "http://example.com:80:90/",
    "http://",
    "http://" + "a." * 5000 + "com/",
    "http://" + "ü" * 100_000,
    "http://0x" + "f" * 10_000,
    "file:///etc/passwd",
    "FILE:/etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "jar:http://example.com!/",
    "/etc/passwd",
    "",
]


@pytest.mark.parametrize("url", PUBLIC)
def test_public_addresses_are_taken(url: str) -> None:
    assert not_public(url) is None


@pytest.mark.parametrize("host", LOOPBACK + PRIVATE)
@pytest.mark.parametrize("around", ["http://{}/", "https://{}", "HTTP://{}?x", "http://{}#x", "http://{}:8000/v1"])
def test_private_addresses_are_refused_however_they_are_written(host: str, around: str) -> None:
    assert not_public(around.format(host)) is not None


@pytest.mark.parametrize("url", TRICKS)
def test_tricks_are_refused(url: str) -> None:
    assert not_public(url) is not None


@given(st.text(max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    for url in (text, f"http://{text}", f"http://[{text}]/", f"http://{text}.1/"):
        assert not_public(url) is None or not_public(url)


@given(st.ip_addresses(v=4, network="10.0.0.0/8"), st.data())
def test_every_notation_of_a_private_address_is_refused(address: Any, data: st.DataObject) -> None:
    value = int(address)
    size = data.draw(st.integers(1, 4))
    parts = [value >> 24 & 255, value >> 16 & 255, value >> 8 & 255, value & 255]
    last = value & (1 << 8 * (5 - size)) - 1
    numbers = [*parts[: size - 1], last]
    written = [data.draw(st.sampled_from(["{:d}", "{:#x}", "0{:o}", "{:#X}"])).format(number) for number in numbers]
    assert not_public(f"http://{'.'.join(written)}/") is not None


# Positions of URLs in a request


def message(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "see http://127.0.0.1/"}, part]}]


def output(part: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"image_url": "http://127.0.0.1"}'}
    return [call, {"type": "function_call_output", "call_id": "c", "output": [part]}]


def ask(items: Any, policy: Policy, history: Any = ()) -> Any:
    return translate(parse_request({"model": "m", "input": items}), policy, None, history).body


PLACES = [
    (message({"type": "input_image", "image_url": "URL"}), "input[0].content[1].image_url"),
    (message({"type": "input_video", "video_url": "URL"}), "input[0].content[1].video_url"),
    (message({"type": "input_file", "file_url": "URL"}), "input[0].content[1].file_url"),
    (message({"type": "input_file", "filename": "x", "file_data": "URL"}), "input[0].content[1].file_data"),
    (output({"type": "input_image", "image_url": "URL"}), "input[1].output[0].image_url"),
]


def with_url(value: Any, url: str) -> Any:
    if isinstance(value, list):
        return [with_url(entry, url) for entry in value]
    if isinstance(value, dict):
        return {name: with_url(entry, url) for name, entry in value.items()}
    return url if value == "URL" else value


@pytest.mark.parametrize(("items", "param"), PLACES)
def test_each_place_of_a_url_is_looked_at_and_named(items: Any, param: str) -> None:
    for url, policies in {"http://127.0.0.1/secret": ("public", "refuse"), "https://example.com/x": ("refuse",)}.items():
        for url_inputs in policies:
            with pytest.raises(ApiError) as caught:
                ask(with_url(items, url), Policy(url_inputs=url_inputs))  # type: ignore[arg-type]
            assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, "unsupported_value")
            assert "secret" not in caught.value.message
    assert "https://example.com/x" in str(ask(with_url(items, "https://example.com/x"), Policy(url_inputs="public")))
    assert "http://127.0.0.1/x" in str(ask(with_url(items, "http://127.0.0.1/x"), Policy()))
    assert "iVBORw0KGgo=" in str(ask(with_url(items, DATA), Policy(url_inputs="refuse")))


def test_content_without_a_scheme_is_no_url() -> None:
    part = {"type": "input_file", "filename": "x.pdf", "file_data": "JVBERi0xLjQK"}
    assert "JVBERi0xLjQK" in str(ask(message(part), Policy(url_inputs="refuse")))


def test_a_history_is_looked_at_too() -> None:
    history = with_url(PLACES[0][0], "http://127.0.0.1/")
    with pytest.raises(ApiError) as caught:
        ask("hi", Policy(url_inputs="public"), [{"type": "message", **history[0]}])
    assert caught.value.param == "history[0].content[1].image_url"
