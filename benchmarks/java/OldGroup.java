import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.consumer.ZookeeperConsumerConnector;
import org.I0Itec.zkclient.ZkClient;
import org.I0Itec.zkclient.ZkConnection;

/**
 * Many old high-level consumers of one group in one process, for benchmarks/legacy.py. They fetch nothing, since only
 * their work in ZooKeeper is measured.
 *
 * Arguments: key=value. They subscribe to `topic`; every other key is a property of the consumers.
 * Commands, one a line: `join N` (start N more, in parallel), `die` (the oldest loses its session, and does nothing
 * more), `exit`. Prints a line for each: joined, died; `failed` and the error when a member could not start.
 */
public final class OldGroup {
    private OldGroup() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            properties.setProperty(argument.substring(0, at), argument.substring(at + 1));
        }
        String topic = (String) properties.remove("topic");
        Deque<ZookeeperConsumerConnector> members = new ArrayDeque<>();
        int made = 0;
        System.out.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "join":
                    int count = Integer.parseInt(words[1]);
                    join(members, properties, topic, made, count);
                    made += count;
                    System.out.println("joined");
                    break;
                case "die":
                    die(members.removeFirst());
                    System.out.println("died");
                    break;
                default:
                    Runtime.getRuntime().halt(0);
            }
        }
    }

    private static void join(
        Deque<ZookeeperConsumerConnector> members, Properties properties, String topic, int made, int count)
        throws Exception {
        List<Thread> starting = new ArrayList<>();
        for (int number = made; number < made + count; number++) {
            Properties own = new Properties();
            own.putAll(properties);
            own.setProperty("consumer.id", String.format("m%04d", number));
            ZookeeperConsumerConnector member = new ZookeeperConsumerConnector(new ConsumerConfig(own), false);
            members.addLast(member);
            Map<String, Integer> streams = new HashMap<>();
            streams.put(topic, 1);
            starting.add(new Thread(() -> start(member, streams)));
        }
        starting.forEach(Thread::start);
        for (Thread thread : starting) {
            thread.join();
        }
    }

    /**
     * Close the member's session behind its back: it is gone as after the death of a process, but at once. First the
     * thread ends that would take in what ZooKeeper tells: without a session it would retry for ever, and use a core.
     */
    private static void die(ZookeeperConsumerConnector member) throws Exception {
        Object found = part(part(member, "ZookeeperConsumerConnector"), "ZkClient", "ZkUtils");
        ZkClient client = found instanceof ZkClient ? (ZkClient) found : (ZkClient) part(found, "ZkClient");
        Thread events = (Thread) part(client, "ZkEventThread");
        events.interrupt();
        events.join();
        ((ZkConnection) part(client, "IZkConnection")).getZookeeper().close();
    }

    /** The first field whose type has one of these names. Scala's names of fields differ between Kafka's versions. */
    private static Object part(Object whole, String... types) throws Exception {
        for (Field field : whole.getClass().getDeclaredFields()) {
            if (Arrays.asList(types).contains(field.getType().getSimpleName())) {
                field.setAccessible(true);
                return field.get(whole);
            }
        }
        throw new IllegalStateException(whole.getClass() + " has no " + String.join(" or ", types));
    }

    private static void start(ZookeeperConsumerConnector member, Map<String, Integer> streams) {
        try {
            member.createMessageStreams(streams);
        } catch (RuntimeException error) { // it stays registered, and takes part in the next rebalance
            System.out.println("failed " + error);
        }
    }
}
