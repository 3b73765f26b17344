package msghandlertest

import (
	"context"
	"errors"
	"io"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// anySize leaves the limits of messages to the coordinator. By default gRPC takes no more than 4 MiB.
const anySize = math.MaxInt32

// newServer serves the calls to which faults happen, and hands all other calls on: those of operators, streams, and the
// health of the coordinator.
func newServer(f *front) *grpc.Server {
	server := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(f.handOnCall),
		grpc.MaxRecvMsgSize(anySize))
	calls := pb.MessageHandlerService_ServiceDesc
	calls.Streams = nil
	server.RegisterService(&calls, f)
	return server
}

// handOnCall copies the messages of a call in both directions, unread.
func (f *front) handOnCall(_ any, in grpc.ServerStream) error {
	conn, err := f.running()
	if err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(in)
	ctx, cancel := context.WithCancel(handOn(in.Context()))
	defer cancel()
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	out, err := conn.NewStream(ctx, both, method, grpc.ForceCodecV2(newCodec()))
	if err != nil {
		return err
	}
	// The goroutine ends after the call, because only the end of the call ends RecvMsg.
	f.streams.Go(func() {
		if copyAll(out.SendMsg, in.RecvMsg) != nil {
			cancel()
			return
		}
		_ = out.CloseSend() // the answer says how the call ends
	})
	if header, err := out.Header(); err == nil && header != nil {
		_ = in.SendHeader(header) // fails only when the call has ended
	}
	err = copyAll(in.SendMsg, out.RecvMsg)
	in.SetTrailer(out.Trailer())
	return err
}

// copyAll copies messages until there are no more.
func copyAll(send, receive func(any) error) error {
	for {
		var message unread
		switch err := receive(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := send(&message); err != nil {
			return err
		}
	}
}

// unread is a message as it was received.
type unread struct{ bytes []byte }

// codec takes messages of protobuf, and unread ones.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal gives the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if message, is := v.(*unread); is {
		return mem.BufferSlice{mem.SliceBuffer(message.bytes)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if message, is := v.(*unread); is {
		message.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
