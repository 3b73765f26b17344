import java.sql.SQLException;
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
        refused("join without a transaction", () -> halfMessages.join("no-transaction"));
        refused("join in a transaction of another database", () -> other.execute(status -> {
            halfMessages.join("no-transaction");
            return null;
        }));
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
