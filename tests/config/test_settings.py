"""The configuration: the sample equals the code in both directions, and errors name file, key and value."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from spamfilter.config.addresses import split_address
from spamfilter.config.sections import Recipients
from spamfilter.config.settings import Settings, load
from spamfilter.errors import ConfigError
from spamfilter.system import paths
from spamfilter.system.packaged_files import shipped
from spamfilter.system.paths import config_file, state_directory

SAMPLE = shipped("config/spamfilter.toml")
BAD = sorted((Path(__file__).parent / "bad_configs").glob("*.toml"))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration file, variable or state directory of this machine."""
    monkeypatch.setattr(paths, "SYSTEM_FILE", tmp_path / "none" / "spamfilter.toml")
    monkeypatch.setattr(paths, "SYSTEM_STATE", tmp_path / "none" / "state")
    for name in ("SPAMFILTER_CONFIG", "STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path, text: str) -> Path:
    path = folder / "spamfilter.toml"
    path.write_text(text, encoding="utf-8")
    return path


def leaves(model: BaseModel, above: str = "") -> Iterator[tuple[str, object]]:
    """Every key with its value, as section.key."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name, value


def flat(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:  # an empty one is a value
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def test_every_key_of_the_sample_is_the_default_and_every_default_is_in_the_sample() -> None:
    sample = dict(flat(tomllib.loads(SAMPLE.read_text(encoding="utf-8")))) | {"recipients": []}
    assert sample == dict(leaves(Settings()))
    assert {key: type(value) for key, value in sample.items()} == {
        key: type(value) for key, value in leaves(Settings())
    }


def test_the_sample_is_valid_and_means_the_defaults() -> None:
    assert load(SAMPLE, {}) == load(None, {}) == Settings()


def test_the_table_of_recipients_in_the_sample_has_all_its_keys_and_can_be_used(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^#(?=\[\[|[a-z_]+ = )", "", SAMPLE.read_text(encoding="utf-8"))
    (table,) = tomllib.loads(text)["recipients"]
    assert set(table) == set(Recipients.model_fields)
    settings = load(written(tmp_path, text), {})
    policies = settings.policies()
    assert {name: (one.name, one.table, one.spam, one.actions["spam"]) for name, one in policies.items()} == {
        name: (name, "sales@example.org", 0.97, "quarantine") for name in ("sales@example.org", "shop.example.org")
    }
    assert [(rule.kind, rule.what, rule.whom, bool(rule.expires)) for rule in settings.rules()] == [
        (kind, what, whom, kind == "block")
        for kind, what in (("allow", "news.example"), ("block", "offers.example"))
        for whom in ("sales@example.org", "shop.example.org")
    ]
    assert Settings().reloaded(settings) == (settings, [])


def uncommented(text: str) -> list[str]:
    """Keys that have no comment, do not follow a key with one, and are not explained in a sister section."""
    found, explained, above = [], False, ""
    known: set[tuple[str, str]] = set()
    for line in text.splitlines():
        if line.startswith("["):
            above = line.strip("[]").rpartition(".")[0]
        if line.startswith("#"):
            explained = True
        elif not line or line.startswith("["):
            explained = False
        else:
            key = (above, line.partition(" = ")[0])
            if explained:
                known.add(key)
            elif not above or key not in known:
                found.append(line)
    return found


def test_every_key_of_the_sample_stands_below_a_comment() -> None:
    assert uncommented(SAMPLE.read_text(encoding="utf-8")) == []
    assert uncommented("# why\n[a]\nb = 1\n# why\nc = 1\nd = 1\n\ne = 1\n") == ["b = 1", "e = 1"]
    assert uncommented("[a.x]\n# why\nb = 1\n[a.y]\nb = 1\nc = 1\n[b]\nb = 1\n") == ["c = 1", "b = 1"]


def test_every_number_named_in_words_is_the_one_in_force() -> None:
    text = SAMPLE.read_text(encoding="utf-8")
    assert f"(at least {65536})" in text
    with pytest.raises(ConfigError):
        load(None, {"SPAMFILTER_LIMITS__MESSAGE_SIZE": "65535"})
    assert load(None, {"SPAMFILTER_LIMITS__MESSAGE_SIZE": "65536"}).limits.message_size == 65536


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_configuration_is_an_error_that_says_why(path: Path) -> None:
    first = path.read_bytes().split(b"\n")[0].decode()
    expected = first.removeprefix("# expect: ")
    assert expected != first
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert f"{path}: {expected}" in str(caught.value)
    assert all(line.startswith(f"{path}: ") for line in str(caught.value).splitlines())


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(BAD[0].with_name("two-faults-at-once.toml"), {})
    assert [re.sub(r"^.*?toml: ", "", line).split(" ")[0] for line in str(caught.value).splitlines()] == [
        "limits.recipients",
        "limits.errors",
    ]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        pytest.param("", "verdict.spam", 0.9, id="empty-file"),
        pytest.param("[verdict]\nspam = 1\nreject = 1", "verdict.spam", 1.0, id="whole-number-for-a-share"),
        pytest.param("[verdict]\nreject = 0", "verdict.reject", 0.0, id="never-reject"),
        pytest.param("[verdict]\nunsure = 0.9", "verdict.unsure", 0.9, id="no-unsure-at-all"),
        pytest.param("[verdict]\nspam = 0.999", "verdict.spam", 0.999, id="spam-equals-reject"),
        pytest.param("[verdict]\nreject_after = 0", "verdict.reject_after", 0, id="reject-at-once"),
        pytest.param('[verdict]\nsubject_prefix = "[MÜLL]"', "verdict.subject_prefix", "[MÜLL]", id="prefix-not-ascii"),
        pytest.param('[relay]\nlisten = ["[::1]:0"]', "relay.listen", ["[::1]:0"], id="ipv6-and-any-port"),
        pytest.param('[relay]\nlisten = ["::1:25"]', "relay.listen", ["::1:25"], id="ipv6-without-brackets"),
        pytest.param('[relay]\nlisten = ["mail.example.org:25"]', "relay.listen", ["mail.example.org:25"], id="name"),
        pytest.param('[relay]\nlisten = ["0.0.0.0:65535"]', "relay.listen", ["0.0.0.0:65535"], id="highest-port"),
        pytest.param('[relay]\ntrusted = []', "relay.trusted", [], id="nobody-trusted"),
        pytest.param('[relay]\ntrusted = ["10.0.0.1"]', "relay.trusted", ["10.0.0.1"], id="one-address-trusted"),
        pytest.param('[relay]\nnext_hop = "smtp://[::1]:24"', "relay.next_hop", "smtp://[::1]:24", id="next-hop-ipv6"),
        pytest.param('[relay]\nnext_hop = "lmtp:///a/b"', "relay.next_hop", "lmtp:///a/b", id="next-hop-socket"),
        pytest.param('[relay]\nnext_hop = "maildir:/a b/ü"', "relay.next_hop", "maildir:/a b/ü", id="odd-maildir"),
        pytest.param('[store]\nurl = "sqlite:////x.db"', "store.url", "sqlite:////x.db", id="a-database"),
        pytest.param("[learn]\nvoices = []", "learn.voices", [], id="the-default-voices"),
        pytest.param("[learn.poisson]\nprior = 0.001", "learn.poisson.prior", 0.001, id="prior-as-a-number"),
        pytest.param("[learn.binomial]\nsmoothing = 0", "learn.binomial.smoothing", 0.0, id="no-smoothing"),
        pytest.param("[limits]\nconnections = 1", "limits.connections", 1, id="one-connection"),
        pytest.param("[feedback]\nwindow_days = 0.5", "feedback.window_days", 0.5, id="half-a-day"),
        pytest.param(
            f'[feedback]\nsocket = "/{"x" * 106}"', "feedback.socket", "/" + "x" * 106, id="socket-of-107-bytes"
        ),
        pytest.param("[feedback]\nusers = ['uid 7', 'X\\ann']", "feedback.users", ["uid 7", "X\\ann"], id="odd-logins"),
        pytest.param('[feedback]\ntraps = ["Trap@X.ORG"]', "feedback.traps", ["trap@x.org"], id="trap-in-capitals"),
        pytest.param('[relay]\nsubmission = ["[::1]:587"]', "relay.submission", ["[::1]:587"], id="submission-ipv6"),
        pytest.param("[verdict]\nquarantine_days = 0.5", "verdict.quarantine_days", 0.5, id="half-a-day-of-quarantine"),
        pytest.param("limits = {errors = 3}", "limits.errors", 3, id="inline-table"),
        pytest.param("[log]\nlevel = 'debug'", "log.level", "debug", id="single-quotes"),
        pytest.param("\ufeff[log]\nlevel = 'debug'", "log.level", "debug", id="byte-order-mark"),
    ],
)  # fmt: skip
def test_an_odd_but_good_value_is_taken(tmp_path: Path, text: str, key: str, value: object) -> None:
    assert dict(leaves(load(written(tmp_path, text), {})))[key] == value


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        pytest.param(
            "RELAY__NEXT_HOP", "smtp://127.0.0.1:26", "relay.next_hop", "smtp://127.0.0.1:26", id="plain-text"
        ),
        pytest.param(
            "RELAY__NEXT_HOP", '"smtp://127.0.0.1:26"', "relay.next_hop", "smtp://127.0.0.1:26", id="toml-text"
        ),
        pytest.param("RELAY__HOSTNAME", "7", "relay.hostname", "7", id="text-that-looks-like-a-number"),
        pytest.param(
            "RELAY__LISTEN", '["127.0.0.1:1", "[::1]:2"]', "relay.listen", ["127.0.0.1:1", "[::1]:2"], id="list"
        ),
        pytest.param("RELAY__DOMAINS", "[]", "relay.domains", [], id="empty-list"),
        pytest.param(
            "RELAY__DOMAINS",
            '["Example.ORG.", "b\u00fccher.example"]',
            "relay.domains",
            ["example.org", "xn--bcher-kva.example"],
            id="domains-in-one-form",
        ),
        pytest.param("VERDICT__SPAM", "0.95", "verdict.spam", 0.95, id="number"),
        pytest.param("VERDICT__REJECT", "0", "verdict.reject", 0.0, id="whole-number"),
        pytest.param("VERDICT__EVIDENCE_HEADER", "true", "verdict.evidence_header", True, id="boolean"),
        pytest.param("VERDICT__ON_SPAM", "quarantine", "verdict.on_spam", "quarantine", id="choice"),
        pytest.param("VERDICT__ON_SPAM", '"quarantine"', "verdict.on_spam", "quarantine", id="quoted-choice"),
        pytest.param("VERDICT__SUBJECT_PREFIX", "[SPAM]", "verdict.subject_prefix", "[SPAM]", id="text-like-a-list"),
        pytest.param("LIMITS__MESSAGE_SIZE", "100_000", "limits.message_size", 100_000, id="underscore"),
        pytest.param("LEARN__SOFT__SCALE", "2.5", "learn.soft.scale", 2.5, id="parameter"),
        pytest.param("LOG__LEVEL", "debug", "log.level", "debug", id="level"),
        pytest.param("STORE__URL", "sqlite:////a b/x.db", "store.url", "sqlite:////a b/x.db", id="url"),
        pytest.param("STORE__URL", "", "store.url", "", id="empty"),
    ],
)
def test_the_environment_overrides_the_file(tmp_path: Path, variable: str, text: str, key: str, value: object) -> None:
    file = written(tmp_path, '[relay]\nnext_hop = "smtp://127.0.0.1:25"\n[verdict]\nspam = 0.8\n')
    for source in (file, None):
        assert dict(leaves(load(source, {f"SPAMFILTER_{variable}": text})))[key] == value
    other = dict(leaves(load(file, {f"SPAMFILTER_{variable}": text})))
    assert {name for name, found in other.items() if found != dict(leaves(load(file, {})))[name]} <= {key}


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        pytest.param({"RELAY__LISTE": "x"}, "SPAMFILTER_RELAY__LISTE: unknown key relay.liste", id="unknown-key"),
        pytest.param({"SPAM__X": "x"}, "SPAMFILTER_SPAM__X: unknown key spam.x", id="unknown-section"),
        pytest.param(
            {"RECIPIENTS__SPAM": "0.8"},
            "SPAMFILTER_RECIPIENTS__SPAM: unknown key recipients.spam = '0.8'; tables [[recipients]] are set in the",
            id="recipients",
        ),
        pytest.param({"VERDICT__SPAM__X": "1"}, "SPAMFILTER_VERDICT__SPAM__X: unknown key", id="too-deep"),
        pytest.param({"VERDICT__SPAM": "much"}, "SPAMFILTER_VERDICT__SPAM: verdict.spam = 'much'", id="not-a-number"),
        pytest.param({"VERDICT__SPAM": ""}, "SPAMFILTER_VERDICT__SPAM: verdict.spam = ''", id="empty-number"),
        pytest.param({"VERDICT__SPAM": "2"}, "SPAMFILTER_VERDICT__SPAM: verdict.spam = 2", id="out-of-bounds"),
        pytest.param({"RELAY__LISTEN": "127.0.0.1:25"}, "SPAMFILTER_RELAY__LISTEN: relay.listen", id="not-a-list"),
        pytest.param({"RELAY__LISTEN": '["x"]'}, "SPAMFILTER_RELAY__LISTEN: relay.listen = 'x'", id="bad-item"),
        pytest.param({"LEARN__MULTINOMIAL__PRIOR": "x"}, "SPAMFILTER_LEARN__MULTINOMIAL__PRIOR: ", id="bad-prior"),
        pytest.param({"RELAY__LISTEN": "[1"}, "SPAMFILTER_RELAY__LISTEN: relay.listen = '[1'", id="broken-toml"),
        pytest.param({"LOG__LEVEL": "loud"}, "SPAMFILTER_LOG__LEVEL: log.level = 'loud'", id="bad-choice"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, environ: dict[str, str], sentence: str) -> None:
    for file in (written(tmp_path, ""), None):
        with pytest.raises(ConfigError) as caught:
            load(file, {f"SPAMFILTER_{name}": value for name, value in environ.items()})
        assert str(caught.value).startswith(sentence)


def test_a_variable_below_a_section_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="relay"):
        load(written(tmp_path, "relay = 3"), {"SPAMFILTER_RELAY__MODE": "after-queue"})


def test_other_variables_are_left_alone() -> None:
    environ = {"SPAMFILTER_CORPORA": "/x", "SPAMFILTERS__X": "1", "spamfilter_log__level": "loud", "PATH": "/bin"}
    assert load(None, environ) == Settings()


@pytest.mark.parametrize("name", ["SPAMFILTER_VERDICT_SPAM", "SPAMFILTER_SPAM", "SPAMFILTER_", "SPAMFILTER_Corpora"])
def test_a_variable_that_is_no_key_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: no key of the configuration; write section and key with two"):
        load(None, {name: "0.95"})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        pytest.param(lambda path: None, "No such file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "Is a directory", id="a-folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Any, sentence: str) -> None:
    path = tmp_path / "x.toml"
    make(path)
    with pytest.raises(ConfigError, match=rf"x\.toml: {sentence}"):
        load(path, {})


def test_the_file_is_the_one_named_else_of_the_environment_else_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config_file() is None
    system = written(tmp_path, "")
    monkeypatch.setattr(paths, "SYSTEM_FILE", system)
    assert config_file() == system
    monkeypatch.setenv("SPAMFILTER_CONFIG", "/x/of-environment.toml")
    assert config_file() == Path("/x/of-environment.toml")
    assert config_file(Path("/x/named.toml")) == Path("/x/named.toml")


def test_the_state_lies_where_systemd_says_else_of_the_system_else_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert state_directory() == Path("/home/ann/.local/state/spamfilter")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert state_directory() == Path("/xdg/spamfilter")
    monkeypatch.setattr(paths, "SYSTEM_STATE", tmp_path)
    assert state_directory() == tmp_path
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
    assert state_directory() == Path("/var/lib/one")
    settings = Settings()
    assert settings.store_url() == "sqlite:////var/lib/one/spamfilter.db"
    assert settings.next_hop_url() == "maildir:/var/lib/one/mail"
    assert settings.quarantine_path() == Path("/var/lib/one/quarantine")


def test_the_policy_is_what_the_verdict_section_says(tmp_path: Path) -> None:
    text = """
        [relay]
        mode = "after-queue"
        [verdict]
        spam = 0.8
        unsure = 0.4
        reject = 0.95
        reject_after = 7
        on_ham = "tag"
        on_unsure = "defer"
        on_spam = "quarantine"
        subject_prefix = "[S]"
        evidence_header = true
        """
    policy = load(written(tmp_path, text), {}).policy()
    assert (policy.spam, policy.unsure, policy.reject, policy.reject_after) == (0.8, 0.4, 0.95, 7)
    assert policy.actions == {"ham": "tag", "unsure": "defer", "spam": "quarantine"}
    assert (policy.may_reject, policy.subject_prefix, policy.evidence_header) == (False, "[S]", True)
    assert Settings().policy().may_reject


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        pytest.param("", [], id="defaults"),
        pytest.param('[relay]\nmode = "after-queue"', [], id="after-queue-alone"),
        pytest.param(
            '[relay]\nmode = "after-queue"\n[verdict]\non_spam = "reject"\non_unsure = "reject"',
            ["verdict.on_unsure", "verdict.on_spam"],
            id="reject-after-queue",
        ),
        pytest.param('[verdict]\non_ham = "quarantine"', ["keeps good mail from its readers"], id="ham-kept-back"),
        pytest.param('[feedback]\nautomatic = ["trap"]', ['"trap", but feedback.traps names no'], id="no-trap"),
        pytest.param(
            '[feedback]\nautomatic = ["answered"]', ['"answered", but relay.submission names no'], id="no-socket"
        ),
        pytest.param(
            '[feedback]\nautomatic = ["answered"]\n[relay]\nsubmission = ["127.0.0.1:10027"]',
            ["names no socket"],
            id="port",
        ),
        pytest.param(
            '[feedback]\nautomatic = ["answered"]\n[relay]\nsubmission = ["unix:/run/x.sock"]', [], id="a-socket"
        ),
        pytest.param(
            '[feedback]\nautomatic = ["answered"]\n[relay]\nmilter = ["unix:/run/x.sock"]', [], id="a-milter-socket"
        ),
        pytest.param('[feedback]\nautomatic = ["trap"]\ntraps = ["a@x.example"]', [], id="a-trap"),
        pytest.param(
            '[feedback]\ntraps = ["a@x.example"]', ['feedback.automatic has no "trap"'], id="traps-that-catch-nothing"
        ),
        pytest.param('[lists]\nallow = ["a@x.example"]', ["'a@x.example' is not obeyed"], id="nobody-proves-senders"),
        pytest.param(
            '[lists]\nallow = ["a@x.example", "192.0.2.0/24"]\nresults_from = ["mx"]\nblock = ["192.0.2.0/24"]',
            [],
            id="rules-that-hold",
        ),
        pytest.param('[lists]\nallow = ["b@x.example until 2020-01-31"]', [], id="a-rule-that-has-expired"),
        pytest.param('[lists]\nblock = ["127.0.0.0/8"]', ["'127.0.0.0/8' has clients in relay.trusted"], id="itself"),
        pytest.param("[limits]\nfinal_seconds = 96", ["limits.final_seconds above 95"], id="too-patient"),
        pytest.param('[relay]\nnext_hop = "smtp://127.0.0.1:10025"', ["mail would loop"], id="its-own-next-hop"),
        pytest.param(
            '[relay]\nlisten = ["0.0.0.0:25"]\nnext_hop = "smtp://localhost:25"\ndomains = ["x.example"]',
            ["mail would loop"],
            id="its-own-next-hop-by-another-name",
        ),
        pytest.param(
            '[relay]\nnext_hop = "smtp://0.0.0.0:10025"', ["mail would loop"], id="its-own-next-hop-by-no-address"
        ),
        pytest.param(
            '[relay]\nlisten = ["0.0.0.0:25"]\nnext_hop = "smtp://127.0.0.1:26"\ndomains = ["x.example"]',
            [],
            id="another-port",
        ),
        pytest.param(
            '[relay]\nlisten = ["127.0.0.1:10025"]\nnext_hop = "smtp://mail.example:10025"', [], id="another-host"
        ),
        pytest.param('[relay]\nlisten = ["[::]:25"]', ["relay.domains is empty: all mail of clients"], id="no-domains"),
        pytest.param(
            '[relay]\ntrusted = ["10.0.0.0/8", "0.0.0.0/0"]',
            ["trusted has '0.0.0.0/0', every client: an open relay"],
            id="everybody-trusted",
        ),
    ],
)
def test_what_is_allowed_but_will_surprise_is_warned_of(tmp_path: Path, text: str, sentences: list[str]) -> None:
    warnings = load(written(tmp_path, text), {}).warnings()
    assert len(warnings) == len(sentences)
    assert all(sentence in warning for sentence, warning in zip(sentences, warnings, strict=True))


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().verdict.spam = 0.1


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("[::1]:25", "::1", 25), ("127.0.0.1:0", "127.0.0.1", 0), ("a_b.example.:65535", "a_b.example.", 65535)],
)
def test_an_address_is_split_into_host_and_port(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
