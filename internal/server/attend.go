package server

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxAnswer holds the answer about 500 messages with the longest ids, which is about 70 KiB.
	maxAnswer = 128 << 10
	// maxHello bounds a hello with all that later versions may add.
	maxHello = 4 << 10
	// maxParallel and defaultParallel are how many questions may be open on a stream.
	maxParallel     = 16
	defaultParallel = 8
	// maxInstance is how many bytes the name of a replica may have.
	maxInstance = 128
)

// Attend implements MessageHandlerService. The call runs as long as the stream.
func (p *producers) Attend(
	stream grpc.BidiStreamingServer[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse],
) error {
	const call = "Attend"
	s := p.server
	if s.config.Attendance == nil {
		return p.UnimplementedMessageHandlerServiceServer.Attend(stream)
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello, err := s.hello(stream.Context(), first)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(stream.Context(), storeTimeout)
	defer cancel()
	joined, err := s.config.Attendance.Join(ctx, hello)
	if err != nil {
		return s.fail(ctx, call, err, halfmsg.None)
	}
	defer joined.End()
	received := make(chan error, 1)
	s.background.Go(func() { received <- s.takeAnswers(stream, joined) })
	return s.sendQuestions(stream, joined, received)
}

// hello checks the caller of a stream and its first message. As in every call, the caller comes first: a stranger must
// not learn or report what is wrong with the message.
func (s *Server) hello(ctx context.Context, first *msghandlerv1.AttendRequest) (attend.Hello, error) {
	const method = msghandlerv1.MessageHandlerService_Attend_FullMethodName
	h := first.GetHello()
	if h != nil {
		if err := permits(access.From(ctx), method, h); err != nil {
			return attend.Hello{}, s.refuseCaller(ctx, method, h.GetProducer(), err)
		}
	}
	c := &check{}
	switch {
	case h == nil:
		c.fail("hello", "must be the first message of the stream")
	case proto.Size(first) > maxHello:
		c.fail("hello", "has %d bytes, more than %d", proto.Size(first), maxHello)
	}
	c.path = "hello."
	if c.found == nil {
		c.producer("producer", h.GetProducer())
		c.markerStore("marker_store", h.GetMarkerStore())
		if n := h.GetParallel(); n < 0 || n > maxParallel {
			c.fail("parallel", "is %d: it may be 1 to %d, or 0 for %d", n, maxParallel, defaultParallel)
		}
		if n := len(h.GetInstance()); n > maxInstance {
			c.fail("instance", "is %d bytes long, more than %d", n, maxInstance)
		}
	}
	if err := c.err(); err != nil {
		return attend.Hello{}, s.refuse(ctx, h.GetProducer(), err)
	}
	noteRequest(ctx, h)
	parallel := int(h.GetParallel())
	if parallel == 0 {
		parallel = defaultParallel
	}
	return attend.Hello{
		Producer: h.GetProducer(), Instance: escape.Line(h.GetInstance()), Parallel: parallel,
		MarkerStore: h.GetMarkerStore(), OwnMarkers: h.GetOwnMarkers(),
	}, nil
}

// sendQuestions sends what a stream is to tell its client, until the stream is drained, broken, or ended by the client.
// When the connection is as old as connections may be, the client is asked for another stream.
func (s *Server) sendQuestions(
	stream grpc.BidiStreamingServer[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse],
	joined *attend.Stream, received <-chan error,
) error {
	age := s.config.ConnectionAge
	aged := time.NewTimer(age - age/10 + rand.N(age/5+1)) //nolint:gosec // jitter is no secret
	defer aged.Stop()
	for {
		select {
		case message := <-joined.Out():
			if err := stream.Send(message); err != nil {
				return err
			}
		case <-joined.Drained():
			return s.sendRest(stream, joined)
		case err := <-received:
			return err
		case <-aged.C:
			joined.Leave(true)
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

// sendRest sends what is left when a stream has ended: the go_away may be among it.
func (s *Server) sendRest(
	stream grpc.BidiStreamingServer[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse], joined *attend.Stream,
) error {
	for {
		select {
		case message := <-joined.Out():
			if err := stream.Send(message); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// takeAnswers takes the answers of a client, until the client has ended the stream or the stream is broken. What a
// later version may send is left alone.
func (s *Server) takeAnswers(
	stream grpc.BidiStreamingServer[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse], joined *attend.Stream,
) (err error) {
	if failure := lifecycle.Recovered(func() {
		for err == nil {
			var request *msghandlerv1.AttendRequest
			request, err = stream.Recv()
			switch kind := request.GetKind().(type) {
			case *msghandlerv1.AttendRequest_Answer:
				joined.Answer(kind.Answer)
			case *msghandlerv1.AttendRequest_GoAway:
				joined.Leave(false)
			case *msghandlerv1.AttendRequest_Hello:
				err = s.fail(stream.Context(), "Attend", invalid("hello", "must be sent once"), halfmsg.None)
			}
		}
	}); failure != nil {
		return s.fail(stream.Context(), "Attend", failure, halfmsg.None)
	}
	if errors.Is(err, io.EOF) {
		return nil // it answers no more questions
	}
	return err
}
