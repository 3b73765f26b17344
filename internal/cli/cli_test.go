package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// coordinator is an AdminService with three dead messages and a pending message. It records its requests.
type coordinator struct {
	adminv1.UnimplementedAdminServiceServer
	addr string
	// err is the answer to all requests after the first errAfter.
	err      error
	errAfter int
	// archive is the error of GetFinished; nil: no entry.
	archive error

	mu       sync.Mutex
	records  []*adminv1.MessageRecord
	requests []string
	findings []*adminv1.Finding
	// sums are the fields of GetStats with sums of all coordinators.
	sums    *adminv1.GetStatsResponse
	fleet   []*adminv1.Coordinator
	brokers []*adminv1.BrokerStats
	// configuration is the answer of GetConfiguration.
	configuration *adminv1.GetConfigurationResponse
	audited       []*adminv1.AuditRecord
	queues        []*adminv1.DeadLetterQueue
	// grouped are the answers of GroupMessages; nil: an answer for each state.
	grouped map[msghandlerv1.State]*adminv1.GroupMessagesResponse
}

func startCoordinator(t *testing.T) *coordinator {
	t.Helper()
	c := &coordinator{}
	for i := range 3 {
		c.add(msghandlerv1.State_STATE_DEAD, "orders", fmt.Sprint(1001+i))
	}
	c.add(msghandlerv1.State_STATE_PENDING, "stock", "7")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	c.addr = listener.Addr().String()
	server := grpc.NewServer()
	adminv1.RegisterAdminServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c
}

func (c *coordinator) add(state msghandlerv1.State, producer, id string) {
	c.records = append(c.records, &adminv1.MessageRecord{
		Producer: producer, State: state,
		Message: &msghandlerv1.Message{
			Id: id, Exchange: "orders", RoutingKey: "order.paid", Body: []byte(`{"total":12}`),
			Headers: map[string]string{"tenant": "a\x1b[2Jb"}, ContentType: "application/json",
		},
		CreateTime:      timestamppb.New(time.Now().Add(-3*time.Hour - time.Minute)),
		DueTime:         timestamppb.New(time.Now().Add(90 * time.Minute)),
		PublishAttempts: 4, LastError: "312 NO_ROUTE",
	})
}

func (c *coordinator) note(format string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, fmt.Sprintf(format, args...))
	if len(c.requests) <= c.errAfter {
		return nil
	}
	return c.err
}

// asked returns the requests since the last call.
func (c *coordinator) asked() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := strings.Join(c.requests, "; ")
	c.requests = nil
	return asked
}

func (c *coordinator) find(state msghandlerv1.State, producer string) []*adminv1.MessageRecord {
	var found []*adminv1.MessageRecord
	for _, r := range c.records {
		if r.GetState() == state && (producer == "" || producer == r.GetProducer()) {
			found = append(found, r)
		}
	}
	return found
}

func (c *coordinator) GetMessage(
	_ context.Context, r *adminv1.GetMessageRequest,
) (*adminv1.GetMessageResponse, error) {
	for _, record := range c.records {
		if record.GetProducer() == r.GetProducer() && record.GetMessage().GetId() == r.GetId() {
			return &adminv1.GetMessageResponse{Record: record}, c.err
		}
	}
	return nil, status.Errorf(codes.NotFound, "no such message: %s/%s", r.GetProducer(), r.GetId())
}

func (c *coordinator) ListMessages(
	_ context.Context, r *adminv1.ListMessagesRequest,
) (*adminv1.ListMessagesResponse, error) {
	f := r.GetFilter()
	err := c.note("list %s %s %d from %q%s", f.GetState(), f.GetProducer(), r.GetPageSize(), r.GetPageToken(), filters(f))
	if err != nil {
		return nil, err
	}
	found := c.find(f.GetState(), f.GetProducer())
	from := 0
	if r.GetPageToken() != "" {
		if _, err := fmt.Sscan(r.GetPageToken(), &from); err != nil {
			return nil, err
		}
	}
	to := min(len(found), from+int(r.GetPageSize()))
	response := &adminv1.ListMessagesResponse{Records: found[from:to]}
	if to < len(found) {
		response.NextPageToken = fmt.Sprint(to)
	}
	return response, nil
}

func (c *coordinator) ListProblems(
	_ context.Context, r *adminv1.ListProblemsRequest,
) (*adminv1.ListProblemsResponse, error) {
	ago := func(t *timestamppb.Timestamp) time.Duration { return time.Since(t.AsTime()).Round(time.Minute) }
	until := "now"
	if r.GetUntil() != nil {
		until = ago(r.GetUntil()).String()
	}
	err := c.note("problems %d from %s to %s", r.GetPageSize(), ago(r.GetSince()), until)
	return &adminv1.ListProblemsResponse{Problems: c.findings}, err
}

func (c *coordinator) GetStats(context.Context, *adminv1.GetStatsRequest) (*adminv1.GetStatsResponse, error) {
	return &adminv1.GetStatsResponse{
		Coordinators: c.fleet, Brokers: c.brokers, Findings: c.findings,
		Flow: c.sums.GetFlow(), Producers: c.sums.GetProducers(), Exchanges: c.sums.GetExchanges(),
		States: []*adminv1.StateStats{
			{
				State: msghandlerv1.State_STATE_PENDING, Count: 1,
				OldestCreateTime: timestamppb.New(time.Now().Add(-3 * time.Hour)),
				FirstDueTime:     timestamppb.New(time.Now().Add(2*time.Minute + 30*time.Second)),
			},
			{State: msghandlerv1.State_STATE_DEAD},
		},
	}, c.err
}

func (c *coordinator) RetryMessages(
	_ context.Context, r *adminv1.RetryMessagesRequest,
) (*adminv1.RetryMessagesResponse, error) {
	n, next, outcomes, err := c.changed("retry", r, 0)
	return &adminv1.RetryMessagesResponse{Changed: n, NextPageToken: next, Outcomes: outcomes}, err
}

func (c *coordinator) DiscardMessages(
	_ context.Context, r *adminv1.DiscardMessagesRequest,
) (*adminv1.DiscardMessagesResponse, error) {
	n, next, outcomes, err := c.changed("discard", r, r.GetExpectedState())
	return &adminv1.DiscardMessagesResponse{Changed: n, NextPageToken: next, Outcomes: outcomes}, err
}

// change has the common fields of both requests.
type change interface {
	GetSelection() *adminv1.MessageSelection
	GetLimit() int32
	GetReason() string
	GetDryRun() bool
	GetPageToken() string
}

// filters shows the filters of a request beside state and producer.
func filters(r *adminv1.MessageFilter) (text string) {
	if r.GetExchange() != "" {
		text += " to " + r.GetExchange()
	}
	if r.GetBroker() != "" {
		text += " at " + r.GetBroker()
	}
	if r.GetMinAge() != nil {
		text += " older " + r.GetMinAge().AsDuration().String()
	}
	if r.GetErrorContains() != "" {
		text += " error " + r.GetErrorContains()
	}
	for what, value := range map[string]string{
		" cause ": r.GetCause(), " id ": r.GetIdPrefix(), " key ": r.GetRoutingKey(), " header ": r.GetHeader(),
	} {
		if value != "" {
			text += what + value
		}
	}
	return text
}

func (c *coordinator) GroupMessages(
	_ context.Context, r *adminv1.GroupMessagesRequest,
) (*adminv1.GroupMessagesResponse, error) {
	f := r.GetFilter()
	err := c.note("groups %s %s%s", f.GetState(), f.GetProducer(), filters(f))
	if c.grouped != nil {
		return c.grouped[f.GetState()], err
	}
	return &adminv1.GroupMessagesResponse{
		Groups: []*adminv1.MessageGroup{{
			Producer: "orders", Count: 312, Cause: "no exchange …", ExampleId: "1001", ExampleError: "no exchange 7",
			OldestCreateTime: timestamppb.New(time.Now().Add(-3*time.Hour - time.Minute)),
			NewestCreateTime: timestamppb.New(time.Now().Add(-3*time.Minute - time.Second)),
		}},
		SampleSize: 2000, TotalSize: 9000, OmittedGroups: 4,
	}, err
}

func (c *coordinator) changed(
	what string, r change, expected msghandlerv1.State,
) (int64, string, []*msghandlerv1.Outcome, error) {
	if r.GetDryRun() {
		what = "would " + what
	}
	if f := r.GetSelection().GetFilter(); f != nil {
		err := c.note("%s %s %s %d %s", what, f.GetState(), f.GetProducer(), r.GetLimit(), r.GetReason()+filters(f))
		from := 0
		if r.GetPageToken() != "" {
			if _, err := fmt.Sscan(r.GetPageToken(), &from); err != nil {
				return 0, "", nil, err
			}
		}
		found := len(c.find(f.GetState(), f.GetProducer()))
		next, to := "", min(found, from+int(r.GetLimit()))
		if to < found {
			next = fmt.Sprint(to)
		}
		return int64(to - from), next, nil, err
	}
	var n int64
	var outcomes []*msghandlerv1.Outcome
	for _, name := range r.GetSelection().GetNames() {
		if err := c.note("%s %s/%s", what, name.GetProducer(), name.GetId()); err != nil {
			return n, "", outcomes, err
		}
		outcome := &msghandlerv1.Outcome{Code: int32(codes.NotFound), Error: "no such message"}
		for _, record := range c.records {
			if record.GetProducer() != name.GetProducer() || record.GetMessage().GetId() != name.GetId() {
				continue
			}
			outcome = &msghandlerv1.Outcome{State: record.GetState()}
			expected := cmp.Or(expected, msghandlerv1.State_STATE_DEAD)
			if record.GetState() != msghandlerv1.State_STATE_DEAD || record.GetState() != expected {
				outcome.Code, outcome.Error = int32(codes.FailedPrecondition), "the message is pending"
				continue
			}
			n++
		}
		outcomes = append(outcomes, outcome)
	}
	return n, "", outcomes, nil
}

// ran is a command's exit status and output.
type ran struct {
	status   int
	out, err string
}

func run(env []string, args ...string) ran { return runWith("", env, args...) }

// runWith runs a command with something on its standard input.
func runWith(in string, env []string, args ...string) ran {
	var out, errs bytes.Buffer
	code := cli.Run(context.Background(), commandline.Process{
		Args: args, Env: env, In: strings.NewReader(in), Out: &out, Err: &errs,
	})
	return ran{code, out.String(), errs.String()}
}

func (r ran) want(t *testing.T, status int, out, err string) {
	t.Helper()
	if r.status != status {
		t.Errorf("exit status %d instead of %d", r.status, status)
	}
	if !strings.Contains(r.out, out) || out == "" && r.out != "" {
		t.Errorf("standard output lacks\n%s\nit is\n%s", out, r.out)
	}
	if !strings.Contains(r.err, err) || err == "" && r.err != "" {
		t.Errorf("standard error lacks\n%s\nit is\n%s", err, r.err)
	}
}

func TestTableOutput(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}
	run(env, "stats").want(t, 0, `STATE     COUNT   OLDEST    FIRST DUE
pending   1       3 h ago   in 2 min
dead      0       -         -
`, "")
	run(env, "list", "--state", "dead", "--producer", "orders", "--limit", "2").want(t, 0,
		`MESSAGE       STATE   CREATED   DUE   ATTEMPTS   EXCHANGE   ROUTING KEY   LAST ERROR
orders/1001   dead    3 h ago   -     4          orders     order.paid    312 NO_ROUTE
orders/1002   dead    3 h ago   -     4          orders     order.paid    312 NO_ROUTE
`, "this is the end of --limit=2, and there may be more; raise it\n")
	run(env, "list", "--state", "sendable").want(t, 0, "no messages\n", "")
	run(env, "list").want(t, 0, "stock/7 ", "")
	run(env, "show", "stock/7").want(t, 0, `message            stock/7
state              pending
exchange           orders
routing key        order.paid
content type       application/json
created            3 h ago
due                in 1 h
confirm attempts   0
publish attempts   4
last error         312 NO_ROUTE
header tenant      a\x1b[2Jb
body               12 bytes
{"total":12}
`, "")
	at := time.Now().Add(-2 * time.Hour)
	c.records[3].Events = []*adminv1.Event{
		{Kind: adminv1.EventKind_EVENT_KIND_SEND, FirstTime: timestamppb.New(at), LastTime: timestamppb.New(at), Count: 1},
		{
			Kind:      adminv1.EventKind_EVENT_KIND_UNREACHABLE,
			FirstTime: timestamppb.New(at), LastTime: timestamppb.New(at.Add(time.Hour)), Count: 70,
			Actor: "host-1", Cause: "a\x1b[2Jb",
		},
		{Kind: 999, FirstTime: timestamppb.New(at), LastTime: timestamppb.New(at), Count: 1},
	}
	when := at.UTC().Format("2006-01-02 15:04:05.000")
	run(env, "show", "stock/7").want(t, 0, `body               12 bytes

TIME (UTC)                LAST      TIMES   WHAT HAPPENED                                BY       CAUSE
`+when+`   2 h ago   1       stored
`+when+`   1 h ago   70      not answered: the producer is out of reach   host-1   a\x1b[2Jb
`+when+`   2 h ago   1       999

{"total":12}
`, "")
}

// A coordinator leaves out bodies and headers for viewers: such a message is not said to be empty.
func TestHiddenBodyIsNotCalledEmpty(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	c.records[3].Message.Body, c.records[3].Message.Headers = nil, nil
	run([]string{"MSGHANDLER_SERVER=" + c.addr}, "show", "stock/7").want(t, 0,
		"body               0 bytes, or not shown to you: it takes the role reader, and http.bodies\n", "")
}

func TestJSONOutput(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	c.add(msghandlerv1.State_STATE_PENDING, "stock", "8")
	c.records[4].Events = make([]*adminv1.Event, 2)
	tests := map[string]struct {
		args []string
		want map[string]any
	}{
		"stats": {[]string{"stats"}, map[string]any{"states": 2}},
		"list":  {[]string{"list", "--state=dead", "--limit=3"}, map[string]any{"messages": 3, "more": false}},
		"empty": {[]string{"list", "--state=sendable"}, map[string]any{"messages": 0, "more": false}},
		// --limit is reached before the last states are read.
		"all": {[]string{"list", "--limit=5"}, map[string]any{"messages": 5, "more": true}},
		"cut": {[]string{"list", "--limit=2"}, map[string]any{"messages": 2, "more": true}},
		"show": {[]string{"show", "stock/8"}, map[string]any{
			"producer": "stock", "id": "8", "state": "pending", "body": `{"total":12}`, "publish_attempts": 4.0,
			"routing_key": "order.paid", "events": 2,
		}},
		"retry":   {[]string{"retry", "orders/1001"}, map[string]any{"retried": 1.0, "more": false}},
		"discard": {[]string{"discard", "orders/1001", "orders/1002"}, map[string]any{"discarded": 2.0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(nil, append(tt.args, "--output", "json", "--server", c.addr)...)
			var document map[string]any
			if err := json.Unmarshal([]byte(got.out), &document); err != nil || got.status != 0 {
				t.Fatalf("%v: %+v", err, got)
			}
			for key, want := range tt.want {
				value := document[key]
				if list, is := value.([]any); is {
					value = len(list)
				}
				if value != want {
					t.Errorf("%s is %v instead of %v", key, value, want)
				}
			}
		})
	}
}

func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for i := range 2500 {
		c.add(msghandlerv1.State_STATE_ABANDONED, "many", fmt.Sprint(i))
	}
	got := run(nil, "list", "--state=abandoned", "--limit=2100", "--server="+c.addr)
	lines := strings.Count(got.out, "\n")
	if got.status != 0 || lines != 2101 || !strings.Contains(got.err, "--limit=2100") {
		t.Errorf("status %d, %d lines: %s", got.status, lines, got.err)
	}
	want := `list STATE_ABANDONED  1000 from ""; list STATE_ABANDONED  1000 from "1000"; ` +
		`list STATE_ABANDONED  100 from "2000"`
	if asked := c.asked(); asked != want {
		t.Errorf("asked %s", asked)
	}
}

func TestRetryAndDiscard(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	env := []string{"MSGHANDLER_SERVER=" + c.addr}

	run(env, "retry", "orders/1001", "orders/1002").want(t, 0, "retried 2\n", "")
	run(env, "retry", "--state", "dead", "--producer", "orders", "--limit", "500", "--yes", "--reason", "queue bound").
		want(t, 0, "retried 3\n", "")
	want := "retry orders/1001; retry orders/1002; retry STATE_DEAD orders 500 queue bound"
	if asked := c.asked(); asked != want {
		t.Errorf("asked %s", asked)
	}
	run(env, "discard", "--state", "dead", "-y").want(t, 0, "discarded 3\n", "")
	c.asked()

	// Messages that cannot be changed are named, and the others are changed anyway.
	run(env, "discard", "orders/9", "orders/1001").want(t, 3, "discarded 1\n", "orders/9: no such message")
	run(env, "retry", "stock/7").want(t, 1, "", "stock/7: the coordinator at ")

	run(env, "retry", "stock/7").want(t, 1, "", "says: the message is pending (FailedPrecondition)")
	if got := run(env, "retry", "stock/7", "--output", "json"); !strings.Contains(got.out, `"retried": 0`) {
		t.Errorf("a program reads %q", got.out)
	}

	// Without a terminal there is no answer, so nothing is done.
	c.asked()
	run(env, "discard", "--state", "dead").want(t, 2, "", "add --yes")
	if asked := c.asked(); asked != "" {
		t.Errorf("asked %s", asked)
	}
}

func TestExitStatusOfErrors(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	server := "--server=" + c.addr
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	nobody := free.Addr().String()
	_ = free.Close()

	run(nil).want(t, 2, "", "msghandler --help")
	run(nil, "--help").want(t, 0, "Commands:", "")
	run(nil, "help").want(t, 0, "Commands:", "")
	run(nil, "help", "serve").want(t, 0, "--confirm.after", "")
	run(nil, "help", "dlq", "list").want(t, 0, "Usage: msghandler dlq list", "")
	run(nil, "help", "nonsense").want(t, 2, "", "unexpected argument nonsense")
	run(nil, "serve", "--help").want(t, 0, "--confirm.after", "")
	run(nil, "nonsense").want(t, 2, "", "unexpected argument nonsense")
	run(nil, "list", "--nonsense").want(t, 2, "", "unknown flag --nonsense; try: msghandler list --help")
	run(nil, "dlq", "list", "--nonsense").want(t, 2, "", "try: msghandler dlq list --help")
	run(nil, "list", "--limit=0", server).want(t, 2, "", "at least one")
	run(nil, "list", "--older-than=-5m", server).want(t, 2, "", "--older-than=-5m")
	run(nil, "tail", "--limit=-3", server).want(t, 2, "", "--limit=-3: at least one")
	run(nil, "tail", "--state=gone", server).want(t, 2, "", "write one of pending, sendable, done")
	run(nil, "audit", "--limit=0", server).want(t, 2, "", "at least one")
	run(nil, "audit", "--since=-1h", server).want(t, 2, "", "--since=-1h")
	run(nil, "audit", "--refused", "--failed", server).want(t, 2, "", "exclude each other")
	run(nil, "audit", "-f", "--output=yaml", server).want(t, 2, "", "a document a line")
	run(nil, "stats", "--timeout=0", server).want(t, 2, "", "--timeout=0s: more than no time")
	run(nil, "doctor", "--timeout=-1s", server).want(t, 2, "", "--timeout=-1s: more than no time")
	run(nil, "verify-producer", "orders", "127.0.0.1:1", "--timeout=0").want(t, 2, "", "--timeout=0s: more than no time")
	run(nil, "dlq", "list", "--queue=a", "--timeout=0").want(t, 2, "", "--timeout=0s: more than no time")
	run(nil, "dlq", "list", "--queue=").want(t, 2, "", "--queue is empty")
	for _, nowhere := range []string{"nonsense", "127.0.0.1:99999", ":0", "dns:///a"} {
		run(nil, "stats", "--server="+nowhere).want(t, 2, "", "is not a coordinator's address; write host:port")
	}
	run(nil, "list", "--state=done", server).want(t, 2, "", "pending, sendable, abandoned, dead and acknowledged")
	run(nil, "list", "--output=xml", server).want(t, 2, "", "table")
	run(nil, "show", "1001", server).want(t, 2, "", "PRODUCER/ID")
	run(nil, "show", "orders/9", server).want(t, 3, "", "orders/9: no such message")
	run(nil, "retry", server).want(t, 2, "", "which messages?")
	run(nil, "retry", "a/1", "--state=dead", server).want(t, 2, "", "not both")
	run(nil, "discard", "--state=dead", "--limit=-1", server).want(t, 2, "", "at least one")
	run([]string{"MSGHANDLER_GRPC_ADDR=" + nobody}, "stats").want(t, 1, "", "cannot reach the coordinator at "+nobody)
	run([]string{"MSGHANDLER_NONSENSE=1"}, "stats").want(t, 2, "", "MSGHANDLER_NONSENSE is not a known variable")
	run([]string{"MSGHANDLER_CONFIG=/nowhere.yaml"}, "serve").want(t, 2, "", "/nowhere.yaml")
	run(nil, "serve", "--confirm.after=5", "--set", "producers.orders.target=x").want(t, 2, "", "2 problems")
	run(nil, "version").want(t, 0, runtime.Version()+", ", "")
	run(nil, "--version").want(t, 0, "msghandler ", "")
	run(nil, "version", "--output=json").want(t, 0, `"version":`, "")

	away, err := status.New(codes.Unavailable, "the store cannot be reached").
		WithDetails(&errdetails.ErrorInfo{Domain: "msghandler"})
	must.Succeed(t, err)
	c.err = away.Err()
	run(nil, "stats", server).want(t, 1, "", "says: the store cannot be reached (Unavailable)")
	c.err = status.Error(codes.InvalidArgument, "page_size: at most 1000")
	run(nil, "stats", server).want(t, 2, "", "page_size: at most 1000")
}

func TestServerDefaultsToConfiguredAddress(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	_, port, err := net.SplitHostPort(c.addr)
	must.Succeed(t, err)
	run([]string{"MSGHANDLER_GRPC_ADDR=:" + port}, "stats").want(t, 0, "pending", "")
	run([]string{"MSGHANDLER_GRPC_ADDR=0.0.0.0:" + port}, "stats").want(t, 0, "pending", "")
}
