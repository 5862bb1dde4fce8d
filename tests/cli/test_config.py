"""The configuration: who wins, what is refused, and that everything is said at once."""

from pathlib import Path

import pytest

from hookonce.cli.context import build
from hookonce.config import KEYS, Address, Config, load
from hookonce.errors import ConfigurationError
from hookonce.flow.receive import Bounds
from hookonce.server.protocol import Limits
from hookonce.server.serve import GRACE_SECONDS
from hookonce.worker.loop import WorkerSettings
from tests.cli.shell import SECRET


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, text: str, **environ: str) -> Config:
    """Write the file and read it with this environment."""
    (folder / "hookonce.toml").write_text(text)
    return load(environ=environ)


def test_defaults_are_those_of_the_parts_they_configure():
    """A default written here and in the code it configures is one number."""
    bounds, worker = Bounds(), WorkerSettings()
    for name in ("body_bytes_max", "body_seconds", "source_rate", "address_rate"):
        assert KEYS[f"server.{name}"].default == getattr(bounds, name)
    assert KEYS["server.head_seconds"].default == Limits().head_seconds
    assert KEYS["server.connections_max"].default == Limits().connections_max
    assert KEYS["server.address_connections_max"].default == Limits().address_connections_max
    assert KEYS["server.grace_seconds"].default == GRACE_SECONDS
    for name in ("concurrency", "lease_seconds", "group"):
        assert KEYS[f"worker.{name}"].default == getattr(worker, name)


def test_the_age_of_events_is_no_limit_until_somebody_says_so(folder):
    """Apart from the signature's tolerance, and in days if you like: what the file says reaches the receiver."""
    assert load(environ={})["server.event_age_seconds"] is Bounds().event_age_seconds is None
    config = written(folder, '[server]\nevent_age_seconds = "3d"\n')
    built = build(config)
    assert built.inbox is not None and not config.problems
    assert built.inbox._desk.receiver.bounds.event_age_seconds == 3 * 86_400.0


def test_flag_beats_environment_beats_file_beats_default(folder):
    """Each stronger place overrides the weaker, and the setting says which one it was."""
    text = '[log]\nlevel = "debug"\nformat = "json"\n[worker]\ngroup = 2\n'
    (folder / "hookonce.toml").write_text(text)
    environ = {"HOOKONCE_LOG__FORMAT": "console", "HOOKONCE_WORKER__GROUP": "3"}
    config = load(flags={"worker.group": "4", "worker.concurrency": None}, environ=environ)
    assert not config.problems
    said = {name: (config[name], config.settings[name].origin) for name in ("log.level", "log.format", "worker.group")}
    assert said == {
        "log.level": ("debug", "hookonce.toml:2"),
        "log.format": ("console", "HOOKONCE_LOG__FORMAT"),
        "worker.group": (4, "--group"),
    }
    assert not config.settings["worker.concurrency"].given


def test_a_default_that_is_written_down_still_wins_over_a_weaker_place(folder):
    """Unset and default are two things: the file's value holds although it equals the default."""
    config = written(folder, 'environment = "production"')
    assert config.settings["environment"].origin == "hookonce.toml:1"


def test_database_url_counts_only_when_nothing_else_is_said(folder):
    """DATABASE_URL is a fallback, not an override."""
    assert load(environ={"DATABASE_URL": "postgresql://a/b"})["database"] == "postgresql://a/b"
    config = written(folder, 'database = "sqlite:////tmp/x.db"', DATABASE_URL="postgresql://a/b")
    assert config["database"] == "sqlite:////tmp/x.db"


def test_exactly_one_file_is_read(folder):
    """--config, else HOOKONCE_CONFIG, else ./hookonce.toml: never two merged, and never a missing one ignored."""
    (folder / "hookonce.toml").write_text("[worker]\ngroup = 2")
    (folder / "b.toml").write_text("[worker]\nconcurrency = 3")
    config = load(environ={"HOOKONCE_CONFIG": "b.toml"})
    assert (config["worker.group"], config["worker.concurrency"]) == (32, 3)
    assert load(file="hookonce.toml", environ={"HOOKONCE_CONFIG": "b.toml"})["worker.group"] == 2
    with pytest.raises(ConfigurationError, match="there is no file missing"):
        load(file="missing.toml", environ={})


def test_a_file_that_is_no_toml_is_named_with_its_line(folder):
    """The parser's own message has the line, and nothing is half read."""
    with pytest.raises(ConfigurationError, match="line 2"):
        written(folder, 'app = "a:b"\nworker = nope\n')


@pytest.mark.parametrize(
    ("written_as", "means"),
    [('"250ms"', 0.25), ('"10s"', 10.0), ('"5m"', 300.0), ("7", 7.0), ("1.5", 1.5), ('"2"', 2.0)],
)
def test_durations(folder, written_as, means):
    """A duration is a number of seconds, or one with its unit."""
    assert written(folder, f"[server]\nbody_seconds = {written_as}")["server.body_seconds"] == means


@pytest.mark.parametrize(
    ("written_as", "means"), [('"1MiB"', 1 << 20), ('"64KiB"', 1 << 16), ('"2MB"', 2_000_000), ("9", 9)]
)
def test_sizes(folder, written_as, means):
    """A size is a number of bytes, or one with its unit."""
    assert written(folder, f"[server]\nbody_bytes_max = {written_as}")["server.body_bytes_max"] == means


@pytest.mark.parametrize(
    "line",
    [
        'server.listen = "8080"',
        'server.listen = "127.0.0.1:99999"',
        'server.path = "webhooks"',
        "server.body_bytes_max = 0",
        'server.body_bytes_max = "much"',
        'server.body_seconds = "soon"',
        "server.body_seconds = true",
        "server.body_seconds = nan",
        "server.source_rate = -1",
        "server.processes = 0",
        "worker.concurrency = 1.5",
        'worker.group = "many"',
        'worker.lease_seconds = "1ms"',
        'log.level = "loud"',
        'environment = "staging"',
        'app = "shop"',
        "server = 1",
        "sources = 1",
        "sources.shop = 1",
    ],
)
def test_an_impossible_value_is_refused_with_its_line(folder, line):
    """Whatever cannot work is found before anything starts."""
    config = written(folder, "\n" + line)
    assert len(config.problems) == 1
    assert config.problems[0].startswith("hookonce.toml:2: ")
    with pytest.raises(ConfigurationError):
        config.require()


def test_everything_is_said_at_once_with_lines_and_suggestions(folder):
    """Three files' worth of mistakes are one answer."""
    text = """databse = "sqlite:///x.db"
[server]
listn = "127.0.0.1:1"
processes = 0
[worker]
[sources.Shop]
provider = "strip"
secrets = ["evn:A"]
[sources.acme]
provider = "hmac"
algoritm = "md5"
secrets = ["env:UNSET_A"]
header = "X-Sig"
[sources.git]
provider = "github"
secrets = []
"""
    config = written(folder, text, HOOKONCE_WORKER__CONCURENCY="3")
    _, wrong, _ = config.endpoints()
    problems = "\n".join([*config.problems, *wrong])
    for expected in (
        "hookonce.toml:1: there is no setting databse; did you mean database?",
        "hookonce.toml:3: there is no setting server.listn; did you mean server.listen?",
        "hookonce.toml:4: server.processes is 0",
        "HOOKONCE_WORKER__CONCURENCY: there is no setting worker.concurency; did you mean worker.concurrency?",
        "hookonce.toml:6: 'Shop' cannot be a source's name",
        "did you mean stripe?",
        '"evn:" is not a place',
        "hookonce.toml:11: there is no setting sources.acme.algoritm for hmac; did you mean algorithm?",
        "hookonce.toml:12: sources.acme.secrets: the environment variable UNSET_A is not set",
        "hookonce.toml:14: sources.git has no secrets",
    ):
        assert expected in problems, problems


def test_variables_of_others_are_left_alone(folder):
    """Kubernetes makes HOOKONCE_PORT and its like for a service of this name: they are no mistakes of ours."""
    environ = {"HOOKONCE_PORT": "tcp://10.0.0.1:80", "HOOKONCE_SERVICE_HOST": "10.0.0.1", "HOOKONCE_TEST_PG": "wheel"}
    assert not load(environ=environ).problems
    assert load(environ={"HOOKONCE_DATABSE": "x"}).problems


def test_sources_can_come_from_the_environment(folder):
    """A container without a file has sources, too."""
    environ = {
        "HOOKONCE_SOURCES__SHOP__PROVIDER": "standard_webhooks",
        "HOOKONCE_SOURCES__SHOP__SECRETS": "env:A,env:B",
        "HOOKONCE_SERVER__LISTEN": "[::1]:81",
        "A": SECRET,
        "B": SECRET[:-4] + "eQ==",
    }
    config = load(environ=environ)
    endpoints, wrong, _ = config.endpoints()
    assert (config.problems, wrong) == ((), [])
    assert [(one.name, len(one.secrets)) for one in endpoints] == [("shop", 2)]
    assert config["server.listen"] == Address("::1", 81)


def test_options_of_a_provider_reach_it(folder):
    """An unknown sender is described in the file, without code."""
    text = """[sources.acme]
provider = "hmac"
secrets = ["env:ACME"]
header = "X-Acme"
event_id = "body:event.uuid"
prefix = "sha256="
signed = "{header:X-Time}.{body}"
timestamp_header = "X-Time"
tolerance = "10m"
"""
    endpoints, wrong, _ = written(folder, text, ACME="abc").endpoints()
    assert not wrong
    scheme = endpoints[0].provider.scheme
    assert (scheme.header, scheme.prefix, scheme.tolerance) == ("X-Acme", "sha256=", 600.0)


def test_an_option_the_scheme_refuses_is_told_with_its_source(folder):
    """What only the provider can judge is reported in the same list."""
    text = '[sources.acme]\nprovider = "hmac"\nsecrets = ["env:ACME"]\nheader = "X"\nevent_id = "body:id"\nalgorithm = "md5"\n'
    endpoints, wrong, _ = written(folder, text).endpoints()
    assert not endpoints
    assert any("algorithm" in problem for problem in wrong)
    assert any("ACME is not set" in problem for problem in wrong)


def test_a_literal_secret_is_for_development_only(folder):
    """In development a secret in the file is a warning, in production it is refused; it is never shown."""
    text = f'environment = "%s"\n[sources.shop]\nprovider = "standard_webhooks"\nsecrets = ["{SECRET}"]\n'
    endpoints, wrong, warnings = written(folder, text % "development").endpoints()
    assert (len(endpoints), wrong, len(warnings)) == (1, [], 1)
    endpoints, wrong, _ = written(folder, text % "production").endpoints()
    assert (endpoints, len(wrong)) == ([], 1)
    config = load(environ={})
    assert SECRET not in "".join([*warnings, *wrong, repr(config), str(config.sources)])


def test_a_secret_file_loses_its_last_line_break_only(folder):
    """Secrets mounted as files end with a line break; more than that is a mistake that is told."""
    (folder / "s").write_text(SECRET + "\n")
    text = '[sources.shop]\nprovider = "standard_webhooks"\nsecrets = ["file:s"]\n'
    endpoints, wrong, _ = written(folder, text).endpoints()
    assert not wrong
    assert endpoints[0].secrets[0].value == SECRET.encode()
    (folder / "s").write_text(f" {SECRET}\n")
    _, wrong, _ = load(environ={}).endpoints()
    assert len(wrong) == 1
    assert SECRET not in wrong[0]


def test_a_secret_ends_at_its_time(folder):
    """not_after is a time with its zone, and one that has passed is warned of."""
    text = '[sources.shop]\nprovider = "standard_webhooks"\nsecrets = ["env:A", {{ from = "env:A", not_after = {} }}]\n'
    endpoints, wrong, warnings = written(folder, text.format("2020-01-01T00:00:00Z"), A=SECRET).endpoints()
    assert not wrong
    assert endpoints[0].secrets[1].not_after.year == 2020
    assert "no longer valid" in warnings[0]
    assert "zone" in written(folder, text.format("2020-01-01T00:00:00"), A=SECRET).problems[0]


def test_a_relative_path_in_the_file_starts_at_the_file(folder):
    """The same file means the same database, wherever the command is run."""
    inner = folder / "inner"
    inner.mkdir()
    (inner / "hookonce.toml").write_text('database = "sqlite:///shop.db?network_file_system=allowed"')
    config = load(file="inner/hookonce.toml", environ={})
    assert config["database"] == f"sqlite:///{inner.resolve()}/shop.db?network_file_system=allowed"
    flagged = load(file="inner/hookonce.toml", flags={"database": "sqlite:///here.db"}, environ={})
    assert flagged["database"] == "sqlite:///here.db"


def test_proxies_are_addresses_or_networks(folder):
    """A list in the file, commas in the environment; a name or half an address is refused with what may stand there."""
    config = written(folder, '[server]\ntrusted_proxies = ["127.0.0.1", "10.0.0.0/8", "::1"]\n')
    assert config["server.trusted_proxies"] == ("127.0.0.1", "10.0.0.0/8", "::1")
    config = written(folder, "", HOOKONCE_SERVER__TRUSTED_PROXIES="10.0.0.1, *")
    assert config["server.trusted_proxies"] == ("10.0.0.1", "*")
    for wrong in ('["proxy.internal"]', '["10.0.0"]', "7", '["10.0.0.1/8"]'):
        [problem] = written(folder, f"[server]\ntrusted_proxies = {wrong}\n").problems
        assert problem.startswith("hookonce.toml:2: server.trusted_proxies is ")


def test_a_private_key_is_for_development_only(tmp_path):
    """A development key signs in the provider's name: a problem in production, a warning in development."""
    from hookonce.config import load
    from hookonce.providers import Discord
    from hookonce.providers.known import REGISTERED

    key = REGISTERED["discord"].new_secret().decode()
    assert Discord(key)
    file = tmp_path / "hookonce.toml"
    for environment, problems, warnings in (("production", 1, 0), ("development", 0, 1)):
        file.write_text(
            f'environment = "{environment}"\n[sources.discord]\nprovider = "discord"\nsecrets = ["env:KEY"]\n'
        )
        found, wrong, doubtful = load(file=str(file), environ={"KEY": key}).endpoints()
        assert (len(wrong), len(doubtful), len(found)) == (problems, warnings, 1 - problems)
        assert key[40:80] not in " ".join([*wrong, *doubtful])
