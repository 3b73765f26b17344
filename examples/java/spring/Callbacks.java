import com.fasterxml.jackson.annotation.JsonProperty;
import java.sql.SQLException;
import java.util.List;
import java.util.Map;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

/** Answers the coordinator, behind a filter that refuses calls without a token of a coordinator. */
@RestController
class Callbacks {
    record Question(String producer, List<String> ids, @JsonProperty("final") boolean last) {}

    private final String name;
    private final Producer producer;
    private final Markers markers;

    Callbacks(String name, Producer producer, Markers markers) {
        this.name = name;
        this.producer = producer;
        this.markers = markers;
    }

    @PostMapping("/confirm")
    Map<String, ?> confirm(@RequestBody Question question) {
        demandOwn(question);
        var verdicts = producer.confirm(question.ids(), question.last());
        return Map.of("confirmations",
                question.ids().stream().map(id -> Map.of("id", id, "verdict", verdicts.get(id))).toList());
    }

    @PostMapping("/deleteBusiness")
    Map<String, ?> deleteBusiness(@RequestBody Question question) throws SQLException {
        demandOwn(question);
        markers.clean(question.ids());
        return Map.of();
    }

    private void demandOwn(Question question) {
        if (!name.equals(question.producer())) {
            throw new WrongProducerException();
        }
    }

    @ResponseStatus(HttpStatus.CONFLICT)
    private static final class WrongProducerException extends RuntimeException {}
}
