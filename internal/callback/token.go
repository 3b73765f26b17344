package callback

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/proto/certs"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// withToken calls a producer with the current token.
type withToken struct {
	producer msghandlerv1.ProducerServiceClient
	token    func() string
}

// Confirm implements msghandlerv1.ProducerServiceClient.
func (w withToken) Confirm(
	ctx context.Context, request *msghandlerv1.ConfirmRequest, options ...grpc.CallOption,
) (*msghandlerv1.ConfirmResponse, error) {
	return w.producer.Confirm(certs.WithToken(ctx, w.token()), request, options...)
}

// DeleteBusiness implements msghandlerv1.ProducerServiceClient.
func (w withToken) DeleteBusiness(
	ctx context.Context, request *msghandlerv1.DeleteBusinessRequest, options ...grpc.CallOption,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	return w.producer.DeleteBusiness(certs.WithToken(ctx, w.token()), request, options...)
}

// hideToken removes the token of a call from what its producer said: a server may repeat the headers of a call in its
// error, which is stored, logged and shown.
func hideToken(said, token string) string {
	if token == "" {
		return said
	}
	return strings.ReplaceAll(said, token, "[token]")
}
