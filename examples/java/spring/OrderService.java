import java.nio.charset.StandardCharsets;
import org.springframework.stereotype.Service;

/** Takes orders, in a service with annotations. No transaction here: a half message is stored before one begins. */
@Service
class OrderService {
    private final Producer producer;
    private final Payments payments;

    OrderService(Producer producer, Payments payments) {
        this.producer = producer;
        this.payments = payments;
    }

    void place(String order, int amount) throws Exception {
        var body = ("{\"order\": \"" + order + "\"}").getBytes(StandardCharsets.UTF_8);
        var before = producer.store(new Producer.Message(order, "order.paid", "application/json", body));
        if (before.isEmpty()) {
            payments.pay(order, amount); // a bean of its own, or Spring's proxy does not see the call
        } else if (before.get().equals(Producer.COMMITTED)) {
            producer.submit(order); // the order has committed before, and its Submit may have been lost
        } else if (!Producer.SENT.contains(before.get())) {
            throw new IllegalStateException("an earlier attempt is " + before.get() + "; take a new id");
        }
    }
}
