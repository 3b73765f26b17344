package callback

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxHTTPConns is how many connections a target has at most: several producers may share it.
	maxHTTPConns = 128
	// maxHTTPIdle is how many of them stay open between calls.
	maxHTTPIdle = 16
	// httpIdleAfter is shorter than the minute or more after which most servers and proxies close idle connections.
	httpIdleAfter = 50 * time.Second
	// maxHTTPHeaders is how many bytes of headers an answer may have.
	maxHTTPHeaders = 16 << 10
)

// httpPaths are appended to the URL of a target, by the method of the call.
var httpPaths = map[string]string{"Confirm": "/confirm", "DeleteBusiness": "/deleteBusiness"}

// httpTransport calls a producer by HTTP/1.1: POST URL/confirm and POST URL/deleteBusiness with JSON.
type httpTransport struct {
	url  string
	wire *http.Transport
	// open ends with Close.
	open  context.Context
	close context.CancelFunc
}

func (c *Client) openHTTP(t target) *httpTransport {
	h := &httpTransport{url: t.String()}
	h.open, h.close = context.WithCancel(context.Background())
	dialer := c.dialer(t)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := h.untilClosed(ctx)
		defer cancel()
		return dialer(ctx, network, address)
	}
	h.wire = &http.Transport{
		// Nothing from outside decides how we connect: no proxy of the environment. RoundTrip follows no redirect.
		Proxy:       nil,
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			raw, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			secured, err := h.handshake(ctx, raw, c.config.ClientTLS(), t.host)
			if err != nil {
				c.config.Handshake(t.String(), tls.ConnectionState{}, err)
				return nil, err
			}
			c.config.Handshake(t.String(), secured.ConnectionState(), nil)
			return secured, nil
		},
		// An answer that is compressed could grow without limit.
		DisableCompression:     true,
		MaxConnsPerHost:        maxHTTPConns,
		MaxIdleConnsPerHost:    maxHTTPIdle,
		IdleConnTimeout:        httpIdleAfter,
		MaxResponseHeaderBytes: maxHTTPHeaders,
	}
	return h
}

// untilClosed returns a context that ends with the transport too.
func (h *httpTransport) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.open, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// handshake makes TLS of a connection, or closes the connection.
func (h *httpTransport) handshake(
	ctx context.Context, raw net.Conn, config *tls.Config, host string,
) (*tls.Conn, error) {
	ctx, cancel := h.untilClosed(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config.ServerName = strings.TrimSuffix(host, ".")
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &handshakeError{err}
	}
	return conn, nil
}

// Close implements transport.
func (h *httpTransport) Close() error {
	h.close()
	h.wire.CloseIdleConnections()
	return nil
}

// httpRequest is the body of both calls. DeleteBusiness has no field final.
type httpRequest struct {
	Producer    string   `json:"producer"`
	IDs         []string `json:"ids"`
	Final       *bool    `json:"final,omitempty"`
	MarkerStore string   `json:"markerStore,omitempty"`
}

// Confirm implements msghandlerv1.ProducerServiceClient.
func (h *httpTransport) Confirm(
	ctx context.Context, r *msghandlerv1.ConfirmRequest, _ ...grpc.CallOption,
) (*msghandlerv1.ConfirmResponse, error) {
	final := r.GetFinal()
	body, err := h.post(ctx, "Confirm", httpRequest{r.GetProducer(), r.GetIds(), &final, r.GetMarkerStore()})
	if err != nil {
		return nil, err
	}
	return readConfirmations(body)
}

// DeleteBusiness implements msghandlerv1.ProducerServiceClient.
func (h *httpTransport) DeleteBusiness(
	ctx context.Context, r *msghandlerv1.DeleteBusinessRequest, _ ...grpc.CallOption,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	request := httpRequest{r.GetProducer(), r.GetIds(), nil, r.GetMarkerStore()}
	if _, err := h.post(ctx, "DeleteBusiness", request); err != nil {
		return nil, err
	}
	return &msghandlerv1.DeleteBusinessResponse{}, nil
}

// post makes a call and returns the body of its answer, which is an object in JSON.
func (h *httpTransport) post(ctx context.Context, method string, request httpRequest) ([]byte, error) {
	ctx, cancel := h.untilClosed(ctx)
	defer cancel()
	answer, err := h.send(ctx, method, request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusSwitchingProtocols { // its body would outlast the context
		return nil, refusal(answer, nil)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case answer.StatusCode != http.StatusOK:
		return nil, refusal(answer, body)
	case err != nil:
		return nil, h.failure(ctx, err, true)
	case len(body) > maxAnswer:
		return nil, &httpError{code: codes.ResourceExhausted, said: "the answer has more than 1 MiB"}
	}
	return body, checkJSON(answer, body, method)
}

// send sends a request and returns the answer, whose body is not read yet. Both calls are idempotent. So a request that
// fails on a used connection is repeated on a new connection: the server may just have closed the used one as idle.
func (h *httpTransport) send(ctx context.Context, method string, request httpRequest) (*http.Response, error) {
	for {
		var on *httptrace.GotConnInfo
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { on = &info },
		})
		r, err := h.request(traced, method, request)
		if err != nil {
			return nil, &httpError{code: codes.Internal, said: err.Error()}
		}
		answer, err := h.wire.RoundTrip(r)
		switch {
		case err == nil:
			return answer, nil
		case on != nil && on.Reused && ctx.Err() == nil:
			h.wire.CloseIdleConnections() // or a call that crashes the server would crash it once for each of them
			continue
		}
		return nil, h.failure(ctx, err, on != nil)
	}
}

// request makes the request of a call, with the deadline, the token and the trace of the call's context.
func (h *httpTransport) request(ctx context.Context, method string, request httpRequest) (*http.Request, error) {
	if request.IDs == nil {
		request.IDs = []string{} // in JSON [], not null
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+httpPaths[method], bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Accept", jsonType)
	r.Header.Set("User-Agent", "msghandler")
	if deadline, set := ctx.Deadline(); set {
		r.Header.Set("Connect-Timeout-Ms", strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10))
	}
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	for _, name := range []string{"authorization", "traceparent"} {
		for _, value := range outgoing.Get(name) {
			r.Header.Add(name, value)
		}
	}
	return r, nil
}
