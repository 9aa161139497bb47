"""Every setting has an effect, or a mark that says why it has none."""

import ast
from pathlib import Path

from tests.sources import reads_sources, text_of, tree_of

import odradek
from odradek.config import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from odradek.config.group import bounds_of
from odradek.config.tables.rows import rows
from odradek.config.topic import BROKER_SYNONYMS
from odradek.config.unserved import unserved, why_unserved

pytestmark = reads_sources

SOURCES = Path(odradek.__file__).parent
# What names settings without reading their values.
NAMING_ONLY = ("config/tables/", "config/dynamic.py", "config/layers.py", "config/unserved.py")
# Read by names that are put together.
COMPOSED = {
    "group.consumer.session.timeout.ms",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.assignment.interval.ms",
    "group.share.session.timeout.ms",
    "group.share.heartbeat.interval.ms",
    "group.share.assignment.interval.ms",
    "group.share.record.lock.duration.ms",
    "group.share.delivery.count.limit",
    "group.share.partition.max.record.locks",
}


def _modules() -> list[Path]:
    return [
        path
        for path in SOURCES.rglob("*.py")
        if not path.relative_to(SOURCES).as_posix().startswith(NAMING_ONLY)
    ]


def _read_names() -> set[str]:
    """Every string in the code that reads settings; a setting is read by its name."""
    names = {bound for name in GROUP_SETTINGS for bound in bounds_of(name)} | COMPOSED
    for path in _modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names


def test_a_broker_setting_that_is_never_read_is_marked() -> None:
    """Else somebody sets it, believes in it, and nothing happens."""
    read = _read_names()
    silent = [name for name in BROKER_SETTINGS if name not in read and not why_unserved(name)]
    assert not silent, "read them, or say in config/unserved.py why not"


def test_a_topic_setting_that_no_log_reads_is_marked() -> None:
    """As for brokers: a topic's settings are attributes of `LogConfig`, or looked up by name."""
    texts = [text_of(path) for path in _modules() if path.name != "topic.py"]
    silent = [
        name
        for name in TOPIC_SETTINGS
        if not why_unserved(name)
        and not any(found in text for text in texts for found in _traces(name))
    ]
    assert not silent, "read them, or say in config/unserved.py why not"


def _traces(name: str) -> list[str]:
    """The words by which code reads a setting: an attribute of `LogConfig`, or the name."""
    derived = {"cleanup.policy": ["compact", "delete"], "preallocate": ["initial_file_bytes"]}
    attributes = [name.replace(".", "_"), *derived.get(name, [])]
    return [f'"{name}"', *(f".{attribute}" for attribute in attributes)]


def test_what_stands_for_a_marked_topic_setting_is_marked_too() -> None:
    """A broker's default of a setting that does nothing does nothing either."""
    for name, synonyms in BROKER_SYNONYMS.items():
        for synonym in synonyms:
            assert bool(why_unserved(name)) == bool(why_unserved(synonym.name)), synonym.name


def test_what_stands_among_those_without_effect_is_marked() -> None:
    """A setting that gets an effect moves to the table of its subject, without the mark."""
    assert [each.name for each in rows("without_effect") if not why_unserved(each.name)] == []


def test_whoever_sets_one_is_told_why() -> None:
    """One line at the start names them all."""
    told = unserved(["num.partitions", "num.io.threads", "remote.log.reader.threads", "no.such"])
    assert [line.split(" ")[0] for line in told] == ["num.io.threads", "remote.log.reader.threads"]
    assert "not served yet: tiered storage" in told[1]
