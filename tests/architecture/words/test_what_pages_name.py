"""The names on the pages exist: paths, modules, classes, functions, settings, flags, commands.

If one of these fails, a reader goes after something that has moved or that never was. What the
pages name of Kafka's, of other programs and of the reader's own is listed with whose it is.
"""

import argparse
import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import reads_sources, text_of, tree_of
from tools.suite.__main__ import command_line

import odradek
from odradek.cli.main import COMMANDS, build_parser, command_parser
from odradek.handlers.table import API_TABLE

pytestmark = reads_sources

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("src", "tests", "tools", "benchmarks", "examples", "docs", "deploy", ".github", ".ci")
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# What happened once is not what is there now.
HISTORY = ("docs/decisions/", "docs/performance/log.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
WORD = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w.-]+(?:/[\w-]+)*/?(?:[\w-]+\.(?:py|pyi|c|md|toml|ya?ml|tsv))?")
NAME = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(\(.*\))?")
SEE = re.compile(r"\b[Ss]ee `(\w+(?:\.\w+)*)`")
# At a prompt, in a line of cron, and in a service of systemd.
CALL = re.compile(r"(?:[$] |@\w+ |ExecStart=)?(?:[\w./-]*/)?odradek ([a-z-]+)(.*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


PRESENT = [page for page in PAGES if not name_of(page).startswith(HISTORY)]


@cache
def words() -> list[tuple[str, str]]:
    """The words that the pages write as code in their sentences, with the name of the page."""
    return [
        (name_of(page), word)
        for page in PRESENT
        for word in WORD.findall(FENCE.sub("", text_of(page)))
    ]


# --- paths ----------------------------------------------------------------------------------

# Folders and files that a command makes, that are the reader's own, or that are no paths.
NO_PATHS = {
    "./odradek-data": "made by `odradek start`",
    "broker-N/": "made by `odradek cluster start`",
    "dist/": "made by tools/wheels",
    "out/site": "made by mkdocs",
    "DIR/late": "of a pipeline's output",
    "DIR/windows": "of a pipeline's output",
    "partitions/P/state": "of ZooKeeper",
    "Europe/Lisbon": "a time zone",
    "apache/kafka": "Apache Kafka's image",
    "conftest.py": "the reader's",
    "your_tests.py": "the reader's",
}


@cache
def paths() -> frozenset[str]:
    """The paths of the project and all their ends, folders with and without a slash behind them,
    and sources of Python without their suffix as well.
    """
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [ROOT / folder, *(ROOT / folder).rglob("*")]
    ends = set()
    for path in found:
        parts = path.relative_to(ROOT).parts
        tails = {"/".join(parts[start:]) for start in range(len(parts))}
        if path.is_dir():
            tails |= {f"{tail}/" for tail in tails}
        ends |= tails | {tail.removesuffix(".py") for tail in tails}
    return frozenset(ends)


def is_path(word: str) -> bool:
    is_file = re.search(r"\w\.(?:py|pyi|c|md|toml|ya?ml|tsv)$", word)
    return PATH.fullmatch(word) is not None and ("/" in word or is_file is not None)


def test_paths_are_there() -> None:
    missing = {
        f"{page}: {word}"
        for page, word in words()
        if is_path(word) and word.removeprefix("./") not in paths() and word not in NO_PATHS
    }
    assert not missing


# --- settings, commands and flags -----------------------------------------------------------

FOREIGN_SETTINGS = {
    "print.delivery": "a property of message formatters, which cut off its first word",
    "a.b": "an example",
    "frame.write": "Spark's",
    "rlmm.config": "a beginning of Kafka's settings",
    "rsm.config": "a beginning of Kafka's settings",
    "spark.pyspark.python": "Spark's",
    "test.mock.num.brokers": "librdkafka's",
}
# Flags that stand alone in a sentence, and whose they are.
FOREIGN_FLAGS = {
    "--add-modules": "Java's",
    "--cluster-metadata-decoder": "Kafka's, which the page says are not here",
    "--remote-log-metadata-decoder": "Kafka's, which the page says are not here",
    "--py-files": "Spark's",
}


@cache
def settings() -> frozenset[str]:
    """Every word with dots that is data of ours: settings first of all."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.tsv")]
    return frozenset(
        word for path in sources for word in re.findall(r"[\w-]+(?:\.[\w-]+)+", text_of(path))
    )


def is_setting(word: str, page: str) -> bool:
    """Whether there is such a setting; in a page about the code it may be a module's, too."""
    return bool(
        {word, word.removeprefix("kafka.")} & settings()
        or word in FOREIGN_SETTINGS
        or (page.startswith("docs/internals/") and set(word.split(".")) <= defined())
    )


def test_settings_are_known() -> None:
    """A mistyped one does nothing, or is refused."""
    dotted = re.compile(r"([a-z]+(?:\.[a-z0-9]+)+)(?:=.*)?")
    unknown = {
        f"{page}: {word}"
        for page, word in words()
        if (found := dotted.fullmatch(word))
        and page not in OF_OTHERS
        and not (is_path(word) or is_setting(found[1], page))
    }
    assert not unknown


@cache
def flags_of(command: str) -> frozenset[str]:
    """The flags of a command, those of its own commands among them."""
    return frozenset(_flags(command_parser(build_parser([command]), [command])))


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _flags(each)


def calls(page: Path) -> Iterator[str]:
    """The lines of the page's shell, and the code in its sentences, a program each."""
    text = text_of(page)
    shell = [block for kind, block in FENCE.findall(text) if kind in ("sh", "bash", "console", "")]
    for block in [*shell, *INDENTED.findall(FENCE.sub("", text))]:
        for line in block.replace("\\\n", " ").splitlines():
            if "-->" not in line:  # an arrow of a diagram
                yield from re.split(r"\||&&|;", line.partition(" #")[0])
    yield from WORD.findall(FENCE.sub("", text))


def test_commands_and_their_flags_are_there() -> None:
    """Fails when a command or a flag on the pages does not exist: it refuses the reader. Or it
    does, and a page says that it is missing."""
    known = {command.name for command in COMMANDS}
    anybodys = {flag for name in known for flag in flags_of(name)}
    assert anybodys.isdisjoint(FOREIGN_FLAGS)
    anybodys |= set(FOREIGN_FLAGS)
    anybodys |= set(_flags(command_line()))  # of ./test
    wrong = set()
    for page in PRESENT:
        for call in calls(page):
            found = CALL.match(call.strip())
            if found is None and call.startswith("--"):
                unknown = set(FLAG.findall(call)) - anybodys
            elif found is None or "ready" in call.split()[:3]:  # a broker's line
                continue
            elif found[1] not in known:
                unknown = {found[1]}
            else:
                unknown = set(FLAG.findall(found[2])) - flags_of(found[1])
            wrong |= {f"{name_of(page)}: {each} in {call}" for each in unknown}
    assert not wrong


# --- names ----------------------------------------------------------------------------------

# Pages about what readers come from.
OF_OTHERS = ("docs/client/coming-from.md", "docs/replacing-testcontainers.md")
# Whose they are.
FOREIGN_NAMES = {
    "Kafka's Java": (
        *("AclAuthorizer", "DefaultJwtRetriever", "DefaultJwtValidator", "Exit", "MemoryPool"),
        *("KafkaShareConsumer", "RecordTooLargeException", "RequestChannel", "KAFKA_HEAP_OPTS"),
        *("KAFKA_NODE_ID", "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"),
        *("KAFKA_SSL_KEYSTORE_FILENAME", "BytesRejectedPerSec"),
        *("TopicBasedRemoteLogMetadataManager", "ClusterAction", "CreateTokens", "DescribeTokens"),
    ),
    "another client's": (
        *("CommitFailedError", "KafkaTimeoutError", "NoBrokersAvailable"),
        *("NoOffsetForPartitionError", "UnsupportedSaslMechanism", "UnsupportedVersionError"),
    ),
    "Spark's, or of a table in it": (
        *("DATA_SOURCE_NOT_FOUND", "PYSPARK_PYTHON", "SPARK_HIDE_TRACEBACK", "rewrite_data_files"),
        *("TRY_CAST", "get_json_object", "toPandas"),
    ),
    "Python's": ("get_freeze_count", "st_ino"),
    "freezegun's": ("freeze_time",),
    "of anything called so": ("NAME_ms", "OdRa", "a_b", "deleted_topic"),
}


def _named() -> set[str]:
    """The names on the pages, and those behind a "see"."""
    named = {name for _, word in words() for name in names_in(word)}
    dotted = {word for _, word in words() if re.fullmatch(r"[a-z_]+(\.\w+)+", word)}
    dotted |= {target for _, target in sees()}
    return named | {name for word in dotted for name in word.split(".")}


def sees() -> Iterator[tuple[Path, str]]:
    """The targets that sources and pages point to with "see"."""
    for path in [*(ROOT / "src").rglob("*.py"), *PAGES]:
        for target in SEE.findall(text_of(path)):
            yield path, target


@cache
def defined() -> frozenset[str]:
    """Every name on the pages that the project defines, takes, sets, or has as a word of its data:
    settings, internal topics, variables of the environment."""
    found = {name for names in FOREIGN_NAMES.values() for name in names} | set(dir(builtins))
    named = _named()
    for folder in ("src", "tests", "tools", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {path.stem, path.parent.name}
            # It takes long to parse all of them.
            if not (named - found).isdisjoint(re.findall(r"\w+", text_of(path))):
                for node in _without_docstrings(tree_of(path)):
                    found |= _names_of(node, is_ours=folder == "src")
    for path in (ROOT / "src").rglob("*.tsv"):
        found |= set(re.findall(r"\w+", text_of(path)))
    return frozenset(found | {f"{api.name}Request" for api in API_TABLE.values()})


def _without_docstrings(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree; a docstring that names something does not define it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from _without_docstrings(child)


def _names_of(node: ast.AST, *, is_ours: bool) -> set[str]:
    match node:
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            return {name}
        case ast.Name(name) | ast.Attribute(attr=name) | ast.arg(name) | ast.keyword(str(name)):
            return {name}
        case ast.Constant(str(text)) if is_ours or text.startswith("ODRADEK_"):
            return set(re.findall(r"[A-Za-z_]\w+", text))
    return set()


def names_in(word: str) -> list[str]:
    """The names of a class or a function, and of what it belongs to; none of a beginning of names
    (`odradek_`)."""
    found = NAME.fullmatch(word)
    if found is None or is_path(word) or word.endswith("_"):
        return []
    name, call = found.groups()
    is_class = re.search(r"(?:^|\.)[A-Z][a-z]+[A-Z]", name) is not None
    return name.split(".") if call or is_class or "_" in name else []


def test_names_are_defined() -> None:
    unknown = {
        f"{page}: {word}"
        for page, word in words()
        if page not in OF_OTHERS and not set(names_in(word)) <= defined()
    }
    assert not unknown


# What stands before a dot, and what it is in all the pages.
OBJECTS = {
    "broker": odradek.Broker,
    "odradek_broker": odradek.Broker,
    "cluster": odradek.Cluster,
    "clock": odradek.ManualClock,
}


def is_there(name: str) -> bool:
    """Whether a name with dots leads somewhere, from one of our packages or objects."""
    first, *rest = name.split(".")
    if first in OBJECTS:
        return hasattr(OBJECTS[first], rest[0])
    found: object = importlib.import_module(first)
    for number, part in enumerate(rest, 1):
        if not hasattr(found, part):
            try:
                importlib.import_module(".".join([first, *rest[:number]]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True


def test_what_is_behind_a_dot_is_there() -> None:
    """A name that exists elsewhere does not help who types it here."""
    ours = re.compile(rf"((?:odradek|{'|'.join(OBJECTS)})(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?")
    lost = {
        f"{page}: {word}"
        for page, word in words()
        if (found := ours.fullmatch(word))
        and not (is_path(word) or word in settings() or is_there(found[1]))
    }
    assert not lost


def test_see_leads_somewhere() -> None:
    lost = {
        f"{name_of(path)}: see `{target}`"
        for path, target in sees()
        if not set(target.split(".")) <= defined() | {"py", "md"}
    }
    assert not lost
