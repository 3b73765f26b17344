package redis_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// A sample of many messages has the oldest and the newest of each producer, also of one with few messages, and its
// weights add up to all of them.
func TestSampleSpansEachProducer(t *testing.T) {
	s, _ := embeddedStore(t, redisstore.Config{})
	var all []halfmsg.Message
	for i := range 1000 {
		all = append(all, halfmsg.Message{
			Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%04d", i)}, Exchange: "shop", ConfirmAfter: time.Hour,
		})
		if i%500 == 0 {
			all[i].Producer = "stock"
		}
	}
	var names []halfmsg.Name
	for part := range slices.Chunk(all, 100) {
		for _, m := range part {
			names = append(names, m.Name)
		}
		s.Create(t.Context(), part)
	}
	s.Retry(t.Context(), names, "test", "a retry indexes what is paged")
	sample, err := s.Sample(t.Context(), halfmsg.Query{State: halfmsg.Pending, Limit: 50})
	if err != nil || sample.Total != 1000 || sample.Looked < 50 || sample.Looked > 60 {
		t.Fatalf("looked at %d of %d: %v", sample.Looked, sample.Total, err)
	}
	seen, sum := map[string]bool{}, 0.0
	for _, r := range sample.Records {
		seen[r.Name.String()], sum = true, sum+r.Weight
	}
	if sum < 999.9 || sum > 1000.1 {
		t.Errorf("the sample stands for %v messages", sum)
	}
	for _, want := range []string{"orders/0001", "orders/0999", "stock/0000", "stock/0500"} {
		if !seen[want] {
			t.Errorf("%s is not in the sample", want)
		}
	}
	// A slow Redis: the sample ends after its first read.
	sample, err = s.Sample(t.Context(), halfmsg.Query{State: halfmsg.Pending, Limit: 1000, Patience: time.Nanosecond})
	weights := map[string]float64{}
	for _, r := range sample.Records {
		weights[r.Producer] += r.Weight
	}
	if err != nil || sample.Looked > 50 || math.Round(weights["orders"]) != 998 || math.Round(weights["stock"]) != 2 {
		t.Errorf("%d of %d stand for %v, %v", sample.Looked, sample.Total, weights, err)
	}
}

// A due message that waits for its broker says so, until it is claimed.
func TestRecordSaysThatMessageIsParked(t *testing.T) {
	s, _ := embeddedStore(t, redisstore.Config{Brokers: []string{"events"}})
	names := []halfmsg.Name{{Producer: "orders", ID: "1"}, {Producer: "orders", ID: "2"}}
	var all []halfmsg.Message
	for i, name := range names {
		all = append(all, halfmsg.Message{Name: name, Broker: []string{"", "events"}[i], Exchange: "shop"})
	}
	s.Create(t.Context(), all)
	for i, submitted := range s.SubmitTrusted(t.Context(), names, time.Minute) {
		settled := s.Settle(t.Context(), []halfmsg.Settlement{{
			Name: names[i], Token: submitted.Claim.Token, Event: halfmsg.EventReleased, Cause: "the broker is away",
		}})
		if settled[0].Err != nil {
			t.Fatal(settled[0].Err)
		}
	}
	parked := func(want ...bool) {
		t.Helper()
		for i, name := range names {
			r, err := s.Get(t.Context(), name)
			if err != nil || r.Parked != want[i] {
				t.Errorf("%s is parked: %t, want %t; %v", name, r.Parked, want[i], err)
			}
		}
	}
	parked(false, false)
	for _, broker := range []string{"away", "events", ""} {
		if _, err := s.ClaimSendable(t.Context(), 10, time.Minute, broker); err != nil {
			t.Fatal(err)
		}
		parked(broker != "", broker == "away")
	}
}
