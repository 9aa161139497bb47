"""Measures one run in a process of its own and prints it as one JSON object.

Not to be called by hand: `python -m benchmarks.purgatory` starts it, with the compiled modules
and within a memory limit, and takes an object of options as its only argument.
"""

import gc
import json
import resource
import sys
import time

from benchmarks.purgatory import harness
from benchmarks.purgatory.workload import Workload, draw_arrivals_ms, draw_latencies_ms

# As a server would: what lives from the start is not looked at again, and requests, of which
# thousands wait at any moment, are not looked at for every 700 of them.
COLLECTOR_THRESHOLDS = (10_000, 20, 20)
KEYS = ["key-17", "key-42", "key-86"]


def main() -> int:
    options = json.loads(sys.argv[1])
    workload = Workload("", options["p50_ms"], options["p75_ms"], options["timeout_ms"])
    requests, rate = options["requests"], options["rate"]
    run = harness.Run(
        requests,
        options["seconds"],
        draw_arrivals_ms(requests, rate),
        draw_latencies_ms(requests, workload),
        KEYS,
        workload.timeout_ms,
        options["request_bytes"],
    )
    if options["design"] == "wheel":
        run.use_wheel(options["purge_interval"], options["purge"] == "amortised")
    else:
        run.use_queue(options["purge_interval"], options["sweep"] == "iterator")
    if options["completions"] == "thread":
        run.complete_by_thread()
    print(json.dumps(measured(run, options)))
    return 0


def measured(run: harness.Run, options: dict[str, object]) -> dict[str, object]:
    """Runs, and says what it took; `error` instead when the memory was not enough."""
    limit_memory(options["memory_mb"])
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    collector = harness.CollectorWatch()
    cpu_before = time.process_time()
    try:
        run.start()
    except MemoryError:
        return {"error": f"out of memory at {options['memory_mb']} MB"}
    cpu_s = time.process_time() - cpu_before
    tally = run.tally
    assert tally.completed + tally.expired == run.enqueued, "every request ends exactly once"
    requests = int(run.enqueued)
    return {
        "requests": requests,
        "enqueued_per_s": round(requests / run.enqueued_s),
        "cpu_s_per_million": round(cpu_s / requests * 1e6, 3),
        "gc_s": round(collector.seconds, 4),
        "completed": tally.completed,
        "expired": tally.expired,
        "lateness_ms": {str(ms): count for ms, count in enumerate(tally.lateness) if count},
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "compiled": harness.COMPILED,
    }


def limit_memory(limit_mb: object) -> None:
    """Caps this process's data at so many MB; 0 leaves it unlimited."""
    assert isinstance(limit_mb, int)
    if limit_mb > 0:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mb << 20, limit_mb << 20))


if __name__ == "__main__":
    sys.exit(main())
