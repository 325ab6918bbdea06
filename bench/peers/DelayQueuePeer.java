// The JDK's side of the scenario `delay-queue`: the same work as ours, on java.util.concurrent.DelayQueue.
//
// Compiled and run by the scenario; prints one line of numbers. Every work runs at least once before it is measured, so
// that the compiler has seen it. usage: java DelayQueuePeer WORK ARGUMENTS

import java.io.IOException;
import java.lang.ref.Reference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.TimeUnit;

public final class DelayQueuePeer {
    /** A typical element: an instant in nanoseconds, and a payload. */
    static final class Item implements Delayed {
        final long due;
        final long payload;

        Item(long due, long payload) {
            this.due = due;
            this.payload = payload;
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(due - System.nanoTime(), TimeUnit.NANOSECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            long difference = due - ((Item) other).due;
            return difference < 0 ? -1 : difference > 0 ? 1 : 0;
        }
    }

    /** xorshift64, as on our side. */
    static final class Random {
        private long state;

        Random(long seed) {
            state = seed;
        }

        long below(long limit) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            return Long.remainderUnsigned(state, limit);
        }
    }

    static final long SEED = 88172645463325252L;

    public static void main(String[] arguments) throws Exception {
        long[] numbers = Arrays.stream(arguments).skip(1).mapToLong(Long::parseLong).toArray();
        switch (arguments[0]) {
            case "fill" -> {
                warmUp();
                System.out.println(join(fill(numbers[0], numbers[1], numbers[2], numbers[3])));
            }
            case "contention" -> {
                contention(numbers[0], numbers[1], Math.max(numbers[2] / 4, 1));
                System.out.println(join(contention(numbers[0], numbers[1], numbers[2])));
            }
            case "bytes" -> System.out.println(bytes(numbers[0]));
            case "churn" -> {
                churn(1_000);
                System.out.println(join(churn(numbers[0])));
            }
            case "lateness" -> {
                lateness(numbers[0], numbers[0] / 2);
                System.out.println(join(lateness(numbers[0], numbers[1])));
            }
            case "waiting" -> System.out.println(join(waiting(numbers[0], numbers[1])));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    static String join(double[] numbers) {
        StringBuilder line = new StringBuilder();
        for (double number : numbers) {
            line.append(number).append(' ');
        }
        return line.toString().trim();
    }

    static void warmUp() throws InterruptedException {
        long end = System.nanoTime() + 3_000_000_000L;
        while (System.nanoTime() < end) {
            fill(10_000, 1, 100_000_000, 5_000_000);
            fill(200_000, 1, 2_000_000_000, 5_000_000);
        }
    }

    /** Offers n items due from `lead` to `lead + span` ns after the start, waits until all are due, polls them: ns of both. */
    static double[] fill(long n, long rounds, long lead, long span) throws InterruptedException {
        DelayQueue<Item> queue = new DelayQueue<>();
        long offers = 0;
        long polls = 0;
        // The first round is a warm-up, as on our side.
        for (long round = 0; round <= rounds; round++) {
            Random random = new Random(SEED);
            long start = System.nanoTime();
            for (long i = 0; i < n; i++) {
                queue.offer(new Item(start + lead + random.below(span), i));
            }
            long offered = System.nanoTime();
            Thread.sleep(Math.max(0, (start + lead + span - offered) / 1_000_000 + 2));
            long begun = System.nanoTime();
            long count = 0;
            while (queue.poll() != null) {
                count++;
            }
            if (round > 0) {
                polls += System.nanoTime() - begun;
                offers += offered - start;
            }
            if (count != n) {
                throw new IllegalStateException(count + " of " + n);
            }
        }
        return new double[] {offers, polls};
    }

    /** Producers put n items in all, delayed below a millisecond, and consumers take them: ns in all. */
    static double[] contention(long producers, long consumers, long n) throws InterruptedException {
        DelayQueue<Item> queue = new DelayQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (long p = 0; p < producers; p++) {
            long seed = SEED + p;
            threads.add(new Thread(() -> {
                Random random = new Random(seed);
                for (long i = 0; i < n / producers; i++) {
                    queue.put(new Item(System.nanoTime() + random.below(1_000_000), i));
                }
            }));
        }
        for (long c = 0; c < consumers; c++) {
            threads.add(new Thread(() -> {
                try {
                    for (long i = 0; i < n / producers * producers / consumers; i++) {
                        queue.take();
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }));
        }
        long start = System.nanoTime();
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return new double[] {System.nanoTime() - start};
    }

    /** The growth of the heap when n items are offered: bytes per item over the payload of 8, without garbage. */
    static double bytes(long n) {
        Random random = new Random(SEED);
        long before = usedBytes();
        DelayQueue<Item> queue = new DelayQueue<>();
        for (long i = 0; i < n; i++) {
            queue.offer(new Item(3_600_000_000_000L + random.below(500_000_000), i));
        }
        double grown = usedBytes() - before;
        Reference.reachabilityFence(queue);
        return grown / n - Long.BYTES;
    }

    static long usedBytes() {
        System.gc();
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    /** Offers n items, then removes every other one: ns of the removals. */
    static double[] churn(long n) {
        DelayQueue<Item> queue = new DelayQueue<>();
        Random random = new Random(SEED);
        List<Item> items = new ArrayList<>();
        long start = System.nanoTime();
        for (long i = 0; i < n; i++) {
            Item item = new Item(start + 3_600_000_000_000L + random.below(1_000_000_000), i);
            queue.offer(item);
            items.add(item);
        }
        long begun = System.nanoTime();
        for (int i = 0; i < n; i += 2) {
            if (!queue.remove(items.get(i))) {
                throw new IllegalStateException("it was there");
            }
        }
        return new double[] {System.nanoTime() - begun};
    }

    /** n items at `rate` a second, delayed 5 to 50 ms: the lateness in ns at p50, p99 and p99.9. */
    static double[] lateness(long rate, long n) throws InterruptedException {
        DelayQueue<Item> queue = new DelayQueue<>();
        long[] late = new long[(int) n];
        Thread consumer = new Thread(() -> {
            try {
                for (int i = 0; i < n; i++) {
                    long due = queue.take().due;
                    late[i] = System.nanoTime() - due;
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        consumer.start();
        Random random = new Random(SEED);
        long start = System.nanoTime();
        for (long i = 0; i < n; ) {
            // A batch per millisecond, since no sleep is as short as 100 us.
            for (long batch = 0; batch < rate / 1_000 && i < n; batch++, i++) {
                queue.put(new Item(System.nanoTime() + 5_000_000 + random.below(45_000_000), i));
            }
            Thread.sleep(Math.max(0, (start + i * 1_000_000_000L / rate - System.nanoTime()) / 1_000_000));
        }
        consumer.join();
        Arrays.sort(late);
        return new double[] {late[(int) (n / 2)], late[(int) (n * 99 / 100)], late[(int) (n * 999 / 1_000)]};
    }

    /** Threads block in take for some milliseconds, with the head an hour away: processor ns per second meanwhile. */
    static double[] waiting(long threads, long milliseconds) throws InterruptedException, IOException {
        DelayQueue<Item> queue = new DelayQueue<>();
        queue.put(new Item(System.nanoTime() + 3_600_000_000_000L, 0));
        for (long t = 0; t < threads; t++) {
            Thread thread = new Thread(null, () -> {
                try {
                    queue.take();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }, "consumer", 128 * 1024);
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(1_000);
        // A first reading as a warm-up, so that this is not compiled during the measurement.
        for (int i = 0; i < 20; i++) {
            processorNanoseconds();
        }
        Thread.sleep(1_000);
        long before = processorNanoseconds();
        Thread.sleep(milliseconds);
        return new double[] {(processorNanoseconds() - before) * 1_000.0 / milliseconds};
    }

    /**
     * The processor time of all threads but the main one, which is busy with this. The JDK's own count has steps of
     * 10 ms.
     */
    static long processorNanoseconds() throws IOException {
        long sum = 0;
        try (var tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            Path main = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName();
            for (Path task : tasks) {
                if (task.getFileName().equals(main)) {
                    continue;
                }
                sum += Long.parseLong(Files.readString(task.resolve("schedstat")).split(" ")[0]);
            }
        }
        return sum;
    }
}
