package dwell.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.Date;
import java.util.StringJoiner;
import java.util.TimeZone;
import java.util.function.UnaryOperator;

import org.quartz.CronExpression;

/**
 * Prints the instants of cron expressions, as Quartz and Spring compute them.
 *
 * <p>Each line of standard input is a dialect ({@code quartz} or {@code spring}), the instant to begin after, a zone, and an
 * expression. Each line of standard output has the next instants of one of them, in seconds since 1970; fewer where
 * there are no more.
 */
public final class Instants {
    private static final int COUNT = 50;

    private Instants() {}

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 4);
            UnaryOperator<Instant> next = next(words[0], words[3], ZoneId.of(words[2]));
            Instant at = Instant.parse(words[1]);
            var found = new StringJoiner(" ");
            for (int n = 0; n < COUNT; n++) {
                at = next.apply(at);
                if (at == null) {
                    break;
                }
                found.add(Long.toString(at.getEpochSecond()));
            }
            System.out.println(found);
        }
    }

    private static UnaryOperator<Instant> next(String dialect, String expression, ZoneId zone) throws Exception {
        switch (dialect) {
            case "quartz":
                var quartz = new CronExpression(expression);
                quartz.setTimeZone(TimeZone.getTimeZone(zone));
                return after -> {
                    Date next = quartz.getNextValidTimeAfter(Date.from(after));
                    return next == null ? null : next.toInstant();
                };
            case "spring":
                var spring = org.springframework.scheduling.support.CronExpression.parse(expression);
                return after -> {
                    ZonedDateTime next = spring.next(after.atZone(zone));
                    return next == null ? null : next.toInstant();
                };
            default:
                throw new IllegalArgumentException(dialect);
        }
    }
}
