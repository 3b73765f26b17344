package server_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// newer adds to a request what a newer caller may say, such as a filter.
func newer[M proto.Message](request M) M {
	field := protowire.AppendTag(nil, 999, protowire.BytesType)
	request.ProtoReflect().SetUnknown(protowire.AppendString(field, "order.paid"))
	return request
}

func TestUnknownFilterFieldsAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1", halfmsg.Dead)
	dead, names := msghandlerv1.State_STATE_DEAD, []*adminv1.MessageName{{Producer: "orders", Id: "1"}}
	byFilter := &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead}}
	for _, request := range []proto.Message{
		&adminv1.DiscardMessagesRequest{Selection: byFilter},
		&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: names}},
		&adminv1.RetryMessagesRequest{Selection: byFilter},
		&adminv1.ListMessagesRequest{Filter: byFilter.GetFilter()},
	} {
		wantCode(t, h.invoke(t.Context(), newer(request)), codes.Unimplemented)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := h.operators.TailMessages(ctx, newer(&adminv1.TailMessagesRequest{}))
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, err, codes.Unimplemented)
	if r := h.store.records[halfmsg.Name{Producer: "orders", ID: "1"}]; r.State != halfmsg.Dead {
		t.Errorf("the message is %s", r.State)
	}
}
