"""The SQL statements that write a delta. Pure.

Live brokers and offline replicas are not stored.
"""

from odradek.metadata.image import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
)
from odradek.metadata.sqlite import acl_rows, quota_rows, schema
from odradek.metadata.sqlite.journal import Statement


def statements_of(delta: MetadataDelta) -> list[Statement]:
    """The statements that take a journal from the image before a change to the one after it."""
    before, after = delta.previous, delta.image
    statements = _properties(before, after)
    if delta.topics_removed:
        statements += schema.delete_topics(delta.topics_removed)
    if delta.topics_added:
        statements.append(schema.put_topics(delta.topics_added))
    for topic in delta.topics_added:
        statements.append(schema.put_partitions(topic.topic_id, topic.partitions))
    for topic in delta.topics_changed:
        written = before.topics[topic.name].partitions
        changed = [each for each in topic.partitions if _is_changed(written, each)]
        if changed:
            statements.append(schema.put_partitions(topic.topic_id, changed))
    if delta.configs_changed:
        statements += _configs(delta)
    if delta.acls_changed:
        statements += acl_rows.statements_of(delta)
    if delta.client_quotas_changed:
        statements += quota_rows.statements_of(delta)
    return statements


def _properties(before: MetadataImage, after: MetadataImage) -> list[Statement]:
    statements = []
    if after.controller_epoch != before.controller_epoch:
        statements.append(schema.put_property(schema.CONTROLLER_EPOCH, after.controller_epoch))
    if after.features_epoch != before.features_epoch:
        levels = schema.feature_levels_text(after.features)
        statements.append(schema.put_property(schema.FEATURES, levels))
        statements.append(schema.put_property(schema.FEATURES_EPOCH, after.features_epoch))
    return statements


def _is_changed(written: tuple[PartitionImage, ...], partition: PartitionImage) -> bool:
    """Whether a partition has changed: every stored change raises its epoch."""
    index = partition.partition
    return index >= len(written) or written[index].partition_epoch != partition.partition_epoch


def _configs(delta: MetadataDelta) -> list[Statement]:
    put: list[tuple[ConfigResource, str, str]] = []
    deleted: list[tuple[ConfigResource, str]] = []
    for resource in delta.configs_changed:
        before, after = delta.previous.config(resource), delta.image.config(resource)
        put += [(resource, *each) for each in after.items() if each not in before.items()]
        deleted += [(resource, name) for name in before if name not in after]
    return [schema.put_configs(put), schema.delete_configs(deleted)]
