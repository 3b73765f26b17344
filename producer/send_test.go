package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var errLost = status.Error(codes.Unavailable, "connection lost")

// inBubble runs a test in fake time; leaked goroutines fail the test.
func inBubble(name string, t *testing.T, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
}

func TestSendDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) { c.confirms = true })
		runs := 0
		must(t, h.p.Send(t.Context(), message("1001"), ran(&runs, nil)))
		synctest.Wait()
		if runs != 1 || len(h.delivered) != 1 || h.markers.Len() != 0 {
			t.Fatalf("ran %d times, delivered %v, %d markers left", runs, h.delivered, h.markers.Len())
		}
	})
}

func TestWithoutOKBusinessDoesNotRun(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.Unavailable: producer.ErrUnavailable, codes.Unknown: producer.ErrUnavailable,
		codes.DeadlineExceeded: producer.ErrUnavailable, codes.Internal: producer.ErrUnavailable,
		codes.ResourceExhausted: producer.ErrUnavailable, codes.Aborted: producer.ErrUnavailable,
		codes.InvalidArgument: producer.ErrRejected, codes.PermissionDenied: producer.ErrRejected,
		codes.Unimplemented: producer.ErrRejected, codes.AlreadyExists: producer.ErrExists,
	} {
		inBubble(code.String(), t, func(t *testing.T) {
			h := newHouse(t, func(_ *producer.Config, c *coordinator) {
				c.fault = func(string, int) fault { return fault{before: status.Error(code, "no")} }
			})
			runs, start := 0, time.Now()
			err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
			var failure *producer.Error
			if !errors.Is(err, want) || !errors.As(err, &failure) || failure.Code != code || failure.ID != "1001" {
				t.Errorf("got %v", err)
			}
			if runs != 0 || h.marked(t, "1001").Definite() || h.count("Rollback") != 0 {
				t.Errorf("ran %d times, marker %v, %d rollbacks", runs, h.marked(t, "1001"), h.count("Rollback"))
			}
			retried := errors.Is(want, producer.ErrUnavailable)
			if took := time.Since(start); retried && took < 29*time.Second || !retried && took > 0 {
				t.Errorf("gave up after %v and %d calls", took, h.count("SendHalfMessages"))
			}
			if n := h.count("SendHalfMessages"); retried && (n < 10 || n > 60) || !retried && n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestSendLastsUntilContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(string, int) fault { return fault{hold: make(chan struct{})} }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		runs, start := 0, time.Now()
		err := h.p.Send(ctx, message("1001"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || runs != 0 {
			t.Errorf("got %v after %d runs", err, runs)
		}
		if time.Since(start) != time.Second {
			t.Errorf("took %v", time.Since(start))
		}
	})
}

func TestSendSurvivesCoordinatorReplacement(t *testing.T) {
	for name, f := range map[string]fault{"request lost": {before: errLost}, "reply lost": {after: errLost}} {
		inBubble(name, t, func(t *testing.T) {
			h := newHouse(t, func(_ *producer.Config, c *coordinator) {
				c.confirms = true
				c.fault = func(_ string, n int) fault {
					if n < 3 {
						return f
					}
					return fault{}
				}
			})
			runs := 0
			must(t, h.p.Send(t.Context(), message("1001"), ran(&runs, nil)))
			must(t, h.p.Close(t.Context()))
			if runs != 1 || len(h.delivered) != 1 || h.count("SendHalfMessages") != 4 || h.count("SubmitAll") != 4 {
				t.Errorf("ran %d times, delivered %v, calls %v", runs, h.delivered, h.calls)
			}
		})
	}
}

func TestRetryInfoIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, err := status.New(codes.ResourceExhausted, "full").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)},
			&errdetails.ErrorInfo{Reason: "STORE_FULL", Domain: "msghandler"})
		must(t, err)
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(string, int) fault { return fault{before: full.Err()} }
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = h.p.SendHalf(ctx, message("1001"))
		var failure *producer.Error
		if !errors.As(err, &failure) || failure.Reason != "STORE_FULL" {
			t.Errorf("got %v", err)
		}
		if n := h.count("SendHalfMessages"); n != 3 {
			t.Errorf("%d calls in 20 s, want calls at 0, 7 and 14 s", n)
		}
	})
}

func TestTooLargeMessageIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		m := message("1001")
		m.Body = make([]byte, 5<<20)
		start := time.Now()
		_, err := h.p.SendHalf(t.Context(), m)
		if !errors.Is(err, producer.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestBusinessThatFailedIsRolledBack(t *testing.T) {
	for name, cause := range map[string]error{
		"plain":                 errors.New("card declined"),
		"certain of its timing": fmt.Errorf("%w: %w", producer.ErrNotCommitted, context.DeadlineExceeded),
	} {
		inBubble(name, t, func(t *testing.T) {
			h := newHouse(t, nil)
			runs := 0
			err := h.p.Send(t.Context(), message("1001"), ran(&runs, cause))
			if !errors.Is(err, cause) || errors.Is(err, producer.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			if h.state("1001") != producer.StateRolledBack || len(h.reasons) != 1 || h.reasons[0] != cause.Error() {
				t.Errorf("state %v, reasons %q", h.state("1001"), h.reasons)
			}
			if h.marked(t, "1001") != marker.RolledBack || h.count("SubmitAll") != 0 {
				t.Errorf("marker %v, %d submits", h.marked(t, "1001"), h.count("SubmitAll"))
			}
		})
	}
}

// The business could not begin, or allows another attempt: only a marker may decide its message.
func TestSendAgainIsNotRolledBack(t *testing.T) {
	for name, cause := range map[string]error{
		"plain":          fmt.Errorf("mark: %w: database is locked", producer.ErrSendAgain),
		"out of time":    fmt.Errorf("mark: %w: %w", producer.ErrSendAgain, context.DeadlineExceeded),
		"not committed":  fmt.Errorf("%w: %w: deadlock", producer.ErrNotCommitted, producer.ErrSendAgain),
		"Resolve denies": fmt.Errorf("%w: deadlock", producer.ErrSendAgain),
	} {
		inBubble(name, t, func(t *testing.T) {
			h := newHouse(t, func(c *producer.Config, co *coordinator) {
				co.confirms = true
				if name == "Resolve denies" {
					c.Resolve = func(context.Context, string, bool) (marker.Verdict, error) { return marker.RolledBack, nil }
				}
			})
			runs := 0
			err := h.p.Send(t.Context(), message("1001"), ran(&runs, cause))
			if !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, cause) || errors.Is(err, producer.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			synctest.Wait()
			if h.count("Rollback") != 0 || h.count("SubmitAll") != 0 || h.markers.Len() != 0 {
				t.Errorf("calls %v, %d markers", h.calls, h.markers.Len())
			}
			if err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil)); err != nil || runs != 2 {
				t.Errorf("sent again: %v, %d runs", err, runs)
			}
			synctest.Wait()
			if len(h.delivered) != 1 {
				t.Errorf("delivered %v", h.delivered)
			}
		})
	}
}

func TestConfirmAnswersForALostRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, _ int) fault {
				if rpc == "Rollback" {
					return fault{before: errLost}
				}
				return fault{}
			}
		})
		runs, start := 0, time.Now()
		_ = h.p.Send(t.Context(), message("1001"), ran(&runs, errors.New("card declined")))
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the caller waited %v", took)
		}
		err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil))
		if !errors.Is(err, producer.ErrRolledBack) || runs != 1 {
			t.Errorf("a repeat before the rollback arrived: %v, %d runs", err, runs)
		}
		if v := h.verdict(t, "1001", false); v != pb.Verdict_VERDICT_ROLLED_BACK {
			t.Errorf("Confirm says %v", v)
		}
	})
}

func TestRollbackIsTriedAgainInBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, _ int) fault {
				if rpc == "Rollback" && time.Since(start) < 8*time.Second {
					return fault{before: errLost}
				}
				return fault{}
			}
		})
		runs := 0
		_ = h.p.Send(t.Context(), message("1001"), ran(&runs, errors.New("card declined")))
		if v := h.marked(t, "1001"); h.state("1001") != producer.StatePending || v != marker.RolledBack {
			t.Fatalf("after Send the state is %v and the marker %v", h.state("1001"), v)
		}
		if err := h.p.Close(t.Context()); err != nil { // waits for what is under way
			t.Fatal(err)
		}
		if h.state("1001") != producer.StateRolledBack {
			t.Errorf("its state is %v", h.state("1001"))
		}
	})
}

func TestErrorHasReasonOfItsOutcome(t *testing.T) {
	inBubble("", t, func(t *testing.T) {
		h := newHouse(t, nil)
		first, other := message("1001"), message("1001")
		other.Body = []byte("other content")
		if _, err := h.p.SendHalf(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		_, err := h.p.SendHalf(t.Context(), other)
		var failure *producer.Error
		if !errors.Is(err, producer.ErrExists) || !errors.As(err, &failure) || failure.Reason != "MESSAGE_EXISTS" {
			t.Errorf("got %v, with %+v", err, failure)
		}
	})
}

// A failed run must not roll back the message of another run of the same id that holds the marker.
func TestFailedRunKeepsAnotherRunsMessage(t *testing.T) {
	for name, row := range map[string]struct {
		held    time.Duration // how long the other run takes
		submits int
	}{
		"which commits after Send has given up": {5 * time.Second, 1},
		"which is still under way":              {time.Hour, 0},
	} {
		inBubble(name, t, func(t *testing.T) {
			start := time.Now()
			var h *house
			h = unrulyHouse(t, func(op string) error {
				switch {
				case op != "put "+marker.RolledBack.String():
					return nil
				case time.Since(start) < row.held:
					return errors.New("another transaction holds the marker")
				}
				_, err := h.markers.Put(t.Context(), []string{"1001"}, marker.Committed)
				return err
			}, nil)
			runs := 0
			_ = h.p.Send(t.Context(), message("1001"), ran(&runs, errors.New("card declined")))
			must(t, h.p.Close(t.Context()))
			if h.count("Rollback") != 0 || h.count("SubmitAll") != row.submits {
				t.Errorf("%d rollbacks and %d submits; its state is %v", h.count("Rollback"), h.count("SubmitAll"), h.state("1001"))
			}
		})
	}
}

func TestUnknownOutcomeIsLeftToConfirm(t *testing.T) {
	for name, cause := range map[string]error{
		"said so":          producer.Unsure(errors.New("connection reset during commit")),
		"cancelled":        fmt.Errorf("commit: %w", context.Canceled),
		"out of time":      fmt.Errorf("commit: %w", context.DeadlineExceeded),
		"said in two ways": fmt.Errorf("%w: %w", producer.ErrOutcomeUnknown, producer.ErrNotCommitted),
	} {
		inBubble(name, t, func(t *testing.T) {
			h := newHouse(t, nil)
			runs := 0
			err := h.p.Send(t.Context(), message("1001"), ran(&runs, cause))
			if !errors.Is(err, producer.ErrOutcomeUnknown) || !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			synctest.Wait()
			if h.count("Rollback") != 0 || h.count("SubmitAll") != 0 || h.markers.Len() != 0 {
				t.Errorf("calls %v, %d markers", h.calls, h.markers.Len())
			}
			if v := h.verdict(t, "1001", true); v != pb.Verdict_VERDICT_UNKNOWN {
				t.Errorf("Confirm says %v", v)
			}
		})
	}
	if producer.Unsure(nil) != nil {
		t.Error("Unsure(nil) is an error")
	}
}

func TestPanicNeitherMarksNorRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = h.p.Send(t.Context(), message("1001"), func(context.Context) error { panic("boom") })
		}()
		synctest.Wait()
		if h.count("Rollback") != 0 || h.count("SubmitAll") != 0 || h.markers.Len() != 0 {
			t.Errorf("calls %v, %d markers", h.calls, h.markers.Len())
		}
		runs := 0
		if err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil)); err != nil || runs != 1 {
			t.Errorf("the id cannot be sent again: %v", err)
		}
	})
}

func TestCanceledCallerKeepsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) { c.confirms = true })
		ctx, cancel := context.WithCancel(t.Context())
		err := h.p.Send(ctx, message("1001"), func(context.Context) error { cancel(); return nil })
		synctest.Wait()
		if err != nil || len(h.delivered) != 1 || len(h.log.all()) != 0 {
			t.Errorf("got %v, delivered %v, logged %q", err, h.delivered, h.log.all())
		}
		err = h.p.Send(ctx, message("1002"), commits)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a late Send: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		declined := errors.New("card declined")
		err = h.p.Send(ctx, message("1003"), func(context.Context) error { cancel(); return declined })
		if !errors.Is(err, declined) || h.state("1003") != producer.StateRolledBack {
			t.Errorf("got %v, state %v", err, h.state("1003"))
		}
	})
}

func TestALostSubmitLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, _ int) fault {
				if rpc == "SubmitAll" {
					return fault{before: errLost}
				}
				return fault{}
			}
		})
		runs, start := 0, time.Now()
		if err := h.p.Send(t.Context(), message("1001"), ran(&runs, nil)); err != nil || time.Since(start) > 0 {
			t.Fatalf("got %v after %v", err, time.Since(start))
		}
		must(t, h.p.Close(t.Context()))
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("the marker was tried for %v", took)
		}
		must(t, h.confirm(t.Context(), false, "1001"))
		if len(h.delivered) != 1 || h.markers.Len() != 0 {
			t.Errorf("delivered %v, %d markers left", h.delivered, h.markers.Len())
		}
		if lines := h.log.all(); len(lines) != 1 || !strings.HasPrefix(lines[0], "WARN a submit was lost") {
			t.Errorf("logged %q", lines)
		}
	})
}

func TestEarlySubmitIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		time.AfterFunc(time.Second, func() { h.setState("1001", producer.StatePending) })
		if state, err := h.p.Submit(t.Context(), "1001"); err != nil || state != producer.StatePending {
			t.Errorf("got %v, %v", state, err)
		}
		start := time.Now()
		_, err := h.p.Submit(t.Context(), "nobody")
		if !errors.Is(err, producer.ErrNotFound) || time.Since(start) > 4*time.Second {
			t.Errorf("an id never sent: %v after %v", err, time.Since(start))
		}
	})
}

// Send has returned nil by then, so each message is logged and reported to OnUndeliverable, also when many are gone
// at once.
func TestGoneCommittedMessageIsReported(t *testing.T) {
	for name, row := range map[string]struct {
		state producer.State
		want  error
	}{
		"rolled back": {producer.StateRolledBack, producer.ErrContradicted},
		"discarded":   {0, producer.ErrNotFound},
	} {
		inBubble(name, t, func(t *testing.T) {
			gone := map[string]error{}
			var mu sync.Mutex
			h := newHouse(t, func(c *producer.Config, _ *coordinator) {
				c.OnUndeliverable = func(id string, err error) {
					mu.Lock()
					defer mu.Unlock()
					gone[id] = err
					panic("in the callback")
				}
			})
			for _, id := range []string{"1001", "1002"} {
				err := h.p.Send(t.Context(), message(id), func(context.Context) error {
					h.setState(id, row.state)
					return nil
				})
				must(t, err)
			}
			must(t, h.p.Close(t.Context()))
			lines := slices.DeleteFunc(h.log.all(), func(line string) bool {
				return !strings.HasPrefix(line, "ERROR the coordinator has given up")
			})
			if len(lines) != 2 {
				t.Errorf("logged %q", h.log.all())
			}
			for _, id := range []string{"1001", "1002"} {
				if !errors.Is(gone[id], row.want) {
					t.Errorf("of %s was told %v", id, gone[id])
				}
			}
		})
	}
}

// Two runs of one id in one process, by the single steps: a run that commits after the other's rollback gets an
// error.
func TestSubmitAfterRollbackIsContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		for range 2 {
			if state, err := h.p.SendHalf(t.Context(), message("1001")); err != nil || state != producer.StatePending {
				t.Fatal(state, err)
			}
		}
		must(t, h.p.Rollback(t.Context(), "1001", "card declined"))
		if _, err := h.p.Submit(t.Context(), "1001"); !errors.Is(err, producer.ErrContradicted) {
			t.Errorf("by its marker: %v", err)
		}
		if err := h.markers.Withdraw(t.Context(), []string{"1001"}); err != nil { // as when expired
			t.Fatal(err)
		}
		if _, err := h.p.Submit(t.Context(), "1001"); !errors.Is(err, producer.ErrContradicted) {
			t.Errorf("by the coordinator: %v", err)
		}
	})
}

// A run may still be open when the coordinator has asked, got ROLLED_BACK from the other run, and had markers
// deleted.
func TestCommitAfterDeleteBusinessIsContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		other := newReplica(t, h)
		err := h.p.Send(t.Context(), message("1001"), func(ctx context.Context) error {
			h.coordinator.setFault(func(rpc string, _ int) fault {
				if rpc == "Rollback" {
					return fault{before: errLost}
				}
				return fault{}
			})
			_ = other.Send(ctx, message("1001"), func(context.Context) error { return errors.New("card declined") })
			if err := h.confirm(ctx, false, "1001"); err != nil { // asks the replica that failed
				t.Fatal(err)
			}
			if h.state("1001") != producer.StateRolledBack {
				t.Fatalf("the message is %v", h.state("1001"))
			}
			return nil
		})
		if !errors.Is(err, producer.ErrContradicted) {
			t.Errorf("got %v", err)
		}
	})
}
