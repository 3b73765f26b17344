package server_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// encoded adds what no client library would let through: a text in the field that the numbers lead to.
func encoded(text string, numbers ...protowire.Number) func(*msghandlerv1.SendHalfMessageRequest) {
	encoded := protowire.AppendString(protowire.AppendTag(nil, numbers[len(numbers)-1], protowire.BytesType), text)
	for _, outer := range slices.Backward(numbers[:len(numbers)-1]) {
		encoded = protowire.AppendBytes(protowire.AppendTag(nil, outer, protowire.BytesType), encoded)
	}
	return func(r *msghandlerv1.SendHalfMessageRequest) { r.ProtoReflect().SetUnknown(encoded) }
}

func headers(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("h%d", i)] = "v"
	}
	return all
}

// TestBadInput holds every row of what bad input gets, in every protocol: a code, the field's name, nothing stored, and
// a server that lives.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const (
		invalid   = codes.InvalidArgument
		forbidden = codes.PermissionDenied
	)
	long := strings.Repeat("x", 256)
	type request = msghandlerv1.SendHalfMessageRequest
	header := func(key, value string) func(*request) {
		return func(r *request) { r.Message.Headers = map[string]string{key: value} }
	}
	text := func(field func(r *request) *string) func(string) func(*request) {
		return func(value string) func(*request) { return func(r *request) { *field(r) = value } }
	}
	producer := text(func(r *request) *string { return &r.Producer })
	target := text(func(r *request) *string { return &r.CallbackTarget })
	id := text(func(r *request) *string { return &r.Message.Id })
	broker := text(func(r *request) *string { return &r.Message.Broker })
	exchange := text(func(r *request) *string { return &r.Message.Exchange })
	key := text(func(r *request) *string { return &r.Message.RoutingKey })
	orderingKey := text(func(r *request) *string { return &r.Message.OrderingKey })
	contentType := text(func(r *request) *string { return &r.Message.ContentType })
	delay := func(d *durationpb.Duration) func(*request) { return func(r *request) { r.Message.Delay = d } }
	confirmAfter := func(d time.Duration) func(*request) {
		return func(r *request) { r.ConfirmAfter = durationpb.New(d) }
	}
	cases := []struct {
		name  string
		edit  func(r *request)
		code  codes.Code
		field string
	}{
		{"producer empty", producer(""), invalid, "producer"},
		{"producer too long", producer(long[:101]), invalid, "producer"},
		{"producer with a slash", producer("a/b"), invalid, "producer"},
		{"producer with a NUL", producer("a\x00"), invalid, "producer"},
		{"producer with a brace", producer("{a}"), invalid, "producer"},
		{"producer not ASCII", producer("é"), invalid, "producer"},
		{"message unset", func(r *request) { r.Message = nil }, invalid, "message"},
		{"id empty", id(""), invalid, "message.id"},
		{"id too long", id(long[:129]), invalid, "message.id"},
		{"id beginning with a dot", id(".1"), invalid, "message.id"},
		{"id with a space", id("1 2"), invalid, "message.id"},
		{"id with a slash", id("1/2"), invalid, "message.id"},
		{"id with a newline", id("1\n"), invalid, "message.id"},
		{"broker unknown", broker("nowhere"), invalid, "message.broker"},
		{"broker in other letters", broker("Events"), invalid, "message.broker"},
		{"exchange too long", exchange(long), invalid, "message.exchange"},
		{"exchange too long in bytes only", exchange(strings.Repeat("é", 128)), invalid, "message.exchange"},
		{"exchange with a NUL", exchange("a\x00b"), invalid, "message.exchange"},
		{"exchange of RabbitMQ's own", exchange("amq.direct"), invalid, "message.exchange"},
		{"routing key too long", key(long), invalid, "message.routing_key"},
		{"routing key with a NUL", key("\x00"), invalid, "message.routing_key"},
		{"routing key empty at the default exchange", func(r *request) {
			r.Message.Exchange, r.Message.RoutingKey = "", ""
		}, invalid, "message.routing_key"},
		{"exchange with a C1 control", exchange("a\u009b2Jb"), invalid, "message.exchange"},
		{"exchange that turns the text round", exchange("a\u202eb"), invalid, "message.exchange"},
		{"routing key with DEL", key("a\x7f"), invalid, "message.routing_key"},
		{"routing key with a C1 control", key("a\u0085b"), invalid, "message.routing_key"},
		{"routing key that turns the text round", key("a\u2066b"), invalid, "message.routing_key"},
		{"routing key with a mark of direction", key("a\u061cb"), invalid, "message.routing_key"},
		{"routing key of two lines", key("a\u2028b"), invalid, "message.routing_key"},
		{"routing key with a byte order mark", key("\ufeffa"), invalid, "message.routing_key"},
		{"routing key with a tag character", key("a\U000e0061"), invalid, "message.routing_key"},
		{"content type with a C1 control", contentType("text/\u009fplain"), invalid, "message.content_type"},
		{"header with a C1 control in its name", header("a\u0090", "x"), invalid, "message.headers"},
		{"header with a name that turns the text round", header("\u202ea", "x"), invalid, "message.headers"},
		{"content type too long", contentType(long), invalid, "message.content_type"},
		{"content type with a newline", contentType("a\nb"), invalid, "message.content_type"},
		{"body over the limit", func(r *request) { r.Message.Body = make([]byte, 1<<20+1) }, invalid, "message.body"},
		{"body far over the limit", func(r *request) { r.Message.Body = make([]byte, 20<<20) }, invalid, ""},
		{"too many headers", func(r *request) { r.Message.Headers = headers(33) }, invalid, "message.headers"},
		{"too much in headers", header("a", strings.Repeat("x", 16<<10)), invalid, "message.headers"},
		{"header without a name", header("", "x"), invalid, "message.headers"},
		{"header with a long name", header(long, "x"), invalid, "message.headers"},
		{"header with a NUL in its name", header("a\x00", "x"), invalid, "message.headers"},
		{"header with a NUL", header("a", "\x00"), invalid, "message.headers"},
		{"header x-", header("x-delay", "1"), invalid, "message.headers"},
		{"header X-", header("X-Match", "1"), invalid, "message.headers"},
		{"header msghandler-", header("msgHandler-attempt", "1"), invalid, "message.headers"},
		{"header CC", header("CC", "q"), invalid, "message.headers"},
		{"header cc", header("cc", "q"), invalid, "message.headers"},
		{"header BCC", header("Bcc", "q"), invalid, "message.headers"},
		{"delay negative", delay(durationpb.New(-1)), invalid, "message.delay"},
		{"delay absurd", delay(durationpb.New(30*24*time.Hour + 1)), invalid, "message.delay"},
		{"delay beyond Go", delay(&durationpb.Duration{Seconds: 315576000000}), invalid, "message.delay"},
		{"delay beyond protobuf", delay(&durationpb.Duration{Seconds: 1 << 62}), invalid, "message.delay"},
		{"delay of two signs", delay(&durationpb.Duration{Seconds: 1, Nanos: -1}), invalid, "message.delay"},
		{"delay with an ordering key", func(r *request) {
			r.Message.OrderingKey, r.Message.Delay = "customer-7", durationpb.New(time.Second)
		}, invalid, "message.delay"},
		{"ordering key too long", orderingKey(long[:129]), invalid, "message.ordering_key"},
		{"ordering key with a blank", orderingKey("customer 7"), invalid, "message.ordering_key"},
		{"confirm_after negative", confirmAfter(-time.Second), invalid, "confirm_after"},
		{"confirm_after absurd", confirmAfter(24*time.Hour + 1), invalid, "confirm_after"},
		{"no callback target", target(""), codes.Unavailable, ""},
		{"bad callback target", target("unix:/x"), invalid, "callback_target"},
		{"forbidden callback target", target("evil:1"), forbidden, ""},
		{"producer not UTF-8", encoded("\xff", 1), invalid, "producer"},
		{"id not UTF-8", encoded("\xff", 3, 1), invalid, "message.id"},
		{"header not UTF-8", encoded("\xc3(", 3, 6, 2), invalid, "message.headers"},
		{"not protobuf", func(r *request) { r.ProtoReflect().SetUnknown([]byte{0x1a, 0x05, 0xff}) }, invalid, ""},
	}
	// JSON says these in its own form.
	inJSON := map[string]string{
		"delay beyond protobuf": `{"producer":"orders","message":{"id":"bad","delay":"4611686018427387904s"}}`,
		"delay of two signs":    `{"producer":"orders","message":{"id":"bad","delay":"1.-5s"}}`,
		"producer not UTF-8":    "{\"producer\":\"\xff\"}",
		"id not UTF-8":          "{\"message\":{\"id\":\"\xff\"}}",
		"header not UTF-8":      "{\"message\":{\"headers\":{\"a\":\"\xc3(\"}}}",
		"not protobuf":          `{"producer"}`,
	}
	h := open(t)
	for _, tc := range cases {
		for _, by := range h.ways(t, inJSON[tc.name]) {
			t.Run(tc.name+" by "+by.name, func(t *testing.T) {
				r := good("bad")
				tc.edit(r)
				err := by.call(sendHalf, r)
				wantCode(t, err, tc.code)
				if got := fields(err); tc.field != "" && !slices.Equal(got, []string{tc.field}) {
					t.Errorf("the fields are %q, want %q (%v)", got, tc.field, err)
				}
				if tc.field != "" && !strings.Contains(status.Convert(err).Message(), tc.field) {
					t.Errorf("the text does not name the field: %v", err)
				}
				if info, _ := reason(err); tc.code == forbidden && info.GetReason() != "CALLBACK_FORBIDDEN" {
					t.Errorf("the reason is %q", info.GetReason())
				}
				if n := h.store.len(); n != 0 {
					t.Errorf("%d messages were stored", n)
				}
			})
		}
	}
	h.alive(t)
}

func TestGoodInputAtItsLimits(t *testing.T) {
	t.Parallel()
	h := open(t)
	r := good(strings.Repeat("9", 128))
	r.Producer = strings.Repeat("p", 100)
	r.Message.Exchange, r.Message.RoutingKey = strings.Repeat("e", 255), strings.Repeat("k", 255)
	r.Message.ContentType, r.Message.Body = strings.Repeat("c", 255), make([]byte, 1<<20)
	r.Message.Headers = headers(31)
	r.Message.Headers["traceparent"] = strings.Repeat("v", 16<<10-200) + "\n\té"
	r.Message.Broker = "events"
	r.Message.Delay, r.ConfirmAfter = durationpb.New(30*24*time.Hour), durationpb.New(24*time.Hour)
	if _, err := h.producers.SendHalfMessage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := h.store.get(r.GetProducer(), r.GetMessage().GetId())
	if got.Broker != "events" || len(got.Headers) != 32 {
		t.Errorf("stored for the broker %q, with %d headers", got.Broker, len(got.Headers))
	}
	if got.Delay != 30*24*time.Hour || got.ConfirmAfter != 24*time.Hour || got.CallbackTarget != "dns:///orders:9000" {
		t.Errorf("stored: delay %s, confirm after %s, target %s", got.Delay, got.ConfirmAfter, got.CallbackTarget)
	}
	for i, edit := range []func(*msghandlerv1.SendHalfMessageRequest){
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Exchange = "" },
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.RoutingKey = "" },
		// RabbitMQ reserves small letters only, see TestOnlySmallLettersAreReserved.
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Exchange = "AMQ.direct" },
		// Joiners are part of words in Persian and in the scripts of India, and of emoji.
		func(r *msghandlerv1.SendHalfMessageRequest) {
			r.Message.RoutingKey = "\u0645\u06cc\u200c\u0631\u0648\u062f.gr\u00f6\u00dfe 12.\u20ac"
		},
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Body = nil },
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Producer, r.CallbackTarget = "configured", "" },
	} {
		r := good(fmt.Sprint(i))
		edit(r)
		if _, err := h.producers.SendHalfMessage(t.Context(), r); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := h.store.get("configured", "5"); got.CallbackTarget != "" || got.ConfirmAfter != 6*time.Second {
		t.Errorf("stored: target %q, confirm after %s", got.CallbackTarget, got.ConfirmAfter)
	}
}

func TestOtherCallsCheckTheirInputToo(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1", halfmsg.Pending)
	ctx := t.Context()
	many := make([]string, 1001)
	manyNames := make([]*adminv1.MessageName, 1001)
	for name, tc := range map[string]struct {
		field   string
		request proto.Message
	}{
		"Submit without id":               {"id", &msghandlerv1.SubmitRequest{Producer: "orders"}},
		"Submit with a wait out of range": {"wait", &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1", Wait: 7}},
		"SubmitAll of nothing":            {"ids", &msghandlerv1.SubmitAllRequest{Producer: "orders"}},
		"SubmitAll of too many":           {"ids", &msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: many}},
		"SendHalfMessages of nothing":     {"messages", &msghandlerv1.SendHalfMessagesRequest{Producer: "configured"}},
		"SendHalfMessages of too many": {"messages", &msghandlerv1.SendHalfMessagesRequest{
			Producer: "configured", Messages: make([]*msghandlerv1.Message, 1001),
		}},
		"Rollback without producer":   {"producer", &msghandlerv1.RollbackRequest{Id: "1"}},
		"GetMessage without producer": {"producer", &adminv1.GetMessageRequest{Id: "1"}},
		"ListMessages of no state":    {"filter.state", &adminv1.ListMessagesRequest{}},
		"ListMessages of DONE": {"filter.state", &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DONE},
		}},
		"ListMessages of a state beyond a byte": {"filter.state", &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: 257},
		}},
		"ListMessages with a large page": {"page_size", &adminv1.ListMessagesRequest{
			Filter:   &adminv1.MessageFilter{State: 1},
			PageSize: 1001,
		}},
		"ListMessages with a token of another listing": {"page_token", &adminv1.ListMessagesRequest{
			Filter:    &adminv1.MessageFilter{State: 1},
			PageToken: "AAAAAAAA",
		}},
		"RetryMessages of nothing": {"selection.filter.state", &adminv1.RetryMessagesRequest{}},
		"RetryMessages of names and a filter": {"selection.names", &adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{
				Names: []*adminv1.MessageName{{Producer: "orders", Id: "1"}}, Filter: &adminv1.MessageFilter{State: 1},
			},
		}},
		"DiscardMessages in an unknown state": {"expected_state", &adminv1.DiscardMessagesRequest{
			Selection:     &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: "orders", Id: "1"}}},
			ExpectedState: 257,
		}},
		"RetryMessages of too many": {"selection.names", &adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: manyNames},
		}},
		"DiscardMessages of SENDABLE": {"selection.filter.state", &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_SENDABLE}},
		}},
		"DiscardMessages with a negative limit": {"limit", &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: 1}},
			Limit:     -1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := h.invoke(ctx, tc.request)
			wantCode(t, err, codes.InvalidArgument)
			if got := fields(err); !slices.Equal(got, []string{tc.field}) {
				t.Errorf("the fields are %q, want %q", got, tc.field)
			}
		})
	}
	if got := h.store.get("orders", "1"); got.State != halfmsg.Pending {
		t.Errorf("the message is %s now", got.State)
	}
	h.alive(t)
}

// However much is wrong with a message, its status fits into the trailers that every client takes.
func TestAStatusIsSmall(t *testing.T) {
	t.Parallel()
	h := open(t)
	r := good("bad")
	r.Message.Headers = map[string]string{}
	for i := range 32 {
		r.Message.Headers[fmt.Sprintf("x-%02d%s", i, strings.Repeat("\U0001f4e6", 62))] = "v"
	}
	_, err := h.producers.SendHalfMessage(t.Context(), r)
	wantCode(t, err, codes.InvalidArgument)
	st := status.Convert(err)
	size := len(url.PathEscape(st.Message())) + base64.StdEncoding.EncodedLen(proto.Size(st.Proto()))
	if got := fields(err); size > 8<<10 || len(got) == 0 || got[0] != "message.headers" {
		t.Errorf("%d bytes about %q", size, got)
	}
}

func TestItemsOfBatchAreJudgedAlone(t *testing.T) {
	t.Parallel()
	h := open(t)
	one := func(id, body string) *msghandlerv1.Message {
		return &msghandlerv1.Message{Id: id, Exchange: "shop", RoutingKey: "paid", Body: []byte(body)}
	}
	answer, err := h.producers.SendHalfMessages(t.Context(), &msghandlerv1.SendHalfMessagesRequest{
		Producer: "orders", CallbackTarget: "orders:9000",
		Messages: []*msghandlerv1.Message{
			one("1", "a"),
			one("bad id", "a"),
			nil,
			one("1", "b"),
			one("1", "a"),
			one("2", "a"),
		},
	})
	must.Succeed(t, err)
	want := []codes.Code{0, codes.InvalidArgument, codes.InvalidArgument, codes.AlreadyExists, 0, 0}
	for i, o := range answer.GetOutcomes() {
		if codes.Code(o.GetCode()) != want[i] {
			t.Errorf("%d: %v", i, o)
		}
	}
	for i, path := range map[int]string{1: "messages[1].id", 2: "messages[2]"} {
		if text := answer.GetOutcomes()[i].GetError(); !strings.Contains(text, path) {
			t.Errorf("%d: %q does not name %s", i, text, path)
		}
	}
	if h.store.len() != 2 || string(h.store.get("orders", "1").Body) != "a" {
		t.Errorf("%d messages, the first with %q", h.store.len(), h.store.get("orders", "1").Body)
	}
}
