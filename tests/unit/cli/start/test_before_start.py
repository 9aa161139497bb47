"""The refusals of `odradek start`: one sentence that says what to do, with nothing left behind."""

import os
import socket
import sys
from pathlib import Path

import pytest

from odradek.cli.before_start import check_before_start
from odradek.config import BrokerConfig, ConfigError
from odradek.server.errors import StartError


def check(directory: Path, **settings: str) -> None:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    given = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", **given}
    check_before_start(BrokerConfig({"broker.id": "1", **given}), given)


def test_a_new_an_empty_and_an_own_directory_will_do(tmp_path: Path) -> None:
    """A start that is right would be refused."""
    check(tmp_path / "new" / "data")
    assert not (tmp_path / "new").exists()
    check(tmp_path)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".lock").touch()
    check(tmp_path)
    (tmp_path / "odradek-metadata.sqlite").touch()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    (tmp_path / "notes.txt").touch()
    check(tmp_path)


def test_a_file_in_its_place(tmp_path: Path) -> None:
    """The error would speak of a database that cannot be opened."""
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "data"):
        with pytest.raises(StartError, match=r"file is not a directory; give another one"):
            check(place)


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would not say which file there is not."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StartError, match=r"^The current folder is gone; give --data-dir another$"):
        check(Path("data"))
    check(tmp_path / "data")


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would not say what to do. (Root may write everywhere, so the answer is given.)"""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StartError, match=r"cannot be written; give this user the right"):
        check(tmp_path / "data")


def test_metadata_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would be of the disk, where a file of another user is the reason."""
    (tmp_path / "odradek-metadata.sqlite").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: not path.endswith(".sqlite"))
    with pytest.raises(
        StartError, match=r"metadata\.sqlite cannot be written; give this user the "
    ):
        check(tmp_path)


def test_a_missing_extra_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lacks the extra would leave an empty directory behind."""
    monkeypatch.setitem(sys.modules, "kazoo", None)  # as where it is not installed
    with pytest.raises(StartError, match=r"kazoo: pip install 'odradek\[zookeeper\]'$"):
        check(tmp_path / "data", zookeeper_connect="127.0.0.1:1")
    assert not (tmp_path / "data").exists()


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    """A broker would strew its files over somebody's home directory."""
    for name in ("a.txt", "b", "c", "d"):
        (tmp_path / name).touch()
    with pytest.raises(StartError, match=r"not a broker's \(a.txt, b, c, ...\); give --data-dir"):
        check(tmp_path)
    assert len(os.listdir(tmp_path)) == 4


def test_a_directory_of_another_broker(tmp_path: Path) -> None:
    """The error would not name the flag that helps."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    with pytest.raises(StartError, match=r"belongs to broker 7, .*start with --broker-id 7"):
        check(tmp_path)


def test_logs_whose_metadata_is_missing(tmp_path: Path) -> None:
    """A new store would know none of the topics, and their records would seem lost."""
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(StartError, match=r"metadata .*sqlite is missing; put a copy of it back"):
        check(tmp_path)
    (tmp_path / "orders-0").rename(tmp_path / "meta.properties")
    with pytest.raises(StartError, match=r"is missing"):
        check(tmp_path)
    assert os.listdir(tmp_path) == ["meta.properties"]


def test_a_port_in_use_leaves_nothing_behind(tmp_path: Path) -> None:
    """A mistyped port would leave a data directory behind, with a cluster id of its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=r"Address already in use; give another address"):
            check(tmp_path / "data", listeners=listener)
        metrics = listener.replace("PLAINTEXT", "http")
        told = f"^Cannot listen on {metrics}: Address already in use; .* in metrics.listener$"
        with pytest.raises(StartError, match=told):
            check(tmp_path / "data", **{"metrics.listener": metrics})
    with pytest.raises(StartError, match=r"^metrics.listener is http://HOST:PORT, not 9404$"):
        check(tmp_path / "data", **{"metrics.listener": "9404"})
    assert not (tmp_path / "data").exists()


def test_super_users_of_no_authorizer_are_refused(tmp_path: Path) -> None:
    """A broker would be open to all, in spite of a file that names those who may do everything."""
    with pytest.raises(ConfigError, match=r"without authorizer\.class\.name everybody is one"):
        check(tmp_path, **{"super.users": "User:a"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "/keys"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("security.inter.broker.protocol", "SSL"),
    ],
)
def test_protection_that_no_listener_has_is_refused(name: str, text: str, tmp_path: Path) -> None:
    """The setting seems to protect the listener that is there."""
    with pytest.raises(ConfigError, match=f"{name} protects nothing, since no listener has"):
        check(tmp_path, **{name: text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("principal.builder.class", "com.example.Builder"),
        ("ssl.engine.factory.class", "com.example.Factory"),
        ("sasl.server.callback.handler.class", "com.example.Ldap"),
        ("sasl.oauthbearer.jwt.validator.class", "com.example.Validator"),
    ],
)
def test_a_class_that_protects_is_refused(name: str, value: str, tmp_path: Path) -> None:
    """Clients that it would keep out would come in."""
    with pytest.raises(ConfigError, match=f"{name}: com.example.* cannot be loaded here"):
        check(tmp_path, **{name: value, "listeners": "SASL_SSL://127.0.0.1:0"})


def test_brokers_of_a_cluster_need_a_listener_of_their_own(tmp_path: Path) -> None:
    """They would meet, and then not reach each other."""
    settings = {"listeners": "SASL_SSL://127.0.0.1:0", "zookeeper.connect": "127.0.0.1:2181"}
    with pytest.raises(ConfigError, match="over a listener PLAINTEXT, which does not exist: name"):
        check(tmp_path / "data", **settings)
    assert not (tmp_path / "data").exists()
    check(tmp_path / "data", **settings, **{"security.inter.broker.protocol": "SASL_SSL"})


def test_settings_that_say_what_holds_anyway_are_no_promise(tmp_path: Path) -> None:
    """A file that spells out Kafka's defaults would be refused."""
    check(tmp_path, **{"sasl.enabled.mechanisms": "GSSAPI", "authorizer.class.name": ""})
