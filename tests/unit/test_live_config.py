"""The live section: what it may hold, and when a change of its file takes effect."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.configuring import config_text, put_in_place, write_config
from turnledger.store import Database, InvalidInput, StoreSettings, live_config, read_settings
from turnledger.store.config_section import ConversationSession, read_section
from turnledger.store.live_config import LiveConfig

PATH = "turn_engine.conversation_session"
DEFAULTS = ConversationSession()


def section(text: str) -> ConversationSession:
    return read_section(text.encode())


def in_section(*lines: str) -> str:
    return "turn_engine:\n  conversation_session:\n" + "".join(f"    {line}\n" for line in lines)


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        section(text)
    return str(refused.value)


def test_the_defaults() -> None:
    """Also of a file that does not speak of us, or says nothing (RT-1)."""
    told = (DEFAULTS.enabled, DEFAULTS.max_entries, DEFAULTS.retention_days, DEFAULTS.event_retention_days)
    assert told == (True, 20, 30, None)
    for text in (
        "",
        "# nothing",
        "other: 1",
        "turn_engine:",
        "turn_engine: {other: {a: 1}}",
        "turn_engine:\n  conversation_session:",
        "turn_engine: {conversation_session: {}}",
        "turn_engine: {conversation_session: ~}",
    ):
        assert section(text) == DEFAULTS, text


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("enabled: false", "enabled", False),
        ("enabled: no", "enabled", False),
        ("max_entries: 1", "max_entries", 1),
        ("max_entries: 1000", "max_entries", 1000),
        ("retention_days: 1", "retention_days", 1),
        ("event_retention_days: 365", "event_retention_days", 365),
        ("event_retention_days: none", "event_retention_days", None),
        ("event_retention_days: null", "event_retention_days", None),
        ("event_retention_days:", "event_retention_days", None),
    ],
)
def test_a_key_is_read_and_the_others_keep_their_defaults(line: str, name: str, value: object) -> None:
    """One by one (RT-1)."""
    assert section(in_section(line)) == DEFAULTS.model_copy(update={name: value})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('max_entries: "20"', f"{PATH}.max_entries is the text '20'; write a whole number from 1 to 1000"),
        ("max_entries: true", f"{PATH}.max_entries is true; write a whole number"),
        ("max_entries: 1.5", f"{PATH}.max_entries is 1.5; write"),
        ("max_entries: 20.0", f"{PATH}.max_entries is 20.0; write"),
        ("max_entries: 0", f"{PATH}.max_entries is 0; write a whole number from 1 to 1000, such as `max_entries: 20`"),
        ("max_entries: 1001", f"{PATH}.max_entries is 1001; write"),
        ("max_entries: none", f"{PATH}.max_entries is the text 'none'; write"),
        ("max_entries:", f"{PATH}.max_entries is empty; write"),
        ("max_entries: [20]", f"{PATH}.max_entries is a list; write"),
        ("max_entries: {a: 1}", f"{PATH}.max_entries is a dict; write"),
        ("retention_days: 0", f"{PATH}.retention_days is 0; write a whole number from 1 to 36500"),
        ("retention_days: -1", f"{PATH}.retention_days is -1; write"),
        ("retention_days: none", f"{PATH}.retention_days is the text 'none'; write"),
        ("retention_days: .inf", f"{PATH}.retention_days is inf; write"),
        ("retention_days: 2026-11-30", f"{PATH}.retention_days is a date; write"),
        ("event_retention_days: 0", f"{PATH}.event_retention_days is 0; write a whole number from 1 to 36500, or none"),
        ("event_retention_days: false", f"{PATH}.event_retention_days is false; write"),
        ("event_retention_days: None", f"{PATH}.event_retention_days is the text 'None'; write"),
        ('enabled: "false"', f"{PATH}.enabled is the text 'false'; write true or false, such as `enabled: true`"),
        ("enabled: 0", f"{PATH}.enabled is 0; write true or false"),
        ("enabled:", f"{PATH}.enabled is empty; write true or false"),
        ("max_entris: 3", f"{PATH}.max_entris is not known (is max_entries meant?); its keys are enabled, max_entries"),
        ("1: 3", f"{PATH}.1 is not known; its keys are"),
        ("? [a, b]\n    : 3", "cannot be read as YAML"),
        ("enabled: false\n    enabled: true", f"{PATH}.enabled stands twice (again in line 4); keep one"),
    ],
)
def test_what_a_key_may_not_hold_is_refused_by_its_full_path(line: str, words: str) -> None:
    """With what to write instead (RT-1)."""
    assert words in refusal(in_section(line))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "the file must be a section"),
        ("just text", "the file must be a section"),
        ("turn_engine: 3", "turn_engine must be a section"),
        ("turn_engine: []", "turn_engine must be a section"),
        ("turn_engine:\n  conversation_session: true", f"{PATH} must be a section"),
        ("turn_engine:\n  conversation_session: [enabled]", f"{PATH} must be a section"),
        ("conversation_session: {enabled: false}", "conversation_session is not read; write `turn_engine:`"),
        (f"{PATH}.enabled: false", f"{PATH}.enabled is not read; write `turn_engine:`"),
        (f"{PATH}: {{enabled: false}}", f"{PATH} is not read"),
        ("turn_engine: {conversation_session.enabled: false}", f"{PATH}.enabled is not read"),
        ("turn_engine: {a: 1}\nturn_engine: {b: 1}", "turn_engine stands twice (again in line 2)"),
        ("turn_engin: {conversation_session: {enabled: false}}", "turn_engin is not known (is turn_engine meant?)"),
        ("turnEngine: {conversation_session: {enabled: false}}", "turnEngine is not known (is turn_engine meant?)"),
        ("turn_engine: {conversation_sesion: {enabled: false}}", "turn_engine.conversation_sesion is not known"),
        ("turn_engine: {conversation-session: {enabled: false}}", "is conversation_session meant?"),
        ("a: [1", "cannot be read as YAML: expected ',' or ']'"),
        ("a: *nowhere", "cannot be read as YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", "cannot be read as YAML"),
        ("a:\n\t- 1", "cannot be read as YAML: found character '\\t' that cannot start any token; line 2"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_would_not_do_what_its_writer_thinks_is_refused(text: str, words: str) -> None:
    """Also where our own name stands at a level at which nobody reads it, or is misspelt (RT-1)."""
    assert words in refusal(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    """A file of another kind (RT-1)."""
    with pytest.raises(InvalidInput, match="cannot be read as YAML"):
        read_section(b"\xff\xfe\xfd\x00\x01")


def test_what_is_the_engines_is_left_to_the_engine() -> None:
    """Its own sections, its own tags, its own repetitions and anchors (RT-1)."""
    text = (
        "base: &base {max_entries: 7, retention_days: 9}\n"
        "secrets: !vault {path: x}\nservers: [!env A, !!python/name:os.system ]\n"
        "twice: 1\ntwice: 2\n? [a, b]\n: 1\n3: 4\n"
        "turn_engine:\n  models: {unknown: keys}\n  max_entries: 500\n  conversation_session:\n"
        "    <<: *base\n    retention_days: 11\n"
    )
    assert section(text) == ConversationSession(max_entries=7, retention_days=11)


def test_a_name_like_ours_beside_ours_is_the_engines() -> None:
    """And so is one that is another word (RT-1)."""
    text = (
        "turn_engines: 1\nturning: 1\nturn_engine:\n  conversation_sessions: 1\n  conversation: 1\n"
        "  conversation_session: {max_entries: 7}\n"
    )
    assert section(text) == ConversationSession(max_entries=7)


def test_no_file_gives_the_defaults_always() -> None:
    """RT-1."""
    assert LiveConfig(None).current() == DEFAULTS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (in_section("max_entries: 0").encode(), f"engine.yaml: {PATH}.max_entries is 0"),
        (b"a: [1", "engine.yaml: the file cannot be read as YAML"),
        (None, "TURNLEDGER_CONFIG names .*engine.yaml, which cannot be read: No such file"),
    ],
)
def test_a_process_does_not_start_with_a_file_it_cannot_use(
    content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the file, and the key by its path (RT-1)."""
    path = tmp_path / "engine.yaml"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("TURNLEDGER_CONFIG", str(path))
    settings = read_settings(StoreSettings, database_url="postgresql://localhost/x")
    with pytest.raises(InvalidInput, match=words):
        Database(settings)


def test_the_variable_names_the_file_and_may_be_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As compose files leave a variable that is not set (RT-1)."""
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("TURNLEDGER_CONFIG", "")
    assert Database.from_settings().config.current() == DEFAULTS
    monkeypatch.setenv("TURNLEDGER_CONFIG", str(write_config(tmp_path, max_entries=3)))
    assert Database.from_settings().config.current().max_entries == 3


def rewritten(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("put", [rewritten, put_in_place])
def test_a_change_is_seen_at_the_next_look(put: Callable[[Path, str], object], tmp_path: Path) -> None:
    """Also when nothing but its content differs: one size, one file, one tick of the clock (RT-2)."""
    path = write_config(tmp_path, max_entries=100)
    config = LiveConfig(path)
    for number in range(101, 400):
        put(path, config_text(max_entries=number))
        assert config.current().max_entries == number


def test_two_writes_within_one_tick_of_a_coarse_clock_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that gives both the same times (RT-2)."""
    monkeypatch.setattr(live_config, "_stamp", lambda found: live_config._Stamp(0, found.st_ino, found.st_size, 0, 0))
    path = write_config(tmp_path, max_entries=10)
    config = LiveConfig(path)
    rewritten(path, config_text(max_entries=11))
    assert config.current().max_entries == 11


def test_a_change_that_leaves_the_files_time_behind_is_seen(tmp_path: Path) -> None:
    """As tools do that copy a file together with its time (RT-2)."""
    path = write_config(tmp_path, max_entries=10)
    os.utime(path, ns=(10**18, 10**18))
    config = LiveConfig(path)
    rewritten(path, config_text(max_entries=11))
    os.utime(path, ns=(10**18, 10**18))
    assert config.current().max_entries == 11


def test_a_link_that_is_turned_to_another_file_is_followed(tmp_path: Path) -> None:
    """As Kubernetes puts a new ConfigMap in place (RT-2)."""
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        write_config(tmp_path / f"v{number}", max_entries=number)
    (tmp_path / "now").symlink_to("v1")
    config = LiveConfig(tmp_path / "now" / "engine.yaml")
    assert config.current().max_entries == 1
    (tmp_path / "next").symlink_to("v2")
    (tmp_path / "next").rename(tmp_path / "now")
    assert config.current().max_entries == 2


def _made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_a_process_may_change_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that becomes a daemon (RT-2)."""
    write_config(tmp_path, max_entries=1)
    monkeypatch.chdir(tmp_path)
    config = LiveConfig(Path("engine.yaml"))
    monkeypatch.chdir("/")
    write_config(tmp_path, max_entries=2)
    assert config.current().max_entries == 2


BROKEN: dict[str, Callable[[Path], object]] = {
    "a wrong value": lambda path: put_in_place(path, in_section("enabled: maybe")),
    "no YAML": lambda path: put_in_place(path, "a: ["),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "a folder": _made_a_folder,
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_file_keeps_the_last_good_one_and_logs_why_once(damage: str, tmp_path: Path) -> None:
    """However often it is looked at; the kill switch is not undone by a lost file (RT-2)."""
    path = write_config(tmp_path, enabled=False)
    config = LiveConfig(path)
    with capture_logs() as logs:
        BROKEN[damage](path)
        assert [config.current().enabled for _ in range(3)] == [False] * 3
    assert [entry["event"] for entry in logs] == ["config_refused"]
    assert "engine.yaml" in logs[0]["reason"]
    if path.is_dir():
        path.rmdir()
    write_config(tmp_path, enabled=True, max_entries=2)
    assert config.current() == ConversationSession(max_entries=2)


def test_each_broken_version_is_logged(tmp_path: Path) -> None:
    """And a file that is as it was before is no news but an end of the trouble (RT-2)."""
    path = write_config(tmp_path, max_entries=3)
    config = LiveConfig(path)
    seen: list[Any] = []
    for text in (in_section("a: 1"), in_section("b: 1"), config_text(max_entries=3)):
        put_in_place(path, text)
        with capture_logs() as logs:
            assert config.current().max_entries == 3
        seen += [entry["event"] for entry in logs]
    assert seen == ["config_refused", "config_refused", "config_applied"]


def test_a_file_that_does_not_change_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs a stat; within the clock's tick after a write, a read (RT-2)."""
    path = write_config(tmp_path, max_entries=3)
    monkeypatch.setattr("turnledger.store.live_config.SETTLED_NS", -(10**18))
    config = LiveConfig(path)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("the file was read"))
    assert config.current().max_entries == 3


def test_threads_see_one_section_or_the_other_and_never_an_older_one(tmp_path: Path) -> None:
    """While a writer changes it under them (RT-2)."""
    path = write_config(tmp_path, max_entries=1, retention_days=1)
    config, ended, wrong = LiveConfig(path), threading.Event(), []

    def look() -> None:
        last = 0
        while not ended.is_set():
            found = config.current()
            if found.max_entries != found.retention_days or found.max_entries < last:
                wrong.append((last, found))
            last = found.max_entries

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2, 120):
        write_config(tmp_path, max_entries=number, retention_days=number)
        assert config.current().max_entries == number
    ended.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_child_of_a_fork_goes_on_looking(tmp_path: Path) -> None:
    """Also when another thread was looking at that moment (RT-2)."""
    config = LiveConfig(write_config(tmp_path, max_entries=1))
    with config._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            write_config(tmp_path, max_entries=2)
            os._exit(config.current().max_entries)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2
