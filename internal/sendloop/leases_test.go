package sendloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

// slowClaims is a store whose answer to a claim takes a time.
type slowClaims struct {
	*memstore.Store
	takes time.Duration
}

func (s slowClaims) ClaimSendable(
	ctx context.Context, limit int, lease time.Duration, brokers ...string,
) ([]halfmsg.Claim, error) {
	claims, err := s.Store.ClaimSendable(ctx, limit, lease, brokers...)
	time.Sleep(s.takes)
	return claims, err
}

// The lease runs while the answer of the store is on its way.
func TestLeaseCountsFromBeforeTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		published := 0
		h := with(t, sendloop.Config{}, func(batch []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
			published += len(batch)
			hand(batch, "", halfmsg.Acked, answered)
		}, func(s *memstore.Store) halfmsg.SendStore { return slowClaims{s, 21 * time.Second} })
		h.waiting("1")
		h.pass() // less than the publisher may take is left
		if got := h.want("1", halfmsg.Sendable); published != 0 || got.LeaseOwner != "" {
			t.Errorf("%d published, and the message belongs to %q", published, got.LeaseOwner)
		}
	})
}

// A relay may have published copies before the store had the message, so the first copy from here is flagged.
func TestEarlierCopiesFlagTheFirst(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		claims := h.committed("1")
		claims[0].EarlierCopies, claims[0].Copies = 2, 3
		h.Offer(claims, time.Now().Add(lease))
		synctest.Wait()
		if p := h.published(); len(p) != 1 || p[0].Attempt != 6 {
			t.Errorf("published %+v", p)
		}
	})
}

// Consumers find the ordering key in a header, on every broker.
func TestOrderingKeyBecomesAHeader(t *testing.T) {
	inHouse(t, sendloop.Config{}, func(h *house) {
		claims := h.committed("1")
		claims[0].OrderingKey = "customer-7"
		h.Offer(claims, time.Now().Add(lease))
		synctest.Wait()
		p := h.published()
		if len(p) != 1 || p[0].Headers["msghandler-key"] != "customer-7" || p[0].Headers["own"] != "1" {
			t.Errorf("published %+v", p)
		}
	})
}

// The brokers have equal parts of the memory for bodies, so a broker that is stuck leaves the others theirs.
func TestBrokersShareTheMemoryOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &someBroker{gate: make(chan struct{}), outcome: halfmsg.Acked}
		h, _ := manyBrokers(t, sendloop.Config{Parallel: 1, Batch: 1}, events, "")
		claims, body := h.committedFor("events", numbered(200)...), make([]byte, 1<<20)
		for i := range claims {
			claims[i].Body = body
		}
		h.Offer(claims, time.Now().Add(lease))
		synctest.Wait()
		if n := h.Waiting("events"); n < 60 || n > 70 {
			t.Errorf("%d MiB wait for a broker of two, want half of 128", n)
		}
		close(events.gate)
		synctest.Wait()
	})
}
