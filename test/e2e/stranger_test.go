package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	shopToken  = "0d1f7a35c2be4f0e9a66-shop"
	otherToken = "7be1c0ffee0d15ea5e11-other"
)

// shop is producer-demo, taking orders over HTTP.
type shop struct {
	*programs.Process
	http, callbacks string
}

// startShop starts producer-demo, with more arguments.
func (w *world) startShop(args ...string) shop {
	w.t.Helper()
	addresses := servers.Addresses(w.t, 2)
	s := shop{http: addresses[0], callbacks: addresses[1]}
	s.Process = programs.Start(w.t, "producer-demo", nil, slices.Concat(w.common(), []string{
		"--coordinator", w.targets(), "--listen", s.callbacks, "--coordinator-token-file", w.token, "--http", s.http,
	}, args)...)
	s.Says("taking orders at", 20*time.Second)
	return s
}

// post makes a request of a customer, and returns the status.
func (s shop) post(path, body string) int {
	s.T.Helper()
	response, err := http.Post("http://"+s.http+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// stranger makes the final Confirm call about ids, as anybody within reach of the port can.
func (s shop) stranger(ids ...string) error { return s.asks("orders", ids...) }

func (s shop) asks(producer string, ids ...string) error {
	s.T.Helper()
	conn, err := grpc.NewClient(s.callbacks, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.T.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.T.Context(), 10*time.Second)
	defer cancel()
	_, err = pb.NewProducerServiceClient(conn).Confirm(ctx, &pb.ConfirmRequest{Producer: producer, Ids: ids, Final: true})
	return err
}

// replaceTokens writes a file of tokens anew, and waits until a process has read the tokens again. The process reads
// them when it needs them: so orders are placed.
func (s shop) replaceTokens(file string, p *programs.Process, tokens ...string) {
	s.T.Helper()
	before, n := strings.Count(p.Tail(), "tokens reloaded"), 0
	writeTokens(s.T, file, tokens...)
	servers.Eventually(s.T, 30*time.Second, p.Name()+" reads its tokens again", func() bool {
		n++
		product := 100 + 300*(len(p.Name())%3) + 20*before + n // the processes have names of different lengths
		s.post("/orders", fmt.Sprintf(`{"id":%d,"buyer":7,"product":%d}`, 10_000+product, product))
		return strings.Count(p.Tail(), "tokens reloaded") > before
	})
}

func tokenFile(t *testing.T, tokens ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, file, tokens...)
	return file
}

func writeTokens(t testing.TB, file string, tokens ...string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(strings.Join(tokens, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A stranger's final Confirm plants no tombstone: the order is placed, paid and delivered nevertheless.
func TestStrangerCannotRollBackAnOrder(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1)
	w.startConsumers()
	s := w.startShop()
	if err := s.stranger("1001-created", "1001-timeout", "1001-paid"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stranger's final Confirm got %v", err)
	}
	if code := s.post("/orders", `{"id":1001,"buyer":7,"product":42}`); code != http.StatusCreated {
		t.Fatalf("placing the order got %d", code)
	}
	// The Submit is left out, so that the message goes out only if the coordinator's own Confirm is answered.
	if code := s.post("/orders/1001/payment?fail=silent", ""); code != http.StatusCreated {
		t.Fatalf("paying the order got %d", code)
	}
	w.paid(1, time.Minute)
}

// A producer with an HTTP port only is asked there. Its Submit is left out, so only the Confirm brings the message out.
func TestSilentOrderIsConfirmedByHTTP(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1)
	w.startConsumers()
	s := w.startShop("--http-callbacks")
	if code := s.post("/orders", `{"id":1001,"buyer":7,"product":42}`); code != http.StatusCreated {
		t.Fatalf("placing the order got %d", code)
	}
	if code := s.post("/orders/1001/payment?fail=silent", ""); code != http.StatusCreated {
		t.Fatalf("paying the order got %d", code)
	}
	w.paid(1, time.Minute)
	env := []string{"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_CALLBACKS_TOKEN_FILE=" + w.token}
	if said, code := programs.Run(t, "msghandler", env, "verify-producer", "orders", "http://"+s.callbacks); code != 0 {
		t.Errorf("verify-producer ends with %d:\n%s", code, said)
	}
}

// Where the coordinator's token is not accepted its messages wait, lose no attempt, and report the action to take; a
// token is replaced while everything runs.
func TestMessagesWaitUntilTokenIsReplaced(t *testing.T) {
	w := newWorld(t)
	shown, accepted := tokenFile(t, otherToken), tokenFile(t, shopToken)
	w.startCoordinators(1, "MSGHANDLER_CALLBACKS_TOKEN_FILE="+shown)
	c := w.coordinators[0]
	w.startConsumers()
	s := w.startShop("--coordinator-token-file", accepted)
	if code := s.post("/orders", `{"id":1001,"buyer":7,"product":42}`); code != http.StatusCreated {
		t.Fatalf("placing the order got %d", code)
	}
	if code := s.post("/orders/1001/payment?fail=silent", ""); code != http.StatusCreated {
		t.Fatalf("paying the order got %d", code)
	}
	env := []string{"MSGHANDLER_SERVER=" + c.grpc}
	var shownAs string
	servers.Eventually(t, 30*time.Second, "the message names the reason of its wait", func() bool {
		shownAs, _ = programs.Run(t, "msghandler", env, "show", "orders/1001-paid")
		return strings.Contains(shownAs, "Unauthenticated") && strings.Contains(shownAs, "callbacks.token_file")
	})
	if !strings.Contains(shownAs, "pending") || !regexp.MustCompile(`confirm attempts +0\n`).MatchString(shownAs) {
		t.Errorf("a refusal is taken for an answer:\n%s", shownAs)
	}
	c.Says("callbacks.token_file", 30*time.Second) // in the log
	s.Says("its caller is not a known coordinator", 30*time.Second)
	settings := append(slices.Clone(env), "MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		"MSGHANDLER_CALLBACKS_TOKEN_FILE="+shown,
		"MSGHANDLER_REDIS_URL="+w.redis.URL(), "MSGHANDLER_AMQP_URL="+w.amqp)
	said, _ := programs.Run(t, "msghandler", settings, "doctor", "--producer", "orders="+s.callbacks)
	if !strings.Contains(said, "producer-refuses") {
		t.Errorf("doctor says:\n%s", said)
	}
	if said, status := programs.Run(t, "msghandler", settings, "verify-producer", "orders", s.callbacks); status != 4 ||
		!strings.Contains(said, "producer-refuses") {
		t.Errorf("verify-producer says (%d):\n%s", status, said)
	}

	// The producer accepts both tokens; then the coordinator shows the new token; then the old token goes.
	writeTokens(t, accepted, otherToken, shopToken)
	w.paid(1, time.Minute)
	s.replaceTokens(shown, c.Process, shopToken)
	s.replaceTokens(accepted, s.Process, shopToken)
	if said, status := programs.Run(t, "msghandler", settings, "verify-producer", "orders", s.callbacks); status != 0 ||
		strings.Contains(said, "producer-") {
		t.Errorf("verify-producer says (%d):\n%s", status, said)
	}
	if said := c.Tail() + s.Tail(); strings.Contains(said, shopToken) || strings.Contains(said, otherToken) {
		t.Errorf("a token is in the log:\n%s", said)
	}
	c.Says("tokens are sent to producers without encryption", time.Second)
}

// A shop with a port and no coordinator's token would answer strangers, and does not start.
func TestShopWithoutCoordinatorsEndsAtOnce(t *testing.T) {
	t.Parallel()
	said, status := programs.Run(t, "producer-demo", nil,
		"--listen", "127.0.0.1:0", "--stay", "--database", "sqlite::memory:")
	if status != 2 || !strings.Contains(said, "--coordinator-token-file") {
		t.Errorf("the shop ends with %d:\n%s", status, said)
	}
}
