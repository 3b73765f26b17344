package server

import (
	"context"
	"regexp"

	"google.golang.org/grpc/metadata"
)

// traceparent is the form of the header of W3C Trace Context in every version.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf is the traceparent of a call, or "". An invalid traceparent is ignored: no call fails because of its trace.
func traceOf(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(values) != 1 || !traceparent.MatchString(values[0]) {
		return ""
	}
	return values[0]
}
