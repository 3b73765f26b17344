// Package lettertest holds what the DeadLetters of each broker promise about selections.
package lettertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/consumer"
)

// DeadLetters are the dead letters of a broker.
type DeadLetters interface {
	ListSelected(ctx context.Context, s consumer.Selection) ([]consumer.Letter, error)
	Visit(ctx context.Context, visit func(*consumer.Letter) bool) error
	Oldest(ctx context.Context) (consumer.Letter, error)
	Depth(ctx context.Context) (int, error)
	ReplaySelected(ctx context.Context, s consumer.Selection) (int, error)
	DiscardSelected(ctx context.Context, s consumer.Selection) (int, error)
}

// Select changes some of the letters with the ids 1 to 5, which can be replayed.
func Select(t *testing.T, dead DeadLetters) {
	t.Helper()
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
	refuse(t, dead, 2)
	if n, err := dead.DiscardSelected(t.Context(), consumer.Selection{}); n != 2 || err != nil {
		t.Errorf("discarded %d of the rest, %v", n, err)
	}
	if _, err := dead.Oldest(t.Context()); err == nil {
		t.Error("an empty queue has an oldest letter")
	}
}

// refuse replays letters whose exchange is not allowed, and letters without a rule: all stay.
func refuse(t *testing.T, dead DeadLetters, letters int) {
	t.Helper()
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
}

// Long is how many bytes the texts of a foreign letter have. NATS takes 64 KiB of headers.
const Long = 7000

// Bound looks at two letters whose texts have Long bytes, except the ids and producers: with a name that a broker can
// hold, and with a longer routing key. The first may be replayed to its destination.
func Bound(t *testing.T, dead DeadLetters) {
	t.Helper()
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

// LongHeaders are the headers of a letter for Bound, in the form of a broker's test.
func LongHeaders(set func(name, value string)) {
	long := strings.Repeat("ö", Long/2)
	for _, name := range []string{
		consumer.HeaderQueue, consumer.HeaderDeadReason, consumer.HeaderFirstCause, consumer.HeaderFirstFailedAt,
		"tenant-a", "tenant-b", "tenant-c", "tenant-d", "tenant-e",
	} {
		set(name, long)
	}
}
