"""The sources of settings, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Optional

import msgspec
import pytest
import yaml
from pydantic import ValidationError

from responses_gateway.request.policy import Policy
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.settings import ModelParsers, Settings, SettingsError, backend_url, describe
from responses_gateway.settings.background import WebhookEndpoint
from responses_gateway.settings.identity import TokenIssuer
from responses_gateway.settings.load import load
from responses_gateway.settings.reference import kind_of


def write(folder: Path, text: str) -> Path:
    file = folder / "gateway.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def complaint(flags: dict[str, object] | None = None, file: Path | None = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags or {}, file, environ or {})
    return str(caught.value)


# Everything that is wrong at once


def test_all_wrong_settings_are_reported_at_once_and_each_once(tmp_path: Path) -> None:
    file = write(tmp_path, "prt: 3\nadmin_key: short\nmodells: {}\nidle_timeout: soon\n")
    environ = {"RESPONSES_GATEWAY_BAKEND": "x", "RESPONSES_GATEWAY_WORKER": "2", "RESPONSES_GATEWAY_MODELS": "not json"}
    lines = complaint({"port": "abc"}, file, environ).splitlines()
    assert lines == [
        "unknown environment variable RESPONSES_GATEWAY_BAKEND (did you mean RESPONSES_GATEWAY_BACKEND?)",
        "unknown environment variable RESPONSES_GATEWAY_WORKER (did you mean RESPONSES_GATEWAY_WORKERS?)",
        "RESPONSES_GATEWAY_MODELS: expected a mapping in JSON",
        f"{file}: unknown key prt (did you mean port?)",
        f"{file}: unknown key modells (did you mean models?)",
        "--port: expected a whole number",
        f"{file}: idle_timeout: expected a number",
        f"{file}: admin_key: expected at least 16 characters",
    ]


# Sources


def test_defaults_stand_when_nothing_is_said() -> None:
    settings = load({}, None, {})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.backend) == ("127.0.0.1", 9000, [])
    assert settings.max_body_bytes == 100 * 1024 * 1024


def test_the_variable_of_a_clients_key_is_no_setting() -> None:
    assert load({}, None, {"RESPONSES_GATEWAY_KEY": "sk-of-the-client"}) == load({}, None, {})


def test_flags_before_environment_before_file_before_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, "port: 1\nhost: file\nlog_level: error\n")
    environ = {"RESPONSES_GATEWAY_PORT": "2", "RESPONSES_GATEWAY_HOST": "environment"}
    settings = load({"port": "3"}, file, environ)
    assert (settings.port, settings.host, settings.log_level, settings.log_format) == (3, "environment", "error", "auto")


def test_the_environment_may_name_the_file_and_a_flag_names_another(tmp_path: Path) -> None:
    named = write(tmp_path, "port: 1\n")
    other = tmp_path / "other.yaml"
    other.write_text("port: 2\n", encoding="utf-8")
    environ = {"RESPONSES_GATEWAY_CONFIG": str(named)}
    assert load({}, None, environ).port == 1
    assert load({}, other, environ).port == 2


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_file_is_a_file(tmp_path: Path, text: str) -> None:
    assert load({}, write(tmp_path, text), {}) == Settings()


def test_an_empty_variable_counts_as_absent() -> None:
    environ = {"RESPONSES_GATEWAY_BACKEND_API_KEY": "", "RESPONSES_GATEWAY_PORT": ""}
    assert load({}, None, environ) == Settings()


def test_variables_are_found_in_lower_case() -> None:
    assert load({}, None, {"responses_gateway_port": "1"}).port == 1


def test_settings_built_in_a_program_do_not_look_at_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPONSES_GATEWAY_PORT", "1")
    assert Settings().port == 9000


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1


# Values


@pytest.mark.parametrize(
    "text",
    [
        "http://a:1,http://b:2",
        "http://a:1, http://b:2/v1 ,",
        '["http://a:1", "http://b:2"]',
        "http://a:1,http://b:2,http://a:1/",
    ],
)
def test_a_list_in_the_environment_has_commas_or_is_json(text: str) -> None:
    assert load({}, None, {"RESPONSES_GATEWAY_BACKEND": text}).backend == ["http://a:1/v1", "http://b:2/v1"]


@pytest.mark.parametrize("text", ["backend: http://a:1", "backend: [http://a:1]", "backend:\n- http://a:1/v1\n"])
def test_a_list_in_the_file_is_a_list_or_one_value(tmp_path: Path, text: str) -> None:
    assert load({}, write(tmp_path, text), {}).backend == ["http://a:1/v1"]


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("2MiB", 2 * 1024 * 1024), ("1.5 kB", 1500)])
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert load({"max_body_bytes": text}, None, {}).max_body_bytes == size


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("off", False), ("no", False)])
def test_a_switch_takes_the_usual_words(text: str, value: bool) -> None:
    assert load({}, None, {"RESPONSES_GATEWAY_RELAY": text}).relay is value


def test_a_bare_off_in_yaml_is_the_word_off(tmp_path: Path) -> None:
    names = ("reasoning_summary", "metrics", "gen_ai_metrics", "ui", "token_ids", "code_interpreter")
    settings = load({}, write(tmp_path, "".join(f"{name}: off\n" for name in names)), {})
    assert {getattr(settings, name) for name in names} == {"off"}
    assert load({}, write(tmp_path, "token_ids: on\n"), {}).token_ids == "on"


def test_a_bare_version_in_yaml_is_no_number(tmp_path: Path) -> None:
    assert load({}, write(tmp_path, "gen_ai_metrics: 1.44\n"), {}).gen_ai_metrics == "1.44"


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("http://gpu:8000/", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1", "http://gpu:8000/v1"),
        (" https://gpu/v1/ ", "https://gpu/v1"),
        ("https://gpu/openai", "https://gpu/openai/v1"),
        ("https://gpu/v1/chat/completions", "https://gpu/v1"),
        ("https://gpu/v1/responses", "https://gpu/v1"),
        ("https://gpu/v1/messages/", "https://gpu/v1"),
        ("https://gpu/v1/messages/count_tokens", "https://gpu/v1"),
        ("https://gpu/v1/completions", "https://gpu/v1"),
        ("https://gpu/openai/v1/embeddings", "https://gpu/openai/v1"),
        ("https://gpu/v1/models", "https://gpu/v1"),
        ("https://gpu/api/v4", "https://gpu/api/v4"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_a_backend_is_given_with_or_without_v1(given: str, normal: str) -> None:
    assert backend_url(given) == normal
    assert backend_url(normal) == normal


# Errors


def test_a_wrong_value_is_named_as_the_user_wrote_it(tmp_path: Path) -> None:
    file = write(tmp_path, "idle_timeout: never\n")
    said = complaint({"port": "x"}, file, {"RESPONSES_GATEWAY_LOG_LEVEL": "loud"}).splitlines()
    assert [line.split(": ")[0] for line in said] == ["--port", str(file), "RESPONSES_GATEWAY_LOG_LEVEL"]
    assert "idle_timeout: " in said[1]
    assert said[2].endswith("expected 'debug', 'info', 'warning' or 'error'")


@pytest.mark.parametrize(
    "flags",
    [
        {"host": ""},  # which would be every address
        {"port": "65536"},
        {"port": "-1"},
        {"connect_timeout": "0"},
        {"idle_timeout": "inf"},
        {"header_grace": "nan"},
        {"keepalive_event": "-1"},
        {"invariant_sampling": "1.1"},
        {"max_body_bytes": "0"},
        {"max_body_bytes": "much"},
        {"reasoning_events": "none"},
        {"requests_per_minute": "1" + "0" * 400},  # which no clock and no program that counts can hold
        {"tokens_per_day": "1" + "0" * 400},
        {"idle_timeout": "1e308"},
        {"store_days": "1e308"},
    ],
)
def test_a_value_out_of_bounds_is_refused(flags: dict[str, object]) -> None:
    (field,) = flags
    assert complaint(flags).startswith("--" + field.replace("_", "-"))


def test_an_unknown_key_of_the_file_is_an_error_with_the_closest_name(tmp_path: Path) -> None:
    file = write(tmp_path, "keep_alive_event: 5\n")
    assert complaint(file=file) == f"{file}: unknown key keep_alive_event (did you mean keepalive_event?)"
    assert "did you mean max_body_bytes?" in complaint(file=write(tmp_path, "max-body-bytes: 5\n"))
    assert complaint(file=write(tmp_path, "1: 5\n")).endswith("unknown key 1")


def test_an_unknown_variable_is_an_error_with_the_closest_name() -> None:
    said = complaint(environ={"RESPONSES_GATEWAY_BACKEND_URL": "http://a"})
    assert said == "unknown environment variable RESPONSES_GATEWAY_BACKEND_URL (did you mean RESPONSES_GATEWAY_BACKEND?)"


@pytest.mark.parametrize("name", ["responses_gateway_config", "RESPONSES_GATEWAY_CONFG"])
def test_a_file_is_not_ignored_because_its_variable_is_written_in_another_way(name: str) -> None:
    said = complaint(environ={name: "gateway.yaml"})
    assert said == f"unknown environment variable {name} (did you mean RESPONSES_GATEWAY_CONFIG?)"


def test_a_variable_that_is_no_mapping_is_named() -> None:
    said = complaint(environ={"RESPONSES_GATEWAY_BACKENDS": "http://a"})
    assert said == "RESPONSES_GATEWAY_BACKENDS: expected a mapping in JSON"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('port: 1\nbackend_api_key: "sk-secret\nhost: a\n', "at line 4, column 1, in the block that begins at line 2"),
        ("backend_api_key: *sk-secret\n", "at line 1, column 18"),
        ("backend_api_key: !sk-secret a\n", "at line 1, column 18"),
        ("port: 2020-99-99\n", ""),
        ("[" * 5000, ""),
    ],
)
def test_a_mistake_in_the_file_is_placed_and_no_key_repeated(tmp_path: Path, text: str, place: str) -> None:
    said = complaint(file=write(tmp_path, text))
    assert said.endswith(f"not valid YAML {place}".rstrip())
    assert "sk-secret" not in said


def test_a_key_that_is_there_twice_is_a_mistake(tmp_path: Path) -> None:
    file = "backend: http://a\nport: 9001\nbackend: http://b\n"
    assert complaint(file=write(tmp_path, file)).endswith("not valid YAML at line 3, column 1: backend occurs twice")
    inside = "backends:\n  a: {url: http://a, url: http://b}\n"
    assert complaint(file=write(tmp_path, inside)).endswith("not valid YAML at line 2, column 22: url occurs twice")
    merged = "backends:\n  a: &a {url: http://a, weight: 2}\n  b: {<<: *a, url: http://b}\n"
    assert load({}, write(tmp_path, merged), {}).backends["b"].url == "http://b/v1"


@pytest.mark.parametrize("text", ["- port\n", "port\n", "port: [\n", "port: \x00\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert complaint(file=write(tmp_path, text)).startswith(str(tmp_path / "gateway.yaml"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert complaint(file=tmp_path / "none.yaml") == f"{tmp_path / 'none.yaml'}: No such file or directory"


def test_what_kubernetes_sets_for_a_service_of_our_name_is_passed_over() -> None:
    environ = {
        "RESPONSES_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "RESPONSES_GATEWAY_SERVICE_PORT": "9000",
        "RESPONSES_GATEWAY_SERVICE_PORT_HTTP": "9000",
        "RESPONSES_GATEWAY_PORT": "tcp://10.0.0.1:9000",
        "RESPONSES_GATEWAY_PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "RESPONSES_GATEWAY_PORT_9000_TCP_ADDR": "10.0.0.1",
    }
    assert load({}, None, environ) == Settings()


# Backends and secrets


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@gpu",
        "http://hunter2@gpu",
        "user:hunter2@gpu",
        "http://gpu/v1?key=hunter2",
        "http://gpu/#hunter2",
        "ftp://gpu/hunter2",
        "http://gpu:hunter2",
        "http://[hunter2",
        "http://",
        "http://hunter2..gpu",  # a name that no resolver takes
        "http://hunter2" + "x" * 64,
        "gpu:8000",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_its_secrets(url: str) -> None:
    said = complaint({"backend": [url]})
    assert said.startswith("--backend: ")
    assert "hunter2" not in said


def test_a_url_without_scheme_gets_a_suggestion() -> None:
    assert "did you mean http://gpu:8000?" in complaint({"backend": ["gpu:8000"]})


def test_a_list_that_is_no_json_is_refused() -> None:
    assert complaint(environ={"RESPONSES_GATEWAY_BACKEND": '["http://a"'}).startswith("RESPONSES_GATEWAY_BACKEND: not a JSON")


def test_the_description_reads_back_and_hides_the_key(tmp_path: Path) -> None:
    settings = load({"backend": ["http://a"], "backend_api_key": "hunter2", "reasoning_summary": "off"}, None, {})
    text = describe(settings)
    assert "hunter2" not in text + repr(settings)
    assert yaml.safe_load(text)["backend_api_key"] == "**********"
    again = load({"backend_api_key": "hunter2"}, write(tmp_path, text), {})
    assert again == settings


def test_backends_have_names_and_details(tmp_path: Path) -> None:
    text = (
        "backends:\n  gpu-1:\n    url: http://gpu-1:8000\n    models: qwen*\n    aliases: {gpt-5: Qwen/Qwen3}\n    weight: 2\n"
    )
    settings = load({}, write(tmp_path, text), {})
    details = settings.backends["gpu-1"]
    assert (details.url, details.models, details.aliases) == ("http://gpu-1:8000/v1", ["qwen*"], {"gpt-5": "Qwen/Qwen3"})
    assert load({}, write(tmp_path, describe(settings)), {}) == settings
    environ = {"RESPONSES_GATEWAY_BACKENDS": '{"gpu-1": {"url": "http://gpu-1:8000", "api_key": "hunter2"}}'}
    settings = load({}, None, environ)
    assert "hunter2" not in describe(settings) + repr(settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu: {}", "gpu: url: this field is required"),
        ("gpu: {url: 'gpu:8000'}", "gpu: url: expected a URL (did you mean http://gpu:8000?)"),
        ("gpu: {url: 'http://a:hunter2@gpu'}", "gpu: url: the URL must have no user, password"),
        ("gpu: {url: 'http://a', alias: {}}", "gpu: unknown key alias (did you mean aliases?)"),
        ("gpu: {url: 'http://a', max_concurrency: 0}", "gpu: max_concurrency: must be at least 1"),
        ("a/b: {url: 'http://a'}", "the name of a backend must consist of"),
        ("gpu: http://a", "gpu: expected an object"),
    ],
)
def test_what_is_wrong_with_a_backend_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, f"backends: {{{text}}}\n")
    message = complaint(file=file)
    assert message.startswith(f"{file}: backends: {said}")
    assert "hunter2" not in message


def test_a_key_that_could_be_guessed_is_refused() -> None:
    said = complaint({"admin_key": "short"})
    assert said.startswith("--admin-key: ")
    assert "short" not in said.replace("shorter", "")


KEYS = ("backend_api_key", "web_search_api_key", "admin_key")


@pytest.mark.parametrize("name", KEYS)
def test_the_line_break_at_the_end_of_a_file_with_a_secret_is_no_part_of_the_key(tmp_path: Path, name: str) -> None:
    key = "sk-0123456789abcdef"
    assert getattr(load({}, None, {f"RESPONSES_GATEWAY_{name.upper()}": f"{key}\n"}), name).get_secret_value() == key
    assert getattr(load({}, write(tmp_path, f"{name}: |\n  {key}\n"), {}), name).get_secret_value() == key


def test_nor_is_it_part_of_the_secret_of_a_proxy() -> None:
    proxy = '{"name_header": "X-User", "secret": "0123456789abcdef\\n"}'
    trusted = load({}, None, {"RESPONSES_GATEWAY_TRUSTED_PROXY": proxy}).trusted_proxy
    assert trusted is not None
    assert trusted.secret is not None
    assert trusted.secret.get_secret_value() == "0123456789abcdef"


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_cannot_be_sent_in_a_header_is_refused_and_not_repeated(tmp_path: Path, name: str) -> None:
    said = complaint(file=write(tmp_path, f"{name}: |\n  sk-0123456789\n  sk-9876543210\n"))
    assert said == f"{tmp_path / 'gateway.yaml'}: {name}: expected printable characters on one line"
    each = complaint(file=write(tmp_path, 'backends: {a: {url: http://a, api_key: "sk-0123456789\\tabc"}}\n'))
    assert each.endswith("backends: a: api_key: expected printable characters on one line")


def test_urls_alone_are_named_by_host_and_port() -> None:
    urls = ["http://a:1", "http://b:2/openai/v1", "https://a:1", "http://[::1]:8000"]
    settings = Settings(backend=urls, backends={"b": {"url": "http://b"}}, backend_api_key="key", max_concurrency=4)
    specs = specs_of(settings)
    assert [spec.name for spec in specs] == ["a:1", "b:2:openai", "a:1-2", "[::1]:8000", "b"]
    assert {(spec.api_key, spec.max_concurrency) for spec in specs} == {("key", 4)}


def test_a_backend_with_the_name_of_another_ones_host_and_port_does_not_replace_it() -> None:
    details = {"a:1": {"url": "http://c:3", "weight": 2}, "b:2": {"url": "http://b:2", "weight": 3}}
    specs = specs_of(Settings(backend=["http://a:1", "http://b:2"], backends=details))
    assert {spec.name: (spec.url, spec.weight) for spec in specs} == {
        "a:1-2": ("http://a:1/v1", 1),
        "a:1": ("http://c:3/v1", 2),
        "b:2": ("http://b:2/v1", 3),
    }


# Settings for some models


def test_models_have_settings_of_their_own(tmp_path: Path) -> None:
    text = "models:\n  qwen*:\n    reasoning_parser: qwen3\n    opened_thinking: no\n  '*':\n    rescue: true\n"
    settings = load({}, write(tmp_path, text), {})
    assert list(settings.models) == ["qwen*", "*"]  # in this order, since the first match applies
    assert settings.models["qwen*"] == ModelParsers(reasoning_parser="qwen3", opened_thinking="no")
    assert settings.models["*"] == ModelParsers(rescue=True)
    assert load({}, write(tmp_path, describe(settings)), {}) == settings
    environ = {"RESPONSES_GATEWAY_MODELS": '{"qwen*": {"reasoning_parser": "qwen3", "opened_thinking": "no"}}'}
    assert load({}, None, environ).models == {"qwen*": settings.models["qwen*"]}


def test_a_bare_yes_in_yaml_is_the_word_yes(tmp_path: Path) -> None:
    assert load({}, write(tmp_path, "opened_thinking: yes\n"), {}).opened_thinking == "yes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qwen*: {tool_parser: hermes}", "qwen*: unknown key tool_parser (did you mean tool_call_parser?)"),
        ("qwen*: {rescue: perhaps}", "qwen*: rescue: expected true or false"),
        ("qwen*: {opened_thinking: perhaps}", "qwen*: opened_thinking: expected 'auto', 'yes' or 'no'"),
        ("qwen*: hermes", "qwen*: expected an object"),
    ],
)
def test_what_is_wrong_with_a_model_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, f"models: {{{text}}}\n")
    assert complaint(file=file).startswith(f"{file}: models: {said}")


def test_models_that_are_no_mapping_are_refused(tmp_path: Path) -> None:
    assert "models: expected an object" in complaint(file=write(tmp_path, "models: [qwen]\n"))


# Settings and the policy of the translation


def test_the_policy_of_the_translation_has_the_same_defaults() -> None:
    settings = Settings().model_dump()
    policy = msgspec.structs.asdict(Policy())
    shared = settings.keys() & policy.keys()
    assert {"system_messages", "late_developer", "reasoning_field", "reasoning_effort", "strict"} <= shared
    plain = {name: frozenset(value) if isinstance(value, list) else value for name, value in settings.items()}
    assert [name for name in shared if plain[name] != policy[name]] == []


def test_the_password_of_a_database_is_not_printed() -> None:
    printed = describe(Settings(store="postgresql://user:pass:w0rd@host/name"))
    assert "w0rd" not in printed
    assert "user:pass" not in printed
    assert "postgresql://user:**********@host/name" in printed
    printed = describe(Settings(events="rediss://:pass:w0rd@host:6379/1"))
    assert "w0rd" not in printed
    assert "rediss://:**********@host:6379/1" in printed
    printed = describe(Settings(store="postgresql://user@host/name?password=w0rd&port=1", events="redis://:p@w0rd@host"))
    assert "w0rd" not in printed
    assert "postgresql://user@host/name?password=**********&port=1" in printed
    assert "redis://:**********@host" in printed


def test_the_store_is_a_path_or_a_postgresql_url() -> None:
    for place in ("/var/lib/gateway.db", "postgresql://host/name", "postgres://host/name", "memory"):
        assert Settings(store=place).store == place
    for url in ("sqlite:///var/lib/gateway.db", "sqlite:/var/lib/gateway.db", "sqlite:gateway.db"):
        with pytest.raises(ValidationError, match=r"(?s)store.*the path alone"):  # else a folder named `sqlite:` would appear
            Settings(store=url)


@pytest.mark.parametrize("word", ["None", "NONE", "Memory", "Auto"])
def test_the_words_for_the_store_have_any_case(word: str) -> None:
    assert Settings(store=word).store == word.lower()


def test_events_are_in_the_store_or_in_redis() -> None:
    assert Settings().events == "store"
    for url in ("redis://host", "rediss://host", "valkey://host", "valkeys://host", "unix:///run/redis.sock"):
        assert Settings(events=url).events == url
    with pytest.raises(ValidationError, match="events"):
        Settings(events="http://host:6379")


# The reference


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int | None, "NUMBER"),
        (Optional[Path], "PATH"),  # noqa: UP045  (as pydantic may tell it)
        (list[str], "TEXT"),
        (Literal["auto", 0, 1], "auto|0|1"),
        (dict[str, WebhookEndpoint], "MAPPING"),
        (TokenIssuer | None, "MAPPING"),
    ],
)
def test_each_type_of_a_setting_has_a_kind(annotation: Any, kind: str) -> None:
    assert kind_of(annotation) == kind


@pytest.mark.parametrize("annotation", [set[str], list[int], int | str, bytes])
def test_a_type_without_a_kind_is_an_error(annotation: Any) -> None:
    with pytest.raises(TypeError, match="has no kind"):
        kind_of(annotation)
