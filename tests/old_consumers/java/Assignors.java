import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import kafka.common.TopicAndPartition;
import kafka.consumer.AssignmentContext;
import kafka.consumer.RangeAssignor;
import kafka.consumer.RoundRobinAssignor;
import kafka.utils.ZKStringSerializer$;
import org.I0Itec.zkclient.IZkConnection;
import org.I0Itec.zkclient.ZkClient;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/**
 * What the assignors of a Kafka version, 0.8.2 to 1.1, compute: its own AssignmentContext reads a tree that is kept here.
 *
 * Reads lines of words with tabs between: `case STRATEGY GROUP EXCLUDE_INTERNAL`, then `member ID TEXT` and
 * `topic NAME TEXT` (texts in Base64: what the nodes hold), then `end`. Answers each case with a line of JSON: the
 * members' own shares united (`owners`), or what one of them throws, or that two want the same (`error`).
 */
public final class Assignors {
    private static Map<String, byte[]> data;
    private static Map<String, Set<String>> children;

    private Assignors() {}

    public static void main(String[] arguments) throws Exception {
        Logger.getRootLogger().setLevel(Level.OFF);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ZkClient client = new ZkClient(connection(), 10_000, ZKStringSerializer$.MODULE$);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String[] asked = null;
        List<String> members = new ArrayList<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "case":
                    asked = words;
                    members.clear();
                    data = new HashMap<>();
                    children = new HashMap<>();
                    create("/brokers/topics", new byte[0]);
                    create("/consumers/" + asked[2] + "/ids", new byte[0]);
                    break;
                case "member":
                    members.add(words[1]);
                    create("/consumers/" + asked[2] + "/ids/" + words[1], Base64.getDecoder().decode(words[2]));
                    break;
                case "topic":
                    create("/brokers/topics/" + words[1], Base64.getDecoder().decode(words[2]));
                    break;
                default:
                    out.println(answer(asked, members, client));
            }
        }
        System.exit(0);
    }

    private static String answer(String[] asked, List<String> members, ZkClient client) throws Exception {
        Map<String, TreeMap<Integer, String>> owners = new TreeMap<>();
        try {
            for (String member : members) {
                for (Map.Entry<TopicAndPartition, String> each : share(asked, member, client).entrySet()) {
                    TopicAndPartition key = each.getKey();
                    String before = owners.computeIfAbsent(key.topic(), topic -> new TreeMap<>())
                        .put(key.partition(), each.getValue());
                    if (before != null) {
                        return error(key.topic() + "-" + key.partition() + " is wanted by " + before + " and by " + each.getValue());
                    }
                }
            }
        } catch (InvocationTargetException thrown) {
            Throwable cause = thrown.getCause();
            return error(cause.getClass().getName() + ": " + String.valueOf(cause.getMessage()).split("\n")[0]);
        }
        StringBuilder text = new StringBuilder();
        owners.forEach((topic, shares) -> {
            StringBuilder rows = new StringBuilder();
            shares.forEach((number, thread) ->
                rows.append(rows.length() == 0 ? "" : ",").append('"').append(number).append("\":").append(quoted(thread)));
            text.append(text.length() == 0 ? "" : ",").append(quoted(topic)).append(":{").append(rows).append('}');
        });
        return "{\"owners\":{" + text + "}}";
    }

    /** One member's own share, as it computes it itself. */
    private static Map<TopicAndPartition, String> share(String[] asked, String member, ZkClient client) throws Exception {
        Constructor<?> made = AssignmentContext.class.getConstructors()[0];
        Class<?> reader = made.getParameterTypes()[3];
        Object tree = client; // 0.8.2 reads through the client itself, later ones through an object around it
        if (reader != ZkClient.class) {
            tree = reader.getMethod("apply", ZkClient.class, boolean.class).invoke(null, client, false);
        }
        Object context = made.newInstance(asked[2], member, Boolean.valueOf(asked[3]), tree);
        Object assignor = asked[1].equals("roundrobin") ? new RoundRobinAssignor() : new RangeAssignor();
        Method assign = assignor.getClass().getMethod("assign", AssignmentContext.class);
        Object found = assign.invoke(assignor, context);
        if (found instanceof kafka.utils.Pool) { // from 0.9 on everybody's shares, of which a member uses its own
            Method get = found.getClass().getMethod("get", Object.class);
            found = get.invoke(found, member);
        }
        Map<TopicAndPartition, String> own = new HashMap<>();
        if (found != null) {
            scala.collection.Iterator<?> each = ((scala.collection.Iterable<?>) found).iterator();
            while (each.hasNext()) {
                scala.Product pair = (scala.Product) each.next();
                own.put((TopicAndPartition) pair.productElement(0), pair.productElement(1).toString());
            }
        }
        return own;
    }

    private static void create(String path, byte[] text) {
        int cut = path.lastIndexOf('/');
        String parent = path.substring(0, cut);
        if (!parent.isEmpty() && !data.containsKey(parent)) {
            create(parent, new byte[0]);
        }
        data.put(path, text);
        children.computeIfAbsent(parent, name -> new HashSet<>(8)).add(path.substring(cut + 1)); // as the server has them
    }

    private static IZkConnection connection() {
        Class<?>[] types = {IZkConnection.class};
        return (IZkConnection) Proxy.newProxyInstance(Assignors.class.getClassLoader(), types, (self, method, given) -> {
            switch (method.getName()) {
                case "connect":
                    Watcher watcher = (Watcher) given[0];
                    WatchedEvent event =
                        new WatchedEvent(Watcher.Event.EventType.None, Watcher.Event.KeeperState.SyncConnected, null);
                    new Thread(() -> watcher.process(event)).start();
                    return null;
                case "close":
                    return null;
                case "getServers":
                    return "nowhere";
                case "getZookeeperState":
                    return ZooKeeper.States.CONNECTED;
                case "exists":
                    return data.containsKey(given[0]);
                case "getChildren":
                    return new ArrayList<>(children.getOrDefault(known(given[0]), Set.of()));
                case "readData":
                    return data.get(known(given[0]));
                default:
                    throw new UnsupportedOperationException(method.getName());
            }
        });
    }

    private static Object known(Object path) throws KeeperException {
        if (!data.containsKey(path)) {
            throw KeeperException.create(KeeperException.Code.NONODE, String.valueOf(path));
        }
        return path;
    }

    private static String error(String text) {
        return "{\"error\":" + quoted(text) + "}";
    }

    private static String quoted(String value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            boolean plain = c >= ' ' && c != '"' && c != '\\';
            text.append(plain ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        return text.append('"').toString();
    }
}
