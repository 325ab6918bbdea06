package dwell.interop;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** One Redisson client, and the delayed queues that it keeps open: each has a transfer task in Java. */
final class Client {
    private final RedissonClient redisson;
    private final Map<String, RDelayedQueue<Object>> open = new ConcurrentHashMap<>();

    Client(String address, String prefix) throws Exception {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(4).setCodec(StringCodec.INSTANCE);
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(address).setConnectionPoolSize(8).setConnectionMinimumIdleSize(2);
        server.setSubscriptionConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1);
        if (!prefix.isEmpty()) {
            setPrefix(server, prefix);
        }
        redisson = Redisson.create(config);
    }

    /** A name mapper. The interface has moved between packages, so it is found by its method. */
    private static void setPrefix(SingleServerConfig server, String prefix) throws Exception {
        for (Method method : SingleServerConfig.class.getMethods()) {
            if (method.getName().equals("setNameMapper")) {
                Class<?> mapper = method.getParameterTypes()[0];
                Object proxy = Proxy.newProxyInstance(mapper.getClassLoader(), new Class<?>[] {mapper},
                        (self, called, arguments) -> called.getName().equals("map")
                                ? prefix + arguments[0]
                                : ((String) arguments[0]).substring(prefix.length()));
                method.invoke(server, proxy);
                return;
            }
        }
        throw new IllegalStateException("this Redisson has no name mapper");
    }

    /** The destination: no transfer task is started for it. */
    RBlockingQueue<Object> blocking(String queue, Codec codec) {
        return redisson.getBlockingQueue(queue, codec);
    }

    /** The delayed queue: created once, with its transfer task. */
    RDelayedQueue<Object> delayed(String queue, Codec codec) {
        return open.computeIfAbsent(queue + " " + codec.getClass().getName(),
                key -> redisson.getDelayedQueue(blocking(queue, codec)));
    }

    void destroy(String queue) {
        open.entrySet().removeIf(entry -> {
            boolean ours = entry.getKey().startsWith(queue + " ");
            if (ours) {
                entry.getValue().destroy();
            }
            return ours;
        });
    }

    void shutdown() {
        redisson.shutdown();
    }
}
