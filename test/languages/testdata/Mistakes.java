import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.mariadb.jdbc.MariaDbDataSource;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/** Services that call the classes of examples/java in a wrong way. Each mistake must end in an exception. */
final class Mistakes {
    private interface Mistake {
        void make() throws SQLException;
    }

    public static void main(String[] args) throws Exception {
        var url = System.getenv("DATABASE_URL");
        var database = new MariaDbDataSource(url);
        var markers = new Markers(database, "mistaken-orders");
        var halfMessages = new HalfMessages(database, markers, null);
        var other = new TransactionTemplate(new DataSourceTransactionManager(new MariaDbDataSource(url)));
        refused("mark on a connection that commits by itself", () -> {
            try (var connection = database.getConnection()) {
                markers.mark(connection, "no-transaction");
            }
        });
        errorLeavesNothing(database);
        markOfAnotherRunIsNone(markers);
        refused("join without a transaction", () -> halfMessages.join("no-transaction"));
        refused("join in a transaction of another database", () -> other.execute(status -> {
            halfMessages.join("no-transaction");
            return null;
        }));
    }

    /** A pool hands a connection on as it is: here it is always the same one. */
    private static void errorLeavesNothing(MariaDbDataSource database) throws SQLException {
        var one = database.getConnection();
        var loader = Mistakes.class.getClassLoader();
        var handedOn = (Connection) Proxy.newProxyInstance(loader, new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> method.getName().equals("close") ? null : method.invoke(one, arguments));
        var pool = (DataSource) Proxy.newProxyInstance(loader, new Class<?>[] {DataSource.class},
                (proxy, method, arguments) -> handedOn);
        var markers = new Markers(pool, "mistaken-orders");
        try {
            markers.transaction(5, tx -> {
                markers.mark(tx, "error");
                throw new AssertionError("a bug");
            });
        } catch (AssertionError e) {
            markers.transaction(5, tx -> null);
            one.close();
            return;
        }
        System.out.println("an Error of a business is swallowed");
    }

    /** The database has rolled the business back, and another run has left its mark by then. */
    private static void markOfAnotherRunIsNone(Markers markers) {
        try {
            markers.transaction(5, tx -> {
                markers.mark(tx, "lost");
                try (var statement = tx.createStatement()) {
                    statement.execute("ROLLBACK");
                    statement.execute("INSERT INTO msghandler_markers (producer, id, verdict, created_at)"
                            + " VALUES ('mistaken-orders', 'lost', 2, 1)");
                }
                markers.requireMark(tx);
                return null;
            });
        } catch (SQLException e) {
            return;
        }
        System.out.println("the mark of another run is taken for the own one");
    }

    private static void refused(String what, Mistake mistake) throws SQLException {
        try {
            mistake.make();
        } catch (IllegalStateException | org.springframework.transaction.IllegalTransactionStateException e) {
            return;
        }
        System.out.println(what + " is accepted");
    }
}
