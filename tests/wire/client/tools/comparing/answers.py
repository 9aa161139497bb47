"""The output of a command line, in the form in which Kafka's tools and ours are compared."""

import re
from collections.abc import Callable
from typing import NamedTuple

from tests.wire.java_tools import Done

Ours = Callable[[str, list[str], str], Done]

# A list of partitions, which Kafka takes from a hash table too.
PARTITIONS = re.compile(r"T-\d+(, T-\d+)+")
ID = re.compile(r"TopicId: \S{22}")
# What a fast machine makes other than a slow one.
MEASURES = re.compile(r"\d+(\.\d+)?( ms| records/sec| MB/sec)|(?<= )\d+\.\d{4}\b")
TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}")
# The columns of a reading test behind the number of records.
SPEEDS = re.compile(r"(, \d+), N, \d+, \d+, N, N$", re.MULTILINE)
# The help that wrong usage is answered with stands behind the sentence in most of Kafka's tools.
THEIR_HELP = re.compile(
    r"^(Option {9,}|Option \(\* = required\)|Usage: |usage: .*? \[-h\]).*", re.MULTILINE | re.DOTALL
)
# In ours and in some of Kafka's before it; those wrap the sentence and fill it up with blanks.
HELP_BEFORE = re.compile(r"^usage: .*?: +error: (.*)", re.MULTILINE | re.DOTALL)
# A stack trace is for the makers of Java tools; its first line says once more what was said.
TRACE = re.compile(
    r"\tat |\t\.\.\. \d+ more|\tSuppressed: |Caused by: | at \[Source: |"
    r"(java|org|com|net|joptsimple)\.[\w.$]+(Exception|Error)\b|([a-z]+\.)+[A-Z]\w+$|"
    # What the Java consumer advertises.
    r"The consumer rebalance protocol \(KIP-848\) is production-ready"
)
# What these mean stands in the first line of their trace alone.
TOLD_BY_THE_TRACE = (
    # A file that is not there: its name, or nothing but what was asked for.
    (
        re.compile(
            r"(Error while executing config command) with args '.*'\n"
            r"java\.nio\.file\.NoSuchFileException: (.*)"
        ),
        r"\1: \2: No such file or directory",
    ),
    (
        re.compile(
            r"^(?:Error occurred: )?(\S+)(\njava\.nio\.file\.NoSuchFileException: )\1$",
            re.MULTILINE,
        ),
        r"\2\1",
    ),
    # An address that is none.
    (
        re.compile(
            r"^(?:Error occurred: |"
            r"Error while executing config command with args '.*'\n\S+KafkaException: )?"
            r"Failed to (create new KafkaAdminClient|construct kafka consumer)$",
            re.MULTILINE,
        ),
        "",
    ),
    (
        re.compile(r"(Error while executing config command) with args '.*'\n(\S+Exception: )?"),
        r"\1: ",
    ),
    # A pattern that is none, with the place where it breaks.
    (
        re.compile(r"^java\.util\.regex\.PatternSyntaxException: .*\n.*\n( *\^\n)?", re.MULTILINE),
        "",
    ),
    (re.compile(r"^joptsimple\.UnavailableOptionException: ", re.MULTILINE), ""),
)
# The prefix that goes with a status of 1, not with our 2.
OCCURRED = re.compile(r"^Error occurred: ")
# Taken from a set, in another order by every JVM.
LISTED = re.compile(r"(?<=Valid states are: ).*|(?<=group ids: ).*|\[[\w-]+\](, \[[\w-]+\])+")


# Of the table of `--print-metrics` what a client of ours counts alike; its columns are as wide as
# the longest name. Kafka's consumer counts records when a whole answer of its broker is used up.
METRIC = re.compile(r"^[a-z-]+:([a-z-]+):\{.*\} *: ")
COUNTED = {"record-error-total", "record-send-total"}
BLANKS = re.compile(" +")


class Answer(NamedTuple):
    """The outcome of a command line; `traced` where Kafka's tool fails with nothing but a stack
    trace or a line in its log, for which ours may have a sentence."""

    status: int
    rows: list[str]
    sentences: list[str]
    traced: bool

    def agrees(self, ours: "Answer") -> bool:
        """Whether ours said what this one of Kafka's said."""
        said = ours.sentences[self.traced :] if self.sentences != ours.sentences else self.sentences
        return said == self.sentences and self[:2] == ours[:2]


def difference(line: str, theirs: tuple[Done, Answer], ours: tuple[Done, Answer]) -> list[str]:
    """A message about a line to which ours answered otherwise; empty where both agree."""
    if theirs[1].agrees(ours[1]):
        return []
    return [f"{line}\n--- theirs {theirs[0]}\n--- ours {ours[0]}"]


def told_otherwise(line: str, theirs: Done, ours: Done, topic: str, group: str) -> list[str]:
    """The `difference` where both tools were asked about the same topic and group."""
    expected, found = (normal(done, line, topic, group) for done in (theirs, ours))
    return difference(line, (theirs, expected), (ours, found))


def normal(done: Done, line: str, topic: str, group: str) -> Answer:
    """Status, rows and sentences without names, ids and times, rows in order.

    Wrong usage has a status of its own in ours.
    """
    status, text, errors = done
    said = sentences(errors.replace(topic, "T").replace(group, "G"))
    traced = bool(TRACE.search(errors)) or (status == 1 and not text and not said)
    status = min(status, 1)
    if not text and status:
        return Answer(status, [], said, traced)
    if "{" not in line or "--all-groups" in line or "--entity-type" in line:
        # Everybody's: the rows of others come and go.
        own = [group] if "--all-groups" in line else [topic, group]
        text = "\n".join(row for row in text.split("\n") if any(each in row for each in own))
        said = [each for each in said if "G" in each]
    text = ID.sub("TopicId: ?", text.replace(topic, "T").replace(group, "G"))
    text = PARTITIONS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
    if "perf-test" in line:
        text = MEASURES.sub("N", TIMES.sub("TIME", text)).replace("N MB/sec", "N")
        text = SPEEDS.sub(r"\1, ...", text)
    rows = [row for row in text.split("\n") if not TRACE.match(row)]
    if "--print-metrics" in line:
        names = [(row, METRIC.match(row)) for row in rows]
        rows = [BLANKS.sub(" ", row) for row, name in names if not name or name[1] in COUNTED]
    if "reassign-partitions" in line:
        # Its traces stand in the output, with a blank line behind.
        rows = [row for row in rows if row]
    # A log directory is JSON on one line, whose elements Kafka takes from a hash table.
    rows = sorted("".join(sorted(row)) if row[:1] == "{" else row for row in rows)
    return Answer(status, rows, said, traced)


def _on_one_line(found: re.Match[str]) -> str:
    # The break may be within `--topic`.
    return " ".join(found[1].split()).replace(" -- ", " --")


def sentences(errors: str) -> list[str]:
    """The text of standard error, without help and stack traces."""
    errors = THEIR_HELP.sub("", HELP_BEFORE.sub(_on_one_line, errors))
    for pattern, meaning in TOLD_BY_THE_TRACE:
        errors = pattern.sub(meaning, errors)
    errors = LISTED.sub(lambda found: ", ".join(sorted(found[0].split(", "))), errors)
    return [
        OCCURRED.sub("", line)
        for line in errors.split("\n")
        if line.strip() and not TRACE.match(line)
    ]
