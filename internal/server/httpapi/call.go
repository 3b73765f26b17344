package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/server/guard"
)

// call is a request on its way through a method.
type call struct {
	api    *API
	method method
	codec  codec
	// announced is how many bytes the request takes from the budgets.
	announced int64
	// deadline is when the call ends; zero: never.
	deadline time.Time
	w        http.ResponseWriter
	r        *http.Request
}

// codec is a form of requests and answers.
type codec struct {
	contentType string
	decode      guard.Decoder
	encode      func(m proto.Message) ([]byte, error)
	// limit is how many bytes a request may have.
	limit func(l guard.Limits) int64
}

func limitOfProto(l guard.Limits) int64 { return int64(l.Request) }

// limitOfJSON is larger, because base64 makes four bytes of three.
func limitOfJSON(l guard.Limits) int64 { return int64(l.Request) / 3 * 4 }

var (
	asJSON  = codec{"application/json", decodeJSON, protojson.MarshalOptions{}.Marshal, limitOfJSON}
	asProto = codec{"application/proto", guard.Decode, proto.MarshalOptions{}.Marshal, limitOfProto}

	unaryCodecs  = []codec{asJSON, asProto}
	streamCodecs = []codec{
		{"application/connect+json", asJSON.decode, asJSON.encode, limitOfJSON},
		{"application/connect+proto", asProto.decode, asProto.encode, limitOfProto},
	}
)

// newCall checks the headers of a request.
func (a *API) newCall(w http.ResponseWriter, r *http.Request, m method) (*call, error) {
	codecs := unaryCodecs
	if m.stream != nil {
		codecs = streamCodecs
	}
	chosen, err := codecOf(r.Header.Get("Content-Type"), codecs)
	if err != nil {
		w.Header().Set("Accept-Post", codecs[0].contentType+", "+codecs[1].contentType)
		return nil, err
	}
	if version := r.Header.Get("Connect-Protocol-Version"); version != "" && version != "1" {
		return nil, problemf("CONNECT_VERSION",
			"the header Connect-Protocol-Version is %.20q: the only version is 1", version)
	}
	c := &call{api: a, method: m, codec: chosen, announced: r.ContentLength, w: w, r: r}
	limit := chosen.limit(a.config.Guard.Limits())
	if c.announced > limit {
		return nil, problemf("REQUEST_TOO_LARGE",
			"the request has %d bytes, more than %d: send fewer messages in one call", c.announced, limit)
	}
	if c.announced < 0 {
		c.announced = guard.SmallBody
	}
	return c, nil
}

func codecOf(contentType string, codecs []codec) (codec, error) {
	media, parameters, err := mime.ParseMediaType(contentType)
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		err = errors.New("another character set than UTF-8")
	}
	for _, c := range codecs {
		if err == nil && c.contentType == media {
			return c, nil
		}
	}
	return codec{}, problemf("CONTENT_TYPE", "the content type is %.100q: send the header Content-Type: %s (or %s)",
		contentType, codecs[0].contentType, codecs[1].contentType)
}

// withTimeout gives a call the deadline that its header asks for.
func withTimeout(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc, error) {
	const header, digits = "Connect-Timeout-Ms", 10
	text := r.Header.Get(header)
	if text == "" {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	ms, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > digits {
		return nil, nil, problemf("TIMEOUT_INVALID",
			"the header %s is %.30q: it must be a number of milliseconds, with at most %d digits", header, text, digits)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond) //nolint:gosec // ten digits
	return ctx, cancel, nil
}

// withMetadata makes the headers of a request the metadata of a call, as gRPC does.
func withMetadata(ctx context.Context, r *http.Request) context.Context {
	all := metadata.MD{":authority": {r.Host}}
	for name, values := range r.Header {
		all[strings.ToLower(name)] = values
	}
	return metadata.NewIncomingContext(ctx, all)
}

// serveUnary runs a unary method and writes its answer.
func (c *call) serveUnary(ctx context.Context) error {
	answer, err := c.method.unary.Handler(c.method.implementation, ctx, c.decode, c.api.config.Unary)
	if err != nil {
		return err
	}
	message, ok := answer.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "an answer of type %T is no protobuf message", answer)
	}
	body, err := c.codec.encode(message)
	if err != nil {
		return status.Error(codes.Internal, "the answer cannot be encoded")
	}
	write(c.w, http.StatusOK, c.codec.contentType, body)
	return nil
}

// decode reads and decodes the request, for a guarded method.
func (c *call) decode(v any) error {
	body, err := c.read()
	if err != nil {
		return err
	}
	return c.api.config.Guard.Decode(v, body, c.codec.decode)
}

// read reads the whole body. A body without a length may have announced bytes.
func (c *call) read() ([]byte, error) {
	defer c.arriving()()
	body := make([]byte, c.announced)
	n, err := io.ReadFull(c.r.Body, body)
	if err == nil && c.r.ContentLength < 0 && c.more() {
		return nil, errNoLength
	}
	if c.r.ContentLength < 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = nil
	}
	return body[:n], arrived(err)
}

// more reports whether the body goes on.
func (c *call) more() bool {
	n, _ := io.ReadFull(c.r.Body, make([]byte, 1))
	return n > 0
}

var errNoLength = problemf("LENGTH_REQUIRED",
	"a request of more than %d bytes needs the header Content-Length", guard.SmallBody)

// arriving bounds the time in which the body must arrive, until it is read.
func (c *call) arriving() (isRead func()) {
	control := http.NewResponseController(c.w)
	by := time.Now().Add(guard.ArrivalTimeout)
	if !c.deadline.IsZero() && c.deadline.Before(by) {
		by = c.deadline
	}
	_ = control.SetReadDeadline(by) // every connection of the guard has deadlines
	return func() { _ = control.SetReadDeadline(time.Time{}) }
}

// arrived makes the client's error of a body that has not arrived.
func arrived(err error) error {
	var late net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &late) && late.Timeout():
		return problemf("REQUEST_TOO_SLOW",
			"the request did not arrive before its deadline or within %s; nothing was done", guard.ArrivalTimeout)
	}
	return status.Error(codes.Canceled, "the request body is incomplete; nothing was done")
}

// hurry must come before an answer to a request whose body may be unread. Over HTTP/1.1, net/http receives the rest of
// the body before it sends the answer, and without a deadline a client could hold the call as long as it likes.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
	}
}

// write writes an answer.
func write(w http.ResponseWriter, httpStatus int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(httpStatus)
	_, _ = w.Write(body) // otherwise the client has gone
}

// writeGRPCError answers a call of gRPC that was not handed over to gRPC.
func writeGRPCError(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	header := w.Header()
	header.Set("Content-Type", "application/grpc")
	header.Set("Grpc-Status", strconv.Itoa(int(st.Code())))
	header.Set("Grpc-Message", st.Message())
	if details, err := proto.Marshal(st.Proto()); err == nil {
		header.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
	w.WriteHeader(http.StatusOK)
}
