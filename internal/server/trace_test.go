package server

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestInvalidTracesAreIgnored(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		brought []string
		want    string
	}{
		{[]string{good}, good},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{good, good}, ""},
		{[]string{good + "\r\nCC: x"}, ""},
		{[]string{"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"}, ""},
	} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{"traceparent": c.brought})
		if got := traceOf(ctx); got != c.want {
			t.Errorf("%q is taken as %q", c.brought, got)
		}
	}
}
