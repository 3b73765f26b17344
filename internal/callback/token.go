package callback

import (
	"context"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/certs"
)

// withToken is a connection whose unary calls carry the current token. ProducerService has only unary calls.
type withToken struct {
	grpc.ClientConnInterface
	token func() string
}

// Invoke implements grpc.ClientConnInterface.
func (w *withToken) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	return w.ClientConnInterface.Invoke(certs.WithToken(ctx, w.token()), method, request, reply, options...)
}
