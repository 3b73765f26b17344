package doctor

import (
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/callback"
)

// isURL says whether a producer is called by HTTP.
func isURL(target string) bool {
	return strings.HasPrefix(target, "http://") || strings.HasPrefix(target, httpsScheme)
}

const httpsScheme = "https://"

// noHTTP is in the error about a server that answers a call by HTTP in another protocol.
const noHTTP = "does not speak HTTP/1.1"

// plainToTLS is in the error of a TLS server in Go that is called without TLS.
const plainToTLS = "HTTP request to an HTTPS server"

// closedEarly is in the error about a call by HTTP whose connection ended without an answer.
const closedEarly = "the connection was closed before the end of the answer"

// unusableURL reports a call by HTTP that failed for a reason with a remedy of its own.
func (r *report) unusableURL(away *callback.CallError, err error) (reported bool) {
	const why = "its messages wait until it answers"
	if away == nil || !isURL(away.Target) {
		return false
	}
	switch {
	case away.Malformed():
		r.trouble("producer-no-verdict", err.Error(), "no answer is no verdict, and a bare true or false says nothing of "+
			"a single message: its messages wait", "answer with a verdict for each id, by its name; an id without a row is "+
			"VERDICT_UNKNOWN, never ROLLED_BACK or false, because its transaction may commit a moment later")
	case away.Code() == codes.Unimplemented, strings.Contains(err.Error(), noHTTP):
		r.trouble("producer-no-service", err.Error(), why,
			"name the URL below which it takes POST /confirm and POST /deleteBusiness; for a producer by gRPC write host:port")
	case strings.Contains(err.Error(), plainToTLS):
		r.trouble("producer-no-service", err.Error(), why, "write https:// in its URL: that port takes TLS only")
	default:
		return false
	}
	return true
}
