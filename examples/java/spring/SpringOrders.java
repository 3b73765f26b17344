import java.io.IOException;
import java.sql.SQLException;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.TransactionException;
import org.springframework.transaction.support.TransactionTemplate;

/** The order service with transactions of Spring. A method with @Transactional is such a transaction too. */
final class SpringOrders {
    private final DataSource database;
    private final Markers markers;
    private final Producer producer;
    private final HalfMessages halfMessages;
    private final TransactionTemplate transactions;

    private SpringOrders(DataSource database, Markers markers, Producer producer) {
        this.database = database;
        this.markers = markers;
        this.producer = producer;
        halfMessages = new HalfMessages(database, markers, producer);
        transactions = new TransactionTemplate(new DataSourceTransactionManager(database));
    }

    private String send(Producer.Message message, Producer.Business business)
            throws SQLException, IOException, InterruptedException, Producer.RolledBackException {
        var before = producer.store(message); // no transaction has begun
        if (before.isPresent()) {
            if (before.get().equals(Producer.COMMITTED)) {
                producer.submit(message.id()); // the Submit of the earlier run may have been lost
            }
            return before.get();
        }
        try {
            transactions.execute(status -> {
                run(message.id(), business);
                return null;
            });
            return Producer.COMMITTED;
        } catch (DuplicateKeyException e) {
            return standing(message.id(), e).name();
        } catch (TransactionException | DataAccessException | BusinessFailure e) {
            if (standing(message.id(), e) == Markers.Verdict.VERDICT_ROLLED_BACK) {
                throw new Producer.RolledBackException(e);
            }
            return Producer.COMMITTED; // the answer to COMMIT was lost
        }
    }

    private void run(String id, Producer.Business business) {
        halfMessages.join(id);
        var tx = DataSourceUtils.getConnection(database);
        try {
            business.in(tx);
        } catch (SQLException e) {
            throw new BusinessFailure(e);
        } finally {
            DataSourceUtils.releaseConnection(tx, database);
        }
    }

    /** What stands of a message whose transaction has failed. */
    private Markers.Verdict standing(String id, RuntimeException failure) throws SQLException {
        var verdict = markers.look(List.of(id)).get(id);
        if (verdict == null) {
            throw new SQLException("nothing is decided; send the order again: " + failure.getMessage(), failure);
        }
        return verdict;
    }

    private static final class BusinessFailure extends RuntimeException {
        BusinessFailure(SQLException cause) {
            super(cause.getMessage(), cause);
        }
    }

    public static void main(String[] args) throws Exception {
        Orders.start("spring-orders",
                (database, markers, producer) -> new SpringOrders(database, markers, producer)::send);
    }
}
