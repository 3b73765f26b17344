package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/server/guard"
)

const (
	// prefixLen is the length of what precedes each message of a stream: one byte of flags and four of length.
	prefixLen = 5
	// flagCompressed and flagEnd are the flags: the message is compressed, the message is the end of the stream.
	flagCompressed = 1
	flagEnd        = 2
)

// stream is a call with one request and a stream of answers, in the framing of the Connect protocol.
type stream struct {
	call *call
	ctx  context.Context
	// received says that the request has been asked for.
	received bool
	// begun says that the header of the answer is written.
	begun bool
}

// serveStream runs a method with a stream of answers. Its error, if any, is the last message.
func (c *call) serveStream(ctx context.Context) {
	s := &stream{call: c, ctx: ctx}
	info := &grpc.StreamServerInfo{FullMethod: c.method.path, IsServerStream: true}
	err := c.api.config.Stream(c.method.implementation, s, info, c.method.stream.Handler)
	s.end(err)
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// SetHeader implements grpc.ServerStream. No method sets one.
func (*stream) SetHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream. No method sets one.
func (*stream) SetTrailer(metadata.MD) {}

// SendHeader implements grpc.ServerStream. The header tells the client that the stream has begun.
func (s *stream) SendHeader(metadata.MD) error {
	s.begin()
	return http.NewResponseController(s.call.w).Flush()
}

func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.call.w.Header().Set("Content-Type", s.call.codec.contentType)
		s.call.w.WriteHeader(http.StatusOK)
	}
}

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "an answer of type %T is no protobuf message", m)
	}
	body, err := s.call.codec.encode(message)
	if err != nil {
		return status.Error(codes.Internal, "the answer cannot be encoded")
	}
	return s.send(0, body)
}

// send writes one message.
func (s *stream) send(flags byte, body []byte) error {
	s.begin()
	framed := make([]byte, prefixLen, prefixLen+len(body))
	framed[0] = flags
	binary.BigEndian.PutUint32(framed[1:], uint32(len(body))) //nolint:gosec // far below 4 GiB
	_, err := s.call.w.Write(append(framed, body...))
	if err = errors.Join(err, http.NewResponseController(s.call.w).Flush()); err != nil {
		return status.Error(codes.Canceled, "the client has gone")
	}
	return nil
}

// end writes the last message, which holds the error.
func (s *stream) end(err error) {
	last := struct {
		Error *failure `json:"error,omitempty"`
	}{}
	if err != nil {
		f, _ := failureOf(err)
		last.Error = &f
	}
	body, _ := json.Marshal(last) // strings alone
	_ = s.send(flagEnd, body)     // the stream has ended, whether the client reads so or not
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	if s.received {
		return io.EOF
	}
	s.received = true
	body, err := s.call.readFramed()
	if err != nil {
		return err
	}
	return s.call.api.config.Guard.Decode(m, body, s.call.codec.decode)
}

// readFramed reads the one message of the request.
func (c *call) readFramed() ([]byte, error) {
	defer c.arriving()()
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(c.r.Body, prefix[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, notFramed("it has no message, which five bytes precede: a zero, and the length (big-endian)")
		}
		return nil, arrived(err)
	}
	length := int64(binary.BigEndian.Uint32(prefix[1:]))
	switch {
	case prefix[0] == flagCompressed:
		return nil, guard.ErrCompressed
	case prefix[0] != 0:
		return nil, notFramed("it has unknown flags: %d", prefix[0])
	case length > c.announced:
		return nil, notFramed("its message is longer than its body")
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(c.r.Body, message); err != nil {
		return nil, arrived(err)
	}
	if c.more() { // with the end of its body, the server begins to look whether the client has gone
		return nil, notFramed("it has more than one message")
	}
	return message, nil
}

func notFramed(format string, args ...any) error {
	return &problem{
		http.StatusBadRequest, codes.InvalidArgument, "NOT_FRAMED",
		"the request is not framed as a stream of the Connect protocol: " + fmt.Sprintf(format, args...),
	}
}

// encodeBinary writes a binary header.
func encodeBinary(data []byte) string { return base64.RawStdEncoding.EncodeToString(data) }
