package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	connectrpc "connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

const (
	jsonType  = "application/json"
	protoType = "application/proto"
)

// reply is the answer to an HTTP request.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// field returns a text of the JSON.
func (r reply) field(name string) string {
	all := map[string]any{}
	_ = json.Unmarshal(r.body, &all)
	text, _ := all[name].(string)
	return text
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// err is the error of a reply, as gRPC would have told it.
func (r reply) err(t *testing.T) error {
	t.Helper()
	if r.status == http.StatusOK {
		return nil
	}
	var f struct {
		Code, Message, Reason, Field, State, RetryDelay string
		Details                                         []struct{ Type, Value string }
	}
	if err := json.Unmarshal(r.body, &f); err != nil || r.header.Get("Content-Type") != jsonType {
		t.Fatalf("the error is no JSON: %v %v: %v", r, r.header, err)
	}
	st := &spb.Status{Code: int32(codeNamed(t, f.Code)), Message: f.Message}
	for _, d := range f.Details {
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		must.Succeed(t, err)
		st.Details = append(st.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: value})
	}
	err := status.FromProto(st).Err()
	info, retry := reason(err)
	if info.GetReason() != f.Reason || info.GetMetadata()["state"] != f.State || retry != (f.RetryDelay != "") ||
		retry != (r.header.Get("Retry-After") != "") || strings.Join(fields(err), "") != "" != (f.Field != "") {
		t.Errorf("the fields for readers differ from the details: %v", r)
	}
	return err
}

// codeNamed finds a code by its name in the Connect protocol.
func codeNamed(t *testing.T, name string) codes.Code {
	t.Helper()
	for code := connectrpc.CodeCanceled; code <= connectrpc.CodeUnauthenticated; code++ {
		if code.String() == name {
			return codes.Code(code)
		}
	}
	t.Fatalf("%q is no code", name)
	return 0
}

func post(t *testing.T, client *http.Client, url, contentType string, body []byte) reply {
	t.Helper()
	return do(t, client, url, body, func(r *http.Request) { r.Header.Set("Content-Type", contentType) })
}

func do(t *testing.T, client *http.Client, url string, body []byte, edit func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	must.Succeed(t, err)
	edit(r)
	got, err := client.Do(r)
	must.Succeed(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	must.Succeed(t, err)
	return reply{got.StatusCode, got.Header, text}
}

// url is the address for clients of HTTP.
func (h *house) url() string { return "http://" + h.conn.Target() }

// postJSON sends a request in JSON.
func (h *house) postJSON(t *testing.T, method, body string) reply {
	t.Helper()
	return post(t, httpClient(t), h.url()+method, jsonType, []byte(body))
}

// httpClient is a client with connections of its own, which end with the test.
func httpClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// way makes calls in one protocol. Its errors are gRPC's, whatever carried them.
type way struct {
	name string
	call func(method string, in proto.Message) error
}

// ways are all protocols. inJSON, where not empty, is the request for JSON.
func (h *house) ways(t *testing.T, inJSON string) []way { return h.waysWithToken(t, inJSON, "") }

// waysWithToken are ways that show a token, where it is not empty.
func (h *house) waysWithToken(t *testing.T, inJSON, token string) []way {
	t.Helper()
	client := httpClient(t)
	client.Transport = bearing{client.Transport, token}
	return []way{
		{"gRPC", func(method string, in proto.Message) error {
			return h.conn.Invoke(withToken(t.Context(), token), method, in, &msghandlerv1.SendHalfMessageResponse{})
		}},
		{"Connect with proto", func(method string, in proto.Message) error {
			body, err := proto.MarshalOptions{AllowPartial: true}.Marshal(in)
			must.Succeed(t, err)
			return post(t, client, h.url()+method, protoType, body).err(t)
		}},
		{"JSON", func(method string, in proto.Message) error {
			body := []byte(inJSON)
			if inJSON == "" {
				var err error
				body, err = protojson.Marshal(in)
				must.Succeed(t, err)
			}
			return post(t, client, h.url()+method, jsonType, body).err(t)
		}},
	}
}

func TestJSONIsServedBesideGRPC(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.alive(t)
	got := h.postJSON(t, sendHalf, `{"producer":"orders","callbackTarget":"orders:9000","mess\u0061ge":{
		"id":"1","exchange":"shop","routing_key":"paid","body":"e30=","delay":"1.5s","headers":{"a":"\ud83d\ude00\\u"}}}`)
	if got.status != http.StatusOK || got.field("state") != "STATE_PENDING" {
		t.Fatalf("got %v", got)
	}
	stored := h.store.get("orders", "1")
	if string(stored.Body) != "{}" || stored.RoutingKey != "paid" || stored.Delay.Milliseconds() != 1500 ||
		stored.Headers["a"] != "\U0001f600\\u" {
		t.Errorf("stored: %+v", stored)
	}
	h.alive(t)
}

// The library of the Connect protocol gets what a client of gRPC gets.
func TestConnectClientsAreServed(t *testing.T) {
	t.Parallel()
	h := open(t)
	for name, options := range map[string][]connectrpc.ClientOption{
		"proto": nil, "JSON": {connectrpc.WithProtoJSON()},
	} {
		send := connectrpc.NewClient[msghandlerv1.SendHalfMessageRequest, msghandlerv1.SendHalfMessageResponse](
			httpClient(t), h.url()+sendHalf, options...)
		r := good(name)
		r.Message.Body = bytes.Repeat([]byte{0, 1, 0xff}, 300_000)
		sent, err := send.CallUnary(t.Context(), connectrpc.NewRequest(r))
		if err != nil || sent.Msg.GetState() != msghandlerv1.State_STATE_PENDING {
			t.Errorf("%s: %v, %v", name, sent, err)
		}
		if !bytes.Equal(h.store.get("orders", name).Body, r.GetMessage().GetBody()) {
			t.Errorf("%s: another body is stored", name)
		}
		r.Message.Id = "a b"
		_, err = send.CallUnary(t.Context(), connectrpc.NewRequest(r))
		var failed *connectrpc.Error
		if connectrpc.CodeOf(err) != connectrpc.CodeInvalidArgument || !asConnect(err, &failed) ||
			len(failed.Details()) != 1 || failed.Details()[0].Type() != "google.rpc.BadRequest" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func asConnect(err error, failed **connectrpc.Error) (ok bool) {
	*failed, ok = err.(*connectrpc.Error) //nolint:errorlint // the library returns no other
	return ok
}

// TestBadHTTP: what is wrong with a request before it is one of the API.
func TestBadHTTP(t *testing.T) {
	t.Parallel()
	refused := make(chan string, 100)
	h := open(t, func(c *server.Config) { c.RefusedHTTP = func(reason string) { refused <- reason } })
	const submit = msghandlerv1.MessageHandlerService_Submit_FullMethodName
	var want []string
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, tc := range []struct {
		name   string
		edit   func(*http.Request)
		status int
		reason string
		says   string
	}{
		{"web page", header("Origin", "http://evil.example"), http.StatusForbidden, "BROWSER_FORBIDDEN", "web pages"},
		{"web page's own", header("Sec-Fetch-Site", "same-origin"), http.StatusForbidden, "BROWSER_FORBIDDEN", "web pages"},
		{"form", header("Content-Type", "text/plain"), http.StatusUnsupportedMediaType, "CONTENT_TYPE", jsonType},
		{"no type", header("Content-Type", ""), http.StatusUnsupportedMediaType, "CONTENT_TYPE", protoType},
		{
			"gRPC by HTTP/1.1", header("Content-Type", "application/grpc"), http.StatusUnsupportedMediaType, "CONTENT_TYPE",
			jsonType,
		},
		{
			"gRPC for web pages", header("Content-Type", "application/grpc-web+proto"), http.StatusUnsupportedMediaType,
			"CONTENT_TYPE", jsonType,
		},
		{
			"another character set", header("Content-Type", "application/json; charset=latin1"),
			http.StatusUnsupportedMediaType, "CONTENT_TYPE", jsonType,
		},
		{"compressed", header("Content-Encoding", "gzip"), http.StatusNotImplemented, "COMPRESSED", "uncompressed"},
		{"version", header("Connect-Protocol-Version", "2"), http.StatusBadRequest, "CONNECT_VERSION", "1"},
		{"timeout", header("Connect-Timeout-Ms", "1s"), http.StatusBadRequest, "TIMEOUT_INVALID", "milliseconds"},
		{"long timeout", header("Connect-Timeout-Ms", "12345678901"), http.StatusBadRequest, "TIMEOUT_INVALID", "10 digits"},
		{
			"method", func(r *http.Request) { r.Method = http.MethodGet }, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED",
			"POST",
		},
		{
			"unknown call", func(r *http.Request) { r.URL.Path = strings.ToLower(submit) }, http.StatusNotFound, "PATH_UNKNOWN",
			"msghandler.admin.v1.AdminService",
		},
		{
			"unknown call of a service", func(r *http.Request) { r.URL.Path = submit + "s" }, http.StatusNotFound,
			"PATH_UNKNOWN", "SubmitAll",
		},
		{
			"an escaped letter", func(r *http.Request) { r.URL.RawPath = strings.Replace(submit, "Submit", "%53ubmit", 1) },
			http.StatusNotFound, "PATH_UNKNOWN", "Submit",
		},
		{"root", func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound, "PATH_UNKNOWN", "/openapi.yaml"},
		{"stream in plain JSON", func(r *http.Request) {
			r.URL.Path = adminv1.AdminService_TailMessages_FullMethodName
		}, http.StatusUnsupportedMediaType, "CONTENT_TYPE", "application/connect+json"},
	} {
		got := do(t, httpClient(t), h.url()+submit, []byte(`{"producer":"orders","id":"1"}`), func(r *http.Request) {
			r.Header.Set("Content-Type", jsonType)
			tc.edit(r)
		})
		if err := got.err(t); got.status != tc.status || got.field("reason") != tc.reason ||
			!strings.Contains(status.Convert(err).Message(), tc.says) {
			t.Errorf("%s: got %v, want %d %s with %q", tc.name, got, tc.status, tc.reason, tc.says)
		}
		if tc.reason != "COMPRESSED" { // the guard counts these
			want = append(want, tc.reason)
		}
	}
	h.alive(t)
	close(refused)
	var counted []string
	for reason := range refused {
		counted = append(counted, reason)
	}
	if !slices.Equal(counted, want) {
		t.Errorf("counted: %q, want %q", counted, want)
	}
}

// TestBadJSON: each error names the field, as the protos name it.
func TestBadJSON(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, tc := range []struct{ body, field, says string }{
		{``, "", "{}"},
		{`[]`, "", "line 1, column 1"},
		{`{"producer":"orders"`, "", "unexpected"},
		{`{"producer":"orders"} {}`, "", "column 23"},
		{`{"producr":"orders"}`, "producr", "is no field of SendHalfMessageRequest"},
		{`{"message":{"id":"1","exchnge":""}}`, "message.exchnge", "is no field of Message"},
		{`{"producer":5}`, "producer", "invalid value for string field producer"},
		{`{"producer":"a","producer":"b"}`, "", "duplicate"},
		{"{\n \"message\": {\n  \"id\": [\"1\"]}}", "message.id", "line 3"},
		{`{"message":{"body":"%%"}}`, "message.body", "bytes"},
		{`{"message":{"delay":"soon"}}`, "message.delay", "invalid google.protobuf.Duration value"},
		{`{"message":{"delay":{"seconds":1}}}`, "message.delay", "unexpected token"},
		{`{"message":{"headers":{"a":1}}}`, "message.headers", "invalid value for string"},
		{`{"message":{"headers":["a"]}}`, "message.headers", "unexpected token"},
		{`{"message":{"id":"\ud800"}}`, "message.id", "surrogate"},
		{`{"message":{"id":"\ud83d\u0041"}}`, "message.id", "surrogate"},
		{"{\"message\":{\"id\":\"\xff\"}}", "message.id", "must be valid UTF-8"},
		{"{\"message\":{\"headers\":{\"a\":\"\xff\"}}}", "message.headers", "must be valid UTF-8"},
		{`{"message":nul}`, "message", "invalid value"},
	} {
		got := h.postJSON(t, sendHalf, tc.body)
		err := got.err(t)
		wantCode(t, err, codes.InvalidArgument)
		if got.field("field") != tc.field || !strings.Contains(status.Convert(err).Message(), tc.says) {
			t.Errorf("%s\ngot %v, want the field %q and %q", tc.body, got, tc.field, tc.says)
		}
	}
	const batch = msghandlerv1.MessageHandlerService_SendHalfMessages_FullMethodName
	got := h.postJSON(t, batch, `{"messages":[{"id":"1"},{"id":"2","x":1}]}`)
	if got.field("field") != "messages[1].x" {
		t.Errorf("got %v", got)
	}
	if n := h.store.len(); n != 0 {
		t.Errorf("%d messages were stored", n)
	}
}

// Every call of the services has a path, which the description names.
func TestOpenAPINamesEveryCall(t *testing.T) {
	t.Parallel()
	h := open(t)
	got := do(t, httpClient(t), h.url()+"/openapi.yaml", nil, func(r *http.Request) { r.Method = http.MethodGet })
	for _, service := range []grpc.ServiceDesc{
		msghandlerv1.MessageHandlerService_ServiceDesc, adminv1.AdminService_ServiceDesc,
	} {
		for _, method := range service.Methods {
			if !bytes.Contains(got.body, fmt.Appendf(nil, "\n  /%s/%s:\n    post:\n", service.ServiceName, method.MethodName)) {
				t.Errorf("no %s in the description: add it to proto/http.yaml", method.MethodName)
			}
		}
	}
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("got %d, %v", got.status, got.header)
	}
}

// tailHTTP opens a tail by the library of the Connect protocol.
func (h *house) tailHTTP(
	t *testing.T, ctx context.Context, r *adminv1.TailMessagesRequest, options ...connectrpc.ClientOption,
) (*connectrpc.ServerStreamForClient[adminv1.TailMessagesResponse], error) {
	t.Helper()
	client := connectrpc.NewClient[adminv1.TailMessagesRequest, adminv1.TailMessagesResponse](
		httpClient(t), h.url()+adminv1.AdminService_TailMessages_FullMethodName, options...)
	return client.CallServerStream(ctx, connectrpc.NewRequest(r))
}

func TestHTTPTailSendsMovesUntilStop(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]connectrpc.ClientOption{
		"proto": nil, "JSON": {connectrpc.WithProtoJSON()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			stream, err := h.tailHTTP(t, t.Context(), &adminv1.TailMessagesRequest{}, options...)
			must.Succeed(t, err)
			defer stream.Close()
			for _, state := range []halfmsg.State{halfmsg.Sendable, halfmsg.Done} {
				h.Moved([]halfmsg.Moved{{Name: halfmsg.Name{Producer: "orders", ID: "1"}, State: state}})
				if !stream.Receive() || stream.Msg().GetMoves()[0].GetState() != msghandlerv1.State(state) {
					t.Fatalf("got %v, %v; want %v", stream.Msg(), stream.Err(), state)
				}
			}
			if err := h.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if stream.Receive() || connectrpc.CodeOf(stream.Err()) != connectrpc.CodeUnavailable {
				t.Errorf("at the stop the tail got %v", stream.Err())
			}
		})
	}
}

func TestTailByHTTPChecksItsRequest(t *testing.T) {
	t.Parallel()
	h := open(t)
	stream, err := h.tailHTTP(t, t.Context(), &adminv1.TailMessagesRequest{Producer: "a b"})
	must.Succeed(t, err)
	defer stream.Close()
	if stream.Receive() || connectrpc.CodeOf(stream.Err()) != connectrpc.CodeInvalidArgument {
		t.Errorf("got %v", stream.Err())
	}
	const framed = "application/connect+json"
	for name, tc := range map[string]struct{ body, reason string }{
		"nothing":    {"", "NOT_FRAMED"},
		"no frame":   {`{"producer":"orders"}`, "NOT_FRAMED"},
		"two":        {"\x00\x00\x00\x00\x02{}\x00\x00\x00\x00\x02{}", "NOT_FRAMED"},
		"compressed": {"\x01\x00\x00\x00\x02{}", "COMPRESSED"},
	} {
		got := post(t, httpClient(t), h.url()+adminv1.AdminService_TailMessages_FullMethodName, framed, []byte(tc.body))
		if got.status != http.StatusOK || len(got.body) < 5 || got.body[0] != 2 ||
			!strings.Contains(string(got.body), tc.reason) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A tail whose client has gone leaves its place to others.
func TestHTTPTailLeavesWithItsClient(t *testing.T) {
	t.Parallel()
	h := open(t)
	ctx, leave := context.WithCancel(t.Context())
	for range 16 {
		if _, err := h.tailHTTP(t, ctx, &adminv1.TailMessagesRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, h.refusedTail(t, &adminv1.TailMessagesRequest{}), codes.ResourceExhausted)
	leave()
	eventually(t, "there is room for another tail", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := h.operators.TailMessages(ctx, &adminv1.TailMessagesRequest{})
		if err == nil {
			_, err = stream.Header()
		}
		return err == nil
	})
}

func TestPanicByHTTPIsError(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.before = func(string) { panic("poison") }
	got := h.postJSON(t, adminv1.AdminService_GetStats_FullMethodName, `{}`)
	if got.status != http.StatusInternalServerError || got.field("reason") != "INTERNAL" ||
		strings.Contains(string(got.body), "poison") {
		t.Errorf("got %v", got)
	}
}

// An error is the same status in every protocol, with its details.
func TestErrorsAreSameInEveryProtocol(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fail   error
		method string
		in     proto.Message
		code   codes.Code
	}{
		"wrong state": {
			nil, msghandlerv1.MessageHandlerService_Rollback_FullMethodName,
			&msghandlerv1.RollbackRequest{Producer: "orders", Id: "out"}, codes.FailedPrecondition,
		},
		"unknown id": {
			nil, msghandlerv1.MessageHandlerService_Submit_FullMethodName,
			&msghandlerv1.SubmitRequest{Producer: "orders", Id: "none"}, codes.NotFound,
		},
		"another content": {nil, sendHalf, good("out"), codes.AlreadyExists},
		"store away":      {halfmsg.ErrUnavailable, sendHalf, good("1"), codes.Unavailable},
		"store full":      {halfmsg.ErrFull, sendHalf, good("1"), codes.ResourceExhausted},
		"outcome unknown": {halfmsg.ErrUncertain, sendHalf, good("1"), codes.Unknown},
		"unknown error":   {io.ErrClosedPipe, sendHalf, good("1"), codes.Internal},
	} {
		h := open(t)
		h.store.put("orders", "out", halfmsg.Sendable)
		h.store.fail = tc.fail
		var first *status.Status
		for _, by := range h.ways(t, "") {
			got := status.Convert(by.call(tc.method, tc.in))
			if first == nil {
				first = got
			}
			if got.Code() != tc.code || !proto.Equal(got.Proto(), first.Proto()) {
				t.Errorf("%s by %s: got %v, want the answer by gRPC: %v", name, by.name, got.Proto(), first.Proto())
			}
		}
	}
}

// Also where no interceptor sees the call.
func TestPanicBesideInterceptorsIsError(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.RefusedUnread = func(string) { panic("poison") } })
	got := do(t, httpClient(t), h.url()+sendHalf, []byte("{}"), func(r *http.Request) {
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set("Content-Encoding", "gzip")
	})
	if got.status != http.StatusInternalServerError || got.field("reason") != "INTERNAL" {
		t.Errorf("got %v", got)
	}
}

// The trace of a caller by HTTP is the message's.
func TestATraceByHTTPIsStored(t *testing.T) {
	t.Parallel()
	h := open(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const half = `{"producer":"configured","message":{"id":"1","routingKey":"q"}}`
	got := do(t, httpClient(t), h.url()+sendHalf, []byte(half), func(r *http.Request) {
		r.Header.Set("Content-Type", jsonType)
		r.Header.Set("Traceparent", trace)
	})
	if stored := h.store.get("configured", "1"); stored.Trace != trace {
		t.Errorf("got %v, and the trace %q is stored", got, stored.Trace)
	}
}

// The deadline of the Connect protocol ends a wait.
func TestDeadlineByHTTPEndsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in a bubble time passes only while the call waits
		h, conn := openBubbleHTTP(t)
		h.store.put("orders", "1", halfmsg.Pending)
		const body = `{"producer":"orders","id":"1","wait":"WAIT_DONE"}`
		conn.say(t, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"Connect-Timeout-Ms: 20\r\n\r\n%s", msghandlerv1.MessageHandlerService_Submit_FullMethodName, len(body), body)
		got := conn.answer(t)
		if got.status != http.StatusGatewayTimeout || got.field("reason") != "WAIT_ENDED" {
			t.Errorf("got %v", got)
		}
		synctest.Wait() // the call has ended
		if queues := h.Queues(); queues["calls"]() != 0 {
			t.Errorf("%d calls are in flight", queues["calls"]())
		}
		if claims := h.taken(); len(claims) != 1 || claims[0].ID != "1" {
			t.Errorf("submitted: %v", claims)
		}
	})
}

// A deadline that ends a tail has the same code in every protocol.
func TestDeadlineByHTTPEndsTail(t *testing.T) {
	t.Parallel()
	h := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	byGRPC, err := h.operators.TailMessages(ctx, &adminv1.TailMessagesRequest{})
	if err == nil {
		_, err = byGRPC.Recv()
	}
	wantCode(t, err, codes.DeadlineExceeded)
	got := do(t, httpClient(t), h.url()+adminv1.AdminService_TailMessages_FullMethodName,
		[]byte("\x00\x00\x00\x00\x02{}"), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/connect+json")
			r.Header.Set("Connect-Timeout-Ms", "50")
		})
	if !strings.Contains(string(got.body), `{"error":{"code":"deadline_exceeded"`) {
		t.Errorf("got %v", got)
	}
}

// Counts, enums and tokens are checked alike in every protocol.
func TestEveryProtocolChecksCalls(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, tc := range []struct {
		method string
		in     proto.Message
		field  string
	}{
		{"v1.MessageHandlerService/Submit", &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1", Wait: 7}, "wait"},
		{
			"v1.MessageHandlerService/SubmitAll", &msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: make([]string, 1001)},
			"ids",
		},
		{"v1.MessageHandlerService/SendHalfMessages", &msghandlerv1.SendHalfMessagesRequest{
			Producer: "configured", Messages: slices.Repeat([]*msghandlerv1.Message{{}}, 1001),
		}, "messages"},
		{"v1.MessageHandlerService/SendHalfMessages", &msghandlerv1.SendHalfMessagesRequest{
			Producer: "configured", Messages: slices.Repeat([]*msghandlerv1.Message{{Headers: headers(100)}}, 700),
		}, "headers"},
		{"admin.v1.AdminService/ListMessages", &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: 257},
		}, "filter.state"},
		{"admin.v1.AdminService/ListMessages", &adminv1.ListMessagesRequest{
			Filter:    &adminv1.MessageFilter{State: 1},
			PageToken: "AAAAAAAA",
		}, "page_token"},
		{"admin.v1.AdminService/RetryMessages", &adminv1.RetryMessagesRequest{}, "selection.filter.state"},
	} {
		for _, by := range h.ways(t, "") {
			err := by.call("/msghandler."+tc.method, tc.in)
			wantCode(t, err, codes.InvalidArgument)
			if got := fields(err); !slices.Equal(got, []string{tc.field}) {
				t.Errorf("%s by %s: the fields are %q, want %q", tc.method, by.name, got, tc.field)
			}
		}
	}
}

func TestUnauthenticatedHTTPCallsAreChallenged(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Access = authenticator(t, access.Rules{}, someTokens()) })
	got := h.postJSON(t, adminv1.AdminService_GetStats_FullMethodName, "{}")
	if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("got %d, %v", got.status, got.header)
	}
}
