package server_test

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	"github.com/msghandler/msghandler/internal/server/policy"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// governed serves with these rules for every producer.
func governed(t *testing.T, rules policy.Rules) (*house, *policy.Book) {
	t.Helper()
	book := policy.NewBook()
	book.Use(policy.Set{Others: rules})
	return open(t, func(c *server.Config) { c.Policies = book }), book
}

func batchOf(messages ...*msghandlerv1.Message) *msghandlerv1.SendHalfMessagesRequest {
	return &msghandlerv1.SendHalfMessagesRequest{Producer: "orders", CallbackTarget: "orders:9000", Messages: messages}
}

func TestPolicyForbidsWhatMessagesName(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reasons []string
	book := policy.NewBook()
	book.Use(policy.Set{Named: map[string]policy.Rules{"orders": {
		Targets: []string{"*:9000"}, Brokers: []string{policy.Default}, Exchanges: []string{"shop"},
		RoutingKeys: []string{"paid", "sent.*"},
	}}})
	h := open(t, func(c *server.Config) {
		c.Policies = book
		c.Refused = func(producer, reason, _ string) {
			mu.Lock()
			defer mu.Unlock()
			reasons = append(reasons, producer+" "+reason)
		}
	})
	type request = msghandlerv1.SendHalfMessageRequest
	for key, spoil := range map[string]func(r *request){
		"callback_target targets":           func(r *request) { r.CallbackTarget = "orders:9001" },
		"message.broker brokers":            func(r *request) { r.Message.Broker = "events" },
		"message.exchange exchanges":        func(r *request) { r.Message.Exchange = "" },
		"message.routing_key routing_keys":  func(r *request) { r.Message.RoutingKey = "sent" },
		"message.routing_key routing_keys ": func(r *request) { r.Message.RoutingKey = "" },
	} {
		r := good("1")
		spoil(r)
		_, err := h.producers.SendHalfMessage(t.Context(), r)
		wantCode(t, err, codes.PermissionDenied)
		field, last, _ := strings.Cut(strings.TrimSpace(key), " ")
		info, retry := reason(err)
		if info.GetReason() != "POLICY_FORBIDDEN" || retry || info.GetMetadata()["field"] != field ||
			info.GetMetadata()["key"] != "producers.orders."+last || !strings.Contains(err.Error(), "policy."+last) {
			t.Errorf("%s: %v, %v", key, err, info)
		}
	}
	if len(reasons) != 5 || reasons[0] != "orders POLICY_FORBIDDEN" {
		t.Errorf("operators learn of %q", reasons)
	}
	got := h.postJSON(t, sendHalf,
		`{"producer":"orders","callbackTarget":"orders:9000","message":{"id":"1","exchange":"x"}}`)
	if got.status != 403 || !strings.Contains(string(got.body), `"POLICY_FORBIDDEN"`) {
		t.Errorf("by HTTP: %d %s", got.status, got.body)
	}
	stranger := good("1")
	stranger.Producer, stranger.Message.Exchange = "bills", "anywhere"
	if _, err := h.producers.SendHalfMessage(t.Context(), stranger); err != nil {
		t.Errorf("a producer without rules: %v", err)
	}
	h.alive(t)
}

func TestConfiguredTargetIsNoNamedOne(t *testing.T) {
	t.Parallel()
	h, _ := governed(t, policy.Rules{Targets: []string{"none:1"}})
	r := good("1")
	r.Producer, r.CallbackTarget = "configured", ""
	if _, err := h.producers.SendHalfMessage(t.Context(), r); err != nil {
		t.Errorf("the operator's own target is forbidden: %v", err)
	}
	h.attend(t, "orders")
	r.Producer = "orders"
	if _, err := h.producers.SendHalfMessage(t.Context(), r); err != nil {
		t.Errorf("a producer that attends: %v", err)
	}
}

func TestForbiddenMessageOfBatchFailsAlone(t *testing.T) {
	t.Parallel()
	h, _ := governed(t, policy.Rules{Exchanges: []string{"shop"}, MaxBody: 10, CallsPerSecond: 3})
	item := func(id, exchange string, body int) *msghandlerv1.Message {
		return &msghandlerv1.Message{Id: id, Exchange: exchange, RoutingKey: "paid", Body: make([]byte, body)}
	}
	answer, err := h.producers.SendHalfMessages(t.Context(), batchOf(
		item("1", "shop", 10), item("2", "stock", 1), item("3", "shop", 11), item("4", "shop", 1), item("5", "shop", 1),
		item("6", "shop", 1), item("7", "shop", 1),
	))
	must.Succeed(t, err)
	want := []codes.Code{
		codes.OK, codes.PermissionDenied, codes.InvalidArgument, codes.OK, codes.OK, codes.ResourceExhausted,
		codes.ResourceExhausted,
	}
	texts := map[int]string{
		1: `messages[1].exchange "stock" is forbidden`, 2: "producers.orders.max_body", 5: "producers.NAME.calls_per_second",
	}
	for i, o := range answer.GetOutcomes() {
		if codes.Code(o.GetCode()) != want[i] || !strings.Contains(o.GetError(), texts[i]) {
			t.Errorf("message %d: %s, want %s and %q", i, o, want[i], texts[i])
		}
	}
	if n := h.store.len(); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
}

// A batch of which nothing may be sent now fails as one, with a hint to come back.
func TestBatchAboveRateFailsAsOne(t *testing.T) {
	t.Parallel()
	h, _ := governed(t, policy.Rules{CallsPerSecond: 1})
	if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
		t.Fatal(err)
	}
	_, err := h.producers.SendHalfMessages(t.Context(), batchOf(good("2").GetMessage(), good("3").GetMessage()))
	wantCode(t, err, codes.ResourceExhausted)
	if info, retry := reason(err); info.GetReason() != "PRODUCER_RATE" || !retry {
		t.Errorf("a batch above the rate: %v", err)
	}
}

func TestPolicyLimitsWhatAProducerHolds(t *testing.T) {
	t.Parallel()
	for reasonOf, rules := range map[string]policy.Rules{
		"PRODUCER_RATE": {CallsPerSecond: 1}, "PRODUCER_BYTES": {MaxBytes: 10},
	} {
		h, _ := governed(t, rules)
		if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
			t.Fatal(err)
		}
		_, err := h.producers.SendHalfMessage(t.Context(), good("2"))
		wantCode(t, err, codes.ResourceExhausted)
		if info, retry := reason(err); info.GetReason() != reasonOf || !retry {
			t.Errorf("%s: %v", reasonOf, err)
		}
		other := good("2")
		other.Producer = "bills"
		if _, err := h.producers.SendHalfMessage(t.Context(), other); err != nil {
			t.Errorf("%s: another producer: %v", reasonOf, err)
		}
	}
}

// TestRepeatOverLimitGetsItsState repeats calls whose answers were lost, when nothing more may be stored.
func TestRepeatOverLimitGetsItsState(t *testing.T) {
	t.Parallel()
	for reasonOf, test := range map[string]struct {
		rules policy.Rules
		fail  error
	}{
		"PRODUCER_RATE":  {policy.Rules{CallsPerSecond: 1}, nil},
		"PRODUCER_BYTES": {policy.Rules{MaxBytes: 10}, nil},
		"STORE_FULL":     {policy.Rules{}, halfmsg.ErrFull},
	} {
		h, _ := governed(t, test.rules)
		if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
			t.Fatal(err)
		}
		h.store.mu.Lock()
		h.store.fail = test.fail
		h.store.mu.Unlock()
		again, err := h.producers.SendHalfMessage(t.Context(), good("1"))
		if err != nil || again.GetState() != msghandlerv1.State_STATE_PENDING {
			t.Errorf("%s: a repeat gets %s, %v", reasonOf, again.GetState(), err)
		}
		other := good("1")
		other.Message.RoutingKey = "other"
		_, err = h.producers.SendHalfMessage(t.Context(), other)
		wantCode(t, err, codes.AlreadyExists)
		_, err = h.producers.SendHalfMessage(t.Context(), good("2"))
		if info, retry := reason(err); info.GetReason() != reasonOf || !retry {
			t.Errorf("%s: a new message gets %v", reasonOf, err)
		}
		answer, err := h.producers.SendHalfMessages(t.Context(), batchOf(
			good("1").GetMessage(), other.GetMessage(), good("2").GetMessage(),
		))
		must.Succeed(t, err)
		for i, want := range []codes.Code{codes.OK, codes.AlreadyExists, codes.ResourceExhausted} {
			if got := answer.GetOutcomes()[i]; codes.Code(got.GetCode()) != want {
				t.Errorf("%s: message %d of a batch gets %s, want %s", reasonOf, i, got, want)
			}
		}
		if n := h.store.len(); n != 1 {
			t.Errorf("%s: %d messages are stored", reasonOf, n)
		}
	}
}

// TestOrderCanFinishOverEveryLimit stores a message and then takes everything from its producer.
func TestOrderCanFinishOverEveryLimit(t *testing.T) {
	t.Parallel()
	h, book := governed(t, policy.Rules{})
	for _, id := range []string{"1", "2", "3"} {
		if _, err := h.producers.SendHalfMessage(t.Context(), good(id)); err != nil {
			t.Fatal(err)
		}
	}
	book.Use(policy.Set{Others: policy.Rules{
		Targets: []string{"none:1"}, Brokers: []string{"none"}, Exchanges: []string{"none"}, RoutingKeys: []string{"none"},
		MaxBody: 1, MaxBytes: 1, CallsPerSecond: 1,
	}})
	for range 5 {
		if _, err := h.producers.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"}); err != nil {
			t.Error(err)
		}
		if _, err := h.producers.SubmitAll(t.Context(), &msghandlerv1.SubmitAllRequest{
			Producer: "orders", Ids: []string{"2"},
		}); err != nil {
			t.Error(err)
		}
	}
	rollback := &msghandlerv1.RollbackRequest{Producer: "orders", Id: "3"}
	if _, err := h.producers.Rollback(t.Context(), rollback); err != nil {
		t.Error(err)
	}
	if state := h.store.get("orders", "3").State; state == halfmsg.Pending {
		t.Errorf("the rolled back message is %s", state)
	}
	h.attend(t, "orders") // fails the test where the stream is refused
}
