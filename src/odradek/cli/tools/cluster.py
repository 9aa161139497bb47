"""`odradek cluster`: prints the cluster's id and brokers and unregisters brokers, as
`kafka-cluster.sh` does, and runs a cluster on this machine (`cli.local_cluster`).
"""

import argparse
import sys
from typing import Final

from odradek import __version__
from odradek.cli.local_cluster import commands as local_cluster
from odradek.cli.tools.connection import (
    HAS_BEEN_DEPRECATED,
    add_connection,
    add_format,
    check_whom_to_ask,
    client_config,
    print_json,
    run_async,
    take_old_flags,
)
from odradek.cli.tools.wording.java_names import java_text
from odradek.cli.tools.wording.java_values import converted
from odradek.client import Admin
from odradek.client.core.admin_types import ClusterDescription
from odradek.client.errors import UnsupportedVersion
from odradek.errors import BrokerError, text_of

_KAFKAS: Final = {
    "cluster-id": "print the cluster's id",
    "unregister": "have the cluster forget a broker",
    "list-endpoints": "list the brokers",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--version", action="version", version=f"odradek {__version__}")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    local_cluster.add_commands(actions)
    for name, words in _KAFKAS.items():
        action = actions.add_parser(name, help=words, allow_abbrev=False)
        action.set_defaults(parser=action)
        add_connection(
            action,
            server_flags=("--bootstrap-server", "-b"),
            controller_flags=("--bootstrap-controller", "-C"),
            config_flags=("--command-config", "-c"),
            old_config_flag="--config",
            deprecation=HAS_BEEN_DEPRECATED,
            together="--{} and --{} cannot be specified together.",
            reads_options=False,
        )
        add_format(action)
        if name == "unregister":
            help_text = "the broker to unregister"
            action.add_argument(
                "--id", "-i", type=converted("Integer"), metavar="BROKER", help=help_text
            )
        if name == "list-endpoints":
            action.add_argument("--include-fenced-brokers", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action."""
    if arguments.action not in _KAFKAS:
        return local_cluster.run(arguments)
    if arguments.action == "unregister" and arguments.id is None:
        arguments.parser.error("argument --id/-i is required")
    check_whom_to_ask(
        arguments,
        both="argument --bootstrap-controller/-C: not allowed with argument --bootstrap-server/-b",
        neither="one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required",
    )
    take_old_flags(arguments)
    asks_controllers = arguments.bootstrap_controller is not None
    with_fenced = vars(arguments).get("include_fenced_brokers", False)
    if asks_controllers and with_fenced:
        arguments.parser.error(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )

    def say(error: Exception) -> None:
        text = java_text(error) if isinstance(error, BrokerError) else text_of(error)
        print(text, file=sys.stderr)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            if arguments.action == "unregister":
                try:
                    await admin.unregister_broker(arguments.id)
                except UnsupportedVersion:
                    print("The target cluster does not support the broker unregistration API.")
                else:
                    print(f"Broker {arguments.id} is no longer registered.")
                return 0
            _show(await admin.describe_cluster(include_fenced_brokers=with_fenced), arguments)
        return 0

    return run_async(work, say)


def _show(cluster: ClusterDescription, arguments: argparse.Namespace) -> None:
    if arguments.output == "json":
        brokers = [
            {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in cluster.nodes
        ]
        print_json({"cluster_id": cluster.cluster_id, "brokers": brokers})
    elif arguments.action == "cluster-id":
        print(f"Cluster ID: {cluster.cluster_id}")
    else:
        _print_endpoints(cluster, are_controllers=arguments.bootstrap_controller is not None)


def _print_endpoints(cluster: ClusterDescription, *, are_controllers: bool) -> None:
    host = max((len(node.host) for node in cluster.nodes), default=0)
    rack = max((len(str(node.rack or "null")) for node in cluster.nodes), default=0)
    layout = f"{{0:<10}} {{1:<{max(host, 9)}}} {{2:<10}} {{3:<{max(rack, 10)}}} "
    layout += "{5:<15}" if are_controllers else "{4:<10} {5:<15}"
    print(layout.format("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))
    for node in cluster.nodes:
        state = "fenced" if node.id in cluster.fenced else "unfenced"
        rack_name = "null" if node.rack is None else node.rack
        kind = "controller" if are_controllers else "broker"
        print(layout.format(node.id, node.host, node.port, rack_name, state, kind))
