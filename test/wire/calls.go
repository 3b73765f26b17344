package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"path"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Calls stands in front of a gRPC server and passes on calls of any service that have one request. Its methods are
// safe for concurrent use.
type Calls struct {
	// Addr is the proxy's address: HOST:PORT.
	Addr string

	conn *grpc.ClientConn
	mu   sync.Mutex
	hook Hook
}

// GRPC stands in front of a server until the test ends. The hook may lose the request or the reply of any call.
func GRPC(t testing.TB, addr string) *Calls {
	t.Helper()
	// A server that comes back is found at once.
	again := backoff.Config{
		BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: 200 * time.Millisecond,
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asItCame{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Calls{Addr: listener.Addr().String(), conn: conn}
	server := grpc.NewServer(grpc.ForceServerCodecV2(asItCame{}), grpc.UnknownServiceHandler(c.serve),
		grpc.MaxRecvMsgSize(maxMessage))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		_ = conn.Close()
		serving.Wait()
	})
	return c
}

// maxMessage is more than either side sends: sizes are theirs to judge.
const maxMessage = 64 << 20

// On has a hook decide about every call from now on, once for the request and once for the reply; nil lets all pass.
func (c *Calls) On(hook Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// serve passes on one request, and the server's answers: one message, or several in a stream, such as the stream of
// its health.
func (c *Calls) serve(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	var request []byte
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	ctx, event := from.Context(), Event{Name: path.Base(method)}
	event.Messages = called(event.Name, request)
	if err := c.decide(ctx, event); err != nil {
		return err
	}
	incoming, _ := metadata.FromIncomingContext(ctx)
	to, err := c.conn.NewStream(metadata.NewOutgoingContext(ctx, incoming), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(to.SendMsg(&request), to.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err // io.EOF: the end of the stream comes with the reply
	}
	event.Phase = Reply
	for {
		var response []byte
		err := to.RecvMsg(&response)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if lost := c.decide(ctx, event); lost != nil {
			return lost
		}
		if err == nil {
			err = from.SendMsg(&response)
		}
		if err != nil {
			return err
		}
	}
}

// decide asks the hook, and returns the error of a call that is not passed on.
func (c *Calls) decide(ctx context.Context, event Event) error {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return nil
	}
	switch hook(event) {
	case Cut:
		return status.Errorf(codes.Unavailable, "the %s of %s was lost", [...]string{"request", "reply"}[event.Phase],
			event.Name)
	case Silence:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// requests are the requests that name messages, by method.
var requests = map[string]func() named{
	"SendHalfMessage":  func() named { return new(pb.SendHalfMessageRequest) },
	"SendHalfMessages": func() named { return new(pb.SendHalfMessagesRequest) },
	"Submit":           func() named { return new(pb.SubmitRequest) },
	"SubmitAll":        func() named { return new(pb.SubmitAllRequest) },
	"Rollback":         func() named { return new(pb.RollbackRequest) },
	"Confirm":          func() named { return new(pb.ConfirmRequest) },
	"DeleteBusiness":   func() named { return new(pb.DeleteBusinessRequest) },
}

// named is a request with a producer's name.
type named interface {
	proto.Message
	GetProducer() string
}

// called reads which messages a call is about.
func called(method string, raw []byte) (all []Message) {
	empty, known := requests[method]
	if !known {
		return nil
	}
	request := empty()
	if proto.Unmarshal(raw, request) != nil {
		return nil // the server will name the error
	}
	var ids []string
	switch r := request.(type) {
	case interface{ GetId() string }:
		ids = []string{r.GetId()}
	case interface{ GetIds() []string }:
		ids = r.GetIds()
	case interface{ GetMessage() *pb.Message }:
		ids = []string{r.GetMessage().GetId()}
	case interface{ GetMessages() []*pb.Message }:
		for _, m := range r.GetMessages() {
			ids = append(ids, m.GetId())
		}
	}
	for _, id := range ids {
		all = append(all, Message{Key: request.GetProducer() + "/" + id})
	}
	return all
}

// asItCame is a codec that leaves messages as they are.
type asItCame struct{}

// Name implements encoding.CodecV2. The messages are protobuf, and the codec says so.
func (asItCame) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (asItCame) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (asItCame) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
