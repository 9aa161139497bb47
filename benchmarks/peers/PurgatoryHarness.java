import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.server.purgatory.DelayedOperation;
import org.apache.kafka.server.purgatory.DelayedOperationKey;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.util.timer.SystemTimer;
import org.apache.kafka.server.util.timer.TimerTask;

/**
 * Apache Kafka's own purgatory under the same load as ours (benchmarks/purgatory/harness.py).
 *
 * One thread enqueues, Kafka's reaper and timer threads run as they do in a broker, and completions
 * come from a second thread with its own delay queue ("thread", as published) or from a second
 * SystemTimer with a thread of its own ("wheel"). The steps are those of our harness: what is due is
 * handed in in slices, with one look at the clock for each, and the delay queue is a ring of
 * milliseconds, not java.util.concurrent.DelayQueue, of which a good part of the CPU would be
 * measured. Warm-up operations are not counted. Arguments:
 * requests rate timeoutMs p50 p75 requestBytes purgeInterval completions warmup. The last line is JSON.
 */
public final class PurgatoryHarness {
    static final int LATENESS_LIMIT_MS = 10_000;
    static final double NORMAL_UPPER_QUARTILE = 0.67448975;
    static final long NEVER_MS = 1_000_000;
    static final int RING_MS = 4096;
    static final int SLICE = 32;
    static final int SAMPLES = 200_000;

    static final class Tally {
        final AtomicLong completed = new AtomicLong();
        final AtomicLong expired = new AtomicLong();
        final AtomicIntegerArray lateness = new AtomicIntegerArray(LATENESS_LIMIT_MS + 1);
        long nowMs; // of the slice that is handed in; only the enqueuing thread looks
    }

    record Key(String keyLabel) implements DelayedOperationKey { }

    static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    static final class FakeOperation extends DelayedOperation {
        final Tally tally;
        final long completesAtMs;
        final long deadlineMs;
        final byte[] payload;

        FakeOperation(Tally tally, long nowMs, long timeoutMs, long latencyMs, int requestBytes) {
            super(timeoutMs);
            this.tally = tally;
            this.completesAtMs = nowMs + latencyMs;
            this.deadlineMs = nowMs + timeoutMs;
            this.payload = new byte[requestBytes];
        }

        @Override
        public boolean tryComplete() {
            return tally.nowMs >= completesAtMs && forceComplete();
        }

        @Override
        public void onComplete() {
            tally.completed.incrementAndGet();
        }

        @Override
        public void onExpiration() {
            long late = Math.min(Math.max(nowMs() - deadlineMs, 0), LATENESS_LIMIT_MS);
            tally.lateness.incrementAndGet((int) late);
            tally.completed.decrementAndGet();
            tally.expired.incrementAndGet();
        }
    }

    interface Completions {
        void add(FakeOperation operation, long latencyMs);

        void stop() throws Exception;
    }

    /** The published way: a thread and a delay queue, here a ring of milliseconds. */
    static final class CompletionThread implements Completions {
        private final List<List<FakeOperation>> ring = new ArrayList<>();
        private long takenMs = nowMs();
        private volatile boolean stopping = false;
        private final Thread thread = new Thread(this::work, "completions");

        CompletionThread() {
            for (int i = 0; i < RING_MS; i++) {
                ring.add(new ArrayList<>());
            }
            thread.start();
        }

        private void work() {
            try {
                List<FakeOperation> spare = new ArrayList<>();
                while (!stopping) {
                    for (List<FakeOperation> due = take(spare); due != null; due = take(spare)) {
                        due.forEach(FakeOperation::forceComplete);
                        due.clear();
                        spare = due;
                    }
                    Thread.sleep(1);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }

        /** The requests of the next millisecond that has come, for an empty list; null when none has. */
        private synchronized List<FakeOperation> take(List<FakeOperation> empty) {
            if (takenMs >= nowMs()) {
                return null;
            }
            takenMs++;
            return ring.set((int) (takenMs % RING_MS), empty);
        }

        @Override
        public synchronized void add(FakeOperation operation, long latencyMs) {
            long atMs = Math.max(operation.completesAtMs, takenMs + 1);
            ring.get((int) (atMs % RING_MS)).add(operation);
        }

        @Override
        public void stop() throws Exception {
            stopping = true;
            thread.join();
        }
    }

    /** A second timer of Kafka's, with a thread that advances it. */
    static final class CompletionWheel implements Completions {
        private final SystemTimer timer = new SystemTimer("completions", 1, 20, nowMs());
        private volatile boolean stopping = false;
        private final Thread thread = new Thread(this::work, "completions");

        CompletionWheel() {
            thread.start();
        }

        private void work() {
            try {
                while (!stopping) {
                    timer.advanceClock(200);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void add(FakeOperation operation, long latencyMs) {
            timer.add(new TimerTask(latencyMs) {
                @Override
                public void run() {
                    operation.forceComplete();
                }
            });
        }

        @Override
        public void stop() throws Exception {
            stopping = true;
            thread.join();
            timer.close();
        }
    }

    static long[] drawArrivals(int requests, double rate, Random rng) {
        long[] arrivals = new long[rate > 0 ? requests : 0];
        double atMs = 0;
        for (int i = 0; i < arrivals.length; i++) {
            atMs += -Math.log(1 - rng.nextDouble()) / rate * 1000;
            arrivals[i] = (long) atMs;
        }
        return arrivals;
    }

    static int[] drawLatencies(int requests, double p50, double p75, long timeoutMs, Random rng) {
        double mean = Math.log(p50);
        double sigma = (Math.log(p75) - mean) / NORMAL_UPPER_QUARTILE;
        int[] latencies = new int[Math.min(requests, SAMPLES)];
        for (int i = 0; i < latencies.length; i++) {
            long latency = (long) Math.exp(rng.nextGaussian() * sigma + mean);
            latencies[i] = (int) (latency < timeoutMs ? latency : NEVER_MS);
        }
        return latencies;
    }

    /** Enqueues everything; the seconds that took. */
    static double enqueue(DelayedOperationPurgatory<FakeOperation> purgatory, Completions completions, Tally tally,
                          int requests, long[] arrivals, int[] latencies, long timeoutMs, int requestBytes,
                          List<Key> keys) throws Exception {
        long beganNs = System.nanoTime();
        long startMs = nowMs();
        int position = 0;
        while (position < requests) {
            long now = nowMs();
            tally.nowMs = now;
            int began = position;
            int until = Math.min(began + SLICE, requests);
            while (position < until && (arrivals.length == 0 || startMs + arrivals[position] <= now)) {
                long latency = latencies[position++ % latencies.length];
                FakeOperation operation = new FakeOperation(tally, now, timeoutMs, latency, requestBytes);
                if (latency < timeoutMs) {
                    completions.add(operation, latency);
                }
                purgatory.tryCompleteElseWatch(operation, keys);
            }
            if (position == began) {
                Thread.sleep(1);
            }
        }
        double seconds = (System.nanoTime() - beganNs) / 1e9;
        while (tally.completed.get() + tally.expired.get() < requests) {
            Thread.sleep(1);
        }
        return seconds;
    }

    static long collectorMs() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
            .mapToLong(GarbageCollectorMXBean::getCollectionTime).sum();
    }

    static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    public static void main(String[] args) throws Exception {
        int requests = Integer.parseInt(args[0]);
        double rate = Double.parseDouble(args[1]);
        long timeoutMs = Long.parseLong(args[2]);
        double p50 = Double.parseDouble(args[3]);
        double p75 = Double.parseDouble(args[4]);
        int requestBytes = Integer.parseInt(args[5]);
        int purgeInterval = Integer.parseInt(args[6]);
        boolean byThread = args[7].equals("thread");
        int warmup = Integer.parseInt(args[8]);

        Random rng = new Random(20151029);
        List<Key> keys = List.of(new Key("key-17"), new Key("key-42"), new Key("key-86"));
        SystemTimer timer = new SystemTimer("purgatory", 1, 20, nowMs());
        DelayedOperationPurgatory<FakeOperation> purgatory =
            new DelayedOperationPurgatory<>("benchmark", timer, 0, purgeInterval, true, true);
        Completions completions = byThread ? new CompletionThread() : new CompletionWheel();

        long[] warmArrivals = drawArrivals(warmup, 100_000, rng);
        enqueue(purgatory, completions, new Tally(), warmup, warmArrivals,
            drawLatencies(warmup, p50, p75, timeoutMs, rng), timeoutMs, requestBytes, keys);
        long[] arrivals = drawArrivals(requests, rate, rng);
        int[] latencies = drawLatencies(requests, p50, p75, timeoutMs, rng);
        System.gc();

        Tally tally = new Tally();
        long cpuBefore = cpuNs();
        long collectorBefore = collectorMs();
        double seconds =
            enqueue(purgatory, completions, tally, requests, arrivals, latencies, timeoutMs, requestBytes, keys);
        double cpuSeconds = (cpuNs() - cpuBefore) / 1e9;
        double collectorSeconds = (collectorMs() - collectorBefore) / 1e3;
        completions.stop();
        purgatory.shutdown();
        System.out.println(report(requests, seconds, cpuSeconds, collectorSeconds, tally));
    }

    static String report(int requests, double seconds, double cpuSeconds, double collectorSeconds, Tally tally) {
        List<String> lateness = new ArrayList<>();
        for (int ms = 0; ms <= LATENESS_LIMIT_MS; ms++) {
            if (tally.lateness.get(ms) > 0) {
                lateness.add("\"" + ms + "\":" + tally.lateness.get(ms));
            }
        }
        return String.format(java.util.Locale.ROOT,
            "{\"requests\":%d,\"enqueued_per_s\":%.0f,\"cpu_s_per_million\":%.3f,\"gc_s\":%.4f,"
            + "\"completed\":%d,\"expired\":%d,\"lateness_ms\":{%s},\"compiled\":true}",
            requests, requests / seconds, cpuSeconds / requests * 1e6, collectorSeconds,
            tally.completed.get(), tally.expired.get(), String.join(",", lateness));
    }

    private PurgatoryHarness() { }
}
