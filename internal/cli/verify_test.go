package cli_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// answering is a producer that says the same of every id.
type answering struct {
	pb.UnimplementedProducerServiceServer
	verdict pb.Verdict
	// fails is the answer in place of a verdict.
	fails error
}

func (a answering) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if a.fails != nil {
		return nil, a.fails
	}
	if r.GetProducer() != "orders" {
		return nil, status.Error(codes.FailedPrecondition, "this is the producer orders")
	}
	answer := &pb.ConfirmResponse{}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(r.GetIds()))) {
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: a.verdict})
	}
	return answer, nil
}

func (a answering) DeleteBusiness(context.Context, *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	return &pb.DeleteBusinessResponse{}, nil
}

func (a answering) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// The exit status tells a step of CI what happened: each kind of end has its own.
func TestVerifyProducerExitStatus(t *testing.T) {
	t.Parallel()
	env := []string{"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*"}
	undecided := answering{verdict: pb.Verdict_VERDICT_UNKNOWN}.serve(t)
	lying := answering{verdict: pb.Verdict_VERDICT_COMMITTED}.serve(t)
	refusing := answering{fails: status.Error(codes.Unauthenticated, "no token")}.serve(t)
	stock := answering{fails: status.Error(codes.FailedPrecondition, "this is the producer stock")}.serve(t)
	file := filepath.Join(t.TempDir(), "no", "report.xml")
	for name, c := range map[string]struct {
		args   []string
		status int
		out    string
		err    string
	}{
		"warnings":         {[]string{undecided}, 0, "producer-undecided", ""},
		"failing warnings": {[]string{undecided, "--fail-on=warning"}, 1, "producer-undecided", "--fail-on=warning"},
		"trouble":          {[]string{lying}, 1, "producer-commits-unknown", "there is trouble"},
		"wrong usage":      {[]string{lying, "--fail-on=note"}, 2, "", "--fail-on"},
		"unwritten report": {[]string{undecided, "--junit=" + file}, 1, "producer-undecided", "the report is not written"},
		"not reached":      {[]string{"127.0.0.1:1"}, 4, "producer-away", "was not examined"},
		"away, no database": {
			[]string{"127.0.0.1:1", "--database-away"}, 4, "producer-away", "was not examined",
		},
		"another":   {[]string{stock}, 4, "producer-another", "was not examined"},
		"refusing":  {[]string{refusing}, 4, "producer-refuses", "was not examined"},
		"forbidden": {[]string{"orders.svc:9000"}, 4, "producer-forbidden", "was not examined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(env, append([]string{"verify-producer", "orders"}, c.args...)...).want(t, c.status, c.out, c.err)
		})
	}
}

// A report has a test case for each check, in the form that CI systems read.
func TestVerifyProducerWritesJUnit(t *testing.T) {
	t.Parallel()
	env := []string{"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*"}
	undecided := answering{verdict: pb.Verdict_VERDICT_UNKNOWN}.serve(t)
	lying := answering{verdict: pb.Verdict_VERDICT_COMMITTED}.serve(t)
	for name, c := range map[string]struct {
		args             []string
		status           int
		failures, errors int
		check, problem   string
	}{
		"well":        {[]string{undecided}, 0, 0, 0, "final", ""},
		"warning":     {[]string{undecided, "--fail-on=warning"}, 1, 1, 0, "final", "producer-undecided"},
		"trouble":     {[]string{lying}, 1, 1, 0, "reach", "producer-commits-unknown"},
		"not reached": {[]string{"127.0.0.1:1"}, 4, 0, 1, "reach", "producer-away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "report.xml")
			args := append([]string{"verify-producer", "orders", "--junit=" + file}, c.args...)
			if ended := run(env, args...); ended.status != c.status {
				t.Errorf("exit status %d instead of %d: %s", ended.status, c.status, ended.err)
			}
			data, err := os.ReadFile(file)
			must.Succeed(t, err)
			fitsJUnitSchema(t, data)
			var report struct {
				Suite struct {
					Tests    int `xml:"tests,attr"`
					Failures int `xml:"failures,attr"`
					Errors   int `xml:"errors,attr"`
					Cases    []struct {
						Name    string    `xml:"name,attr"`
						Failure []problem `xml:"failure"`
						Error   []problem `xml:"error"`
					} `xml:"testcase"`
				} `xml:"testsuite"`
			}
			must.Succeed(t, xml.Unmarshal(data, &report))
			s := report.Suite
			if s.Tests != len(s.Cases) || s.Failures != c.failures || s.Errors != c.errors {
				t.Errorf("the report counts %d tests, %d failures, %d errors: %s", s.Tests, s.Failures, s.Errors, data)
			}
			for _, is := range s.Cases {
				problems := slices.Concat(is.Failure, is.Error)
				if is.Name == c.check && c.problem != "" && len(problems) > 0 && problems[0].Type == c.problem ||
					is.Name == c.check && c.problem == "" && len(problems) == 0 {
					return
				}
			}
			t.Errorf("no case %s with the problem %q: %s", c.check, c.problem, data)
		})
	}
}

type problem struct {
	Type string `xml:"type,attr"`
}

// junitSchema is what the schema of Jenkins (jenkins-junit.xsd) allows of the elements in a report: their attributes,
// and the elements in them in their order. Other CI systems read this schema too.
var junitSchema = map[string]struct{ attributes, elements []string }{
	"":           {nil, []string{"testsuites"}},
	"testsuites": {[]string{"name", "time", "tests", "failures", "disabled", "errors"}, []string{"testsuite"}},
	"testsuite": {
		[]string{
			"name", "tests", "failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package",
		},
		[]string{"properties", "testcase", "system-out", "system-err"},
	},
	"testcase": {
		[]string{"name", "assertions", "time", "classname", "status"},
		[]string{"skipped", "error", "failure", "system-out", "system-err"},
	},
	"error":      {[]string{"type", "message"}, nil},
	"failure":    {[]string{"type", "message"}, nil},
	"system-out": {},
}

// numbers are the attributes that hold numbers.
var numbers = []string{"tests", "failures", "errors", "skipped", "time"}

func fitsJUnitSchema(t *testing.T, data []byte) {
	t.Helper()
	type open struct {
		name string
		last int
	}
	stack := []open{{}}
	for decoder := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := decoder.Token()
		switch token := token.(type) {
		case nil:
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.StartElement:
			parent, name := &stack[len(stack)-1], token.Name.Local
			place := slices.Index(junitSchema[parent.name].elements, name)
			if place < parent.last {
				t.Errorf("<%s> may not stand here in <%s>", name, parent.name)
			}
			parent.last = max(place, 0)
			for _, a := range token.Attr {
				if !slices.Contains(junitSchema[name].attributes, a.Name.Local) {
					t.Errorf("<%s> has no attribute %s", name, a.Name.Local)
				}
				if _, err := strconv.ParseFloat(a.Value, 64); err != nil && slices.Contains(numbers, a.Name.Local) {
					t.Errorf("%s of <%s> is %q", a.Name.Local, name, a.Value)
				}
			}
			if name == "testsuite" && !strings.Contains(string(data), `timestamp="20`) {
				t.Error("the suite has no time")
			}
			stack = append(stack, open{name: name})
		}
	}
}
