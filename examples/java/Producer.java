import java.io.IOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Sends the messages of transactions that commit, and no others. Many threads may use it. */
final class Producer {
    record Message(String id, String routingKey, String contentType, byte[] body) {}

    /** The business's part of the transaction, all through tx. It neither commits nor rolls back. */
    interface Business {
        void in(Connection tx) throws SQLException;
    }

    /** The message's business has not committed, and never will under this id. */
    static final class RolledBackException extends Exception {
        RolledBackException(Throwable cause) {
            super(cause);
        }
    }

    static final String COMMITTED = Markers.Verdict.VERDICT_COMMITTED.name();
    /** What stands of a message whose business has committed. */
    static final Set<String> SENT = Set.of(COMMITTED, "STATE_SENDABLE", "STATE_DONE", "STATE_DEAD");
    private static final System.Logger LOG = System.getLogger(Producer.class.getName());

    private final String name;
    private final String target;
    private final Coordinator coordinator;
    private final Markers markers;
    /** Ids whose half message is on its way: their business has not begun. */
    private final Set<String> storing = ConcurrentHashMap.newKeySet();
    private final ExecutorService submits = Executors.newFixedThreadPool(8);

    Producer(String name, String target, Coordinator coordinator, Markers markers) {
        this.name = name;
        this.target = target;
        this.coordinator = coordinator;
        this.markers = markers;
    }

    /**
     * Runs the business, unless it ran before, and sends the message if it commits. Returns what stands then.
     * RolledBackException means that nothing commits under this id. After any other exception make the same call again.
     */
    String send(Message message, Business business)
            throws SQLException, IOException, InterruptedException, RolledBackException {
        var before = store(message);
        var stands = before.isPresent() ? before.get() : run(message.id(), business);
        if (stands.equals(COMMITTED)) {
            submit(message.id());
        }
        return stands;
    }

    /** Stores the half message. Returns what stands of its business; empty: the business may begin. */
    Optional<String> store(Message message) throws SQLException, IOException, InterruptedException {
        var verdict = markers.look(List.of(message.id())).get(message.id());
        if (verdict == Markers.Verdict.VERDICT_ROLLED_BACK) {
            return Optional.of(verdict.name());
        }
        storing.add(message.id());
        try {
            var state = coordinator.call("SendHalfMessage", Map.of("producer", name, "callbackTarget", target,
                    "message", Map.of("id", message.id(), "routingKey", message.routingKey(),
                            "contentType", message.contentType(),
                            "body", Base64.getEncoder().encodeToString(message.body()))),
                    Duration.ofSeconds(30)).path("state").asText();
            if (verdict != null) {
                return Optional.of(verdict.name());
            }
            return state.equals("STATE_PENDING") ? Optional.empty() : Optional.of(state);
        } finally {
            storing.remove(message.id());
        }
    }

    private String run(String id, Business business) throws SQLException, RolledBackException {
        var begun = new boolean[1];
        try {
            markers.transaction(5, tx -> {
                begun[0] = markers.mark(tx, id);
                if (begun[0]) {
                    business.in(tx);
                    markers.requireMark(tx);
                }
                return null;
            });
        } catch (SQLException | RuntimeException e) {
            // Not begun, for a lock or a lost connection: nothing is decided, and the id stays usable.
            if (!begun[0] || !hasCommitted(id, e)) {
                throw e;
            }
        }
        return begun[0] ? COMMITTED : markers.look(List.of(id)).get(id).name();
    }

    /**
     * Finds what became of a transaction that has failed, perhaps in its COMMIT, which may have committed: only the
     * database can tell. False: the outcome is unknown, and the coordinator asks later.
     */
    boolean hasCommitted(String id, Exception failure) throws SQLException, RolledBackException {
        var verdict = markers.settle(List.of(id)).get(id);
        if (verdict == Markers.Verdict.VERDICT_ROLLED_BACK) {
            rollBack(id, failure);
            throw new RolledBackException(failure);
        }
        return verdict == Markers.Verdict.VERDICT_COMMITTED;
    }

    private void rollBack(String id, Exception failure) {
        var reason = String.valueOf(failure.getMessage());
        submits.execute(() -> quietly("Rollback", id, // lost, the coordinator asks and meets the tombstone
                Map.of("producer", name, "id", id, "reason", reason.substring(0, Math.min(500, reason.length())))));
    }

    /** In the background: a Submit that is lost loses nothing, because the coordinator asks. */
    void submit(String id) {
        submits.execute(() -> quietly("Submit", id, Map.of("producer", name, "id", id)));
    }

    private void quietly(String method, String id, Map<String, String> request) {
        try {
            coordinator.call(method, request, Duration.ofSeconds(1));
        } catch (IOException e) { // not_found, failed_precondition: look why. Others: the coordinator will ask
            LOG.log(System.Logger.Level.WARNING, "{0} of {1}: {2}", method, id, e.getMessage());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** What stands of each message, for a coordinator: asked at any time, and about what a replica has sent. */
    Map<String, Markers.Verdict> confirm(Collection<String> ids, boolean last) {
        var stored = Set.copyOf(storing);
        var found = new HashMap<String, Markers.Verdict>();
        var otherwise = Markers.Verdict.VERDICT_UNKNOWN; // no row is no verdict: it may be committed a moment later
        try {
            found.putAll(markers.look(ids));
            if (last) {
                found.putAll(markers.settle(
                        ids.stream().filter(id -> !found.containsKey(id) && !stored.contains(id)).toList()));
            }
        } catch (SQLException e) {
            LOG.log(System.Logger.Level.WARNING, "confirm: {0}", e.getMessage());
            otherwise = Markers.Verdict.VERDICT_UNAVAILABLE; // it says nothing of the message, and must cost it nothing
        }
        for (var id : ids) {
            found.putIfAbsent(id, stored.contains(id) ? Markers.Verdict.VERDICT_UNAVAILABLE : otherwise);
        }
        return found;
    }
}
