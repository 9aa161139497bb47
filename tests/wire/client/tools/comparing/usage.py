"""Wrong usage of Kafka's tools: flags that are missing, forbidden beside others, given twice or
without a value, values that make no sense, and words that belong to no flag.

Left out are names that flags had before Kafka 4, which ours still take, and numbers of nothing
(`--num-records 0`), which ours refuse.
"""

from collections.abc import Iterator

_SERVERS = "--bootstrap-server {servers}"
# By tool: what it needs, for which `+` stands in its lines, as `@` stands for the servers. Behind
# ` <<< ` stands what the tool reads.
TOOLS: dict[str, tuple[str, str]] = {
    "console-producer": (
        "@ --topic {topic}",
        """
        --topic {topic}
        @
        + --xyzzy
        + extra <<< a
        + --topic
        + --topic other
        --bootstrap-server localhost --topic {topic}
        --bootstrap-server localhost:x --topic {topic}
        @ +
        + --batch-size abc
        + --batch-size -5
        + --batch-size
        + --batch-size 1 --batch-size 2
        + --timeout abc
        + --timeout -5
        + --request-timeout-ms abc
        + --request-timeout-ms -5
        + --message-send-max-retries abc
        + --message-send-max-retries -5
        + --retry-backoff-ms abc
        + --max-block-ms abc
        + --max-block-ms -5
        + --max-memory-bytes abc
        + --max-memory-bytes -5
        + --max-partition-memory-bytes abc
        + --max-partition-memory-bytes -5
        + --metadata-expiry-ms abc
        + --metadata-expiry-ms -5
        + --socket-buffer-size abc
        + --socket-buffer-size -5
        + --request-required-acks abc
        + --compression-codec bogus
        + --command-property nonsense <<< a
        + --command-property acks=9
        + --reader-config /nothing
        + --reader-property key.separator= <<< a
        + --sync=x <<< a
        + --topic=U
        """,
    ),
    "console-consumer": (
        "@ --topic {topic} --from-beginning --max-messages 0",
        """
        @
        --topic {topic}
        --include {topic}
        + --xyzzy
        + extra
        + --partition abc
        + --partition
        + --partition 0 --partition 1
        + --partition 0 --offset 0
        + --offset
        @ --topic {topic} --max-messages 0 --partition 0 --offset -5
        @ --topic {topic} --max-messages 0 --partition 0 --offset 99999999999999999999
        @ --topic {topic} --max-messages 0 --partition 0 --offset Earliest
        @ --topic {topic} --max-messages 0 --partition 0 --offset 1 --offset 2
        @ --include {topic} --max-messages 0 --partition 0
        @ --topic {topic} --max-messages
        @ --topic {topic} --max-messages -5
        + --timeout-ms abc
        + --timeout-ms -5
        + --timeout-ms 0
        + --isolation-level READ_COMMITTED
        + --isolation-level
        + --topic other
        + --include other
        + --group {group} --partition 0
        + --group
        + --group {group} --group h
        + --formatter
        + --formatter-property nonsense
        + --formatter-property print.key
        + --command-property nonsense
        + --command-property auto.offset.reset=latest
        + --command-property auto.offset.reset=bogus
        + --command-property group.id=a --group b
        + --command-property group.id=a --partition 0
        + --key-deserializer no.such.Class
        + --key-deserializer
        + --skip-message-on-error=x
        --bootstrap-server localhost --topic {topic} --max-messages 0
        --bootstrap-server localhost:x --topic {topic} --max-messages 0
        @ @ --topic {topic} --max-messages 0
        """,
    ),
    "producer-perf-test": (
        "@ --topic {topic} --num-records 1 --throughput -1 --record-size 5",
        """
        @ --topic {topic} --num-records 1 --throughput -1
        @ --topic {topic} --num-records 1 --record-size 5
        @ --topic {topic} --throughput -1 --record-size 5
        @ --num-records 1 --throughput -1 --record-size 5
        --topic {topic} --num-records 1 --throughput -1 --record-size 5
        + --payload-file /nothing
        + --payload-monotonic
        + --topic
        + --topic {topic}
        + --num-records abc
        + --num-records 0
        + --num-records -5
        + --throughput abc
        + --throughput 0
        + --throughput -5
        + --throughput
        + --record-size abc
        + --record-size 0
        + --record-size -5
        + --warmup-records abc
        + --warmup-records 0
        + --warmup-records 1
        + --warmup-records 5
        + --warmup-records -5
        + --reporting-interval abc
        + --reporting-interval 0
        + --reporting-interval -5
        + --transaction-duration-ms abc
        + --transaction-duration-ms 0
        + --transaction-duration-ms -5
        + --transactional-id
        + --command-property nonsense
        + --command-property acks=9
        + --command-property a=b=c
        + --producer-props nonsense
        + --command-config /nothing
        + --producer.config /nothing
        + --command-config /nothing --producer.config /nothing
        @ --topic {topic} --num-records 1 --throughput -1 --payload-file
        --topic {topic} --num-records 1 --throughput -1 --record-size 5 \
            --command-property bootstrap.servers={servers}
        --topic {topic} --num-records 1 --throughput -1 --record-size 5 \
            --producer-props bootstrap.servers={servers}
        --bootstrap-server localhost --topic {topic} --num-records 1 --throughput -1 --record-size 5
        """,
    ),
    "consumer-perf-test": (
        "@ --topic {topic} --num-records 1 --timeout 10",
        """
        @ --topic {topic}
        @ --num-records 1
        --topic {topic} --num-records 1
        + --xyzzy
        + --topic
        + --topic other
        + --include {topic}
        + --include
        @ --topic {topic} --num-records abc
        @ --topic {topic} --num-records
        @ --topic {topic} --messages abc
        + --messages 1
        + --num-records 2
        + --fetch-size abc
        + --fetch-size -5
        + --socket-buffer-size abc
        + --socket-buffer-size -5
        + --reporting-interval abc
        + --reporting-interval 0
        + --reporting-interval -5
        + --date-format
        + --date-format bogus
        + --date-format 'x
        + --group
        + --group a --group b
        + --command-config /nothing
        + --consumer.config /nothing
        + --consumer.config /nothing --command-config /nothing
        --bootstrap-server localhost --topic {topic} --num-records 1
        """,
    ),
    "verifiable-producer": (
        "@ --topic {topic}",
        """
        @
        --topic {topic}
        + --topic
        + --acks 5
        + --acks abc
        + --max-messages 99999999999
        + --command-config /nothing --producer.config /nothing
        """,
    ),
    "verifiable-consumer": (
        "@ --topic {topic} --group-id none --max-messages 0",
        """
        @ --topic {topic}
        + --session-timeout abc
        + --group-protocol consumer --session-timeout 9000
        + --reset-policy bogus
        + --command-config /nothing --consumer.config /nothing
        """,
    ),
    "leader-election": (
        "@ --election-type preferred --topic {topic} --partition 0",
        """
        @
        --election-type preferred --topic {topic} --partition 0
        @ --topic {topic} --partition 0
        @ --election-type preferred --partition 0
        @ --election-type preferred --topic {topic}
        @ --election-type bogus --topic {topic} --partition 0
        @ --election-type PREFERRED --topic {topic} --partition 0
        @ --election-type --topic {topic} --partition 0
        @ --election-type preferred --election-type unclean --topic {topic} --partition 0
        + --xyzzy
        + extra
        + --all-topic-partitions
        + --path-to-json-file /nothing
        + --topic other
        + --topic
        + --partition
        + --partition 1
        @ --election-type preferred --topic {topic} --partition abc
        @ --election-type preferred --topic {topic} --partition -5
        @ --election-type preferred --all-topic-partitions --partition 0
        @ --election-type preferred --path-to-json-file /nothing --partition 0
        @ --election-type preferred --path-to-json-file /nothing --all-topic-partitions
        + --command-config /nothing
        + --admin.config /nothing
        + --admin.config /nothing --command-config /nothing
        + --all-topic-partitions=x
        --bootstrap-server localhost --election-type preferred --topic {topic} --partition 0
        """,
    ),
    "log-dirs": (
        "@ --describe",
        """
        @
        --describe
        + --xyzzy
        + extra
        + --broker-list abc
        + --broker-list 1,abc
        + --broker-list 1,,
        + --broker-list -5
        + --broker-list 1.5
        + --broker-list 99999999999
        + --broker-list
        + --broker-list 1 --broker-list 2
        + --topic-list
        + --topic-list {topic} --topic-list other
        + --topic-list {topic},,
        + --command-config /nothing
        + --describe
        + --describe=x
        --bootstrap-server localhost --describe
        """,
    ),
    "get-offsets": (
        "@",
        """
        --topic {topic}
        + --xyzzy
        + extra
        + --topic
        + --topic {topic} --topic other
        + --topic [
        + --topic {topic} --partitions abc
        + --topic {topic} --partitions 1,abc
        + --topic {topic} --partitions 1,,
        + --topic {topic} --partitions -5
        + --topic {topic} --partitions 0 --partitions 1
        + --topic {topic} --partitions
        + --topic {topic} --topic-partitions {topic}
        + --partitions 0 --topic-partitions {topic}
        + --topic-partitions {topic}:a
        + --topic-partitions {topic}:0:1
        + --topic-partitions {topic}:5-1
        + --topic-partitions [:0
        + --topic-partitions
        + --topic-partitions {topic},,
        + --topic {topic} --time
        + --topic {topic} --time abc
        + --topic {topic} --time -7
        + --topic {topic} --time 1.5
        + --topic {topic} --time LATEST
        + --topic {topic} --time 99999999999999999999
        + --topic {topic} --time latest --time earliest
        + --topic {topic} --exclude-internal-topics=x
        + --topic {topic} --command-config /nothing
        --bootstrap-server localhost --topic {topic}
        --bootstrap-server localhost:x --topic {topic}
        --bootstrap-server localhost:99999 --topic {topic}
        --bootstrap-server a:1,b --topic {topic}
        """,
    ),
    "delete-records": (
        "@ --offset-json-file /nothing",
        """
        @
        --offset-json-file /nothing
        + --xyzzy
        + extra
        + --offset-json-file
        + --offset-json-file /nothing
        + --command-config /nothing
        + --command-config
        --bootstrap-server localhost --offset-json-file /nothing
        """,
    ),
    "cluster": (
        "cluster-id @",
        """
        unregister @
        unregister @ --id abc
        unregister @ --id -5
        unregister @ --id 99
        + --bootstrap-server
        + --bootstrap-controller {servers}
        + --command-config /nothing
        + --config /nothing
        + --config /nothing --command-config /nothing
        list-endpoints --bootstrap-controller {servers} --include-fenced-brokers
        cluster-id --bootstrap-server localhost
        """,
    ),
    "broker-api-versions": (
        "@",
        """
        --command-config /nothing
        + --xyzzy
        + extra
        + --bootstrap-server
        + --command-config
        + --command-config /nothing
        --bootstrap-server localhost
        """,
    ),
    "groups": (
        "@ --list",
        """
        @
        --list
        + --xyzzy
        + extra
        + --group-type
        + --group-type bogus
        + --group-type Classic
        + --group-type classic --protocol consumer
        + --protocol
        + --consumer
        + --consumer --share
        + --share --consumer
        + --streams --share
        + --consumer --group-type classic
        + --share --protocol x
        + --command-config /nothing
        --bootstrap-server localhost --list
        """,
    ),
    "topics": (
        "@ --describe --topic {topic}",
        """
        + --xyzzy
        + extra
        + --topic other
        + --topic
        + --describe
        + --topic-id
        + --command-config /nothing
        + --partition-size-limit-per-response abc
        + --partition-size-limit-per-response 0
        + --partition-size-limit-per-response -5
        + --partition-size-limit-per-response 5 --partition-size-limit-per-response 6
        @ --list --list=x
        @ --alter --topic {topic} --partitions abc
        @ --alter --topic {topic} --partitions 99999999999
        @ --alter --topic {topic} --partitions
        @ --alter --topic {topic} --partitions 2 --partitions 3
        @ --create --topic other --partitions abc
        @ --create --topic other --partitions 1 --partitions 2
        @ --create --topic other --replication-factor abc
        @ --create --topic other --replication-factor 99999
        @ --create --topic other --config
        @ --create --topic other --config a=b=c
        @ --create --topic other --config a
        @ --create --topic other --replica-assignment 1,,1
        @ --create --topic {topic} extra --if-not-exists
        --list
        --list --bootstrap-server localhost
        --list --bootstrap-server localhost:x
        """,
    ),
    "configs": (
        "@ --describe --topic {topic}",
        """
        + --xyzzy
        + extra
        + --topic other
        + --topic
        @ --describe --broker abc
        @ --describe --broker
        @ --describe --entity-type
        @ --describe --entity-type topics --entity-type brokers
        @ --describe --entity-type topics --entity-name {topic} --entity-name other
        @ --describe --entity-name {topic}
        @ --describe --entity-type broker-loggers
        @ --describe --entity-type broker-loggers --entity-default
        @ --describe --entity-type groups --entity-default
        @ --describe --entity-type topics --entity-default
        @ --alter --topic {topic} --add-config
        @ --alter --topic {topic} --add-config a=b --add-config c=d
        @ --alter --topic {topic} --add-config a=b --add-config-file /nothing
        @ --alter --topic {topic} --add-config-file /nothing
        @ --alter --topic {topic} --delete-config
        + --command-config /nothing
        --describe --topic {topic}
        --describe --topic {topic} --bootstrap-server localhost
        @ --bootstrap-controller {servers} --describe --topic {topic}
        @ --topic {topic}
        @ --describe --alter --topic {topic}
        """,
    ),
    "consumer-groups": (
        "@ --describe --group {group}",
        """
        + --xyzzy
        + extra
        + --group
        + --group {group}
        + --timeout abc
        + --timeout
        + --timeout 100 --timeout 200
        + --command-config /nothing
        + --members=x
        + --state Stable
        @ --list --state
        @ --list --state ,
        @ --list --state a --state b
        @ --list extra
        @ --reset-offsets --group {group} --topic {topic} --to-offset abc --dry-run
        @ --reset-offsets --group {group} --topic {topic} --to-offset --dry-run
        @ --reset-offsets --group {group} --topic {topic} --to-offset 1 --to-offset 2 --dry-run
        @ --reset-offsets --group {group} --topic {topic} --shift-by abc --dry-run
        @ --reset-offsets --group {group} --topic {topic} --by-duration --dry-run
        @ --reset-offsets --group {group} --topic {topic} --by-duration PT1H \
            --by-duration PT2H --dry-run
        @ --reset-offsets --group {group} --topic {topic} --to-datetime --dry-run
        @ --reset-offsets --group {group} --topic {topic}:0:1 --to-earliest --dry-run
        @ --reset-offsets --group {group} --topic {topic}: --to-earliest --dry-run
        @ --reset-offsets --group {group} --topic {topic} --topic {topic} --to-earliest --dry-run
        @ --reset-offsets --group {group} --topic none:0 --to-offset 5 --dry-run
        @ --delete-offsets --group {group} --topic {topic}:0:1
        @ --delete-offsets --group {group} --topic {topic}:
        @ --delete-offsets --group {group} --group h --topic {topic}
        @ --describe --group b --group a --group c
        @ --validate-regex
        @ --validate-regex a --validate-regex b
        --validate-regex a
        --list
        --list --bootstrap-server localhost
        --describe --group {group}
        """,
    ),
    "reassign-partitions": (
        "@ --list",
        """
        + --xyzzy
        + extra
        + --timeout abc
        + --throttle abc
        + --command-config /nothing
        @ --execute --reassignment-json-file /nothing --throttle
        @ --execute --reassignment-json-file /nothing --reassignment-json-file /nothing2
        @ --execute --reassignment-json-file
        @ --generate --topics-to-move-json-file /nothing --broker-list
        --list
        --list --bootstrap-server localhost
        """,
    ),
}


def lines() -> Iterator[str]:
    """The lines, with the tool in front."""
    for tool, (needed, text) in TOOLS.items():
        for line in text.split("\n"):
            if line.strip():
                words = f"{tool} {line.strip()}"
                yield words.replace("+", needed).replace("@", _SERVERS)
