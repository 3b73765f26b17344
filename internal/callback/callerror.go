package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// CallError says that a call to a producer failed. No code is ever a verdict, NOT_FOUND and UNIMPLEMENTED included.
type CallError struct {
	// Method is Confirm or DeleteBusiness.
	Method string
	// Producer is the producer's name.
	Producer string
	// Target is the dialled target.
	Target string
	// Timeout is the time limit of the call.
	Timeout time.Duration
	// Reached says that the producer was reached and failed the call itself, so that a message may be the reason.
	Reached bool

	kind  kind
	token string
	err   error
}

// Error names the target and the status code. The producer's text is cut, made printable, and has no token.
func (e *CallError) Error() string {
	st := status.Convert(e.err)
	said := printable(hideToken(st.Message(), e.token))
	switch {
	case st.Code() == codes.DeadlineExceeded && isTimeout(said):
		said = fmt.Sprintf("no answer within %s", e.Timeout)
	case st.Code() == codes.DeadlineExceeded:
		said = fmt.Sprintf("no answer within %s (%s)", e.Timeout, said)
	case e.Unresolved():
		said = "the name does not resolve here, or has no address"
	case st.Code() == codes.Unimplemented && e.kind == kindGRPC:
		said += "; does that server serve msghandler.v1.ProducerService?"
	case st.Code() == codes.Unimplemented && e.kind == kindHTTP:
		said += fmt.Sprintf("; does %s%s take a POST?", e.Target, httpPaths[e.Method])
	case e.Refused():
		said += "; give this coordinator a token (callbacks.token_file) or certificate (callbacks.tls_cert) " +
			"that the producer accepts"
	}
	return fmt.Sprintf("%s of producer %s at %s: %s: %s", e.Method, e.Producer, e.Target, st.Code(), said)
}

// isTimeout reports whether a status text says only that time was over. The texts differ with the side that noticed
// first. As causes of a message they must be equal.
func isTimeout(said string) bool {
	return said == context.DeadlineExceeded.Error() || strings.HasPrefix(said, "stream terminated by RST_STREAM")
}

// Unresolved reports that the target's name has no address. gRPC gives no other sign than its text.
func (e *CallError) Unresolved() bool {
	var unknown *net.DNSError
	if errors.As(e.err, &unknown) {
		return unknown.IsNotFound
	}
	return e.Code() == codes.Unavailable && strings.Contains(status.Convert(e.err).Message(), "no children to pick from")
}

// Refused reports that the producer does not accept the caller as a coordinator.
func (e *CallError) Refused() bool {
	return e.Code() == codes.Unauthenticated || e.Code() == codes.PermissionDenied
}

// Unwrap gives the error, which has a gRPC status.
func (e *CallError) Unwrap() error { return e.err }

// Code is the gRPC status code of the failure.
func (e *CallError) Code() codes.Code { return status.Code(e.err) }

// Is reports that the error is halfmsg.ErrCallFailed where the producer was reached.
func (e *CallError) Is(target error) bool {
	return target == halfmsg.ErrCallFailed && e.Reached
}

// reached reports whether a producer answers a code because of a message. The other codes come from the network, a
// deadline, a server without the service, or a refusal of the caller.
func reached(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Unimplemented,
		codes.Unauthenticated, codes.PermissionDenied:
		return false
	}
	return true
}

// maxSaid is how much of a producer's own words an error repeats.
const maxSaid = 300

func printable(s string) string {
	if len(s) > maxSaid {
		s = s[:maxSaid] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
