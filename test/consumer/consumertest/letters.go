package consumertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
)

// The copies of dead letters have a higher attempt, and look otherwise as if the message had never failed.
func replayedAfterFix(t *testing.T, b Broker) {
	queue, exchange, key := b.Origin()
	var fixed atomic.Bool
	handled := make(chan *consumer.Message, 10)
	stop := b.Run(Options{Dedup: memory.New(100)}, func(_ context.Context, m *consumer.Message) error {
		if !fixed.Load() {
			return errors.New("a fault in the handler")
		}
		handled <- m
		return nil
	})
	b.Publish("1", "2", "3", "4")
	awaitLetters(t, b, 4)
	dead := b.DeadLetters()
	for range 2 { // looking changes nothing
		if letters, err := dead.List(t.Context(), 10); err != nil || len(letters) != 4 {
			t.Fatalf("%d letters, %v", len(letters), err)
		}
	}
	l, err := dead.Show(t.Context(), "shop/3")
	if err != nil || l.Queue != queue || l.Exchange != exchange || l.RoutingKey != key || l.Retries != Retries ||
		l.Reason != "a fault in the handler" || string(l.Body) != "body of 3" || l.Headers["tenant"] != "eu" ||
		l.Attempt != 2 || l.ContentType != "text/plain" || l.Timestamp.Unix() != PublishedAt {
		t.Errorf("%+v of %+v, %v", l, l.Message, err)
	}
	if _, err := dead.Show(t.Context(), "shop/7"); !errors.Is(err, consumer.ErrNoLetter) {
		t.Errorf("a letter that is not there: %v", err)
	}
	if n, err := dead.Discard(t.Context(), "shop/4"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	fixed.Store(true)
	if n, err := dead.Replay(t.Context(), consumer.Anywhere, "shop/2", "shop/9"); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	m := <-handled
	if m.ID != "2" || m.Attempt != 3 || m.Deliveries != 0 || m.Retries != 0 || m.FirstCause != "" ||
		m.Exchange != exchange || m.RoutingKey != key || string(m.Body) != "body of 2" || len(m.Headers) != 1 ||
		m.Headers["tenant"] != "eu" {
		t.Errorf("replayed %+v", m)
	}
	awaitLetters(t, b, 2)
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	if n, err := dead.Replay(t.Context(), consumer.Anywhere); n != 0 || err != nil {
		t.Errorf("replayed again %d, %v", n, err)
	}
	<-handled
	<-handled
	stopped(t, stop)
	if len(handled) > 0 {
		t.Errorf("handled %+v too", <-handled)
	}
}

// Letters without an id have the name of their producer.
func oldestFirst(t *testing.T, b Broker) {
	const failed = "2026-11-29T10:00:00Z"
	b.Bury("1", map[string]string{
		consumer.HeaderRetries: "7", consumer.HeaderFirstCause: "no stock", consumer.HeaderFirstFailedAt: failed,
		consumer.HeaderDeadReason: "no database",
	})
	for _, id := range []string{"2", "", "3", ""} {
		b.Bury(id, nil)
	}
	dead := b.DeadLetters()
	l, err := dead.Show(t.Context(), "shop/1")
	if err != nil || l.Retries != 7 || l.FirstCause != "no stock" || l.FirstFailedAt != failed ||
		l.Reason != "no database" || l.Since().Format(time.RFC3339) != failed {
		t.Errorf("the oldest letter is %+v, %v", l, err)
	}
	count := func(want int, names ...string) {
		t.Helper()
		if n, err := dead.Count(t.Context(), names...); n != want || err != nil {
			t.Errorf("counted %d of %v, %v, want %d", n, names, err, want)
		}
	}
	count(5)
	count(2, "shop/")
	count(2, "shop/1", "shop/3", "shop/4")
	if l, err := dead.Show(t.Context(), "shop/"); l.ID != "" || string(l.Body) != "body of " || err != nil {
		t.Errorf("the letter without an id is %+v, %v", l, err)
	}
	if n, err := dead.DiscardSelected(t.Context(), oldest(1, "shop/")); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	count(1, "shop/")
	two := consumer.Selection{Limit: 2, MayReplay: consumer.Anywhere}
	if n, err := dead.ReplaySelected(t.Context(), two); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	count(1, "shop/3")
	count(2)
	if n, err := dead.Discard(t.Context()); n != 0 || err != nil {
		t.Errorf("without a name discarded %d, %v", n, err)
	}
}

func selectedChange(t *testing.T, b Broker) {
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		b.Bury(id, nil)
	}
	dead := b.DeadLetters()
	ids := func() (all []string) {
		err := dead.Visit(t.Context(), func(l *consumer.Letter) bool {
			all = append(all, l.ID)
			return len(all) < 4
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := func(what string, got any, want string) {
		t.Helper()
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", what, got, want)
		}
	}
	want("visited", ids(), "[1 2 3 4]")
	if n, err := dead.Depth(t.Context()); n != 5 || err != nil {
		t.Errorf("depth %d, %v", n, err)
	}
	if l, err := dead.Oldest(t.Context()); l.ID != "1" || l.Since().IsZero() || err != nil {
		t.Errorf("the oldest is %q of %s, %v", l.ID, l.Since(), err)
	}
	var changed []string
	s := consumer.Selection{
		Limit: 1, Match: func(l *consumer.Letter) bool { return l.ID > "1" },
		Changed: func(l *consumer.Letter) { changed = append(changed, l.ID) }, MayReplay: consumer.Anywhere,
	}
	if found, err := dead.ListSelected(t.Context(), s); len(found) != 1 || found[0].ID != "2" || err != nil {
		t.Errorf("listed %v, %v", found, err)
	}
	if n, err := dead.ReplaySelected(t.Context(), s); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	s.Limit = 2
	if n, err := dead.DiscardSelected(t.Context(), s); n != 2 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	want("changed", changed, "[2 3 4]")
	want("left", ids(), "[1 5]")
	for _, change := range []func(context.Context, consumer.Selection) (int, error){
		dead.ReplaySelected, dead.DiscardSelected,
	} {
		none := consumer.Selection{Limit: -1, MayReplay: consumer.Anywhere}
		if n, err := change(t.Context(), none); n != 0 || err != nil {
			t.Errorf("a limit below 0 changed %d, %v", n, err)
		}
	}
	if n, err := dead.DiscardSelected(t.Context(), consumer.Selection{}); n != 2 || err != nil {
		t.Errorf("discarded %d of the rest, %v", n, err)
	}
	if _, err := dead.Oldest(t.Context()); err == nil {
		t.Error("an empty queue has an oldest letter")
	}
}

// Letters whose exchange is not allowed stay, and so do letters without a rule.
func refusedReplays(t *testing.T, b Broker) {
	const letters = 2
	for _, id := range numbered(letters) {
		b.Bury(id, nil)
	}
	dead := b.DeadLetters()
	why := errors.New("not to that exchange")
	refusing := consumer.Selection{MayReplay: func(*consumer.Letter) error { return why }}
	n, err := dead.ReplaySelected(t.Context(), refusing)
	if n != 0 || !errors.Is(err, why) || strings.Count(err.Error(), why.Error()) != letters {
		t.Errorf("refused replays changed %d, %v", n, err)
	}
	if n, err := dead.ReplaySelected(t.Context(), consumer.Selection{}); n != 0 || !errors.Is(err, consumer.ErrNoRule) {
		t.Errorf("a replay without a rule changed %d, %v", n, err)
	}
	elsewhere := consumer.Selection{MayReplay: consumer.ToExchanges("elsewhere")}
	n, err = dead.ReplaySelected(t.Context(), elsewhere)
	if n != 0 || err == nil || strings.Count(err.Error(), `is none of ["elsewhere"]`) != letters {
		t.Errorf("a replay to elsewhere changed %d, %v", n, err)
	}
	if n, err := dead.Count(t.Context()); n != letters || err != nil {
		t.Errorf("%d letters stay, %v", n, err)
	}
}

// oldest selects the oldest letters with a name, at most so many.
func oldest(limit int, name string) consumer.Selection {
	return consumer.Selection{Limit: limit, Match: func(l *consumer.Letter) bool { return l.Name() == name }}
}

// long is how many bytes the texts of a foreign letter have. NATS takes 64 KiB of headers.
const long = 7000

// A letter has long texts, and another one also a routing key that no broker can hold. The first may be replayed.
func boundedTexts(t *testing.T, b Broker) {
	b.Bury("1", longHeaders())
	unroutable := longHeaders()
	unroutable[consumer.HeaderRoutingKey] = strings.Repeat("k", 600)
	b.Bury("2", unroutable)
	dead := b.DeadLetters()
	check := func(l *consumer.Letter) {
		t.Helper()
		headers := 0
		for name, value := range l.Headers {
			headers += len(name) + len(value)
		}
		for what, text := range map[string]struct{ bytes, most int }{
			"id": {len(l.ID), 512}, "producer": {len(l.Producer), 512}, "exchange": {len(l.Exchange), 512},
			"routing key": {len(l.RoutingKey), 512}, "queue": {len(l.Queue), 512}, "content type": {len(l.ContentType), 512},
			"first failure": {len(l.FirstFailedAt), 512}, "reason": {len(l.Reason), 2000},
			"first cause": {len(l.FirstCause), 2000}, "headers": {headers, 32 << 10},
		} {
			if text.bytes > text.most {
				t.Errorf("the %s has %d bytes, more than %d", what, text.bytes, text.most)
			}
		}
		if len(l.Reason) < 1900 || !strings.HasSuffix(l.Reason, "…") || headers < 30<<10 {
			t.Errorf("the reason of %d bytes and the headers of %d have lost too much", len(l.Reason), headers)
		}
	}
	if err := dead.Visit(t.Context(), func(l *consumer.Letter) bool { check(l); return true }); err != nil {
		t.Error(err)
	}
	all := consumer.Selection{MayReplay: consumer.Anywhere}
	found, err := dead.ListSelected(t.Context(), all)
	if len(found) != 2 || err != nil {
		t.Fatalf("listed %d letters, %v", len(found), err)
	}
	for i := range found {
		check(&found[i])
	}
	n, err := dead.ReplaySelected(t.Context(), all)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "longer than 512 bytes") {
		t.Errorf("replayed %d, %v", n, err)
	}
}

func longHeaders() map[string]string {
	headers := map[string]string{}
	for _, name := range []string{
		consumer.HeaderQueue, consumer.HeaderDeadReason, consumer.HeaderFirstCause, consumer.HeaderFirstFailedAt,
		"tenant-a", "tenant-b", "tenant-c", "tenant-d", "tenant-e",
	} {
		headers[name] = strings.Repeat("ö", long/2)
	}
	return headers
}
