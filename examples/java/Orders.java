import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import javax.sql.DataSource;
import org.mariadb.jdbc.MariaDbDataSource;

/**
 * An order service that keeps the contract of msghandler over HTTP and JSON: MariaDB or MySQL, and what Java 17 brings.
 *
 * <p>POST /orders takes an order such as {"id": "1001", "amount": 12}. The order's message is published if, and only
 * if, the order's transaction commits, whichever process dies when. The coordinator calls POST /confirm and
 * POST /deleteBusiness. docs/howto/java.md says how to run it, and
 * docs/reference/languages-contract.md what each step is for.
 */
final class Orders {
    private static final int LONGEST = 1 << 20;

    private record Answer(int status, Object body) {
        static Answer error(int status, String text) {
            return new Answer(status, Map.of("error", String.valueOf(text)));
        }
    }

    /** A request that is not as the protocol has it. */
    private static final class BadRequest extends IOException {
        private final int status;

        BadRequest(int status, String message) {
            super(message);
            this.status = status;
        }

        BadRequest(String message) {
            this(400, message);
        }
    }

    private interface Route {
        Answer answer(JsonNode request) throws IOException, SQLException, InterruptedException;
    }

    /** Runs a business and sends its message, as Producer.send does. */
    interface Sender {
        String send(Producer.Message message, Producer.Business business)
                throws SQLException, IOException, InterruptedException, Producer.RolledBackException;
    }

    /** Makes a sender of the service's parts. */
    interface SenderOf {
        Sender of(DataSource database, Markers markers, Producer producer);
    }

    private final ObjectMapper json = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    private final String name; // of the producer, and of the queue that the orders go to
    private final Sender sender;
    private final Producer producer;
    private final Markers markers;
    private final Path tokens; // a file that holds those of the coordinators, one a line

    private Orders(String name, Sender sender, Producer producer, Markers markers, Path tokens) {
        this.name = name;
        this.sender = sender;
        this.producer = producer;
        this.markers = markers;
        this.tokens = tokens;
    }

    private Answer order(JsonNode order) throws IOException, SQLException, InterruptedException {
        var id = text(order.path("id"));
        if (!order.path("amount").isInt()) {
            throw new BadRequest("an order has an amount");
        }
        int amount = order.path("amount").intValue();
        var body = json.writeValueAsBytes(new TreeMap<>(Map.of("id", id, "amount", amount))); // the same each time
        try {
            var stands = sender.send(new Producer.Message(id, name, "application/json", body), tx -> {
                try (var insert = tx.prepareStatement("INSERT INTO orders (id, amount) VALUES (?, ?)")) {
                    insert.setString(1, id);
                    insert.setInt(2, amount);
                    insert.executeUpdate();
                }
            });
            return new Answer(Producer.SENT.contains(stands) ? 200 : 409, Map.of("stands", stands));
        } catch (Producer.RolledBackException e) {
            return new Answer(422, Map.of("stands", "VERDICT_ROLLED_BACK", "error", String.valueOf(e.getMessage())));
        }
    }

    private Answer confirm(JsonNode question) throws IOException {
        var ids = ids(question);
        var last = question.path("final");
        if (!last.isBoolean() && !last.isMissingNode()) {
            throw new BadRequest("final is true or false");
        }
        var verdicts = producer.confirm(ids, last.asBoolean());
        return new Answer(200, Map.of("confirmations",
                ids.stream().map(id -> Map.of("id", id, "verdict", verdicts.get(id))).toList()));
    }

    private Answer deleteBusiness(JsonNode request) throws IOException, SQLException {
        markers.clean(ids(request));
        return new Answer(200, Map.of());
    }

    private List<String> ids(JsonNode request) throws BadRequest {
        if (!text(request.path("producer")).equals(name)) {
            throw new BadRequest(409, "this is the producer " + name);
        }
        if (!request.path("ids").isArray()) {
            throw new BadRequest("ids is a list");
        }
        var ids = new ArrayList<String>();
        for (var id : request.path("ids")) {
            ids.add(text(id));
        }
        return ids;
    }

    private static String text(JsonNode value) throws BadRequest {
        if (!value.isTextual() || !StandardCharsets.UTF_8.newEncoder().canEncode(value.textValue())) {
            throw new BadRequest("a name or an id is a text");
        }
        return value.textValue();
    }

    /** Whether the call carries one of the tokens. The file is read each time, so that a token can be replaced. */
    private boolean knows(HttpExchange exchange) throws IOException {
        if (tokens == null) {
            return true;
        }
        var shown = exchange.getRequestHeaders().getFirst("Authorization");
        boolean fits = false; // all tokens are compared, however soon one fits
        for (var token : Coordinator.tokensOf(tokens)) {
            fits |= shown != null && MessageDigest.isEqual(("Bearer " + token).getBytes(), shown.getBytes());
        }
        return fits;
    }

    private void serve(HttpServer server, String path, boolean callback, Route route) {
        server.createContext(path, exchange -> {
            try (exchange) {
                var answer = answer(exchange, callback, route);
                var body = json.writeValueAsBytes(answer.body());
                exchange.getResponseHeaders().set("Content-Type", "application/json");
                exchange.sendResponseHeaders(answer.status(), body.length);
                exchange.getResponseBody().write(body);
            }
        });
    }

    private Answer answer(HttpExchange exchange, boolean callback, Route route) {
        try {
            if (callback && !knows(exchange)) { // first of all: a stranger's last question plants a tombstone
                return Answer.error(401, "the caller shows no token of a coordinator");
            }
            var body = exchange.getRequestBody().readNBytes(LONGEST + 1);
            if (body.length > LONGEST || !exchange.getRequestMethod().equals("POST")) {
                throw new BadRequest("send POST with up to 1 MiB");
            }
            return route.answer(json.readTree(body));
        } catch (BadRequest e) {
            return Answer.error(e.status, e.getMessage());
        } catch (JsonProcessingException e) {
            return Answer.error(400, e.getMessage());
        } catch (IOException | SQLException e) {
            return Answer.error(503, e.getMessage()); // the same request may be made again
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return Answer.error(503, "the service stops");
        }
    }

    public static void main(String[] args) throws Exception {
        start("java-orders", (database, markers, producer) -> producer::send);
    }

    /** Starts the service of a producer, as the environment says. */
    static void start(String name, SenderOf sender) throws Exception {
        var environment = System.getenv();
        var listen = environment.getOrDefault("LISTEN", "127.0.0.1:7001");
        var database = new MariaDbDataSource(environment.get("DATABASE_URL")); // a busy service takes a pool
        var markers = new Markers(database, name);
        markers.transaction(5, tx -> {
            try (var statement = tx.createStatement()) {
                return statement.execute("CREATE TABLE IF NOT EXISTS orders ("
                        + "id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,"
                        + " amount INT NOT NULL CHECK (amount > 0))");
            }
        });
        var coordinator = new Coordinator(environment.getOrDefault("COORDINATOR", "http://127.0.0.1:9090"),
                environment.get("MSGHANDLER_TOKEN_FILE"));
        var target = environment.getOrDefault("CALLBACK_URL", "http://" + listen);
        var producer = new Producer(name, target, coordinator, markers);
        var tokens = environment.get("COORDINATOR_TOKENS");
        if (tokens == null) {
            throw new IllegalArgumentException(
                    "set COORDINATOR_TOKENS: without it every client could have transactions rolled back");
        }
        var service = new Orders(name, sender.of(database, markers, producer), producer, markers, Path.of(tokens));
        int colon = listen.lastIndexOf(':');
        var server = HttpServer.create(
                new InetSocketAddress(listen.substring(0, colon), Integer.parseInt(listen.substring(colon + 1))), 0);
        server.setExecutor(Executors.newCachedThreadPool()); // businesses that wait must not keep callbacks waiting
        service.serve(server, "/orders", false, service::order);
        service.serve(server, "/confirm", true, service::confirm); // keep the callbacks off the public network
        service.serve(server, "/deleteBusiness", true, service::deleteBusiness);
        server.start();
        System.out.println("ready");
    }
}
