import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import javax.sql.DataSource;

/**
 * The rows of the SDK's table msghandler_markers: what became of each message (docs/reference/tables.md). For MySQL and MariaDB.
 *
 * <p>The first insert of an id decides: its business COMMITTED, or a tombstone ROLLED_BACK.
 */
final class Markers {
    /** A verdict has the names of the protocol. The table keeps COMMITTED as 2 and ROLLED_BACK as 3. */
    enum Verdict { VERDICT_UNSPECIFIED, VERDICT_UNKNOWN, VERDICT_COMMITTED, VERDICT_ROLLED_BACK, VERDICT_UNAVAILABLE }

    /** Work in a transaction, which neither commits nor rolls back. */
    interface Work<T> {
        T in(Connection tx) throws SQLException;
    }

    private static final String NOW = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";
    private static final System.Logger LOG = System.getLogger(Markers.class.getName());
    private static final long WEEK = 7L * 24 * 3600 * 1000;
    private static final int DUPLICATE_KEY = 1062;
    private static final int LOCK_WAIT_TIMEOUT = 1205;

    private final DataSource database;
    private final String producer;

    Markers(DataSource database, String producer) {
        this.database = database;
        this.producer = producer;
    }

    /** A transaction whose statements wait so many seconds for locks. An exception rolls it back. */
    <T> T transaction(int lockSeconds, Work<T> work) throws SQLException {
        try (var tx = database.getConnection()) {
            tx.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            tx.setAutoCommit(false);
            waitForLocks(tx, "" + lockSeconds);
            try {
                T result = work.in(tx);
                tx.commit();
                return result;
            } catch (Throwable e) { // an Error too: the pool would hand half a business on, to be committed by another
                try {
                    tx.rollback();
                } catch (SQLException lost) {
                    e.addSuppressed(lost);
                }
                throw e;
            } finally {
                restore(tx);
            }
        }
    }

    /** A pool hands the connection on, also to transactions that are not begun here. */
    private static void restore(Connection tx) {
        try {
            waitForLocks(tx, "DEFAULT");
        } catch (SQLException e) {
            LOG.log(System.Logger.Level.DEBUG, "connection lost: {0}", e.getMessage()); // the pool drops it
        }
    }

    private static void waitForLocks(Connection tx, String seconds) throws SQLException {
        try (var statement = tx.createStatement()) {
            statement.execute("SET SESSION innodb_lock_wait_timeout = " + seconds);
        }
    }

    /** The first write of a business. False: a tombstone stands, or the marker of an earlier run. */
    boolean mark(Connection tx, String id) throws SQLException {
        if (tx.getAutoCommit()) { // the marker would commit by itself, and the message go out without its business
            throw new IllegalStateException("no transaction has begun");
        }
        try (var insert = tx.prepareStatement("INSERT INTO msghandler_markers (producer, id, verdict, created_at)"
                + " VALUES (?, ?, 2, " + NOW + ")")) {
            insert.setBytes(1, bytes(producer));
            insert.setBytes(2, bytes(id));
            insert.executeUpdate();
            setSavepoint(tx);
            return true;
        } catch (SQLException e) {
            if (e.getErrorCode() == DUPLICATE_KEY) {
                return false;
            }
            throw e;
        }
    }

    /**
     * The last look of a business. After a deadlock MySQL has rolled its first half back, with its marker, and DDL has
     * committed it: either way the savepoint is gone. A marker that stands may be that of another run.
     */
    void requireMark(Connection tx) throws SQLException {
        try (var statement = tx.createStatement()) {
            statement.execute("RELEASE SAVEPOINT marked");
        } catch (SQLException e) {
            throw new SQLException("the transaction ended before its COMMIT, and its business went on", e);
        }
        setSavepoint(tx); // a transaction may have several marks, and looks
    }

    private static void setSavepoint(Connection tx) throws SQLException {
        try (var statement = tx.createStatement()) {
            statement.execute("SAVEPOINT marked");
        }
    }

    /** The verdicts that are committed. */
    Map<String, Verdict> look(Collection<String> ids) throws SQLException {
        return transaction(1, tx -> {
            var found = new HashMap<String, Verdict>();
            var sql = "SELECT id, verdict FROM msghandler_markers WHERE producer = ? AND id IN ";
            try (var select = forIds(tx, sql, ids); var rows = select.executeQuery()) {
                while (rows.next()) {
                    found.put(new String(rows.getBytes(1), StandardCharsets.UTF_8), Verdict.values()[rows.getInt(2)]);
                }
            }
            return found;
        });
    }

    /**
     * Plants a tombstone where there is no row: such a business can never commit. Then says what stands. A tombstone
     * waits for the transaction that holds its id. An id that is held for longer gets no verdict.
     */
    Map<String, Verdict> settle(Collection<String> ids) throws SQLException {
        transaction(1, tx -> {
            try (var insert = tx.prepareStatement("INSERT INTO msghandler_markers"
                    + " (producer, id, verdict, created_at, cleaned_at) VALUES (?, ?, 3, " + NOW + ", " + NOW + ")"
                    + " ON DUPLICATE KEY UPDATE created_at = created_at")) {
                insert.setBytes(1, bytes(producer));
                for (var id : new TreeSet<>(ids)) { // in order: two such transactions must not deadlock
                    insert.setBytes(2, bytes(id));
                    plant(tx, insert);
                }
            }
            return null;
        });
        return look(ids);
    }

    private static void plant(Connection tx, PreparedStatement insert) throws SQLException {
        try {
            insert.executeUpdate();
        } catch (SQLException e) {
            if (e.getErrorCode() != LOCK_WAIT_TIMEOUT) {
                throw e;
            }
            waitForLocks(tx, "0"); // the next ids must not wait for one; MySQL, unlike MariaDB, waits a second at least
        }
    }

    /** Rows stay for a week, for a coordinator that asks again; each time some that are older are removed. */
    void clean(Collection<String> ids) throws SQLException {
        transaction(1, tx -> {
            try (var update = forIds(tx, "UPDATE msghandler_markers SET cleaned_at = " + NOW
                    + " WHERE cleaned_at IS NULL AND producer = ? AND id IN ", ids)) {
                return update.executeUpdate();
            }
        });
        transaction(1, tx -> {
            try (var delete = tx.prepareStatement("DELETE FROM msghandler_markers WHERE producer = ? AND cleaned_at < "
                    + NOW + " - ? LIMIT 1000")) {
                delete.setBytes(1, bytes(producer));
                delete.setLong(2, WEEK);
                return delete.executeUpdate();
            }
        });
    }

    /** A statement that ends with a list of ids. No id is empty, so that the list may begin with an empty one. */
    private PreparedStatement forIds(Connection tx, String sql, Collection<String> ids) throws SQLException {
        var statement = tx.prepareStatement(sql + "(''" + ", ?".repeat(ids.size()) + ")");
        statement.setBytes(1, bytes(producer));
        int at = 2;
        for (var id : ids) {
            statement.setBytes(at++, bytes(id));
        }
        return statement;
    }

    private static byte[] bytes(String text) { // the columns are binary: Order:7 and order:7 are two ids
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
