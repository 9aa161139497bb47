"""The counts of a broker's life, written into its data directory when it stops.

One small JSON file for people and scripts that look at a run afterwards. Nothing reads it back; a
killed broker leaves the one of its previous run, or none.
"""

import json
import logging
import os
from collections.abc import Iterable
from typing import Final

from odradek.purgatory import DelayedOperationPurgatory

STATISTICS_FILE: Final = "odradek-stats.json"

logger = logging.getLogger("odradek.server")


def write_statistics(directory: str, purgatories: Iterable[DelayedOperationPurgatory]) -> None:
    """Writes, for every purgatory, how many operations waited and what completed them.

    A disk that does not take the file is no reason not to stop in order: it is only logged.
    """
    document = {"purgatories": {one.name: one.stats._asdict() for one in purgatories}}
    path = os.path.join(directory, STATISTICS_FILE)
    try:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        logger.warning("No statistics of this run are kept: %s", error)
