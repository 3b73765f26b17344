package server

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
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

// incoming is a request on its way in.
type incoming struct {
	request any
	err     *invalidError
}

// codec is gRPC's own for protobuf that knows incoming.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if err := c.CodecV2.Unmarshal(data, in.request); err == nil {
		return nil
	}
	in.err = invalid("", "the request cannot be read: it is not what msghandler.v1 says")
	if message, ok := in.request.(proto.Message); ok {
		if path := invalidText(data.Materialize(), message.ProtoReflect().Descriptor(), ""); path != "" {
			in.err = invalid(path, "must be valid UTF-8")
		}
	}
	return nil
}

// readable returns a service whose methods answer a request that cannot be read with INVALID_ARGUMENT.
func readable(service *grpc.ServiceDesc) *grpc.ServiceDesc {
	wrapped := *service
	wrapped.Methods = make([]grpc.MethodDesc, len(service.Methods))
	for i, method := range service.Methods {
		handler := method.Handler
		method.Handler = func(
			server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			return handler(server, ctx, func(v any) error { return read(decode, v) }, interceptor)
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
