"""Builds the hot modules with mypyc, from the same sources that also run uncompiled.

Without mypy or a C compiler the package installs all the same, slower, and says so once.
`python setup.py --print-native` lists the sources of the compiled modules.
"""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_ext import build_ext

# The walk of a request, floor by floor: what runs once a frame, a batch, a record or a timer.
NATIVE_MODULES = [
    "src/odradek/clock.py",
    "src/odradek/coordinator/assignors/__init__.py",
    "src/odradek/coordinator/assignors/assignor.py",
    "src/odradek/coordinator/assignors/range.py",
    "src/odradek/coordinator/assignors/uniform.py",
    "src/odradek/coordinator/classic/delayed.py",
    "src/odradek/coordinator/classic/group.py",
    "src/odradek/coordinator/classic/groups.py",
    "src/odradek/coordinator/classic/joining.py",
    "src/odradek/coordinator/classic/member.py",
    "src/odradek/coordinator/classic/rebalance.py",
    "src/odradek/coordinator/classic/requests.py",
    "src/odradek/coordinator/classic/states.py",
    "src/odradek/coordinator/consumer/classic_members.py",
    "src/odradek/coordinator/consumer/client_protocol.py",
    "src/odradek/coordinator/consumer/consumer_groups.py",
    "src/odradek/coordinator/consumer/conversion.py",
    "src/odradek/coordinator/consumer/deadlines.py",
    "src/odradek/coordinator/consumer/group.py",
    "src/odradek/coordinator/consumer/group_change.py",
    "src/odradek/coordinator/consumer/member.py",
    "src/odradek/coordinator/consumer/reconciliation.py",
    "src/odradek/coordinator/consumer/replay.py",
    "src/odradek/coordinator/consumer/requests.py",
    "src/odradek/coordinator/consumer/settings.py",
    "src/odradek/coordinator/consumer/subscriptions.py",
    "src/odradek/coordinator/consumer/target_assignment.py",
    "src/odradek/coordinator/consumer/topic_metadata.py",
    "src/odradek/coordinator/consumer_protocol.py",
    "src/odradek/coordinator/group.py",
    "src/odradek/coordinator/group_coordinator.py",
    "src/odradek/coordinator/group_shard.py",
    "src/odradek/coordinator/modern/subscription_regex.py",
    "src/odradek/coordinator/offsets/commands.py",
    "src/odradek/coordinator/offsets/pending.py",
    "src/odradek/coordinator/offsets/requests.py",
    "src/odradek/coordinator/offsets/store.py",
    "src/odradek/coordinator/offsets/upkeep.py",
    "src/odradek/coordinator/records/consumer_group_records.py",
    "src/odradek/coordinator/records/group_records.py",
    "src/odradek/coordinator/records/offset_records.py",
    "src/odradek/coordinator/records/record.py",
    "src/odradek/coordinator/records/record_codec.py",
    "src/odradek/coordinator/runtime/appender.py",
    "src/odradek/coordinator/runtime/batches.py",
    "src/odradek/coordinator/runtime/context.py",
    "src/odradek/coordinator/runtime/delayed_write.py",
    "src/odradek/coordinator/runtime/loader.py",
    "src/odradek/coordinator/runtime/partition_writer.py",
    "src/odradek/coordinator/runtime/partitioning.py",
    "src/odradek/coordinator/runtime/runtime.py",
    "src/odradek/coordinator/runtime/settings.py",
    "src/odradek/coordinator/runtime/shard.py",
    "src/odradek/coordinator/services.py",
    "src/odradek/handlers/before_append.py",
    "src/odradek/handlers/dispatcher.py",
    "src/odradek/handlers/fetch.py",
    "src/odradek/handlers/fetch_sessions.py",
    "src/odradek/handlers/heartbeat.py",
    "src/odradek/handlers/join_group.py",
    "src/odradek/handlers/leave_group.py",
    "src/odradek/handlers/list_offsets.py",
    "src/odradek/handlers/offset_commit.py",
    "src/odradek/handlers/offset_fetch.py",
    "src/odradek/handlers/parked_fetches.py",
    "src/odradek/handlers/produce.py",
    "src/odradek/handlers/request.py",
    "src/odradek/handlers/sync_group.py",
    "src/odradek/handlers/topic_names.py",
    "src/odradek/handlers/unpacking.py",
    "src/odradek/network/connection.py",
    "src/odradek/network/receive_buffers.py",
    "src/odradek/network/request_memory.py",
    "src/odradek/network/response_memory.py",
    "src/odradek/network/socket_protocol.py",
    "src/odradek/protocol/exchange.py",
    "src/odradek/protocol/fetch.py",
    "src/odradek/protocol/framing.py",
    "src/odradek/protocol/header.py",
    "src/odradek/protocol/heartbeat.py",
    "src/odradek/protocol/list_offsets.py",
    "src/odradek/protocol/offset_commit.py",
    "src/odradek/protocol/primitives.py",
    "src/odradek/protocol/produce.py",
    "src/odradek/purgatory/delayed_operation.py",
    "src/odradek/purgatory/purgatory.py",
    "src/odradek/purgatory/watchers.py",
    "src/odradek/records/batch.py",
    "src/odradek/records/builder.py",
    "src/odradek/records/columnar.py",
    "src/odradek/records/convert.py",
    "src/odradek/records/legacy.py",
    "src/odradek/records/reader.py",
    "src/odradek/records/record.py",
    "src/odradek/records/validate.py",
    "src/odradek/records/varint.py",
    "src/odradek/records/walk.py",
    "src/odradek/replication/append.py",
    "src/odradek/replication/append_batch.py",
    "src/odradek/replication/delayed_delete_records.py",
    "src/odradek/replication/delayed_fetch.py",
    "src/odradek/replication/delayed_produce.py",
    "src/odradek/replication/fetch.py",
    "src/odradek/replication/in_sync_replicas.py",
    "src/odradek/replication/keys.py",
    "src/odradek/replication/local_reader.py",
    "src/odradek/replication/offset_lookup.py",
    "src/odradek/replication/partition.py",
    "src/odradek/replication/partition_table.py",
    "src/odradek/replication/purgatories.py",
    "src/odradek/replication/quota.py",
    "src/odradek/replication/replica_manager.py",
    "src/odradek/replication/replica_states.py",
    "src/odradek/storage/cleaner/batch_cleaner.py",
    "src/odradek/storage/cleaner/cleaned_transactions.py",
    "src/odradek/storage/cleaner/offset_map.py",
    "src/odradek/storage/cleaner/record_filter.py",
    "src/odradek/storage/cleaner/segment_cleaner.py",
    "src/odradek/storage/files.py",
    "src/odradek/storage/index/index_file.py",
    "src/odradek/storage/index/offset_index.py",
    "src/odradek/storage/index/time_index.py",
    "src/odradek/storage/index/transaction_index.py",
    "src/odradek/storage/log/batch_scanner.py",
    "src/odradek/storage/log/leader_epochs.py",
    "src/odradek/storage/log/local_log.py",
    "src/odradek/storage/log/log.py",
    "src/odradek/storage/log/offset_metadata.py",
    "src/odradek/storage/log/recovery.py",
    "src/odradek/storage/log/retention.py",
    "src/odradek/storage/log/segment.py",
    "src/odradek/storage/log/segments.py",
    "src/odradek/storage/log/staging.py",
    "src/odradek/storage/log_directory.py",
    "src/odradek/storage/producers/producer_state.py",
    "src/odradek/timer/mock_timer.py",
    "src/odradek/timer/system_timer.py",
    "src/odradek/timer/timer.py",
    "src/odradek/timer/timer_task.py",
    "src/odradek/timer/timing_wheel.py",
]
# Lets the C compiler inline across the functions of a module.
COMPILER_FLAGS = "-fno-semantic-interposition"


class OptionalBuildExt(build_ext):
    """Goes on without compiled modules when the compiler fails."""

    def run(self) -> None:
        """Compiles, or says once that the package will run uncompiled."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever a compiler can do wrong
            uncompiled(f"the compiler failed: {error}")
            self.extensions = []


def uncompiled(reason: str) -> None:
    """Says, once, that the installation is the slow one."""
    print(f"odradek: installing without compiled modules, slower: {reason}", file=sys.stderr)


def native_extensions() -> list[object]:
    """The compiled modules, or none where they are not wanted or cannot be made."""
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        return []
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        uncompiled("there is no C compiler here")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        uncompiled("mypyc is missing")
        return []
    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} {COMPILER_FLAGS}".strip()
    return list(mypycify(["--strict", *NATIVE_MODULES], opt_level="3", debug_level="0"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print-native"]:
        print("\n".join(NATIVE_MODULES))
    else:
        extensions = native_extensions() if NATIVE_MODULES else []
        setup(ext_modules=extensions, cmdclass={"build_ext": OptionalBuildExt})
