import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Calls of msghandler.v1.MessageHandlerService by HTTP and JSON (docs/reference/http.md). Many threads may use it. */
final class Coordinator {
    /** A call that has failed. Without a code its outcome is unknown. */
    static final class CallException extends IOException {
        /** Outcome unknown, or not now: make the same call again, with the same content. Other codes are answers. */
        private static final Set<String> AGAIN = Set.of("", "unavailable", "resource_exhausted", "unknown",
                "deadline_exceeded", "internal", "aborted", "canceled");

        private final String code;

        CallException(String code, String message) {
            super((code.isEmpty() ? "no answer" : code) + ": " + message);
            this.code = code;
        }

        boolean again() {
            return AGAIN.contains(code);
        }
    }

    private static final Duration TIMEOUT = Duration.ofSeconds(5);
    private static final Set<String> LOOPBACK = Set.of("127.0.0.1", "[::1]", "localhost");

    private final ObjectMapper json = new ObjectMapper();
    private final HttpClient client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1) // in cleartext the port speaks HTTP/2 for gRPC only
            .connectTimeout(Duration.ofSeconds(2)).build();
    private final String url;
    private final String tokenFile;

    /** Calls the coordinator at a URL, with the token of a file, which may change; null: without a token. */
    Coordinator(String url, String tokenFile) {
        var to = URI.create(url);
        if (tokenFile != null && !"https".equals(to.getScheme()) && !LOOPBACK.contains(to.getHost())) {
            throw new IllegalArgumentException("a token is shown over TLS only: write https:// in COORDINATOR");
        }
        this.url = url + "/msghandler.v1.MessageHandlerService/";
        this.tokenFile = tokenFile;
    }

    /** The tokens of a file, one a line; empty lines and comments do not count. */
    static List<String> tokensOf(Path file) throws IOException {
        return Files.readAllLines(file).stream().map(String::strip).filter(line -> !line.isEmpty() && !line.startsWith("#"))
                .toList();
    }

    /** Makes a call, and the same call again while its outcome is unknown, for as long as patience lasts. */
    JsonNode call(String method, Map<String, ?> request, Duration patience) throws IOException, InterruptedException {
        long ends = System.nanoTime() + patience.toNanos();
        for (long pause = 50;; pause = Math.min(2 * pause, 2000)) {
            try {
                return post(method, request);
            } catch (CallException e) {
                if (!e.again() || System.nanoTime() + pause * 1_000_000 > ends) {
                    throw e;
                }
            }
            Thread.sleep(ThreadLocalRandom.current().nextLong(pause / 2, pause + 1));
        }
    }

    private JsonNode post(String method, Map<String, ?> request) throws IOException, InterruptedException {
        var post = HttpRequest.newBuilder(URI.create(url + method)).timeout(TIMEOUT)
                .header("Content-Type", "application/json").header("Connect-Timeout-Ms", "" + TIMEOUT.toMillis())
                .POST(HttpRequest.BodyPublishers.ofByteArray(json.writeValueAsBytes(request)));
        if (tokenFile != null) {
            post.header("Authorization", "Bearer " + tokensOf(Path.of(tokenFile)).get(0));
        }
        int status;
        JsonNode answer;
        try {
            var response = client.send(post.build(), HttpResponse.BodyHandlers.ofByteArray());
            status = response.statusCode();
            answer = json.readTree(response.body());
        } catch (IOException e) {
            throw new CallException("", e.toString()); // also a proxy on the way, whose answer is not JSON
        }
        if (status != 200) {
            throw new CallException(answer.path("code").asText(), answer.path("message").asText("status " + status));
        }
        return answer;
    }
}
