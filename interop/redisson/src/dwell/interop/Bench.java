package dwell.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.config.Config;

/**
 * Redisson's side of {@code dwell-bench redis}: one task per line on standard input, its duration in nanoseconds per line
 * on standard output. Each task has its own client with Redisson's defaults, connected before the measurement.
 *
 * <pre>
 * offer ADDRESS QUEUE COUNT TOGETHER   COUNT offers of 128 bytes, due within a day, TOGETHER of them concurrently
 * take ADDRESS QUEUE COUNT             from the creation of the delayed queue, which moves due elements, until COUNT
 *                                      elements have arrived: one by a blocking take, then up to 100 by a poll
 * </pre>
 *
 * It ends when its standard input does.
 */
public final class Bench {
    private static final long DAY_MS = 24L * 60 * 60 * 1_000;
    private static final int BODY_BYTES = 128;
    private static final int POLL = 100;

    private Bench() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Config config = new Config();
            config.useSingleServer().setAddress(words[1]);
            RedissonClient redisson = Redisson.create(config);
            int count = Integer.parseInt(words[3]);
            long nanos = words[0].equals("offer")
                    ? offer(redisson, words[2], count, Integer.parseInt(words[4]))
                    : take(redisson, words[2], count);
            redisson.shutdown();
            System.out.println(nanos);
        }
        Runtime.getRuntime().halt(0);
    }

    private static long offer(RedissonClient redisson, String name, int count, int together) {
        RDelayedQueue<byte[]> queue = redisson.getDelayedQueue(redisson.getBlockingQueue(name, ByteArrayCodec.INSTANCE));
        SplittableRandom random = new SplittableRandom(1);
        byte[][] bodies = new byte[count][BODY_BYTES];
        long[] delays = new long[count];
        for (int i = 0; i < count; i++) {
            random.nextBytes(bodies[i]);
            // None is due before the end of the task.
            delays[i] = 600_000 + random.nextLong(DAY_MS);
        }
        List<CompletableFuture<Void>> underWay = new ArrayList<>(together);
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            if (together == 1) {
                queue.offer(bodies[i], delays[i], TimeUnit.MILLISECONDS);
                continue;
            }
            underWay.add(queue.offerAsync(bodies[i], delays[i], TimeUnit.MILLISECONDS).toCompletableFuture());
            if (underWay.size() == together || i + 1 == count) {
                CompletableFuture.allOf(underWay.toArray(new CompletableFuture[0])).join();
                underWay.clear();
            }
        }
        long nanos = System.nanoTime() - start;
        queue.destroy();
        return nanos;
    }

    private static long take(RedissonClient redisson, String name, int count) throws InterruptedException {
        RBlockingQueue<byte[]> ready = redisson.getBlockingQueue(name, ByteArrayCodec.INSTANCE);
        long bytes = 0;
        long start = System.nanoTime();
        RDelayedQueue<byte[]> queue = redisson.getDelayedQueue(ready);
        for (int taken = 0; taken < count;) {
            bytes += ready.take().length;
            taken++;
            if (taken < count) {
                List<byte[]> more = ready.poll(Math.min(POLL, count - taken));
                for (byte[] each : more) {
                    bytes += each.length;
                }
                taken += more.size();
            }
        }
        long nanos = System.nanoTime() - start;
        queue.destroy();
        if (bytes != (long) count * BODY_BYTES) {
            throw new IllegalStateException(bytes + " bytes in " + count + " elements");
        }
        return nanos;
    }
}
