"""The commands for people, on a broker. If these fail, people see or send something else."""

import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.deadlines import deadline_s
from tests.terminals import TERMINAL, read_until

from odradek import Broker
from odradek.cli.everyday import consume
from odradek.cli.knocking import tell_if_nobody_answers
from odradek.cli.main import main
from odradek.errors import ErrorCode

PATIENCE_S = deadline_s(120)
NOT_DELIVERED = "odradek: 1 record is not delivered yet, trying on\n"
SHOWING_THE_LOG = {"console-consumer", "consumer-perf-test"}
SHELL = """
import json, sys
from odradek.cli.main import main
for words in json.loads(sys.argv[1]):
    main(words)
    print("--end--", file=sys.stderr, flush=True)
"""
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(servers: str, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command against the broker: status, output, errors."""

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main([*words, "-b", servers])
        shown = capfd.readouterr()
        return status, shown.out, shown.err

    return call


def told_in_a_shell(*commands: list[str]) -> list[list[str]]:
    """The lines of each command on standard error, where Python prints what clients log: here
    pytest takes that."""
    words = [sys.executable, "-c", SHELL, json.dumps(commands)]
    shell = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return [each.splitlines() for each in shell.stderr.split("--end--\n")[:-1]]


@pytest.fixture(scope="module")
def refusing() -> Iterator[Broker]:
    """A broker for faults, with a topic and a group that has read it."""
    with Broker() as broker:
        where = ["-b", broker.bootstrap_servers]
        assert main(["produce", "orders", "-i", "files", "/dev/null", *where]) == 0
        assert main(["consume", "orders", "-g", "readers", "-n", "1", *where]) == 0
        yield broker


@pytest.fixture
def produced(command: Command, topic: str, tmp_path: Path) -> str:
    """A topic of one partition with ten records, 0 to 9."""
    lines = tmp_path / "ten"
    lines.write_text("".join(f'k{n}|{{"n": {n}}}\n' for n in range(10)))
    assert command("produce", topic, str(lines), "-K", "|", "-p", "0", "-H", "by=test")[0] == 0
    return topic


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        ([], range(10)),
        (["-o", "-3"], range(7, 10)),
        (["-o", "+2", "--until", "-5"], range(2, 5)),
        (["-o", "4", "-n", "2"], range(4, 6)),
        (["-o", "@-1h"], range(10)),
        (["--until", "@-1h"], ()),
        (["-o", "end"], ()),
        (["-o", "-99"], range(10)),
        (["-w", "value.n>=8"], range(8, 10)),
        (["-w", "key=k3", "-w", "header.by=test"], (3,)),
        (["-p", "0", "--follow", "-o", "start", "-n", "10"], range(10)),
    ],
)
def test_what_is_asked_for_is_printed(
    command: Command, produced: str, flags: list[str], numbers: range
) -> None:
    status, shown, said = command("consume", produced, "-f", "%k %o\\n", *flags)
    assert (status, said) == (0, "")
    assert shown == "".join(f"k{n} {n}\n" for n in numbers)


def test_json_goes_out_and_in_again(command: Command, topic: str, tmp_path: Path) -> None:
    """A copy by these two is the same: null, bytes that are no text, headers, time."""
    source = tmp_path / "source.json"
    records = [
        {"key": None, "value": "plain", "headers": [{"name": "h", "value": None}]},
        {"key_base64": "/w==", "value_base64": "/gE=", "timestamp": 1_700_000_000_000},
        {"key": "gone", "value": None},
    ]
    source.write_text("".join(json.dumps({**each, "partition": 0}) + "\n" for each in records))
    status, placed, _ = command("produce", topic, str(source), "-i", "json", "--format", "json")
    assert status == 0
    assert [json.loads(line)["offset"] for line in placed.splitlines()] == [0, 1, 2]
    _, first, _ = command("consume", topic, "--format", "json")
    copy = tmp_path / "copy.json"
    copy.write_text(first)
    assert command("produce", topic, str(copy), "-i", "json")[0] == 0
    _, second, _ = command("consume", topic, "--format", "json", "-o", "3")
    shown = [json.loads(line) for line in first.splitlines()]
    again = [json.loads(line) for line in second.splitlines()]
    assert [each | {"offset": each["offset"] + 3} for each in shown] == again
    assert shown[1]["timestamp"] == 1_700_000_000_000
    assert shown[1]["value_base64"] == "/gE="
    assert (shown[2]["key"], shown[2]["value"]) == ("gone", None)


def test_files_and_keys_out_of_values(command: Command, topic: str, tmp_path: Path) -> None:
    document = tmp_path / "document"
    document.write_text('{"user": {"id": 7}}\nand more')
    flags = ["-p", "0", "-z", "zstd"]
    assert command("produce", topic, "-i", "files", "-k", "whole", *flags, str(document))[0] == 0
    document.write_text('{"user": {"id": 7}}\n')
    assert command("produce", topic, str(document), "--key-from", ".user.id", *flags)[0] == 0
    assert command("consume", topic, "-f", "%k:%V ")[1] == "whole:28 7:19 "
    document.write_text("{}\n")
    status, _, said = command("produce", topic, str(document), "--key-from", ".user.id", *flags)
    assert (status, said) == (1, f"odradek: {document}, line 1: the value has no such key\n")


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        pytest.param("[" * 100_000, id="deep"),
        '{"headers": {"h": "v"}}',
        '{"headers": ["h"]}',
        '{"value_base64": 5}',
        '{"value_base64": "?"}',
        '{"partition": true}',
        '{"partition": -5}',
        '{"timestamp": 99999999999999999999}',
    ],
)
def test_json_that_is_no_record_is_told_in_a_sentence(
    command: Command, topic: str, tmp_path: Path, line: str
) -> None:
    source = tmp_path / "source.json"
    source.write_text(f"{line}\n")
    status, shown, said = command("produce", topic, str(source), "-i", "json")
    assert (status, shown, said.count("\n")) == (1, "", 1)
    assert said.startswith("odradek: ")


def test_groups_show_both_lags(command: Command, produced: str) -> None:
    group = f"readers-of-{produced}"
    status, shown, _ = command("consume", produced, "-g", group, "-n", "4", "-f", "%o ")
    assert (status, shown) == (0, "0 1 2 3 ")
    status, shown, _ = command("groups", group, "--format", "json")
    [described] = json.loads(shown)
    assert (status, described["lag"]) == (0, 6)
    assert 0 <= described["time_lag_ms"] < 600_000
    assert command("consume", produced, "-g", group, "-f", "%o ")[1] == "4 5 6 7 8 9 "
    listed = command("groups")[1]
    assert [line.split()[5:] for line in listed.splitlines() if line.startswith(group)] == [
        ["0", "0", "ms"]
    ]
    status, _, said = command("groups", "no-such-group")
    assert (status, said) == (1, "odradek: there is no group 'no-such-group'\n")


def test_topics_without_an_action_are_a_table(command: Command, produced: str) -> None:
    status, shown, _ = command("topics", "--topic", produced, "--format", "json")
    [found] = json.loads(shown)
    assert (status, found["topic"], found["records"]) == (0, produced, 10)
    assert found["size_bytes"] > 100


def test_frames_are_printed_where_nobody_looks(command: Command, produced: str) -> None:
    status, shown, _ = command("top", "-n", "1", "--every", "0.1")
    assert status == 0
    assert produced in shown
    assert "\x1b" not in shown


def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(
    refusing: Broker, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """After a mistyped topic or group one would have to list them all to see it."""
    for words, meant in (
        (["topics", "oders"], "there is no topic 'oders' (did you mean orders?)\n"),
        (["topics", "create"], "there is no topic 'create'; a flag is --create\n"),
        (["consume", "oders"], "there is no topic 'oders' (did you mean orders?)\n"),
        (["groups", "reader"], "there is no group 'reader' (did you mean readers?)\n"),
        (
            ["export", "--topic", "oders", "--to", str(tmp_path / "oders.csv")],
            "there is no topic 'oders' (did you mean orders?)\n",
        ),
    ):
        assert main([*words, "-b", refusing.bootstrap_servers]) == 1
        told = capfd.readouterr()
        assert told.err.endswith(meant)
        assert not told.out, "a table of nothing"
    assert main(["topics", "ord.*", "-b", refusing.bootstrap_servers]) == 0
    assert "orders" in capfd.readouterr().out


def test_errors_are_one_sentence(command: Command, produced: str, tmp_path: Path) -> None:
    illegal = f"odradek: bad topic: {ErrorCode.INVALID_TOPIC_EXCEPTION.text}\n"
    assert command("produce", "bad topic", __file__)[::2] == (1, illegal)
    folder = f"odradek: {tmp_path}: {os.strerror(errno.EISDIR)}\n"
    assert command("produce", produced, str(tmp_path))[::2] == (1, folder)
    status, _, said = command("consume", produced, "-X", "max.pol.records=1")
    meant = "there is no client setting max.pol.records (did you mean max.poll.records?)"
    assert (status, said) == (1, f"odradek: {meant}\n")
    assert command("consume", "no-such-topic")[::2] == (
        1,
        "odradek: there is no topic 'no-such-topic'\n",
    )
    for words in (
        ("consume", produced, "-p", "99"),
        ("consume", "^[", "-g", "readers"),
        ("topics", "--topic", "["),
    ):
        status, _, said = command(*words)
        assert (status, said.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("api", "error", "words"),
    [
        ("DescribeGroups", "GROUP_AUTHORIZATION_FAILED", ["groups", "readers"]),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", ["groups"]),
        ("JoinGroup", "GROUP_AUTHORIZATION_FAILED", ["consume", "orders", "-g", "readers"]),
        ("Fetch", "TOPIC_AUTHORIZATION_FAILED", ["consume", "orders"]),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", ["produce", "orders", __file__]),
    ],
)
def test_who_may_not_is_told_so(
    refusing: Broker, capfd: pytest.CaptureFixture[str], api: str, error: str, words: list[str]
) -> None:
    """A group would be said not to be there, or to stand nowhere."""
    with refusing.fail(api, error):
        assert main([*words, "-b", refusing.bootstrap_servers]) == 1
    shown, said = capfd.readouterr()
    assert (shown, said.count("\n")) == ("", 1)
    assert "The principal may not do this" in said


@pytest.mark.parametrize(
    ("api", "unknown"), [("DescribeLogDirs", "size_bytes"), ("ListOffsets", "records")]
)
def test_what_nobody_tells_is_not_made_up(
    refusing: Broker, capfd: pytest.CaptureFixture[str], api: str, unknown: str
) -> None:
    with refusing.fail(api, "TOPIC_AUTHORIZATION_FAILED"):
        assert main(["topics", "-b", refusing.bootstrap_servers, "--format", "json"]) == 0
    topics = {each["topic"]: each for each in json.loads(capfd.readouterr().out)}
    assert [name for name, told in topics["orders"].items() if told is None] == [unknown]


@pytest.mark.slow
def test_a_person_can_watch_in_a_terminal(bootstrap: str, topic: str) -> None:
    """The whole command over a real terminal: keys, a new size, and the way out."""
    where = ["--bootstrap-server", bootstrap]
    for number in range(20):  # more than the small window has lines
        assert main(["topics", "--create", "--topic", f"{topic}-{number}", *where]) == 0
    terminal, inside = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 100, 0, 0))
    words = [sys.executable, "-m", "odradek", "top", "-b", bootstrap, "--every", "0.2"]
    process = subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, env=TERMINAL)
    os.close(inside)
    try:
        read_until(terminal, topic, PATIENCE_S)
        os.write(terminal, b" ")
        read_until(terminal, "(paused)", PATIENCE_S)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 30, 0, 0))
        process.send_signal(signal.SIGWINCH)
        read_until(terminal, "more", PATIENCE_S)
        os.write(terminal, b"q")
        read_until(terminal, "\x1b[?1049l", PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t"],
        ["consume", "t", "-g", "g"],
        ["produce", "t", __file__],
        ["groups"],
        ["topics"],
        ["top", "-n", "1"],
        ["console-consumer", "--topic", "t"],
        ["consumer-perf-test", "--topic", "t", "--num-records", "1", "--hide-header"],
        ["get-offsets", "--topic", "t"],
        ["log-dirs", "--describe"],
        ["cluster", "cluster-id"],
    ],
)
def test_brokers_that_are_away_are_told_in_a_sentence_and_in_time(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=100\nmax.block.ms=100\n", encoding="utf-8")
    tell_if_nobody_answers.cache_clear()
    away = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(settings)]
    assert main([*words, *away]) == 1
    shown, said = capfd.readouterr()
    assert shown == ""
    first, *rest = said.splitlines()
    if words[0] not in SHOWING_THE_LOG:  # told before the client gives up
        assert first == "odradek: nothing listens at 127.0.0.1:1 yet, trying on"
        first, *rest = rest
    assert "no broker can be reached" in first
    assert "_EXCEPTION" not in first
    assert rest in ([], ["Processed a total of 0 messages"])


def test_a_mistyped_name_is_one_sentence_without_the_clients_log(
    refusing: Broker, tmp_path: Path
) -> None:
    where = ["-b", refusing.bootstrap_servers]
    export = ["export", "--topic", "oders", "--to", str(tmp_path / "oders.csv")]
    names = (["topics", "oders"], ["consume", "oders"], ["consume", "oders", "--follow"], export)
    told = told_in_a_shell(*([*words, *where] for words in names))
    assert [lines[1:] for lines in told] == [[]] * len(names)
    assert all("there is no topic 'oders' (did you mean orders?)" in line for [line] in told)


def test_brokers_that_are_away_are_one_sentence_without_the_clients_log(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=100\nmax.block.ms=100\n", encoding="utf-8")
    away = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(settings)]
    names = (
        *(["consume", "t"], ["consume", "t", "--follow"], ["consume", "t", "-g", "g"]),
        *(["produce", "t", __file__], ["groups"], ["topics"], ["top", "-n", "1"]),
    )
    console = ["console-consumer", "--topic", "t"]  # waits a minute by default: its only sign
    first, *told, logged = told_in_a_shell(*([*words, *away] for words in (*names, console)))
    assert first.pop(0) == "odradek: nothing listens at 127.0.0.1:1 yet, trying on"
    assert [lines[1:] for lines in (first, *told)] == [[]] * len(names)
    assert all("no broker can be reached" in line for [line] in (first, *told))
    assert "a broker cannot be reached: 127.0.0.1:1" in logged[0]


@pytest.mark.parametrize(
    ("flags", "shows_log"), [([], False), (["--follow"], True), (["-g", "readers"], True)]
)
def test_a_command_that_waits_for_records_shows_the_log(
    flags: list[str], shows_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has gone away would be silence."""
    told: dict[str, object] = {}
    monkeypatch.setattr(consume, "run_async", lambda *_, **kept: told.update(kept) or 0)
    assert main(["consume", "orders", *flags]) == 0
    assert told == {"shows_log": shows_log}


def test_records_that_a_full_disk_refuses_are_told_while_they_wait() -> None:
    """They are tried again for two minutes, which would be silence."""
    with Broker() as broker:
        broker.create_topic("t")
        command = [sys.executable, "-m", "odradek", "produce", "t", "-b", broker.bootstrap_servers]
        with (
            broker.full_disk() as fault,
            subprocess.Popen(command, stdin=PIPE, stderr=PIPE, text=True) as process,
        ):
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("a line\n")
            process.stdin.close()
            told = process.stderr.readline()
            fault.end()
            assert process.wait(PATIENCE_S) == 0
            # The latter, if the machine is slow.
            assert process.stderr.read() in ("", NOT_DELIVERED)
        assert "records for t-0 are not written yet: KAFKA_STORAGE_ERROR: appending to" in told
        assert [record.value for record in broker.records("t")] == [b"a line"]


@pytest.mark.parametrize("words", [["produce", "t"], ["console-producer", "--topic", "t"]])
def test_records_that_a_silent_broker_leaves_unanswered_are_told(words: list[str]) -> None:
    """They are tried for two minutes: that was silence, and so was Ctrl-C."""
    with Broker() as broker:
        broker.create_topic("t")
        where = ["--bootstrap-server", broker.bootstrap_servers]
        command = [sys.executable, "-m", "odradek", *words, *where]
        with subprocess.Popen(
            command, stdin=PIPE, stderr=PIPE, text=True, bufsize=1, preexec_fn=heed_interrupts
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write("one\n")
            broker.wait_for("t", 1, PATIENCE_S)
            with broker.pause():
                process.stdin.write("two\n")
                told = process.stderr.readline()
                process.send_signal(signal.SIGINT)
                interrupted = process.stderr.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE_S) == 130
            process.stderr.read()
    assert told == NOT_DELIVERED
    assert interrupted == f"{NOT_DELIVERED[:-1]}; Ctrl-C again gives up\n"


def test_an_export_from_brokers_that_are_away_is_told_at_once(tmp_path: Path) -> None:
    """It would be silent for half a minute, as long as its client tries."""
    target = str(tmp_path / "orders.csv")
    words = ["export", "--topic", "orders", "--to", target, "-b", "127.0.0.1:1"]
    command = [sys.executable, "-m", "odradek", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.kill()
    assert first == "odradek: nothing listens at 127.0.0.1:1 yet, trying on\n"


@pytest.mark.parametrize(
    "words", [["consume"], ["console-consumer", "--from-beginning", "--topic"]]
)
def test_a_reader_may_go_away(servers: str, produced: str, words: list[str]) -> None:
    """`odradek consume orders | head -1` would end with a complaint about a pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "odradek", *words, produced, "--bootstrap-server", servers]
    try:
        done = subprocess.run(
            command, stdout=write_end, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False
        )
    finally:
        os.close(write_end)
    assert done.returncode == 128 + signal.SIGPIPE
    assert b"pipe" not in done.stderr
    assert b"Traceback" not in done.stderr


def test_keys_may_be_any_bytes(command: Command, topic: str, tmp_path: Path) -> None:
    """Bytes that are no text are shown as what they are, and JSON keeps them."""
    lines = tmp_path / "binary"
    lines.write_bytes(b"\xff\xfe|\x00\x01\n")
    assert command("produce", topic, str(lines), "-K", "|", "-p", "0")[0] == 0
    assert command("consume", topic)[1].endswith(" 0xfffe \\x00\\x01\n")
    assert command("consume", topic, "-f", "%k{hex} %v{hex}")[1] == "fffe 0001"
    assert json.loads(command("consume", topic, "--format", "json")[1])["key_base64"] == "//4="


def heed_interrupts() -> None:
    """As a shell has it for what runs in front; tests may run behind, where Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_ends_who_waits_for_a_person(bootstrap: str, topic: str) -> None:
    """A prompt that only Enter could end would be a process that hangs."""
    for count, name in enumerate(("produce", "console-producer"), 1):
        terminal, inside = os.openpty()
        where = [topic] if name == "produce" else ["--topic", topic]
        words = [sys.executable, "-m", "odradek", name, *where, "--bootstrap-server", bootstrap]
        process = subprocess.Popen(
            words, stdin=inside, stdout=inside, stderr=inside, preexec_fn=heed_interrupts
        )
        os.close(inside)
        try:
            os.write(terminal, b"a line\n")
            read_until(terminal, ">" if name != "produce" else "a line", PATIENCE_S)
            # When it is there, the command waits for the next one.
            main(["consume", topic, "-b", bootstrap, "--follow", "-o", "start", "-n", str(count)])
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGINT
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
