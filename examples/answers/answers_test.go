package answers_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/examples/answers"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// kinds are the errors of a Send that the page names.
var kinds = map[string]error{
	"ErrAlreadyCommitted": producer.ErrAlreadyCommitted, "ErrUnmarked": producer.ErrUnmarked,
	"ErrContradicted": producer.ErrContradicted, "ErrOutcomeUnknown": producer.ErrOutcomeUnknown,
	"ErrInFlight": producer.ErrInFlight, "ErrSendAgain": producer.ErrSendAgain, "ErrExists": producer.ErrExists,
	"ErrPermanent":  producer.ErrPermanent,
	"ErrRolledBack": producer.ErrRolledBack, "ErrAbandoned": producer.ErrAbandoned, "ErrRejected": producer.ErrRejected,
	"ErrMarkers": producer.ErrMarkers, "ErrClosed": producer.ErrClosed, "ErrUnavailable": producer.ErrUnavailable,
	"ErrNotCommitted": producer.ErrNotCommitted, "context.Canceled": context.Canceled,
	"context.DeadlineExceeded": context.DeadlineExceeded, "any other error": errors.New("of the business"),
}

// The page has the answer of each error that a Send may return, and names every error of the SDK.
func TestPageHasTheAnswersAfterSend(t *testing.T) {
	t.Parallel()
	compare(t, "nil", nil, row(t, "`nil`"))
	for name, kind := range kinds {
		cell := "`" + name + "`"
		if name == "any other error" {
			cell = name
		}
		compare(t, name, fmt.Errorf("send 1001: %w", kind), row(t, cell))
	}
	declared := regexp.MustCompile(`(?m)^\t(Err\w+) +=`)
	for _, name := range declared.FindAllStringSubmatch(read(t, "../../producer/errors.go"), -1) {
		if kinds[name[1]] == nil && name[1] != "ErrNotFound" { // ErrNotFound is of other calls
			t.Errorf("%s of the SDK has no answer", name[1])
		}
	}
}

// A reason of the coordinator refines ErrUnavailable only: an error that also leaves the outcome open is answered so.
func TestReasonHidesNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	full := serve(t).send(t, codes.ResourceExhausted, "STORE_FULL")
	a := answers.Of(fmt.Errorf("commit 1001: %w: %w", producer.ErrOutcomeUnknown, full))
	if a.Status != http.StatusGatewayTimeout {
		t.Errorf("answered %d %q, want 504", a.Status, a.Text)
	}
}

// The page has the answer to each reason of the coordinator, which is refused to a producer of the SDK. A test beside
// the coordinator's reasons demands that the page has them all.
func TestPageHasTheAnswersToReasons(t *testing.T) {
	t.Parallel()
	c := serve(t)
	lines := regexp.MustCompile("(?m)^\\| ([A-Z_]+) \\|( `[A-Z_]+`)? \\|.*$")
	for _, line := range lines.FindAllStringSubmatch(page(t), -1) {
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(strconv.Quote(line[1]))); err != nil {
			t.Fatal(err)
		}
		reason := strings.Trim(line[2], " `")
		compare(t, line[1]+" "+reason, c.send(t, code, reason), strings.Split(line[0], "|")[2:])
	}
}

// compare compares the answer to an error with the last two cells of a row.
func compare(t *testing.T, name string, err error, cells []string) {
	t.Helper()
	if len(cells) < 3 {
		return // copied out of the tree, there is no page
	}
	want, remedy := strings.TrimSpace(cells[len(cells)-3]), strings.TrimSpace(cells[len(cells)-2])
	a := answers.Of(err)
	got := strconv.Itoa(a.Status)
	if a.RetryAfter > 0 {
		got += fmt.Sprintf(", Retry-After %v", a.RetryAfter.Seconds())
	}
	if got != want {
		t.Errorf("%s: answered %s; the page says %s (%v)", name, got, want, err)
	}
	if alert := strings.HasPrefix(remedy, "alert"); a.Alert != alert {
		t.Errorf("%s: the code alerts: %v; the page: %v", name, a.Alert, alert)
	}
}

func page(t *testing.T) string { return read(t, "../../docs/reference/codes.md") }

// row finds the row with a text in its first cell.
func row(t *testing.T, text string) []string {
	t.Helper()
	all := page(t)
	for line := range strings.Lines(all) {
		if cells := strings.Split(line, "|"); len(cells) == 7 && strings.Contains(cells[1], text) {
			return cells
		}
	}
	if all != "" {
		t.Errorf("the page has no row for %s", text)
	}
	return nil
}

// read reads a file of the tree; empty where the examples were copied out of the tree.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// coordinator refuses all messages of its producer.
type coordinator struct {
	pb.UnimplementedMessageHandlerServiceServer
	refusal  atomic.Pointer[status.Status]
	producer *producer.Producer
}

func (c *coordinator) SendHalfMessages(
	context.Context, *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	return nil, c.refusal.Load().Err()
}

func serve(t *testing.T) *coordinator {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &coordinator{}
	server := grpc.NewServer()
	pb.RegisterMessageHandlerServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c.producer, err = producer.New(producer.Config{
		Name: "orders", Coordinator: listener.Addr().String(), CallbackTarget: "127.0.0.1:1", Markers: memory.New(),
		SendTimeout: 30 * time.Millisecond, Coordinators: producer.Coordinators{Anyone: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.producer.Close(context.Background()) })
	return c
}

// send sends a message that is refused. A Send whose time is over before the coordinator has answered is made again.
func (c *coordinator) send(t *testing.T, code codes.Code, reason string) error {
	t.Helper()
	s := status.New(code, "refused")
	if reason != "" {
		s, _ = s.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "msghandler"})
	}
	c.refusal.Store(s)
	for {
		err := c.producer.Send(t.Context(), producer.Message{ID: "1001"}, func(context.Context) error {
			t.Error("the business of a refused message ran")
			return nil
		})
		var failure *producer.Error
		if !errors.As(err, &failure) || failure.Code == code && failure.Reason == reason {
			return err
		}
	}
}
