package confirmloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestVerdictThenMarkerThenSend(t *testing.T) {
	for name, start := range map[string]func(h *house, name halfmsg.Name){
		"pass":   func(h *house, _ halfmsg.Name) { h.pass() },
		"submit": func(h *house, name halfmsg.Name) { h.submit(name) },
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				names := h.have("orders", "1")
				start(h, names[0])
				synctest.Wait()
				h.wantNotes("1 sendable", "delete 1", "send 1")
				if h.commits != 1 {
					t.Errorf("%d messages were counted as committed", h.commits)
				}
				if h.sent[0].State != halfmsg.Sendable || h.sent[0].SendableAt.IsZero() {
					t.Errorf("sent %+v", h.sent[0])
				}
				if got := h.store.Peek(names[0]).LeaseUntil; !got.Equal(h.until[0]) {
					t.Errorf("the lease ends at %v, the sender was told %v", got, h.until[0])
				}
			})
		})
	}
}

func TestOnlyCommittedIsSent(t *testing.T) {
	mixed := verdicts{
		"committed": halfmsg.VerdictCommitted, "rolled-back": halfmsg.VerdictRolledBack,
		"unknown": halfmsg.VerdictUnknown, "nonsense": 77, // and "left-out" is not there
	}
	inHouse(t, confirmloop.Config{}, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) {
			return mixed, nil
		})
		names := h.have("orders", "committed", "rolled-back", "unknown", "nonsense", "left-out")
		h.pass()
		if got := h.sentIDs(); !slices.Equal(got, []string{"committed"}) {
			t.Errorf("sent %v", got)
		}
		slices.Sort(h.deleted)
		if !slices.Equal(h.deleted, []string{"committed", "rolled-back"}) {
			t.Errorf("deleted the markers of %v", h.deleted)
		}
		h.wantState(names[1], halfmsg.RolledBack)
		for _, name := range names[2:] {
			got := h.wantState(name, halfmsg.Pending)
			wait := time.Until(got.DueAt)
			if got.LastError != "the producer answered UNKNOWN" {
				t.Errorf("%s: %q", name, got.LastError)
			}
			if got.ConfirmAttempts != 1 || wait < 2500*time.Millisecond || wait > 5*time.Second {
				t.Errorf("%s: %d attempts, due in %v", name, got.ConfirmAttempts, wait)
			}
		}
	})
}

func TestCallIsTracedWithItsMessages(t *testing.T) {
	var traced []string
	config := confirmloop.Config{
		Trace: func(ctx context.Context, producer string, traces []string) (context.Context, func(error)) {
			traced = append(traced, producer+" asked about "+strings.Join(traces, " "))
			return ctx, func(err error) { traced = append(traced, fmt.Sprint("it said ", err)) }
		},
	}
	inHouse(t, config, func(h *house) {
		h.answers(func(context.Context, halfmsg.Target, []string, bool) (verdicts, error) { return nil, errAway })
		var names []halfmsg.Name
		for _, id := range []string{"1", "2"} {
			m := message("orders", id)
			m.Trace = "trace-" + id
			h.store.Create(h.t.Context(), []halfmsg.Message{m})
			names = append(names, m.Name)
		}
		h.submit(names...)
		synctest.Wait()
		want := []string{"orders asked about trace-1 trace-2", "it said " + errAway.Error()}
		if !slices.Equal(traced, want) {
			t.Errorf("traced %q, want %q", traced, want)
		}
	})
}

func TestDelayedMessageIsNotSentNow(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		m := message("orders", "1")
		m.Delay = time.Hour
		h.store.Create(h.t.Context(), []halfmsg.Message{m})
		h.submit(m.Name)
		synctest.Wait()
		h.wantNotes("1 sendable", "delete 1")
		got := h.store.Peek(m.Name)
		if got.LeaseOwner != "" || time.Until(got.DueAt) != time.Hour {
			t.Errorf("due in %v, held by %q", time.Until(got.DueAt), got.LeaseOwner)
		}
	})
}

func TestContradictingVerdictIsNotSent(t *testing.T) {
	inHouse(t, confirmloop.Config{}, func(h *house) {
		names := h.have("orders", "1")
		h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
			h.store.Rollback(context.Background(), names)
			return all(ids, halfmsg.VerdictCommitted), nil
		})
		h.pass()
		h.wantState(names[0], halfmsg.RolledBack)
		h.wantNotes()
		if h.fate("committed contradiction") != 1 {
			t.Errorf("%v", h.fates)
		}
	})
}

func TestStoreIsRetriedWhileLeaseLasts(t *testing.T) {
	for _, failure := range []error{halfmsg.ErrUnavailable, halfmsg.ErrUncertain} {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.have("orders", "1")
			h.store.Break(func(call string) error {
				if call == "Settle" {
					return failure
				}
				return nil
			})
			h.pass()
			h.wantNotes()
			time.Sleep(10 * time.Second)
			h.store.Break(nil)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			h.wantNotes("1 sendable", "delete 1", "send 1")
			if h.asks() != 1 {
				t.Errorf("the producer was asked %d times", h.asks())
			}
		})
	}
}

// TestUncertainOutcomeKeepsItsMarker has a store that stores no verdict, or does not say so, while the lease lasts.
func TestUncertainOutcomeKeepsItsMarker(t *testing.T) {
	for _, failure := range []error{halfmsg.ErrUnavailable, halfmsg.ErrUncertain} {
		for _, verdict := range []halfmsg.Verdict{halfmsg.VerdictCommitted, halfmsg.VerdictRolledBack} {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				names := h.have("orders", "1")
				h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					return all(ids, verdict), nil
				})
				h.store.Break(func(call string) error {
					if call == "Settle" {
						return failure
					}
					return nil
				})
				h.pass()
				time.Sleep(2 * lease)
				synctest.Wait()
				h.wantNotes()
				h.wantState(names[0], halfmsg.Pending)
			})
		}
	}
}

// TestCommittedMessageHasTheSendLease has other leases for the confirm stage than for the send stage.
func TestCommittedMessageHasTheSendLease(t *testing.T) {
	const confirmLease, sendLease = 30 * time.Second, 50 * time.Second
	inHouse(t, confirmloop.Config{Lease: confirmLease, SendLease: sendLease}, func(h *house) {
		names := append(h.have("orders", "passed"), h.have("orders", "submitted")...)
		h.submit(names[1])
		h.pass()
		for _, name := range names {
			if got := h.wantState(name, halfmsg.Sendable); time.Until(got.DueAt) != sendLease {
				t.Errorf("%s is held for %v, want %v", name, time.Until(got.DueAt), sendLease)
			}
		}
		for _, until := range look(h, func() []time.Time { return h.until }) {
			if time.Until(until) != sendLease {
				t.Errorf("the send stage may work for %v, want %v", time.Until(until), sendLease)
			}
		}
	})
}

func TestPassReturnsTheStoreError(t *testing.T) {
	for _, broken := range []string{"PendingProducers", "ClaimPending"} {
		inHouse(t, confirmloop.Config{}, func(h *house) {
			h.have("orders", "1")
			h.store.Break(func(call string) error {
				if call == broken {
					return halfmsg.ErrUnavailable
				}
				return nil
			})
			if more, err := h.Pass(h.t.Context()); more || !errors.Is(err, halfmsg.ErrUnavailable) {
				t.Errorf("%s: got %v, %v", broken, more, err)
			}
		})
	}
}
