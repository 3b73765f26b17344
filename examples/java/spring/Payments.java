import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** The business: one transaction, whose first row is the marker. */
@Service
class Payments {
    private final HalfMessages halfMessages;
    private final JdbcTemplate orders;

    Payments(HalfMessages halfMessages, JdbcTemplate orders) {
        this.halfMessages = halfMessages;
        this.orders = orders;
    }

    @Transactional(rollbackFor = Exception.class) // by default Spring commits behind a checked exception
    public void pay(String order, int amount) {
        halfMessages.join(order);
        orders.update("INSERT INTO orders (id, amount) VALUES (?, ?)", order, amount);
    }
}
