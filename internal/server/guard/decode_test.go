package guard

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// wired encodes a field of bytes.
func wired(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// header encodes a header that has a name and a value of no bytes.
func header(i int) []byte { return wired(6, append(wired(1, fmt.Append(nil, i)), wired(2, nil)...)) }

// limits are those of a coordinator.
var limits = Limits{Items: 1000, Headers: 32}

// decode reads a request as the server does.
func decode(request proto.Message, data []byte) *FieldError {
	in := &incoming{request: request}
	if err := newCodec(limits).Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, in); err != nil {
		return &FieldError{"", err.Error()}
	}
	return in.err
}

// Within the size limit there is room for millions of items, which would take gigabytes once they are decoded. So a
// request with too many items is not decoded at all.
func TestTooManyItemsAreRefusedUndecoded(t *testing.T) {
	t.Parallel()
	many := func(number protowire.Number) []byte { return bytes.Repeat(wired(number, nil), 10*limits.Items) }
	names := func(n int) []byte { return wired(1, bytes.Repeat(wired(1, nil), n)) } // in the selection
	headers := func(n int) (all []byte) {
		for i := range n {
			all = append(all, header(i)...)
		}
		return wired(3, all)
	}
	for _, tc := range []struct {
		name    string
		request proto.Message
		data    []byte
		field   string
	}{
		{"messages", &msghandlerv1.SendHalfMessagesRequest{}, many(3), "messages"},
		{"messages, and what cannot be read", &msghandlerv1.SendHalfMessagesRequest{}, append(many(3), 0xff), "messages"},
		{"ids", &msghandlerv1.SubmitAllRequest{}, many(2), "ids"},
		{"names to retry", &adminv1.RetryMessagesRequest{}, names(limits.Items + 1), "selection.names"},
		{"names to discard", &adminv1.DiscardMessagesRequest{}, names(limits.Items + 1), "selection.names"},
		{
			"names in two parts of a selection", &adminv1.ReplayMessagesRequest{},
			append(names(limits.Items), names(1)...), "selection.names",
		},
		{"states, packed", &adminv1.TailMessagesRequest{}, wired(2, bytes.Repeat([]byte{3}, 10*limits.Items)), "states"},
		{
			"states, each alone", &adminv1.TailMessagesRequest{}, bytes.Repeat([]byte{2 << 3, 3}, 10*limits.Items),
			"states",
		},
		{"headers of one message", &msghandlerv1.SendHalfMessageRequest{}, headers(limits.nested() + 1), "headers"},
		{
			"headers of a batch", &msghandlerv1.SendHalfMessagesRequest{}, bytes.Repeat(headers(limits.nested()/100), 101),
			"headers",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused := decode(tc.request, tc.data)
			if refused == nil || refused.Field != tc.field {
				t.Fatalf("got %v, want an error of %s", refused, tc.field)
			}
			if n := proto.Size(tc.request); n != 0 {
				t.Errorf("%d bytes of the request were decoded anyway", n)
			}
		})
	}
}

// A request at the limits of a call, or over the limits of one message only, is decoded and then judged item by item.
func TestAFullBatchIsDecoded(t *testing.T) {
	t.Parallel()
	var headers []byte
	for i := range limits.Headers {
		headers = append(headers, header(i)...)
	}
	many := wired(3, append(headers, header(limits.Headers)...))
	r := &msghandlerv1.SendHalfMessagesRequest{}
	if err := decode(r, append(bytes.Repeat(wired(3, headers), limits.Items-1), many...)); err != nil ||
		len(r.GetMessages()) != limits.Items {
		t.Errorf("%d of %d messages: %v", len(r.GetMessages()), limits.Items, err)
	}
	if n := len(r.GetMessages()[limits.Items-1].GetHeaders()); n != limits.Headers+1 {
		t.Errorf("the last has %d headers", n)
	}
}
