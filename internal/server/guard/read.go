package guard

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // gRPC itself answers unknown encodings, and nothing would be logged
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// gRPC answers a request that cannot be decoded with INTERNAL and no field's name, before any handler or interceptor
// sees the request. So the guard decodes requests into an incoming. The codec leaves its error there, and the client
// gets INVALID_ARGUMENT with the field. gRPC refuses a request over the size limit with RESOURCE_EXHAUSTED,
// undecoded.

// incoming is a request that is being decoded.
type incoming struct {
	request any
	// of is nil where the guard has not admitted the call.
	of  *request
	err *FieldError
}

// codec is gRPC's own codec for protobuf that knows incoming.
type codec struct {
	encoding.CodecV2
	limits Limits
	// largeSlots bounds the large requests that are decoded at once: each takes its size twice more meanwhile.
	largeSlots chan struct{}
}

const (
	// maxLargeDecodes is how many large requests are decoded at once; decoding is quick work of the CPU.
	maxLargeDecodes = 2
	// largeDecode is from how many bytes on a request is large to its decoder.
	largeDecode = 1 << 20
)

func newCodec(limits Limits) codec {
	return codec{encoding.GetCodecV2(protocodec.Name), limits, make(chan struct{}, maxLargeDecodes)}
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if in.of != nil {
		in.of.setRead()
	}
	defer c.enter(data.Len())()
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return c.decode(whole.ReadOnlyData(), in, Decode)
}

// enter waits until a request may be decoded; leave must follow.
func (c codec) enter(size int) (leave func()) {
	if size < largeDecode {
		return func() {}
	}
	c.largeSlots <- struct{}{}
	return func() { <-c.largeSlots }
}

// Decoder decodes a request.
type Decoder func(data []byte, into proto.Message, limits Limits) *FieldError

func (c codec) decode(data []byte, in *incoming, decode Decoder) error {
	message, ok := in.request.(proto.Message)
	if !ok {
		return fmt.Errorf("a request of type %T is no protobuf message", in.request)
	}
	in.err = decode(data, message, c.limits)
	return nil
}

// Service returns a service whose requests the guard reads.
func (g *Guard) Service(service *grpc.ServiceDesc) *grpc.ServiceDesc {
	guarded := *service
	guarded.Methods = make([]grpc.MethodDesc, len(service.Methods))
	for i, method := range service.Methods {
		handler, name := method.Handler, "/"+service.ServiceName+"/"+method.MethodName
		method.Handler = func(
			server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			if r := requestOf(ctx); r != nil {
				r.setHandled()
				defer r.end()
			}
			ctx, err := g.config.Identify(ctx, name)
			if err != nil {
				return refuseUnread(ctx, server, name, err, interceptor)
			}
			return handler(server, ctx, func(v any) error { return g.read(ctx, name, decode, v) }, interceptor)
		}
		guarded.Methods[i] = method
	}
	return &guarded
}

// refuseUnread answers a call whose body stays unread, and lets the interceptors see it, without a request.
func refuseUnread(
	ctx context.Context, server any, method string, err error, interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	refuse := func(context.Context, any) (any, error) { return nil, err }
	if interceptor == nil {
		return refuse(ctx, nil)
	}
	return interceptor(ctx, nil, &grpc.UnaryServerInfo{Server: server, FullMethod: method}, refuse)
}

// read receives and decodes a request. Its errors are the client's.
func (g *Guard) read(ctx context.Context, method string, decode func(any) error, v any) error {
	err := g.receive(ctx, decode, v)
	if errors.Is(err, ErrBytes) {
		g.sweep()
	}
	return g.refuse(ctx, method, err)
}

// receive is read with errors of the guard. The request counts for its connection while it is being received.
func (g *Guard) receive(ctx context.Context, decode func(any) error, v any) error {
	r := requestOf(ctx)
	if isCompressed(ctx) || r != nil && r.compressed {
		return ErrCompressed
	}
	if r == nil {
		return decodeInto(nil, decode, v)
	}
	arriving := r.conn.arriving.slot(g.tick.Load())
	arriving.Add(1)
	defer arriving.Add(-1)
	defer r.setDecoded()
	if err := r.awaitSize(); err != nil {
		return err
	}
	return decodeInto(r, decode, v)
}

func decodeInto(of *request, decode func(any) error, v any) error {
	in := &incoming{request: v, of: of}
	if err := decode(in); err != nil {
		return err
	}
	if in.err != nil {
		return in.err
	}
	return nil
}

// isCompressed reports whether a call's request is compressed. gRPC keeps the encoding out of the metadata.
func isCompressed(ctx context.Context) bool {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok {
		return false
	}
	encoding := stream.RecvCompress()
	return encoding != "" && encoding != "identity"
}
