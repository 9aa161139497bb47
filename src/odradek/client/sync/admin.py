"""`Admin`, blocking."""

from collections.abc import Mapping
from typing import Any

from odradek.client.aio import admin as aio
from odradek.client.sync.shell import Shell
from odradek.event_loop import waits_for


class Admin(Shell[aio.Admin]):
    """Looks at a cluster and changes it; may be shared by threads.

        with Admin("localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=3)])

    Settings have Kafka's names, in `config` or with underscores as keywords.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        **settings: Any,
    ) -> None:
        """Does not connect yet.

        Raises:
            ValueError: a setting is illegal.
        """
        super().__init__(lambda: aio.Admin(bootstrap_servers, config, **settings))

    describe_cluster = waits_for(aio.Admin.describe_cluster)
    broker_versions = waits_for(aio.Admin.broker_versions)
    describe_features = waits_for(aio.Admin.describe_features)
    describe_quorum = waits_for(aio.Admin.describe_quorum)
    unregister_broker = waits_for(aio.Admin.unregister_broker)
    describe_configs = waits_for(aio.Admin.describe_configs)
    alter_configs = waits_for(aio.Admin.alter_configs)
    list_config_resources = waits_for(aio.Admin.list_config_resources)
    list_groups = waits_for(aio.Admin.list_groups)
    describe_groups = waits_for(aio.Admin.describe_groups)
    delete_groups = waits_for(aio.Admin.delete_groups)
    remove_members = waits_for(aio.Admin.remove_members)
    list_offsets = waits_for(aio.Admin.list_offsets)
    list_group_offsets = waits_for(aio.Admin.list_group_offsets)
    alter_group_offsets = waits_for(aio.Admin.alter_group_offsets)
    delete_group_offsets = waits_for(aio.Admin.delete_group_offsets)
    list_share_group_offsets = waits_for(aio.Admin.list_share_group_offsets)
    alter_share_group_offsets = waits_for(aio.Admin.alter_share_group_offsets)
    delete_share_group_offsets = waits_for(aio.Admin.delete_share_group_offsets)
    delete_records = waits_for(aio.Admin.delete_records)
    describe_producers = waits_for(aio.Admin.describe_producers)
    abort_transaction = waits_for(aio.Admin.abort_transaction)
    elect_leaders = waits_for(aio.Admin.elect_leaders)
    describe_log_dirs = waits_for(aio.Admin.describe_log_dirs)
    alter_replica_log_dirs = waits_for(aio.Admin.alter_replica_log_dirs)
    alter_partition_reassignments = waits_for(aio.Admin.alter_partition_reassignments)
    list_partition_reassignments = waits_for(aio.Admin.list_partition_reassignments)
    create_topics = waits_for(aio.Admin.create_topics)
    delete_topics = waits_for(aio.Admin.delete_topics)
    create_partitions = waits_for(aio.Admin.create_partitions)
    list_topics = waits_for(aio.Admin.list_topics)
    describe_topics = waits_for(aio.Admin.describe_topics)
    eligible_leaders = waits_for(aio.Admin.eligible_leaders)
    describe_topic = waits_for(aio.Admin.describe_topic)
    describe_acls = waits_for(aio.Admin.describe_acls)
    create_acls = waits_for(aio.Admin.create_acls)
    delete_acls = waits_for(aio.Admin.delete_acls)
    describe_client_quotas = waits_for(aio.Admin.describe_client_quotas)
    alter_client_quotas = waits_for(aio.Admin.alter_client_quotas)
    create_delegation_token = waits_for(aio.Admin.create_delegation_token)
    renew_delegation_token = waits_for(aio.Admin.renew_delegation_token)
    expire_delegation_token = waits_for(aio.Admin.expire_delegation_token)
    describe_delegation_tokens = waits_for(aio.Admin.describe_delegation_tokens)
    describe_scram_users = waits_for(aio.Admin.describe_scram_users)
    alter_scram_users = waits_for(aio.Admin.alter_scram_users)
    list_transactions = waits_for(aio.Admin.list_transactions)
    describe_transactions = waits_for(aio.Admin.describe_transactions)
    force_terminate_transaction = waits_for(aio.Admin.force_terminate_transaction)
