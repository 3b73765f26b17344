package attend

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Client returns the service of a producer that attends. The deadline of a call bounds it; without replicas in reach a
// call fails with UNAVAILABLE at once.
func (h *Hub) Client(producer string) msghandlerv1.ProducerServiceClient {
	return client{hub: h, producer: producer}
}

// client implements msghandlerv1.ProducerServiceClient.
type client struct {
	hub      *Hub
	producer string
}

// Confirm implements msghandlerv1.ProducerServiceClient.
func (c client) Confirm(
	ctx context.Context, r *msghandlerv1.ConfirmRequest, _ ...grpc.CallOption,
) (*msghandlerv1.ConfirmResponse, error) {
	answer, err := c.hub.askReplica(ctx, c.producer, &msghandlerv1.AttendQuestion{
		Question: &msghandlerv1.AttendQuestion_Confirm{Confirm: r},
	})
	return answer.GetConfirm(), err
}

// DeleteBusiness implements msghandlerv1.ProducerServiceClient.
func (c client) DeleteBusiness(
	ctx context.Context, r *msghandlerv1.DeleteBusinessRequest, _ ...grpc.CallOption,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	answer, err := c.hub.askReplica(ctx, c.producer, &msghandlerv1.AttendQuestion{
		Question: &msghandlerv1.AttendQuestion_DeleteBusiness{DeleteBusiness: r},
	})
	return answer.GetDeleteBusiness(), err
}

// statusOf is the status of an error.
func statusOf(err error) *status.Status {
	if errors.Is(err, errMessageTooLarge) {
		return status.New(codes.ResourceExhausted, err.Error())
	}
	return status.Convert(err)
}
