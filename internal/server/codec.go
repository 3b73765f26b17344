package server

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // gRPC itself answers unknown encodings, and nothing would be logged
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A request that cannot be read is the caller's fault, but gRPC answers it with INTERNAL and no field's name, before
// any handler or interceptor sees it. So readable decodes requests into an incoming, the codec leaves its error there
// rather than with gRPC, and the answer is INVALID_ARGUMENT with the field. (A request over the server's size limit is
// not even decoded: gRPC refuses it with RESOURCE_EXHAUSTED, without RetryInfo.)
//
// It also counts before it decodes. An empty item is two bytes on the wire and more than a hundred in memory, so a
// request within the size limit could take gigabytes before any handler counted its items.

// incoming is a request on its way in.
type incoming struct {
	request any
	err     *invalidError
}

// codec is gRPC's own for protobuf that knows incoming.
type codec struct {
	encoding.CodecV2
	// decoding holds the places for large requests that are being decoded: each takes its size twice more meanwhile.
	decoding chan struct{}
}

const (
	// maxDecoding is how many large requests are decoded at once; it is quick work of the CPU.
	maxDecoding = 2
	// largeRequest is from how many bytes on a request is large to its decoder.
	largeRequest = 1 << 20
)

func newCodec() codec {
	return codec{encoding.GetCodecV2(protocodec.Name), make(chan struct{}, maxDecoding)}
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	message, ok := in.request.(proto.Message)
	if !ok {
		return fmt.Errorf("a request of type %T is no protobuf message", in.request)
	}
	if data.Len() >= largeRequest {
		c.decoding <- struct{}{}
		defer func() { <-c.decoding }()
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	descriptor := message.ProtoReflect().Descriptor()
	if in.err = crowded(whole.ReadOnlyData(), descriptor); in.err != nil {
		return nil
	}
	if err := c.CodecV2.Unmarshal(mem.BufferSlice{whole}, message); err == nil {
		return nil
	}
	in.err = invalid("", "the request cannot be read: it is not what msghandler.v1 says")
	if path := invalidText(whole.ReadOnlyData(), descriptor, ""); path != "" {
		in.err = invalid(path, "must be valid UTF-8")
	}
	return nil
}

// maxNested is how many items the messages of one request may hold in all, such as headers: twice what a full batch
// needs, so that a message with too many is still judged alone.
const maxNested = 2 * maxItems * maxHeaders

// crowded says of an encoded request that it holds more items than any may; nil when it does not.
func crowded(data []byte, request protoreflect.MessageDescriptor) *invalidError {
	var found *invalidError
	items, nested := map[protowire.Number]int{}, 0
	eachItem(data, request, 0, func(depth int, field protoreflect.FieldDescriptor, n int) bool {
		switch {
		case depth > 0:
			if nested += n; nested > maxNested {
				found = invalid(string(field.Name()), fmt.Sprintf(
					"are more than %d in all; send the messages in several calls, with at most %d each", maxNested, maxHeaders))
			}
		default:
			if items[field.Number()] += n; items[field.Number()] > maxItems {
				found = invalid(string(field.Name()), fmt.Sprintf("are more than %d; send the rest in further calls", maxItems))
			}
		}
		return found == nil
	})
	return found
}

// eachItem calls see with each part of an encoded message that adds n items to a repeated field or a map, in whatever
// depth, until it returns false. What cannot be read ends it: a decoder comes no further.
func eachItem(
	data []byte, in protoreflect.MessageDescriptor, depth int,
	see func(depth int, field protoreflect.FieldDescriptor, n int) bool,
) (more bool) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return true
		}
		value := data[n : n+size]
		data = data[n+size:]
		field := in.Fields().ByNumber(number)
		if field == nil {
			continue
		}
		if field.Cardinality() == protoreflect.Repeated && !see(depth, field, itemsIn(value, field, kind)) {
			return false
		}
		if field.Kind() != protoreflect.MessageKind || field.IsMap() || kind != protowire.BytesType {
			continue
		}
		if inner, _ := protowire.ConsumeBytes(value); !eachItem(inner, field.Message(), depth+1, see) {
			return false
		}
	}
	return true
}

// itemsIn is how many items one value on the wire adds to a repeated field. Numbers may come packed, many in one value.
func itemsIn(value []byte, field protoreflect.FieldDescriptor, kind protowire.Type) int {
	if kind != protowire.BytesType || !field.IsPacked() {
		return 1
	}
	inner, _ := protowire.ConsumeBytes(value)
	ends := 0 // all of ours are varints, whose last byte has no high bit
	for _, b := range inner {
		if b < 0x80 {
			ends++
		}
	}
	return ends
}

// readable returns a service whose methods answer a request that cannot be read with INVALID_ARGUMENT.
func (s *Server) readable(service *grpc.ServiceDesc) *grpc.ServiceDesc {
	wrapped := *service
	wrapped.Methods = make([]grpc.MethodDesc, len(service.Methods))
	for i, method := range service.Methods {
		handler, name := method.Handler, "/"+service.ServiceName+"/"+method.MethodName
		method.Handler = func(
			server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			if a := arrivalOf(ctx); a != nil {
				a.claim()
				defer a.end()
			}
			return handler(server, ctx, func(v any) error { return s.arrive(ctx, name, decode, v) }, interceptor)
		}
		wrapped.Methods[i] = method
	}
	return &wrapped
}

func read(decode func(any) error, v any) error {
	in := &incoming{request: v}
	if err := decode(in); err != nil {
		return err
	}
	if in.err != nil {
		return in.err.status().Err()
	}
	return nil
}

// invalidText finds the first text in an encoded message that is not UTF-8. Its path is written as in messages[3].id.
func invalidText(data []byte, descriptor protoreflect.MessageDescriptor, within string) string {
	counts := map[protowire.Number]int{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return ""
		}
		value := data[n : n+size]
		data = data[n+size:]
		field := descriptor.Fields().ByNumber(number)
		if field == nil || kind != protowire.BytesType {
			continue
		}
		path := within + string(field.Name())
		if field.IsList() {
			path += fmt.Sprintf("[%d]", counts[number])
			counts[number]++
		}
		inner, _ := protowire.ConsumeBytes(value)
		if bad := invalidField(inner, field, path); bad != "" {
			return bad
		}
	}
	return ""
}

func invalidField(inner []byte, field protoreflect.FieldDescriptor, path string) string {
	switch {
	case field.Kind() == protoreflect.StringKind && !utf8.Valid(inner):
		return path
	case field.IsMap() && invalidText(inner, field.Message(), "") != "":
		return path
	case field.Kind() == protoreflect.MessageKind && !field.IsMap():
		return invalidText(inner, field.Message(), path+".")
	}
	return ""
}
