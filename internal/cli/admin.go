package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// serverFlags are the flags of the commands whose calls take no longer than others.
type serverFlags struct {
	commandline.CoordinatorFlags
	Timeout time.Duration `default:"10s" help:"How long one call may take."`
}

// adminFlags are the flags of the commands that ask a coordinator.
type adminFlags struct {
	serverFlags
	Output string `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// maxAnswer is the largest answer taken: a page of 1,000 messages with all their headers fits.
const maxAnswer = 64 << 20

// admin is a connection to a coordinator. Each unary call has the timeout of --timeout, and an error for people.
type admin struct {
	*grpc.ClientConn
	client  adminv1.AdminServiceClient
	server  string
	timeout time.Duration
	// hint says why a running coordinator may not answer; may be empty.
	hint string
}

func (f *serverFlags) connect(s *commandline.Session) (*admin, error) {
	return connectWithin(s, &f.CoordinatorFlags, f.Timeout)
}

// connectWithin connects; each call may take so long.
func connectWithin(s *commandline.Session, f *commandline.CoordinatorFlags, timeout time.Duration) (*admin, error) {
	if err := commandline.Positive("timeout", timeout); err != nil {
		return nil, err
	}
	at, err := f.Coordinator(s, nil)
	if err == nil {
		err = commandline.CheckCoordinator(at.Address)
	}
	if err != nil {
		return nil, commandline.UsageError{Err: err}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(at.Credentials), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
	if at.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(at.Token))
	}
	conn, err := grpc.NewClient(at.Address, options...)
	if err != nil {
		return nil, commandline.UsageError{
			Err: fmt.Errorf("%q is not a coordinator's address; write host:port: %w", at.Address, err),
		}
	}
	a := &admin{ClientConn: conn, server: at.Address, timeout: timeout, hint: at.Hint}
	a.client = adminv1.NewAdminServiceClient(a)
	return a, nil
}

// Close ends the connection.
func (a *admin) Close() { _ = a.ClientConn.Close() }

// Invoke implements grpc.ClientConnInterface.
func (a *admin) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.explain(a.ClientConn.Invoke(ctx, method, request, answer, options...))
}

// explain turns the error of a call into an error for people.
func (a *admin) explain(err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	switch {
	case st.Code() == codes.NotFound:
		return commandline.NotFoundError{Err: errors.New(st.Message())}
	case st.Code() == codes.InvalidArgument:
		return commandline.UsageError{Err: errors.New(inFlags(st))}
	case st.Code() == codes.Unavailable && certs.Unmet(st.Message()):
		return fmt.Errorf("the coordinator at %s is not ready, or its TLS settings and those of this command do not match; "+
			"look at its log, or correct --tls and the flags beside it in --help%s (%s)", a.server, a.hint, st.Message())
	case st.Code() == codes.Unavailable && !fromCoordinator(st):
		return fmt.Errorf("cannot reach the coordinator at %s: is it running and ready? Name another with --server or "+
			"MSGHANDLER_SERVER%s (%s)", a.server, a.hint, st.Message())
	case st.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("the coordinator at %s did not answer within %s: the coordinator or its Redis may be busy "+
			"or hang, or another program listens there; ask msghandler doctor, or raise --timeout", a.server, a.timeout)
	case st.Code() == codes.Unimplemented:
		return fmt.Errorf("the server at %s is no coordinator, or lacks this command or flag; nothing was done; "+
			"install this command's version there, or name another server with --server (%s)", a.server, st.Message())
	case st.Code() == codes.Canceled:
		return errors.New("interrupted")
	}
	if st.Code() == codes.Unauthenticated {
		return fmt.Errorf("the coordinator at %s does not know who calls: %s; show it a token with --token-file or "+
			"MSGHANDLER_TOKEN, or a certificate with --tls-cert and --tls-key", a.server, st.Message())
	}
	return fmt.Errorf("the coordinator at %s says: %s (%s)%s", a.server, strings.TrimSuffix(st.Message(), "."), st.Code(),
		further(st.Code()))
}

// flagsOf are the flags by the fields of requests, where a field has no flag of its own name.
var flagsOf = map[string]string{
	"max_age": "since", "min_age": "older-than", "page_size": "limit", "id_prefix": "id", "ending": "state",
	"error_contains": "error", "cause_contains": "cause", "actor_contains": "by", "action_contains": "action",
	"id": "id", "producer": "producer", "consumer": "consumer", "exchange": "exchange", "broker": "broker",
	"routing_key": "routing-key", "header": "header", "cause": "cause", "since": "since", "until": "until",
	"limit": "limit", "reason": "reason", "new_id_suffix": "new-id-suffix", "queue": "queue", "state": "state",
}

// inFlags says what is wrong with a request in the words of the command line. A field of a named message, which is no
// flag, keeps its path.
func inFlags(st *status.Status) string {
	var wrong []string
	for _, detail := range st.Details() {
		if request, is := detail.(*errdetails.BadRequest); is {
			for _, v := range request.GetFieldViolations() {
				field := v.GetField()
				if flag := flagsOf[field[strings.LastIndex(field, ".")+1:]]; flag != "" && !strings.Contains(field, "[") {
					field = "--" + flag
				}
				wrong = append(wrong, strings.TrimSpace(field+" "+v.GetDescription()))
			}
		}
	}
	return cmp.Or(strings.Join(wrong, "; "), st.Message())
}

// further names the next step where an answer does not name the cause.
func further(code codes.Code) string {
	if code == codes.Unavailable || code == codes.Unknown {
		return "; msghandler doctor finds the cause"
	}
	return ""
}

// fromCoordinator tells an UNAVAILABLE that a coordinator answered from one that the transport made up: the
// coordinator's say why in their details.
func fromCoordinator(st *status.Status) bool {
	for _, detail := range st.Details() {
		switch detail.(type) {
		case *errdetails.ErrorInfo, *errdetails.RetryInfo:
			return true
		}
	}
	return false
}
