import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import kafka.consumer.Blacklist;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.TopicFilter;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ZookeeperConsumerConnector;
import kafka.message.MessageAndMetadata;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;

/**
 * The old high-level consumer of any version from 0.8.2 to 1.1, driven by words: zkcoord.embedded.old_consumer starts it.
 *
 * Arguments are key=value: `topics=clicks:2,views:1` or `whitelist=cl.*:2` or `blacklist=cl.*:2` (with numbers of
 * threads), `fetch=true|false` (false: it registers, rebalances and claims, but reads nothing and needs no broker);
 * every other key is a property of the consumer.
 *
 * Prints one line of JSON for each event: connected (with the consumer's id), started, owns (at each change),
 * rebalance (begin and end of each try), record, committed, paused, resumed, stopped, error, gave_up.
 * Reads commands, one a line: commit, pause, resume, stop (the connector's own shutdown), exit.
 */
public final class OldConsumer {
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    private static final long LOOK_EVERY_MS = 20;
    private static final Pattern TRY = Pattern.compile("(begin|end) rebalancing consumer \\S+ try #(\\d+)");
    private static final Object GATE = new Object();
    private static boolean paused = false;

    private OldConsumer() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = new LinkedHashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            given.put(argument.substring(0, at), argument.substring(at + 1));
        }
        String topics = given.remove("topics");
        String white = given.remove("whitelist");
        String black = given.remove("blacklist");
        boolean fetch = Boolean.parseBoolean(given.remove("fetch"));
        Properties properties = new Properties();
        properties.putAll(given);
        Logger.getRootLogger().addAppender(new Events());
        ZookeeperConsumerConnector connector =
            new ZookeeperConsumerConnector(new ConsumerConfig(properties), fetch);
        Object inner = inner(connector);
        say("connected", "consumer", inner.getClass().getMethod("consumerIdString").invoke(inner));
        daemon("owned", () -> watchOwned(inner));
        daemon("commands", () -> obey(connector));
        try {
            int number = 0;
            for (KafkaStream<byte[], byte[]> stream : streams(connector, topics, white, black)) {
                String thread = String.valueOf(number++);
                daemon("reader-" + thread, () -> read(stream, thread));
            }
            say("started");
        } catch (Throwable error) {
            tell(error);
        }
        Thread.currentThread().join(); // until a command, or a signal, ends it
    }

    private static List<KafkaStream<byte[], byte[]>> streams(
        ZookeeperConsumerConnector connector, String topics, String white, String black) {
        List<KafkaStream<byte[], byte[]>> streams = new ArrayList<>();
        if (topics == null) {
            String text = white != null ? white : black;
            String regex = text.substring(0, text.lastIndexOf(':'));
            TopicFilter filter = white != null ? new Whitelist(regex) : new Blacklist(regex);
            int threads = Integer.parseInt(text.substring(text.lastIndexOf(':') + 1));
            streams.addAll(connector.createMessageStreamsByFilter(filter, threads));
            return streams;
        }
        Map<String, Integer> counts = new LinkedHashMap<>();
        for (String part : topics.split(",")) {
            int at = part.lastIndexOf(':');
            counts.put(part.substring(0, at), Integer.valueOf(part.substring(at + 1)));
        }
        connector.createMessageStreams(counts).values().forEach(streams::addAll);
        return streams;
    }

    private static void read(KafkaStream<byte[], byte[]> stream, String thread) {
        try {
            ConsumerIterator<byte[], byte[]> records = stream.iterator();
            while (records.hasNext()) {
                synchronized (GATE) { // what is taken out counts as consumed: nothing is, while it is paused
                    while (paused) {
                        GATE.wait();
                    }
                    MessageAndMetadata<byte[], byte[]> record = records.next();
                    say("record", "topic", record.topic(), "partition", record.partition(), "offset", record.offset(),
                        "thread", thread);
                }
            }
        } catch (Throwable error) {
            tell(error);
        }
    }

    private static void obey(ZookeeperConsumerConnector connector) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            try {
                obey(command, connector);
            } catch (Throwable error) {
                tell(error);
            }
        }
    }

    private static void obey(String command, ZookeeperConsumerConnector connector) {
        switch (command) {
            case "commit":
                connector.commitOffsets();
                say("committed");
                return;
            case "pause":
            case "resume":
                synchronized (GATE) {
                    paused = command.equals("pause");
                    GATE.notifyAll();
                }
                say(command + "d");
                return;
            case "stop":
                connector.shutdown();
                say("stopped");
                return;
            case "exit":
                Runtime.getRuntime().halt(0);
                return;
            default:
                throw new IllegalArgumentException("there is no command " + command);
        }
    }

    /** Prints what the member holds to be its own, each time that it changes. */
    private static void watchOwned(Object inner) throws Exception {
        Method registry = null;
        for (Method method : inner.getClass().getMethods()) {
            if (method.getName().endsWith("$topicRegistry")) {
                registry = method;
            }
        }
        Map<String, TreeSet<Integer>> last = Map.of();
        for (;;) {
            Map<String, TreeSet<Integer>> now = new TreeMap<>();
            for (Object topic : items(registry.invoke(inner))) {
                TreeSet<Integer> numbers = new TreeSet<>();
                for (Object partition : items(part(topic, 2))) {
                    numbers.add((Integer) part(partition, 1));
                }
                if (!numbers.isEmpty()) {
                    now.put((String) part(topic, 1), numbers);
                }
            }
            if (!now.equals(last)) {
                say("owns", "partitions", now);
                last = now;
            }
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    /** The pairs in a kafka.utils.Pool, a Scala Iterable. */
    private static List<Object> items(Object pool) {
        List<Object> found = new ArrayList<>();
        scala.collection.Iterator<?> each = ((scala.collection.Iterable<?>) pool).iterator();
        while (each.hasNext()) {
            found.add(each.next());
        }
        return found;
    }

    private static Object part(Object pair, int number) {
        return ((scala.Product) pair).productElement(number - 1);
    }

    private static Object inner(ZookeeperConsumerConnector connector) throws Exception {
        Field field = ZookeeperConsumerConnector.class.getDeclaredField("underlying");
        field.setAccessible(true);
        return field.get(connector);
    }

    private static void tell(Throwable error) {
        boolean over = error.getClass().getSimpleName().equals("ConsumerRebalanceFailedException");
        say(over ? "gave_up" : "error", "class", error.getClass().getName(), "message", String.valueOf(error.getMessage()));
    }

    private interface Task {
        void run() throws Exception;
    }

    private static void daemon(String name, Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Throwable error) {
                tell(error);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** One event in one write: other output goes to the same file. */
    private static void say(String event, Object... fields) {
        StringBuilder line = new StringBuilder("{\"at_ms\":").append(System.currentTimeMillis());
        line.append(",\"mono_ms\":").append(System.nanoTime() / 1_000_000);
        line.append(",\"event\":").append(json(event));
        for (int i = 0; i < fields.length; i += 2) {
            line.append(',').append(json(fields[i])).append(':').append(json(fields[i + 1]));
        }
        try {
            synchronized (OUT) {
                OUT.write(line.append("}\n").toString().getBytes(StandardCharsets.UTF_8));
            }
        } catch (IOException error) {
            Runtime.getRuntime().halt(1); // nobody reads what it prints
        }
    }

    private static String json(Object value) {
        if (value instanceof Number) {
            return value.toString();
        }
        StringBuilder text = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, each) -> text.append(text.length() == 0 ? "" : ",").append(json(key)).append(':').append(json(each)));
            return "{" + text + "}";
        }
        if (value instanceof Iterable<?> items) {
            items.forEach(each -> text.append(text.length() == 0 ? "" : ",").append(json(each)));
            return "[" + text + "]";
        }
        for (char c : value.toString().toCharArray()) {
            boolean plain = c >= ' ' && c != '"' && c != '\\';
            text.append(plain ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        return "\"" + text + "\"";
    }

    /** Tries to rebalance, and errors, are told in the log alone. */
    private static final class Events extends AppenderSkeleton {
        @Override
        protected void append(LoggingEvent logged) {
            Matcher attempt = TRY.matcher(String.valueOf(logged.getRenderedMessage()));
            if (attempt.find()) {
                say("rebalance", "phase", attempt.group(1), "try", Integer.valueOf(attempt.group(2)));
            } else if (logged.getLevel().isGreaterOrEqual(Level.ERROR) && logged.getThrowableInformation() != null) {
                tell(logged.getThrowableInformation().getThrowable());
            }
        }

        @Override
        public void close() {}

        @Override
        public boolean requiresLayout() {
            return false;
        }
    }
}
