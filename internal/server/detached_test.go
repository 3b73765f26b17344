package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// slow is a store whose writes arrive. The answers of cancelled writes are lost.
type slow struct {
	*store
	entered, gate chan struct{}
}

// write begins one, and says whether its answer is still waited for.
func (s *slow) write(ctx context.Context) (answered bool) {
	close(s.entered)
	<-s.gate
	return ctx.Err() == nil
}

func uncertain(n int) (all []halfmsg.Result) {
	for range n {
		all = append(all, halfmsg.Result{Err: halfmsg.ErrUncertain})
	}
	return all
}

func (s *slow) Submit(ctx context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	answered := s.write(ctx)
	all := s.store.Submit(ctx, names, lease)
	if !answered {
		for i, result := range uncertain(len(names)) {
			all[i] = halfmsg.Submitted{Result: result}
		}
	}
	return all
}

func (s *slow) Retry(ctx context.Context, names []halfmsg.Name, by, reason string) []halfmsg.Result {
	answered := s.write(ctx)
	if all := s.store.Retry(ctx, names, by, reason); answered {
		return all
	}
	return uncertain(len(names))
}

func (s *slow) Discard(ctx context.Context, names []halfmsg.Name, from halfmsg.State) []halfmsg.Result {
	answered := s.write(ctx)
	if all := s.store.Discard(ctx, names, from); answered {
		return all
	}
	return uncertain(len(names))
}

// A write in the store goes on when its caller leaves: stored moves are handed on, loops are woken, moves are observed,
// and does not wait until a lease ends.
func TestAWriteOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	names := []*adminv1.MessageName{{Producer: "orders", Id: "1"}, {Producer: "orders", Id: "2"}}
	for call, tc := range map[string]struct {
		state halfmsg.State
		do    func(ctx context.Context, h *house) error
		done  func(h *house, records string) bool
	}{
		"SubmitAll": {
			halfmsg.Pending,
			func(ctx context.Context, h *house) error {
				_, err := h.producers.SubmitAll(ctx, &msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{"1", "2"}})
				return err
			},
			func(h *house, _ string) bool { return len(h.taken()) == 2 },
		},
		"RetryMessages": {
			halfmsg.Dead,
			func(ctx context.Context, h *house) error {
				_, err := h.operators.RetryMessages(ctx, &adminv1.RetryMessagesRequest{
					Selection: &adminv1.MessageSelection{Names: names},
				})
				return err
			},
			func(h *house, records string) bool {
				return len(h.wakes()) == 1 && strings.Contains(records, "orders/2")
			},
		},
		"DiscardMessages": {
			halfmsg.Dead,
			func(ctx context.Context, h *house) error {
				_, err := h.operators.DiscardMessages(ctx, &adminv1.DiscardMessagesRequest{
					Selection: &adminv1.MessageSelection{Names: names},
				})
				return err
			},
			func(_ *house, records string) bool { return strings.Contains(records, "orders/2") },
		},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			s := &slow{store: newStore(), entered: make(chan struct{}), gate: make(chan struct{})}
			trail, left := &recorded{}, make(chan struct{})
			h := open(t, func(c *server.Config) {
				c.Intake, c.Inspector, c.Audit = s, s, trail
				c.Interceptors = []grpc.UnaryServerInterceptor{func(
					ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
				) (any, error) {
					context.AfterFunc(ctx, func() { close(left) })
					return next(ctx, r)
				}}
			})
			for i := range 2 {
				s.put("orders", fmt.Sprint(i+1), tc.state)
			}
			ctx, leave := context.WithCancel(t.Context())
			answered := make(chan error, 1)
			go func() { answered <- tc.do(ctx, h) }()
			<-s.entered
			leave()
			wantCode(t, <-answered, codes.Canceled)
			<-left // the server knows of it
			close(s.gate)
			eventually(t, "the written moves are handed on", func() bool { return tc.done(h, trail.String()) })
		})
	}
}
