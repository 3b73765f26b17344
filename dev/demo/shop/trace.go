package shop

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// Header is the header that carries a trace, in HTTP and in messages: W3C Trace Context.
const Header = "traceparent"

// VERSION-TRACE-SPAN-FLAGS
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

type traceKey struct{}

// WithTrace gives a context the trace of a call or a message, and a new trace where there is none. A context that has a
// trace keeps it.
func WithTrace(ctx context.Context, parent string) context.Context {
	if Traceparent(ctx) != "" {
		return ctx
	}
	if !traceparent.MatchString(parent) {
		id := make([]byte, 16+8)
		_, _ = rand.Read(id) // never fails
		parent = "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-00"
	}
	return context.WithValue(ctx, traceKey{}, parent)
}

// Traceparent is the header for what a context's work sends; empty without a trace.
func Traceparent(ctx context.Context) string {
	parent, _ := ctx.Value(traceKey{}).(string)
	return parent
}

// TraceID is the id of the context's trace; empty without a trace.
func TraceID(ctx context.Context) string {
	if parent := Traceparent(ctx); parent != "" {
		return parent[3 : 3+32]
	}
	return ""
}
