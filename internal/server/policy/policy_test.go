package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/server/policy"
	"github.com/msghandler/msghandler/test/must"
)

// ruled is the policy of orders by these rules.
func ruled(r policy.Rules) *policy.Producer {
	b := policy.NewBook()
	b.Use(policy.Set{Named: map[string]policy.Rules{"orders": r}})
	return b.Of("orders")
}

func TestRulesSayWhatMessagesMayName(t *testing.T) {
	t.Parallel()
	p := ruled(policy.Rules{
		Brokers: []string{policy.Default, "events"}, Exchanges: []string{"shop", "shop.*"},
		RoutingKeys: []string{"*.paid", "a*b*c"},
		Targets:     []string{"*.orders.svc:9000", "10.0.0.1:*", "shop.svc:443", "[::1]:80"},
	})
	for _, tc := range []struct {
		m     policy.Message
		field string
	}{
		{policy.Message{Exchange: "shop", RoutingKey: "order.paid"}, ""},
		{policy.Message{Broker: "events", Exchange: "shop.eu", RoutingKey: "a-b-c"}, ""},
		{policy.Message{Exchange: "shop", RoutingKey: "abcbc"}, ""},
		{policy.Message{Broker: "stock", Exchange: "shop", RoutingKey: ".paid"}, "broker"},
		{policy.Message{Exchange: "shops", RoutingKey: "x.paid"}, "exchange"},
		{policy.Message{Exchange: "", RoutingKey: "x.paid"}, "exchange"},
		{policy.Message{Exchange: "shop", RoutingKey: "x.paid.late"}, "routing_key"},
		{policy.Message{Exchange: "shop", RoutingKey: "acb"}, "routing_key"},
		{policy.Message{Exchange: "shop", RoutingKey: ""}, "routing_key"},
	} {
		err := p.CheckMessage(tc.m)
		var forbidden *policy.ForbiddenError
		if errors.As(err, &forbidden) != (tc.field != "") || forbidden != nil && forbidden.Field != tc.field {
			t.Errorf("%+v: %v, want the field %q", tc.m, err, tc.field)
		}
		if forbidden != nil && !strings.Contains(err.Error(), "producers.orders."+tc.field) {
			t.Errorf("%q names no key to change", err)
		}
	}
	for target, want := range map[string]bool{
		"dns:///a.orders.svc:9000": true, "dns:///a.orders.svc:9001": false, "dns:///10.0.0.1:1": true,
		"https://shop.svc/path": true, "http://shop.svc/path": false, "https://shop.svc:444": false, "http://[::1]/x": true,
		"dns:///evil.svc:9000": false,
	} {
		if err := p.CheckTarget(target); (err == nil) != want {
			t.Errorf("target %s: %v", target, err)
		}
	}
}

func TestDefaultExchangeIsAllowedWhenListed(t *testing.T) {
	t.Parallel()
	queue := policy.Message{RoutingKey: "queue"}
	for _, tc := range []struct {
		exchanges []string
		want      bool
	}{{nil, true}, {[]string{"*"}, false}, {[]string{"shop"}, false}, {[]string{"shop", policy.Default}, true}} {
		p := ruled(policy.Rules{Exchanges: tc.exchanges, MaxBody: 1})
		if err := p.CheckMessage(queue); (err == nil) != tc.want {
			t.Errorf("exchanges %q: %v", tc.exchanges, err)
		}
	}
}

func TestNoRulesMakeNoPolicy(t *testing.T) {
	t.Parallel()
	b := policy.NewBook()
	var none *policy.Book
	b.Use(policy.Set{Named: map[string]policy.Rules{"orders": {}}})
	if b.Of("orders") != nil || none.Of("orders") != nil {
		t.Error("a producer without rules has a policy")
	}
	b.Use(policy.Set{Named: map[string]policy.Rules{"orders": {}}, Others: policy.Rules{MaxBody: 1}})
	if b.Of("orders") != nil || b.Of("others") == nil {
		t.Error("a producer with rules of its own has the rules of the others")
	}
}

func TestCallsAreLimitedAfterTheBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := policy.NewBook()
		use := func(perSecond int) {
			b.Use(policy.Set{Others: policy.Rules{CallsPerSecond: perSecond, MaxBody: 1}})
		}
		use(3)
		accepted := func() (n int) {
			for range 10 {
				if err := b.Of("orders").Take(1); err == nil {
					n++
				} else if !errors.Is(err, policy.ErrRate) {
					t.Fatal(err)
				}
			}
			return n
		}
		for second := range 2 {
			if n := accepted(); n != 3 {
				t.Errorf("%d of 10 calls were accepted in second %d, want 3", n, second)
			}
			time.Sleep(time.Second)
		}
		if err := b.Of("bills").Take(1); err != nil {
			t.Errorf("another producer: %v", err)
		}
		use(1_000_000)
		use(0)
		if n := accepted(); n != 10 {
			t.Errorf("%d of 10 calls were accepted without a limit", n)
		}
	})
}

func TestBytesCountUntilTheyAreDone(t *testing.T) {
	t.Parallel()
	b := policy.NewBook()
	b.Use(policy.Set{Named: map[string]policy.Rules{"orders": {MaxBytes: 100}}})
	p := b.Of("orders")
	take := func(size int, want error) {
		t.Helper()
		if err := p.Take(size); !errors.Is(err, want) {
			t.Fatalf("%d bytes: %v, want %v", size, err, want)
		}
	}
	look := func(bytes int64, during func()) {
		t.Helper()
		must.Succeed(t, b.Weigh(func([]string) ([]int64, error) { during(); return []int64{bytes}, nil }))
	}
	take(60, nil)
	take(60, policy.ErrBytes)
	p.Done(60, false) // it failed, and counts no more
	take(60, nil)
	p.Done(60, true)
	take(41, policy.ErrBytes)
	look(80, func() { // others have stored 20
		take(20, nil)
		p.Done(20, true) // after the look began, so the look may have missed it
	})
	take(1, policy.ErrBytes)
	if err := b.Weigh(func([]string) ([]int64, error) { return nil, errors.New("away") }); err == nil {
		t.Error("an error is hidden")
	}
	take(1, policy.ErrBytes)
	look(10, func() {})
	take(90, nil)
}

func TestWeighNamesProducersThatHaveLimit(t *testing.T) {
	t.Parallel()
	b := policy.NewBook()
	b.Use(policy.Set{
		Named:  map[string]policy.Rules{"never-called": {MaxBytes: 100}, "unlimited": {CallsPerSecond: 1}},
		Others: policy.Rules{MaxBytes: 1000},
	})
	_ = b.Of("someone").Take(1)
	_ = b.Of("unlimited").Take(1)
	var asked []string
	weigh := func(names []string) ([]int64, error) { asked = names; return make([]int64, len(names)), nil }
	must.Succeed(t, b.Weigh(weigh))
	if all := strings.Join(asked, " "); len(asked) != 2 || !strings.Contains(all, "someone") ||
		!strings.Contains(all, "never-called") {
		t.Errorf("asked about %q", asked)
	}
}

// TestStrangersNamesAreBounded has more names than are counted apart.
func TestStrangersNamesAreBounded(t *testing.T) {
	t.Parallel()
	b := policy.NewBook()
	b.Use(policy.Set{Others: policy.Rules{CallsPerSecond: 1_000_000}})
	for i := range policy.MaxUses + 100 {
		b.Of(fmt.Sprint("name", i))
	}
	if n := b.Uses(); n > policy.MaxUses+1 {
		t.Errorf("%d names are counted apart", n)
	}
}

func TestBookKnowsBoundedRates(t *testing.T) {
	t.Parallel()
	b := policy.NewBook()
	if b.BoundsRate("orders") {
		t.Error("a book without rules bounds a rate")
	}
	b.Use(policy.Set{
		Named:  map[string]policy.Rules{"orders": {MaxBody: 1}, "stock": {CallsPerSecond: 5}},
		Others: policy.Rules{CallsPerSecond: 10},
	})
	for producer, want := range map[string]bool{"orders": false, "stock": true, "others": true} {
		if got := b.BoundsRate(producer); got != want {
			t.Errorf("the rate of %s is bounded: %t", producer, got)
		}
	}
}
