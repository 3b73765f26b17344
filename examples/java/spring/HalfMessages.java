import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.dao.TransientDataAccessResourceException;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.support.TransactionSynchronizationAdapter;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** Joins a message to the transaction of Spring that runs: the marker first, and Submit or Rollback after the end. */
final class HalfMessages {
    private static final System.Logger LOG = System.getLogger(HalfMessages.class.getName());

    private final DataSource database;
    private final Markers markers;
    private final Producer producer;

    HalfMessages(DataSource database, Markers markers, Producer producer) {
        this.database = database;
        this.markers = markers;
        this.producer = producer;
    }

    /**
     * The first statement of the transaction. Its half message was stored before, outside of any transaction. The
     * exceptions are unchecked: behind a checked one Spring commits.
     */
    void join(String id) {
        if (!TransactionSynchronizationManager.isActualTransactionActive()
                || !TransactionSynchronizationManager.hasResource(database)) {
            throw new IllegalTransactionStateException(
                    "no transaction of this database runs; does the call go past Spring's proxy?");
        }
        Connection tx = DataSourceUtils.getConnection(database); // that of the transaction
        try {
            if (!markers.mark(tx, id)) {
                throw new DuplicateKeyException("a tombstone stands, or the marker of an earlier run: " + id);
            }
        } catch (SQLException e) {
            throw new TransientDataAccessResourceException("nothing is decided; try again: " + e.getMessage(), e);
        } finally {
            DataSourceUtils.releaseConnection(tx, database);
        }
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronizationAdapter() {
            @Override
            public void beforeCommit(boolean readOnly) {
                requireMark();
            }

            @Override
            public void afterCompletion(int status) {
                if (status == STATUS_COMMITTED || committedAfterAll(id)) {
                    producer.submit(id); // in the background
                }
            }
        });
    }

    /** An exception rolls the transaction back: its business has swallowed an error of the database. */
    private void requireMark() {
        Connection tx = DataSourceUtils.getConnection(database);
        try {
            markers.requireMark(tx);
        } catch (SQLException e) {
            throw new TransientDataAccessResourceException(e.getMessage(), e);
        } finally {
            DataSourceUtils.releaseConnection(tx, database);
        }
    }

    /** Rolled back, or an error of COMMIT: only the database can tell. Rollback comes behind a tombstone alone. */
    private boolean committedAfterAll(String id) {
        try {
            return producer.hasCommitted(id, new IllegalStateException("the transaction has failed"));
        } catch (Producer.RolledBackException e) {
            return false;
        } catch (SQLException e) {
            LOG.log(System.Logger.Level.WARNING, "{0}: the coordinator will ask: {1}", id, e.getMessage());
            return false;
        }
    }
}
