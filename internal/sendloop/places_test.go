package sendloop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
	memstore "github.com/msghandler/msghandler/internal/store/memory"
)

// When most of the room is free again after there was none, a pass is asked for, once; and none otherwise, nor by
// Close.
func TestRoomAsksForAPass(t *testing.T) {
	for name, fill := range map[string]func(h *house, ids []string){
		"an offer found no room": func(h *house, ids []string) { h.offer(ids...) },
		"a pass found no room": func(h *house, ids []string) {
			h.waiting(ids...)
			for range ids {
				h.pass()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, sendloop.Config{Parallel: 1, Batch: 1, Queue: 20}, func(h *house) {
				gate := make(chan struct{})
				h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
					<-gate
					return halfmsg.PublishResult{Outcome: halfmsg.Acked}
				}, nil)
				h.offer("first")
				synctest.Wait()
				wakes := func() int { return look(h, func() int { return h.wakes }) }
				fill(h, numbered(21))
				full := h.Waiting("")
				for waiting := full; waiting > 1; waiting = h.Waiting("") {
					gate <- struct{}{}
					synctest.Wait()
					want := 0
					if waiting <= 5 {
						want = 1
					}
					if got := wakes(); got != want {
						t.Errorf("with %d waiting when a batch ends, %d passes were asked for, want %d", waiting, got, want)
					}
				}
				h.offer("another") // and no pass waits for room
				for range 2 {
					gate <- struct{}{}
					synctest.Wait()
				}
				fill(h, again(21))
				closed := make(chan error, 1)
				go func() { closed <- h.Close(context.Background()) }()
				synctest.Wait()
				close(gate)
				if err := <-closed; err != nil || wakes() != 1 || full < 10 || h.Waiting("") != 0 {
					t.Errorf("%d waited, %d passes were asked for after Close, %d wait: %v", full, wakes(), h.Waiting(""), err)
				}
			})
		})
	}
}

// again are ids that numbered does not have.
func again(n int) (ids []string) {
	for _, id := range numbered(n) {
		ids = append(ids, "again "+id)
	}
	return ids
}

// What breaks off, or whose lease ends before its turn, leaves its place to others.
func TestPanickedPublishKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poisoned := func(b []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
			hand(b, "good", halfmsg.Acked, answered)
			if len(b) > 1 {
				panic("poison")
			}
		}
		h := with(t, sendloop.Config{Parallel: 1, Batch: 2}, poisoned, func(s *memstore.Store) halfmsg.SendStore { return s })
		for i := range 5 {
			h.offer(fmt.Sprint("good", i), fmt.Sprint("other", i))
			synctest.Wait()
			h.want(fmt.Sprint("good", i), halfmsg.Done)
			h.Offer(h.committed(fmt.Sprint("ending", i)), time.Now())
			synctest.Wait()
			if got := h.want(fmt.Sprint("ending", i), halfmsg.Sendable); got.LeaseOwner != "" {
				t.Errorf("%+v was not handed back", got)
			}
		}
		h.offer("good")
		synctest.Wait()
		h.want("good", halfmsg.Done)
	})
}

// A backlog whose leases end before its turn is not taken for one that the broker has not answered.
func TestExpiredBacklogStopsNoOther(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1}, func(h *house) {
		h.answers(func(_ context.Context, p halfmsg.Publishing) halfmsg.PublishResult {
			if p.Name.ID == "slow" {
				time.Sleep(25 * time.Second)
			}
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.offer("slow")
		synctest.Wait()
		h.waiting("old")
		h.pass()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if got := h.want("old", halfmsg.Sendable); got.LeaseOwner != "" {
			t.Fatalf("%+v was not handed back", got)
		}
		h.offer("fresh")
		h.pass()
		h.want("old", halfmsg.Done)
	})
}

// Messages whose turn comes when the broker is away are handed back with the reason, and not kept until their leases
// end.
func TestLostBrokerHoldsNoMessages(t *testing.T) {
	inHouse(t, sendloop.Config{Parallel: 1, Batch: 1}, func(h *house) {
		gate := make(chan struct{})
		answer := func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			<-gate
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}
		h.answers(answer, nil)
		h.offer("1", "2")
		synctest.Wait()
		h.answers(answer, errors.New("it is away"))
		close(gate)
		synctest.Wait()
		h.want("1", halfmsg.Done)
		got := h.want("2", halfmsg.Sendable)
		if got.LeaseOwner != "" || got.LastError != "it is away" || got.PublishAttempts != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// The backlog that gives way follows what the broker has answered, and not only what is stored, except for one batch.
func TestBacklogDoesNotWaitForStore(t *testing.T) {
	inHouse(t, sendloop.Config{Batch: 10}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
			time.Sleep(time.Millisecond)
			return halfmsg.PublishResult{Outcome: halfmsg.Acked}
		}, nil)
		h.waiting(numbered(5)...)
		h.offer("fresh")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		h.store.Break(func(call string) error {
			if call == "Settle" {
				return halfmsg.ErrUnavailable
			}
			return nil
		})
		h.pass()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if got := len(h.published()); got != 1+2 {
			t.Errorf("%d went to the broker, want two of the backlog besides the first", got)
		}
		h.store.Break(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := h.store.Count(halfmsg.Done); got != 6 {
			t.Errorf("%d of 6 are done", got)
		}
	})
}

// A share of the backlog goes to the broker at a time, also when that has answered for the one before in groups.
func TestBrokerHasASingleBacklogShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var shares []int
		gate := make(chan struct{})
		h := with(t, sendloop.Config{Batch: 20}, func(b []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
			if b[0].Name.ID != "fresh" {
				mu.Lock()
				shares = append(shares, len(b))
				first := len(shares) == 1
				mu.Unlock()
				if !first {
					<-gate
				}
			}
			for i := range b {
				answered([]int{i}, []halfmsg.PublishResult{{Outcome: halfmsg.Acked}})
			}
		}, func(s *memstore.Store) halfmsg.SendStore { return s })
		h.waiting(numbered(20)...)
		h.offer("fresh")
		h.pass()
		mu.Lock()
		if !slices.Equal(shares, []int{2, 2}) {
			t.Errorf("shares of %v went to the broker, want two of two: an answered share and an unanswered share", shares)
		}
		mu.Unlock()
		close(gate)
		time.Sleep(5 * time.Second)
	})
}

// However close upon another messages come, no more batches are under way than may be, and no fewer.
func TestAllPlacesAreUsed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // all are offered before any is published
	for name, offer := range map[string]func(h *house){
		"one by one": func(h *house) {
			for _, id := range numbered(10) {
				h.offer(id)
			}
		},
		"together": func(h *house) { h.offer(numbered(10)...) },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, sendloop.Config{Parallel: 2, Batch: 1}, func(h *house) {
				gate := make(chan struct{})
				h.answers(func(context.Context, halfmsg.Publishing) halfmsg.PublishResult {
					h.note("at the broker")
					<-gate
					return halfmsg.PublishResult{Outcome: halfmsg.Acked}
				}, nil)
				offer(h)
				synctest.Wait()
				h.wantNotes("at the broker", "at the broker")
				close(gate)
			})
		})
	}
}

// counts notes what a Sender tells its metrics of publishings.
type counts struct {
	*house
	told []string
}

func (c *counts) Published(_, exchange string, outcome halfmsg.Outcome, n int) {
	c.told = append(c.told, fmt.Sprint(exchange, " ", outcome, " ", n))
}

func (c *counts) Failed(_, exchange string, cause error) {
	c.told = append(c.told, fmt.Sprint(exchange, ": ", cause))
}

func (c *counts) PublishedBatch(_ string, n, _ int, _ time.Duration) {
	c.told = append(c.told, fmt.Sprint("answered ", n))
}

// Readers of an exchange's metrics take the latest outcome for the present one: acknowledged, where any message was.
func TestMetricsCountAcknowledgementsLast(t *testing.T) {
	for range 10 { // no luck
		synctest.Test(t, func(t *testing.T) {
			h := &house{t: t, store: memstore.New(), fates: map[string]int{}}
			c := &counts{house: h}
			brokers := brokerIn(groups(func(b []halfmsg.Publishing, answered func([]int, []halfmsg.PublishResult)) {
				results := make([]halfmsg.PublishResult, len(b))
				places := make([]int, len(b))
				for i := range b {
					places[i] = i
					if results[i].Outcome = halfmsg.Acked; strings.HasPrefix(b[i].Name.ID, "refused") {
						results[i] = halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: errBroker}
					}
				}
				answered(places, results)
				answered(nil, nil) // and it leaves nothing behind
			}))
			h.Sender = sendloop.New(testConfig(sendloop.Config{
				Store: h.store, Metrics: c, Pipeline: h.pipeline(), Brokers: brokers,
			}))
			h.offer("1", "refused", "2")
			synctest.Wait()
			want := []string{"answered 3", "x: " + errBroker.Error(), "x refused 1", "x acked 2"}
			if !slices.Equal(c.told, want) {
				t.Errorf("told %q, want %q", c.told, want)
			}
			if err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}
