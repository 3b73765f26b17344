package server

import (
	"context"
	"regexp"

	"google.golang.org/grpc/metadata"
)

// traceparent is the form of the header of W3C Trace Context that every version can be read as.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf is the trace that a call brings, or "". What is none is left out: a trace is worth no error.
func traceOf(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(values) != 1 || !traceparent.MatchString(values[0]) {
		return ""
	}
	return values[0]
}
