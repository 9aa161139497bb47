"""Writes the reference pages of docs/reference from the tables in the code.

`python tools/generate_reference.py` writes them; with `--check` it only says which ones are
out of date, and ends with status 1 if any is. A unit test does the same, so that a changed
setting cannot leave a page behind.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from kio.schema.index import api_key_map, schema_name_map

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from odradek.client.core.groups import member_state  # noqa: E402
from odradek.client.core.network import connection  # noqa: E402
from odradek.client.core.producing import transaction_state  # noqa: E402
from odradek.config import (  # noqa: E402
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    DynamicMode,
    Setting,
)
from odradek.config.group import GROUP_SYNONYMS  # noqa: E402
from odradek.config.topic import BROKER_SYNONYMS  # noqa: E402
from odradek.config.unserved import why_unserved  # noqa: E402
from odradek.coordinator.classic.states import STATE_TEXTS, TRANSITIONS  # noqa: E402
from odradek.coordinator.transactions import states as transaction_states_table  # noqa: E402
from odradek.errors import ErrorCode  # noqa: E402
from odradek.handlers.api import Api  # noqa: E402
from odradek.handlers.table import API_TABLE, CONTROLLERS_ALONE  # noqa: E402

# Requests that are not served, by the beginning of a name or a whole one, and why not.
_UNSERVED_APIS = (
    ("not served yet: streams groups", "Streams"),
    (
        "used within a Raft quorum, which does not exist here",
        "Vote BeginQuorum EndQuorum AlterPartition Envelope FetchSnapshot BrokerRegistration "
        "BrokerHeartbeat UnregisterBroker AllocateProducerIds ControllerRegistration AddRaft "
        "RemoveRaft UpdateRaft AssignReplicasToDirs",
    ),
)

# Values that Kafka 4 refuses and this broker takes: settings, values, what they are for.
_BEYOND_KAFKA = (
    ("`segment.bytes`, `log.segment.bytes`", "14 to 1048575", "tests that want many segments"),
    (
        "`controller.listener.names`",
        "names that differ from those in `listeners` by small and capital letters only",
        "files that mean the same; the listener is not opened",
    ),
    (
        "`listener.security.protocol.map`",
        "its default in full, which lacks the listeners of `controller.listener.names`",
        "files that mean the default; these listeners are not opened",
    ),
    (
        "`listeners`",
        "`0.0.0.0` without `advertised.listeners`; none of the name PLAINTEXT, which brokers use "
        "among themselves unless the file names another",
        "single brokers: clients are told the machine's name for `0.0.0.0`",
    ),
)

_GENERATED = "<!-- Written by tools/generate_reference.py from the tables in the code. -->"


def broker_settings() -> str:
    """The page of the broker's settings."""
    sections = []
    for mode, text in (
        (DynamicMode.READ_ONLY, "need a restart"),
        (DynamicMode.PER_BROKER, "may change while the broker runs, for one broker"),
        (DynamicMode.CLUSTER_WIDE, "may change while the broker runs, for one broker or all"),
    ):
        rows = [row for row in BROKER_SETTINGS.values() if row.dynamic is mode]
        sections.append(f"## {mode.label}: {text} ({len(rows)})\n\n{_settings(rows)}")
    return _page(
        "Broker settings",
        "Given in a properties file (`odradek start --config`), with `--set`, or to "
        "`odradek.Broker(config=...)`. Names, types, defaults and bounds are Apache Kafka's, "
        "except for a few [values for tests](compatibility.md#values-that-kafka-refuses). "
        "The last column says which ones have no effect, and why.",
        *sections,
    )


def topic_settings() -> str:
    """The page of the topics' and groups' settings."""
    synonyms = {
        name: ", ".join(f"`{synonym.name}`" for synonym in BROKER_SYNONYMS.get(name, ()))
        for name in TOPIC_SETTINGS
    }
    group_synonyms = {
        name: f"`{GROUP_SYNONYMS[name]}`" if name in GROUP_SYNONYMS else ""
        for name in GROUP_SETTINGS
    }
    return _page(
        "Topic settings",
        "Set when a topic is created, or changed later with `odradek configs`. A setting that a "
        "topic does not have is taken from the broker: from the first of the settings in the last "
        "column that is set.",
        _settings(TOPIC_SETTINGS.values(), synonyms),
        f"## Group settings\n\n{_settings(GROUP_SETTINGS.values(), group_synonyms)}",
    )


def error_codes() -> str:
    """The page of the protocol's error codes."""
    head = "| code | name | retriable | meaning |\n|---:|---|---|---|"
    rows = (
        f"| {int(code)} | `{code.name}` | {'yes' if code.retriable else 'no'} | {code.text} |"
        for code in ErrorCode
    )
    return _page(
        "Error codes",
        "The codes in responses. After a retriable one a client may send the same request again.",
        "\n".join([head, *rows]),
    )


def group_states() -> str:
    """The page of the states of a classic group, with their diagram."""
    states = [f"| {state} | {text} |" for state, text in STATE_TEXTS.items()]
    edges = [
        f"    {before} --> {after} : {event}" for (before, event), after in TRANSITIONS.items()
    ]
    rows = [f"| {before} | {event} | {after} |" for (before, event), after in TRANSITIONS.items()]
    return _page(
        "States of a classic group",
        "All transitions. Any other is a bug and raises an error.",
        "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> Empty", *edges, "```"]),
        "\n".join(["| state | meaning |", "|---|---|", *states]),
        "\n".join(["| state | what happens | next state |", "|---|---|---|", *rows]),
    )


def apis() -> str:
    """The page of the requests that are served."""
    head = "| key | API | versions | the caller needs | charged against |\n|---:|---|---|---|---|"
    rows = (_api(API_TABLE[key]) for key in sorted(API_TABLE))
    return _page(
        "APIs",
        "The requests that the broker serves, as ApiVersions lists them. The caller needs Kafka's "
        "operation on the resource of the request, if the broker has an authorizer "
        "(`authorizer.class.name`). Client quotas charge every request its time, and some "
        "requests more.",
        "\n".join([head, *rows]),
    )


def _api(api: Api) -> str:
    need = "nothing"
    if api.permission is not None:
        resource = api.permission.resource.name.replace("_", " ").lower()
        need = f"`{api.permission.operation.name}` on the {resource}"
    versions = f"{api.min_version} to {api.max_version}"
    name = f"{api.name} (listed only if `telemetry.receiver` is on)" if api.is_hidden else api.name
    return f"| {api.key} | {name} | {versions} | {need} | `{api.cost.value}` |"


def compatibility() -> str:
    """The page that holds this broker against Apache Kafka's requests and settings."""
    names = {key: _camel(name) for key, name in api_key_map.items()}
    served = [key for key in sorted(names) if key in API_TABLE]
    rows = [
        f"| {API_TABLE[key].name} | {_versions(schema_name_map[api_key_map[key]])} "
        f"| {_versions(range(API_TABLE[key].min_version, API_TABLE[key].max_version + 1))} |"
        for key in served
    ]
    reasons: dict[str, list[str]] = {}
    for key in sorted(names.keys() - API_TABLE.keys()):
        reasons.setdefault(_why_unserved_api(names[key]), []).append(names[key])
    unserved = [f"| {reason} | {', '.join(apis)} |" for reason, apis in reasons.items()]
    settings = {**BROKER_SETTINGS, **TOPIC_SETTINGS, **GROUP_SETTINGS}
    idle: dict[str, list[str]] = {}
    for name in sorted(settings):
        if (why := why_unserved(name)) is not None:
            idle.setdefault(why, []).append(f"`{name}`")
    beyond = [f"| {' | '.join(row)} |" for row in _BEYOND_KAFKA]
    effect = len(settings) - sum(map(len, idle.values()))
    of_controller = ", ".join(API_TABLE[key].name for key in sorted(CONTROLLERS_ALONE))
    idle_rows = [f"| {why} | {', '.join(group)} |" for why, group in sorted(idle.items())]
    return _page(
        "Compatibility with Apache Kafka",
        f"Of the {len(names)} requests that Kafka's clients and brokers know, {len(served)} are "
        f"served; of the {len(settings)} settings of brokers, topics and groups, {effect} have "
        "an effect. The others are accepted, described and stored too, so files and tools that "
        "name them keep working. Only those that promise security refuse the start, since a "
        "broker that ignored them would be open, and so does tiered storage. Kafka's versions "
        "are those of its schemas.",
        "## Requests that are served\n\n"
        + "\n".join(["| request | Kafka's versions | served |", "|---|---|---|", *rows]),
        "## Requests that are not served\n\nThe broker closes the connection of a client that "
        "sends one, as Kafka does with a request that it does not know, and logs the request.\n\n"
        + "\n".join(["| why | requests |", "|---|---|", *unserved]),
        "## Requests for the controller\n\nIn a cluster on ZooKeeper a broker that is not the "
        f"controller answers NOT_CONTROLLER to {of_controller}, as Kafka 3 does on ZooKeeper; "
        "Metadata names the controller, and clients ask it. Brokers of Kafka 4 pass these requests "
        "on. To ElectLeaders it says so for the whole as well as for each partition, which alone "
        "Kafka 3 does.\n\nA Fetch with replica id -2, of a consumer that looks for faults, may be "
        "sent to any replica; below version 11 Kafka's followers refuse it.",
        "## Requests that are too large\n\nOne request creates at most 10 000 partitions. As in "
        "Kafka 4.3, CreateTopics counts each new topic and each of its settings too, so a new "
        "topic has at most 9 999 partitions; a larger request is refused as a whole, with "
        "POLICY_VIOLATION. CreatePartitions answers that for the topics that would take the "
        "request beyond, and carries out the others; Kafka 4.3 answers UNKNOWN_SERVER_ERROR for "
        "these topics and all that follow.",
        "## Settings without effect\n\n"
        + "\n".join(["| why | settings |", "|---|---|", *idle_rows]),
        "## Values that Kafka refuses\n\nKafka 4 refuses a properties file or a new topic with one "
        "of them.\n\n" + "\n".join(["| settings | values | for |", "|---|---|---|", *beyond]),
    )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _versions(versions: Iterable[int]) -> str:
    ordered = sorted(versions)
    return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > 1 else str(ordered[0])


def _why_unserved_api(name: str) -> str:
    for reason, beginnings in _UNSERVED_APIS:
        if re.match("|".join(beginnings.split()), name):
            return reason
    raise LookupError(f"{name} is not served, and _UNSERVED_APIS does not say why")


def transaction_states() -> str:
    """The page of the states of a transactional id, with their diagram."""
    names = transaction_states_table.STATE_NAMES
    states = [
        f"| {names[state]} | {text} |"
        for state, text in transaction_states_table.STATE_TEXTS.items()
    ]
    steps = [
        (names[before], event, names[after])
        for (before, event), after in transaction_states_table.TRANSITIONS.items()
    ]
    edges = [f"    {before} --> {after} : {event}" for before, event, after in steps]
    rows = [f"| {before} | {event} | {after} |" for before, event, after in steps]
    return _page(
        "States of a transactional id",
        "All transitions. Any other is a bug and raises an error.",
        "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> Empty", *edges, "```"]),
        "\n".join(["| state | meaning |", "|---|---|", *states]),
        "\n".join(["| state | what happens | next state |", "|---|---|---|", *rows]),
    )


def client_states() -> str:
    """The page of the states that our own client's parts have, each with its diagram."""
    members = [
        (before.name, event.value, after.name)
        for before, events in member_state.TRANSITIONS.items()
        for event, after in events.items()
    ]
    connections = [
        (before.name, event.value, after.name)
        for before, events in connection.TRANSITIONS.items()
        for event, after in events.items()
    ]
    producers = [
        (before.name, "", after.name)
        for before, targets in transaction_state.TRANSITIONS.items()
        for after in sorted(targets, key=lambda state: state.name)
    ]
    return _page(
        "States of our client",
        "All transitions. Any other is a bug and raises an error.",
        "## A member of a group (the classic protocol)",
        _diagram("UNJOINED", members),
        "## A connection",
        _diagram("CONNECTING", connections),
        "## A transactional producer",
        _diagram("UNINITIALIZED", producers),
    )


def _diagram(first: str, steps: Iterable[tuple[str, str, str]]) -> str:
    edges = [
        f"    {before} --> {after}" + (f" : {event}" if event else "")
        for before, event, after in steps
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *edges, "```"])


PAGES = {
    "apis.md": apis,
    "compatibility.md": compatibility,
    "broker-settings.md": broker_settings,
    "topic-settings.md": topic_settings,
    "error-codes.md": error_codes,
    "client-states.md": client_states,
    "group-states.md": group_states,
    "transaction-states.md": transaction_states,
}


def outdated(directory: Path) -> list[str]:
    """The names of the pages whose text is not what the tables say."""
    return [name for name, page in PAGES.items() if _read(directory / name) != page()]


def _settings(rows: Iterable[Setting], synonyms: Mapping[str, str] | None = None) -> str:
    head = ["name", "type", "default", "legal values", "meaning", "without effect"]
    lines = []
    for row in sorted(rows, key=lambda row: row.name):
        cells = [f"`{row.name}`", row.type.name.lower(), _default(row), row.valid_values, row.text]
        cells.append(why_unserved(row.name) or "")
        if synonyms is not None:
            cells.append(synonyms[row.name])
        lines.append(_cells(cells))
    if synonyms is not None:
        head.append("taken from the broker's")
    return "\n".join([_cells(head), "|---" * len(head) + "|", *lines])


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(row: Setting) -> str:
    text = row.render(row.default)
    if text is None:
        return "unset"
    return f"`{text}`" if text else "empty"


def _page(title: str, text: str, *sections: str) -> str:
    return "\n\n".join([_GENERATED, f"# {title}", text, *sections]) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main() -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(description="Writes docs/reference from the code's tables.")
    parser.add_argument("--check", action="store_true", help="only tell what is out of date")
    directory = ROOT / "docs" / "reference"
    stale = outdated(directory)
    if parser.parse_args().check:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run tools/generate_reference.py")
        return 1 if stale else 0
    directory.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (directory / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
