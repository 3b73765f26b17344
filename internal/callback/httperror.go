package callback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// httpError is a failed call by HTTP. The code is the one with which a call by gRPC fails for the same reason.
type httpError struct {
	code  codes.Code
	said  string
	cause error
}

// Error implements error.
func (e *httpError) Error() string { return e.GRPCStatus().Err().Error() }

// GRPCStatus gives the error its code.
func (e *httpError) GRPCStatus() *status.Status { return status.New(e.code, e.said) }

// Unwrap gives the cause, which may be nil.
func (e *httpError) Unwrap() error { return e.cause }

// handshakeError is a failed handshake of TLS. Its text is gRPC's.
type handshakeError struct{ cause error }

// Error implements error.
func (e *handshakeError) Error() string { return "authentication handshake failed: " + e.cause.Error() }

// Unwrap gives the cause.
func (e *handshakeError) Unwrap() error { return e.cause }

// failure describes a call without an answer. The texts name no port of ours: as causes of a message they must be
// equal.
func (h *httpTransport) failure(ctx context.Context, err error, connected bool) error {
	switch {
	case h.open.Err() != nil:
		return &httpError{code: codes.Canceled, said: errClosed.Error(), cause: err}
	case errors.Is(ctx.Err(), context.Canceled):
		return &httpError{code: codes.Canceled, said: context.Canceled.Error(), cause: err}
	case ctx.Err() != nil && connected:
		return &httpError{code: codes.DeadlineExceeded, said: context.DeadlineExceeded.Error(), cause: err}
	case ctx.Err() != nil:
		return &httpError{code: codes.DeadlineExceeded, said: "waiting for connections to become ready", cause: err}
	}
	said := err.Error()
	var on *net.OpError
	var handshake *handshakeError
	switch {
	case errors.As(err, &handshake):
		said = handshake.Error()
	case errors.As(err, &on) && on.Op == "dial" && on.Addr != nil:
		said = fmt.Sprintf("dial %s: %s", on.Addr, on.Err)
	case broken(err):
		said = "the connection was closed before the end of the answer"
	case errors.As(err, &on):
		said = fmt.Sprintf("%s: %s", on.Op, on.Err)
	case strings.Contains(said, "malformed HTTP"), strings.Contains(said, "readLoopPeekFailLocked"):
		// The server of another protocol may even speak first.
		said = "what answers does not speak HTTP/1.1"
	}
	return &httpError{code: codes.Unavailable, said: said, cause: err}
}

// broken says that a connection ended during a call. Which of these errors net/http returns is a matter of chance.
func broken(err error) bool {
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	return strings.Contains(err.Error(), closedIdle)
}

// closedIdle is in the error of net/http about a connection that ended before its first request was written. The error
// itself is not exported.
const closedIdle = "server closed idle connection"

// httpCodes are the codes of answers that are none. Other answers from 400 to 499 are InvalidArgument: the producer
// took the call and found fault with its content. All others are Internal.
var httpCodes = map[int]codes.Code{
	http.StatusSwitchingProtocols:   codes.Unimplemented,
	http.StatusUnauthorized:         codes.Unauthenticated,
	http.StatusForbidden:            codes.PermissionDenied,
	http.StatusNotFound:             codes.Unimplemented,
	http.StatusMethodNotAllowed:     codes.Unimplemented,
	http.StatusNotAcceptable:        codes.Unimplemented,
	http.StatusGone:                 codes.Unimplemented,
	http.StatusUnsupportedMediaType: codes.Unimplemented,
	http.StatusNotImplemented:       codes.Unimplemented,
	http.StatusRequestTimeout:       codes.DeadlineExceeded,
	http.StatusConflict:             codes.FailedPrecondition,
	http.StatusTooManyRequests:      codes.ResourceExhausted,
	http.StatusBadGateway:           codes.Unavailable,
	http.StatusServiceUnavailable:   codes.Unavailable,
	http.StatusGatewayTimeout:       codes.Unavailable,
}

// refusal describes an answer whose status is not 200.
func refusal(answer *http.Response, body []byte) error {
	failed := &httpError{
		said: strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))),
	}
	code, listed := httpCodes[answer.StatusCode]
	switch class := answer.StatusCode / 100; {
	case listed:
		failed.code = code
	case class == 2:
		failed.code = codes.Internal
		failed.said += "; answer with 200 and JSON"
		return failed
	case class == 3:
		failed.code = codes.Unimplemented
		failed.said += fmt.Sprintf(" to %s; redirects are not followed: name the URL itself", locationHost(answer))
		return failed
	case class == 4:
		failed.code = codes.InvalidArgument
	default:
		failed.code = codes.Internal
	}
	if words := wordsOf(answer, body); words != "" {
		failed.said += ": " + words
	}
	return failed
}

// wordsOf is what the body of a refusal says to people, without the token of the call.
func wordsOf(answer *http.Response, body []byte) string {
	if isHTML(answer) {
		return ""
	}
	_, token, _ := strings.Cut(answer.Request.Header.Get("Authorization"), " ")
	words := strings.TrimSpace(hideToken(string(body), token))
	return words[:min(len(words), maxSaid)]
}

// locationHost names the scheme and host of a redirect. The rest of the URL may hold a secret.
func locationHost(answer *http.Response) string {
	to, err := url.Parse(answer.Header.Get("Location"))
	switch {
	case err != nil || answer.Header.Get("Location") == "":
		return "a place that is not named"
	case to.Host == "":
		return "another path of the same host"
	case to.Scheme == "":
		return to.Host
	}
	return to.Scheme + "://" + to.Host
}

func isHTML(answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return media == "text/html" || media == "application/xhtml+xml"
}
