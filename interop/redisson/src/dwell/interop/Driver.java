package dwell.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.client.codec.Codec;

/**
 * Redisson under external control: one request per line on standard input, one answer per line on standard output.
 *
 * <pre>
 * request  {"id":1,"do":"offer","client":"a","queue":"orders","codec":"string","values":["x"],"delay_ms":1000}
 * answer   {"id":1,"ok":1}     or     {"id":1,"error":"java.lang.IllegalArgumentException: ..."}
 * </pre>
 *
 * Requests run concurrently, so that one may wait in a take while others continue. The program ends with its
 * standard input.
 */
public final class Driver {
    private final ObjectMapper json = new ObjectMapper();
    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Client> clients = new ConcurrentHashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });

    public static void main(String[] arguments) throws Exception {
        new Driver().run();
        Runtime.getRuntime().halt(0);
    }

    private void run() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = json.readTree(line);
            threads.execute(() -> answer(request));
        }
    }

    private void answer(JsonNode request) {
        ObjectNode answer = json.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            answer.set("ok", json.valueToTree(perform(request)));
        } catch (Throwable error) {
            answer.put("error", error.toString());
        }
        synchronized (out) {
            out.println(answer);
            out.flush();
        }
    }

    private Object perform(JsonNode request) throws Exception {
        String what = request.get("do").asText();
        Codec codec = Values.codec(request.path("codec").asText("string"));
        switch (what) {
            case "version":
                return Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
            case "encode":
                return Values.encode(codec, Values.value(request, request.get("value")));
            case "decode":
                return Values.decode(codec, request.get("hex").asText());
            default:
                break;
        }
        String name = request.get("client").asText();
        if (what.equals("connect")) {
            clients.put(name, new Client(request.get("address").asText(), request.path("prefix").asText("")));
            return null;
        }
        if (what.equals("shutdown")) {
            clients.remove(name).shutdown();
            return null;
        }
        Client client = clients.get(name);
        String queue = request.get("queue").asText();
        switch (what) {
            // On the destination alone: no transfer task is started.
            case "take":
                return take(client.blocking(queue, codec), request);
            case "collect":
                return collect(client.blocking(queue, codec), request);
            case "ready_size":
                return client.blocking(queue, codec).size();
            case "ready_add":
                return client.blocking(queue, codec).add(Values.value(request, request.get("value")));
            case "destroy":
                client.destroy(queue);
                return null;
            default:
                return delayed(what, client.delayed(queue, codec), request);
        }
    }

    private static Object delayed(String what, RDelayedQueue<Object> queue, JsonNode request) {
        Object value = request.has("value") ? Values.value(request, request.get("value")) : null;
        switch (what) {
            case "open":
                return null;
            case "offer": {
                long delay = request.get("delay_ms").asLong();
                int offered = 0;
                for (JsonNode each : request.get("values")) {
                    queue.offer(Values.value(request, each), delay, TimeUnit.MILLISECONDS);
                    offered++;
                }
                return offered;
            }
            case "debounce": {
                // As applications do: remove the pending element, then offer it again.
                boolean removed = queue.remove(value);
                queue.offer(value, request.get("delay_ms").asLong(), TimeUnit.MILLISECONDS);
                return removed;
            }
            case "remove":
                return queue.remove(value);
            case "contains":
                return queue.contains(value);
            case "size":
                return queue.size();
            case "read_all":
                return Values.shown(queue.readAll());
            case "peek":
                return Values.shown(queue.peek());
            case "poll":
                return Values.shown(queue.poll());
            case "clear":
                queue.clear();
                return null;
            default:
                throw new IllegalArgumentException("no such request: " + what);
        }
    }

    private static Object take(RBlockingQueue<Object> queue, JsonNode request) throws InterruptedException {
        Object value = queue.poll(request.get("wait_ms").asLong(), TimeUnit.MILLISECONDS);
        return Values.shown(value);
    }

    /** Takes until `count` elements have arrived, or none arrived for `idle_ms`. */
    private static Object collect(RBlockingQueue<Object> queue, JsonNode request) throws InterruptedException {
        int count = request.get("count").asInt();
        long idle = request.get("idle_ms").asLong();
        List<Object> taken = new ArrayList<>();
        while (taken.size() < count) {
            Object value = queue.poll();
            if (value == null) {
                value = queue.poll(idle, TimeUnit.MILLISECONDS);
            }
            if (value == null) {
                break;
            }
            taken.add(Values.shown(value));
        }
        return taken;
    }
}
