package server_test

import (
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// A new reason needs its row on the page, with the answer that package answers of the examples gives.
func TestThePageExplainsEveryReason(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/codes.md")
	must.Succeed(t, err)
	reasons := server.Reasons()
	rows := regexp.MustCompile("(?m)^\\| ([A-Z_]+) \\| `([A-Z_]+)` \\| [^|]+ \\| ([a-z ]+) \\|")
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(strconv.Quote(row[1]))); err != nil || code != reasons[row[2]] {
			t.Errorf("the page says that %s has the code %s; the code is %v", row[2], row[1], reasons[row[2]])
		}
		if isRepeatable(code) != (row[3] == "yes") {
			t.Errorf("the page says %q to a repetition after %s, and %v says the other", row[3], row[2], code)
		}
		delete(reasons, row[2])
	}
	for reason, code := range reasons {
		t.Errorf("the page has no row for %s (%v)", reason, code)
	}
}

// isRepeatable says whether clients repeat a call after a code, as docs/reference/languages-contract.md tells them.
func isRepeatable(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.ResourceExhausted, codes.Unknown, codes.DeadlineExceeded, codes.Internal,
		codes.Aborted, codes.Canceled:
		return true
	}
	return false
}

// After UNAVAILABLE and RESOURCE_EXHAUSTED clients wait for the time that the answer names.
func TestAnswersToWaitForNameTime(t *testing.T) {
	t.Parallel()
	for reason, delay := range server.RetryDelays() {
		code := server.Reasons()[reason]
		waits := code == codes.Unavailable || code == codes.ResourceExhausted
		if waits && delay == 0 || delay > 0 && !isRepeatable(code) {
			t.Errorf("%s is %v with the retry delay %v", reason, code, delay)
		}
	}
}

// A batch answers in outcomes, which have no details of gRPC: the reason is a field of its own.
func TestOutcomesNameTheirReason(t *testing.T) {
	t.Parallel()
	h := open(t)
	first, other, bad := good("1"), good("1"), good("no id has a space")
	other.Message.Body = []byte("other content")
	sent, err := h.producers.SendHalfMessages(t.Context(), &msghandlerv1.SendHalfMessagesRequest{
		Producer: "orders", CallbackTarget: first.GetCallbackTarget(),
		Messages: []*msghandlerv1.Message{first.GetMessage(), other.GetMessage(), bad.GetMessage()},
	})
	must.Succeed(t, err)
	for i, want := range []string{"", "MESSAGE_EXISTS", ""} {
		if got := sent.GetOutcomes()[i].GetReason(); got != want {
			t.Errorf("message %d: reason %q, want %q: %v", i, got, want, sent)
		}
	}
}

// A mistake of a client is the client's to read, in a batch as in a single call: an ERROR in the coordinator's log
// would alert operators because of another team's typing error.
func TestBatchedBadIDsAreUnlogged(t *testing.T) {
	t.Parallel()
	log := &logged{}
	h := open(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	const bad = "no id has a space\n"
	half := good(bad)
	sent, err := h.producers.SendHalfMessages(t.Context(), &msghandlerv1.SendHalfMessagesRequest{
		Producer: "orders", CallbackTarget: half.GetCallbackTarget(), Messages: []*msghandlerv1.Message{half.GetMessage()},
	})
	if err != nil || sent.GetOutcomes()[0].GetCode() == 0 {
		t.Fatalf("a half message with a bad id: %v, %v", sent, err)
	}
	submitted, err := h.producers.SubmitAll(
		t.Context(),
		&msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{bad}},
	)
	if err != nil || submitted.GetOutcomes()[0].GetCode() == 0 {
		t.Fatalf("a Submit with a bad id: %v, %v", submitted, err)
	}
	retried, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: "orders", Id: bad}}},
	})
	if err != nil || retried.GetOutcomes()[0].GetCode() == 0 {
		t.Fatalf("a retry of a bad id: %v, %v", retried, err)
	}
	if said := log.String(); said != "" {
		t.Errorf("the log says %s", said)
	}
}

func TestLogNamesTheTrace(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	log := &logged{}
	h := open(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	h.store.fail = halfmsg.ErrUnavailable
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	_, err := h.producers.Submit(ctx, &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"})
	wantCode(t, err, codes.Unavailable)
	if lines := linesWith(log, "a call failed"); len(lines) != 1 || !strings.Contains(lines[0], "trace_id="+trace) {
		t.Errorf("the log says %s", log)
	}
}
