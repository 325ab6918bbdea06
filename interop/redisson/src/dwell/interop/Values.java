package dwell.interop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.redisson.client.codec.ByteArrayCodec;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.DoubleCodec;
import org.redisson.client.codec.IntegerCodec;
import org.redisson.client.codec.LongCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.handler.State;
import org.redisson.codec.JsonJacksonCodec;
import org.redisson.codec.TypedJsonJacksonCodec;

/** Values in the form of the line protocol, and the codecs that encode them. */
final class Values {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Codec TYPED = new TypedJsonJacksonCodec(Order.class);
    private static final Codec INTEGER = new IntegerCodec();
    private static final Codec JACKSON = new JsonJacksonCodec();

    private Values() {
    }

    static Codec codec(String name) {
        switch (name) {
            case "string":
                return StringCodec.INSTANCE;
            case "bytes":
                return ByteArrayCodec.INSTANCE;
            case "long":
                return LongCodec.INSTANCE;
            case "integer":
                return INTEGER;
            case "double":
                return DoubleCodec.INSTANCE;
            case "json":
                return JACKSON;
            case "typed-json":
                return TYPED;
            default:
                throw new IllegalArgumentException("no such codec: " + name);
        }
    }

    /** Reads a value: bytes are hexadecimal, numbers have the codec's type. */
    static Object value(JsonNode request, JsonNode node) {
        switch (request.path("codec").asText("string")) {
            case "string":
                return node.asText();
            case "bytes":
                return ByteBufUtil.decodeHexDump(node.asText());
            case "long":
                return node.asLong();
            case "integer":
                return node.asInt();
            case "double":
                return Double.parseDouble(node.asText());
            default:
                return java(node);
        }
    }

    /** {"long":1}, {"map":{..}} and {"list":[..]} are values of these types; any other object is an Order. */
    private static Object java(JsonNode node) {
        if (node.isTextual()) {
            return node.asText();
        }
        if (node.isBoolean()) {
            return node.asBoolean();
        }
        if (node.isInt()) {
            return node.asInt();
        }
        if (node.isDouble()) {
            return node.asDouble();
        }
        if (node.isObject() && node.size() == 1 && node.has("long")) {
            return node.get("long").asLong();
        }
        if (node.isObject() && node.size() == 1 && node.has("map")) {
            Map<String, Object> map = new LinkedHashMap<>();
            node.get("map").fields().forEachRemaining(field -> map.put(field.getKey(), java(field.getValue())));
            return map;
        }
        if (node.isObject() && node.size() == 1 && node.has("list")) {
            List<Object> list = new ArrayList<>();
            node.get("list").forEach(each -> list.add(java(each)));
            return list;
        }
        if (node.isNull()) {
            return null;
        }
        try {
            return JSON.treeToValue(node, Order.class);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** A value in the form of an answer: bytes in hexadecimal, all else as plain JSON. */
    static Object shown(Object value) {
        if (value instanceof byte[]) {
            return ByteBufUtil.hexDump((byte[]) value);
        }
        if (value instanceof List) {
            List<Object> shown = new ArrayList<>();
            ((List<?>) value).forEach(each -> shown.add(shown(each)));
            return shown;
        }
        return value;
    }

    static String encode(Codec codec, Object value) throws IOException {
        ByteBuf buffer = codec.getValueEncoder().encode(value);
        try {
            return ByteBufUtil.hexDump(buffer);
        } finally {
            buffer.release();
        }
    }

    static Object decode(Codec codec, String hex) throws IOException {
        ByteBuf buffer = Unpooled.wrappedBuffer(ByteBufUtil.decodeHexDump(hex));
        return shown(codec.getValueDecoder().decode(buffer, new State()));
    }
}
