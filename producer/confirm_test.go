package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// unruly is a marker store that can fail, panic, or decide final questions.
type unruly struct {
	*memory.Store
	fail    func(op string) error
	decides bool
}

func (u *unruly) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	if err := u.fail("put " + v.String()); err != nil {
		return nil, err
	}
	return u.Store.Put(ctx, ids, v)
}

func (u *unruly) Lookup(ctx context.Context, ids []string, final bool) (map[string]marker.Verdict, error) {
	if err := u.fail("lookup"); err != nil {
		return nil, err
	}
	if u.decides && final {
		return u.Store.Put(ctx, ids, marker.RolledBack)
	}
	return u.Store.Lookup(ctx, ids, final)
}

func (u *unruly) Delete(ctx context.Context, ids []string) error {
	if err := u.fail("delete"); err != nil {
		return err
	}
	return u.Store.Delete(ctx, ids)
}

func (u *unruly) Capabilities() marker.Capabilities {
	return marker.Capabilities{DecidesFinal: u.decides}
}

// unrulyHouse is a house whose marker store fails as the test says.
func unrulyHouse(t *testing.T, fail func(op string) error, change func(*producer.Config, *coordinator)) *house {
	t.Helper()
	store := memory.New()
	h := newHouse(t, func(c *producer.Config, co *coordinator) {
		c.Markers = &unruly{Store: store, fail: fail}
		if change != nil {
			change(c, co)
		}
	})
	h.markers = store
	return h
}

func TestConfirmOfRunningBusinessIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { return marker.RolledBack, nil }
		})
		err := h.p.Send(t.Context(), message("1001"), func(context.Context) error {
			for _, final := range []bool{false, true} {
				if v := h.verdict(t, "1001", final); v != pb.Verdict_VERDICT_UNKNOWN {
					t.Errorf("final=%v: %v", final, v)
				}
			}
			return nil
		})
		must(t, err)
		if v := h.verdict(t, "1001", false); v != pb.Verdict_VERDICT_COMMITTED {
			t.Errorf("afterwards: %v", v)
		}
	})
}

// A Send of the same id hangs, as on a coordinator that was stopped, while the coordinator asks about the run before.
func TestRepeatedSendHidesNoEarlierCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		err := h.p.Send(t.Context(), message("1001"), func(ctx context.Context) error {
			if _, err := h.markers.Put(ctx, []string{"1001"}, marker.Committed); err != nil {
				t.Fatal(err)
			}
			if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_COMMITTED {
				t.Errorf("an id committed before is %v", v)
			}
			return nil
		})
		must(t, err)
	})
}

func TestFinalQuestionReachesTheBarrierStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unruly{Store: memory.New(), fail: func(string) error { return nil }, decides: true}
		h := newHouse(t, func(c *producer.Config, _ *coordinator) { c.Markers = store })
		err := h.p.Send(t.Context(), message("1001"), func(context.Context) error {
			if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_ROLLED_BACK {
				t.Errorf("got %v", v)
			}
			return nil // a real store would have made the commit fail
		})
		if !errors.Is(err, producer.ErrContradicted) || h.count("SubmitAll") != 0 {
			t.Errorf("got %v, calls %v", err, h.calls)
		}
	})
}

func TestConfirmRefusesOtherProducersIds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		for _, row := range []struct {
			name string
			ids  int
			want codes.Code
		}{
			{"payments", 1, codes.FailedPrecondition},
			{"", 1, codes.FailedPrecondition},
			{"orders", 0, codes.InvalidArgument},
			{"orders", 501, codes.InvalidArgument},
			{"orders", 500, codes.OK},
		} {
			ids := make([]string, row.ids)
			for i := range ids {
				ids[i] = fmt.Sprint(i)
			}
			_, err := h.producer.Confirm(t.Context(), &pb.ConfirmRequest{Producer: row.name, Ids: ids})
			_, err2 := h.producer.DeleteBusiness(t.Context(), &pb.DeleteBusinessRequest{Producer: row.name, Ids: ids})
			if status.Code(err) != row.want || status.Code(err2) != row.want {
				t.Errorf("%q with %d ids: %v, %v; want %v", row.name, row.ids, err, err2, row.want)
			}
		}
	})
}

func TestFailingMarkerStoreIsUnavailable(t *testing.T) {
	down := errors.New("connection refused")
	inBubble("before the business", t, func(t *testing.T) {
		h := unrulyHouse(t, func(string) error { return down }, nil)
		runs := 0
		err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrMarkers) || !errors.Is(err, down) || runs != 0 || len(h.contents) != 0 {
			t.Errorf("got %v, %d runs, %d half messages", err, runs, len(h.contents))
		}
	})
	inBubble("a question costs no attempt", t, func(t *testing.T) {
		h := unrulyHouse(t, func(string) error { return down }, nil)
		_, err := h.producer.Confirm(t.Context(), &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1"}})
		gone := &pb.DeleteBusinessRequest{Producer: "orders", Ids: []string{"1"}}
		_, err2 := h.producer.DeleteBusiness(t.Context(), gone)
		if status.Code(err) != codes.Unavailable || status.Code(err2) != codes.Unavailable {
			t.Errorf("got %v, %v", err, err2)
		}
	})
	for name, put := range map[string]func() error{
		"a failed business is not rolled back": func() error { return down },
		"nor when the store panics":            func() error { panic(down) },
	} {
		inBubble(name, t, func(t *testing.T) {
			h := unrulyHouse(t, func(op string) error {
				if op == "put rolled_back" {
					return put()
				}
				return nil
			}, nil)
			declined := errors.New("card declined")
			err := h.p.Send(t.Context(), message("1001"), func(context.Context) error { return declined })
			if !errors.Is(err, declined) || h.count("Rollback") != 0 {
				t.Errorf("got %v, calls %v", err, h.calls)
			}
		})
	}
}

func TestCommitSurvivesFailingMarkerStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		h := unrulyHouse(t, func(op string) error {
			if !back.Load() && op == "put committed" {
				return errors.New("connection refused")
			}
			return nil
		}, nil)
		runs := 0
		if err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil)); err != nil {
			t.Fatalf("the business committed, yet: %v", err)
		}
		<-time.After(time.Minute) // fake time, for the retries
		if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_COMMITTED {
			t.Errorf("Confirm says %v while the store is away", v)
		}
		err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrAlreadyCommitted) || runs != 1 {
			t.Errorf("a repeat: %v, %d runs", err, runs)
		}
		back.Store(true)
		must(t, h.p.Close(t.Context()))
		if h.marked(t, "1001") != marker.Committed {
			t.Error("the marker was never stored")
		}
	})
}

func TestLateMarkerYieldsToDeleteBusiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		h := unrulyHouse(t, func(op string) error {
			if !back.Load() && op == "put committed" {
				return errors.New("connection refused")
			}
			return nil
		}, func(_ *producer.Config, c *coordinator) { c.confirms = true })
		runs := 0
		must(t, h.p.Send(t.Context(), message("1001"), ran(&runs, nil)))
		synctest.Wait()
		back.Store(true)
		must(t, h.p.Close(t.Context()))
		if len(h.delivered) != 1 || h.markers.Len() != 0 {
			t.Errorf("delivered %v, %d markers left", h.delivered, h.markers.Len())
		}
	})
}

func TestPanicsStayInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := unrulyHouse(t, func(op string) error { panic("store: " + op) }, nil)
		if v := h.verdict(t, "1001", false); v != pb.Verdict_VERDICT_UNKNOWN {
			t.Errorf("Confirm says %v", v)
		}
		if err := h.p.Send(t.Context(), message("1"), commits); !errors.Is(err, producer.ErrMarkers) {
			t.Errorf("Send: %v", err)
		}
		if _, err := h.p.Submit(t.Context(), "1"); !errors.Is(err, producer.ErrMarkers) {
			t.Errorf("Submit: %v", err)
		}
		if err := h.p.Rollback(t.Context(), "1", ""); !errors.Is(err, producer.ErrMarkers) {
			t.Errorf("Rollback: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { panic("resolve") }
		})
		if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_UNKNOWN {
			t.Errorf("Confirm says %v", v)
		}
	})
}

func TestResolveDecidesUnmarkedIds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(_ context.Context, id string, final bool) (marker.Verdict, error) {
				switch {
				case id == "paid":
					return marker.Committed, nil
				case id == "broken":
					return marker.RolledBack, errors.New("database away")
				case id == "nonsense":
					return 77, nil
				case final:
					return marker.RolledBack, nil
				}
				return marker.Unknown, nil
			}
		})
		if _, err := h.markers.Put(t.Context(), []string{"marked"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			id    string
			final bool
			want  pb.Verdict
		}{
			{"paid", false, pb.Verdict_VERDICT_COMMITTED},
			{"broken", true, pb.Verdict_VERDICT_UNAVAILABLE},
			{"nonsense", true, pb.Verdict_VERDICT_UNKNOWN},
			{"marked", true, pb.Verdict_VERDICT_COMMITTED},
			{"absent", false, pb.Verdict_VERDICT_UNKNOWN},
			{"absent", true, pb.Verdict_VERDICT_ROLLED_BACK},
			{"absent", false, pb.Verdict_VERDICT_ROLLED_BACK}, // the first answer stays true
		} {
			if v := h.verdict(t, row.id, row.final); v != row.want {
				t.Errorf("%s, final=%v: %v, want %v", row.id, row.final, v, row.want)
			}
		}
		runs := 0
		err := h.p.Send(t.Context(), message("absent"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrRolledBack) || runs != 0 {
			t.Errorf("a Send after ROLLED_BACK was answered: %v, %d runs", err, runs)
		}
	})
}

// heldUp is a store that cannot look up any message.
type heldUp struct{ *memory.Store }

func (heldUp) Lookup(_ context.Context, ids []string, _ bool) (map[string]marker.Verdict, error) {
	answers := map[string]marker.Verdict{}
	for _, id := range ids {
		answers[id] = marker.Unavailable
	}
	return answers, nil
}

// An id that the store could not look up loses no attempt, unless Resolve knows more.
func TestHeldUpMarkerLookupIsUnavailable(t *testing.T) {
	for resolve, want := range map[marker.Verdict]pb.Verdict{
		0:                 pb.Verdict_VERDICT_UNAVAILABLE, // no Resolve
		marker.Unknown:    pb.Verdict_VERDICT_UNAVAILABLE,
		marker.Committed:  pb.Verdict_VERDICT_COMMITTED,
		marker.RolledBack: pb.Verdict_VERDICT_ROLLED_BACK,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, func(c *producer.Config, _ *coordinator) {
				c.Markers = heldUp{memory.New()}
				if resolve != 0 {
					c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { return resolve, nil }
				}
			})
			for _, final := range []bool{false, true} {
				if v := h.verdict(t, "1001", final); v != want {
					t.Errorf("Resolve says %v, final=%v: %v, want %v", resolve, final, v, want)
				}
			}
		})
	}
}

func TestSendWaitsForItsConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) {
				<-gate
				return marker.RolledBack, nil
			}
		})
		answer := make(chan pb.Verdict)
		go func() { answer <- h.verdict(t, "1001", true) }()
		synctest.Wait()
		sent := make(chan error)
		go func() {
			sent <- h.p.Send(t.Context(), message("1001"), func(context.Context) error {
				t.Error("the business ran while the answer ROLLED_BACK was under way")
				return nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.p.Send(ctx, message("1001"), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a Send whose context ended: %v", err)
		}
		close(gate)
		if v := <-answer; v != pb.Verdict_VERDICT_ROLLED_BACK {
			t.Errorf("Confirm says %v", v)
		}
		if err := <-sent; !errors.Is(err, producer.ErrRolledBack) {
			t.Errorf("Send: %v", err)
		}
	})
}

func TestSlowResolveDelaysNoOtherAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *producer.Config, _ *coordinator) {
			c.Resolve = func(ctx context.Context, _ string, _ bool) (marker.Verdict, error) {
				<-ctx.Done()
				return marker.Unknown, ctx.Err()
			}
		})
		if _, err := h.markers.Put(t.Context(), []string{"paid"}, marker.Committed); err != nil {
			t.Fatal(err)
		}
		ids := []string{"paid"}
		for i := range 30 {
			ids = append(ids, fmt.Sprint(i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		answer, err := h.producer.Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: ids})
		if err != nil || len(answer.GetConfirmations()) != 31 {
			t.Fatalf("got %d answers, %v", len(answer.GetConfirmations()), err)
		}
		for _, a := range answer.GetConfirmations() {
			want := pb.Verdict_VERDICT_UNAVAILABLE // for ids that were cut off, and ids whose turn never came
			if a.GetId() == "paid" {
				want = pb.Verdict_VERDICT_COMMITTED
			}
			if a.GetVerdict() != want {
				t.Errorf("%s is %v, want %v", a.GetId(), a.GetVerdict(), want)
			}
		}
	})
}

func TestARepeatedIDIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		request := &pb.ConfirmRequest{Producer: "orders", Ids: []string{"1", "2", "1"}}
		answer, err := h.producer.Confirm(t.Context(), request)
		must(t, err)
		var ids []string
		for _, a := range answer.GetConfirmations() {
			ids = append(ids, a.GetId())
		}
		slices.Sort(ids)
		if !slices.Equal(ids, []string{"1", "2"}) {
			t.Errorf("answered %v", ids)
		}
		runs := 0
		if err := h.p.Send(t.Context(), message("1"), ran(&runs, nil)); err != nil || runs != 1 {
			t.Errorf("a Send afterwards: %v", err)
		}
	})
}
